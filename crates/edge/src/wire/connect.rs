//! Where the gate is, and a connection to it: TCP, and TLS where the URL says so.

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

/// Both kinds of stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What is spoken over the connection; TLS agrees on it in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Where a gate is.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) authority: String,
    pub(crate) prefix: String,
    host: String,
    port: u16,
    tls: Option<(Arc<RootCertStore>, ServerName<'static>)>,
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The URL is not one.
    #[error("{0:?} is no gate: write http://HOST:PORT or https://HOST")]
    Url(String),
    /// No TLS.
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
    /// The gate at `url`. With `https`, the PEM file `ca` says whose certificates are believed; this
    /// machine's own authorities without one.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be spoken.
    pub fn parse(url: &str, ca: Option<&Path>) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                (Some((Arc::new(roots(ca)?), name)), 443)
            }
            _ => return Err(wrong()),
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

    /// A new connection.
    pub(crate) async fn connect(&self, protocol: Protocol) -> io::Result<Box<dyn Stream>> {
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
        let whose = ca.map_or_else(|| "this machine".to_owned(), |ca| ca.display().to_string());
        return Err(EndpointError::Tls(format!("{whose} has no certificate authority to trust")));
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
    fn a_gate_is_a_scheme_a_host_and_perhaps_a_port_and_a_path() {
        let gate = Endpoint::parse("http://127.0.0.1:9000/front/", None).unwrap();
        assert_eq!((gate.port, gate.prefix.as_str()), (9000, "/front"));
        assert_eq!(Endpoint::parse("http://gate", None).unwrap().port, 80);
        assert_eq!(Endpoint::parse("http://[::1]:90", None).unwrap().host, "::1");
        for wrong in ["", "gate", "ws://gate", "http://", "http://u:p@gate", "http://g?x=1"] {
            assert!(matches!(Endpoint::parse(wrong, None), Err(EndpointError::Url(_))), "{wrong}");
        }
        let lost = Endpoint::parse("https://gate", Some(Path::new("no-such.pem")));
        assert!(matches!(lost, Err(EndpointError::Tls(_))));
    }
}
