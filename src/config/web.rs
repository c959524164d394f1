//! The web configuration file, as the Prometheus exporters have it (exporter-toolkit
//! `docs/web-configuration.md`): text in, settings out, or every error at once.
//!
//! Pure: certificates, keys and authorities that the text names are read by the caller, and what is
//! wrong with one is a problem of the line that names it. What this server cannot do as it is
//! written is refused, never weakened.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::reader::{Map, Reader, join};
use super::tree::{self, Node, Value};
use super::{ConfigError, Problem};
use crate::secret::Secret;

/// More users than this are refused.
const USERS_MAX: usize = 10_000;
/// Dearer hashes are refused: one comparison would take minutes, and they come one at a time.
const COST_MAX: u32 = 20;

/// What the file says.
#[derive(Clone, Debug, Default)]
pub struct WebConfig {
    /// How TLS is spoken; none = plain HTTP.
    pub tls: Option<TlsConfig>,
    /// Headers of every answer, name and value.
    pub headers: Vec<(&'static str, String)>,
    /// Whether HTTP/2 was asked for; it is never spoken.
    pub http2: bool,
    /// bcrypt hashes of passwords, by user; nobody is asked for a password when empty.
    pub users: BTreeMap<String, Secret>,
    /// How many requests are answered.
    pub rate_limit: Option<RateLimit>,
    /// The file says nothing at all.
    pub empty: bool,
}

/// How TLS is spoken.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The certificate and those between it and its authority, PEM.
    pub cert: Secret,
    /// Its private key, PEM.
    pub key: Secret,
    /// What is asked of clients.
    pub client_auth: ClientAuth,
    /// Authorities of clients' certificates, PEM; none = the system's, where one is needed.
    pub client_ca: Option<Secret>,
    /// Names of which a client's certificate must have one; none = any name.
    pub client_sans: Option<Vec<String>>,
    /// Oldest version.
    pub min: TlsVersion,
    /// Newest version.
    pub max: TlsVersion,
}

/// What a web configuration file names and does not hold. Failures are sentences that quote
/// nothing of a file.
pub trait Pems {
    /// The content of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&mut self, path: &Path) -> Result<Secret, String>;

    /// Takes certificate, key and authorities into use, which must go together.
    ///
    /// # Errors
    /// Why they do not.
    fn take(&mut self, tls: &TlsConfig) -> Result<(), String>;
}

/// What is asked of clients, with the words of Go's `crypto/tls`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    /// No certificate is asked for.
    #[default]
    NoClientCert,
    /// Asked for, not needed, not verified.
    RequestClientCert,
    /// Needed, not verified.
    RequireAnyClientCert,
    /// Not needed; verified when given.
    VerifyClientCertIfGiven,
    /// Needed and verified.
    RequireAndVerifyClientCert,
}

impl ClientAuth {
    /// Every word of the file, the older alias included.
    const WORDS: [(&'static str, ClientAuth); 6] = [
        ("NoClientCert", ClientAuth::NoClientCert),
        ("RequestClientCert", ClientAuth::RequestClientCert),
        ("RequireAnyClientCert", ClientAuth::RequireAnyClientCert),
        ("RequireClientCert", ClientAuth::RequireAnyClientCert),
        ("VerifyClientCertIfGiven", ClientAuth::VerifyClientCertIfGiven),
        ("RequireAndVerifyClientCert", ClientAuth::RequireAndVerifyClientCert),
    ];

    /// Whether a certificate is verified when it is given.
    pub fn verifies(self) -> bool {
        matches!(self, Self::VerifyClientCertIfGiven | Self::RequireAndVerifyClientCert)
    }

    /// Whether nobody gets in without a certificate.
    pub fn requires(self) -> bool {
        matches!(self, Self::RequireAnyClientCert | Self::RequireAndVerifyClientCert)
    }
}

/// Versions that rustls speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TlsVersion {
    /// TLS 1.2
    Tls12,
    /// TLS 1.3
    Tls13,
}

/// A bucket of `burst` requests that gets one more every `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Time after which one more request is answered.
    pub interval: Duration,
    /// Requests answered at once after a pause.
    pub burst: u32,
}

/// The headers that may be set, with the values that they may have; none listed = any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-XSS-Protection", &[]),
    ("Strict-Transport-Security", &[]),
];

/// Reads the text of a web configuration file. Relative paths in it start at `folder`.
///
/// # Errors
/// [`ConfigError`] with everything that is wrong, also with the files that it names.
pub fn parse(text: &str, folder: &Path, pems: &mut dyn Pems) -> Result<WebConfig, ConfigError> {
    let root = tree::parse(text).map_err(|problem| ConfigError(vec![problem]))?;
    let mut reader = Reader::default();
    let mut config = WebConfig::default();
    if is_null(&root) {
        config.empty = true;
        return Ok(config);
    }
    let mut map = reader.map(&root, "");
    if let Some(node) = map.take("tls_server_config") {
        config.tls = reader.tls(node, folder, pems);
    }
    if let Some(node) = map.take("http_server_config") {
        reader.http(node, &mut config);
    }
    if let Some(node) = map.take("basic_auth_users") {
        config.users = reader.users(node);
    }
    if let Some(node) = map.take("rate_limit") {
        config.rate_limit = reader.rate_limit(node);
    }
    let known = ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"];
    reader.finish(map, &known);
    if reader.problems.is_empty() {
        return Ok(config);
    }
    Err(reader.error())
}

fn is_null(node: &Node) -> bool {
    matches!(node.value, Value::Null)
}

impl Reader {
    /// What stands under `tls_server_config`; nothing there is plain HTTP.
    fn tls(&mut self, node: &Node, folder: &Path, pems: &mut dyn Pems) -> Option<TlsConfig> {
        const PATH: &str = "tls_server_config";
        if is_null(node) {
            return None;
        }
        let before = self.problems.len();
        let mut map = self.map(node, PATH);
        if map.is_empty() {
            return None;
        }
        let cert = self.pem(&mut map, node, "cert", folder, pems);
        let key = self.pem(&mut map, node, "key", folder, pems);
        let client_ca = self.pem(&mut map, node, "client_ca", folder, pems);
        let client_auth = self.client_auth(&mut map, PATH);
        let mut client_sans = None;
        if let Some(node) = map.take("client_allowed_sans") {
            let key = join(PATH, "client_allowed_sans");
            let names = self.list(node, &key);
            client_sans = Some(names.iter().filter_map(|name| self.text(name, &key)).collect());
            if client_auth == ClientAuth::NoClientCert {
                let message = "is of no use without a client_auth_type: nobody is asked for a \
                               certificate";
                self.problem(node, &key, message);
            }
        }
        let min = self.version(&mut map, PATH, "min_version").unwrap_or(TlsVersion::Tls12);
        let max = self.version(&mut map, PATH, "max_version").unwrap_or(TlsVersion::Tls13);
        if min > max {
            self.problem(node, &join(PATH, "min_version"), "is newer than max_version");
        }
        for key in ["cipher_suites", "curve_preferences", "prefer_server_cipher_suites"] {
            if let Some(node) = map.take(key) {
                let message = "cannot be chosen here: rustls has only suites and curves that are \
                               safe, and its own order; remove the key";
                self.problem(node, &join(PATH, key), message);
            }
        }
        let known = [
            "cert",
            "cert_file",
            "key",
            "key_file",
            "client_ca",
            "client_ca_file",
            "client_auth_type",
            "client_allowed_sans",
            "min_version",
            "max_version",
        ];
        self.finish(map, &known);
        if client_ca.is_some() && client_auth == ClientAuth::NoClientCert {
            let message = "an authority for clients is of no use without a client_auth_type";
            self.problem(node, &join(PATH, "client_auth_type"), message);
        }
        let (cert, key) = (cert?, key?);
        if self.problems.len() > before {
            return None;
        }
        let tls = TlsConfig { cert, key, client_auth, client_ca, client_sans, min, max };
        match pems.take(&tls) {
            Ok(()) => Some(tls),
            Err(message) => {
                self.problem(node, PATH, message);
                None
            }
        }
    }

    /// `name` with the thing itself, or `name_file` with its place. An empty text is nothing.
    fn pem(
        &mut self,
        map: &mut Map<'_>,
        section: &Node,
        name: &str,
        folder: &Path,
        pems: &mut dyn Pems,
    ) -> Option<Secret> {
        const PATH: &str = "tls_server_config";
        let in_file = format!("{name}_file");
        let mut given = |key: &str| {
            let node = map.take(key)?;
            let empty = matches!(&node.value, Value::Scalar(text) if text.is_empty());
            (!empty && !is_null(node)).then_some(node)
        };
        match (given(name), given(&in_file)) {
            (Some(_), Some(node)) => {
                self.problem(node, &join(PATH, &in_file), format!("contradicts {name}"));
                None
            }
            (Some(node), None) => {
                let text = self.text(node, &join(PATH, name))?;
                Some(Secret::new(text))
            }
            (None, Some(node)) => {
                let key = join(PATH, &in_file);
                let file = self.file(node, &key)?;
                match pems.read(&folder.join(file)) {
                    Ok(pem) => Some(pem),
                    Err(message) => {
                        self.problem(node, &key, message);
                        None
                    }
                }
            }
            (None, None) => {
                if name != "client_ca" {
                    self.problem(section, PATH, format!("needs {name} or {in_file}"));
                }
                None
            }
        }
    }

    fn client_auth(&mut self, map: &mut Map<'_>, path: &str) -> ClientAuth {
        let Some(node) = map.take("client_auth_type") else { return ClientAuth::default() };
        if matches!(&node.value, Value::Scalar(text) if text.is_empty()) {
            return ClientAuth::default();
        }
        let key = join(path, "client_auth_type");
        let Some(text) = self.text(node, &key) else { return ClientAuth::default() };
        match ClientAuth::WORDS.iter().find(|(word, _)| *word == text) {
            Some((_, known)) => *known,
            None => {
                let words: Vec<_> = ClientAuth::WORDS.iter().map(|(word, _)| *word).collect();
                self.problem(node, &key, format!("must be one of {}", words.join(", ")));
                ClientAuth::default()
            }
        }
    }

    fn version(&mut self, map: &mut Map<'_>, path: &str, name: &str) -> Option<TlsVersion> {
        let node = map.take(name)?;
        let key = join(path, name);
        match self.text(node, &key)?.as_str() {
            "TLS12" => Some(TlsVersion::Tls12),
            "TLS13" => Some(TlsVersion::Tls13),
            "TLS10" | "TLS11" => {
                let message = "TLS 1.0 and 1.1 are not spoken here (rustls has neither); write \
                               TLS12 or TLS13";
                self.problem(node, &key, message);
                None
            }
            _ => {
                self.problem(node, &key, "must be TLS12 or TLS13");
                None
            }
        }
    }

    fn http(&mut self, node: &Node, config: &mut WebConfig) {
        const PATH: &str = "http_server_config";
        if is_null(node) {
            return;
        }
        let mut map = self.map(node, PATH);
        if let Some(node) = map.take("http2") {
            config.http2 = self.flag(node, &join(PATH, "http2"));
        }
        if let Some(node) = map.take("headers").filter(|node| !is_null(node)) {
            let path = join(PATH, "headers");
            let mut headers = self.map(node, &path);
            for (name, values) in HEADERS {
                let Some(node) = headers.take(name) else { continue };
                let key = join(&path, name);
                let Some(value) = self.text(node, &key) else { continue };
                if !values.is_empty() && !values.contains(&value.as_str()) {
                    self.problem(node, &key, format!("must be {}", values.join(" or ")));
                } else if value.bytes().any(|byte| !matches!(byte, b' '..=b'~')) {
                    self.problem(node, &key, "must be one line of ASCII");
                } else {
                    config.headers.push((name, value));
                }
            }
            self.finish(headers, &HEADERS.map(|(name, _)| name));
        }
        self.finish(map, &["http2", "headers"]);
    }

    fn users(&mut self, node: &Node) -> BTreeMap<String, Secret> {
        const PATH: &str = "basic_auth_users";
        let mut users = BTreeMap::new();
        if is_null(node) {
            return users;
        }
        let pairs = self.map(node, PATH).rest();
        if pairs.len() > USERS_MAX {
            self.problem(node, PATH, format!("more than {USERS_MAX} users"));
            return users;
        }
        for (user, node) in pairs {
            let key = join(PATH, &user.text);
            if user.text.is_empty() || user.text.contains(':') {
                let message = "a user's name is not empty and has no colon".into();
                let (line, column) = (user.line, user.column);
                self.problems.push(Problem { line, column, key, message });
                continue;
            }
            let Some(hash) = self.text(node, &key) else { continue };
            match refusal(&hash) {
                Some(message) => self.problem(node, &key, message),
                None => {
                    users.insert(user.text.clone(), Secret::new(hash));
                }
            }
        }
        users
    }

    fn rate_limit(&mut self, node: &Node) -> Option<RateLimit> {
        const PATH: &str = "rate_limit";
        if is_null(node) {
            return None;
        }
        let mut map = self.map(node, PATH);
        let mut interval = Duration::ZERO;
        if let Some(node) = map.take("interval") {
            interval = self.duration(node, &join(PATH, "interval")).unwrap_or_default();
        }
        let mut burst = 0;
        if let Some(node) = map.take("burst") {
            let key = join(PATH, "burst");
            match self.text(node, &key).map(|text| text.parse()) {
                Some(Ok(number)) => burst = number,
                Some(Err(_)) => self.problem(node, &key, "must be a number, 0 or more"),
                None => {}
            }
        }
        self.finish(map, &["interval", "burst"]);
        (!interval.is_zero()).then_some(RateLimit { interval, burst })
    }
}

/// Why a text is no hash that can be compared with; never quotes it.
fn refusal(hash: &str) -> Option<String> {
    if !["$2a$", "$2b$", "$2y$"].iter().any(|start| hash.starts_with(start)) {
        return Some(
            "must be a bcrypt hash ($2a$, $2b$ or $2y$), never the password itself; make one \
             with htpasswd -nBC 10 USER"
                .into(),
        );
    }
    match bcrypt::HashParts::from_str(hash) {
        Ok(parts) if parts.get_cost() > COST_MAX => {
            Some(format!("costs more than {COST_MAX}: every comparison would take minutes"))
        }
        Ok(_) => None,
        Err(_) => Some("begins like a bcrypt hash and is none; was it cut?".into()),
    }
}

#[cfg(test)]
mod tests;
