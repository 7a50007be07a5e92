//! Gate client over HTTP/1.1, with a connection pool.
//!
//! A push may be sent twice, because the gate deduplicates. So a pooled connection that turns out
//! to be closed is replaced at once, without counting as an attempt.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use super::gate::{BoxFuture, EnvelopeTarget, PushResult, classify_response};
use admit_core::json::{self, Limits, Value};

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum idle connections.
const IDLE_MAX: usize = 256;
/// Maximum bytes of a response that are kept.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Options of a gate client.
#[derive(Clone)]
pub struct HttpGateConfig {
    /// `http://HOST` or `https://HOST`, optionally with a port and a path prefix.
    pub url: String,
    /// Header of the API key.
    pub key_header: String,
    /// The API key, if required.
    pub key: Option<String>,
    /// Timeout of a push.
    pub push_max: Duration,
    /// The gate's Unix socket, tried before its URL.
    pub socket: Option<GateSocket>,
    /// Further URLs that must return success before a run is streamed.
    pub require_alive: Vec<String>,
}

/// Unix socket in the data folder of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSocket {
    /// Its path.
    pub path: PathBuf,
    /// Whether to use only this socket, with no fallback to the URL.
    pub is_only: bool,
}

/// Error in the options of a gate client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpGateError {
    /// Invalid URL.
    #[error(
        "invalid gate URL {0:?}: expected http://HOST or https://HOST, optionally with a port and a path"
    )]
    Url(String),
    /// The key is not valid in a header.
    #[error("the API key or its header name has characters that are not valid in a header")]
    Key,
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
}

trait HttpStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> HttpStream for S {}

/// Address of a server and how to connect to it.
struct HttpServerAddress {
    host: String,
    port: u16,
    authority: HeaderValue,
    prefix: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    socket: Option<GateSocket>,
}

impl HttpServerAddress {
    fn parse(url: &str) -> Result<Self, HttpGateError> {
        let invalid = || HttpGateError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(invalid());
        }
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(tls(&host)?), 443),
            _ => return Err(invalid()),
        };
        Ok(Self {
            port: authority.port_u16().unwrap_or(port),
            host,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls,
            socket: None,
        })
    }

    /// Its name in messages.
    fn name(&self) -> String {
        match &self.socket {
            Some(GateSocket { path, is_only: true }) => path.display().to_string(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn HttpStream>> {
        if let Some(GateSocket { path, is_only }) = &self.socket {
            match UnixStream::connect(path).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) if *is_only => return Err(error),
                Err(_) => {}
            }
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
        })
    }
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), HttpGateError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| HttpGateError::Tls(format!("{host:?} is not a valid TLS server name")))?;
    let mut roots = RootCertStore::empty();
    let (trusted, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trusted == 0 {
        let text = "this system has no trusted certificate authority; set SSL_CERT_FILE";
        return Err(HttpGateError::Tls(text.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpGateError::Tls(error.to_string()))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// Gate client over HTTP.
pub struct HttpGate {
    server: HttpServerAddress,
    required: Vec<(String, HttpServerAddress)>,
    key: Option<(HeaderName, HeaderValue)>,
    push_max: Duration,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// Connection tasks; they end with their connections.
    tasks: TaskTracker,
}

impl fmt::Debug for HttpGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGate").field("server", &self.server.authority).finish_non_exhaustive()
    }
}

struct HttpReply {
    status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
}

impl HttpGate {
    /// Builds a client. Does not connect yet.
    ///
    /// # Errors
    /// When the URL or the key is invalid.
    pub fn new(config: &HttpGateConfig) -> Result<Self, HttpGateError> {
        let key = match &config.key {
            None => None,
            Some(key) => {
                let name: HeaderName = config.key_header.parse().map_err(|_| HttpGateError::Key)?;
                let mut value = HeaderValue::from_str(key).map_err(|_| HttpGateError::Key)?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        let required = config.require_alive.iter();
        Ok(Self {
            server: HttpServerAddress {
                socket: config.socket.clone(),
                ..HttpServerAddress::parse(&config.url)?
            },
            required: required
                .map(|url| Ok((url.clone(), HttpServerAddress::parse(url)?)))
                .collect::<Result<_, HttpGateError>>()?,
            key,
            push_max: config.push_max,
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    fn request(
        &self,
        server: &HttpServerAddress,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let target = match format!("{}{path}", server.prefix) {
            empty if empty.is_empty() => "/".to_owned(),
            target => target,
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(target).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::HOST, server.authority.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = &self.key {
            headers.insert(name.clone(), value.clone());
        }
        request
    }

    async fn open(&self, server: &HttpServerAddress) -> Result<SendRequest<Full<Bytes>>, String> {
        let connect_error =
            |error: &dyn fmt::Display| format!("cannot connect to {}: {error}", server.name());
        let connecting = async {
            let stream = server.connect().await.map_err(|error| connect_error(&error))?;
            let made = http1::handshake(TokioIo::new(stream)).await;
            let (sender, connection) = made.map_err(|error| connect_error(&error))?;
            self.tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the gate ended");
                }
            });
            Ok(sender)
        };
        timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err(connect_error(&"timeout")))
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn return_idle(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }

    /// One request, over an idle connection if there is one.
    async fn post(&self, path: &str, body: &Bytes) -> Result<HttpReply, String> {
        let request = || self.request(&self.server, Method::POST, path, body.clone());
        if let Some(mut sender) = self.take_idle()
            && let Ok(reply) = exchange(&mut sender, request()).await
        {
            self.return_idle(sender);
            return Ok(reply);
        }
        let mut sender = self.open(&self.server).await?;
        let reply = exchange(&mut sender, request()).await?;
        self.return_idle(sender);
        Ok(reply)
    }

    async fn get(&self, server: &HttpServerAddress, path: &str) -> Result<HttpReply, String> {
        let mut sender = self.open(server).await?;
        exchange(&mut sender, self.request(server, Method::GET, path, Bytes::new())).await
    }

    async fn check_health(&self) -> Result<(), String> {
        let reply = self.get(&self.server, "/v1/ops/health").await?;
        let value = json::parse(&reply.body, &Limits::default()).ok();
        let state = value.as_ref().and_then(|value| value.get("state")).and_then(Value::as_str);
        if reply.status == 503 || state == Some("RED") {
            return Err(format!("the gate is unhealthy: status {}", reply.status));
        }
        for (url, server) in &self.required {
            let reply = self.get(server, "").await?;
            if !(200..300).contains(&reply.status) {
                return Err(format!("required URL {url} returned status {}", reply.status));
            }
        }
        Ok(())
    }
}

impl EnvelopeTarget for HttpGate {
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, PushResult> {
        Box::pin(async move {
            let retry = |reason| PushResult::Retry { reason, hint: None };
            match timeout(self.push_max, self.post("/v1/ingest/push", &envelope)).await {
                Ok(Ok(reply)) => classify_response(reply.status, reply.retry_after, &reply.body),
                Ok(Err(reason)) => retry(reason),
                Err(_) => {
                    retry(format!("timeout: no response within {} ms", self.push_max.as_millis()))
                }
            }
        })
    }

    fn alive(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let checked = timeout(self.push_max, self.check_health()).await;
            checked.unwrap_or_else(|_| Err("timeout of the gate's health check".to_owned()))
        })
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<HttpReply, String> {
    let fail = |error: hyper::Error| format!("the connection to the gate broke: {error}");
    let response = sender.send_request(request).await.map_err(fail)?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let body = read(response.into_body()).await.map_err(fail)?;
    Ok(HttpReply { status, retry_after, body })
}

/// Reads the whole body; bytes beyond the limit are discarded.
async fn read(mut body: Incoming) -> Result<Bytes, hyper::Error> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        let space = RESPONSE_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(space)]);
    }
    Ok(read.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_url_has_a_scheme_a_host_and_an_optional_path() {
        let server = HttpServerAddress::parse("http://127.0.0.1:9000/api/").expect("a url");
        assert_eq!((server.port, server.prefix.as_str()), (9000, "/api"));
        assert_eq!(HttpServerAddress::parse("http://gate").expect("a url").port, 80);
        for invalid in ["", "gate", "ftp://gate", "http://u:p@gate", "http://g?x=1", "/v1"] {
            assert!(HttpServerAddress::parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_key_is_never_shown() {
        let gate = HttpGate::new(&HttpGateConfig {
            url: "http://gate".to_owned(),
            key_header: "X-IG-Api-Key".to_owned(),
            key: Some("hush".to_owned()),
            push_max: Duration::from_secs(1),
            socket: None,
            require_alive: Vec::new(),
        });
        assert!(!format!("{gate:?}").contains("hush"));
    }
}
