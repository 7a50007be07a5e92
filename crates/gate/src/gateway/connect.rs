//! A connection to the gateway: TCP, and TLS where the URL says so.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Both kinds of stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Where the gateway is, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<Tls>,
}

/// TLS with the name the certificate must show.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// TLS to `host`, trusting what this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` say
    /// otherwise).
    pub(super) fn to(host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is not a name a certificate can show"))?;
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            return Err("this machine has no certificate authorities to trust".to_owned());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }
}

impl Place {
    /// A new connection, ready for its first request.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                Ok(Box::new(connector.connect(tls.name.clone(), stream).await?))
            }
        }
    }
}
