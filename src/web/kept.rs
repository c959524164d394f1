//! Pages as bytes: text, or one gzip member, of which the part that speaks of targets is kept
//! until it changes. What the text says is not known here.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use jiff::Timestamp;

use crate::exposition::metrics::Rules;

/// Parts that are kept: two formats, each compressed or not.
const PARTS_MAX: usize = 4;
/// RFC 1952: deflate, no flags, no time, no extra flags, an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The level at which megabytes of text take milliseconds.
fn level() -> Compression {
    Compression::fast()
}

/// The first part of a page, as it is sent.
#[derive(Clone, Debug)]
pub struct Part {
    /// Text, or whole blocks of a raw deflate stream without a last one.
    bytes: Bytes,
    /// Of the text, when it is compressed.
    crc: Option<Arc<Crc>>,
}

/// A part as it grows. It is compressed on the way, so that a large one is never in memory as a
/// whole unless the client wants it so.
pub enum PartBody {
    /// Text.
    Plain(Vec<u8>),
    /// Blocks of a raw deflate stream.
    Deflate(DeflateEncoder<Vec<u8>>, Crc),
}

impl PartBody {
    /// Nothing yet.
    pub fn new(gzip: bool) -> Self {
        if gzip {
            PartBody::Deflate(DeflateEncoder::new(Vec::new(), level()), Crc::new())
        } else {
            PartBody::Plain(Vec::new())
        }
    }

    /// Adds some text.
    ///
    /// # Errors
    /// None that a vector could cause.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            PartBody::Plain(bytes) => bytes.write_all(text.as_bytes()),
            PartBody::Deflate(deflate, crc) => {
                crc.update(text.as_bytes());
                deflate.write_all(text.as_bytes())
            }
        }
    }

    /// The whole part.
    ///
    /// # Errors
    /// None that a vector could cause.
    pub fn finish(self) -> io::Result<Part> {
        match self {
            PartBody::Plain(bytes) => Ok(Part { bytes: bytes.into(), crc: None }),
            PartBody::Deflate(mut deflate, crc) => {
                // Ends at a whole byte, so that blocks of another stream can follow.
                deflate.flush()?;
                let bytes = Bytes::copy_from_slice(deflate.get_ref());
                Ok(Part { bytes, crc: Some(Arc::new(crc)) })
            }
        }
    }
}

/// What a part depends on.
#[derive(Clone, Debug)]
pub struct Key {
    /// Whether it is OpenMetrics.
    pub open: bool,
    /// Whether it is compressed.
    pub gzip: bool,
    /// The status that it shows.
    pub revision: u64,
    /// How it is rendered.
    pub rules: Arc<Rules>,
}

impl Key {
    fn is(&self, other: &Self) -> bool {
        self.open == other.open
            && self.gzip == other.gzip
            && self.revision == other.revision
            && Arc::ptr_eq(&self.rules, &other.rules)
    }
}

/// Parts of pages, kept while they are true.
#[derive(Debug, Default)]
pub struct Kept(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    key: Key,
    part: Part,
    /// When it was made, and until when it is true.
    true_from: Timestamp,
    true_until: Option<Timestamp>,
}

impl Kept {
    /// The part that is true at `now`, if it is kept.
    pub fn get(&self, key: &Key, now: Timestamp) -> Option<Part> {
        let good = |entry: &&Entry| {
            entry.key.is(key)
                // The clock may have been set back since.
                && entry.true_from <= now
                && entry.true_until.is_none_or(|until| now <= until)
        };
        self.0.iter().find(good).map(|entry| entry.part.clone())
    }

    /// Keeps a part that was made at `now` and is true until `until`; none = for good.
    pub fn put(&mut self, key: Key, part: Part, now: Timestamp, until: Option<Timestamp>) {
        // Of an older status no part is asked for any more.
        let same = |entry: &Entry| {
            entry.key.revision == key.revision
                && Arc::ptr_eq(&entry.key.rules, &key.rules)
                && (entry.key.open, entry.key.gzip) != (key.open, key.gzip)
        };
        self.0.retain(same);
        self.0.truncate(PARTS_MAX - 1);
        self.0.push(Entry { key, part, true_from: now, true_until: until });
    }
}

/// A page as it grows.
pub enum Body {
    /// Text.
    Plain(Vec<u8>),
    /// A gzip member.
    Gzip {
        /// The deflate stream behind the header.
        deflate: DeflateEncoder<Vec<u8>>,
        /// Of all text so far.
        crc: Crc,
    },
}

impl Body {
    /// A page that begins with a part, or with nothing.
    pub fn new(gzip: bool, part: Option<&Part>) -> Self {
        let start: &[u8] = part.map_or(&[], |part| &part.bytes);
        if !gzip {
            return Body::Plain(start.to_vec());
        }
        let mut crc = Crc::new();
        if let Some(of_part) = part.and_then(|part| part.crc.as_ref()) {
            crc.combine(of_part);
        }
        let mut member = GZIP_HEADER.to_vec();
        member.extend_from_slice(start);
        Body::Gzip { deflate: DeflateEncoder::new(member, level()), crc }
    }

    /// Adds some text.
    ///
    /// # Errors
    /// None that a vector could cause.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Body::Plain(bytes) => bytes.write_all(text.as_bytes()),
            Body::Gzip { deflate, crc } => {
                crc.update(text.as_bytes());
                deflate.write_all(text.as_bytes())
            }
        }
    }

    /// The whole page.
    ///
    /// # Errors
    /// None that a vector could cause.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Body::Plain(bytes) => Ok(bytes),
            Body::Gzip { deflate, crc } => {
                let mut member = deflate.finish()?;
                member.extend_from_slice(&crc.sum().to_le_bytes());
                member.extend_from_slice(&crc.amount().to_le_bytes());
                Ok(member)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use flate2::bufread::GzDecoder;

    use super::*;
    use crate::label::LabelRules;

    fn made(text: &str, gzip: bool) -> Part {
        let mut part = PartBody::new(gzip);
        part.write(text).unwrap();
        part.finish().unwrap()
    }

    fn page(gzip: bool, part: Option<&str>, rest: &[&str]) -> Vec<u8> {
        let part = part.map(|text| made(text, gzip));
        let mut body = Body::new(gzip, part.as_ref());
        for text in rest {
            body.write(text).unwrap();
        }
        body.finish().unwrap()
    }

    #[test]
    fn a_compressed_page_is_one_member_with_all_of_the_text() {
        let long = "lock_target_state{target=\"a\"} 1\n".repeat(5000);
        for part in [None, Some(""), Some("a"), Some(long.as_str())] {
            for rest in [&[][..], &[""], &["b\n", "c\n"], &[long.as_str(), "d"]] {
                let expected = part.unwrap_or_default().to_owned() + &rest.concat();
                assert_eq!(page(false, part, rest), expected.as_bytes());
                let member = page(true, part, rest);
                // This decoder stops at the end of the first member, and checks length and sum.
                let mut decoder = GzDecoder::new(member.as_slice());
                let mut text = String::new();
                decoder.read_to_string(&mut text).unwrap();
                assert_eq!(text, expected);
                assert!(decoder.into_inner().is_empty(), "something follows the member");
            }
        }
    }

    #[test]
    fn a_part_is_forgotten_with_its_status_its_rules_and_its_time() {
        let rules = || {
            let labels = LabelRules::default();
            Arc::new(Rules { hold: Duration::from_secs(900), labels, sources: vec![] })
        };
        let key = |open, revision, rules: &Arc<Rules>| Key {
            open,
            gzip: false,
            revision,
            rules: rules.clone(),
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let (one, other) = (rules(), rules());
        let mut kept = Kept::default();
        let part = made("a", false);
        kept.put(key(true, 7, &one), part.clone(), at(10), Some(at(20)));
        assert!(kept.get(&key(true, 7, &one), at(10)).is_some());
        assert!(kept.get(&key(true, 7, &one), at(20)).is_some());
        for (key, now) in [
            (key(true, 7, &one), at(21)),
            (key(true, 7, &one), at(9)),
            (key(true, 8, &one), at(10)),
            (key(false, 7, &one), at(10)),
            (key(true, 7, &other), at(10)),
        ] {
            assert!(kept.get(&key, now).is_none(), "{key:?} at {now}");
        }
        kept.put(key(false, 7, &one), part.clone(), at(10), None);
        assert!(kept.get(&key(true, 7, &one), at(10)).is_some());
        kept.put(key(false, 8, &one), part, at(10), None);
        assert_eq!(kept.0.len(), 1);
    }
}
