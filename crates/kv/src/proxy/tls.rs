//! TLS: what the settings name, read and checked.

use super::settings::ProxySettings;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// What new connections begin with; plain TCP by default.
#[derive(Clone, Default)]
pub struct Tls {
    /// For clients.
    pub clients: Option<Arc<ServerConfig>>,
    /// For the server, and the name that its certificate must have.
    pub upstream: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A setting, what is wrong with it, and what would be right.
type Problem = (&'static str, String);
type Chain = Vec<CertificateDer<'static>>;

/// A setting that names a file.
type File<'a> = (&'static str, Option<&'a Path>);

impl Tls {
    /// Reads the files that these settings name.
    ///
    /// # Errors
    /// Returns the first problem of either side.
    pub fn read(settings: &ProxySettings) -> Result<Tls, Vec<Problem>> {
        match (clients(settings), upstream(settings)) {
            (Ok(clients), Ok(upstream)) => Ok(Tls { clients, upstream }),
            (clients, upstream) => Err(clients.err().into_iter().chain(upstream.err()).collect()),
        }
    }

    /// Returns whether a side speaks TLS.
    pub fn is_any(&self) -> bool {
        self.clients.is_some() || self.upstream.is_some()
    }
}

fn clients(settings: &ProxySettings) -> Result<Option<Arc<ServerConfig>>, Problem> {
    let cert = ("tls-cert", settings.tls_cert.as_deref());
    let key = ("tls-key", settings.tls_key.as_deref());
    let Some((chain, of_chain)) = identity(cert, key)? else {
        return match settings.tls_client_ca {
            Some(_) => Err(("tls-client-ca", "must come with tls-cert and tls-key".to_owned())),
            None => Ok(None),
        };
    };
    let provider = provider();
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| (cert.0, error.to_string()))?;
    let config = match &settings.tls_client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let name = "tls-client-ca";
            let roots = Arc::new(roots(name, path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| of_file(name, path, error, "authorities"))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let config = config.with_single_cert(chain, of_chain).map_err(|error| mismatch(key, error))?;
    Ok(Some(Arc::new(config)))
}

fn upstream(
    settings: &ProxySettings,
) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, Problem> {
    let cert = ("upstream-cert", settings.upstream_cert.as_deref());
    let key = ("upstream-key", settings.upstream_key.as_deref());
    if !settings.upstream.tls {
        let given = [
            ("upstream-ca", settings.upstream_ca.is_some()),
            ("upstream-cert", settings.upstream_cert.is_some()),
            ("upstream-key", settings.upstream_key.is_some()),
            ("upstream-name", settings.upstream_name.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err((name, "is for TLS: upstream must be rediss://…".to_owned())),
            None => Ok(None),
        };
    }
    let roots = match &settings.upstream_ca {
        Some(path) => roots("upstream-ca", path)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ("upstream", error.to_string()))?
        .with_root_certificates(roots);
    let config = match identity(cert, key)? {
        None => config.with_no_client_auth(),
        Some((chain, of_chain)) => {
            config.with_client_auth_cert(chain, of_chain).map_err(|error| mismatch(key, error))?
        }
    };
    let name = match &settings.upstream_name {
        Some(name) => name.0.clone(),
        None => ServerName::try_from(settings.upstream.host.clone()).map_err(|_| {
            ("upstream", "its host is no name of a certificate: set upstream-name".to_owned())
        })?,
    };
    Ok(Some((Arc::new(config), name)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads a certificate with those behind it, and its key.
fn identity(
    cert: File<'_>,
    key: File<'_>,
) -> Result<Option<(Chain, PrivateKeyDer<'static>)>, Problem> {
    let (cert_path, key_path) = match (cert.1, key.1) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err((cert.0, format!("must come with {}", key.0))),
        (None, Some(_)) => return Err((key.0, format!("must come with {}", cert.0))),
        (Some(cert_path), Some(key_path)) => (cert_path, key_path),
    };
    let chain = certificates(cert.0, cert_path)?;
    let found = PrivateKeyDer::from_pem_file(key_path);
    let found = found.map_err(|error| of_file(key.0, key_path, error, "a key without password"))?;
    Ok(Some((chain, found)))
}

/// Reads certificates: at least one.
fn certificates(name: &'static str, path: &Path) -> Result<Chain, Problem> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Chain, _>>);
    let all = all.map_err(|error| of_file(name, path, error, "certificates"))?;
    match all.is_empty() {
        true => Err(of_file(name, path, "none is there", "certificates")),
        false => Ok(all),
    }
}

fn roots(name: &'static str, path: &Path) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(name, path)? {
        roots.add(certificate).map_err(|error| of_file(name, path, error, "authorities"))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => {
            let what = "rediss:// needs authorities, and this system has none: set upstream-ca";
            Err(("upstream", what.to_owned()))
        }
        false => Ok(roots),
    }
}

fn of_file(name: &'static str, path: &Path, error: impl Display, what: &str) -> Problem {
    (name, format!("{}: {error}; must be a PEM file of {what}", path.display()))
}

fn mismatch((name, path): File<'_>, error: rustls::Error) -> Problem {
    let path = path.unwrap_or(Path::new("")).display();
    (name, format!("{path}: must be the key of the first certificate: {error}"))
}
