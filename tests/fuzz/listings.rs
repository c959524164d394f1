//! What backends answer: listings, refusals, complaints.

use lock_exporter::secret::Secret;
use lock_exporter::source::restic::listing;
use lock_exporter::store::fault::{self, Hints};
use lock_exporter::store::list_page::{self, Proof};
use lock_exporter::store::rest::answer;
use lock_exporter::store::sftp::words;
use lock_exporter::store::{Entry, EntryKind, Listing};

use crate::parsers::{Parser, kind, kind_of_many, none};

/// Names in a listing of a REST server, when there may be so many.
const NAMES_MAX: usize = 1_000;
/// Longest text of an answer that is shown, and what we say around it.
const SHOWN_BYTES_MAX: usize = 4_000;

const XML_WORDS: &[&str] = &[
    "<ListBucketResult>",
    "</ListBucketResult>",
    "<EnumerationResults>",
    "</EnumerationResults>",
    "<Contents>",
    "</Contents>",
    "<Key>",
    "</Key>",
    "<Size>",
    "</Size>",
    "<CommonPrefixes>",
    "</CommonPrefixes>",
    "<Prefix>",
    "</Prefix>",
    "<IsTruncated>true</IsTruncated>",
    "<IsTruncated>false</IsTruncated>",
    "<KeyCount>1</KeyCount>",
    "<NextContinuationToken>",
    "</NextContinuationToken>",
    "<NextMarker>",
    "</NextMarker>",
    "<Blobs>",
    "</Blobs>",
    "<Blob>",
    "</Blob>",
    "<BlobPrefix>",
    "</BlobPrefix>",
    "<Name>",
    "</Name>",
    "<Key/>",
    "<Contents/>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml version=\"1.0\"?>",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "&amp;",
    "&lt;",
    "&b;",
    "&#x2f;",
    "//",
    "/../",
    "<Error>",
    "</Error>",
    "<ErrorResponse>",
    "<Code>",
    "</Code>",
    "<Message>",
    "</Message>",
    "<Region>",
    "</Region>",
    "<a:Key xmlns:a=\"b\">",
    "<html>",
    "planted-secret",
];

pub const REST: Parser = Parser {
    name: "rest",
    words: &["\"name\":", "\"size\":", "null", "[]", "{}", ",", "1.5", "<html>", "\\u0000", "\"\""],
    samples: none,
    // So many names that are empty.
    base: 160 * NAMES_MAX,
    each: 4,
    run: rest,
};

pub const S3: Parser =
    Parser { name: "s3", words: XML_WORDS, samples: none, base: 8 << 10, each: 24, run: s3 };

pub const AZURE: Parser =
    Parser { name: "azure", words: XML_WORDS, samples: none, base: 8 << 10, each: 24, run: azure };

/// The names in the folder of locks.
pub const LOCKS: Parser = Parser {
    name: "lock-names",
    words: &["\n", ".tmp", "-tmp-", "\u{FFFD}", "A", "0"],
    samples: none,
    base: 8 << 10,
    each: 1_000,
    run: lock_names,
};

pub const REFUSAL: Parser = Parser {
    name: "refusal",
    words: XML_WORDS,
    samples: none,
    base: 8 << 10,
    each: 16,
    run: refusal,
};

pub const SSH: Parser = Parser {
    name: "ssh",
    words: &["Permission denied", "Host key verification failed", "timed out", "\n", "\u{1b}[31m"],
    samples: none,
    // Here each line becomes a text of its own.
    base: 8 << 10,
    each: 100,
    run: ssh,
};

fn rest(input: &[u8]) -> u64 {
    match answer::names(input, NAMES_MAX) {
        Ok(names) => {
            assert!(names.len() <= NAMES_MAX, "{} names", names.len());
            let sized = names.iter().filter(|named| named.size.is_some()).count();
            kind_of_many(if sized > 0 { "sized" } else { "names" }, names.len())
        }
        Err(fault) => {
            assert!(fault.cause.len() < SHOWN_BYTES_MAX, "{} bytes", fault.cause.len());
            kind(&format!("{:?}", fault.kind))
        }
    }
}

fn s3(input: &[u8]) -> u64 {
    page(input, Proof::Said)
}

fn azure(input: &[u8]) -> u64 {
    page(input, Proof::NoToken)
}

fn page(input: &[u8], proof: Proof) -> u64 {
    let page = match list_page::read(input.to_vec().into(), proof) {
        Ok(page) => page,
        Err(fault) => {
            assert!(fault.cause.len() < SHOWN_BYTES_MAX, "{} bytes", fault.cause.len());
            return kind(&format!("{:?} {}", fault.kind, fault.cause));
        }
    };
    assert!(page.odd.len() <= page.names, "more odd names than names");
    // What is left is whole, and has the other names. A count that the server gave may now lie.
    if !page.odd.is_empty() && !input.windows(8).any(|part| part == b"KeyCount") {
        let again = list_page::read(page.body, proof).expect("what is left is a listing");
        assert_eq!(again.names, page.names - page.odd.len());
        assert!(again.odd.is_empty(), "{:?}", again.odd);
        assert_eq!(again.token, page.token);
    }
    kind_of_many(&format!("{} {}", page.token.is_some(), page.odd.is_empty()), page.names)
}

fn lock_names(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let mut names: Vec<&str> = text.split('\n').collect();
    let entry = |name: &&str| Entry {
        name: (*name).to_owned(),
        kind: EntryKind::File,
        size: name.len() as u64,
        modified_at: None,
    };
    let entries = names.iter().map(entry).collect();
    let sorted = listing::partition(Listing { entries, odd: Vec::new() });
    let sorted = sorted.expect("they are few");
    names.sort_unstable();
    names.dedup();
    assert_eq!(sorted.locks() as u64 + sorted.ignored.count, names.len() as u64, "a name was lost");
    kind_of_many(if sorted.decided.is_empty() { "" } else { "decided" }, sorted.files.len())
}

fn refusal(input: &[u8]) -> u64 {
    let hidden = [Secret::new(*b"planted-secret")];
    let [status, body @ ..] = input else { return 0 };
    let status = 300 + u16::from(*status);
    let refusal = fault::refusal(status, Hints::default(), body, &hidden);
    let fault = refusal.fault;
    let shown = format!("{} {} {:?}", fault.cause, fault.advice, refusal.region);
    assert!(shown.len() < SHOWN_BYTES_MAX, "{} bytes", shown.len());
    assert!(!shown.contains("planted-secret"), "{shown}");
    assert!(!shown.contains(char::is_control), "{shown:?}");
    kind(&format!("{:?} {} {}", fault.kind, refusal.again, refusal.coded))
}

fn ssh(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    kind(&format!("{:?}", words::complaint(&lines).kind))
}
