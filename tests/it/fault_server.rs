//! An HTTP server in this process that answers as a script says: right, wrong, late or never.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET`, `HEAD` …
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// The `Authorization` header; empty without one.
    pub authorization: String,
    /// The `Accept` header; empty without one.
    pub accept: String,
    /// The `Cache-Control` header; empty without one.
    pub cache_control: String,
}

/// What a script makes of a request.
pub enum Reply {
    /// Status, more headers, body.
    Answer(u16, Vec<(&'static str, String)>, Bytes),
    /// The beginning of an answer, after which the connection is closed.
    Cut(Bytes),
    /// Nothing, ever; the connection stays open.
    Silent,
    /// A body that never ends, one byte now and then.
    Trickle,
}

impl Reply {
    pub fn xml(status: u16, body: &str) -> Self {
        Self::Answer(
            status,
            vec![("content-type", "application/xml".into())],
            body.to_owned().into(),
        )
    }

    /// S3's way to refuse.
    pub fn refusal(status: u16, code: &str, message: &str) -> Self {
        Self::xml(
            status,
            &format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"),
        )
    }
}

/// The running server; it ends when dropped.
pub struct FaultServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl FaultServer {
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (script, log, count) = (Arc::new(script), seen.clone(), connections.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (script, log) = (script.clone(), log.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let seen = note(&request);
                        log.lock().expect("nobody panics with it").push(seen.clone());
                        let reply = script(&seen);
                        async move { Ok::<_, Infallible>(answer(reply).await) }
                    });
                    // A client that gives up ends its connection with an error.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, seen, connections, task }
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(request: &Request<Incoming>) -> Seen {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    Seen {
        method: request.method().to_string(),
        target: request.uri().to_string(),
        authorization: header("authorization"),
        accept: header("accept"),
        cache_control: header("cache-control"),
    }
}

async fn answer(reply: Reply) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    match reply {
        Reply::Answer(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Full::new(body).boxed_unsync()).expect("is valid")
        }
        Reply::Cut(part) => {
            let bytes = futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(part))]);
            let response = Response::builder().header("content-length", "100000");
            response.body(StreamBody::new(bytes).boxed_unsync()).expect("is valid")
        }
        Reply::Silent => std::future::pending().await,
        Reply::Trickle => {
            let bytes = futures_util::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
            });
            Response::new(StreamBody::new(bytes).boxed_unsync())
        }
    }
}

/// A bucket in memory, which answers as S3 does.
#[derive(Clone, Default)]
pub struct Bucket {
    pub objects: BTreeMap<String, Bytes>,
    /// Keys of one page.
    pub page: usize,
}

impl Bucket {
    /// Objects of these keys and contents, in pages of 1,000.
    pub fn of<K: Into<String>, B: Into<Bytes>>(objects: impl IntoIterator<Item = (K, B)>) -> Self {
        let objects = objects.into_iter().map(|(key, body)| (key.into(), body.into())).collect();
        Self { objects, page: 1000 }
    }

    /// Answers one request for `/bucket/…`.
    pub fn reply(&self, seen: &Seen) -> Reply {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let query: BTreeMap<_, _> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        if query.contains_key("list-type") {
            return self.list(&query);
        }
        // As a form, where + is a space: a path has no + that is not escaped here.
        let key = path.split('/').skip(2).collect::<Vec<_>>().join("/");
        let key = url::form_urlencoded::parse(format!("k={}", key.replace('+', "%2B")).as_bytes())
            .next()
            .map(|(_, key)| key.into_owned())
            .unwrap_or_default();
        match self.objects.get(&key) {
            None => Reply::refusal(404, "NoSuchKey", "The specified key does not exist."),
            Some(body) => {
                let mut headers = vec![
                    ("last-modified", "Wed, 01 Jul 2026 10:00:00 GMT".to_owned()),
                    ("etag", "\"e\"".to_owned()),
                ];
                let body = if seen.method == Method::HEAD.as_str() {
                    headers.push(("content-length", body.len().to_string()));
                    Bytes::new()
                } else {
                    body.clone()
                };
                Reply::Answer(200, headers, body)
            }
        }
    }

    /// Answers one request for `/…` as a REST server does, in the second version of its protocol.
    pub fn rest(&self, seen: &Seen) -> Reply {
        let path = seen.target.trim_start_matches('/');
        if !path.ends_with('/') {
            return self.reply(&Seen { target: format!("/bucket/{path}"), ..seen.clone() });
        }
        let names = self.objects.iter().filter_map(|(key, body)| {
            let name = key.strip_prefix(path).filter(|name| !name.contains('/'))?;
            Some(format!("{{\"name\":\"{name}\",\"size\":{}}}", body.len()))
        });
        let body = format!("[{}]", names.collect::<Vec<_>>().join(","));
        Reply::Answer(200, vec![], body.into())
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Reply {
        let prefix = query.get("prefix").map_or("", String::as_str);
        // Characters in the token that must be encoded to come back whole.
        let after: usize = query
            .get("continuation-token")
            .and_then(|token| token.strip_prefix("+/=&% "))
            .map_or(0, |count| count.parse().expect("a token of ours"));
        let (mut xml, mut names) = (String::new(), Vec::<(bool, String)>::new());
        for key in self.objects.keys().filter(|key| key.starts_with(prefix)) {
            let name = match key[prefix.len()..].split_once('/') {
                Some((folder, _)) => (true, format!("{prefix}{folder}/")),
                None => (false, key.clone()),
            };
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        for (folder, name) in names.iter().skip(after).take(self.page) {
            let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('\u{7}', "&#7;");
            xml += &match folder {
                true => format!("<CommonPrefixes><Prefix>{escaped}</Prefix></CommonPrefixes>"),
                false => format!(
                    "<Contents><Key>{escaped}</Key><Size>{}</Size><LastModified>\
                     2026-07-01T10:00:00.000Z</LastModified><ETag>\"e\"</ETag></Contents>",
                    self.objects[name].len()
                ),
            };
        }
        let next = after + self.page;
        if next >= names.len() {
            xml += "<IsTruncated>false</IsTruncated>";
        } else {
            xml += &format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>+/=&amp;% {next}\
                 </NextContinuationToken>"
            );
        }
        Reply::xml(200, &format!("<ListBucketResult>{xml}</ListBucketResult>"))
    }
}

/// Of a server whose certificate only [`AUTHORITY`] vouches for. It may ask clients for a
/// certificate too.
pub fn tls_config(asks_clients: bool) -> Arc<rustls::ServerConfig> {
    let certificate = include_bytes!("../fixtures/tls/server.pem");
    let key = include_bytes!("../fixtures/tls/server.key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut trusted = rustls::RootCertStore::empty();
    let authority = include_bytes!("../fixtures/tls/ca.pem");
    trusted
        .add(CertificateDer::from_pem_slice(authority).expect("a certificate"))
        .expect("an authority");
    let clients = match asks_clients {
        false => WebPkiClientVerifier::no_client_auth(),
        true => WebPkiClientVerifier::builder_with_provider(trusted.into(), provider.clone())
            .build()
            .expect("trusts somebody"),
    };
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("has versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate).expect("a certificate")],
            PrivateKeyDer::from_pem_slice(key).expect("a key"),
        )
        .expect("they fit");
    Arc::new(config)
}

/// A server of [`tls_config`] that answers every request with an empty listing and ends with the
/// test's process.
pub fn start_tls(asks_clients: bool) -> SocketAddr {
    let config = tls_config(asks_clients);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = rustls::ServerConnection::new(config.clone()).expect("is configured");
            let mut tls = rustls::StreamOwned::new(session, stream);
            let mut request = [0; 4096];
            // A client that does not trust us never sends one.
            if tls.read(&mut request).is_ok_and(|count| count > 0) {
                let body = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = tls.write_all(format!("{head}{body}").as_bytes());
            }
        }
    });
    address
}

/// The authority of [`start_tls`].
pub const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/ca.pem");

/// A client's certificate and key that a server of [`start_tls`] accepts.
pub const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/client.pem");
