//! What a REST server's answers mean. Pure: statuses and bodies in, names or faults out.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};

use crate::scan::ErrorClass;
use crate::store::StoreErrorKind;
use crate::store::fault::{Fault, clean, is_html};

/// An answer that the protocol does not have.
pub fn no_rest(cause: impl Into<String>) -> Fault {
    Fault::no_service(cause)
}

/// Neither the folder nor `config` is there.
pub fn no_repository() -> Fault {
    Fault::of(StoreErrorKind::NotFound, "there is no repository at this path", "")
}

/// What a status other than 200 and 206 means, and whether the request may succeed soon.
pub fn refusal(status: u16) -> Option<(Fault, bool)> {
    let cause = format!("HTTP status {status}");
    let (class, advice) = match status {
        200 | 206 => return None,
        404 => {
            return Some((Fault::of(StoreErrorKind::NotFound, cause, ""), false));
        }
        301..=308 => (
            ErrorClass::Config,
            "The server wants to be asked elsewhere, which is not followed: name that address.",
        ),
        401 => (ErrorClass::Auth, ""),
        403 => (ErrorClass::Permission, ""),
        408 | 504 => (
            ErrorClass::Timeout,
            "Check whether the server is overloaded or a firewall drops packets.",
        ),
        429 | 503 => {
            (ErrorClass::Throttled, "Scan less often, or raise the request limit of the server.")
        }
        502 => (ErrorClass::Network, "The proxy does not reach the REST server."),
        500..=599 => (ErrorClass::Other, "Look into the log of the REST server."),
        _ => (ErrorClass::Protocol, ""),
    };
    Some((Fault::new(class, cause, advice), matches!(status, 429 | 500..=599)))
}

/// One name of a listing; the first version of the protocol has no sizes.
#[derive(PartialEq, Eq, Debug)]
pub struct Named {
    /// As the server names it.
    pub name: String,
    /// Bytes.
    pub size: Option<u64>,
}

/// Reads a listing of either version. Some servers say `null` for an empty one. What is not kept
/// is not built either: a body of tiny values would take many times its size.
///
/// # Errors
/// [`Fault`] of class `protocol` when it is no listing, `incomplete` when it has more names.
pub fn names(body: &[u8], names_max: usize) -> Result<Vec<Named>, Fault> {
    if is_html(body) {
        return Err(no_rest("the server answered with a web page instead of a listing"));
    }
    let mut refused = None;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let names = Names { names_max, refused: &mut refused };
    let named = names.deserialize(&mut reader).and_then(|named| reader.end().map(|()| named));
    named.map_err(|_| refused.unwrap_or_else(|| no_rest("the server's answer is no listing")))
}

struct Names<'a> {
    names_max: usize,
    /// Why it is refused, where that is not that it is no listing.
    refused: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = Vec<Named>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Named>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = Vec<Named>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_unit<E>(self) -> Result<Vec<Named>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Named>, A::Error> {
        let mut named = Vec::new();
        while let Some(part) = seq.next_element()? {
            let refused = match part {
                Part::Text(name) => {
                    named.push(Named { name, size: None });
                    (named.len() > self.names_max).then(|| too_many(self.names_max))
                }
                Part::Object { name, size: Some(size) } => {
                    named.push(Named { name, size: Some(size) });
                    (named.len() > self.names_max).then(|| too_many(self.names_max))
                }
                Part::Object { name, size: None } => {
                    Some(no_rest(format!("{} is listed with a size that is none", clean(&name))))
                }
                Part::Number(_) | Part::Other => return Err(A::Error::custom("no name")),
            };
            if refused.is_some() {
                *self.refused = refused;
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(named)
    }
}

fn too_many(names_max: usize) -> Fault {
    let cause = format!("more than {names_max} names in the folder");
    Fault::new(ErrorClass::Incomplete, cause, "")
}

/// A value of a listing, as far as it matters.
enum Part {
    Text(String),
    Number(u64),
    /// It has a name and a size, which may be none.
    Object {
        name: String,
        size: Option<u64>,
    },
    Other,
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Part, E> {
        Ok(Part::Text(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Part, E> {
        Ok(Part::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_unit<E>(self) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Part, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Part::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let (mut name, mut size) = (None, None);
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match &*key {
                "name" => name = Some(map.next_value()?),
                "size" => size = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(match (name, size) {
            (Some(Part::Text(name)), Some(Part::Number(size))) => {
                Part::Object { name, size: Some(size) }
            }
            (Some(Part::Text(name)), Some(_)) => Part::Object { name, size: None },
            _ => Part::Other,
        })
    }
}

/// Whether the server tells the size of a listed name: it serves ids and nothing else
/// (rest-server `mux.go` BlobPathRE).
pub fn has_size(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_and_nothing_else() {
        let sized = |name: &str, size| Named { name: name.into(), size };
        for (body, want) in [
            ("[]", vec![]),
            ("null", vec![]),
            (r#"["a", "b"]"#, vec![sized("a", None), sized("b", None)]),
            (r#"[{"name":"a","size":137}]"#, vec![sized("a", Some(137))]),
            (r#"[{"size":0,"name":".DS_Store","x":1}]"#, vec![sized(".DS_Store", Some(0))]),
        ] {
            assert_eq!(names(body.as_bytes(), 9), Ok(want), "{body}");
        }
        for body in [
            "",
            "{}",
            "0",
            "[1]",
            "[[]]",
            "[{}]",
            r#"[{"name":"a"}]"#,
            r#"[{"name":"a","size":-1}]"#,
            r#"[{"name":"a","size":1.5}]"#,
            r#"["a""#,
            r#"["a"] ["b"]"#,
            r#"[{"name":["a"],"size":1}]"#,
            r#"[{"name":"a","size":{"b":[1]}}]"#,
            "<!DOCTYPE html><html>log in",
        ] {
            let fault = names(body.as_bytes(), 9).expect_err(body);
            assert_eq!(fault.kind, StoreErrorKind::Failed(ErrorClass::Protocol), "{body}");
        }
        let fault = names(br#"["a","b"]"#, 1).expect_err("are too many");
        assert_eq!(fault.kind, StoreErrorKind::Failed(ErrorClass::Incomplete));
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body: Vec<u8>, text in "[\\[\\]{}\",:a0-9-]{0,40}") {
            let _ = names(&body, 9);
            let _ = names(text.as_bytes(), 9);
        }
    }
}
