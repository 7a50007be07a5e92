//! Rows sent over a link and not acknowledged yet.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::outbox_writer::{RowOutcome, SettledRow};
use crate::store::OutboxRow;
use crate::wire::{AckResult, WireReply};

/// Rows in flight on one link, by the name in their reply.
#[derive(Debug)]
pub(crate) struct InFlightRows {
    ack_max: Duration,
    rows: HashMap<String, (OutboxRow, u64)>,
    /// Ordered by deadline; entries of acknowledged rows are skipped.
    deadlines: VecDeque<(Instant, String, u64)>,
    /// Rows that timed out on this link: a reply may still arrive.
    timed_out: HashMap<String, OutboxRow>,
    tickets: u64,
    /// The last refusal without an event id, which may explain a timeout.
    last_unnamed_refusal: Option<String>,
}

impl InFlightRows {
    pub(crate) fn new(ack_max: Duration) -> Self {
        Self {
            ack_max,
            rows: HashMap::new(),
            deadlines: VecDeque::new(),
            timed_out: HashMap::new(),
            tickets: 0,
            last_unnamed_refusal: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether a reply to `name` could belong to another row than `row`.
    pub(crate) fn may_collide(&self, name: &str, row: &OutboxRow) -> bool {
        let is_other = |other: &OutboxRow| other.rowid != row.rowid;
        self.rows.contains_key(name) || self.timed_out.get(name).is_some_and(is_other)
    }

    /// Records that `row` was sent.
    pub(crate) fn sent(&mut self, name: String, row: OutboxRow, now: Instant) {
        self.tickets += 1;
        self.timed_out.remove(&name);
        self.deadlines.push_back((now + self.ack_max, name.clone(), self.tickets));
        self.rows.insert(name, (row, self.tickets));
    }

    /// Settles the row that a reply names.
    pub(crate) fn settle(&mut self, reply: WireReply) -> Option<SettledRow> {
        let Some(name) = reply.name else {
            if let AckResult::Nack { error, .. } = reply.result {
                self.last_unnamed_refusal = Some(error);
            }
            return None;
        };
        let row = match self.rows.remove(&name) {
            Some((row, _)) => row,
            // An acknowledgement after the timeout still counts. A refusal is not counted twice.
            None if reply.result == AckResult::Ack => self.timed_out.remove(&name)?,
            None => return None,
        };
        let outcome = match reply.result {
            AckResult::Ack => RowOutcome::Acked,
            AckResult::Nack { error, retryable, retry_after } => {
                RowOutcome::Failed { error, not_before: retry_after, is_final: !retryable }
            }
        };
        Some(SettledRow { row, outcome })
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        while let Some((at, name, ticket)) = self.deadlines.front() {
            if self.rows.get(name).is_some_and(|(_, current)| current == ticket) {
                return Some(*at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Removes and fails the rows that timed out.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<SettledRow> {
        let mut overdue = Vec::new();
        while self.deadline().is_some_and(|at| at <= now) {
            let Some((_, name, _)) = self.deadlines.pop_front() else { break };
            let Some((row, _)) = self.rows.remove(&name) else { continue };
            let mut error = format!("timeout: no ack within {} ms", self.ack_max.as_millis());
            if let Some(last_unnamed_refusal) = &self.last_unnamed_refusal {
                error.push_str("; last refusal without an id: ");
                error.push_str(last_unnamed_refusal);
            }
            self.timed_out.insert(name, row.clone());
            let outcome = no_ack(error);
            overdue.push(SettledRow { row, outcome });
        }
        overdue
    }

    /// Removes and fails all rows: the link is lost.
    pub(crate) fn fail_all(&mut self, reason: &str) -> Vec<SettledRow> {
        let failed = |(row, _)| {
            let error = format!("no ack: {reason}");
            SettledRow { row, outcome: no_ack(error) }
        };
        self.rows.drain().map(|(_, row)| row).map(failed).collect()
    }
}

fn no_ack(error: String) -> RowOutcome {
    RowOutcome::Failed { error, not_before: Duration::ZERO, is_final: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rowid: i64, event_id: &str) -> OutboxRow {
        let event_id = event_id.to_owned();
        OutboxRow { rowid, event_id, payload_json: "{}".to_owned(), attempt_count: 0 }
    }

    fn ack(name: &str) -> WireReply {
        WireReply { name: Some(name.to_owned()), result: AckResult::Ack }
    }

    #[test]
    fn a_reply_settles_only_the_row_it_names() {
        let now = Instant::now();
        let mut in_flight = InFlightRows::new(Duration::from_secs(1));
        in_flight.sent("a".to_owned(), row(1, "a"), now);
        in_flight.sent("b".to_owned(), row(2, "b"), now);
        assert!(in_flight.settle(ack("c")).is_none(), "no such row was sent");
        assert_eq!(in_flight.settle(ack("b")).expect("it is in flight").row.rowid, 2);
        assert!(in_flight.settle(ack("b")).is_none(), "a second reply settles nothing");
        assert_eq!(in_flight.len(), 1);
    }

    #[test]
    fn a_late_ack_counts_and_a_late_refusal_does_not() {
        let now = Instant::now();
        let mut in_flight = InFlightRows::new(Duration::from_secs(1));
        in_flight.sent("a".to_owned(), row(1, "a"), now);
        assert!(in_flight.overdue(now).is_empty());
        let overdue = in_flight.overdue(now + Duration::from_secs(1));
        assert!(matches!(&overdue[..], [SettledRow { outcome: RowOutcome::Failed { .. }, .. }]));
        let retry_after = Duration::ZERO;
        let result = AckResult::Nack { error: "x".to_owned(), retryable: true, retry_after };
        assert!(in_flight.settle(WireReply { name: Some("a".to_owned()), result }).is_none());
        assert_eq!(in_flight.settle(ack("a")).expect("late").outcome, RowOutcome::Acked);
    }

    #[test]
    fn rows_with_colliding_reply_names_are_never_in_flight_together() {
        let now = Instant::now();
        let mut in_flight = InFlightRows::new(Duration::from_secs(1));
        in_flight.sent("a".to_owned(), row(1, "a"), now);
        assert!(in_flight.may_collide("a", &row(2, "a~other")));
        in_flight.overdue(now + Duration::from_secs(2));
        assert!(in_flight.may_collide("a", &row(2, "a~other")), "its reply may still arrive");
        assert!(!in_flight.may_collide("a", &row(1, "a")), "the same row may be sent again");
    }

    #[test]
    fn a_refusal_without_an_id_explains_a_timeout() {
        let now = Instant::now();
        let mut in_flight = InFlightRows::new(Duration::from_millis(5));
        in_flight.sent("a".to_owned(), row(1, "a"), now);
        let retry_after = Duration::ZERO;
        let result =
            AckResult::Nack { error: "invalid envelope".into(), retryable: false, retry_after };
        assert!(in_flight.settle(WireReply { name: None, result }).is_none());
        let overdue = in_flight.overdue(now + Duration::from_secs(1));
        let RowOutcome::Failed { error, .. } = &overdue[0].outcome else { panic!("{overdue:?}") };
        assert!(error.contains("invalid envelope"), "{error}");
    }
}
