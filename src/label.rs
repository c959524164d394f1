//! Text from outside, made safe to be a label value; and the operator's own rules for it.
//!
//! Whoever may write into `locks/` chooses host and user names, and containers choose random
//! ones. Cleaning happens before series are merged, so it can never make two equal series.

use std::borrow::Cow;

use regex::Regex;
use sha2::{Digest, Sha256};

/// Longest label value that comes from outside, in bytes.
pub const BYTES_MAX: usize = 128;

/// A text of at most `bytes_max` bytes in which control characters and U+FFFD (which PromQL
/// refuses inside a string, so that nobody could query for it) are `?`.
pub fn clean(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let cut = cut(text, bytes_max);
    let bad = |c: char| c.is_control() || c == '\u{FFFD}';
    if cut.contains(bad) { cut.replace(bad, "?").into() } else { cut.into() }
}

/// A name made safe as by [`clean`]; a long one is cut and marked with a digest of the whole, so
/// that two of them stay different.
pub fn shortened(name: &str, bytes_max: usize) -> String {
    if name.len() <= bytes_max {
        return clean(name, bytes_max).into_owned();
    }
    let digest = Sha256::digest(name.as_bytes());
    let mark = format!("~{}", hex::encode(&digest[..4]));
    clean(name, bytes_max.saturating_sub(mark.len())).into_owned() + &mark
}

/// Whether a character shows nothing and yet changes what is seen: controls, characters of no
/// width, and those that turn the direction of writing.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202f}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A holder label that can be left out, for people with random names in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HolderLabel {
    /// `hostname`
    Hostname,
    /// `username`
    Username,
    /// `command`
    Command,
}

impl HolderLabel {
    /// Every label that may be dropped.
    pub const ALL: [HolderLabel; 3] =
        [HolderLabel::Hostname, HolderLabel::Username, HolderLabel::Command];

    /// The label's name.
    pub fn as_str(self) -> &'static str {
        match self {
            HolderLabel::Hostname => "hostname",
            HolderLabel::Username => "username",
            HolderLabel::Command => "command",
        }
    }
}

/// What the operator does to holder labels.
#[derive(Clone, Debug, Default)]
pub struct LabelRules {
    /// Tried in order on a host name; the first that matches rewrites it (`$1` for groups).
    pub hostname_rewrite: Vec<(Regex, String)>,
    /// Labels whose value is always empty.
    pub drop: Vec<HolderLabel>,
}

impl LabelRules {
    /// The value of one holder label.
    pub fn apply(&self, label: HolderLabel, text: &str) -> String {
        if self.drop.contains(&label) {
            return String::new();
        }
        if label == HolderLabel::Hostname {
            // A rule may see a long name whole, but a hostile one must not cost time.
            let text = cut(text, 8 * BYTES_MAX);
            for (pattern, replacement) in &self.hostname_rewrite {
                if pattern.is_match(text) {
                    let rewritten = pattern.replace_all(text, replacement.as_str());
                    return clean(&rewritten, BYTES_MAX).into_owned();
                }
            }
        }
        clean(text, BYTES_MAX).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_becomes_a_short_printable_value() {
        for (text, expected) in [
            ("db01", "db01"),
            ("a\nb\u{0}c\u{7f}\u{85}", "a?b?c??"),
            ("x\u{FFFD}y", "x?y"),
            ("quote\" back\\slash", "quote\" back\\slash"),
        ] {
            assert_eq!(clean(text, BYTES_MAX), expected);
        }
        let long = "é".repeat(5000);
        let cleaned = clean(&long, BYTES_MAX);
        assert_eq!(cleaned.len(), BYTES_MAX);
        assert_eq!(clean(&format!("x{long}"), BYTES_MAX).len(), BYTES_MAX - 1);
    }

    #[test]
    fn two_hundred_pods_of_one_job_are_one_name() {
        let rules = LabelRules {
            hostname_rewrite: vec![(
                Regex::new(r"^(k8up-.*)-[a-z0-9]{5}-[a-z0-9]{5}$").unwrap(),
                "$1".into(),
            )],
            drop: vec![HolderLabel::Username],
        };
        let names: std::collections::BTreeSet<_> = (0..200)
            .map(|n| format!("k8up-backup-{n:05}-x{n:04}"))
            .map(|name| rules.apply(HolderLabel::Hostname, &name))
            .collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["k8up-backup"]);
        assert_eq!(rules.apply(HolderLabel::Username, "root"), "");
        assert_eq!(rules.apply(HolderLabel::Hostname, "db01"), "db01");
    }
}
