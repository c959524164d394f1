//! Known answers first: they were accepted by restic 0.14.0 itself.

use sha2::{Digest as _, Sha256};

use super::*;

pub const CONFIG_V1: &str = "AQEBAQEBAQEBAQEBAQEBAav1XOOssGCHQy/A/rJffd9HF4CbVVvujJo6VOBKrjIFyJYCzFDDgIO3h4OwbJQVrOl2cnCnBTofXBXv8i5K8SSyyfTAreKUGKQAMeqOzoY7Zp8Q0dSOI7fMIuJi5ZCdhpcV9cmTbYPqaogHohO4cEmIjwwvlbrzDQVsFBoExNjjoexni07FBszAPIQ=";
pub const CONFIG_V2: &str = "AgICAgICAgICAgICAgICAgrqYRK1VC/rDYteCf2RYeHrdvDnYpn5O7tuAkhiApNVvcI4y6tIhE+6EFkD4lqb3UW+4yMFco6xJi12oVte3GH5aXwvL6q4T0LWukwSumQGz4wLETWCoAlYPAjCnGNLzPnWDmjdYfqW9h4HGaYWZZRdVQ5vmLUOitEcJXUzv9i9jiZ+pGF2jqWB8f8=";
/// Plain JSON; belongs into a repository of either version.
pub const LOCK_A: &str = "qqqqqqqqqqqqqqqqqqqqqmuyKYpHp0K7y1AAB6Pi58HX1nlj7f7p06Ja+AStqQ0Zpzc344Lv0uojXyHCXQZDCg1jFS7R9/rjfXGdHkcNV01LJRkYYh37+v/zGKz9FyqMna867I4NVQj7GEfM8dIXxvKVagWS5/BqP0xgjrsR6Gz0T7CN2BB+uUa5Xll6tjMKKw05JDM5MxJWXmi44YhEFk8CD5sFbzQ=";
/// Byte 2 and a zstd frame; its IV of all ones wraps the counter after the first block.
pub const LOCK_B: &str = "/////////////////////1Lf4+R6jsCBuxM7CKXrN23RfWbZ/QJKDawvzp4kjBzeb6/F0rfIajRZkCrtsnGDxcge02Okb0Z16jycIQrKfAkaUVU81Vtw6Z4dRMmfhfGXzM/4Ph5ERYj6CJjCHCCpvLXxvHEetsK9P95DA8FohJI5RNlw5S+qKJQJ8tMbRYS54gCGEptLO6yaaO4=";
pub const LOCK_A_NAME: &str = "2327d8954da9b5e70e531bd955e89357361f4d1240cb448cedb41b222b9f91e3";
pub const LOCK_B_NAME: &str = "d172a9e64a232e7f2416d35484f2854355eef3eeed967d7f2be63fe20847663e";
pub const LOCK_A_TEXT: &str = r#"{"time":"2015-06-27T12:18:51.759239612+02:00","exclusive":false,"hostname":"kasimir","username":"fd0","pid":13607,"uid":1000,"gid":100}"#;

pub fn bytes(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).unwrap()
}

/// The master key of the known answers: encrypt = bytes 20..3f, k = bytes 40..4f, r = ff × 16.
pub fn master() -> MasterKey {
    let mut derived = [0xff; DERIVED_BYTES];
    for (index, byte) in derived[..48].iter_mut().enumerate() {
        *byte = 0x20 + u8::try_from(index).unwrap();
    }
    MasterKey::from_derived(&derived)
}

#[test]
fn known_answer_a() {
    let sealed = bytes(LOCK_A);
    assert_eq!(hex::encode(Sha256::digest(&sealed)), LOCK_A_NAME);
    assert_eq!(master().open(&sealed).unwrap(), LOCK_A_TEXT.as_bytes());
}

#[test]
fn known_answer_b_wraps_the_whole_counter() {
    let sealed = bytes(LOCK_B);
    assert_eq!(hex::encode(Sha256::digest(&sealed)), LOCK_B_NAME);
    let plain = master().open(&sealed).unwrap();
    assert_eq!(plain[..6], [2, 0x28, 0xb5, 0x2f, 0xfd, 0]);
    // The frame is one raw block, so its text shows.
    let text = String::from_utf8_lossy(&plain);
    assert!(text.contains(r#""exclusive":true,"hostname":"kasimir""#), "{text}");
}

#[test]
fn known_answers_of_config() {
    for (config, version) in [(CONFIG_V1, 1), (CONFIG_V2, 2)] {
        let plain = master().open(&bytes(config)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&plain).unwrap();
        assert_eq!(json["version"], version);
        assert_eq!(json["id"].as_str().unwrap().len(), 64);
    }
}

#[test]
fn sealing_is_the_inverse() {
    for (lock, iv) in [(LOCK_A, [0xaa; 16]), (LOCK_B, [0xff; 16])] {
        let sealed = bytes(lock);
        let plain = master().open(&sealed).unwrap();
        assert_eq!(master().seal(iv, &plain), sealed);
    }
}

#[test]
fn damage_of_every_byte_is_seen() {
    let sealed = bytes(LOCK_A);
    for index in 0..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[index] ^= 1;
        assert_eq!(master().open(&damaged), Err(OpenError::Mac), "byte {index}");
    }
}

#[test]
fn short_input_and_the_zero_nonce_are_refused() {
    let sealed = bytes(LOCK_A);
    for length in 0..OVERHEAD {
        assert_eq!(master().open(&sealed[..length]), Err(OpenError::Short));
    }
    let mut zero = sealed;
    zero[..16].fill(0);
    assert_eq!(master().open(&zero), Err(OpenError::Nonce));
    let empty = master().seal([1; 16], b"");
    assert_eq!(master().open(&empty).unwrap(), b"");
}

#[test]
fn master_keys_that_restic_refuses() {
    let good = master();
    assert_eq!(MasterKey::from_json(good.to_json().as_bytes()).unwrap(), good);
    for (text, why) in [
        ("", BadMasterKey::Json),
        ("[]", BadMasterKey::Json),
        (r#"{"mac":{"k":"AA==","r":"AA=="},"encrypt":"AA=="}"#, BadMasterKey::Length),
        (r#"{"mac":{"k":"!","r":"AA=="},"encrypt":"AA=="}"#, BadMasterKey::Length),
    ] {
        assert_eq!(MasterKey::from_json(text.as_bytes()), Err(why), "{text}");
    }
    let zero = MasterKey::from_derived(&[0; DERIVED_BYTES]).to_json();
    assert_eq!(MasterKey::from_json(zero.as_bytes()), Err(BadMasterKey::Zero));
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?}", master()), "MasterKey(…)");
}
