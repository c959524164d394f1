//! YAML text as a tree that knows the line of every key and value.
//!
//! Scalars keep the text as it stands in the file: what `no`, `0123` or `1.10` mean is decided by
//! whoever reads the field. Errors carry places and words, never an excerpt, since an excerpt
//! would show the neighbouring lines, and secrets may stand there.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::Problem;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub line: u32,
    pub column: u32,
    pub value: Value,
}

impl Node {
    /// The value of a key; of one that stands twice the first.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|(k, _)| k.text == key).map(|(_, value)| value),
            Value::Null | Value::Scalar(_) | Value::List(_) => None,
        }
    }
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    /// Any scalar; the text as a person wrote it, without quotes.
    Scalar(String),
    List(Vec<Node>),
    /// Pairs in the order of the file; keys may stand twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub text: String,
    pub line: u32,
    pub column: u32,
}

/// Parses one document. An empty one is an empty map.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(raw) => Ok(place(raw, text)),
        Err(error) => {
            let (line, column) = match error.location() {
                Some(at) => (narrow(at.line()), narrow(at.column())),
                None => (1, 1),
            };
            let message = error.without_snippet().to_string();
            let message = message.lines().next().unwrap_or_default().trim();
            // The library puts the place into the text too; it is said once, by us.
            let place = format!(" at line {line}, column {column}");
            let message = format!("YAML: {}", message.strip_suffix(&place).unwrap_or(message));
            Err(Problem { line, column, key: String::new(), message })
        }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What the deserializer shows; typed scalars get their text back from the file afterwards.
enum Raw {
    Null,
    /// A number or a boolean.
    Typed,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Raw::Map(pairs))
    }
}

fn place(raw: Spanned<Raw>, text: &str) -> Node {
    let at = raw.referenced;
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Typed => Value::Scalar(written(&at, text)),
        Raw::Text(text) => Value::Scalar(text),
        Raw::List(items) => Value::List(items.into_iter().map(|item| place(item, text)).collect()),
        Raw::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(key, value)| {
                    let key = place(key, text);
                    let name = match key.value {
                        Value::Scalar(name) => name,
                        Value::Null | Value::List(_) | Value::Map(_) => String::new(),
                    };
                    let key = Key { text: name, line: key.line, column: key.column };
                    (key, place(value, text))
                })
                .collect(),
        ),
    };
    Node { line: narrow(at.line()), column: narrow(at.column()), value }
}

/// The text of a number or boolean as it stands in the file.
fn written(at: &serde_saphyr::Location, text: &str) -> String {
    let span = at.span();
    let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else {
        return String::new();
    };
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
    text.get(start..end.min(text.len())).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(node: &Node) -> &str {
        match &node.value {
            Value::Scalar(text) => text,
            other => panic!("no scalar: {other:?}"),
        }
    }

    #[test]
    fn scalars_keep_the_text_of_the_file_and_every_node_its_place() {
        let tree = parse("a: no\nb:\n  - 0123\n  - 1.10\n  - \"60\"\na: twice\n").unwrap();
        let Value::Map(pairs) = tree.value else { panic!("no map") };
        assert_eq!(pairs.iter().map(|(k, _)| k.text.as_str()).collect::<Vec<_>>(), ["a", "b", "a"]);
        assert_eq!(scalar(&pairs[0].1), "no");
        let Value::List(items) = &pairs[1].1.value else { panic!("no list") };
        assert_eq!(items.iter().map(scalar).collect::<Vec<_>>(), ["0123", "1.10", "60"]);
        assert_eq!((items[1].line, items[1].column), (4, 5));
        assert_eq!(pairs[2].0.line, 6);
    }

    #[test]
    fn a_syntax_error_names_its_line_and_shows_no_other() {
        let problem = parse("password: hunter2\ntargets: [\n").unwrap_err();
        assert!(problem.line >= 2, "{problem}");
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
        assert_eq!(problem.to_string().matches("line").count(), 1, "{problem}");
    }
}
