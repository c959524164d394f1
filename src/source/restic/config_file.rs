//! The plaintext of `config`: format version and id of the repository.
//!
//! Other keys (the chunker's polynomial, rustic's additions) are ignored (restic
//! `internal/restic/config.go`). Pure.

use std::sync::Arc;

use serde::de::MapAccess;

use super::crypto::{MasterKey, OpenError};
use super::go_json::{self, Text};
use super::listing;
use super::lock_file::Encoding;

/// What `config` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Format version.
    pub version: Version,
    /// The repository's id, 64 hex digits; the same through every address.
    pub id: Arc<str>,
}

/// A format version that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Nothing is compressed.
    V1,
    /// Locks may be compressed.
    V2,
}

impl Version {
    /// The number as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V1 => "1",
            Version::V2 => "2",
        }
    }

    /// How lock files are encoded.
    pub fn encoding(self) -> Encoding {
        match self {
            Version::V1 => Encoding::Plain,
            Version::V2 => Encoding::Compressible,
        }
    }
}

/// Why `config` cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadConfig {
    /// The key does not open it.
    #[error("config: {0}")]
    Sealed(#[from] OpenError),
    /// It opens to something else.
    #[error("config is not the JSON of a restic config")]
    Json,
    /// A version that nobody knows here.
    #[error("repository version {0} is not supported, only 1 and 2")]
    Version(u64),
}

#[derive(Default)]
struct ConfigJson {
    version: u64,
    id: Text,
}

impl go_json::Fields for ConfigJson {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "version" => go_json::set(&mut self.version, map)?,
            "id" => go_json::set(&mut self.id, map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Config {
    /// Opens and reads `config`.
    ///
    /// # Errors
    /// [`BadConfig`].
    pub fn open(sealed: &[u8], key: &MasterKey) -> Result<Self, BadConfig> {
        let plain = key.open(sealed)?;
        let json: ConfigJson = go_json::parse(&plain).map_err(|_| BadConfig::Json)?;
        let version = match json.version {
            1 => Version::V1,
            2 => Version::V2,
            other => return Err(BadConfig::Version(other)),
        };
        let id = if listing::is_id(&json.id.text) { json.id.text } else { String::new() };
        Ok(Self { version, id: id.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::crypto::tests as known;
    use super::*;

    #[test]
    fn known_answers() {
        for (sealed, version) in [(known::CONFIG_V1, Version::V1), (known::CONFIG_V2, Version::V2)]
        {
            let config = Config::open(&known::bytes(sealed), &known::master()).unwrap();
            assert_eq!(config.version, version);
            assert_eq!(config.id.len(), 64);
        }
    }

    #[test]
    fn what_is_no_config() {
        let open = |text: &str| {
            Config::open(&known::master().seal([9; 16], text.as_bytes()), &known::master())
        };
        assert_eq!(open(r#"{"version":3}"#), Err(BadConfig::Version(3)));
        assert_eq!(open("{}"), Err(BadConfig::Version(0)));
        assert_eq!(open(r#"{"version":"2"}"#), Err(BadConfig::Json));
        assert_eq!(open(r#"{"version":-1}"#), Err(BadConfig::Json));
        assert_eq!(open("garbage"), Err(BadConfig::Json));
        let rustic = open(r#"{"version":2,"id":"x","is_hot":true,"compression":3}"#).unwrap();
        assert_eq!((rustic.version, &*rustic.id), (Version::V2, ""));
        assert_eq!(
            Config::open(b"short", &known::master()),
            Err(BadConfig::Sealed(OpenError::Short))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_config_or_a_reason(text in "[{}\\[\\]\":,a-z0-9 ]{0,60}|\\PC{0,40}") {
            let _ = Config::open(&known::master().seal([9; 16], text.as_bytes()), &known::master());
            let _ = Config::open(text.as_bytes(), &known::master());
            let _ = MasterKey::from_json(text.as_bytes());
        }
    }
}
