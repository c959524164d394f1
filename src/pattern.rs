//! Patterns for relative paths and for paths of lock files, matched against bytes.
//!
//! Pure: what there is to match is listed elsewhere.

use std::path::{Path, PathBuf};

use regex::bytes::Regex;

/// Longest pattern, in bytes.
const BYTES_MAX: usize = 4096;

/// A pattern for paths: `*` and `?` stay within one part, `**` does not, `[a-z]` and `[!a-z]` are
/// one character.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// Reads a pattern; none when it is too long to be one, or a `[…]` in it is no range.
    pub fn new(text: &str) -> Option<Self> {
        if text.len() > BYTES_MAX {
            return None;
        }
        let mut expression = String::from("(?s)\\A");
        let mut rest = text.trim_matches('/');
        while let Some(next) = rest.chars().next() {
            let (part, length) = match rest {
                _ if rest.starts_with("**") => ("(?s-u:.)*".to_owned(), 2),
                _ if next == '*' => ("(?-u:[^/])*".to_owned(), 1),
                // A character, or a byte of something that is no text.
                _ if next == '?' => ("(?:[^/]|(?-u:[\\x80-\\xff]))".to_owned(), 1),
                _ if next == '[' => class(rest).unwrap_or(("\\[".to_owned(), 1)),
                _ => (regex::escape(&next.to_string()), next.len_utf8()),
            };
            expression += &part;
            rest = &rest[length..];
        }
        let regex = Regex::new(&(expression + "\\z")).ok()?;
        Some(Self { text: text.to_owned(), regex })
    }

    /// Whether a path or name is meant.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.regex.is_match(path)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A class at the start of a text, as an expression, and its length; none when it does not end.
fn class(text: &str) -> Option<(String, usize)> {
    let inner = text.strip_prefix('[')?;
    let (not, inner) = match inner.strip_prefix(['!', '^']) {
        Some(inner) => ("^/", inner),
        None => ("", inner),
    };
    // As in a shell, a bracket right at the start belongs to the class.
    let first = inner.chars().next()?.len_utf8();
    let end = first + inner[first..].find(']')?;
    let escaped = |c: char| match c {
        '-' => "-".to_owned(),
        c => format!("\\x{{{:x}}}", u32::from(c)),
    };
    let members: String = inner[..end].chars().map(escaped).collect();
    let length = text.len() - inner.len() + end + 1;
    Some((format!("[{not}{members}]"), length))
}

/// A pattern for absolute paths, split at the last folder that is named outright.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    /// The folder below which everything is.
    pub folder: PathBuf,
    /// What each further part of the path must be.
    pub parts: Vec<Part>,
}

/// One part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// This name.
    Plain(String),
    /// Any name that matches; one that begins with a dot only when the pattern does.
    Pattern(Pattern),
}

impl Part {
    /// Whether a name is meant.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            Part::Plain(plain) => plain.as_bytes() == name,
            Part::Pattern(pattern) => {
                let hidden = name.starts_with(b".") && !pattern.as_str().starts_with('.');
                !hidden && pattern.matches(name)
            }
        }
    }
}

impl Glob {
    /// Whether a path is a pattern at all.
    pub fn is_meant(path: &str) -> bool {
        path.contains(['*', '?', '['])
    }

    /// Reads a pattern that is an absolute path.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn new(path: &str) -> Result<Self, &'static str> {
        if path.len() > BYTES_MAX {
            return Err("no path is that long");
        }
        if path.contains("**") {
            return Err("** could lead through a whole file system; write one * for each level");
        }
        if path.ends_with('/') || path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err("a pattern must end with a name and have neither . nor .. in it");
        }
        let mut glob = Self { folder: PathBuf::from("/"), parts: Vec::new() };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if Self::is_meant(name) {
                let pattern =
                    Pattern::new(name).ok_or("this is no pattern: look at its [ and ]")?;
                glob.parts.push(Part::Pattern(pattern));
            } else if glob.parts.is_empty() {
                glob.folder.push(name);
            } else {
                glob.parts.push(Part::Plain(name.to_owned()));
            }
        }
        Ok(glob)
    }

    /// The path below the folder that is named outright; none of a path that is elsewhere.
    pub fn relative<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.folder).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_one_part_unless_there_are_two() {
        for (pattern, path, meant) in [
            ("tmp/*", "tmp/x", true),
            ("tmp/*", "tmp/x/y", false),
            ("tmp/**", "tmp/x/y", true),
            ("*.lock", "a.lock", true),
            ("*.lock", "alock", false),
            ("db?", "dbü", true),
            ("db?", "db/", false),
            ("db[0-9]", "db7", true),
            ("db[!0-9]", "db7", false),
            ("db[!0-9]", "db/", false),
            ("[[]x]", "[x]", true),
            ("[]x]", "]", true),
            ("a[b", "a[b", true),
            ("(a|b)", "a", false),
        ] {
            let read = Pattern::new(pattern).expect(pattern);
            assert_eq!(read.matches(path.as_bytes()), meant, "{pattern} {path}");
        }
        let any = Pattern::new("*?").expect("is a pattern");
        assert!(any.matches(b"\xff\xfe\n"), "names need not be text");
        assert!(Pattern::new("[z-a]").is_none());
        assert!(Pattern::new(&"*".repeat(BYTES_MAX + 1)).is_none());
    }

    #[test]
    fn a_pattern_of_paths_begins_where_the_first_star_is() {
        let glob = Glob::new("/var/lib/*/lock").expect("is a pattern");
        assert_eq!(glob.folder, Path::new("/var/lib"));
        assert!(glob.parts[0].matches(b"dpkg") && !glob.parts[0].matches(b".hidden"));
        assert_eq!(glob.parts[1], Part::Plain("lock".into()));
        assert_eq!(glob.relative(Path::new("/var/lib/a/lock")), Some(Path::new("a/lock")));
        assert!(Glob::new("/run/.*").expect("is a pattern").parts[0].matches(b".hidden"));
        assert!(Glob::new("/srv/**/lock").is_err());
        assert!(Glob::new("/srv/*/../lock").is_err());
    }

    #[test]
    fn a_pattern_is_no_longer_than_a_path() {
        // Each part is an expression of its own, and thousands take hundreds of megabytes.
        assert!(Glob::new(&"/*".repeat(BYTES_MAX / 2)).is_ok());
        assert!(Glob::new(&"/*".repeat(BYTES_MAX)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_pattern_makes_it_panic(text: String, path: Vec<u8>) {
            if let Some(pattern) = Pattern::new(&text) {
                let _ = pattern.matches(&path);
            }
            let _ = Glob::new(&text);
        }
    }
}
