//! `GET /metrics`: what the gate counts, for Prometheus.

use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Reply;
use axum::extract::State;
use tokio::time::timeout;

use super::{Routed, Scraper};
use crate::exposition;
use crate::gate::Gate;

/// How long the ledger may take to say how large it is. Whoever watches wants the rest of the
/// numbers most of all when it does not.
const STATUS_MAX: Duration = Duration::from_secs(1);

/// `GET /metrics`: of the doors that this reader may see.
pub(in crate::http) async fn metrics(
    State(gate): State<Arc<Gate>>,
    Scraper(reader): Scraper,
) -> Routed {
    let status = timeout(STATUS_MAX, gate.ledger.status()).await.ok().and_then(Result::ok);
    let text = exposition::write(&gate, status.as_ref(), |counters| reader.may_see(&counters.door));
    Routed(Reply {
        status: 200,
        content_type: exposition::CONTENT_TYPE,
        headers: Vec::new(),
        body: text.into_bytes(),
    })
}
