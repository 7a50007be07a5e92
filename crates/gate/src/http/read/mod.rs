//! Read routes: health, receipts, read models, streams, metrics. All but metrics reply with JSON.

mod event_stream;
pub(super) mod health;
pub(super) mod inbox;
pub(super) mod intents;
pub(super) mod metrics;
pub(super) mod pixel;
pub(super) mod query;
pub(super) mod receipts;
pub(super) mod rounds;
pub(super) mod streams;

use std::sync::{Arc, OnceLock};

use admit_contracts::Reply;
use admit_core::json::{Object, write_object};
use admit_core::{Code, Door, Fault};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use super::{response, trace_field};
use crate::auth::{self, AccessDenied};
use crate::gate::Gate;
use crate::peer::Peer;
use crate::principals::KnownPrincipal;
use crate::rate_limit::RateExceeded;
use crate::request_permit::{NotAdmitted, RATE_EXCEEDED};
use crate::unauthenticated_connections::ConnectionAuth;

/// Alternative to `Authorization: Bearer` for the key.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// Reply of a route. It is sent with `no-store`, because the content changes.
pub(super) struct RouteReply(pub(super) Reply);

impl RouteReply {
    /// Returns a JSON object as the reply.
    pub(super) fn object(status: u16, object: &Object<'_>) -> Self {
        let mut body = Vec::new();
        write_object(object, &mut body);
        Self(Reply { status, content_type: "application/json", headers: Vec::new(), body })
    }

    pub(super) fn not_found(gate: &Gate, message: &str) -> Self {
        Self(response::refuse(gate, Code::NotFound, message))
    }

    pub(super) fn fault(gate: &Gate, fault: &Fault) -> Self {
        Self::log(gate, fault);
        Self(response::refuse(gate, fault.code(), fault.message))
    }

    /// Same, in the error format of `path`.
    pub(super) fn fault_at(gate: &Gate, path: &str, fault: &Fault) -> Self {
        Self::log(gate, fault);
        Self(response::refuse_at(gate, path, fault.code(), fault.message))
    }

    fn log(gate: &Gate, fault: &Fault) {
        if gate.may_log_fault() {
            let cause = fault.source.as_deref().map(tracing::field::display);
            let trace_id = trace_field();
            let code = fault.code().as_str();
            tracing::error!(trace_id, code, cause, "request failed: {fault}");
        }
    }
}

impl IntoResponse for RouteReply {
    fn into_response(self) -> Response {
        let mut response = response::from_reply(self.0).map(Body::new);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response::forbid_embedding(response.headers_mut());
        response
    }
}

/// Read access of a principal: the doors it may read. An empty list means all doors.
pub(super) struct ReadAccess {
    doors: Vec<String>,
}

impl ReadAccess {
    pub(super) fn may_see(&self, door: &Door) -> bool {
        self.doors.is_empty() || self.doors.iter().any(|name| name == door.as_str())
    }
}

/// Authorizes a request: identifies its principal, checks `permit` and applies the rate limit.
pub(super) fn authorize<'g>(
    head: &Parts,
    gate: &'g Gate,
    permit: impl Fn(&KnownPrincipal) -> Result<(), AccessDenied>,
) -> Result<&'g KnownPrincipal, RouteReply> {
    let path = head.uri.path();
    let refused = |code, message| RouteReply(response::refuse_at(gate, path, code, message));
    let Some(peer) = head.extensions.get::<Peer>().copied() else {
        return Err(refused(Code::InternalError, "the address of the peer is missing"));
    };
    let known = auth::identify(&gate.principals, peer, head, &API_KEY_HEADER)
        .and_then(|known| bind_principal(head, gate, known))
        .and_then(|known| permit(known).map(|()| known))
        .map_err(|denied| {
            let mut routed = refused(denied.code, denied.message);
            if denied.code == Code::Unauthorized {
                routed.0.headers.push(("www-authenticate", "Bearer".to_owned()));
            }
            routed
        })?;
    match gate.rates.allow(known.index, gate.clock.now()) {
        Ok(()) => Ok(known),
        Err(RateExceeded { retry_after_seconds }) => {
            let NotAdmitted { code, message, .. } = RATE_EXCEEDED;
            let wait = retry_after_seconds;
            Err(RouteReply(response::refuse_at_after(gate, path, code, message, wait)))
        }
    }
}

/// Connection and principal of a request, for the handlers.
#[derive(Debug)]
pub(super) struct Requester {
    auth: Arc<ConnectionAuth>,
    index: OnceLock<usize>,
}

impl Requester {
    pub(super) fn new(auth: &Arc<ConnectionAuth>) -> Arc<Self> {
        Arc::new(Self { auth: Arc::clone(auth), index: OnceLock::new() })
    }

    /// Index of the principal, after authentication.
    pub(super) fn index(&self) -> Option<usize> {
        self.index.get().copied()
    }
}

/// Counts the connection of a request for its principal. Fails if the principal has too many connections.
pub(super) fn bind_principal<'g>(
    head: &Parts,
    gate: &Gate,
    known: &'g KnownPrincipal,
) -> Result<&'g KnownPrincipal, AccessDenied> {
    if let Some(requester) = head.extensions.get::<Arc<Requester>>() {
        if !requester.auth.authenticate(&gate.authenticated, known.index) {
            return Err(auth::TOO_MANY_CONNECTIONS);
        }
        requester.index.get_or_init(|| known.index);
    }
    Ok(known)
}

impl FromRequestParts<Arc<Gate>> for ReadAccess {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        Self::with(head, gate, auth::permit_reading)
    }
}

impl ReadAccess {
    fn with(
        head: &Parts,
        gate: &Gate,
        permit: fn(&KnownPrincipal) -> Result<(), AccessDenied>,
    ) -> Result<Self, RouteReply> {
        let known = authorize(head, gate, permit)?;
        Ok(Self { doors: known.doors().to_vec() })
    }
}

/// Read access to streams and the inbox: role `read` or `consume`.
pub(super) struct EntryReadAccess(pub(super) ReadAccess);

impl FromRequestParts<Arc<Gate>> for EntryReadAccess {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        ReadAccess::with(head, gate, auth::permit_reading_entries).map(Self)
    }
}

/// Access to claim and settle entries: role `consume`.
pub(super) struct ConsumeAccess(pub(super) ReadAccess);

impl FromRequestParts<Arc<Gate>> for ConsumeAccess {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        ReadAccess::with(head, gate, auth::permit_consuming).map(Self)
    }
}

/// Read access to the metrics: role `metrics` or `read`.
pub(super) struct MetricsAccess(pub(super) ReadAccess);

impl FromRequestParts<Arc<Gate>> for MetricsAccess {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        ReadAccess::with(head, gate, auth::permit_metrics).map(Self)
    }
}
