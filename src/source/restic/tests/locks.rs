//! What becomes of each lock file.

use super::*;

async fn with_lock_a() -> (Fixture, String) {
    let fixture = Fixture::with_password();
    fixture.look().await;
    let path = format!("locks/{LOCK_A_NAME}");
    fixture.store.put(&path, known::bytes(known::LOCK_A));
    fixture.store.requests();
    (fixture, path)
}

#[tokio::test(start_paused = true)]
async fn names_that_are_no_locks_do_not_hide_those_that_are() {
    let (fixture, _) = with_lock_a().await;
    let id = "ab".repeat(32);
    for name in [&*format!("{id}-tmp-123"), "README", ".nfs0001"] {
        fixture.store.put(&format!("locks/{name}"), "x");
    }
    fixture.store.put(&format!("locks/{}", id.to_uppercase()), "x");
    fixture.store.put(&format!("locks/{}", "00".repeat(32)), "");
    fixture.store.put(&format!("locks/{}", "11".repeat(32)), vec![0; 70_000]);
    fixture.store.change(|files| {
        let mut folder = files.values().next().unwrap().clone();
        folder.kind = EntryKind::Folder;
        files.insert("locks/.DAV".into(), folder.clone());
        files.insert(format!("locks/{}", "22".repeat(32)), folder);
    });
    let look = fixture.look().await;
    let expected = ["0000 empty", "1111 too_large", "2222 name", "2327 shared", "ABAB name"];
    assert_eq!(words(&look), expected);
    assert_eq!(look.ignored.count, 4);
    // None but the lock was asked for.
    assert_eq!(fixture.store.requests(), ["list locks", "read locks/2327"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_replaced_between_list_and_read_is_found_in_the_same_scan() {
    let (fixture, path) = with_lock_a().await;
    let (new, bytes) = lock_with(&known::master(), 1);
    let new_name = new["locks/".len()..][..4].to_owned();
    fixture.store.rule(
        "read locks/2327",
        1,
        Effect::Change(Box::new(move |files| {
            files.remove(&path);
            put(files, &new, bytes.clone().into());
        })),
    );
    let look = fixture.look().await;
    assert_eq!(words(&look), [format!("{new_name} shared")]);
    assert_eq!(look.vanished, 1);
    let requests = fixture.store.requests();
    assert_eq!(requests[..3], ["list locks", "read locks/2327", "list locks"]);
    assert_eq!(requests.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lock_removed_between_list_and_read_leaves_a_free_repository() {
    let (fixture, path) = with_lock_a().await;
    fixture.store.rule(
        "read locks/",
        1,
        Effect::Change(Box::new(move |files| {
            files.remove(&path);
        })),
    );
    let look = fixture.look().await;
    assert_eq!((look.entries.len(), look.vanished), (0, 1));
    // No locks is believed only beside a config, here too.
    assert_eq!(fixture.store.requests().last().unwrap(), "stat config");
}

#[tokio::test(start_paused = true)]
async fn listed_and_never_served_is_missing_from_the_third_scan_on() {
    let (fixture, _) = with_lock_a().await;
    fixture.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
    fixture.store.rule("read locks/2327", usize::MAX, Effect::Fail(StoreErrorKind::NotFound));
    for expected in ["not_served", "not_served", "missing", "missing"] {
        assert_eq!(fixture.words().await, [format!("2327 {expected}"), "d172 exclusive".into()]);
    }
    // From then on it is asked for every ten minutes only.
    fixture.store.requests();
    fixture.look().await;
    assert_eq!(fixture.store.requests(), ["list locks"]);
    fixture.store.behave();
    tokio::time::advance(cache::RETRY_AFTER).await;
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn what_only_we_may_not_read_is_sealed_and_hides_no_other() {
    for (kind, word) in [(PERMISSION, "permission"), (StoreErrorKind::Archived, "archived")] {
        let (fixture, _) = with_lock_a().await;
        fixture.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
        fixture.store.rule("read locks/2327", usize::MAX, Effect::Fail(kind));
        let look = fixture.look().await;
        assert_eq!(words(&look), [format!("2327 {word}"), "d172 exclusive".into()]);
        assert!(!look.facts.sealed);
        fixture.store.requests();
        fixture.look().await;
        assert_eq!(fixture.store.requests(), ["list locks"]);
        fixture.store.behave();
        tokio::time::advance(cache::RETRY_AFTER).await;
        assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_refusal_names_operation_and_place() {
    let (fixture, _) = with_lock_a().await;
    fixture.store.rule("read locks/", usize::MAX, Effect::Fail(PERMISSION));
    let look = fixture.look().await;
    let LockEntry::Sealed(_, SealedWhy::Permission(text)) = &look.entries[0] else { panic!() };
    assert!(text.starts_with(&format!("read locks/{LOCK_A_NAME}")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_network_failure_fails_the_scan_and_loses_nothing_read() {
    let (fixture, _) = with_lock_a().await;
    fixture.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
    for class in [ErrorClass::Network, ErrorClass::Timeout, ErrorClass::Throttled] {
        let kind = StoreErrorKind::Failed(class);
        fixture.store.rule("read locks/d172", 1, Effect::Fail(kind));
        assert_eq!(fixture.error().await.class, class);
    }
    fixture.store.requests();
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
    assert_eq!(fixture.store.requests(), ["list locks", "read locks/d172"]);
}

#[tokio::test(start_paused = true)]
async fn a_scan_dropped_while_reading_keeps_what_it_read() {
    let (fixture, _) = with_lock_a().await;
    fixture.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
    fixture.store.rule("read locks/d172", 1, Effect::Hang);
    assert!(tokio::time::timeout(TIMEOUT, fixture.source.scan()).await.is_err());
    fixture.store.requests();
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
    assert_eq!(fixture.store.requests(), ["list locks", "read locks/d172"]);
}

#[tokio::test(start_paused = true)]
async fn bytes_damaged_on_the_way_are_asked_for_again() {
    let (fixture, _) = with_lock_a().await;
    fixture.store.rule("read locks/", 1, Effect::Serve(vec![1; 50].into()));
    assert_eq!(fixture.words().await, ["2327 shared"]);
    let requests = fixture.store.requests();
    assert_eq!(requests, ["list locks", "read locks/2327", "read locks/2327"]);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_file_is_unreadable_and_looked_at_again_in_time() {
    let (fixture, path) = with_lock_a().await;
    let whole = known::bytes(known::LOCK_A);
    fixture.store.put(&path, whole[..60].to_vec());
    assert_eq!(fixture.words().await, ["2327 hash"]);
    let requests = fixture.store.requests();
    assert_eq!(requests, ["list locks", "read locks/2327", "read locks/2327"]);
    assert_eq!(fixture.words().await, ["2327 hash"]);
    assert_eq!(fixture.store.requests(), ["list locks"]);
    tokio::time::advance(cache::RETRY_AFTER).await;
    assert_eq!(fixture.words().await, ["2327 hash"]);
    assert_eq!(fixture.store.requests().len(), 3);
    // Another size is another file.
    fixture.store.put(&path, whole);
    assert_eq!(fixture.words().await, ["2327 shared"]);
}

#[tokio::test(start_paused = true)]
async fn an_upload_under_way_is_waited_for() {
    let (fixture, path) = with_lock_a().await;
    let whole = known::bytes(known::LOCK_A);
    fixture.store.change(|files| {
        let file = files.get_mut(&path).unwrap();
        file.modified_at = Some(ago(5));
    });
    fixture.store.rule("read locks/", 2, Effect::Serve(whole[..60].to_vec().into()));
    assert_eq!(fixture.words().await, ["2327 shared"]);
    assert_eq!(fixture.store.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_young_damaged_file_is_read_again_at_the_next_scan() {
    let (fixture, path) = with_lock_a().await;
    let whole = known::bytes(known::LOCK_A);
    for modified_at in [Some(ago(5)), None] {
        fixture.store.change(|files| {
            put(files, &path, whole[..60].to_vec().into());
            files.get_mut(&path).unwrap().modified_at = modified_at;
        });
        assert_eq!(fixture.words().await, ["2327 hash"]);
        assert_eq!(fixture.store.requests().len(), 4);
        assert_eq!(fixture.words().await, ["2327 hash"]);
        assert_eq!(fixture.store.requests().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_damage_has_its_reason() {
    let fixture = Fixture::with_password();
    let master = known::master();
    let mut expected = Vec::new();
    let mut put = |bytes: Vec<u8>, word: &str| {
        let name = name_of(&bytes);
        expected.push(format!("{} {word}", &name[..4]));
        fixture.store.put(&format!("locks/{name}"), bytes);
    };
    let mut nonce = known::bytes(known::LOCK_A);
    nonce[..16].fill(0);
    put(vec![1; 10], "short");
    put(vec![1; 31], "short");
    put(nonce, "mac");
    put(vec![1; 200], "mac");
    put(another_master().seal([2; 16], b"{}"), "mac");
    put(master.seal([2; 16], b""), "json");
    put(master.seal([2; 16], b"[]"), "json");
    put(master.seal([2; 16], b"{\"time\":"), "json");
    put(master.seal([2; 16], b"{\"time\":\"2026-01-02T03:04:05\"}"), "json");
    put(master.seal([2; 16], b"null"), "encoding");
    put(master.seal([2; 16], b"\x03{}"), "encoding");
    put(master.seal([2; 16], b"\x02not zstd"), "encoding");
    put(master.seal([2; 16], b"{}"), "shared");
    expected.sort();
    assert_eq!(fixture.words().await, expected);
    let lists = fixture.store.requests();
    // One for all bad tags: is our key file still there?
    assert_eq!(lists.iter().filter(|request| *request == "list keys").count(), 2);
    assert_eq!(fixture.words().await, expected);
    assert_eq!(fixture.store.requests(), ["list locks"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_lies_about_sizes_costs_no_memory() {
    let (fixture, path) = with_lock_a().await;
    fixture.store.change(|files| {
        put(files, &path, vec![0; 10 << 20].into());
        files.get_mut(&path).unwrap().listed_size = Some(137);
        let b = format!("locks/{LOCK_B_NAME}");
        put(files, &b, known::bytes(known::LOCK_B).into());
        files.get_mut(&b).unwrap().listed_size = Some(0);
    });
    assert_eq!(fixture.words().await, ["2327 too_large", "d172 empty"]);
    // Its size comes later: now it is a lock.
    fixture.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
    assert_eq!(fixture.words().await, ["2327 too_large", "d172 exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn a_compressed_lock_in_version_1_blocks_unless_the_repository_was_migrated() {
    let fixture = Fixture::with_password();
    fixture.store.put("config", known::bytes(known::CONFIG_V1));
    fixture.look().await;
    fixture.put_known_locks();
    fixture.store.requests();
    // restic cannot read it either. `config` is asked once for this name.
    assert_eq!(fixture.words().await, ["2327 shared", "d172 json"]);
    let mut requests = fixture.store.requests();
    requests.sort();
    assert_eq!(requests, ["list locks", "read config", "read locks/2327", "read locks/d172"]);
    fixture.look().await;
    assert_eq!(fixture.store.requests(), ["list locks"]);
    // After a migration the first new lock of that kind shows it, and the old one is read again.
    fixture.store.put("config", known::bytes(known::CONFIG_V2));
    let frame = [&[2][..], &zstd::bulk::compress(b"{\"pid\":4}", 3).unwrap()].concat();
    let bytes = known::master().seal([8; 16], &frame);
    fixture.store.put(&format!("locks/{}", name_of(&bytes)), bytes);
    assert_eq!(fixture.look().await.entries.len(), 3);
    let look = fixture.look().await;
    assert!(look.entries.iter().all(|entry| matches!(entry, LockEntry::Readable(_))));
    assert_eq!(&*look.facts.details["repository_version"], "2");
    fixture.store.requests();
    // It is known now: the next compressed lock asks for nothing.
    let frame = [&[2][..], &zstd::bulk::compress(b"{\"pid\":5}", 3).unwrap()].concat();
    let bytes = known::master().seal([9; 16], &frame);
    fixture.store.put(&format!("locks/{}", name_of(&bytes)), bytes);
    assert_eq!(fixture.words().await.len(), 4);
    assert_eq!(fixture.store.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_config_the_first_byte_decides() {
    let fixture = Fixture::with_password();
    fixture.store.rule("read config", usize::MAX, Effect::Fail(PERMISSION));
    fixture.store.rule("stat config", usize::MAX, Effect::Fail(PERMISSION));
    let look = fixture.look().await;
    assert!(!look.facts.details.contains_key("repository_version"));
    fixture.put_known_locks();
    assert_eq!(fixture.words().await, ["2327 shared", "d172 exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_listing_alone_proves_in_a_sealed_repository() {
    let fixture = Fixture::sealed();
    fixture.put_known_locks();
    fixture.store.put(&format!("locks/{}", "00".repeat(32)), "");
    fixture.store.put(&format!("locks/{}", "11".repeat(32)), vec![1; 31]);
    fixture.store.put(&format!("locks/{}", "22".repeat(32)), vec![1; 31]);
    fixture.store.put(&format!("locks/{}", "33".repeat(32)), vec![1; 70_000]);
    fixture.store.change(|files| {
        files.get_mut(&format!("locks/{}", "22".repeat(32))).unwrap().modified_at = Some(ago(5));
    });
    let expected =
        ["0000 empty", "1111 short", "2222 no_key", "2327 no_key", "3333 too_large", "d172 no_key"];
    assert_eq!(fixture.words().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_touched_lock_shows_its_new_time_without_a_read() {
    let (fixture, path) = with_lock_a().await;
    fixture.look().await;
    fixture.store.requests();
    let at = ago(10);
    fixture.store.change(|files| files.get_mut(&path).unwrap().modified_at = Some(at));
    let look = fixture.look().await;
    assert_eq!(look.entries[0].stub().stored_at, Some(at));
    assert_eq!(fixture.store.requests(), ["list locks"]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_locks_are_read_once() {
    let fixture = Fixture::with_password();
    fixture.look().await;
    fixture.store.change(|files| {
        for index in 0..10_000_u32 {
            let mut iv = [9; 16];
            iv[..4].copy_from_slice(&index.to_le_bytes());
            let text = format!(r#"{{"pid":{},"exclusive":false}}"#, index + 1);
            let bytes = known::master().seal(iv, text.as_bytes());
            put(files, &format!("locks/{}", name_of(&bytes)), bytes.into());
        }
    });
    let look = fixture.look().await;
    assert_eq!(look.entries.len(), 10_000);
    let shared = |entry: &LockEntry| matches!(entry, LockEntry::Readable(lock) if lock.mode == LockMode::Shared);
    assert!(look.entries.iter().all(shared));
    fixture.store.requests();
    fixture.look().await;
    assert_eq!(fixture.store.requests(), ["list locks"]);
}
