//! How long a server asks to be left alone (RFC 9110 §10.2.3). Pure: headers in, a time span out.

use std::time::Duration;

use hyper::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::fault::Fault;

/// Longer wishes are not told as they are; far more than anybody honours.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The wait that an answer asks for: seconds, or a date, which counts from the date of the answer
/// itself, so that nobody's clock matters. Anything else is no wish.
pub fn wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let wish = text(RETRY_AFTER)?;
    let wait = if wish.bytes().all(|c| c.is_ascii_digit()) && !wish.is_empty() {
        // More digits than fit are a long time.
        Duration::from_secs(wish.parse().unwrap_or(u64::MAX))
    } else {
        let seconds = date(wish)?.as_second() - date(text(DATE)?)?.as_second();
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    Some(wait.min(LONGEST))
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// A refusal that says for how long, in its words too.
pub(super) fn told(fault: Fault, wait: Option<Duration>) -> Fault {
    let Some(wait) = wait else { return fault };
    let cause = format!("{}, try again after {} s", fault.cause, wait.as_secs());
    Fault { cause, wait: Some(wait), ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood_and_bounded() {
        let noon = "Tue, 01 Dec 2026 12:00:00 GMT";
        for (wish, now, seconds) in [
            ("120", "", Some(120)),
            (" 7 ", "", Some(7)),
            ("0", noon, Some(0)),
            ("Tue, 01 Dec 2026 12:02:00 GMT", noon, Some(120)),
            // Over already.
            ("Tue, 01 Dec 2026 11:00:00 GMT", noon, Some(0)),
            ("Fri, 01 Jan 9999 00:00:00 GMT", noon, Some(24 * 3600)),
            ("99999999999999999999999", "", Some(24 * 3600)),
            // Whose clock could it be compared with?
            ("Tue, 01 Dec 2026 12:02:00 GMT", "", None),
            ("Tue, 01 Dec 2026 12:02:00 GMT", "noon", None),
            ("-1", noon, None),
            ("1.5", noon, None),
            ("soon", noon, None),
            ("", noon, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, wish.parse().expect("is a value"));
            if !now.is_empty() {
                headers.insert(DATE, now.parse().expect("is a value"));
            }
            assert_eq!(wait(&headers), seconds.map(Duration::from_secs), "{wish} at {now}");
        }
        assert_eq!(wait(&HeaderMap::new()), None);
    }
}
