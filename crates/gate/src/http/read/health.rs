//! Is it alive, is it ready, which doors are there. Nobody needs a key for these.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use axum::extract::State;
use http::Uri;

use super::Routed;
use crate::gate::{Gate, add_retry_after};

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
    said.push(
        "checks",
        Object::from_iter([("ledger", Value::from(ledger)), ("doors", doors.into())]),
    );
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
        said.push("load", load);
    }
    routed(&gate, is_ready, &said)
}

fn is_verbose(uri: &Uri) -> bool {
    let mut words = uri.query().unwrap_or_default().split('&');
    words.any(|word| matches!(word, "verbose" | "verbose=" | "verbose=1" | "verbose=true"))
}

fn readiness(gate: &Gate) -> (bool, Object<'static>) {
    let mut reasons = Vec::new();
    if gate.is_draining() {
        reasons.push("the gate is shutting down");
    }
    if !gate.ledger.is_healthy() {
        reasons.push("the last write to the ledger failed");
    }
    let is_ready = reasons.is_empty();
    (
        is_ready,
        Object::from_iter([("ready", Value::from(is_ready)), ("reasons", Value::from(reasons))]),
    )
}

fn routed(gate: &Gate, is_ready: bool, said: &Object<'_>) -> Routed {
    let mut routed = Routed::object(if is_ready { 200 } else { 503 }, said);
    if !is_ready {
        add_retry_after(&mut routed.0, gate.limits.retry_after_seconds_min);
    }
    routed
}

/// `GET /`: the doors of this gate.
pub(in crate::http) async fn doors(State(gate): State<Arc<Gate>>) -> Routed {
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
    Routed::object(200, &Object::from_iter([("doors", doors)]))
}
