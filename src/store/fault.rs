//! What went wrong between us and a backend, from an error chain or an answer's status and body.
//!
//! Nothing of an answer is shown but S3's code and message, cleaned: bodies also hold what was
//! signed. This module sends nothing.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use quick_xml::events::Event;

use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::Secret;

/// What is kept of a text from outside.
const TEXT_CHARS_MAX: usize = 300;

const NETWORK: &str = "Check the host name, the port, and that the exporter's machine reaches it.";
const TIMEOUT: &str = "Check whether the server is overloaded or a firewall drops packets.";
const CLOCK: &str = "Set the clock of the exporter's machine: the server refuses signatures of \
                     another time.";
const REGION: &str = "Set AWS_DEFAULT_REGION or the option s3.region to the bucket's region.";
const THROTTLED: &str = "Scan less often, or raise the request limit of the backend.";
const REDIRECT: &str = "Name the address that the server redirects to, or its region.";

/// One failure, ready to be shown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Fault {
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// What went wrong, short and printable.
    pub cause: String,
    /// The next step; empty when the backend's own advice fits.
    pub advice: Cow<'static, str>,
    /// How long the server asks to be left alone, where it says so.
    pub wait: Option<Duration>,
}

impl From<StoreError> for Fault {
    /// What kept a client from being made is told like a failed request.
    fn from(error: StoreError) -> Self {
        let cause = format!("{}: {}", error.doing, error.cause);
        Self { kind: error.kind, cause, advice: error.advice.into(), wait: error.wait }
    }
}

impl Fault {
    /// Of a class that a scan reports.
    pub fn new(
        class: ErrorClass,
        cause: impl Into<String>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::of(StoreErrorKind::Failed(class), cause, advice)
    }

    /// Of a kind that is no class.
    pub fn of(
        kind: StoreErrorKind,
        cause: impl Into<String>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, cause: cause.into(), advice: advice.into(), wait: None }
    }

    /// An answer that the service would never give.
    pub fn no_service(cause: impl Into<String>) -> Self {
        Self::new(ErrorClass::Protocol, cause, "")
    }

    /// As an error that `object_store` hands through, with or without trying again.
    pub fn into_http(self, again: bool) -> HttpError {
        let kind = if again { HttpErrorKind::Request } else { HttpErrorKind::Unknown };
        HttpError::new(kind, self)
    }
}

/// What an answer's headers say of a refusal; one to HEAD has no body.
#[derive(Clone, Copy, Default)]
pub struct Hints<'a> {
    /// The bucket's region.
    pub region: Option<&'a str>,
    /// The code that a body would have.
    pub code: Option<&'a str>,
}

/// An answer with an error status.
pub struct Refusal {
    /// What it means.
    pub fault: Fault,
    /// Whether the same request may succeed soon.
    pub again: bool,
    /// Whether the answer was S3's at all: it had a code.
    pub coded: bool,
    /// Whether it is the bucket or container that is missing.
    pub container: bool,
    /// The bucket's region, where the answer names it.
    pub region: Option<String>,
}

/// Understands an answer with an error status. What is hidden is never shown, even if the server
/// sends it back.
pub fn refusal(status: u16, headers: Hints<'_>, body: &[u8], hidden: &[Secret]) -> Refusal {
    let mut said = Said::read(body, hidden);
    if let Some(code) = headers.code.filter(|_| said.code.is_empty()) {
        said.code = clean(code);
    }
    let code = said.code.as_str();
    let container = matches!(
        code,
        "NoSuchBucket" | "InvalidBucketName" | "ContainerNotFound" | "ContainerBeingDeleted"
    );
    let (class, advice) = match (code, status) {
        ("RequestTimeTooSkewed", _) => (ErrorClass::Auth, CLOCK),
        ("AuthorizationHeaderMalformed" | "IllegalLocationConstraintException", _)
            if said.region.is_some() || said.message.contains("region") =>
        {
            (ErrorClass::Auth, REGION)
        }
        (
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "InvalidClientTokenId"
            | "AuthorizationHeaderMalformed"
            | "InvalidSecurity"
            | "NotSignedUp"
            // To a request without a signature.
            | "MissingSecurityHeader"
            | "MissingAuthenticationToken"
            | "UnsupportedAlgorithm"
            // Azure's, to a wrong key or a signature that has expired.
            | "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "NoAuthenticationInformation",
            _,
        ) => (ErrorClass::Auth, ""),
        // Azurite's, where Azure says AuthenticationFailed.
        ("AuthorizationFailure", _) if said.message.contains("failed to authenticate") => {
            (ErrorClass::Auth, "")
        }
        ("PermanentRedirect" | "TemporaryRedirect" | "Redirect", _) | (_, 300..=399) => {
            (ErrorClass::Config, REDIRECT)
        }
        _ if container => (ErrorClass::NotFound, ""),
        ("SlowDown" | "ServerBusy" | "Throttling" | "ThrottlingException" | "RequestLimitExceeded", _) => {
            (ErrorClass::Throttled, THROTTLED)
        }
        (_, 401) => (ErrorClass::Auth, ""),
        (_, 403) => (ErrorClass::Permission, ""),
        (_, 404) => (ErrorClass::NotFound, ""),
        (_, 408 | 504) => (ErrorClass::Timeout, TIMEOUT),
        (_, 429 | 503) => (ErrorClass::Throttled, THROTTLED),
        (_, 502) => (ErrorClass::Network, NETWORK),
        (_, 500..=599) => (ErrorClass::Other, ""),
        _ => (ErrorClass::Protocol, ""),
    };
    let kind = match (code, class) {
        ("InvalidObjectState" | "BlobArchived", _) => StoreErrorKind::Archived,
        (_, ErrorClass::NotFound) => StoreErrorKind::NotFound,
        (_, class) => StoreErrorKind::Failed(class),
    };
    let region = headers.region.map(str::to_owned).or(said.region).filter(|region| {
        region.len() <= 32 && region.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    });
    let again = matches!(status, 408 | 429 | 500..=599) || class == ErrorClass::Throttled;
    let cause = match (code, said.message.as_str()) {
        ("", _) if is_html(body) => format!("HTTP status {status} and a web page"),
        ("", _) => format!("HTTP status {status}"),
        (code, "") => format!("{code} (HTTP status {status})"),
        (code, message) => format!("{code}: {message} (HTTP status {status})"),
    };
    let coded = !code.is_empty();
    Refusal { fault: Fault::of(kind, cause, advice), again, coded, container, region }
}

/// Whether a body is a web page.
pub fn is_html(body: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&body[..body.len().min(256)]).trim_start().to_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// The parts of S3's `<Error>` that may be shown.
#[derive(Default)]
struct Said {
    code: String,
    message: String,
    region: Option<String>,
}

impl Said {
    /// Reads `<Error>`, also where Amazon's other services put it into `<ErrorResponse>`.
    fn read(body: &[u8], hidden: &[Secret]) -> Self {
        let clean = |text: &str| clean(&hide(text, hidden));
        let mut said = Self::default();
        let mut reader = quick_xml::Reader::from_reader(body);
        let (mut depth, mut field, mut text) = (0_usize, Vec::new(), String::new());
        let mut error_depth = 1;
        // A body that is no XML says nothing.
        while let Ok(event) = reader.read_event() {
            match event {
                Event::Start(start) => {
                    depth += 1;
                    match start.local_name().as_ref() {
                        b"ErrorResponse" if depth == 1 => error_depth = 2,
                        b"Error" => {}
                        _ if depth <= error_depth => break,
                        _ => {}
                    }
                    field = start.local_name().as_ref().to_vec();
                    text.clear();
                }
                Event::Text(part) => text.push_str(&String::from_utf8_lossy(&part)),
                Event::GeneralRef(part) => text.push_str(match part.as_ref() {
                    b"amp" => "&",
                    b"lt" => "<",
                    b"gt" => ">",
                    b"quot" => "\"",
                    b"apos" => "'",
                    _ => " ",
                }),
                Event::End(_) => {
                    if depth == error_depth + 1 {
                        match field.as_slice() {
                            b"Code" => said.code = clean(&text),
                            b"Message" => said.message = clean(&text),
                            b"Region" => said.region = Some(clean(&text)),
                            _ => {}
                        }
                    }
                    // What encloses others has no text of its own.
                    field.clear();
                    depth = depth.saturating_sub(1);
                }
                Event::Eof => break,
                _ => {}
            }
        }
        said
    }
}

/// Understands a failed exchange by the innermost of its causes.
pub fn explain(error: &(dyn Error + 'static)) -> Fault {
    let (mut timeout, mut tls, mut network, mut deepest) = (false, false, false, None);
    let mut next = Some(error);
    // Chains are short; the bound is against one that goes round.
    for _ in 0..32 {
        let Some(error) = next else { break };
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return fault.clone();
        }
        if let Some(http) = error.downcast_ref::<HttpError>() {
            match http.kind() {
                HttpErrorKind::Timeout => timeout = true,
                HttpErrorKind::Connect | HttpErrorKind::Request | HttpErrorKind::Interrupted => {
                    network = true;
                }
                _ => {}
            }
        }
        tls |= error.downcast_ref::<rustls::Error>().is_some();
        deepest = Some(error);
        let io = error.downcast_ref::<io::Error>();
        timeout |= io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
        network |= io.is_some();
        // An I/O error that wraps another names that one's cause as its own.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    let cause = clean(&deepest.map(ToString::to_string).unwrap_or_default());
    if tls {
        Fault::new(ErrorClass::Tls, cause, "")
    } else if timeout {
        Fault::new(ErrorClass::Timeout, format!("no answer in time ({cause})"), TIMEOUT)
    } else if network {
        Fault::new(ErrorClass::Network, cause, NETWORK)
    } else {
        Fault::no_service(cause)
    }
}

/// Shorter secrets protect nothing, and taking them out would spell them.
const HIDDEN_BYTES_MIN: usize = 8;

/// A text without these secrets, wherever it says them.
pub(super) fn hide(text: &str, hidden: &[Secret]) -> String {
    let hidden = hidden.iter().filter(|secret| secret.expose().len() >= HIDDEN_BYTES_MIN);
    hidden
        .filter_map(|secret| std::str::from_utf8(secret.expose()).ok())
        .fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
}

/// A text from outside as one short line.
pub fn clean(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    let mut line = String::new();
    let mut left = TEXT_CHARS_MAX;
    // Megabytes may come in, so no more is taken than is kept.
    for word in words.filter(|word| !word.is_empty()) {
        let between = if line.is_empty() { "" } else { " " };
        let part = between.chars().chain(word.chars()).take(left);
        left -= part.map(|c| line.push(c)).count();
        if left == 0 {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_by_code_before_status() {
        use StoreErrorKind::{Archived, Failed, NotFound};
        for (status, code, kind, again) in [
            (403, "InvalidAccessKeyId", Failed(ErrorClass::Auth), false),
            (403, "SignatureDoesNotMatch", Failed(ErrorClass::Auth), false),
            (400, "ExpiredToken", Failed(ErrorClass::Auth), false),
            (403, "RequestTimeTooSkewed", Failed(ErrorClass::Auth), false),
            (403, "AccessDenied", Failed(ErrorClass::Permission), false),
            (403, "InvalidObjectState", Archived, false),
            (404, "NoSuchBucket", NotFound, false),
            (404, "NoSuchKey", NotFound, false),
            (403, "AuthenticationFailed", Failed(ErrorClass::Auth), false),
            (403, "AuthorizationPermissionMismatch", Failed(ErrorClass::Permission), false),
            (404, "ContainerNotFound", NotFound, false),
            (409, "BlobArchived", Archived, false),
            (503, "SlowDown", Failed(ErrorClass::Throttled), true),
            (429, "", Failed(ErrorClass::Throttled), true),
            (500, "InternalError", Failed(ErrorClass::Other), true),
            (504, "", Failed(ErrorClass::Timeout), true),
            (401, "", Failed(ErrorClass::Auth), false),
            (301, "PermanentRedirect", Failed(ErrorClass::Config), false),
            (400, "", Failed(ErrorClass::Protocol), false),
        ] {
            let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code></Error>");
            let refusal = refusal(status, Hints::default(), body.as_bytes(), &[]);
            assert_eq!((refusal.fault.kind, refusal.again), (kind, again), "{status} {code}");
        }
    }

    #[test]
    fn only_code_and_message_of_a_body_are_shown() {
        let body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>a &amp; b\n c</Message>\
            <StringToSign>planted</StringToSign><Region>eu-west-1</Region>\
            <Detail><Message>planted</Message></Detail></Error>";
        let refusal = refusal(403, Hints::default(), body, &[]);
        assert_eq!(refusal.fault.cause, "SignatureDoesNotMatch: a & b c (HTTP status 403)");
        assert_eq!(refusal.region.as_deref(), Some("eu-west-1"));
        let bad_region = Hints { region: Some("bad region\n"), code: None };
        let page = super::refusal(403, bad_region, b"  <!DOCTYPE HTML><p>planted", &[]);
        assert_eq!(page.fault.cause, "HTTP status 403 and a web page");
        assert_eq!(page.region, None);
    }

    #[test]
    fn a_secret_sent_back_is_taken_out_before_the_text_is_cut() {
        let secret = "pl4nted secret";
        let body = format!(
            "<Error><Code>X</Code><Message>{}{secret}</Message></Error>",
            "x".repeat(TEXT_CHARS_MAX - 4)
        );
        let hidden = [Secret::new(secret), Secret::new("x")];
        let cause = refusal(403, Hints::default(), body.as_bytes(), &hidden).fault.cause;
        assert!(cause.contains("xxx…") && !cause.contains("pl4"), "{cause}");
    }

    #[test]
    fn the_innermost_cause_is_shown() {
        let refused = io::Error::from_raw_os_error(111);
        let wrapped = io::Error::other(io::Error::other(refused));
        let fault = explain(&HttpError::new(HttpErrorKind::Connect, wrapped));
        assert_eq!(fault.kind, StoreErrorKind::Failed(ErrorClass::Network));
        assert!(fault.cause.contains("refused"), "{fault}");
        let tls = io::Error::other(rustls::Error::General("bad".into()));
        let fault = explain(&HttpError::new(HttpErrorKind::Connect, tls));
        assert_eq!(fault.kind, StoreErrorKind::Failed(ErrorClass::Tls));
        let known = Fault::new(ErrorClass::Incomplete, "cut", "");
        assert_eq!(explain(&known.clone().into_http(false)), known);
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(status: u16, body: Vec<u8>, text: String) {
            let _ = refusal(status, Hints::default(), &body, &[]);
            let body = format!("<Error><Code>{text}</Code>");
            proptest::prop_assert!(refusal(status, Hints::default(), body.as_bytes(), &[]).fault.cause.len() < 2000);
        }
    }
}
