//! One page of a listing of S3, Google or Azure, looked at before `object_store` parses it.
//!
//! `object_store` fails a whole listing for one key that it cannot represent, and takes a page
//! that was cut short for the last one. Such keys are taken out of the body here and named apart,
//! and a cut page is an error. Pure: bytes in, bytes or a fault out.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::fault::{Fault, clean, is_html};
use crate::scan::ErrorClass;

/// What a page says.
#[derive(Debug)]
pub struct Page {
    /// The body without the odd keys.
    pub body: Bytes,
    /// Keys that cannot be represented, made printable.
    pub odd: Vec<String>,
    /// How many keys and prefixes it lists, odd ones included.
    pub names: usize,
    /// Where the next page begins.
    pub token: Option<String>,
}

/// What makes a page the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It says so, as S3 always does.
    Said,
    /// It names no next page: Azure has nothing else, and servers in Google's place say nothing.
    NoToken,
}

/// Reads a page.
///
/// # Errors
/// [`Fault`] of class `protocol` when it is no listing, `incomplete` when it was cut short without
/// saying where to go on.
pub fn read(body: Bytes, proof: Proof) -> Result<Page, Fault> {
    let mut walk = Walk::default();
    let mut reader = Reader::from_reader(&*body);
    loop {
        let from = reader.buffer_position() as usize;
        let event = reader.read_event().map_err(|error| no_listing(&body, &error.to_string()))?;
        let to = reader.buffer_position() as usize;
        match event {
            Event::Start(start) => walk.open(&body, start.local_name().as_ref(), from, to)?,
            Event::Empty(start) => {
                walk.open(&body, start.local_name().as_ref(), from, to)?;
                walk.close(&body, to, to);
            }
            Event::End(_) => walk.close(&body, from, to),
            Event::Eof if walk.rooted && walk.open.is_empty() => break,
            Event::Eof => return Err(no_listing(&body, "it ends too early")),
            // Their bytes are taken from the body where an element closes.
            Event::Text(_)
            | Event::GeneralRef(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
    let token = walk.token.filter(|token| !token.is_empty());
    match walk.truncated {
        Truncated::Yes if token.is_none() => {
            return Err(cut("the server cut the listing short and gave no token for the rest"));
        }
        Truncated::Nonsense => {
            return Err(no_listing(&body, "IsTruncated is neither true nor false"));
        }
        // An empty answer of something else must not look like an empty folder.
        Truncated::Unsaid if proof == Proof::Said => {
            return Err(no_listing(&body, "it does not say whether it is the whole (IsTruncated)"));
        }
        Truncated::Yes | Truncated::No | Truncated::Unsaid => {}
    }
    if walk.count.is_some_and(|count| count > walk.names as u64) {
        return Err(cut("the server lists fewer names than it counts (KeyCount)"));
    }
    Ok(Page { body: without(&body, &walk.removed), odd: walk.odd, names: walk.names, token })
}

fn cut(why: &str) -> Fault {
    Fault::new(ErrorClass::Incomplete, why, "Its ListObjectsV2 is broken: update the server.")
}

fn no_listing(body: &[u8], why: &str) -> Fault {
    if is_html(body) {
        Fault::no_service("the server answered with a web page instead of a listing")
    } else {
        Fault::no_service(format!("the server's answer is no listing: {}", clean(why)))
    }
}

fn without(body: &Bytes, removed: &[Range<usize>]) -> Bytes {
    if removed.is_empty() {
        return body.clone();
    }
    let mut kept = Vec::with_capacity(body.len());
    let mut from = 0;
    for range in removed {
        kept.extend_from_slice(&body[from..range.start]);
        from = range.end;
    }
    kept.extend_from_slice(&body[from..]);
    kept.into()
}

/// Deeper elements than a listing has are not followed; an owner's parts lie at four.
const DEPTH_MAX: usize = 16;

#[derive(Default)]
struct Walk {
    rooted: bool,
    azure: bool,
    /// The open elements: name, where it begins, where its content begins.
    open: Vec<(Vec<u8>, usize, usize)>,
    key: Option<Range<usize>>,
    removed: Vec<Range<usize>>,
    odd: Vec<String>,
    names: usize,
    truncated: Truncated,
    /// How many keys and prefixes the server says the page has.
    count: Option<u64>,
    token: Option<String>,
}

/// Whether a page is not the last one, in the server's words.
#[derive(Default, PartialEq, Eq)]
enum Truncated {
    /// It does not say.
    #[default]
    Unsaid,
    Yes,
    No,
    /// Neither true nor false.
    Nonsense,
}

impl Walk {
    fn open(&mut self, body: &[u8], name: &[u8], from: usize, content: usize) -> Result<(), Fault> {
        if self.open.is_empty() {
            let known = matches!(name, b"ListBucketResult" | b"EnumerationResults");
            if self.rooted || !known {
                // Also a second root, which no XML has.
                let name = String::from_utf8_lossy(name);
                return Err(no_listing(body, &format!("it is a {name}")));
            }
            self.rooted = true;
            // Azure's names lie one level deeper, in `Blobs`.
            self.azure = name == b"EnumerationResults";
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(no_listing(body, "it is nested too deeply"));
        }
        if self.open.len() == 1 + usize::from(self.azure) {
            self.key = None;
        }
        self.open.push((name.to_vec(), from, content));
        Ok(())
    }

    /// `until` is where the content ends, `to` where the element does.
    fn close(&mut self, body: &[u8], until: usize, to: usize) {
        let Some((name, from, content)) = self.open.pop() else { return };
        let content = content..until;
        let parent = self.open.last().map(|(name, ..)| name.as_slice());
        match (self.open.len() - usize::from(self.azure && self.open.len() > 1), name.as_slice()) {
            (1, b"IsTruncated") => {
                self.truncated = match body[content].trim_ascii() {
                    b"true" => Truncated::Yes,
                    b"false" => Truncated::No,
                    _ => Truncated::Nonsense,
                };
            }
            (1, b"KeyCount") => {
                self.count = text(&body[content]).and_then(|count| count.trim().parse().ok());
            }
            // S3 has a NextMarker too, which is of no use for the next request.
            (1, b"NextContinuationToken" | b"NextMarker")
                if self.azure == (name == b"NextMarker") =>
            {
                self.token = text(&body[content]);
            }
            (2, b"Key" | b"Prefix" | b"Name")
                if matches!(
                    parent,
                    Some(b"Contents" | b"CommonPrefixes" | b"Blob" | b"BlobPrefix")
                ) =>
            {
                self.key = Some(content);
            }
            (1, b"Contents" | b"CommonPrefixes" | b"Blob" | b"BlobPrefix") => {
                self.names += 1;
                let raw = &body[self.key.take().unwrap_or(0..0)];
                let folder = matches!(name.as_slice(), b"CommonPrefixes" | b"BlobPrefix");
                if !text(raw).is_some_and(|key| is_plain(&key, folder)) {
                    let shown =
                        text(raw).unwrap_or_else(|| String::from_utf8_lossy(raw).into_owned());
                    self.odd.push(shown);
                    self.removed.push(from..to);
                }
            }
            _ => {}
        }
    }
}

fn text(raw: &[u8]) -> Option<String> {
    let raw = std::str::from_utf8(raw).ok()?;
    quick_xml::escape::unescape(raw).ok().map(Into::into)
}

/// Whether `object_store` hands a key on as it is. A key that ends in a slash is the marker of a
/// folder, which it would show as a file with the folder's name.
fn is_plain(key: &str, folder: bool) -> bool {
    let key = if folder { key.strip_suffix('/').unwrap_or(key) } else { key };
    !key.is_empty() && Path::parse(key).is_ok_and(|path| path.as_ref() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inner: &str) -> Bytes {
        let said = match inner.contains("IsTruncated") {
            true => "",
            false => "<IsTruncated>false</IsTruncated>",
        };
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>{said}{inner}\
             </ListBucketResult>"
        )
        .into()
    }

    fn keys(keys: &[&str]) -> String {
        let one = |key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>\n");
        keys.iter().map(one).collect()
    }

    #[test]
    fn a_page_that_does_not_prove_to_be_the_whole_is_no_empty_folder() {
        let failed = |class| Some(super::super::StoreErrorKind::Failed(class));
        let kind = |body: Bytes| read(body, Proof::Said).err().map(|fault| fault.kind);
        let truncated = |said: &str| page(&format!("<IsTruncated>{said}</IsTruncated>"));
        assert_eq!(kind(truncated("false")), None);
        assert_eq!(kind("<ListBucketResult/>".into()), failed(ErrorClass::Protocol));
        for nonsense in ["banana", "TRUE", "", "0"] {
            assert_eq!(kind(truncated(nonsense)), failed(ErrorClass::Protocol), "{nonsense}");
        }
        let counted = |count: &str| page(&format!("<KeyCount>{count}</KeyCount>{}", keys(&["a"])));
        assert_eq!(kind(counted("1")), None);
        assert_eq!(kind(counted("7")), failed(ErrorClass::Incomplete));
    }

    #[test]
    fn odd_keys_are_taken_out_and_the_rest_stays_byte_for_byte() {
        let good = ["locks/ab", "locks/b&amp;c &#228;ü", "locks/&quot;x%2F"];
        let odd =
            ["locks//a", "locks/../x", "locks/a&#x7;b", "locks/", "/locks/a", "locks/&no;", ""];
        let mixed: Vec<&str> =
            good.iter().zip(odd.chunks(3)).flat_map(|(g, odd)| [&[*g], odd].concat()).collect();
        let prefixes = "<CommonPrefixes><Prefix>locks/sub/</Prefix></CommonPrefixes>";
        let odd_prefix = "<CommonPrefixes><Prefix>locks//</Prefix></CommonPrefixes>";
        let read = read(page(&format!("{}{prefixes}{odd_prefix}", keys(&mixed))), Proof::Said)
            .expect("reads");
        assert_eq!(read.names, 12);
        assert_eq!(
            read.odd,
            [
                "locks//a",
                "locks/../x",
                "locks/a\u{7}b",
                "locks/",
                "/locks/a",
                "locks/&no;",
                "",
                "locks//"
            ]
        );
        // What stood between the elements stays.
        let squeeze = |body: &[u8]| String::from_utf8_lossy(body).replace('\n', "");
        let want = page(&format!("{}{prefixes}", keys(&good)));
        assert_eq!(squeeze(&read.body), squeeze(&want));
    }

    #[test]
    fn azures_pages_are_read_too() {
        let blob = |name: &str| {
            format!("<Blob><Name>{name}</Name><Properties><Name>x//</Name></Properties></Blob>")
        };
        let page = |inner: &str| -> Bytes {
            format!("<EnumerationResults><Blobs>{inner}</Blobs><NextMarker>m</NextMarker></EnumerationResults>").into()
        };
        let prefix = "<BlobPrefix><Name>locks/sub/</Name></BlobPrefix>";
        let good = format!("{}{prefix}", blob("locks/a"));
        let found =
            read(page(&format!("{}{good}", blob("locks//b"))), Proof::NoToken).expect("reads");
        assert_eq!((found.names, found.token.as_deref()), (3, Some("m")));
        assert_eq!(found.odd, ["locks//b"]);
        assert_eq!(found.body, page(&good));
    }

    #[test]
    fn a_page_without_odd_keys_is_handed_on_as_it_is() {
        let body = page(&keys(&["a", "b"]));
        assert_eq!(read(body.clone(), Proof::Said).expect("reads").body, body);
    }

    #[test]
    fn a_key_that_is_not_utf8_hides_no_other() {
        let mut body = page(&keys(&["locks/good", "locks/bad"])).to_vec();
        let at = body.windows(3).position(|part| part == b"bad").expect("is there");
        body[at] = 0xFF;
        let read = read(body.into(), Proof::Said).expect("reads");
        assert_eq!(read.odd, ["locks/\u{FFFD}ad"]);
        assert!(String::from_utf8(read.body.to_vec()).expect("UTF-8").contains("good"));
    }

    #[test]
    fn a_page_cut_short_needs_a_token_for_the_rest() {
        let cut = "<IsTruncated>true</IsTruncated>";
        for rest in ["", "<NextMarker>locks/z</NextMarker>", "<NextContinuationToken/>"] {
            let fault =
                read(page(&format!("{cut}{rest}")), Proof::Said).expect_err("is incomplete");
            assert_eq!(fault.kind, super::super::StoreErrorKind::Failed(ErrorClass::Incomplete));
        }
        let token = "<NextContinuationToken>a+/=&amp;%</NextContinuationToken>";
        let read_on = read(page(&format!("{cut}{token}")), Proof::Said).expect("reads");
        assert_eq!(read_on.token.as_deref(), Some("a+/=&%"));
        assert!(read(page("<IsTruncated>false</IsTruncated>"), Proof::Said).is_ok());
    }

    #[test]
    fn what_is_no_listing_is_never_an_empty_one() {
        for body in [
            "",
            "<html><body>log in</body></html>",
            "<!DOCTYPE html><html>",
            "{\"a\": 1}",
            "<ListBucketResult>",
            "<ListBucketResult></Other>",
            "<ListAllMyBucketsResult/>",
            "<ListBucketResult/><html/>",
            "<Error><Code>InternalError</Code></Error>",
        ] {
            let fault = read(body.into(), Proof::Said).expect_err(body);
            let protocol = super::super::StoreErrorKind::Failed(ErrorClass::Protocol);
            assert_eq!(fault.kind, protocol, "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body: Vec<u8>, inner in "(<|>|/|Contents|Key|a|&|;|\\]|!|-|\\?)*") {
            let _ = read(body.into(), Proof::Said);
            let _ = read(page(&inner), Proof::Said);
        }
    }
}
