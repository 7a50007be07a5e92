//! What the outboxes count, as the text that Prometheus reads.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use admit_core::Clock as _;
use admit_edge::Counters;
use admit_gate::SystemClock;

use super::outboxes::Outboxes;

type Read = fn(&Counters, i64) -> u64;

/// Name, type, help, and where the number is.
const FAMILIES: [(&str, &str, &str, Read); 14] = [
    ("depth", "gauge", "Events that wait for their acknowledgement.", |c, _| c.depth.load(Relaxed)),
    ("oldest_age_seconds", "gauge", "How long the oldest of them has waited.", oldest_age),
    ("bytes", "gauge", "Bytes of the outbox on disk, log included.", |c, _| c.bytes.load(Relaxed)),
    ("invalid", "gauge", "Invalid envelopes that are kept.", |c, _| c.invalid.load(Relaxed)),
    ("connected", "gauge", "1 while there is a connection to the gate.", |c, _| {
        u64::from(c.is_connected.load(Relaxed))
    }),
    ("enqueued_total", "counter", "Events stored.", |c, _| c.enqueued.load(Relaxed)),
    ("full_total", "counter", "Events refused because the disk budget was used up.", |c, _| {
        c.refused_full.load(Relaxed)
    }),
    ("invalid_unkept_total", "counter", "Invalid envelopes not kept: quota used up.", |c, _| {
        c.invalid_unkept.load(Relaxed)
    }),
    ("sent_total", "counter", "Events sent, each time.", |c, _| c.sent.load(Relaxed)),
    ("acked_total", "counter", "Events acknowledged and removed.", |c, _| c.acked.load(Relaxed)),
    ("nacked_total", "counter", "Attempts that the gate refused.", |c, _| c.nacked.load(Relaxed)),
    ("unanswered_total", "counter", "Attempts that brought no answer.", |c, _| {
        c.unanswered.load(Relaxed)
    }),
    ("connects_total", "counter", "Connections made.", |c, _| c.connects.load(Relaxed)),
    ("connect_failures_total", "counter", "Connections that could not be made.", |c, _| {
        c.connect_failures.load(Relaxed)
    }),
];

fn oldest_age(counters: &Counters, now: i64) -> u64 {
    match counters.oldest_at.load(Relaxed) {
        0 => 0,
        oldest => u64::try_from(now).unwrap_or(0).saturating_sub(oldest) / 1000,
    }
}

/// Every family, with a sample for each outbox. Names of doors and producers need no escaping.
pub(super) fn write(outboxes: &Outboxes) -> String {
    let all = outboxes.all();
    let now = SystemClock.now().0;
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes every line");
    };
    for (name, kind, help, read) in FAMILIES {
        line(format_args!("# HELP admit_edge_outbox_{name} {help}"));
        line(format_args!("# TYPE admit_edge_outbox_{name} {kind}"));
        for (door, producer, outbox) in &all {
            let value = read(outbox.counters(), now);
            line(format_args!(
                "admit_edge_outbox_{name}{{door=\"{door}\",producer=\"{producer}\"}} {value}"
            ));
        }
    }
    let closed = outboxes.closed();
    line(format_args!("# HELP admit_edge_outbox_closed Outboxes that cannot be opened."));
    line(format_args!("# TYPE admit_edge_outbox_closed gauge"));
    for (door, producer) in &closed {
        line(format_args!("admit_edge_outbox_closed{{door=\"{door}\",producer=\"{producer}\"}} 1"));
    }
    text
}
