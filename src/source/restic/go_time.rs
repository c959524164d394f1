//! Times as Go writes them into JSON and reads them back.
//!
//! Go reads RFC 3339 with `time.Parse` (the stricter check in `time/format_rfc3339.go` is there
//! but switched off): one digit is enough for the hour, a comma may begin the fraction, an offset
//! may go up to 24:60, and a time without a zone is an error. Pure; knows no clock.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Reads one time. The inner `None` is Go's zero time, the first second of year 1, which stands
/// for "no time".
///
/// Returns `None` where Go's `time.Time.UnmarshalJSON` would return an error.
pub fn parse(text: &str) -> Option<Option<Timestamp>> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.digits(4)?;
    rest.expect(b"-")?;
    let month = rest.digits(2)?;
    rest.expect(b"-")?;
    let day = rest.digits(2)?;
    rest.expect(b"T")?;
    let hour = rest.digits(2).or_else(|| rest.digits(1))?;
    rest.expect(b":")?;
    let minute = rest.digits(2)?;
    rest.expect(b":")?;
    let second = rest.digits(2)?;
    let nanosecond = rest.fraction();
    let offset = rest.offset()?;
    if !rest.0.is_empty() || second > 59 {
        return None;
    }
    let date_time = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        i8::try_from(hour).ok()?,
        i8::try_from(minute).ok()?,
        i8::try_from(second).ok()?,
        nanosecond,
    )
    .ok()?;
    // Only the last days of year 9999 can fail, where our range ends a little earlier than Go's.
    let at = Offset::from_seconds(offset).ok()?.to_timestamp(date_time).unwrap_or(if year == 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    });
    Some((at.as_second() != ZERO_SECOND || at.subsec_nanosecond() != 0).then_some(at))
}

/// 0001-01-01T00:00:00Z in Unix seconds.
const ZERO_SECOND: i64 = -62_135_596_800;

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn digits(&mut self, count: usize) -> Option<i32> {
        let (head, tail) = self.0.split_at_checked(count)?;
        let mut value = 0;
        for digit in head {
            if !digit.is_ascii_digit() {
                return None;
            }
            value = value * 10 + i32::from(digit - b'0');
        }
        self.0 = tail;
        Some(value)
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// The fraction in nanoseconds; digits beyond the ninth are dropped, as Go drops them.
    fn fraction(&mut self) -> i32 {
        let [b'.' | b',', tail @ ..] = self.0 else { return 0 };
        let count = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        let (digits, rest) = tail.split_at(count);
        self.0 = rest;
        (0..9).fold(0, |value, index| {
            value * 10 + digits.get(index).map_or(0, |digit| i32::from(digit - b'0'))
        })
    }

    fn offset(&mut self) -> Option<i32> {
        if self.expect(b"Z").is_some() {
            return Some(0);
        }
        let sign = match self.0.first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.digits(2)?;
        self.expect(b":")?;
        let minutes = self.digits(2)?;
        (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_in_many_forms() {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for text in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T3:04:05Z",
            "2026-01-02T11:04:05+08:00",
            "2026-01-01T23:34:05-03:30",
            "2026-01-02T03:04:05.000Z",
            "2026-01-02T03:04:05,0Z",
            "2026-01-02T03:04:05.0000000009Z",
            "2026-01-03T03:04:05+24:00",
        ] {
            assert_eq!(parse(text), Some(Some(at)), "{text}");
        }
        let exact: Timestamp = "2015-06-27T10:18:51.759239612Z".parse().unwrap();
        assert_eq!(parse("2015-06-27T12:18:51.759239612+02:00"), Some(Some(exact)));
    }

    #[test]
    fn the_zero_time_is_no_time() {
        assert_eq!(parse("0001-01-01T00:00:00Z"), Some(None));
        assert_eq!(parse("0001-01-01T02:00:00+02:00"), Some(None));
        assert!(parse("0001-01-01T00:00:00.000000001Z").unwrap().is_some());
    }

    #[test]
    fn both_ends_of_the_range_are_times() {
        for text in ["0000-01-01T00:00:00+24:00", "9999-12-31T23:59:59.999999999-24:00"] {
            assert!(parse(text).unwrap().is_some(), "{text}");
        }
    }

    #[test]
    fn what_go_refuses() {
        for text in [
            "",
            "not a time",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-01-02t03:04:05Z",
            "2026-01-02T03:04:05z",
            "2026-01-02T03:04:05Zx",
            "2026-01-02T03:04:60Z",
            "2026-01-02T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-1-02T03:04:05Z",
            "2026-01-02T03:4:05Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+0800",
            "2026-01-02T03:04:05+25:00",
            "12026-01-02T03:04:05Z",
            "2026-01-02T03:04Z",
            "２０26-01-02T03:04:05Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_time_or_none(
            text in "\\PC{0,40}",
            near in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2]?[0-9]:[0-6][0-9]:[0-6][0-9]([.,][0-9]{0,12})?(Z|[+-][0-9]{2}:[0-9]{2})?",
        ) {
            let _ = parse(&text);
            let _ = parse(&near);
        }

        /// What we and restic write is read back exactly.
        #[test]
        fn times_survive_being_written(
            second in -62_135_596_799_i64..253_370_764_799, nanosecond in 0_i32..1_000_000_000,
        ) {
            let at = Timestamp::new(second, nanosecond).unwrap();
            proptest::prop_assert_eq!(parse(&at.to_string()), Some(Some(at)));
        }
    }
}
