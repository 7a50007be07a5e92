//! Everything the gate counts, as the text that Prometheus reads.
//!
//! Written by hand over the atomics that are there anyway: a registry would keep every number a
//! second time. A family is opened with its help and type, then filled; nothing is said twice.

use std::fmt::{Display, Write as _};

use admit_core::Code;
use admit_ledger::Status;
use admit_ledger::gauges::{Gauges, Histogram};

use crate::gate::Gate;
use crate::metrics::{ByCode, DoorCounters, Metrics};

/// The media type of [`write()`]'s text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the gate and its ledger count, for whoever may see the doors that `sees` says.
pub(crate) fn write(
    gate: &Gate,
    status: Option<&Status>,
    sees: impl Fn(&DoorCounters) -> bool,
) -> String {
    let mut page = Page::default();
    let doors: Vec<&DoorCounters> =
        gate.metrics().doors().iter().filter(|door| sees(door)).collect();
    doors_part(&mut page, gate, &doors);
    gate_part(&mut page, gate);
    artifacts_part(&mut page, gate);
    ledger_part(&mut page, gate, status);
    retention_part(&mut page, gate);
    reserve_part(&mut page, gate);
    page.text.push_str(&gate.ledger.exposition());
    page.text
}

fn doors_part(page: &mut Page, gate: &Gate, doors: &[&DoorCounters]) {
    page.family(
        "admit_admissions_total",
        "counter",
        "Verdicts of the ledger, by door and verdict.",
    );
    for counters in doors {
        for (verdict, count) in counters.admissions() {
            page.sample("", &[("door", counters.door.as_str()), ("verdict", verdict)], count);
        }
    }
    page.family(
        "admit_refusals_total",
        "counter",
        "Requests turned away before the ledger was asked; door is empty where none was reached.",
    );
    for counters in doors {
        page.by_code(counters.door.as_str(), &counters.refusals);
    }
    page.by_code("", &gate.metrics().refusals);
    page.family(
        "admit_refusals_not_kept_total",
        "counter",
        "Refused submissions that were answered but not kept: the quota of their producer is used up.",
    );
    for counters in doors {
        let door = counters.door.as_str();
        page.sample("", &[("door", door)], counters.refusals_not_kept.get());
    }
    page.family(
        "admit_faults_total",
        "counter",
        "Events that got no verdict because of our side, by door and code.",
    );
    for counters in doors {
        page.by_code(counters.door.as_str(), &counters.faults);
    }
}

fn gate_part(page: &mut Page, gate: &Gate) {
    let metrics = gate.metrics();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("commit", gate.commit())];
    page.family("admit_build_info", "gauge", "Always 1; says in its labels what is running.");
    page.sample("", &build, 1);
    page.one(
        "admit_answers_late_total",
        "counter",
        "Answers that came too late for the producer, while the ledger finished.",
        metrics.answers_late.get(),
    );
    page.one(
        "admit_panics_total",
        "counter",
        "Requests that ended in a defect of the gate.",
        metrics.panics.get(),
    );
    connections(page, gate, metrics);
    page.family(
        "admit_effects_total",
        "counter",
        "Effects settled, or found ambiguous at the start, by outcome.",
    );
    for (outcome, count) in metrics.effects.by_outcome() {
        let published: u64 = gate.ingests().map(|ingest| ingest.settled(outcome)).sum();
        let records: u64 = gate.publisher.iter().map(|publisher| publisher.settled(outcome)).sum();
        page.sample("", &[("outcome", outcome)], count + published + records);
    }
    page.one(
        "admit_events_in_flight",
        "gauge",
        "Events between the door and their answer now.",
        gate.events_in_flight(),
    );
    page.one(
        "admit_draining",
        "gauge",
        "1 while the gate is shutting down.",
        u8::from(gate.is_draining()),
    );
}

fn connections(page: &mut Page, gate: &Gate, metrics: &Metrics) {
    page.one("admit_connections", "gauge", "Connections open now.", metrics.connections_open());
    page.one(
        "admit_connections_unauthenticated",
        "gauge",
        "Connections open now on which no request was authenticated yet.",
        gate.unauthenticated.count(),
    );
    page.one(
        "admit_websockets",
        "gauge",
        "WebSockets that carry events, open now.",
        metrics.websockets.now(),
    );
    page.one(
        "admit_grpc_streams",
        "gauge",
        "gRPC streams that carry events, open now.",
        metrics.grpc_streams.now(),
    );
    page.one(
        "admit_connections_accepted_total",
        "counter",
        "Connections accepted so far.",
        metrics.connections.get(),
    );
    page.one(
        "admit_connections_turned_away_total",
        "counter",
        "Connections over the limit, accepted only to be told so.",
        metrics.connections_turned_away.get(),
    );
    page.one(
        "admit_connections_closed_at_once_total",
        "counter",
        "Unauthenticated connections closed unanswered, over the limit of an address or of all of them.",
        metrics.connections_closed_at_once.get(),
    );
    page.one(
        "admit_tls_handshake_failures_total",
        "counter",
        "Connections that ended before TLS was agreed on.",
        metrics.tls_handshake_failures.get(),
    );
}

fn artifacts_part(page: &mut Page, gate: &Gate) {
    page.one(
        "admit_artifacts_waiting",
        "gauge",
        "Receipts and records that are not in the artifacts yet, where they are written behind.",
        gate.ingests().map(|ingest| ingest.files_waiting()).sum::<u64>(),
    );
}

fn ledger_part(page: &mut Page, gate: &Gate, status: Option<&Status>) {
    page.one(
        "admit_ledger_healthy",
        "gauge",
        "1 while the last write to the ledger succeeded and no commit hangs.",
        u8::from(gate.ledger.is_healthy()),
    );
    if let Some(gauges) = gate.ledger.gauges() {
        commits(page, gauges);
    }
    let Some(status) = status else { return };
    page.one(
        "admit_ledger_size_bytes",
        "gauge",
        "Bytes on disk, of the ledger and its log.",
        status.bytes,
    );
    page.one("admit_ledger_admissions", "gauge", "Admissions kept.", status.admissions);
    page.one("admit_ledger_sightings", "gauge", "Sightings of copies kept.", status.sightings);
    page.one("admit_ledger_refusals", "gauge", "Refused submissions kept.", status.refusals);
    page.one(
        "admit_ledger_refusal_bytes",
        "gauge",
        "What the kept refusals cost by the measure of their quota: bodies, messages, facts and rows.",
        status.refusal_bytes,
    );
}

fn retention_part(page: &mut Page, gate: &Gate) {
    let Some(retention) = &gate.retention else { return };
    let jump = retention.jump();
    page.one(
        "admit_retention_stopped",
        "gauge",
        "1 while the clock is ahead of trusted time and retention removes nothing.",
        u8::from(jump.is_some()),
    );
    page.one(
        "admit_retention_clock_ahead_seconds",
        "gauge",
        "How far the clock was ahead of trusted time when retention last looked; 0 while it goes on.",
        jump.map_or(0, |jump| jump.wall.0.saturating_sub(jump.trusted.0) / 1_000),
    );
    page.family(
        "admit_retention_removed_total",
        "counter",
        "What retention has removed since the start, by kind.",
    );
    for (what, count) in retention.removed() {
        page.sample("", &[("what", what)], count);
    }
}

fn reserve_part(page: &mut Page, gate: &Gate) {
    let Some(reserve) = &gate.reserve else { return };
    page.one(
        "admit_disk_below_reserve",
        "gauge",
        "1 while the disk has less room than its reserve and only copies are answered.",
        u8::from(reserve.is_low()),
    );
    page.one(
        "admit_disk_free_bytes",
        "gauge",
        "Free bytes on the disk of the data folder when it was last looked at.",
        reserve.free_bytes(),
    );
}

fn commits(page: &mut Page, gauges: &Gauges) {
    page.one(
        "admit_ledger_queue_depth",
        "gauge",
        "Calls that wait for the ledger's writer now.",
        gauges.waiting(),
    );
    page.one(
        "admit_ledger_log_bytes",
        "gauge",
        "Bytes in the write-ahead log as of the last commit.",
        gauges.log_bytes(),
    );
    page.one(
        "admit_ledger_log_held_back",
        "gauge",
        "1 while a reader keeps a long write-ahead log from starting over.",
        u8::from(gauges.is_log_held_back()),
    );
    page.one(
        "admit_ledger_commit_failures_total",
        "counter",
        "Commits that did not go through or were not confirmed.",
        gauges.commit_failures(),
    );
    page.histogram(
        "admit_ledger_commit_duration_seconds",
        "From the first statement of a commit until it was durable.",
        &gauges.commit_micros,
        seconds,
    );
    page.histogram(
        "admit_ledger_commit_events",
        "Events that shared a commit.",
        &gauges.commit_events,
        |events| events.to_string(),
    );
}

/// Microseconds as seconds, exactly: a binary fraction would print `0.00025` as something else.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The page while it is written.
#[derive(Default)]
struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    /// Starts a family; the samples that follow are its own.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample of the family, with `suffix` on its name.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let name = self.family;
        match labels.as_slice() {
            [] => self.line(format_args!("{name}{suffix} {value}")),
            labels => self.line(format_args!("{name}{suffix}{{{}}} {value}", labels.join(","))),
        }
    }

    /// A family of one sample.
    fn one(&mut self, name: &'static str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }

    fn by_code(&mut self, door: &str, counters: &ByCode) {
        for code in Code::ALL {
            let labels = [("door", door), ("code", code.as_str())];
            self.sample("", &labels, counters.of(*code).get());
        }
    }

    fn histogram<const N: usize>(
        &mut self,
        name: &'static str,
        help: &str,
        values: &Histogram<N>,
        unit: impl Fn(u64) -> String,
    ) {
        self.family(name, "histogram", help);
        let (at_most, count) = values.cumulative();
        for (bound, at_most) in at_most {
            self.sample("_bucket", &[("le", &unit(bound))], at_most);
        }
        self.sample("_bucket", &[("le", "+Inf")], count);
        self.sample("_sum", &[], unit(values.sum()));
        self.sample("_count", &[], count);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes every line");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_without_rounding() {
        for (micros, text) in
            [(0, "0"), (100, "0.0001"), (2_500, "0.0025"), (1_000_000, "1"), (2_500_000, "2.5")]
        {
            assert_eq!(seconds(micros), text);
        }
    }

    #[test]
    fn no_label_can_break_out_of_its_quotes() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
