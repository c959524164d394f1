use proptest::prelude::*;

use super::super::crypto::tests as known;
use super::*;

fn compressed(text: &[u8]) -> Vec<u8> {
    [&[COMPRESSED][..], &zstd::bulk::compress(text, 3).unwrap()].concat()
}

fn json(text: &str) -> Result<Content, UnreadableWhy> {
    let plain = decode(text.as_bytes(), Encoding::Plain);
    // Compression changes nothing.
    assert_eq!(decode(&compressed(text.as_bytes()), Encoding::Compressible), plain, "{text}");
    plain
}

fn lock(fields: &str) -> Result<Content, UnreadableWhy> {
    json(&format!(
        r#"{{"time":"2026-01-02T03:04:05Z","exclusive":false,"hostname":"h","username":"u","pid":7{fields}}}"#
    ))
}

#[test]
fn known_answers_decode_exactly() {
    let master = known::master();
    let a = master.open(&known::bytes(known::LOCK_A)).unwrap();
    let b = master.open(&known::bytes(known::LOCK_B)).unwrap();
    let at: Timestamp = "2015-06-27T10:18:51.759239612Z".parse().unwrap();
    for encoding in [Encoding::Plain, Encoding::Compressible, Encoding::Unknown] {
        let a = decode(&a, encoding).unwrap();
        assert_eq!((a.mode, a.refreshed_at, a.doubt), (LockMode::Shared, Some(at), None));
        assert_eq!((&*a.holder.hostname, &*a.holder.username), ("kasimir", "fd0"));
        assert_eq!(
            (a.holder.pid, a.holder.uid, a.holder.gid),
            (Some(13607), Some(1000), Some(100))
        );
    }
    for encoding in [Encoding::Compressible, Encoding::Unknown] {
        let b = decode(&b, encoding).unwrap();
        assert_eq!((b.mode, b.refreshed_at), (LockMode::Exclusive, Some(at)));
        assert_eq!((b.holder.pid, b.holder.uid, b.holder.gid), (Some(13607), None, None));
    }
    // restic: invalid character '\x02' looking for beginning of value.
    assert_eq!(decode(&b, Encoding::Plain), Err(UnreadableWhy::Json));
    assert!(is_compressed(&b) && !is_compressed(&a));
}

#[test]
fn the_first_byte_decides_in_version_2() {
    use Encoding::{Compressible, Plain, Unknown};
    use UnreadableWhy::{Encoding as Enc, Json};
    let garbage: &[u8] = b"\x02not zstd at all";
    for (plain, v1, v2, unknown) in [
        (&b""[..], Some(Json), Some(Json), Some(Json)),
        (b"null", None, Some(Enc), None),
        (b" {}", None, Some(Enc), None),
        (b"{}", None, None, None),
        (b"{} ", None, None, None),
        (b"{} x", Some(Json), Some(Json), Some(Json)),
        (b"\xef\xbb\xbf{}", Some(Json), Some(Enc), Some(Json)),
        (b"[]", Some(Json), Some(Json), Some(Json)),
        (b"{\"time\":", Some(Json), Some(Json), Some(Json)),
        (b"\x03{}", Some(Json), Some(Enc), Some(Json)),
        (garbage, Some(Json), Some(Enc), Some(Enc)),
    ] {
        assert_eq!(decode(plain, Plain).err(), v1, "{plain:?}");
        assert_eq!(decode(plain, Compressible).err(), v2, "{plain:?}");
        assert_eq!(decode(plain, Unknown).err(), unknown, "{plain:?}");
    }
}

#[test]
fn a_zstd_bomb_is_stopped_at_the_cap() {
    let largest = format!("{{}}{}", " ".repeat(PLAIN_BYTES_MAX - 2));
    assert!(decode(&compressed(largest.as_bytes()), Encoding::Compressible).is_ok());
    let bomb = compressed(&vec![b' '; 100 << 20]);
    assert!(bomb.len() < 64 * 1024);
    assert_eq!(decode(&bomb, Encoding::Compressible), Err(UnreadableWhy::Encoding));
    // The context still works after a failure.
    assert!(decode(&compressed(b"{}"), Encoding::Compressible).is_ok());
}

#[test]
fn fields_as_go_reads_them() {
    assert_eq!(lock("").unwrap().doubt, None);
    for bad in [
        r#","pid":"1""#,
        r#","pid":1.5"#,
        r#","uid":-1"#,
        r#","uid":4294967296"#,
        r#","gid":"0""#,
        r#","exclusive":1"#,
        r#","hostname":5"#,
        r#","time":"2026-01-02T03:04:05""#,
        r#","time":"2026-01-02T03:04:05\u005a""#,
        r#","time":5"#,
    ] {
        assert_eq!(lock(bad), Err(UnreadableWhy::Json), "{bad}");
    }
    let last = lock(r#","TIME":"2026-01-02T03:04:06Z","Exclusive":true,"more":[1]"#).unwrap();
    assert_eq!(last.refreshed_at, Some("2026-01-02T03:04:06Z".parse().unwrap()));
    assert_eq!(last.mode, LockMode::Exclusive);
    let largest = lock(r#","uid":4294967295,"gid":0"#).unwrap();
    assert_eq!((largest.holder.uid, largest.holder.gid), (Some(u32::MAX), Some(0)));
}

#[test]
fn a_lock_without_a_time_has_none() {
    for text in ["{}", r#"{"time":null,"pid":1}"#, r#"{"time":"0001-01-01T00:00:00Z"}"#] {
        assert_eq!(json(text).unwrap().refreshed_at, None, "{text}");
    }
}

#[test]
fn other_files_of_a_repository_are_doubted() {
    let snapshot = r#"{"time":"2026-01-02T03:04:05Z","tree":"ab","paths":["/"],"hostname":"h","username":"u"}"#;
    let index = r#"{"supersedes":[],"packs":[]}"#;
    for text in [snapshot, index, "{}", r#"{"pid":0,"exclusive":false}"#, r#"{"pid":5}"#] {
        assert!(json(text).unwrap().doubt.is_some(), "{text}");
    }
}

#[test]
fn the_hold_key_survives_refreshes_and_nothing_else() {
    let first = lock("").unwrap().key;
    assert_eq!(lock(r#","time":"2026-01-02T03:09:05Z""#).unwrap().key, first);
    // restic leaves out a zero: the same holder.
    assert_eq!(lock(r#","uid":0,"gid":0"#).unwrap().key, first);
    for other in [
        r#","pid":8"#,
        r#","uid":7"#,
        r#","gid":7"#,
        r#","exclusive":true"#,
        r#","hostname":"H""#,
        r#","hostname":"hu","username":"""#,
    ] {
        assert_ne!(lock(other).unwrap().key, first, "{other}");
    }
}

#[test]
fn overlong_names_are_cut_and_stay_apart() {
    let long = "é".repeat(5000);
    let one = lock(&format!(r#","hostname":"{long}a""#)).unwrap();
    let two = lock(&format!(r#","hostname":"{long}b""#)).unwrap();
    assert!(one.holder.hostname.len() <= NAME_BYTES_MAX + 9);
    assert_ne!(one.holder.hostname, two.holder.hostname);
    assert_ne!(one.key, two.key);
}

proptest! {
    #[test]
    fn any_bytes_give_a_value_or_a_reason(plain in proptest::collection::vec(any::<u8>(), 0..300)) {
        for encoding in [Encoding::Plain, Encoding::Compressible, Encoding::Unknown] {
            if let Ok(content) = decode(&plain, encoding) {
                prop_assert!(content.holder.hostname.len() <= NAME_BYTES_MAX + 9);
            }
            let _ = decode(&compressed(&plain), encoding);
        }
    }

    #[test]
    fn damaged_locks_give_a_value_or_a_reason(
        at in 0_usize..133, byte in any::<u8>(), cut in 0_usize..133,
    ) {
        let mut text = known::LOCK_A_TEXT.as_bytes().to_vec();
        text[at] = byte;
        for encoding in [Encoding::Plain, Encoding::Compressible] {
            let _ = decode(&text, encoding);
            let _ = decode(&text[..cut], encoding);
            let mut frame = compressed(&text);
            let at = at % frame.len();
            frame[at] = byte;
            let _ = decode(&frame, encoding);
        }
    }
}
