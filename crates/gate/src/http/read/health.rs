//! Liveness, readiness and the list of doors. These routes need no key.

use std::sync::Arc;

use admit_core::json::{Object, Value, write_object};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};

use super::RouteReply;
use crate::gate::{Gate, add_retry_after};
use crate::http::FixedDocument;
use crate::retention::RetentionSweep;

/// Advice after a clock jump.
const CLOCK_JUMP_ACTION: &str = "the clock is ahead of trusted time, retention removes nothing; correct the \
                                 clock, or run: admit ledger confirm-time";

/// `GET /livez`: liveness. It does not depend on the ledger, so that a ledger fault does not cause a restart.
pub(in crate::http) async fn livez() -> RouteReply {
    RouteReply::object(200, &Object::from_iter([("alive", Value::from(true))]))
}

/// `GET /readyz`: readiness, with the reasons if the gate is not ready.
pub(in crate::http) async fn readyz(State(gate): State<Arc<Gate>>) -> RouteReply {
    let (is_ready, status) = readiness(&gate);
    readiness_reply(&gate, is_ready, &status)
}

/// `GET /healthz`: readiness with its checks; `?verbose` adds the load.
pub(in crate::http) async fn healthz(State(gate): State<Arc<Gate>>, uri: Uri) -> RouteReply {
    let (is_ready, mut status) = readiness(&gate);
    let ledger = if gate.ledger.is_healthy() { "ok" } else { "failing" };
    let doors = if gate.is_draining() { "draining" } else { "ok" };
    let jump = gate.retention.as_ref().and_then(RetentionSweep::jump);
    let retention = if jump.is_none() { "ok" } else { "clock_jump" };
    status.push(
        "checks",
        Object::from_iter([
            ("ledger", Value::from(ledger)),
            ("doors", doors.into()),
            ("retention", retention.into()),
        ]),
    );
    if let Some(jump) = jump {
        let details = Object::from_iter([
            ("trusted_time", Value::from(jump.trusted.to_rfc3339_millis())),
            ("clock", jump.wall.to_rfc3339_millis().into()),
            ("action", CLOCK_JUMP_ACTION.into()),
        ]);
        status.push("retention", details);
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
        // Every panic is a defect, so operators must see it here.
        let panics = gate.metrics().panics.get();
        if panics > 0 {
            load.push("admit_panics_total", panics);
        }
        status.push("load", load);
    }
    readiness_reply(&gate, is_ready, &status)
}

fn is_verbose(uri: &Uri) -> bool {
    let mut words = uri.query().unwrap_or_default().split('&');
    words.any(|word| matches!(word, "verbose" | "verbose=" | "verbose=1" | "verbose=true"))
}

/// Whether the gate is ready, same as `/readyz`.
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
        reasons.push("the disk is below its reserve; only duplicates of known events are accepted");
    }
    let closed = closed_doors(gate);
    if !closed.is_empty() && closed.len() == gate.doors.len() {
        reasons.push("all doors are closed");
    }
    let is_ready = reasons.is_empty();
    let status = Object::from_iter([
        ("ready", Value::from(is_ready)),
        ("reasons", Value::from(reasons)),
        ("closed_doors", closed.into()),
    ]);
    (is_ready, status)
}

/// Doors that accept no events. Only reason codes, because this route needs no key; details are at
/// `/v1/ops/health`.
fn closed_doors(gate: &Gate) -> Vec<Object<'static>> {
    let healths = gate.doors.iter().filter_map(|mount| {
        let health = mount.effect_target.ingest.as_ref()?.health();
        (!health.takes_events).then(|| (mount.door.as_str().to_owned(), health))
    });
    let closed = healths.map(|(door, health)| {
        let mut item = Object::from_iter([("door", Value::from(door))]);
        item.extend(health.to_object());
        item
    });
    closed.collect()
}

fn readiness_reply(gate: &Gate, is_ready: bool, status: &Object<'_>) -> RouteReply {
    let mut reply = RouteReply::object(if is_ready { 200 } else { 503 }, status);
    if !is_ready {
        add_retry_after(&mut reply.0, gate.limits.retry_after_seconds_min);
    }
    reply
}

/// `GET /`: the doors of this gate.
pub(in crate::http) async fn doors(State(gate): State<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.index.get_or_init(|| FixedDocument::json(index(&gate))).to_response(&headers)
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
