//! Sample events of the Pixel Control plugin, one for each number.

use serde_json::{Value, json};

/// Sequence of event 0; the plugin starts at its load time in milliseconds.
pub(crate) const SEQUENCE: u64 = 1_739_980_000_000;

const VERSION: &str = "2026-02-19.1";

/// An event to post.
#[derive(Clone, Debug)]
pub(crate) struct Post(Value);

/// The sample request of the contract.
pub(crate) fn sample() -> Post {
    Post(json!({
        "envelope": {
            "event_name": "pixel_control.lifecycle.maniaplanet_beginmatch",
            "schema_version": "2026-02-19.1",
            "event_id": "pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001",
            "event_category": "lifecycle",
            "source_callback": "ManiaPlanet.BeginMatch",
            "source_sequence": 1_739_980_000_001_u64,
            "source_time": 1_739_980_000,
            "idempotency_key": "pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65",
            "payload": {},
            "metadata": {},
        },
        "transport": {
            "attempt": 1,
            "max_attempts": 3,
            "retry_backoff_ms": 250,
            "auth_mode": "api_key",
        },
    }))
}

/// Event `n`: a match begins on the server `login`. Valid under the strict schema too.
pub(crate) fn match_begin(n: u64, login: &str) -> Post {
    lifecycle(n, login, "match.begin", "ManiaPlanet.BeginMatch")
}

/// A lifecycle event of the server `login` with this variant and source callback.
pub(crate) fn lifecycle(n: u64, login: &str, variant: &str, callback: &str) -> Post {
    let (phase, state) = variant.split_once('.').expect("a variant is phase.state");
    let payload = json!({
        "variant": variant,
        "phase": phase,
        "state": state,
        "source_channel": "maniaplanet",
        "raw_source_callback": callback,
        "raw_callback_summary": { "arguments_count": 0, "arguments": [] },
    });
    let mut post = envelope(n, "lifecycle", callback, payload, metadata(login, "callback"));
    post.0["envelope"]["metadata"]["lifecycle_variant"] = variant.into();
    post
}

/// Registration of the plugin on the server `login`.
pub(crate) fn registration(n: u64, login: &str) -> Post {
    let payload = json!({
        "type": "plugin_registration",
        "plugin": { "id": 100, "name": "Pixel Control", "version": "0.1.0-dev" },
        "capabilities": {},
        "context": context(login),
        "timestamp": 1_739_980_000,
    });
    envelope(n, "connectivity", "plugin_registration", payload, metadata(login, "connectivity"))
}

/// Heartbeat of the plugin on the server `login`.
pub(crate) fn heartbeat(n: u64, login: &str) -> Post {
    let payload = json!({
        "type": "plugin_heartbeat",
        "queue_depth": 0,
        "context": context(login),
        "timestamp": 1_739_980_000,
    });
    envelope(n, "connectivity", "plugin_heartbeat", payload, metadata(login, "connectivity"))
}

fn envelope(n: u64, category: &str, callback: &str, payload: Value, metadata: Value) -> Post {
    let sequence = SEQUENCE + n;
    let name = callback.to_lowercase().replace('.', "_");
    Post(json!({
        "envelope": {
            "event_name": format!("pixel_control.{category}.{name}"),
            "schema_version": VERSION,
            "event_id": format!("pc-evt-{category}-{name}-{sequence}"),
            "event_category": category,
            "source_callback": callback,
            "source_sequence": sequence,
            "source_time": 1_739_980_000 + n / 1000,
            "idempotency_key": idempotency_key(n),
            "payload": payload,
            "metadata": metadata,
        },
        "transport": {
            "attempt": 1,
            "max_attempts": 3,
            "retry_backoff_ms": 250,
            "auth_mode": "none",
        },
    }))
}

/// The idempotency key of event number `n`.
pub(crate) fn idempotency_key(n: u64) -> String {
    format!("pc-idem-{n:040x}")
}

fn metadata(login: &str, signal_kind: &str) -> Value {
    json!({
        "plugin_version": "0.1.0-dev",
        "schema_version": VERSION,
        "mode_family": "multi-mode",
        "signal_kind": signal_kind,
        "context": context(login),
    })
}

fn context(login: &str) -> Value {
    json!({
        "server": {
            "login": login,
            "name": format!("Arena of {login}"),
            "title_id": "SMStormElite@nadeolabs",
            "game_mode": "Elite",
            "current_map": { "uid": "uid-a", "name": "Map A", "file": "a.Map.Gbx", "environment": "Storm" },
        },
        "players": { "active": 3, "total": 4, "spectators": 1 },
    })
}

impl Post {
    /// The same event with another value at an existing JSON pointer.
    pub(crate) fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let member = self.0.pointer_mut(pointer);
        *member.unwrap_or_else(|| panic!("the event has no {pointer}")) = value.into();
        self
    }

    /// The same event as the producer's attempt number `attempt`.
    pub(crate) fn attempt(self, attempt: u64) -> Self {
        self.set("/transport/attempt", attempt)
    }

    /// The same lifecycle event with an argument of `bytes` bytes.
    pub(crate) fn padded(self, bytes: usize) -> Self {
        let summary = "/envelope/payload/raw_callback_summary";
        let argument = json!({ "type": "string", "value": "x".repeat(bytes) });
        self.set(summary, json!({ "arguments_count": 1, "arguments": [argument] }))
    }

    /// The string at a JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).expect("a string")
    }

    /// The request body.
    pub(crate) fn body(&self) -> String {
        self.0.to_string()
    }
}
