//! HTTP clients: whom they trust, how long they wait, and that targets share them.
//!
//! A client of its own for each target would cost 100 kB of certificates and one idle connection
//! each. What is asked, and what answers mean, is not known here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::runtime;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::fault::explain;
use super::http::Limits;
use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::{Environment, SecretError, read_file};
use crate::target::ResticSpec;

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);

/// A secret that cannot be read, as a failure of the store.
pub(super) fn secret_failed(error: SecretError) -> StoreError {
    StoreError::new(CONFIG, error.doing, error.cause, &error.advice)
}

/// How a target wants to be talked to; nothing is read yet.
#[derive(Clone, Debug)]
pub(super) struct ClientSpec {
    plain_http: bool,
    credentials: bool,
    socket: Option<PathBuf>,
    limits: Limits,
    user_agent: String,
    authorities: Vec<PathBuf>,
    certificate: Option<PathBuf>,
    insecure_tls: bool,
}

/// A client's connections belong to the runtime that made them; the rest is a hash of what it was
/// made of.
type Key = (runtime::Id, [u8; 32]);

/// How long a service that gives out credentials may take to be reached.
const CREDENTIALS_CONNECT: Duration = Duration::from_secs(1);

/// Clients in use.
static CLIENTS: LazyLock<Mutex<HashMap<Key, Weak<reqwest::Client>>>> =
    LazyLock::new(Mutex::default);

type Pem = Zeroizing<Vec<u8>>;

impl ClientSpec {
    pub(super) fn of(
        spec: &ResticSpec,
        environment: &Environment,
        plain_http: bool,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let variable = |name: &str| environment.text(name).map_err(secret_failed);
        // As in restic a name in the options replaces the variable, a list with commas.
        let mut authorities = spec.cacert.clone();
        if authorities.is_empty()
            && let Some(list) = variable("RESTIC_CACERT")?
        {
            authorities.extend(list.split(',').filter(|path| !path.is_empty()).map(Into::into));
        }
        let user_agent = match variable("RESTIC_HTTP_USER_AGENT")? {
            Some(named) => named.to_string(),
            None => concat!("lock_exporter/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let certificate = variable("RESTIC_TLS_CLIENT_CERT")?.map(|path| path.as_str().into());
        let insecure_tls = spec.insecure_tls;
        let (credentials, socket) = (false, None);
        Ok(Self {
            plain_http,
            credentials,
            socket,
            limits,
            user_agent,
            authorities,
            certificate,
            insecure_tls,
        })
    }

    /// For services that give out credentials: some are on the net, with TLS, some on a link of
    /// this machine alone, without, and those are there at once or not at all.
    pub(super) fn for_credentials(&self) -> Self {
        let connect = self.limits.connect.min(CREDENTIALS_CONNECT);
        let limits = Limits { connect, ..self.limits };
        Self { plain_http: false, credentials: true, socket: None, limits, ..self.clone() }
    }

    /// Requests go to this Unix socket, whatever their host.
    pub(super) fn through(self, socket: PathBuf) -> Self {
        Self { socket: Some(socket), ..self }
    }

    /// Reads the certificates and takes the client that others with the same wishes use, or makes
    /// one.
    ///
    /// # Errors
    /// [`StoreError`] of class `config` that names the file.
    pub(super) async fn client(&self) -> Result<Arc<reqwest::Client>, StoreError> {
        let mut authorities = Vec::new();
        for path in &self.authorities {
            authorities.push(read_file("cacert", path).await.map_err(secret_failed)?);
        }
        let certificate = match &self.certificate {
            Some(path) => Some(read_file("client certificate", path).await.map_err(secret_failed)?),
            None => None,
        };
        let wishes = self.wishes(&authorities, certificate.as_ref());
        let key = (runtime::Handle::current().id(), wishes);
        let mut clients = CLIENTS.lock().await;
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let client = Arc::new(self.build(&authorities, certificate.as_ref()).await?);
        clients.retain(|_, client| client.strong_count() > 0);
        clients.insert(key, Arc::downgrade(&client));
        Ok(client)
    }

    /// Everything that makes clients differ, the contents of files included.
    fn wishes(&self, authorities: &[Pem], certificate: Option<&Pem>) -> [u8; 32] {
        let Self { plain_http, credentials, insecure_tls, limits, socket, .. } = self;
        let flags = format!("{plain_http}{credentials}{insecure_tls}{limits:?}{socket:?}");
        let texts = [flags.as_bytes(), self.user_agent.as_bytes()];
        let none = Pem::default();
        let pems = [certificate.unwrap_or(&none)].into_iter().chain(authorities);
        let mut hash = Sha256::new();
        for part in texts.into_iter().chain(pems.map(|pem| pem.as_slice())) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Makes a client, off the async workers: the system's certificates alone take milliseconds.
    /// Proxies are those of the process's own environment, as for every other program.
    async fn build(
        &self,
        authorities: &[Pem],
        certificate: Option<&Pem>,
    ) -> Result<reqwest::Client, StoreError> {
        // Without a provider the client panics; whoever was first has decided.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .https_only(!self.plain_http && !self.credentials)
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.silence);
        if let Some(socket) = &self.socket {
            builder = builder.unix_socket(socket.as_path()).no_proxy();
        }
        let mut trusted = Vec::new();
        for (pem, path) in authorities.iter().zip(&self.authorities) {
            let found = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
            if found.is_empty() {
                return Err(useless("cacert", path, "it holds no certificate in PEM", ""));
            }
            trusted.extend(found);
        }
        if self.plain_http {
            // Else it could not be made on a machine without any certificates.
            builder = builder.tls_certs_only(trusted);
        } else if !trusted.is_empty() {
            builder = builder.tls_certs_merge(trusted);
        }
        if self.insecure_tls {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some((pem, path)) = certificate.zip(self.certificate.as_ref()) {
            builder = builder.identity(reqwest::Identity::from_pem(pem).map_err(|_| {
                let cause = "it does not hold a certificate and its key, both in PEM";
                let advice = "Put both into the one file that RESTIC_TLS_CLIENT_CERT names.";
                useless("client certificate", path, cause, advice)
            })?);
        }
        let doing = "make an HTTP client";
        match tokio::task::spawn_blocking(move || builder.build()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(StoreError::new(
                CONFIG,
                doing,
                explain(&error).cause,
                "Install the system's certificates (ca-certificates), or name some by cacert.",
            )),
            Err(_) => {
                let kind = StoreErrorKind::Failed(ErrorClass::Internal);
                Err(StoreError::new(kind, doing, "it was given up", ""))
            }
        }
    }
}

fn useless(what: &str, path: &Path, cause: &str, advice: &str) -> StoreError {
    StoreError::new(CONFIG, format!("read {what} {}", path.display()), cause, advice)
}
