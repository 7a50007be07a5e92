//! TLS of the database connection: root certificates and client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{ConfigError, LedgerConfig};

/// Loads the TLS client config; `None` for an unencrypted connection.
pub(crate) fn load(
    config: &LedgerConfig,
    base: &Path,
) -> Result<Option<Arc<ClientConfig>>, ConfigError> {
    let given = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| base.join(path));
    let (ca, cert, key) = (given(&config.tls_ca), given(&config.tls_cert), given(&config.tls_key));
    if !config.is_encrypted() {
        return match ca.or(cert).or(key) {
            None => Ok(None),
            Some(_) if config.tls == super::TlsMode::Auto => Ok(None),
            Some(_) => rule("tls is off; remove tls_ca, tls_cert and tls_key".to_owned()),
        };
    }
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(&path)? {
                let not_a_root = |error| format!("{}: {error}", path.display());
                roots.add(certificate).map_err(not_a_root).or_else(rule)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let message = "no root certificates found on this machine; set tls_ca";
        return rule(message.to_owned());
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let tls = match (cert, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let unreadable = |error| format!("{} cannot be read: {error}", key.display());
            let private = PrivateKeyDer::from_pem_file(&key).map_err(unreadable).or_else(rule)?;
            let unusable = |error| format!("{}: {error}", cert.display());
            let chain = certificates(&cert)?;
            builder.with_client_auth_cert(chain, private).map_err(unusable).or_else(rule)?
        }
        _ => return rule("tls_cert and tls_key must be set together".to_owned()),
    };
    Ok(Some(Arc::new(tls)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(certificates) => {
            let certificates: Vec<CertificateDer<'static>> = certificates;
            if certificates.is_empty() {
                return rule(format!("{} contains no certificate", path.display()));
            }
            Ok(certificates)
        }
        Err(error) => rule(format!("{} cannot be read: {error}", path.display())),
    }
}

fn rule<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError::Rule(format!("ledger: {message}")))
}
