//! The texts that secrets are written in: password files, command lines, files of variables.
//!
//! Pure: bytes in, values or reasons out. The rules are restic's where restic reads the same
//! text, and a POSIX shell's for files of variables, as far as both leave no doubt.

use zeroize::Zeroizing;

use super::Secret;

const BOM_UTF8: &[u8] = &[0xEF, 0xBB, 0xBF];

/// The text of a file as restic reads it: a byte order mark is dropped, UTF-16 that begins with
/// one becomes UTF-8, and white space at both ends goes (restic `internal/textfile/read.go`,
/// `internal/global/global.go` LoadPasswordFromFile).
pub fn of_file(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let decoded = match bytes {
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        _ => Zeroizing::new(bytes.strip_prefix(BOM_UTF8).unwrap_or(bytes).to_vec()),
    };
    Zeroizing::new(trim(&decoded).to_vec())
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Zeroizing<Vec<u8>> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    // Sized at once, so that no half-grown copy of the secret stays behind in freed memory.
    let mut out = Zeroizing::new(Vec::with_capacity(pairs.len() * 3 + 3));
    let mut put = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        put(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    if !rest.is_empty() {
        put(char::REPLACEMENT_CHARACTER);
    }
    out
}

/// Bytes without the Unicode white space at both ends (Go's `strings.TrimSpace`); bytes that are
/// no UTF-8 are no white space.
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    let space = |part: &[u8]| {
        std::str::from_utf8(part).ok().and_then(|text| {
            let mut chars = text.chars();
            chars.next().filter(|c| c.is_whitespace() && chars.next().is_none())
        })
    };
    // White space takes at most three bytes in UTF-8.
    while let Some(n) = (1..=bytes.len().min(3)).find(|n| space(&bytes[..*n]).is_some()) {
        bytes = &bytes[n..];
    }
    while let Some(n) =
        (1..=bytes.len().min(3)).find(|n| space(&bytes[bytes.len() - n..]).is_some())
    {
        bytes = &bytes[..bytes.len() - n];
    }
    bytes
}

/// Splits a command line as restic does, without a shell: white space and a backslash outside
/// quotes separate, `'` and `"` quote, a backslash before a quote takes its meaning away and
/// stays where it stands inside quotes (restic `internal/backend/shell_split.go`).
///
/// # Errors
/// In words, when a quote is not closed or nothing is left.
pub fn split_command(line: &str) -> Result<Vec<&str>, &'static str> {
    let mut parts = Vec::new();
    let (mut quote, mut last, mut start) = (None, '\0', None);
    for (at, c) in line.char_indices() {
        let separates = if last != '\\' && quote == Some(c) {
            quote = None;
            true
        } else if last != '\\' && quote.is_none() && matches!(c, '"' | '\'') {
            quote = Some(c);
            true
        } else {
            // As in restic, a quote that took effect does not count as the last character.
            last = c;
            quote.is_none() && (c == '\\' || c.is_whitespace())
        };
        match (separates, start) {
            (true, Some(from)) => {
                parts.push(&line[from..at]);
                start = None;
            }
            (false, None) => start = Some(at),
            (true, None) | (false, Some(_)) => {}
        }
    }
    if let Some(from) = start {
        parts.push(&line[from..]);
    }
    match quote {
        Some('\'') => Err("a single quote is not closed"),
        Some(_) => Err("a double quote is not closed"),
        None if parts.is_empty() => Err("the command is empty"),
        None => Ok(parts),
    }
}

/// What is wrong with a file of variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// In which line, counted from 1.
    pub line: usize,
    /// In words, without a part of the file.
    pub cause: &'static str,
}

/// Reads `KEY=value` assignments as a shell would that sources the file, with `export`, quotes,
/// comments, `;` and escaped line ends. What only a running shell could know (`$HOME`, a command)
/// is refused: a wrong guess would be a wrong secret.
///
/// # Errors
/// [`BadLine`].
pub fn assignments(bytes: &[u8]) -> Result<Vec<(String, Secret)>, BadLine> {
    let bytes = bytes.strip_prefix(BOM_UTF8).unwrap_or(bytes);
    let mut reader = Reader { rest: bytes, line: 1, exports: None };
    let mut found = Vec::new();
    while reader.find_word() {
        let name = reader.name();
        let assigns = reader.rest.first() == Some(&b'=');
        let exports = *reader.exports.get_or_insert(name == "export" && !assigns);
        match reader.rest.first() {
            Some(b'=') if !name.is_empty() => {
                reader.bump();
                let value = reader.value()?;
                found.push((name.to_owned(), value));
            }
            // `export NAME` after its assignment, and the word `export` itself.
            Some(b' ' | b'\t' | b'\r' | b'\n' | b';') | None if !name.is_empty() => {
                if name != "export" && !exports {
                    return Err(reader.bad("this is no KEY=value assignment"));
                }
            }
            _ => return Err(reader.bad("this is no KEY=value assignment")),
        }
    }
    Ok(found)
}

const REPLACED: &str = "a shell would put something else for a part of this value ($… `…` ~)";

struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
    /// Whether the command that is read begins with `export`; none before its first word.
    exports: Option<bool>,
}

impl<'a> Reader<'a> {
    fn bad(&self, cause: &'static str) -> BadLine {
        BadLine { line: self.line, cause }
    }

    fn bump(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        if *first == b'\n' {
            self.line += 1;
        }
        self.rest = rest;
        Some(*first)
    }

    /// Skips blanks, line ends and comments; false at the end.
    fn find_word(&mut self) -> bool {
        while let Some(c) = self.rest.first() {
            match c {
                b'#' => {
                    while self.rest.first().is_some_and(|c| *c != b'\n') {
                        self.bump();
                    }
                }
                b'\n' | b';' => {
                    self.exports = None;
                    self.bump();
                }
                b' ' | b'\t' | b'\r' => {
                    self.bump();
                }
                _ => return true,
            }
        }
        false
    }

    fn name(&mut self) -> &'a str {
        let long = self
            .rest
            .iter()
            .enumerate()
            .take_while(|(at, c)| {
                **c == b'_' || c.is_ascii_alphabetic() || (*at > 0 && c.is_ascii_digit())
            })
            .count();
        let (name, rest) = self.rest.split_at(long);
        self.rest = rest;
        std::str::from_utf8(name).unwrap_or_default()
    }

    fn value(&mut self) -> Result<Secret, BadLine> {
        let begun = self.line;
        let mut out = Zeroizing::new(Vec::with_capacity(self.rest.len().min(4096)));
        let mut last = b'=';
        while let Some(c) = self.rest.first().copied() {
            match c {
                b' ' | b'\t' | b'\n' | b';' => break,
                b'~' if matches!(last, b'=' | b':') => return Err(self.bad(REPLACED)),
                b'\r' if matches!(self.rest.get(1), Some(b'\n') | None) => break,
                b'\'' => {
                    self.bump();
                    loop {
                        match self.bump() {
                            Some(b'\'') => break,
                            Some(c) => out.push(c),
                            None => {
                                self.line = begun;
                                return Err(self.bad("a single quote is not closed"));
                            }
                        }
                    }
                }
                b'"' => {
                    self.bump();
                    if !self.double_quoted(&mut out)? {
                        self.line = begun;
                        return Err(self.bad("a double quote is not closed"));
                    }
                }
                b'\\' => {
                    self.bump();
                    match self.bump() {
                        Some(b'\n') | None => continue,
                        Some(c) => out.push(c),
                    }
                }
                b'(' | b')' | b'<' | b'>' | b'|' | b'&' => {
                    return Err(self.bad("a character that a shell would act on is not quoted"));
                }
                _ => self.literal(&mut out)?,
            }
            last = c;
        }
        if out.contains(&0) {
            return Err(self.bad("a value holds a zero byte"));
        }
        // A copy of the right size: thousands of values would keep thousands of large buffers.
        Ok(Secret::new(out.as_slice()))
    }

    /// What stands between double quotes; false when they are not closed.
    fn double_quoted(&mut self, out: &mut Vec<u8>) -> Result<bool, BadLine> {
        loop {
            match self.rest.first() {
                None => return Ok(false),
                Some(b'"') => {
                    self.bump();
                    return Ok(true);
                }
                Some(b'\\') => {
                    self.bump();
                    match self.bump() {
                        Some(b'\n') => {}
                        Some(c @ (b'"' | b'\\' | b'$' | b'`')) => out.push(c),
                        Some(c) => out.extend([b'\\', c]),
                        None => return Ok(false),
                    }
                }
                Some(_) => self.literal(out)?,
            }
        }
    }

    /// One character that stands for itself, unless a shell would put something in its place.
    fn literal(&mut self, out: &mut Vec<u8>) -> Result<(), BadLine> {
        let replaced = match self.rest {
            [b'`', ..] | [b'$', b'\\', b'\n', ..] => true,
            [b'$', next, ..] => next.is_ascii_alphanumeric() || b"_{(@*#?$!-".contains(next),
            _ => false,
        };
        if replaced {
            return Err(self.bad(REPLACED));
        }
        out.extend(self.bump());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
