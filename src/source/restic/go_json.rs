//! JSON as Go's `encoding/json` reads it into a struct, which is how restic reads every file.
//!
//! Go is laxer than serde in the names (any case, the last of several wins), in `null` (leaves
//! the field as it is) and in text (broken UTF-8 and lone surrogates become U+FFFD), and a lock
//! that restic accepts blocks whether we like its JSON or not. This module knows no struct of
//! restic's. Pure.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Why bytes are not the wanted JSON: the parser's words, with line and column.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadJson(serde_json::Error);

/// A struct that takes its fields one by one.
pub trait Fields: Default {
    /// Reads the value of the field with this name, folded to lower case, from `value`, or
    /// returns false when there is no such field.
    ///
    /// # Errors
    /// When the value has another type than Go's field.
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Reads one object, or `null`, which leaves every field at its default. White space around it is
/// allowed, anything else is not.
///
/// # Errors
/// [`BadJson`] where Go's `json.Unmarshal` would return an error.
pub fn parse<T: Fields>(text: &[u8]) -> Result<T, BadJson> {
    // As Go: the syntax of the whole first. Reading bytes below would let control characters pass.
    serde_json::from_slice::<IgnoredAny>(text).map_err(BadJson)?;
    let mut parser = serde_json::Deserializer::from_slice(text);
    parser.deserialize_any(Object(std::marker::PhantomData)).map_err(BadJson)
}

/// Reads a value into a field; `null` leaves the field alone, as Go does.
///
/// # Errors
/// When the value has another type.
pub fn set<'de, A, T>(field: &mut T, map: &mut A) -> Result<(), A::Error>
where
    A: MapAccess<'de>,
    T: Deserialize<'de>,
{
    if let Some(value) = map.next_value::<Option<T>>()? {
        *field = value;
    }
    Ok(())
}

struct Object<T>(std::marker::PhantomData<T>);

impl<'de, T: Fields> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut value = T::default();
        while let Some(Text { text, .. }) = map.next_key()? {
            if !value.field(&fold(&text), &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value)
    }
}

/// Go compares names by Unicode's simple folding. Only two characters outside ASCII fold into it.
fn fold(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Cow::Borrowed(name);
    }
    let folded = name.chars().map(|c| match c {
        'ſ' => 's',
        '\u{212A}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    Cow::Owned(folded.collect())
}

/// A JSON string as Go reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Text {
    /// The value.
    pub text: String,
    /// Whether it was written with backslashes.
    pub escaped: bool,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TextSeed.deserialize(deserializer)
    }
}

struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Text;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        // Bytes, because serde_json refuses broken UTF-8 and lone surrogates in a `str`.
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Text, E> {
        Ok(Text { text: lossy(bytes), escaped: false })
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
        Ok(Text { text: lossy(bytes), escaped: true })
    }
}

/// One U+FFFD for each broken byte, as Go's `utf8.DecodeRune` steps; a lone surrogate, which
/// serde_json hands over as three bytes, is one.
fn lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                return out;
            }
            Err(error) => {
                let (valid, broken) = rest.split_at(error.valid_up_to());
                out.push_str(&String::from_utf8_lossy(valid));
                out.push(char::REPLACEMENT_CHARACTER);
                let surrogate = matches!(broken, [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..]);
                rest = &broken[if surrogate { 3 } else { 1 }..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, PartialEq, Debug)]
    struct Pair {
        time: Text,
        pid: i64,
    }

    impl Fields for Pair {
        fn field<'de, A: MapAccess<'de>>(
            &mut self,
            name: &str,
            map: &mut A,
        ) -> Result<bool, A::Error> {
            match name {
                "time" => set(&mut self.time, map)?,
                "pid" => set(&mut self.pid, map)?,
                _ => return Ok(false),
            }
            Ok(true)
        }
    }

    fn pair(text: impl AsRef<[u8]>) -> Option<(String, i64)> {
        parse::<Pair>(text.as_ref()).ok().map(|pair| (pair.time.text, pair.pid))
    }

    #[test]
    fn what_go_accepts() {
        for (text, time, pid) in [
            ("{}", "", 0),
            ("null", "", 0),
            (" \t\r\n{\"pid\":5} \n", "", 5),
            (r#"{"PID":5,"Time":"x"}"#, "x", 5),
            (r#"{"pid":1,"PID":2}"#, "", 2),
            (r#"{"pid":5,"pid":null}"#, "", 5),
            (r#"{"pid":null,"time":null}"#, "", 0),
            (r#"{"more":{"a":[1,{"b":null}]},"pid":5}"#, "", 5),
            (r#"{"time":"\ud800"}"#, "\u{FFFD}", 0),
            (r#"{"time":"a\nb\u0000"}"#, "a\nb\0", 0),
            (r#"{"p\u0069d":5}"#, "", 5),
        ] {
            assert_eq!(pair(text), Some((time.into(), pid)), "{text}");
        }
        assert_eq!(pair(b"{\"time\":\"\xff\xffx\"}"), Some(("\u{FFFD}\u{FFFD}x".into(), 0)));
    }

    #[test]
    fn what_go_refuses() {
        for text in [
            "",
            "[]",
            "5",
            "\"x\"",
            "{\"pid\":",
            "{} x",
            "{}{}",
            "\u{FEFF}{}",
            r#"{"pid":"1"}"#,
            r#"{"pid":1.5}"#,
            r#"{"pid":1e3}"#,
            r#"{"pid":true}"#,
            r#"{"pid":9223372036854775808}"#,
            r#"{"pid":"1","pid":1}"#,
            r#"{"time":5}"#,
            r#"{"time":["x"]}"#,
            "{\"time\":\"a\nb\"}",
            "{'pid':1}",
            "{\"pid\":01}",
            "{\"pid\":1,}",
        ] {
            assert_eq!(pair(text), None, "{text}");
        }
    }

    #[test]
    fn deep_nesting_neither_panics_nor_overflows() {
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(30_000), "]".repeat(30_000));
        let _ = pair(deep);
        assert_eq!(pair("[".repeat(60_000)), None);
    }
}
