//! TLS on the listener: our certificate, and whose client certificates are believed.
//!
//! With a client CA, a peer without a valid certificate does not get past the handshake. Who it is
//! still comes from its key: a certificate opens the street door, a key names the principal.

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

/// Where the PEM files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate, followed by those between it and the root.
    pub cert: PathBuf,
    /// The private key of our certificate.
    pub key: PathBuf,
    /// Who signs client certificates. Given, only peers that show one are served.
    pub client_ca: Option<PathBuf>,
}

/// How TLS is spoken here. Read once, at the start.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Files that TLS cannot be spoken with. The texts never repeat what is in a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or is not PEM.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file is PEM without a certificate in it.
    #[error("{} has no certificate in it", .0.display())]
    NoCertificate(PathBuf),
    /// The certificate and the key do not belong together, or are of a kind that is not spoken.
    #[error("{} and {} cannot be used: {source}", cert.display(), key.display())]
    Unusable {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// Nothing can be checked with this client CA.
    #[error("{} cannot be used as a client CA: {reason}", path.display())]
    ClientCa {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Tls {
    /// Reads the files and checks that they fit together.
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
