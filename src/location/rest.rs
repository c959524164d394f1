//! `rest:` repository strings: URLs, credentials in them, and the sockets behind `http+unix`.

use std::fmt;

use zeroize::Zeroizing;

use super::cut::percent_decode;
use super::{BadLocation, ascii_host, bad};

/// The parts of a `rest:` string. `Debug` shows no credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RestLocation {
    /// True for `https://` and `https+unix://`.
    pub tls: bool,
    /// What answers.
    pub place: RestPlace,
    /// User name, when one is given.
    pub user: Option<String>,
    /// Password, when one is given.
    pub password: Option<Zeroizing<String>>,
    /// The path of the URL as it was written; begins and ends with a slash.
    pub path: String,
}

/// Where a REST server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestPlace {
    /// Host, with the port when one is given.
    Host(String),
    /// The path of a Unix socket.
    Socket(String),
}

impl RestLocation {
    /// The URL without credentials, as requests need it: of a socket with a host that no name
    /// server is asked for.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        match &self.place {
            RestPlace::Host(host) => format!("{scheme}://{host}{}", self.path),
            RestPlace::Socket(_) => format!("{scheme}://localhost{}", self.path),
        }
    }

    pub(super) fn name(&self) -> String {
        match &self.place {
            RestPlace::Host(host) => format!("{host}{}", self.path),
            RestPlace::Socket(socket) => format!("{socket}:{}", self.path),
        }
    }
}

impl fmt::Display for RestLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match &self.place {
            RestPlace::Host(_) => write!(f, "rest:{scheme}://{}", self.name()),
            RestPlace::Socket(_) => write!(f, "rest:{scheme}+unix://{}", self.name()),
        }
    }
}

impl fmt::Debug for RestLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RestLocation({self})")
    }
}

pub(super) fn parse(rest: &str) -> Result<RestLocation, BadLocation> {
    const FORM: &str = "write rest:https://HOST:8000/PATH/, or rest:http+unix:///SOCKET:/PATH/";
    const UNCLEAR: &str = "the host is not followed by a port or a path; percent-encode the password \
                           or path (/ is %2F, ? is %3F, @ is %40), or better give RESTIC_REST_USERNAME and \
                           RESTIC_REST_PASSWORD";
    let Some((scheme, rest)) = rest.split_once("://") else { return bad(FORM) };
    let (tls, unix) = match scheme {
        "http" => (false, false),
        "https" => (true, false),
        "http+unix" => (false, true),
        "https+unix" => (true, true),
        _ => return bad(FORM),
    };
    // An @ behind a ? may end a password just as well as stand in a query.
    if let Some((_, end)) = rest.split_once(['?', '#']) {
        return bad(match end.contains('@') {
            true => UNCLEAR,
            false => "a rest: URL has no query; in a path ? is written %3F and # is %23",
        });
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (login, host),
        None => ("", authority),
    };
    if unix {
        return socket(tls, authority, path);
    }
    // A slash in a password ends the host too early: what is left is no port, or the @ that ends
    // the password is a part of the path.
    if path.contains('@') {
        return bad(UNCLEAR);
    }
    let Some(host) = ascii_host(host) else { return bad(UNCLEAR) };
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let Some(user) = percent_decode(user) else { return bad(UNCLEAR) };
    let password = match password.map(percent_decode) {
        None => None,
        Some(Some(password)) => Some(Zeroizing::new(password)),
        Some(None) => return bad(UNCLEAR),
    };
    let user = (!user.is_empty()).then_some(user);
    Ok(RestLocation { tls, place: RestPlace::Host(host), user, password, path: closed(path) })
}

fn socket(tls: bool, authority: &str, path: &str) -> Result<RestLocation, BadLocation> {
    if !authority.is_empty() || path.is_empty() {
        return bad(
            "a socket has no host, and its path is absolute: rest:http+unix:///SOCKET:/PATH/",
        );
    }
    let (socket, path) = path.split_once(':').unwrap_or((path.trim_end_matches('/'), ""));
    let Some(socket) = percent_decode(socket) else {
        return bad("a % in the path of the socket begins no UTF-8 character; write it as %25");
    };
    let place = RestPlace::Socket(socket);
    Ok(RestLocation { tls, place, user: None, password: None, path: closed(path) })
}

/// restic adds the slash that the protocol wants; doubled ones only make servers redirect.
fn closed(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let path: String = parts.map(|part| format!("/{part}")).collect();
    path + "/"
}
