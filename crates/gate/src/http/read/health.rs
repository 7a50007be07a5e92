//! Is it alive, is it ready, which doors are there. Nobody needs a key for these.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use axum::extract::State;

use super::Routed;
use crate::gate::{Gate, add_retry_after};

/// `GET /livez`: the process answers. Says nothing about the ledger, so that trouble there does
/// not get the process killed.
pub(in crate::http) async fn livez() -> Routed {
    Routed::object(200, &Object::from_iter([("alive", Value::from(true))]))
}

/// `GET /readyz`: events can be sent here, or why not.
pub(in crate::http) async fn readyz(State(gate): State<Arc<Gate>>) -> Routed {
    let mut reasons = Vec::new();
    if gate.is_draining() {
        reasons.push("the gate is shutting down");
    }
    if !gate.ledger.is_healthy() {
        reasons.push("the last write to the ledger failed");
    }
    let is_ready = reasons.is_empty();
    let mut routed = Routed::object(
        if is_ready { 200 } else { 503 },
        &Object::from_iter([("ready", Value::from(is_ready)), ("reasons", Value::from(reasons))]),
    );
    if !is_ready {
        add_retry_after(&mut routed.0, gate.limits.retry_after_seconds_min);
    }
    routed
}

/// `GET /`: the doors of this gate.
pub(in crate::http) async fn doors(State(gate): State<Arc<Gate>>) -> Routed {
    let doors = gate.doors.iter().map(|mount| {
        let door = Object::from_iter([
            ("door", mount.door.as_str().into()),
            ("method", "POST".into()),
            ("path", Value::from(mount.path.as_str())),
        ]);
        Value::from(door)
    });
    let doors: Value<'_> = doors.collect();
    Routed::object(200, &Object::from_iter([("doors", doors)]))
}
