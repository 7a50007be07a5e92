//! The events the bench sends: a player that connects, as a real plugin tells it, about 700 bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the numbers of events come from.
#[derive(Clone)]
pub(super) struct Samples {
    next: Arc<AtomicU64>,
    kind: Kind,
    left: Option<Arc<AtomicU64>>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Numbers nobody has used.
    Fresh { from: u64 },
    /// Numbers that were sent before, over and over.
    Known { from: u64, count: u64 },
    /// Three fresh ones, then a known one.
    Mixed { known_from: u64, count: u64, fresh_from: u64 },
}

impl Samples {
    pub(super) fn fresh(from: u64) -> Self {
        Self::of(Kind::Fresh { from })
    }

    pub(super) fn known(from: u64, count: u64) -> Self {
        Self::of(Kind::Known { from, count })
    }

    pub(super) fn mixed(known_from: u64, count: u64, fresh_from: u64) -> Self {
        Self::of(Kind::Mixed { known_from, count, fresh_from })
    }

    fn of(kind: Kind) -> Self {
        Self { next: Arc::default(), kind, left: None }
    }

    /// The same, ending after `count`.
    pub(super) fn at_most(self, count: u64) -> Self {
        Self { left: Some(Arc::new(AtomicU64::new(count))), ..self }
    }

    /// The number of the next event, shared by all connections; `None` when there are no more.
    pub(super) fn next(&self) -> Option<u64> {
        if let Some(left) = &self.left {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .ok()?;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        Some(match self.kind {
            Kind::Fresh { from } => from + index,
            Kind::Known { from, count } => from + index % count,
            Kind::Mixed { known_from, count, .. } if index % 4 == 3 => known_from + index % count,
            Kind::Mixed { fresh_from, .. } => fresh_from + index,
        })
    }
}

/// The body of event number `number`.
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

/// The envelope of event number `number`, as an edge device sends it.
pub(super) fn envelope(number: u64) -> String {
    format!(
        concat!(
            r#"{{"schema_version":1,"event_id":"evt_{number:026}","type":"proposal.task","#,
            r#""ts":"2026-02-16T23:10:21Z","session_id":"sess_01JZ4J1M9V52K8GSRP8YQ0N2YA","#,
            r#""device_id":"pi-livingroom-01","payload":{{"intent":"server.log_summary","#,
            r#""confidence":0.84,"user_text":"summarize last night crash logs and tell me which "#,
            r#"services were restarted, how often, and what the last lines before each restart "#,
            r#"said; leave out the ones that were restarted by hand"}}}}"#,
        ),
        number = number,
    )
}

/// `count` events, one on a line, or `None` when there are no more.
pub(super) fn lines(samples: &Samples, count: usize) -> Option<String> {
    let mut lines = String::with_capacity(count * 800);
    for _ in 0..count {
        lines.push_str(&body(samples.next()?));
        lines.push('\n');
    }
    Some(lines)
}
