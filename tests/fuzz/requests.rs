//! What strangers send to the exporter's own server, and what services answer that issue
//! credentials or want to be left alone.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use lock_exporter::store::credentials::answer::Answer;
use lock_exporter::store::retry_after;
use lock_exporter::web::wanted::{self, Wanted};

use crate::parsers::{Parser, kind, kind_of_many};

const KIB: usize = 1024;
const SOURCES: &[&str] = &["restic", "file"];

/// The query of a scrape.
pub const SCRAPE: Parser = Parser {
    name: "scrape",
    words: &["name[]=", "collect[]=", "exclude[]=", "restic", "file", "&", "%5B%5D", "+", "%ff"],
    samples: || vec![b"name[]=lock_target_state&collect[]=restic".to_vec()],
    base: 4 * KIB,
    // A name may be two bytes of the query.
    each: 64,
    run: scrape,
};

/// `Accept-Encoding`.
pub const ENCODING: Parser = Parser {
    name: "encoding",
    words: &["gzip", "x-gzip", "*", ";q=", ", ", "0.5", "identity", "NaN", "inf"],
    samples: || vec![b"deflate, gzip;q=0.5, *;q=0".to_vec()],
    base: KIB,
    each: 1,
    run: encoding,
};

/// The part of a path that names a target.
pub const PATH: Parser = Parser {
    name: "path",
    words: &["%2F", "%00", "%e2%80%ae", "%", "/", "..", "+"],
    samples: || vec![b"t%C3%B6pf%20100%25/a".to_vec()],
    base: KIB,
    each: 3,
    run: path,
};

/// `Authorization`.
pub const LOGIN: Parser = Parser {
    name: "login",
    words: &["Basic ", "basic ", "Bearer ", "=", "Og==", "YTpi"],
    samples: || vec![b"Basic dXNlcjpwYXNzd29yZA==".to_vec()],
    base: KIB,
    each: 3,
    run: login,
};

/// `Retry-After`, and the date of the answer after a line break.
pub const RETRY_AFTER: Parser = Parser {
    name: "retry-after",
    words: &["Tue, 01 Dec 2026 12:00:00 GMT", "120", " GMT", " -0000", "Jan", "9999", ":60", "(("],
    samples: || {
        vec![
            b"120\n".to_vec(),
            b"Tue, 01 Dec 2026 12:02:00 GMT\nTue, 01 Dec 2026 12:00:00 GMT".to_vec(),
        ]
    },
    base: KIB,
    each: 8,
    run: retry,
};

/// What a `credential_process` prints.
pub const PROCESS: Parser = Parser {
    name: "credential-process",
    words: &[
        "\"AccessKeyId\":",
        "\"SecretAccessKey\":",
        "\"SessionToken\":",
        "\"Expiration\":",
        "null",
        "\\u0041",
        "[",
    ],
    samples: || {
        vec![br#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"b","SessionToken":"c","Expiration":"2026-01-02T03:04:05Z"}"#.to_vec()]
    },
    base: KIB,
    each: 8,
    run: process,
};

/// What the Security Token Service answers.
pub const SERVICE: Parser = Parser {
    name: "credential-service",
    words: &[
        "<AccessKeyId>",
        "</AccessKeyId>",
        "<SecretAccessKey>",
        "</SecretAccessKey>",
        "<SessionToken>",
        "<Expiration/>",
        "&amp;",
        "<![CDATA[",
        "<!DOCTYPE",
        "<a:",
    ],
    samples: || {
        vec![b"<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey><SessionToken>c</SessionToken><Expiration>2026-01-02T03:04:05Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>".to_vec()]
    },
    base: 4 * KIB,
    each: 16,
    run: service,
};

fn as_text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

fn scrape(input: &[u8]) -> u64 {
    match as_text(input).and_then(|query| Wanted::of(query, SOURCES)) {
        Some(wanted) => {
            assert!(wanted.without.len() < SOURCES.len() + 1, "sources are named once");
            kind_of_many(&format!("{:?}", wanted.without), wanted.names.len())
        }
        None => 0,
    }
}

fn encoding(input: &[u8]) -> u64 {
    as_text(input).map_or(2, |header| u64::from(wanted::accepts_gzip(header)))
}

fn path(input: &[u8]) -> u64 {
    match as_text(input).and_then(wanted::target_name) {
        Some(name) => {
            assert!(!name.is_empty() && name.len() <= input.len(), "{name:?}");
            kind_of_many("named", name.len())
        }
        None => 0,
    }
}

fn login(input: &[u8]) -> u64 {
    match as_text(input).and_then(wanted::claim) {
        Some((user, password)) => {
            assert!(!user.contains(':'), "{user:?}");
            kind_of_many(&format!("{}", user.is_empty()), password.len())
        }
        None => 0,
    }
}

fn retry(input: &[u8]) -> u64 {
    let mut headers = HeaderMap::new();
    let names = [HeaderName::from_static("retry-after"), HeaderName::from_static("date")];
    for (name, line) in names.into_iter().zip(input.split(|byte| *byte == b'\n')) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return 1 };
        headers.insert(name, value);
    }
    match retry_after::wait(&headers) {
        Some(wait) => {
            assert!(wait <= Duration::from_secs(24 * 3600), "{wait:?}");
            kind_of_many("waits", wait.as_secs() as usize)
        }
        None => 0,
    }
}

fn process(input: &[u8]) -> u64 {
    answer(Answer::of_process(input))
}

fn service(input: &[u8]) -> u64 {
    answer(Answer::of_service(input))
}

fn answer(answer: Option<Answer>) -> u64 {
    answer.map_or(0, |answer| {
        let (token, end) = (answer.session_token.is_some(), answer.expiration.is_some());
        kind(&format!("{token} {end} {}", answer.access_key_id.is_empty()))
    })
}
