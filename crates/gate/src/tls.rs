//! TLS on the listener: server certificate, and optional verification of client certificates.
//!
//! With a client CA, the handshake fails for a peer without a valid certificate. The certificate only
//! admits the connection; the key identifies the principal.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

/// Paths of the PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Server certificate, followed by its intermediates.
    pub cert: PathBuf,
    /// Private key of the server certificate.
    pub key: PathBuf,
    /// CA of client certificates. If set, a client certificate is required.
    pub client_ca: Option<PathBuf>,
}

/// TLS settings of the listener. Read once, at startup.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Unusable TLS files. Messages never contain the content of a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or is not PEM.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: pem::Error,
    },
    /// A PEM file without a certificate.
    #[error("{} has no certificate in it", .0.display())]
    NoCertificate(PathBuf),
    /// Certificate and key do not match, or are of an unsupported kind.
    #[error("{} and {} cannot be used: {source}", cert.display(), key.display())]
    Unusable {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Cause.
        source: rustls::Error,
    },
    /// The client CA is not usable for verification.
    #[error("{} cannot be used as a client CA: {reason}", path.display())]
    ClientCa {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
}

impl Tls {
    /// Reads the files and checks that they match.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let certs = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|source| TlsError::Unreadable { path: files.key.clone(), source })?;
        let unusable = |source| TlsError::Unusable {
            cert: files.cert.clone(),
            key: files.key.clone(),
            source,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let unfit = |reason| TlsError::ClientCa { path: path.clone(), reason };
                let mut roots = RootCertStore::empty();
                for cert in certificates(path)? {
                    roots.add(cert).map_err(|error| unfit(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| unfit(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(certs, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let certs: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(unreadable)?;
    if certs.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(certs)
}
