//! Durations, places and foreign text as people read and copy them.

use jiff::SignedDuration;

use super::{SKEW_MAX, signed};
use crate::label::is_invisible;

/// A duration as a person says it: `42 s`, `47 min`, `3 h 5 min`, `33 days`. A negative one is
/// said without its sign.
pub fn in_words(duration: SignedDuration) -> String {
    let seconds = duration.unsigned_abs().as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |big: u64, unit: &str, small: u64, rest: &str| match small {
        0 => format!("{big} {unit}"),
        _ => format!("{big} {unit} {small} {rest}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..172_800 => pair(hours, "h", minutes % 60, "min"),
        172_800..864_000 => pair(hours / 24, "days", hours % 24, "h"),
        // Rounded: 787 hours are 33 days.
        _ => format!("{} days", seconds.saturating_add(43_200) / 86_400),
    }
}

/// `3 min ago`, or `3 min ahead` for what lies in the future.
pub(super) fn ago(duration: SignedDuration) -> String {
    let side = if duration.as_secs() < 0 { "ahead" } else { "ago" };
    format!("{} {side}", in_words(duration))
}

/// How long something lasts: what the times of locks say, and first what no clock contradicts
/// where that is clearly less. `at_least` is put before a time that is a lower bound.
pub fn lasting(at_least: &str, said: SignedDuration, surely: SignedDuration) -> String {
    let never_negative = |time: SignedDuration| in_words(time.max(SignedDuration::ZERO));
    if said.saturating_sub(surely) > signed(SKEW_MAX) {
        let (surely, said) = (never_negative(surely), never_negative(said));
        format!("at least {surely} ({said} by the lock's own time)")
    } else {
        format!("{at_least}{}", never_negative(said))
    }
}

/// A text as one word of a shell, on one line: as it is when it is harmless, in single quotes,
/// or in `$'…'` when it holds characters that one would not see.
pub fn quoted(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        text.to_string()
    } else if text.chars().any(is_invisible) {
        let mut out = String::from("$'");
        for c in text.chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                _ if is_invisible(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
                _ => out.push(c),
            }
        }
        out.push('\'');
        out
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Foreign text made harmless for a line of words: no control characters, no invisible ones, not
/// long.
pub(super) fn plain(text: &str) -> String {
    plain_up_to(120, text)
}

/// The same of another length, in characters.
pub(super) fn plain_up_to(chars_max: usize, text: &str) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == chars_max {
            out.push('…');
            break;
        }
        match c {
            '"' | '\'' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_say_them() {
        const H: i64 = 3600;
        for (seconds, said) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (47 * 60 + 59, "47 min"),
            (H, "1 h"),
            (3 * H + 5 * 60, "3 h 5 min"),
            (17 * H + 36, "17 h"),
            (47 * H + 59 * 60, "47 h 59 min"),
            (48 * H, "2 days"),
            (157 * H + 27 * 60, "6 days 13 h"),
            (787 * H + 16 * 60, "33 days"),
            (2545 * H + 3 * 60 + 23, "106 days"),
            (-45 * 60, "45 min"),
        ] {
            assert_eq!(in_words(SignedDuration::from_secs(seconds)), said);
        }
        for extreme in [SignedDuration::MIN, SignedDuration::MAX] {
            assert!(in_words(extreme).ends_with(" days"));
            ago(extreme);
        }
    }

    #[test]
    fn what_another_clock_contradicts_is_only_said_of_the_lock() {
        let minutes = SignedDuration::from_mins;
        assert_eq!(lasting("", minutes(47), minutes(47)), "47 min");
        assert_eq!(lasting("at least ", minutes(47), minutes(43)), "at least 47 min");
        assert_eq!(
            lasting("", minutes(300), minutes(1)),
            "at least 1 min (5 h by the lock's own time)"
        );
        assert_eq!(lasting("", minutes(-119), minutes(-119)), "0 s");
    }

    #[test]
    fn places_are_one_word_of_a_shell() {
        for (text, word) in [
            ("/srv/restic/db01", "/srv/restic/db01"),
            ("s3:https://s3.example.com/backups/db01", "s3:https://s3.example.com/backups/db01"),
            ("/srv/my backups", "'/srv/my backups'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
            ("~/backup", "'~/backup'"),
            ("/srv/$(reboot)", "'/srv/$(reboot)'"),
            ("a\nb'", "$'a\\U0000000ab\\''"),
            ("/srv/\u{202e}bk", "$'/srv/\\U0000202ebk'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn foreign_text_cannot_break_out_of_its_line() {
        let text = plain("host\nrm -rf /\u{1b}[2J\u{202e}");
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text}");
        assert_eq!(plain(&"x".repeat(500)).chars().count(), 121);
    }
}
