//! Finding, losing and finding again the key.

use super::*;

/// As long as the longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(10 * 60);

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_an_error_that_stays() {
    let fixture = Fixture::new(Opener::Password(Secret::new("wrong")));
    fixture.put_known_locks();
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::WrongPassword);
    assert!(error.to_string().contains("opens none of 1 key files"), "{error}");
    fixture.store.requests();
    // No request before the next attempt, and no sealed look.
    for _ in 0..5 {
        assert_eq!(fixture.error().await, error);
        assert_eq!(fixture.source.scan().await.unwrap_err(), error);
    }
    assert_eq!(fixture.store.requests(), [""; 0]);
    tokio::time::advance(LONGEST).await;
    assert_eq!(fixture.source.scan().await.unwrap_err(), error);
    fixture.source.ready().await;
    assert_eq!(fixture.source.scan().await.unwrap_err(), error);
    assert_eq!(fixture.store.requests(), ["list keys", "read config", "read keys/18d3"]);
    // The password is read anew at each attempt.
    *fixture.opener.lock().unwrap() = Opener::Password(Secret::new(PASSWORD));
    tokio::time::advance(LONGEST).await;
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn one_good_key_file_among_bad_ones_opens() {
    let fixture = Fixture::with_password();
    let put = |path: &str, bytes: &[u8]| fixture.store.put(path, bytes.to_vec());
    let garbage = b"garbage".to_vec();
    put(&format!("keys/{}", name_of(&garbage)), &garbage);
    put(&format!("keys/{}", "00".repeat(32)), b"its name is not its hash");
    put(&format!("keys/{}-tmp-1", "00".repeat(32)), b"{}");
    put("keys/README", b"x");
    fixture.put_known_locks();
    let look = fixture.look().await;
    assert_eq!(words(&look), ["2327 shared", "d172 exclusive"]);
    assert_eq!(&*look.facts.details["skipped_keys"], "1");
    let requests = fixture.store.requests();
    // Asked for twice: perhaps it was damaged on the way.
    assert_eq!(requests.iter().filter(|request| *request == "read keys/0000").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_unusable_key_files_are_damage() {
    let fixture = Fixture::with_password();
    fixture.store.remove(&format!("keys/{KEY_NAME}"));
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::Damaged);
    assert!(error.to_string().contains("no key file"), "{error}");
    let garbage = b"garbage".to_vec();
    fixture.store.put(&format!("keys/{}", name_of(&garbage)), garbage);
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::Damaged);
    assert!(error.to_string().contains("not the JSON of a key file"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn at_most_twenty_keys_are_tried_and_the_hinted_one_first() {
    let mut fixture = Fixture::with_password();
    fixture.store.remove(&format!("keys/{KEY_NAME}"));
    let mut paths = Vec::new();
    for index in 0..25 {
        let (path, bytes) = key_file(format!("pw{index}").as_bytes(), 2, &known::master());
        fixture.store.put(&path, bytes);
        paths.push((path, index));
    }
    paths.sort();
    let (last, index) = paths.pop().unwrap();
    *fixture.opener.lock().unwrap() = Opener::Password(Secret::new(format!("pw{index}")));
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::WrongPassword);
    assert!(error.to_string().contains("5 more were not tried"), "{error}");
    assert!(error.advice.contains("key hint"), "{error}");
    *fixture.hint.lock().unwrap() = Some(last["keys/".len()..][..8].to_owned());
    fixture.reload();
    fixture.store.requests();
    fixture.look().await;
    let reads = fixture.store.requests();
    assert_eq!(reads.iter().filter(|request| request.starts_with("read keys/")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn key_files_that_may_not_be_read_are_no_wrong_password() {
    for (prefix, kind) in [
        ("list keys", PERMISSION),
        ("read keys/", PERMISSION),
        ("read keys/", StoreErrorKind::Archived),
    ] {
        let fixture = Fixture::with_password();
        fixture.store.rule(prefix, usize::MAX, Effect::Fail(kind));
        let error = fixture.error().await;
        assert_eq!(error.class, ErrorClass::Permission);
        assert!(error.to_string().contains("cannot read key files"), "{error}");
        assert!(error.to_string().contains("keys"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hostile_key_file_costs_nothing() {
    let fixture = Fixture::with_password();
    fixture.store.remove(&format!("keys/{KEY_NAME}"));
    let text = KEY_TEXT.replace(r#""N":1024"#, r#""N":1048576"#);
    fixture.store.put(&format!("keys/{}", name_of(text.as_bytes())), text.clone());
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::Unsupported);
    assert!(error.to_string().contains("over the limit of 16 MiB"), "{error}");
    // Beside a good one it is skipped.
    let fixture = Fixture::with_password();
    fixture.store.put(&format!("keys/{}", name_of(text.as_bytes())), text);
    fixture.look().await;
}

#[tokio::test(start_paused = true)]
async fn a_network_failure_of_the_key_search_is_over_with_the_next_scan() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.store.rule("read keys/", 1, Effect::Fail(NETWORK));
    fixture.source.ready().await;
    let look = fixture.source.scan().await.unwrap();
    assert_eq!(words(&look), ["2327 shared", "d172 exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_gives_the_key_file_is_a_timeout_not_sealed_for_ever() {
    let fixture = Fixture::with_password();
    fixture.store.rule("read keys/", usize::MAX, Effect::Hang);
    assert!(fixture.source.scan().await.unwrap().facts.sealed);
    assert_eq!(fixture.error().await.class, ErrorClass::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_derivation_survives_the_scan_that_started_it() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.store.rule("list locks", 1, Effect::Hang);
    let scan = tokio::time::timeout(TIMEOUT, fixture.source.scan()).await;
    assert!(scan.is_err());
    fixture.source.ready().await;
    fixture.store.requests();
    let look = fixture.source.scan().await.unwrap();
    assert_eq!(words(&look), ["2327 shared", "d172 exclusive"]);
    assert_eq!(fixture.store.requests()[0], "list locks");
}

#[tokio::test(start_paused = true)]
async fn a_scan_dropped_while_it_recognises_leaves_nothing_behind() {
    let fixture = Fixture::with_password();
    for request in ["list keys", "read config"] {
        fixture.store.rule(request, 1, Effect::Hang);
        assert!(tokio::time::timeout(TIMEOUT, fixture.source.scan()).await.is_err());
    }
    fixture.look().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_derivation_is_started_again() {
    let mut state = State::default();
    let (done, finished) = watch::channel(());
    let (lost, _) = state.begin(finished);
    let fixture = Fixture::with_password();
    let session = fixture.source.inner.connect.connect().await.unwrap();
    let repository = Arc::new(Repository::recognise(Arc::new(session)).await.unwrap());
    assert!(matches!(state.access(&repository), Access::Pending(None)));
    drop(done);
    assert!(matches!(state.access(&repository), Access::Start));
    // The result of a derivation that is not waited for any more changes nothing.
    let (_done, finished) = watch::channel(());
    let (_, error) = state.begin(finished);
    assert_eq!(error.unwrap().class, ErrorClass::Internal);
    let error = ScanError::new(ErrorClass::Internal, "", "", "");
    state.end(&lost, Arc::clone(&repository), Err(error), Instant::now());
    assert!(matches!(state.access(&repository), Access::Pending(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn a_reloaded_target_does_not_derive_again() {
    let mut fixture = Fixture::with_password();
    fixture.look().await;
    // The same key file with another password inside would fail if it were derived.
    fixture.reload();
    fixture.look().await;
    assert_eq!(fixture.context.derivations.remembered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repository_made_anew_with_the_same_password_is_opened_again() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.look().await;
    make_anew(&fixture, PASSWORD);
    fixture.store.requests();
    // The scan that notices it shows its locks sealed: it does not wait for the key.
    let noticed = fixture.source.scan().await.unwrap();
    assert!(noticed.facts.sealed);
    let checks = fixture.store.requests();
    assert_eq!(checks.iter().filter(|request| *request == "list keys").count(), 2, "{checks:?}");
    let look = fixture.look().await;
    assert_eq!(look.entries.len(), 2);
    assert!(look.entries.iter().all(|entry| matches!(entry, LockEntry::Readable(_))));
    assert_eq!(&*look.facts.details["repository_id"], "ab".repeat(32));
}

#[tokio::test(start_paused = true)]
async fn a_repository_made_anew_with_another_password_fails_the_scan() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.look().await;
    make_anew(&fixture, b"another password");
    let noticed = fixture.scan().await.unwrap();
    assert!(noticed.facts.sealed);
    assert_eq!(fixture.error().await.class, ErrorClass::WrongPassword);
}

/// Another repository in the same place, with two locks.
fn make_anew(fixture: &Fixture, password: &[u8]) {
    let master = another_master();
    fixture.store.change(std::collections::BTreeMap::clear);
    let (path, bytes) = key_file(password, 2, &master);
    fixture.store.put(&path, bytes);
    fixture.store.put("config", config(2, &master));
    for pid in [1, 2] {
        let (path, bytes) = lock_with(&master, pid);
        fixture.store.put(&path, bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_removed_is_replaced_by_another_that_fits() {
    let fixture = Fixture::with_password();
    fixture.look().await;
    let (path, bytes) = key_file(PASSWORD, 2, &known::master());
    fixture.store.put(&path, bytes);
    fixture.store.remove(&format!("keys/{KEY_NAME}"));
    let (path, bytes) = lock_with(&another_master(), 1);
    fixture.store.put(&path, bytes);
    assert!(fixture.look().await.facts.sealed);
    // The same repository after all: the lock is foreign.
    let look = fixture.look().await;
    assert!(matches!(look.entries[..], [LockEntry::Unreadable(_, UnreadableWhy::Mac)]));
}

#[tokio::test(start_paused = true)]
async fn a_master_key_of_another_repository_is_a_wrong_password() {
    let json = another_master().to_json();
    let fixture = Fixture::new(Opener::MasterKey(Secret::new(json.as_bytes())));
    assert_eq!(fixture.error().await.class, ErrorClass::WrongPassword);
    let fixture = Fixture::new(Opener::MasterKey(Secret::new("garbage")));
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::Config);
    assert!(!error.to_string().contains("garbage"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn with_a_master_key_a_repository_made_anew_is_noticed_by_its_config() {
    let json = known::master().to_json();
    let fixture = Fixture::new(Opener::MasterKey(Secret::new(json.as_bytes())));
    fixture.look().await;
    let (path, bytes) = lock_with(&another_master(), 1);
    fixture.store.put(&path, bytes);
    fixture.store.requests();
    // A foreign lock: `config` still opens.
    assert!(fixture.words().await[0].ends_with("mac"));
    let asked = fixture.store.requests();
    assert_eq!(asked[0], "list locks");
    assert_eq!(asked[2..], ["read config"]);
    assert!(fixture.words().await[0].ends_with("mac"));
    assert_eq!(fixture.store.requests(), ["list locks"]);
    make_anew(&fixture, PASSWORD);
    // From then on, and never sealed in between.
    for _ in 0..3 {
        let error = fixture.source.scan().await.unwrap_err();
        assert_eq!(error.class, ErrorClass::WrongPassword);
    }
}

#[tokio::test(start_paused = true)]
async fn bad_key_files_do_not_use_up_the_keys_that_are_tried() {
    let fixture = Fixture::with_password();
    for index in 0..50 {
        let garbage = format!("garbage {index}");
        fixture.store.put(&format!("keys/{}", name_of(garbage.as_bytes())), garbage);
    }
    fixture.look().await;
    for index in 50..500 {
        let garbage = format!("garbage {index}");
        fixture.store.put(&format!("keys/{}", name_of(garbage.as_bytes())), garbage);
    }
    fixture.store.remove(&format!("keys/{KEY_NAME}"));
    let mut fixture = fixture;
    fixture.reload();
    let error = fixture.error().await;
    assert_eq!(error.class, ErrorClass::Damaged);
    assert!(error.to_string().contains("400 more were not tried"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_mended_password_is_tried_after_a_minute_and_then_ever_less_often() {
    let fixture = Fixture::new(Opener::Password(Secret::new("wrong")));
    fixture.error().await;
    for minutes in [1, 2, 4, 8, 10, 10] {
        fixture.store.requests();
        tokio::time::advance(Duration::from_secs(minutes * 60 - 1)).await;
        fixture.error().await;
        assert_eq!(fixture.store.requests(), [""; 0], "before {minutes} min");
        tokio::time::advance(Duration::from_secs(1)).await;
        fixture.error().await;
        assert_ne!(fixture.store.requests(), [""; 0], "after {minutes} min");
    }
}
