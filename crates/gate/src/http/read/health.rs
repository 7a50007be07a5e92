//! Is it alive, is it ready, which doors are there. Nobody needs a key for these.

use std::sync::Arc;

use admit_core::json::{Object, Value, write_object};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};

use super::Routed;
use crate::gate::{Gate, add_retry_after};
use crate::http::FixedDocument;
use crate::retention::RetentionSweep;

/// What to do about a clock that jumped.
const JUMPED: &str = "the clock is ahead of trusted time, retention removes nothing; set the clock \
                      right, or run: admit ledger confirm-time";

/// `GET /livez`: the process answers. Says nothing about the ledger, so that trouble there does
/// not get the process killed.
pub(in crate::http) async fn livez() -> Routed {
    Routed::object(200, &Object::from_iter([("alive", Value::from(true))]))
}

/// `GET /readyz`: events can be sent here, or why not.
pub(in crate::http) async fn readyz(State(gate): State<Arc<Gate>>) -> Routed {
    let (is_ready, said) = readiness(&gate);
    routed(&gate, is_ready, &said)
}

/// `GET /healthz`: readiness with what it was judged by; `?verbose` adds how busy the gate is.
pub(in crate::http) async fn healthz(State(gate): State<Arc<Gate>>, uri: Uri) -> Routed {
    let (is_ready, mut said) = readiness(&gate);
    let ledger = if gate.ledger.is_healthy() { "ok" } else { "failing" };
    let doors = if gate.is_draining() { "draining" } else { "ok" };
    let jump = gate.retention.as_ref().and_then(RetentionSweep::jump);
    let retention = if jump.is_none() { "ok" } else { "clock_jump" };
    said.push(
        "checks",
        Object::from_iter([
            ("ledger", Value::from(ledger)),
            ("doors", doors.into()),
            ("retention", retention.into()),
        ]),
    );
    if let Some(jump) = jump {
        let jumped = Object::from_iter([
            ("trusted_time", Value::from(jump.trusted.to_rfc3339_millis())),
            ("clock", jump.wall.to_rfc3339_millis().into()),
            ("action", JUMPED.into()),
        ]);
        said.push("retention", jumped);
    }
    if is_verbose(&uri) {
        let mut load = Object::from_iter([
            ("events_in_flight", Value::from(gate.events_in_flight() as u64)),
            ("connections", gate.metrics().connections_open().into()),
        ]);
        if let Some(gauges) = gate.ledger.gauges() {
            load.push("ledger_queue_depth", gauges.waiting());
            load.push("ledger_log_bytes", gauges.log_bytes());
            load.push("ledger_commit_failures", gauges.commit_failures());
        }
        // Every one is a defect, so it is shown where a person looks first.
        let panics = gate.metrics().panics.get();
        if panics > 0 {
            load.push("admit_panics_total", panics);
        }
        said.push("load", load);
    }
    routed(&gate, is_ready, &said)
}

fn is_verbose(uri: &Uri) -> bool {
    let mut words = uri.query().unwrap_or_default().split('&');
    words.any(|word| matches!(word, "verbose" | "verbose=" | "verbose=1" | "verbose=true"))
}

/// Whether events can be sent here, as `/readyz` answers.
pub(crate) fn is_ready(gate: &Gate) -> bool {
    readiness(gate).0
}

fn readiness(gate: &Gate) -> (bool, Object<'static>) {
    let mut reasons = Vec::new();
    if gate.is_draining() {
        reasons.push("the gate is shutting down");
    }
    reasons.extend(gate.ledger.trouble());
    if gate.reserve.as_ref().is_some_and(|reserve| reserve.is_low()) {
        reasons.push("the disk is below its reserve, only copies of known events are answered");
    }
    let closed = closed_doors(gate);
    if !closed.is_empty() && closed.len() == gate.doors.len() {
        reasons.push("no door takes events");
    }
    let is_ready = reasons.is_empty();
    let said = Object::from_iter([
        ("ready", Value::from(is_ready)),
        ("reasons", Value::from(reasons)),
        ("closed_doors", closed.into()),
    ]);
    (is_ready, said)
}

/// Doors that take nothing while others do. The reasons are codes: nobody needs a key to read them,
/// and what is behind them stands in `/v1/ops/health`.
fn closed_doors(gate: &Gate) -> Vec<Object<'static>> {
    let healths = gate.doors.iter().filter_map(|mount| {
        let health = mount.outward.ingest.as_ref()?.health();
        (!health.takes_events).then(|| (mount.door.as_str().to_owned(), health))
    });
    let closed = healths.map(|(door, health)| {
        let mut said = Object::from_iter([("door", Value::from(door))]);
        said.extend(health.to_object());
        said
    });
    closed.collect()
}

fn routed(gate: &Gate, is_ready: bool, said: &Object<'_>) -> Routed {
    let mut routed = Routed::object(if is_ready { 200 } else { 503 }, said);
    if !is_ready {
        add_retry_after(&mut routed.0, gate.limits.retry_after_seconds_min);
    }
    routed
}

/// `GET /`: the doors of this gate.
pub(in crate::http) async fn doors(State(gate): State<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.index.get_or_init(|| FixedDocument::json(index(&gate))).answer(&headers)
}

fn index(gate: &Gate) -> Vec<u8> {
    let places = gate.doors.iter().flat_map(|mount| {
        let door = mount.door.as_str();
        mount.paths().into_iter().map(move |path| (door, path))
    });
    let doors = places.map(|(door, path)| {
        let door = Object::from_iter([
            ("door", door.into()),
            ("method", "POST".into()),
            ("path", Value::from(path)),
        ]);
        Value::from(door)
    });
    let doors: Value<'_> = doors.collect();
    let mut body = Vec::new();
    write_object(&Object::from_iter([("doors", doors)]), &mut body);
    body
}
