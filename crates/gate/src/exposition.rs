//! Metrics of the gate in the Prometheus text format.
//!
//! Rendered directly from the atomics of the gate: a registry would hold every number a second time. A
//! family starts with its help and type, followed by its samples.

use std::fmt::{Display, Write as _};

use admit_core::Code;
use admit_ledger::Status;
use admit_ledger::gauges::{Gauges, Histogram};

use crate::gate::Gate;
use crate::metrics::{ByCode, DoorCounters, Metrics};

/// Media type of the text from [`write()`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders the metrics of the gate and its ledger, and of the doors for which `may_see` is true.
pub(crate) fn write(
    gate: &Gate,
    status: Option<&Status>,
    may_see: impl Fn(&DoorCounters) -> bool,
) -> String {
    let mut page = MetricsPage::default();
    let doors: Vec<&DoorCounters> =
        gate.metrics().doors().iter().filter(|door| may_see(door)).collect();
    doors_part(&mut page, gate, &doors);
    gate_part(&mut page, gate);
    artifacts_part(&mut page, gate);
    ledger_part(&mut page, gate, status);
    retention_part(&mut page, gate);
    reserve_part(&mut page, gate);
    page.text.push_str(&gate.ledger.exposition());
    page.text
}

fn doors_part(page: &mut MetricsPage, gate: &Gate, doors: &[&DoorCounters]) {
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
        "Requests refused before they reached the ledger; door is empty if none was reached.",
    );
    for counters in doors {
        page.by_code(counters.door.as_str(), &counters.refusals);
    }
    page.by_code("", &gate.metrics().refusals);
    page.family(
        "admit_refusals_not_kept_total",
        "counter",
        "Refused submissions that were not stored because the quota of their producer is used up.",
    );
    for counters in doors {
        let door = counters.door.as_str();
        page.sample("", &[("door", door)], counters.refusals_not_kept.get());
    }
    page.family(
        "admit_faults_total",
        "counter",
        "Events without a verdict because of a fault of the gate, by door and code.",
    );
    for counters in doors {
        page.by_code(counters.door.as_str(), &counters.faults);
    }
}

fn gate_part(page: &mut MetricsPage, gate: &Gate) {
    let metrics = gate.metrics();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("commit", gate.commit())];
    page.family(
        "admit_build_info",
        "gauge",
        "Always 1; its labels are the running version and commit.",
    );
    page.sample("", &build, 1);
    page.single(
        "admit_answers_late_total",
        "counter",
        "Requests that timed out while the ledger completed their write.",
        metrics.answers_late.get(),
    );
    page.single(
        "admit_panics_total",
        "counter",
        "Requests that ended in a panic of the gate.",
        metrics.panics.get(),
    );
    connections(page, gate, metrics);
    page.family(
        "admit_effects_total",
        "counter",
        "Effects settled, or marked ambiguous by recovery, by outcome.",
    );
    for (outcome, count) in metrics.effects.by_outcome() {
        let published: u64 = gate.ingests().map(|ingest| ingest.settled(outcome)).sum();
        let records: u64 = gate.publisher.iter().map(|publisher| publisher.settled(outcome)).sum();
        page.sample("", &[("outcome", outcome)], count + published + records);
    }
    page.single(
        "admit_events_in_flight",
        "gauge",
        "Events in flight between door and reply.",
        gate.events_in_flight(),
    );
    page.single(
        "admit_draining",
        "gauge",
        "1 while the gate is shutting down.",
        u8::from(gate.is_draining()),
    );
}

fn connections(page: &mut MetricsPage, gate: &Gate, metrics: &Metrics) {
    page.single("admit_connections", "gauge", "Open connections.", metrics.connections_open());
    page.single(
        "admit_connections_unauthenticated",
        "gauge",
        "Open connections without an authenticated request yet.",
        gate.unauthenticated.count(),
    );
    page.single(
        "admit_websockets",
        "gauge",
        "Open WebSockets that carry events.",
        metrics.websockets.now(),
    );
    page.single(
        "admit_grpc_streams",
        "gauge",
        "Open gRPC streams that carry events.",
        metrics.grpc_streams.now(),
    );
    page.single(
        "admit_connections_accepted_total",
        "counter",
        "Connections accepted.",
        metrics.connections.get(),
    );
    page.single(
        "admit_connections_turned_away_total",
        "counter",
        "Connections over the limit that were refused with a reply.",
        metrics.connections_turned_away.get(),
    );
    page.single(
        "admit_connections_closed_at_once_total",
        "counter",
        "Unauthenticated connections closed without a reply, over the limit of their address or of all addresses.",
        metrics.connections_closed_at_once.get(),
    );
    page.single(
        "admit_tls_handshake_failures_total",
        "counter",
        "Connections whose TLS handshake failed.",
        metrics.tls_handshake_failures.get(),
    );
}

fn artifacts_part(page: &mut MetricsPage, gate: &Gate) {
    page.single(
        "admit_artifacts_waiting",
        "gauge",
        "Receipts and records queued to be written behind to the artifacts.",
        gate.ingests().map(|ingest| ingest.files_waiting()).sum::<u64>(),
    );
}

fn ledger_part(page: &mut MetricsPage, gate: &Gate, status: Option<&Status>) {
    page.single(
        "admit_ledger_healthy",
        "gauge",
        "1 while the last write to the ledger succeeded and no commit hangs.",
        u8::from(gate.ledger.is_healthy()),
    );
    if let Some(gauges) = gate.ledger.gauges() {
        commits(page, gauges);
    }
    let Some(status) = status else { return };
    page.single(
        "admit_ledger_size_bytes",
        "gauge",
        "Bytes on disk of the ledger and its write-ahead log.",
        status.bytes,
    );
    page.single("admit_ledger_admissions", "gauge", "Stored admissions.", status.admissions);
    page.single(
        "admit_ledger_sightings",
        "gauge",
        "Stored sightings of duplicates.",
        status.sightings,
    );
    page.single("admit_ledger_refusals", "gauge", "Stored refused submissions.", status.refusals);
    page.single(
        "admit_ledger_refusal_bytes",
        "gauge",
        "Quota usage of the stored refusals: bodies, messages, facts and rows.",
        status.refusal_bytes,
    );
}

fn retention_part(page: &mut MetricsPage, gate: &Gate) {
    let Some(retention) = &gate.retention else { return };
    let jump = retention.jump();
    page.single(
        "admit_retention_stopped",
        "gauge",
        "1 while the clock is ahead of trusted time and retention is stopped.",
        u8::from(jump.is_some()),
    );
    page.single(
        "admit_retention_clock_ahead_seconds",
        "gauge",
        "How far the clock was ahead of trusted time at the last sweep; 0 while retention runs.",
        jump.map_or(0, |jump| jump.wall.0.saturating_sub(jump.trusted.0) / 1_000),
    );
    page.family(
        "admit_retention_removed_total",
        "counter",
        "Items removed by retention since the start, by kind.",
    );
    for (what, count) in retention.removed() {
        page.sample("", &[("what", what)], count);
    }
}

fn reserve_part(page: &mut MetricsPage, gate: &Gate) {
    let Some(reserve) = &gate.reserve else { return };
    page.single(
        "admit_disk_below_reserve",
        "gauge",
        "1 while the free disk space is below its reserve and only duplicates are accepted.",
        u8::from(reserve.is_low()),
    );
    page.single(
        "admit_disk_free_bytes",
        "gauge",
        "Free bytes on the disk of the data folder at the last check.",
        reserve.free_bytes(),
    );
}

fn commits(page: &mut MetricsPage, gauges: &Gauges) {
    page.single(
        "admit_ledger_queue_depth",
        "gauge",
        "Calls queued for the ledger's writer.",
        gauges.waiting(),
    );
    page.single(
        "admit_ledger_log_bytes",
        "gauge",
        "Bytes in the write-ahead log at the last commit.",
        gauges.log_bytes(),
    );
    page.single(
        "admit_ledger_log_held_back",
        "gauge",
        "1 while a reader prevents the reset of a long write-ahead log.",
        u8::from(gauges.is_log_held_back()),
    );
    page.single(
        "admit_ledger_commit_failures_total",
        "counter",
        "Commits that failed or were not confirmed.",
        gauges.commit_failures(),
    );
    page.histogram(
        "admit_ledger_commit_duration_seconds",
        "Time from the first statement of a commit until it was durable.",
        &gauges.commit_micros,
        seconds,
    );
    page.histogram(
        "admit_ledger_commit_events",
        "Events per commit.",
        &gauges.commit_events,
        |events| events.to_string(),
    );
}

/// Formats microseconds as seconds, exactly: floating point could not represent `0.00025`.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Page being rendered.
#[derive(Default)]
struct MetricsPage {
    text: String,
    family: &'static str,
}

impl MetricsPage {
    /// Starts a family; the following samples belong to it.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Adds a sample to the family, with `suffix` on its name.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let name = self.family;
        match labels.as_slice() {
            [] => self.line(format_args!("{name}{suffix} {value}")),
            labels => self.line(format_args!("{name}{suffix}{{{}}} {value}", labels.join(","))),
        }
    }

    /// Adds a family with one sample.
    fn single(&mut self, name: &'static str, kind: &str, help: &str, value: impl Display) {
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
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
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
