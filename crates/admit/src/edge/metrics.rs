//! Metrics of the outboxes, in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use admit_core::Clock as _;
use admit_edge::OutboxCounters;
use admit_gate::SystemClock;

use super::outboxes::Outboxes;

type CounterValue = fn(&OutboxCounters, i64) -> u64;

/// Name, type, help, and accessor.
const FAMILIES: [(&str, &str, &str, CounterValue); 14] = [
    ("depth", "gauge", "Events waiting for their acknowledgement.", |c, _| c.depth.load(Relaxed)),
    ("oldest_age_seconds", "gauge", "Age of the oldest waiting event in seconds.", oldest_age),
    ("bytes", "gauge", "Bytes of the outbox on disk, WAL included.", |c, _| c.bytes.load(Relaxed)),
    ("invalid", "gauge", "Stored invalid envelopes.", |c, _| c.invalid.load(Relaxed)),
    ("connected", "gauge", "1 while there is a connection to the gate.", |c, _| {
        u64::from(c.is_connected.load(Relaxed))
    }),
    ("enqueued_total", "counter", "Events stored.", |c, _| c.enqueued.load(Relaxed)),
    ("full_total", "counter", "Events refused because the disk budget was exhausted.", |c, _| {
        c.refused_full.load(Relaxed)
    }),
    (
        "invalid_unkept_total",
        "counter",
        "Invalid envelopes not stored: quota exhausted.",
        |c, _| c.invalid_unkept.load(Relaxed),
    ),
    ("sent_total", "counter", "Events sent, counting every attempt.", |c, _| c.sent.load(Relaxed)),
    ("acked_total", "counter", "Events acknowledged and removed.", |c, _| c.acked.load(Relaxed)),
    ("nacked_total", "counter", "Attempts that the gate refused.", |c, _| c.nacked.load(Relaxed)),
    ("unanswered_total", "counter", "Attempts that timed out or lost their connection.", |c, _| {
        c.unanswered.load(Relaxed)
    }),
    ("connects_total", "counter", "Established connections.", |c, _| c.connects.load(Relaxed)),
    ("connect_failures_total", "counter", "Failed connections.", |c, _| {
        c.connect_failures.load(Relaxed)
    }),
];

fn oldest_age(counters: &OutboxCounters, now: i64) -> u64 {
    match counters.oldest_at.load(Relaxed) {
        0 => 0,
        oldest => u64::try_from(now).unwrap_or(0).saturating_sub(oldest) / 1000,
    }
}

/// Writes every family, with a sample per outbox. Names of doors and producers need no escaping.
pub(super) fn write(outboxes: &Outboxes) -> String {
    let all = outboxes.all();
    let now = SystemClock.now().0;
    let mut text = String::new();
    let mut push_line = |text_line: std::fmt::Arguments<'_>| {
        writeln!(text, "{text_line}").expect("a string takes every line");
    };
    for (name, kind, help, read) in FAMILIES {
        push_line(format_args!("# HELP admit_edge_outbox_{name} {help}"));
        push_line(format_args!("# TYPE admit_edge_outbox_{name} {kind}"));
        for (door, producer, outbox) in &all {
            let value = read(outbox.counters(), now);
            push_line(format_args!(
                "admit_edge_outbox_{name}{{door=\"{door}\",producer=\"{producer}\"}} {value}"
            ));
        }
    }
    let closed = outboxes.closed();
    push_line(format_args!("# HELP admit_edge_outbox_closed Outboxes that could not be opened."));
    push_line(format_args!("# TYPE admit_edge_outbox_closed gauge"));
    for (door, producer) in &closed {
        push_line(format_args!(
            "admit_edge_outbox_closed{{door=\"{door}\",producer=\"{producer}\"}} 1"
        ));
    }
    text
}
