//! The gateway over HTTP/1.1: one request, one answer, connections kept while they are warm.
//!
//! A kept connection may be closed by the other side just when it is used. If not a byte of the
//! request had been handed to it, the request is sent over a new one; that is the only second try
//! there is. From the first byte on, no answer means "unknown".

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_contracts::{GatewayCall, CallOutcome};
use admit_ledger::BoxFuture;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::connect::{Place, Tls};
use super::{Called, Gateway};

/// Longest wait for a connection; the call's own deadline may be earlier.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Connections kept for later calls.
const IDLE_MAX: usize = 16;

/// How long a connection is kept without use. Short, so that the other side rarely closes it first.
const IDLE_FOR: Duration = Duration::from_secs(15);

/// Most of an answer that is read and kept.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// How to reach a gateway.
#[derive(Clone)]
pub struct HttpGatewayConfig {
    /// `http://` or `https://`, a host, perhaps a port and a path that all calls start with.
    pub base_url: String,
    /// Sent as `Authorization: Bearer`, if there is one.
    pub token: Option<String>,
    /// The longest a whole call may take.
    pub call_max: Duration,
}

/// Why there is no gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// The URL is not one.
    #[error("must be http://HOST or https://HOST, perhaps with a port and a path")]
    Url,
    /// The token cannot be a header.
    #[error("the token has characters that no header can carry")]
    Token,
    /// No TLS.
    #[error("{0}")]
    Tls(String),
}

/// A gateway over HTTP.
pub struct HttpGateway {
    place: Place,
    authority: HeaderValue,
    prefix: String,
    authorization: Option<HeaderValue>,
    call_max: Duration,
    idle: Arc<Mutex<Vec<Idle>>>,
    /// The tasks that drive connections. They end with their connections; nobody waits for them.
    tasks: TaskTracker,
}

struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl fmt::Debug for HttpGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGateway").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// How far an attempt to call got.
enum Tried {
    NeverSent(String),
    Sent(Called),
}

impl HttpGateway {
    /// A gateway at the URL of `config`. Connects to nothing yet.
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
            Some("https") => (Some(Tls::to(&host).map_err(GatewayError::Tls)?), 443),
            _ => return Err(GatewayError::Url),
        };
        let authorization = config.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| GatewayError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            place: Place { port: authority.port_u16().unwrap_or(port), host, tls },
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

    async fn try_once(&self, call: &GatewayCall, deadline: Instant, is_second: bool) -> Tried {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(error) => return Tried::NeverSent(format!("no request can be made: {error}")),
        };
        let kept = if is_second { None } else { self.kept() };
        let sender = match kept {
            Some(sender) => sender,
            None => match self.connected(deadline).await {
                Ok(sender) => sender,
                Err(reason) => return Tried::NeverSent(reason),
            },
        };
        let mut work: Pin<Box<dyn Future<Output = Exchanged> + Send>> =
            Box::pin(exchange(sender, request, Arc::clone(&self.idle)));
        match timeout_at(deadline, &mut work).await {
            Ok(Exchanged::NeverSent(reason)) => Tried::NeverSent(reason),
            Ok(Exchanged::Sent(outcome)) => Tried::Sent(Called { outcome, late: None }),
            Err(_) => {
                let reason = "no whole answer came in time".to_owned();
                let late = async move {
                    match work.await {
                        Exchanged::Sent(outcome) => outcome,
                        Exchanged::NeverSent(reason) => CallOutcome::NeverSent { reason },
                    }
                };
                let outcome = CallOutcome::Unknown { reason };
                Tried::Sent(Called { outcome, late: Some(Box::pin(late)) })
            }
        }
    }

    /// A connection that is still open, as far as can be seen.
    fn kept(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|kept| kept.since.elapsed() < IDLE_FOR && !kept.sender.is_closed());
        let at = idle.iter().rposition(|kept| kept.sender.is_ready())?;
        Some(idle.swap_remove(at).sender)
    }

    async fn connected(&self, deadline: Instant) -> Result<SendRequest<Full<Bytes>>, String> {
        let deadline = deadline.min(Instant::now() + CONNECT_MAX);
        let connecting = async {
            let stream =
                self.place.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| format!("cannot connect: {error}"))?;
            self.tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the gateway ended");
                }
            });
            Ok(sender)
        };
        timeout_at(deadline, connecting)
            .await
            .unwrap_or_else(|_| Err("cannot connect in time".to_owned()))
    }
}

impl Gateway for HttpGateway {
    fn call(&self, call: GatewayCall) -> BoxFuture<'_, Called> {
        Box::pin(async move {
            let deadline = Instant::now() + self.call_max;
            let mut reason = String::new();
            for is_second in [false, true] {
                match self.try_once(&call, deadline, is_second).await {
                    Tried::Sent(called) => return called,
                    Tried::NeverSent(why) => reason = why,
                }
            }
            Called { outcome: CallOutcome::NeverSent { reason }, late: None }
        })
    }

    fn call_max(&self) -> Duration {
        self.call_max
    }
}

/// What came of a request on one connection.
enum Exchanged {
    NeverSent(String),
    Sent(CallOutcome),
}

async fn exchange(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    idle: Arc<Mutex<Vec<Idle>>>,
) -> Exchanged {
    let response = match sender.try_send_request(request).await {
        Ok(response) => response,
        Err(mut error) => {
            let was_kept = error.take_message().is_some();
            let reason = error.into_error().to_string();
            // The request comes back only when nothing of it has been handed to the connection.
            return if was_kept {
                Exchanged::NeverSent(reason)
            } else {
                Exchanged::Sent(CallOutcome::Unknown { reason })
            };
        }
    };
    let status = response.status().as_u16();
    let (body, is_whole) = read(response.into_body()).await;
    if is_whole {
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }
    Exchanged::Sent(CallOutcome::Answered { status, body, is_whole })
}

/// The body, or as much of it as came and is read.
async fn read(mut body: Incoming) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (read.freeze(), false) };
        let Some(data) = frame.data_ref() else { continue };
        let room = ANSWER_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
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
    fn a_base_url_is_a_scheme_a_host_and_perhaps_a_path() {
        let gateway = at("http://127.0.0.1:9000/api/").unwrap();
        assert_eq!((gateway.place.port, gateway.prefix.as_str()), (9000, "/api"));
        assert_eq!(at("http://gateway").unwrap().place.port, 80);
        assert_eq!(at("http://[::1]:90").unwrap().place.host, "::1");
        for wrong in
            ["", "gateway", "ftp://gateway", "http://", "http://u:p@gateway", "/v1", "http://g?x=1"]
        {
            assert_eq!(at(wrong).unwrap_err(), GatewayError::Url, "{wrong}");
        }
    }
}
