//! `GET /metrics`: metrics in the Prometheus text format.

use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Reply;
use axum::extract::State;
use tokio::time::timeout;

use super::{MetricsAccess, RouteReply};
use crate::exposition;
use crate::gate::Gate;

/// Timeout of the ledger status. After it, the metrics are sent without the size of the ledger.
const STATUS_MAX: Duration = Duration::from_secs(1);

/// `GET /metrics`, limited to the doors that the reader may see.
pub(in crate::http) async fn metrics(
    State(gate): State<Arc<Gate>>,
    MetricsAccess(reader): MetricsAccess,
) -> RouteReply {
    let status = timeout(STATUS_MAX, gate.ledger.status()).await.ok().and_then(Result::ok);
    let text = exposition::write(&gate, status.as_ref(), |counters| reader.may_see(&counters.door));
    RouteReply(Reply {
        status: 200,
        content_type: exposition::CONTENT_TYPE,
        headers: Vec::new(),
        body: text.into_bytes(),
    })
}
