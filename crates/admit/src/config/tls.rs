//! `[tls]`: the files, and what they make of the listener.

use std::path::{Path, PathBuf};

use admit_gate::{Tls, TlsFiles};
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// `[tls]`. Paths are those of PEM files; a relative one starts at the config file's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// Our certificate, followed by those between it and the root. Empty: no TLS.
    pub(crate) cert: PathBuf,
    /// The private key of the certificate.
    pub(crate) key: PathBuf,
    /// Who signs client certificates. Empty: none are asked for.
    pub(crate) client_ca: PathBuf,
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.cert.as_os_str().is_empty()
    }
}

/// Reads the files, if TLS is on.
pub(crate) fn load(config: &TlsConfig, base: &Path) -> Result<Option<Tls>, ConfigError> {
    let given = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| base.join(path));
    let files = match (given(&config.cert), given(&config.key), given(&config.client_ca)) {
        (Some(cert), Some(key), client_ca) => TlsFiles { cert, key, client_ca },
        (None, None, None) => return Ok(None),
        (_, None, _) => return rule("tls.cert and tls.client_ca want tls.key beside them"),
        (None, _, _) => return rule("tls.key and tls.client_ca want tls.cert beside them"),
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
    fn half_a_configuration_is_an_error_and_none_is_none() {
        let load = |cert: &str, key: &str, client_ca: &str| {
            let config =
                TlsConfig { cert: cert.into(), key: key.into(), client_ca: client_ca.into() };
            load(&config, Path::new("nowhere")).map(|tls| tls.is_some())
        };
        assert!(!load("", "", "").unwrap());
        for (cert, key, client_ca) in [("c", "", ""), ("", "k", ""), ("", "", "a"), ("c", "", "a")]
        {
            let error = load(cert, key, client_ca).unwrap_err().to_string();
            assert!(error.contains("beside"), "{error}");
        }
        let error = load("cert.pem", "key.pem", "").unwrap_err().to_string();
        assert!(error.contains("nowhere/cert.pem"), "{error}");
    }
}
