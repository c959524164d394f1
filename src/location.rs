//! restic repository strings, parsed as restic parses them and shown without credentials.
//!
//! Pure: whether anything is there, and whether this version can read it, is for the stores.

use std::fmt;
use std::path::PathBuf;

mod cloud;
mod cut;
mod rest;

pub use cloud::{CloudLocation, RcloneLocation};
use cut::{clean, percent_decode};
pub use rest::{RestLocation, RestPlace};

/// Where a repository is.
///
/// ```
/// use lock_exporter::location::Location;
///
/// let at = Location::parse("s3:https://s3.example.com/backups/db01/")?;
/// assert_eq!(at.scheme(), "s3");
/// assert_eq!(at.to_string(), "s3:https://s3.example.com/backups/db01");
/// assert_eq!(at.target_name(), "s3.example.com/backups/db01");
///
/// let at = Location::parse("rest:https://ann:secret@rest.example.com/db01/")?;
/// assert_eq!(at.to_string(), "rest:https://rest.example.com/db01/");
/// # Ok::<(), lock_exporter::location::BadLocation>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Local(PathBuf),
    /// A bucket and prefix behind an S3 API.
    S3(S3Location),
    /// A folder on a host reached by ssh.
    Sftp(SftpLocation),
    /// A server that speaks restic's REST protocol.
    Rest(RestLocation),
    /// A container of Azure, Google Cloud, Backblaze B2 or OpenStack Swift.
    Cloud(CloudLocation),
    /// A remote of rclone.
    Rclone(RcloneLocation),
}

/// The parts of an `s3:` string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Location {
    /// True for `http://`, which restic only uses when it is written out.
    pub plain_http: bool,
    /// Host, with the port when one is given.
    pub host: String,
    /// Bucket.
    pub bucket: String,
    /// Cleaned prefix without leading or trailing slash; may be empty.
    pub prefix: String,
}

/// The parts of an `sftp:` string.
#[derive(Clone, PartialEq, Eq)]
pub struct SftpLocation {
    /// Login name, when one is given.
    pub user: Option<String>,
    /// Host name, address or `ssh_config` alias; IPv6 without brackets.
    pub host: String,
    /// Port, when one is given; only the URL form can.
    pub port: Option<u16>,
    /// Cleaned path; relative ones begin in the login's home folder.
    pub path: String,
}

impl SftpLocation {
    /// True for `sftp:host:2222/path`, where restic takes the number for a part of the path: most
    /// likely a port was meant, which only `sftp://host:2222/path` can give.
    pub fn looks_like_a_port(&self) -> bool {
        let first = self.path.split('/').next().unwrap_or_default();
        self.port.is_none() && first.parse::<u16>().is_ok() && first != self.path
    }
}

impl fmt::Debug for SftpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Why a string names no repository.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadLocation(pub String);

fn bad<T>(why: &str) -> Result<T, BadLocation> {
    Err(BadLocation(why.into()))
}

/// A longer string is refused.
const BYTES_MAX: usize = 4096;

/// restic's schemes, `internal/backend/all`; every string that begins with one belongs to it.
const SCHEMES: [&str; 9] = ["local", "sftp", "s3", "rest", "azure", "gs", "b2", "swift", "rclone"];

impl Location {
    /// Parses a repository string (restic `internal/backend/location/location.go`).
    ///
    /// # Errors
    /// [`BadLocation`] says what is wrong and what would be right, without quoting a credential.
    pub fn parse(text: &str) -> Result<Self, BadLocation> {
        if text.len() > BYTES_MAX {
            return bad("a repository string has at most 4096 bytes");
        }
        if text.chars().any(char::is_control) {
            return bad("a repository string holds no line breaks or other control characters");
        }
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        match SCHEMES.into_iter().find(|known| *known == scheme) {
            Some("local") => local(rest),
            Some("s3") => s3(rest).map(Location::S3),
            Some("sftp") => sftp(rest).map(Location::Sftp),
            Some(scheme) if rest.is_empty() => Err(BadLocation(format!(
                "nothing follows {scheme}: (a folder of this name is local:{scheme})"
            ))),
            Some("rest") => rest::parse(rest).map(Location::Rest),
            Some("rclone") => cloud::rclone(rest).map(Location::Rclone),
            Some(scheme) => cloud::parse(scheme, rest).map(Location::Cloud),
            None if is_windows_path(text) => bad(
                "this is a Windows path, and the exporter does not run there; name the folder as \
                 it is mounted on this machine",
            ),
            None if text.contains(':') && !text.starts_with('/') && !text.starts_with("../") => {
                bad("no backend of restic has this scheme (local, sftp, s3, rest, azure, gs, b2, \
                     swift, rclone); a folder with a colon in its name needs local: before it")
            }
            None => local(text),
        }
    }

    /// The same place with a local path made absolute, so that its name is unique.
    pub fn absolute(self, folder: &std::path::Path) -> Self {
        match self {
            // A trailing slash or a `.` would make a second name of one place.
            Location::Local(path) => Location::Local(folder.join(path).components().collect()),
            other => other,
        }
    }

    /// The place in one form, for comparing: strings that surely mean one place have one form. A
    /// `..` stays, since the folder before it may be a link.
    pub fn place(&self) -> String {
        match self {
            Location::Local(path) => path.components().collect::<PathBuf>().display().to_string(),
            Location::S3(at) => {
                let port = if at.plain_http { ":80" } else { ":443" };
                let host = at.host.to_ascii_lowercase();
                let host = host.strip_suffix(port).unwrap_or(&host).to_owned();
                Location::S3(S3Location { host, ..at.clone() }).to_string()
            }
            Location::Sftp(_) | Location::Rest(_) | Location::Cloud(_) | Location::Rclone(_) => {
                self.to_string()
            }
        }
    }

    /// The place at a path below this one, as it was listed there; none on a backend that lists no
    /// folders.
    pub fn below(&self, relative: &str) -> Option<Self> {
        let join = |start: &str| match (start, relative) {
            (start, "") => start.to_owned(),
            ("", relative) => relative.to_owned(),
            (start, relative) => format!("{}/{relative}", start.trim_end_matches('/')),
        };
        match self.clone() {
            Location::Local(path) if relative.is_empty() => Some(Location::Local(path)),
            Location::Local(path) => Some(Location::Local(path.join(relative))),
            Location::S3(at) => Some(Location::S3(S3Location { prefix: join(&at.prefix), ..at })),
            Location::Sftp(at) => Some(Location::Sftp(SftpLocation { path: join(&at.path), ..at })),
            Location::Cloud(at) if matches!(at.scheme, "azure" | "gs") => {
                Some(Location::Cloud(CloudLocation { prefix: join(&at.prefix), ..at }))
            }
            Location::Cloud(_) | Location::Rest(_) | Location::Rclone(_) => None,
        }
    }

    /// The scheme, restic's word for the backend.
    pub fn scheme(&self) -> &'static str {
        match self {
            Location::Local(_) => "local",
            Location::S3(_) => "s3",
            Location::Sftp(_) => "sftp",
            Location::Rest(_) => "rest",
            Location::Cloud(at) => at.scheme,
            Location::Rclone(_) => "rclone",
        }
    }

    /// The location without scheme, credentials and query, from which a target without a
    /// configured name takes its own. A local path is made absolute by the caller beforehand.
    pub fn target_name(&self) -> String {
        match self {
            Location::Local(path) => path.display().to_string(),
            Location::S3(at) => at.path(),
            Location::Sftp(at) => format!("{}/{}", at.host, at.path.trim_start_matches('/')),
            Location::Rest(at) => at.name().trim_end_matches('/').to_owned(),
            Location::Cloud(at) => at.name().trim_end_matches('/').to_owned(),
            Location::Rclone(at) => at.name().trim_end_matches('/').to_owned(),
        }
    }
}

impl S3Location {
    fn path(&self) -> String {
        let end = if self.prefix.is_empty() { "" } else { "/" };
        format!("{}/{}{end}{}", self.host, self.bucket, self.prefix)
    }
}

impl SftpLocation {
    fn shown(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        // In a URL these three would mean something else.
        let escaped = || self.path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        match self.port {
            Some(port) => format!("sftp://{host}:{port}/{}", escaped()),
            None if self.host.contains(':') => format!("sftp://{host}/{}", escaped()),
            None => format!("sftp:{host}:{}", self.path),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => write!(f, "{}", path.display()),
            Location::S3(at) => {
                // In a URL these three would mean something else; without one restic takes
                // everything as it stands.
                let as_url = !at.prefix.contains(['%', '?', '#']);
                match (at.plain_http, as_url) {
                    (true, true) => write!(f, "s3:http://{}", at.path()),
                    (false, true) => write!(f, "s3:https://{}", at.path()),
                    (true, false) => {
                        let path = at.path();
                        let path = path.replace('%', "%25").replace('?', "%3F");
                        write!(f, "s3:http://{}", path.replace('#', "%23"))
                    }
                    (false, false) => write!(f, "s3:{}", at.path()),
                }
            }
            Location::Sftp(at) => f.write_str(&at.shown()),
            Location::Rest(at) => write!(f, "{at}"),
            Location::Cloud(at) => write!(f, "{at}"),
            Location::Rclone(at) => write!(f, "{at}"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

/// restic's isPath, as far as it concerns Windows.
fn is_windows_path(text: &str) -> bool {
    let drive = matches!(text.as_bytes(), [d, b':', b'\\' | b'/', ..] if d.is_ascii_alphabetic());
    drive || text.starts_with('\\') || text.starts_with("..\\")
}

fn local(path: &str) -> Result<Location, BadLocation> {
    match path {
        "" => bad("no folder is named"),
        path if is_windows_path(path) => bad(
            "this is a Windows path, and the exporter does not run there; name the folder as it \
             is mounted on this machine",
        ),
        path => Ok(Location::Local(PathBuf::from(path))),
    }
}

/// restic `internal/backend/s3/config.go`: after `http` it is a URL, otherwise three parts that
/// are taken as they stand.
fn s3(rest: &str) -> Result<S3Location, BadLocation> {
    const FORM: &str = "write s3:https://HOST/BUCKET/PREFIX, with the host of the S3 service first";
    let (plain_http, host, path) = if rest.starts_with("http") {
        let (plain_http, rest) = match rest.split_once("://") {
            Some(("http", rest)) => (true, rest),
            Some(("https", rest)) => (false, rest),
            _ => return bad(FORM),
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let Some(path) = percent_decode(path) else {
            return bad("a % in the URL begins no UTF-8 character; write it as %25");
        };
        (plain_http, host, path)
    } else {
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        (false, host, path.to_owned())
    };
    if host.contains('@') {
        return bad(
            "an S3 host has no user or password; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        );
    }
    let Some(host) = ascii_host(host) else { return bad(FORM) };
    let (bucket, prefix) = path.split_once('/').unwrap_or((&path, ""));
    if !is_bucket(bucket) {
        return bad(
            "the first part behind the host is the bucket: 3 to 63 letters, digits, dots, \
             hyphens, underscores; write s3:https://HOST/BUCKET/PREFIX",
        );
    }
    let prefix = if prefix.is_empty() { String::new() } else { clean(prefix) };
    let prefix = if prefix == "." { String::new() } else { prefix };
    if prefix.starts_with('/') || prefix.split('/').any(|part| part == "..") {
        return bad(
            "the prefix begins with a slash of its own or leads out of the bucket, which no \
             store of this version can name",
        );
    }
    if prefix.chars().any(char::is_control) {
        return bad("the prefix holds a control character");
    }
    Ok(S3Location { plain_http, host, bucket: bucket.into(), prefix })
}

/// A host name or address with an optional port, as requests name it: letters beyond ASCII become
/// `xn--…`. None when it is no host.
fn ascii_host(host: &str) -> Option<String> {
    let made_of = |c: char| c.is_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty() || !host.chars().all(made_of) {
        return None;
    }
    let url = url::Url::parse(&format!("https://{host}/")).ok()?;
    if host.is_ascii() {
        return Some(host.to_owned());
    }
    let port = host.rsplit_once(':').map(|(_, port)| format!(":{port}")).unwrap_or_default();
    Some(format!("{}{port}", url.host_str()?))
}

/// minio-go `pkg/s3utils` CheckValidBucketName, which restic's client goes by.
fn is_bucket(bucket: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    (3..=63).contains(&bucket.len())
        && bucket.chars().all(inner)
        && !bucket.contains("..")
        && bucket.starts_with(|c: char| c.is_ascii_alphanumeric())
        && bucket.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// restic `internal/backend/sftp/config.go`: a URL, or host and path at the first colon.
fn sftp(rest: &str) -> Result<SftpLocation, BadLocation> {
    const FORM: &str = "write sftp:USER@HOST:PATH or sftp://USER@HOST:PORT//ABSOLUTE/PATH";
    const UNCLEAR: &str = "a password in this place is of no use, and this one is not encoded";
    let (user, host, port, path) = if let Some(rest) = rest.strip_prefix("//") {
        let (rest, query) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
        if query.contains('@') {
            return bad(UNCLEAR);
        }
        let Some((login, path)) = rest.split_once('/') else { return bad(FORM) };
        let (user, host) = match login.rsplit_once('@') {
            Some((user, _)) if user.contains(':') && path.contains('@') => {
                return bad(UNCLEAR);
            }
            Some((user, host)) => (user.split(':').next().and_then(percent_decode), host),
            None => (None, login),
        };
        let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.filter(|port| !port.is_empty()).map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) => Some(port),
            Some(Err(_)) => {
                return bad("the port is no number up to 65535; sftp needs no password in its URL");
            }
        };
        let Some(path) = percent_decode(path) else { return bad(FORM) };
        (user, host, port, path)
    } else {
        let Some((login, path)) = rest.split_once(':') else { return bad(FORM) };
        if path.split('/').next().is_some_and(|first| first.contains('@') && first.contains(':')) {
            return bad("sftp takes no password in the repository string; ssh logs in with a key");
        }
        // A login name may hold an @ itself.
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, login),
        };
        (user, host, None, path.to_owned())
    };
    if host.is_empty() || host.starts_with('-') || host.contains(['/', '@', ' ']) {
        return bad(FORM);
    }
    let path = clean(&path);
    if path.starts_with('~') {
        return bad("most servers do not know ~; a relative path begins in the home folder");
    }
    let user = user.filter(|user| !user.is_empty());
    Ok(SftpLocation { user, host: host.into(), port, path })
}

#[cfg(test)]
mod tests;
