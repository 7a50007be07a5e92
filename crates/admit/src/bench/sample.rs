//! Sample events of the bench: a player connect event as sent by the plugin, about 700 bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared generator of event numbers.
#[derive(Clone)]
pub(super) struct Samples {
    next: Arc<AtomicU64>,
    kind: SampleKind,
    remaining: Option<Arc<AtomicU64>>,
    body: fn(u64) -> String,
}

#[derive(Clone, Copy)]
enum SampleKind {
    /// New numbers.
    Fresh { from: u64 },
    /// Numbers that were sent before, in a cycle.
    Known { from: u64, count: u64 },
    /// Three new numbers, then a known one.
    Mixed { known_from: u64, count: u64, fresh_from: u64 },
}

impl Samples {
    pub(super) fn fresh(from: u64) -> Self {
        Self::of(SampleKind::Fresh { from })
    }

    pub(super) fn known(from: u64, count: u64) -> Self {
        Self::of(SampleKind::Known { from, count })
    }

    pub(super) fn mixed(known_from: u64, count: u64, fresh_from: u64) -> Self {
        Self::of(SampleKind::Mixed { known_from, count, fresh_from })
    }

    fn of(kind: SampleKind) -> Self {
        Self { next: Arc::default(), kind, remaining: None, body }
    }

    /// Limits the samples to `count` events.
    pub(super) fn at_most(self, count: u64) -> Self {
        Self { remaining: Some(Arc::new(AtomicU64::new(count))), ..self }
    }

    /// Uses envelopes of the ingestion gate as bodies.
    pub(super) fn enveloped(self) -> Self {
        Self { body: platform_envelope, ..self }
    }

    /// Body of the next event; `None` when there are no more.
    pub(super) fn next_body(&self) -> Option<String> {
        self.next().map(self.body)
    }

    /// Number of the next event; `None` when there are no more.
    pub(super) fn next(&self) -> Option<u64> {
        if let Some(remaining) = &self.remaining {
            remaining
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1))
                .ok()?;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        Some(match self.kind {
            SampleKind::Fresh { from } => from + index,
            SampleKind::Known { from, count } => from + index % count,
            SampleKind::Mixed { known_from, count, .. } if index % 4 == 3 => {
                known_from + index % count
            }
            SampleKind::Mixed { fresh_from, .. } => fresh_from + index,
        })
    }
}

/// Body of event number `number`.
pub(super) fn body(number: u64) -> String {
    let sequence = 1_739_980_000_001 + number;
    format!(
        concat!(
            r#"{{"envelope":{{"event_name":"pixel_control.player.playermanagercallback_playerconnect","#,
            r#""schema_version":"2026-02-19.1","#,
            r#""event_id":"pc-evt-player-playermanagercallback_playerconnect-{sequence}","#,
            r#""event_category":"player","source_callback":"PlayerManagerCallback.PlayerConnect","#,
            r#""source_sequence":{sequence},"source_time":1739980000,"#,
            r#""idempotency_key":"pc-idem-{number:040x}","#,
            r#""payload":{{"arguments_count":1,"arguments":[{{"type":"string","value":"player_login"}}]}},"#,
            r#""metadata":{{"plugin_version":"1.0.0","schema_version":"2026-02-19.1","#,
            r#""mode_family":"multi-mode","signal_kind":"callback"}}}},"#,
            r#""transport":{{"attempt":1,"max_attempts":3,"retry_backoff_ms":250,"auth_mode":"none"}}}}"#,
        ),
        sequence = sequence,
        number = number,
    )
}

/// Envelope of event number `number`, as sent by an edge device.
pub(super) fn device_envelope(number: u64) -> String {
    format!(
        concat!(
            r#"{{"schema_version":1,"event_id":"evt_{number:026}","type":"proposal.task","#,
            r#""ts":"2026-02-16T23:10:21Z","session_id":"sess_01JZ4J1M9V52K8GSRP8YQ0N2YA","#,
            r#""device_id":"pi-livingroom-01","payload":{{"intent":"server.log_summary","#,
            r#""confidence":0.84,"user_text":"summarize last night crash logs and list which "#,
            r#"services were restarted, how often, and what the last lines before each restart "#,
            r#"were; leave out the ones that were restarted by hand"}}}}"#,
        ),
        number = number,
    )
}

/// Envelope of event number `number`, as pushed by a data platform: a row of a fraud stream, about 1000
/// bytes.
pub(super) fn platform_envelope(number: u64) -> String {
    format!(
        concat!(
            r#"{{"event_id":"{number:064x}","event_type":"s3_event_stream_with_fraud_6B","#,
            r#""schema_version":"v1","ts_utc":"2026-01-01T00:00:00.000000Z",{pins},"#,
            r#""run_id":"c25a2675fbfbacd952b13bb594880e92","platform_run_id":"{run}","#,
            r#""scenario_run_id":"fd17b1049bbce9df478c22ba1740e9ea","#,
            r#""producer":"svc:world_stream_producer","payload":{{"flow_id":{number},"event_seq":0,"#,
            r#""event_type":"AUTH_REQUEST","ts_utc":"2026-01-01T00:00:00.000000Z","amount":12.5,"#,
            r#"{pins},"fraud_flag":false,"campaign_id":null}}}}"#,
        ),
        number = number,
        run = RUN,
        pins = PINS,
    )
}

/// Run id of the envelopes.
pub(super) const RUN: &str = "platform_20260212T085637Z";

const PINS: &str = concat!(
    r#""manifest_fingerprint":"c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8","#,
    r#""parameter_hash":"56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7","#,
    r#""seed":42,"scenario_id":"baseline_v1""#,
);

/// Bodies of `count` events as JSON lines; `None` when there are no more.
pub(super) fn lines(samples: &Samples, count: usize) -> Option<String> {
    let mut lines = String::with_capacity(count * 800);
    for _ in 0..count {
        lines.push_str(&samples.next_body()?);
        lines.push('\n');
    }
    Some(lines)
}
