//! What a REST server's answers mean. Pure: statuses and bodies in, names or faults out.

use serde_json::Value;

use crate::scan::ErrorClass;
use crate::store::StoreErrorKind;
use crate::store::fault::{Fault, clean, is_html};

/// An answer that the protocol does not have.
pub(super) fn no_rest(cause: impl Into<String>) -> Fault {
    Fault::no_service(cause)
}

/// Neither the folder nor `config` is there.
pub(super) fn no_repository() -> Fault {
    Fault::of(StoreErrorKind::NotFound, "there is no repository at this path", "")
}

/// What a status other than 200 and 206 means, and whether the request may succeed soon.
pub(super) fn refusal(status: u16) -> Option<(Fault, bool)> {
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
pub(super) struct Named {
    pub name: String,
    pub size: Option<u64>,
}

/// Reads a listing of either version. Some servers say `null` for an empty one.
pub(super) fn names(body: &[u8], names_max: usize) -> Result<Vec<Named>, Fault> {
    if is_html(body) {
        return Err(no_rest("the server answered with a web page instead of a listing"));
    }
    let bad = || no_rest("the server's answer is no listing");
    let listed: Option<Vec<Value>> = serde_json::from_slice(body).map_err(|_| bad())?;
    let listed = listed.unwrap_or_default();
    if listed.len() > names_max {
        let cause = format!("more than {names_max} names in the folder");
        return Err(Fault::new(ErrorClass::Incomplete, cause, ""));
    }
    let named = listed.into_iter().map(|value| match value {
        Value::String(name) => Ok(Named { name, size: None }),
        Value::Object(mut parts) => match (parts.remove("name"), parts.remove("size")) {
            (Some(Value::String(name)), Some(size)) => {
                let size = size.as_u64().ok_or_else(|| {
                    no_rest(format!("{} is listed with a size that is none", clean(&name)))
                })?;
                Ok(Named { name, size: Some(size) })
            }
            _ => Err(bad()),
        },
        _ => Err(bad()),
    });
    named.collect()
}

/// Whether the server tells the size of a listed name: it serves ids and nothing else
/// (rest-server `mux.go` BlobPathRE).
pub(super) fn has_size(name: &str) -> bool {
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
