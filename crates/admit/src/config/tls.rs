//! `[tls]`: TLS of the listener.

use std::path::{Path, PathBuf};

use admit_gate::{Tls, TlsFiles};
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// `[tls]`. Paths of PEM files; a relative path starts at the config file's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// Server certificate, followed by intermediate certificates. Empty: no TLS.
    pub(crate) cert: PathBuf,
    /// Private key of the certificate.
    pub(crate) key: PathBuf,
    /// CA of client certificates. Empty: no client certificates.
    pub(crate) client_ca: PathBuf,
}

impl TlsConfig {
    /// Whether the listener uses TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.cert.as_os_str().is_empty()
    }
}

/// Loads the files; `None` without TLS.
pub(crate) fn load(config: &TlsConfig, base: &Path) -> Result<Option<Tls>, ConfigError> {
    let given = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| base.join(path));
    let files = match (given(&config.cert), given(&config.key), given(&config.client_ca)) {
        (Some(cert), Some(key), client_ca) => TlsFiles { cert, key, client_ca },
        (None, None, None) => return Ok(None),
        (_, None, _) => return rule("tls.cert and tls.client_ca require tls.key"),
        (None, _, _) => return rule("tls.key and tls.client_ca require tls.cert"),
    };
    Tls::load(&files).map(Some).map_err(|error| ConfigError::Rule(format!("tls: {error}")))
}

fn rule<T>(message: &str) -> Result<T, ConfigError> {
    Err(ConfigError::Rule(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_tls_config_is_an_error() {
        let load = |cert: &str, key: &str, client_ca: &str| {
            let config =
                TlsConfig { cert: cert.into(), key: key.into(), client_ca: client_ca.into() };
            load(&config, Path::new("nowhere")).map(|tls| tls.is_some())
        };
        assert!(!load("", "", "").unwrap());
        for (cert, key, client_ca) in [("c", "", ""), ("", "k", ""), ("", "", "a"), ("c", "", "a")]
        {
            let error = load(cert, key, client_ca).unwrap_err().to_string();
            assert!(error.contains("require"), "{error}");
        }
        let error = load("cert.pem", "key.pem", "").unwrap_err().to_string();
        assert!(error.contains("nowhere/cert.pem"), "{error}");
    }
}
