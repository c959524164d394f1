//! How many requests a look costs, exactly.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cold_scan_with_a_password() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
    let mut requests = fixture.store.requests();
    requests.sort();
    assert_eq!(
        requests,
        [
            "list keys",
            "list locks",
            "read config",
            "read keys/18d3",
            "read locks/2327",
            "read locks/d172"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_scan_does_not_wait_for_the_key() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    let first = fixture.source.scan().await.unwrap();
    assert_eq!(words(&first), ["2327 key_pending", "d172 key_pending"]);
    assert!(first.facts.sealed);
    assert_eq!(fixture.store.requests(), ["list keys", "read config", "list locks"]);
    fixture.source.ready().await;
    assert_eq!(fixture.store.requests(), ["read keys/18d3"]);
    let second = fixture.source.scan().await.unwrap();
    assert_eq!(words(&second), ["2327 shared", "d172 exclusive"]);
    assert!(!second.facts.sealed);
    assert_eq!(fixture.store.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_warm_scan_is_one_listing() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.look().await;
    fixture.store.requests();
    for _ in 0..3 {
        assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
        assert_eq!(fixture.store.requests(), ["list locks"]);
    }
    // One new name is one read.
    let (path, bytes) = lock_with(&known::master(), 1);
    fixture.store.put(&path, bytes);
    assert_eq!(fixture.words().await.len(), 3);
    assert_eq!(fixture.store.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_listing_is_believed_only_beside_a_config() {
    let fixture = Fixture::with_password();
    assert_eq!(fixture.words().await, [""; 0]);
    let mut cold = fixture.store.requests();
    cold.sort();
    // `ready` has recognised the repository before the scan.
    assert_eq!(cold, ["list keys", "list locks", "read config", "read keys/18d3", "stat config"]);
    assert_eq!(fixture.words().await, [""; 0]);
    assert_eq!(fixture.store.requests(), ["list locks", "stat config"]);
}

#[tokio::test(start_paused = true)]
async fn a_sealed_scan() {
    let fixture = Fixture::sealed();
    fixture.put_known_locks();
    assert_eq!(fixture.words().await, ["2327 no_key", "d172 no_key"]);
    // The first scan of a source that was not made ready.
    let mut fixture = fixture;
    fixture.reload();
    fixture.store.requests();
    let look = fixture.source.scan().await.unwrap();
    assert!(look.facts.sealed);
    assert_eq!(fixture.store.requests(), ["list keys", "stat config", "list locks"]);
    fixture.source.scan().await.unwrap();
    assert_eq!(fixture.store.requests(), ["list locks"]);
    fixture.store.change(|files| files.retain(|path, _| !path.starts_with("locks/")));
    fixture.source.scan().await.unwrap();
    assert_eq!(fixture.store.requests(), ["list locks", "stat config"]);
}

#[tokio::test(start_paused = true)]
async fn a_cold_sealed_scan_of_an_empty_repository_asks_for_config_once() {
    let fixture = Fixture::sealed();
    fixture.source.scan().await.unwrap();
    assert_eq!(fixture.store.requests(), ["list keys", "stat config", "list locks"]);
}

#[tokio::test(start_paused = true)]
async fn the_old_layout_of_s3_is_found() {
    for opener in [Opener::Sealed, Opener::Password(Secret::new(PASSWORD))] {
        let fixture = Fixture::new(opener);
        fixture.store.remove(&format!("keys/{KEY_NAME}"));
        fixture.store.put("keys/README", "not an id");
        fixture.store.put(&format!("key/{KEY_NAME}"), KEY_TEXT);
        fixture.store.put(&format!("lock/{LOCK_A_NAME}"), known::bytes(known::LOCK_A));
        let look = fixture.look().await;
        assert_eq!(look.entries.len(), 1);
        assert_eq!(&*look.facts.details["layout"], "s3legacy");
        let mut requests = fixture.store.requests();
        requests.retain(|request| request.starts_with("list"));
        assert_eq!(requests, ["list keys", "list key", "list lock"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_key_needs_no_key_file() {
    let json = known::master().to_json();
    let fixture = Fixture::new(Opener::MasterKey(Secret::new(json.as_bytes())));
    fixture.put_known_locks();
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
    let mut requests = fixture.store.requests();
    requests.sort();
    assert_eq!(
        requests,
        ["list keys", "list locks", "read config", "read locks/2327", "read locks/d172"]
    );
}

#[tokio::test(start_paused = true)]
async fn facts_about_an_open_repository() {
    let fixture = Fixture::with_password();
    let details = fixture.look().await.facts.details;
    assert_eq!(&*details["repository_version"], "2");
    assert_eq!(details["repository_id"].len(), 64);
    assert_eq!(&*details["key_id"], &KEY_NAME[..10]);
    assert_eq!(&*details["layout"], "default");
    assert!(!details.contains_key("skipped_keys"));
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_the_session_is_new_and_the_key_is_kept() {
    let fixture = Fixture::with_password();
    fixture.put_known_locks();
    fixture.look().await;
    for kind in [PERMISSION, StoreErrorKind::Failed(ErrorClass::Auth)] {
        let connects = fixture.connects.load(Ordering::Relaxed);
        fixture.store.rule("list locks", 1, Effect::Fail(kind));
        assert_eq!(fixture.error().await.class, kind.class());
        fixture.store.requests();
        assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
        assert_eq!(fixture.store.requests(), ["list keys", "read config", "list locks"]);
        assert_eq!(fixture.connects.load(Ordering::Relaxed), connects + 1);
    }
    // A network failure says nothing about the credentials.
    let connects = fixture.connects.load(Ordering::Relaxed);
    fixture.store.rule("list locks", 1, Effect::Fail(NETWORK));
    assert_eq!(fixture.error().await.class, ErrorClass::Network);
    fixture.store.requests();
    fixture.look().await;
    assert_eq!(fixture.store.requests(), ["list locks"]);
    assert_eq!(fixture.connects.load(Ordering::Relaxed), connects);
}

#[tokio::test(start_paused = true)]
async fn a_place_without_a_config_is_never_without_locks() {
    let gone = |fixture: &Fixture| fixture.store.remove("config");
    for opener in [Opener::Sealed, Opener::Password(Secret::new(PASSWORD))] {
        let fixture = Fixture::new(opener);
        fixture.look().await;
        // Under a running exporter, then cold; keys are still there.
        gone(&fixture);
        assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
        assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
        fixture.store.remove(&format!("keys/{KEY_NAME}"));
        fixture.store.put(&format!("snapshots/{}", "ab".repeat(32)), "x");
        assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
        fixture.store.remove(&format!("snapshots/{}", "ab".repeat(32)));
        let error = fixture.error().await;
        assert_eq!(error.class, ErrorClass::NotFound);
        // Nothing is wrong with the secrets: no password command runs again.
        assert_eq!(fixture.connects.load(Ordering::Relaxed), 1);
        assert!(error.to_string().contains("no repository at this place"), "{error}");
        // And it comes back.
        fixture.store.put("config", known::bytes(known::CONFIG_V2));
        assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
        fixture.store.put(&format!("keys/{KEY_NAME}"), KEY_TEXT);
        fixture.look().await;
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_configs() {
    for opener in [Opener::Sealed, Opener::Password(Secret::new(PASSWORD))] {
        for bytes in [vec![], vec![1; 31], vec![1; 70_000]] {
            let fixture = Fixture::new(opener.clone());
            fixture.look().await;
            fixture.store.put("config", bytes);
            // Warm, by the empty listing; then cold.
            assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
            assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
        }
    }
    let fixture = Fixture::with_password();
    fixture.store.put("config", config(3, &known::master()));
    assert_eq!(fixture.error().await.class, ErrorClass::Unsupported);
    let fixture = Fixture::with_password();
    fixture.store.put("config", config(2, &another_master()));
    assert_eq!(fixture.error().await.class, ErrorClass::Damaged);
}

#[tokio::test(start_paused = true)]
async fn a_listing_over_the_bound_fails_the_scan() {
    let fixture = Fixture::sealed();
    fixture.store.change(|files| {
        for index in 0..=listing::NAMES_MAX {
            put(files, &format!("locks/{index:064x}"), vec![1; 40].into());
        }
    });
    assert_eq!(fixture.error().await.class, ErrorClass::Incomplete);
}

#[tokio::test(start_paused = true)]
async fn no_lock_folder_is_no_locks() {
    let fixture = Fixture::with_password();
    let look = fixture.look().await;
    assert!(look.entries.is_empty());
    assert_eq!(look.ignored.count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_migration_to_the_new_layout_is_followed() {
    let fixture = Fixture::with_password();
    let moved = |from: &str, to: &str| {
        let (from, to) = (format!("{from}/"), format!("{to}/"));
        fixture.store.change(|files| {
            let old: Vec<_> =
                files.keys().filter(|path| path.starts_with(&from)).cloned().collect();
            for path in old {
                let file = files.remove(&path).unwrap();
                files.insert(path.replace(&from, &to), file);
            }
        });
    };
    moved("keys", "key");
    fixture.look().await;
    assert_eq!(fixture.words().await, [""; 0]);
    // restic migrate s3_layout, and then somebody takes a lock.
    moved("key", "keys");
    fixture.put_known_locks();
    let look = fixture.source.scan().await.unwrap();
    assert_eq!(words(&look), ["2327 shared", "d172 exclusive"]);
    assert_eq!(&*look.facts.details["layout"], "default");
}
