//! What can be read: health, receipts, read models, metrics. Everything but metrics is JSON.

pub(super) mod health;
pub(super) mod inbox;
pub(super) mod intents;
pub(super) mod metrics;
pub(super) mod pixel;
pub(super) mod query;
pub(super) mod receipts;
pub(super) mod rounds;
pub(super) mod streams;
mod watching;

use std::sync::{Arc, OnceLock};

use admit_contracts::Reply;
use admit_core::json::{Object, write_object};
use admit_core::{Code, Door, Fault};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use super::{answer, trace_field};
use crate::auth::{self, Denied};
use crate::gate::Gate;
use crate::peer::Peer;
use crate::principals::Known;
use crate::rate::RateExceeded;
use crate::request_permit::{NotAdmitted, TOO_FAST};
use crate::standing::Standing;

/// Where a key may be sent to these routes, beside `Authorization: Bearer`.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// A reply of a route. What it shows changes, so nobody should keep it.
pub(super) struct Routed(pub(super) Reply);

impl Routed {
    /// An object as the whole answer.
    pub(super) fn object(status: u16, object: &Object<'_>) -> Self {
        let mut body = Vec::new();
        write_object(object, &mut body);
        Self(Reply { status, content_type: "application/json", headers: Vec::new(), body })
    }

    pub(super) fn not_found(gate: &Gate, message: &str) -> Self {
        Self(answer::refuse(gate, Code::NotFound, message))
    }

    pub(super) fn fault(gate: &Gate, fault: &Fault) -> Self {
        if gate.may_log_fault() {
            let cause = fault.source.as_deref().map(tracing::field::display);
            let trace_id = trace_field();
            let code = fault.code().as_str();
            tracing::error!(trace_id, code, cause, "reading failed: {fault}");
        }
        Self(answer::refuse(gate, fault.code(), fault.message))
    }
}

impl IntoResponse for Routed {
    fn into_response(self) -> Response {
        let mut response = answer::from_reply(self.0).map(Body::new);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer::forbid_embedding(response.headers_mut());
        response
    }
}

/// Somebody who may read, and which doors: none named means all of them.
pub(super) struct Reader {
    doors: Vec<String>,
}

impl Reader {
    pub(super) fn may_see(&self, door: &Door) -> bool {
        self.doors.is_empty() || self.doors.iter().any(|name| name == door.as_str())
    }
}

/// The principal behind a request to a route, if `permit` lets it.
pub(super) fn known<'g>(
    head: &Parts,
    gate: &'g Gate,
    permit: impl Fn(&Known) -> Result<(), Denied>,
) -> Result<&'g Known, Routed> {
    let refused = |code, message| Routed(answer::refuse(gate, code, message));
    let Some(peer) = head.extensions.get::<Peer>().copied() else {
        return Err(refused(Code::InternalError, "the peer of this request is not known"));
    };
    let known = auth::identify(&gate.principals, peer, head, &API_KEY_HEADER)
        .and_then(|known| authenticated(head, gate, known))
        .and_then(|known| permit(known).map(|()| known))
        .map_err(|denied| {
            let mut routed = refused(denied.code, denied.message);
            if denied.code == Code::Unauthorized {
                routed.0.headers.push(("www-authenticate", "Bearer".to_owned()));
            }
            routed
        })?;
    match gate.rates.allow(known.place, gate.clock.now()) {
        Ok(()) => Ok(known),
        Err(RateExceeded { retry_after_seconds }) => {
            let NotAdmitted { code, message, .. } = TOO_FAST;
            Err(Routed(answer::refuse_after(gate, code, message, retry_after_seconds)))
        }
    }
}

/// A request to a route, once it is known whose it is.
#[derive(Debug)]
pub(super) struct Requester {
    standing: Arc<Standing>,
    place: OnceLock<usize>,
}

impl Requester {
    pub(super) fn of(standing: &Arc<Standing>) -> Arc<Self> {
        Arc::new(Self { standing: Arc::clone(standing), place: OnceLock::new() })
    }

    /// The place of the principal whose key it came with.
    pub(super) fn place(&self) -> Option<usize> {
        self.place.get().copied()
    }
}

/// Notes that a request came with the key of a principal, which may have too many connections.
pub(super) fn authenticated<'g>(
    head: &Parts,
    gate: &Gate,
    known: &'g Known,
) -> Result<&'g Known, Denied> {
    if let Some(requester) = head.extensions.get::<Arc<Requester>>() {
        if !requester.standing.authenticate(&gate.authenticated, known.place) {
            return Err(auth::TOO_MANY_CONNECTIONS);
        }
        requester.place.get_or_init(|| known.place);
    }
    Ok(known)
}

impl FromRequestParts<Arc<Gate>> for Reader {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        Self::with(head, gate, auth::permit_reading)
    }
}

impl Reader {
    fn with(
        head: &Parts,
        gate: &Gate,
        permit: fn(&Known) -> Result<(), Denied>,
    ) -> Result<Self, Routed> {
        let known = known(head, gate, permit)?;
        Ok(Self { doors: known.doors().to_vec() })
    }
}

/// A principal that may read streams and the inbox: role `read` or `consume`.
pub(super) struct EntryReader(pub(super) Reader);

impl FromRequestParts<Arc<Gate>> for EntryReader {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        Reader::with(head, gate, auth::permit_reading_entries).map(Self)
    }
}

/// A principal that may claim and settle: role `consume`.
pub(super) struct Consumer(pub(super) Reader);

impl FromRequestParts<Arc<Gate>> for Consumer {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        Reader::with(head, gate, auth::permit_consuming).map(Self)
    }
}

/// A principal that may read the metrics: role `metrics` or `read`.
pub(super) struct Scraper(pub(super) Reader);

impl FromRequestParts<Arc<Gate>> for Scraper {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        Reader::with(head, gate, auth::permit_metrics).map(Self)
    }
}
