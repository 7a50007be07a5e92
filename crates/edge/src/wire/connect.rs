//! Address of a gate, and connections to it: TCP, and TLS for `https`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A TCP or TLS stream.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Application protocol; negotiated by ALPN over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Address of a gate.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) authority: String,
    pub(crate) prefix: String,
    host: String,
    port: u16,
    tls: Option<(Arc<RootCertStore>, ServerName<'static>)>,
}

/// Error of parsing an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Invalid URL.
    #[error("invalid gate URL {0:?}: expected http://HOST:PORT or https://HOST")]
    Url(String),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

impl Endpoint {
    /// Parses a gate's URL. With `https`, the PEM file `ca` contains the trusted certificate
    /// authorities; without it, those of the system are trusted.
    ///
    /// # Errors
    /// When the URL is invalid or TLS cannot be set up.
    pub fn parse(url: &str, ca: Option<&Path>) -> Result<Self, EndpointError> {
        let invalid = || EndpointError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(invalid());
        }
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
                (Some((Arc::new(roots(ca)?), name)), 443)
            }
            _ => return Err(invalid()),
        };
        Ok(Self {
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            port: authority.port_u16().unwrap_or(port),
            host,
            tls,
        })
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, protocol: Protocol) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some((roots, name)) = &self.tls else { return Ok(Box::new(stream)) };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(Arc::clone(roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }];
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Box::new(connector.connect(name.clone(), stream).await?))
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, EndpointError> {
    let certs = match ca {
        None => rustls_native_certs::load_native_certs().certs,
        Some(path) => {
            let unreadable = |error| unreadable(path, &error);
            let certs = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
            certs.collect::<Result<Vec<_>, _>>().map_err(unreadable)?
        }
    };
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certs).0 == 0 {
        let source = ca.map_or_else(|| "this system".to_owned(), |ca| ca.display().to_string());
        return Err(EndpointError::Tls(format!("{source} has no trusted certificate authority")));
    }
    Ok(roots)
}

fn unreadable(path: &Path, error: &rustls::pki_types::pem::Error) -> EndpointError {
    let path: PathBuf = path.to_owned();
    EndpointError::Tls(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_url_has_a_scheme_a_host_and_optional_port_and_path() {
        let gate = Endpoint::parse("http://127.0.0.1:9000/front/", None).unwrap();
        assert_eq!((gate.port, gate.prefix.as_str()), (9000, "/front"));
        assert_eq!(Endpoint::parse("http://gate", None).unwrap().port, 80);
        assert_eq!(Endpoint::parse("http://[::1]:90", None).unwrap().host, "::1");
        for invalid in ["", "gate", "ws://gate", "http://", "http://u:p@gate", "http://g?x=1"] {
            assert!(
                matches!(Endpoint::parse(invalid, None), Err(EndpointError::Url(_))),
                "{invalid}"
            );
        }
        let missing = Endpoint::parse("https://gate", Some(Path::new("no-such.pem")));
        assert!(matches!(missing, Err(EndpointError::Tls(_))));
    }
}
