//! TLS as the web configuration file wants it, from bytes that somebody else has read: the
//! server's side of a handshake, and what is asked of clients' certificates. Files and sockets
//! are not known here.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::config::web::{ClientAuth, TlsConfig, TlsVersion};

/// The only protocol that is spoken inside.
const ALPN: &[u8] = b"http/1.1";
/// Certificates in one file of authorities.
const AUTHORITIES_MAX: usize = 10_000;

/// The server's side of handshakes.
///
/// # Errors
/// What is wrong with certificate, key or authorities, in words; nothing of a key is quoted.
pub fn server(config: &TlsConfig) -> Result<ServerConfig, String> {
    let chain = certificates(config.cert.expose(), "cert")?;
    if chain.is_empty() {
        return Err("cert: no certificate in it (-----BEGIN CERTIFICATE-----)".into());
    }
    let key = PrivateKeyDer::from_pem_slice(config.key.expose())
        .map_err(|_| "key: no private key in it that is not encrypted, in PEM")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: Vec<&SupportedProtocolVersion> = [
        (TlsVersion::Tls12, &rustls::version::TLS12),
        (TlsVersion::Tls13, &rustls::version::TLS13),
    ]
    .into_iter()
    .filter(|(version, _)| (config.min..=config.max).contains(version))
    .map(|(_, version)| version)
    .collect();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| error.to_string())?;
    let asks = config.client_auth != ClientAuth::NoClientCert;
    let builder = if asks {
        builder.with_client_cert_verifier(Arc::new(visitors(config, provider)?))
    } else {
        builder.with_no_client_auth()
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("cert and key do not go together: {error}"))?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    if asks {
        // A resumed session would not show its certificate again, which may have run out since.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
    }
    Ok(server)
}

/// A client's side that takes any certificate: for asking one's own process how it is, and nothing
/// that is secret.
pub fn any_server() -> ClientConfig {
    ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth()
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .take(AUTHORITIES_MAX)
        .collect::<Result<_, _>>()
        .map_err(|_| format!("{what}: not PEM, or cut"))
}

fn visitors(config: &TlsConfig, provider: Arc<CryptoProvider>) -> Result<Visitors, String> {
    let requires = config.client_auth.requires();
    let trusted = match &config.client_ca {
        Some(pem) => {
            let trusted = certificates(pem.expose(), "client_ca")?;
            if trusted.is_empty() {
                return Err("client_ca: no certificate in it".into());
            }
            trusted
        }
        // As in Go, where a server that verifies without authorities asks the system's.
        None if config.client_auth.verifies() => rustls_native_certs::load_native_certs().certs,
        None => Vec::new(),
    };
    let mut verifier = None;
    if config.client_auth.verifies() {
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(trusted.iter().cloned());
        if taken == 0 {
            return Err("no authority to verify clients' certificates with: give client_ca or \
                        client_ca_file"
                .into());
        }
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let builder = if requires { builder } else { builder.allow_unauthenticated() };
        verifier = Some(builder.build().map_err(|error| format!("client_ca: {error}"))?);
    }
    let sans = config.client_sans.clone();
    Ok(Visitors { verifier, trusted, requires, sans, provider })
}

/// Looks at clients' certificates.
#[derive(Debug)]
struct Visitors {
    /// Follows a chain to an authority; none = any certificate is taken as it is.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    requires: bool,
    sans: Option<Vec<String>>,
    provider: Arc<CryptoProvider>,
}

impl Visitors {
    /// A certificate that stands itself among the authorities is trusted, as in Go; webpki would
    /// refuse one that may sign others, and `openssl req -x509` makes only such.
    fn is_pinned(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<bool, Error> {
        if !self.trusted.iter().any(|known| known.as_ref() == leaf.as_ref()) {
            return Ok(false);
        }
        let leaf = parsed(leaf)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if seconds < leaf.validity().not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        if seconds > leaf.validity().not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        // Without the extension it may be used for everything.
        let usage = leaf.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
        Ok(usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
    }

    fn check_names(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(allowed) = &self.sans else { return Ok(()) };
        if names(&parsed(leaf)?).iter().any(|name| allowed.iter().any(|known| name.is(known))) {
            return Ok(());
        }
        let refusal = Refusal("no name of the client's certificate is in client_allowed_sans");
        Err(CertificateError::Other(OtherError(Arc::new(refusal))).into())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(&'static str);

fn parsed<'a>(leaf: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    match X509Certificate::from_der(leaf.as_ref()) {
        Ok((_, leaf)) => Ok(leaf),
        Err(_) => Err(CertificateError::BadEncoding.into()),
    }
}

/// An alternative name of a certificate.
enum Name {
    Text(String),
    Ip(IpAddr),
}

impl Name {
    fn is(&self, allowed: &str) -> bool {
        match self {
            Name::Text(text) => text == allowed,
            Name::Ip(ip) => allowed.parse().is_ok_and(|allowed: IpAddr| allowed == *ip),
        }
    }
}

/// The alternative names of a certificate: DNS, e-mail, address, URI.
fn names(leaf: &X509Certificate<'_>) -> Vec<Name> {
    let Ok(Some(extension)) = leaf.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some(Name::Text((*text).to_owned()))
        }
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|ip| Name::Ip(ip.into())),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|ip| Name::Ip(ip.into())),
            _ => None,
        },
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

impl ClientCertVerifier for Visitors {
    fn client_auth_mandatory(&self) -> bool {
        self.requires
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(verifier) = &self.verifier
            && !self.is_pinned(leaf, now)?
        {
            verifier.verify_client_cert(leaf, between, now)?;
        }
        self.check_names(leaf)?;
        Ok(ClientCertVerified::assertion())
    }

    // Whoever shows a certificate must have its key, verified or not.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
