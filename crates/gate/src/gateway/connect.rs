//! Connection to the gateway: TCP, with TLS for `https`.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A plain or TLS stream.
pub(super) trait GatewayStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> GatewayStream for S {}

/// Address of the gateway, with TLS settings if used.
#[derive(Clone)]
pub(super) struct GatewayAddress {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<GatewayTls>,
}

/// TLS client settings, with the expected name of the certificate.
#[derive(Clone)]
pub(super) struct GatewayTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl GatewayTls {
    /// TLS to `host`, with the trusted CAs of this machine (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`).
    pub(super) fn for_host(host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is not a valid TLS server name"))?;
        let loaded = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(loaded.certs);
        if usable == 0 {
            return Err("no trusted certificate authorities found on this machine".to_owned());
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

impl GatewayAddress {
    /// Opens a connection.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn GatewayStream>> {
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
