//! Gateway over HTTP/1.1, with a pool of keep-alive connections.
//!
//! The gateway may close a pooled connection just when it is used. If no byte of the request was
//! written to it, the request is sent over a new connection; that is the only retry. From the first byte
//! on, a missing response means "unknown".

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_contracts::{CallOutcome, GatewayCall};
use admit_ledger::BoxFuture;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::connect::{GatewayAddress, GatewayTls};
use super::{CallResult, Gateway};

/// Connect timeout; the call's own deadline may be earlier.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of idle connections.
const IDLE_MAX: usize = 16;

/// IdleConnection timeout of a connection. Short, so that the gateway rarely closes it first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum size of a response body that is read and stored; the rest is cut off.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// Settings of a gateway over HTTP.
#[derive(Clone)]
pub struct HttpGatewayConfig {
    /// `http://` or `https://`, a host, and optionally a port and a path prefix of all calls.
    pub base_url: String,
    /// Token that is sent as `Authorization: Bearer`.
    pub token: Option<String>,
    /// Timeout of a whole call.
    pub call_max: Duration,
}

/// Invalid gateway settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// Invalid URL.
    #[error("must be http://HOST or https://HOST, with an optional port and path")]
    Url,
    /// The token is not a valid header value.
    #[error("the token has characters that are not allowed in a header")]
    Token,
    /// TLS cannot be set up.
    #[error("{0}")]
    GatewayTls(String),
}

/// A gateway over HTTP.
pub struct HttpGateway {
    address: GatewayAddress,
    authority: HeaderValue,
    prefix: String,
    authorization: Option<HeaderValue>,
    call_max: Duration,
    idle: Arc<Mutex<Vec<IdleConnection>>>,
    /// Tasks that drive the connections. They end with their connections; nothing waits for them.
    tasks: TaskTracker,
}

struct IdleConnection {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl fmt::Debug for HttpGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGateway").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Result of one attempt at a call.
enum CallAttempt {
    NeverSent(String),
    Sent(CallResult),
}

impl HttpGateway {
    /// Gateway at the URL of `config`. Does not connect yet.
    pub fn new(config: &HttpGatewayConfig) -> Result<Self, GatewayError> {
        let uri: Uri = config.base_url.parse().map_err(|_| GatewayError::Url)?;
        let authority = uri.authority().ok_or(GatewayError::Url)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let is_plain = uri.query().is_none() && !authority.as_str().contains('@');
        if host.is_empty() || !is_plain {
            return Err(GatewayError::Url);
        }
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                (Some(GatewayTls::for_host(&host).map_err(GatewayError::GatewayTls)?), 443)
            }
            _ => return Err(GatewayError::Url),
        };
        let authorization = config.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| GatewayError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            address: GatewayAddress { port: authority.port_u16().unwrap_or(port), host, tls },
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| GatewayError::Url)?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            authorization: authorization.transpose()?,
            call_max: config.call_max,
            idle: Arc::default(),
            tasks: TaskTracker::new(),
        })
    }

    fn request(&self, call: &GatewayCall) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::post(format!("{}{}", self.prefix, call.path))
            .header(header::HOST, self.authority.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(call.body.clone()))
    }

    async fn try_once(
        &self,
        call: &GatewayCall,
        deadline: Instant,
        is_second: bool,
    ) -> CallAttempt {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(error) => {
                return CallAttempt::NeverSent(format!("cannot build the request: {error}"));
            }
        };
        let pooled = if is_second { None } else { self.take_idle() };
        let sender = match pooled {
            Some(sender) => sender,
            None => match self.connect(deadline).await {
                Ok(sender) => sender,
                Err(reason) => return CallAttempt::NeverSent(reason),
            },
        };
        let mut work: Pin<Box<dyn Future<Output = ExchangeOutcome> + Send>> =
            Box::pin(exchange(sender, request, Arc::clone(&self.idle)));
        match timeout_at(deadline, &mut work).await {
            Ok(ExchangeOutcome::NeverSent(reason)) => CallAttempt::NeverSent(reason),
            Ok(ExchangeOutcome::Sent(outcome)) => {
                CallAttempt::Sent(CallResult { outcome, late: None })
            }
            Err(_) => {
                let reason = "timeout before a complete response".to_owned();
                let late = async move {
                    match work.await {
                        ExchangeOutcome::Sent(outcome) => outcome,
                        ExchangeOutcome::NeverSent(reason) => CallOutcome::NeverSent { reason },
                    }
                };
                let outcome = CallOutcome::Unknown { reason };
                CallAttempt::Sent(CallResult { outcome, late: Some(Box::pin(late)) })
            }
        }
    }

    /// Takes an idle connection that is not known to be closed.
    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| one.since.elapsed() < IDLE_TIMEOUT && !one.sender.is_closed());
        let at = idle.iter().rposition(|one| one.sender.is_ready())?;
        Some(idle.swap_remove(at).sender)
    }

    async fn connect(&self, deadline: Instant) -> Result<SendRequest<Full<Bytes>>, String> {
        let deadline = deadline.min(Instant::now() + CONNECT_MAX);
        let connecting = async {
            let stream =
                self.address.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| format!("cannot connect: {error}"))?;
            self.tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "gateway connection failed");
                }
            });
            Ok(sender)
        };
        timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err("connect timeout".to_owned()))
    }
}

impl Gateway for HttpGateway {
    fn call(&self, call: GatewayCall) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let deadline = Instant::now() + self.call_max;
            let mut reason = String::new();
            for is_second in [false, true] {
                match self.try_once(&call, deadline, is_second).await {
                    CallAttempt::Sent(called) => return called,
                    CallAttempt::NeverSent(why) => reason = why,
                }
            }
            CallResult { outcome: CallOutcome::NeverSent { reason }, late: None }
        })
    }

    fn call_max(&self) -> Duration {
        self.call_max
    }
}

/// Outcome of a request on one connection.
enum ExchangeOutcome {
    NeverSent(String),
    Sent(CallOutcome),
}

async fn exchange(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    idle: Arc<Mutex<Vec<IdleConnection>>>,
) -> ExchangeOutcome {
    let response = match sender.try_send_request(request).await {
        Ok(response) => response,
        Err(mut error) => {
            let is_unsent = error.take_message().is_some();
            let reason = error.into_error().to_string();
            // hyper returns the request only if nothing of it was written to the connection.
            return if is_unsent {
                ExchangeOutcome::NeverSent(reason)
            } else {
                ExchangeOutcome::Sent(CallOutcome::Unknown { reason })
            };
        }
    };
    let status = response.status().as_u16();
    let (body, is_whole) = read(response.into_body()).await;
    if is_whole {
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(IdleConnection { sender, since: Instant::now() });
        }
    }
    ExchangeOutcome::Sent(CallOutcome::Answered { status, body, is_whole })
}

/// Reads the body up to the limit. Returns false with an incomplete body.
async fn read(mut body: Incoming) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (read.freeze(), false) };
        let Some(data) = frame.data_ref() else { continue };
        let bytes_left = RESPONSE_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(bytes_left)]);
        if data.len() > bytes_left {
            return (read.freeze(), false);
        }
    }
    (read.freeze(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base_url: &str) -> Result<HttpGateway, GatewayError> {
        HttpGateway::new(&HttpGatewayConfig {
            base_url: base_url.to_owned(),
            token: None,
            call_max: Duration::from_secs(1),
        })
    }

    #[test]
    fn a_base_url_is_a_scheme_a_host_and_an_optional_path() {
        let gateway = at("http://127.0.0.1:9000/api/").unwrap();
        assert_eq!((gateway.address.port, gateway.prefix.as_str()), (9000, "/api"));
        assert_eq!(at("http://gateway").unwrap().address.port, 80);
        assert_eq!(at("http://[::1]:90").unwrap().address.host, "::1");
        for wrong in
            ["", "gateway", "ftp://gateway", "http://", "http://u:p@gateway", "/v1", "http://g?x=1"]
        {
            assert_eq!(at(wrong).unwrap_err(), GatewayError::Url, "{wrong}");
        }
    }
}
