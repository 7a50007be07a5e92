//! What has been sent over a link and not answered yet.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::keeper::{Outcome, Settled};
use crate::store::Row;
use crate::wire::{Heard, Said};

/// Rows in flight on one link, by the name their answer will carry.
#[derive(Debug)]
pub(crate) struct Flight {
    ack_max: Duration,
    rows: HashMap<String, (Row, u64)>,
    /// In the order of their deadlines; those answered in time are passed over.
    deadlines: VecDeque<(Instant, String, u64)>,
    /// Sent over this link and given up on: an answer may still come.
    late: HashMap<String, Row>,
    tickets: u64,
    /// The last refusal that named no event, which may explain one that gets no answer.
    unnamed: Option<String>,
}

impl Flight {
    pub(crate) fn new(ack_max: Duration) -> Self {
        Self {
            ack_max,
            rows: HashMap::new(),
            deadlines: VecDeque::new(),
            late: HashMap::new(),
            tickets: 0,
            unnamed: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether an answer to `name` could be taken for one to `row` and for one to another row.
    pub(crate) fn is_doubtful(&self, name: &str, row: &Row) -> bool {
        let is_other = |other: &Row| other.place != row.place;
        self.rows.contains_key(name) || self.late.get(name).is_some_and(is_other)
    }

    /// Notes that `row` was handed to the link.
    pub(crate) fn sent(&mut self, name: String, row: Row, now: Instant) {
        self.tickets += 1;
        self.late.remove(&name);
        self.deadlines.push_back((now + self.ack_max, name.clone(), self.tickets));
        self.rows.insert(name, (row, self.tickets));
    }

    /// The row that an answer is about, with what it says.
    pub(crate) fn heard(&mut self, heard: Heard) -> Option<Settled> {
        let Some(name) = heard.name else {
            if let Said::Nack { error, .. } = heard.said {
                self.unnamed = Some(error);
            }
            return None;
        };
        let row = match self.rows.remove(&name) {
            Some((row, _)) => row,
            // Too late for its deadline, but an acknowledgement all the same. A refusal is not
            // counted twice.
            None if heard.said == Said::Ack => self.late.remove(&name)?,
            None => return None,
        };
        let outcome = match heard.said {
            Said::Ack => Outcome::Acked,
            Said::Nack { error, retryable, retry_after } => {
                Outcome::Failed { error, not_before: retry_after, is_final: !retryable }
            }
        };
        Some(Settled { row, outcome })
    }

    /// When the first of them has waited long enough.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        while let Some((at, name, ticket)) = self.deadlines.front() {
            if self.rows.get(name).is_some_and(|(_, current)| current == ticket) {
                return Some(*at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Those that have waited long enough.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Settled> {
        let mut overdue = Vec::new();
        while self.deadline().is_some_and(|at| at <= now) {
            let Some((_, name, _)) = self.deadlines.pop_front() else { break };
            let Some((row, _)) = self.rows.remove(&name) else { continue };
            let mut error = format!("no ack within {} ms", self.ack_max.as_millis());
            if let Some(unnamed) = &self.unnamed {
                error.push_str("; a refusal without an id said: ");
                error.push_str(unnamed);
            }
            self.late.insert(name, row.clone());
            let outcome = unanswered(error);
            overdue.push(Settled { row, outcome });
        }
        overdue
    }

    /// All of them: the link is gone, and with it every answer.
    pub(crate) fn lost(&mut self, reason: &str) -> Vec<Settled> {
        let failed = |(row, _)| {
            let error = format!("no ack: {reason}");
            Settled { row, outcome: unanswered(error) }
        };
        self.rows.drain().map(|(_, row)| row).map(failed).collect()
    }
}

fn unanswered(error: String) -> Outcome {
    Outcome::Failed { error, not_before: Duration::ZERO, is_final: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: i64, event_id: &str) -> Row {
        let event_id = event_id.to_owned();
        Row { place, event_id, payload_json: "{}".to_owned(), attempt_count: 0 }
    }

    fn ack(name: &str) -> Heard {
        Heard { name: Some(name.to_owned()), said: Said::Ack }
    }

    #[test]
    fn an_answer_settles_the_row_it_names_and_no_other() {
        let now = Instant::now();
        let mut flight = Flight::new(Duration::from_secs(1));
        flight.sent("a".to_owned(), row(1, "a"), now);
        flight.sent("b".to_owned(), row(2, "b"), now);
        assert!(flight.heard(ack("c")).is_none(), "nobody sent that");
        assert_eq!(flight.heard(ack("b")).expect("it is in flight").row.place, 2);
        assert!(flight.heard(ack("b")).is_none(), "a second answer settles nothing more");
        assert_eq!(flight.len(), 1);
    }

    #[test]
    fn an_ack_that_comes_too_late_still_counts_and_a_refusal_does_not() {
        let now = Instant::now();
        let mut flight = Flight::new(Duration::from_secs(1));
        flight.sent("a".to_owned(), row(1, "a"), now);
        assert!(flight.overdue(now).is_empty());
        let overdue = flight.overdue(now + Duration::from_secs(1));
        assert!(matches!(&overdue[..], [Settled { outcome: Outcome::Failed { .. }, .. }]));
        let retry_after = Duration::ZERO;
        let said = Said::Nack { error: "x".to_owned(), retryable: true, retry_after };
        assert!(flight.heard(Heard { name: Some("a".to_owned()), said }).is_none());
        assert_eq!(flight.heard(ack("a")).expect("late").outcome, Outcome::Acked);
    }

    #[test]
    fn two_rows_whose_answers_could_be_mixed_up_are_never_in_flight_together() {
        let now = Instant::now();
        let mut flight = Flight::new(Duration::from_secs(1));
        flight.sent("a".to_owned(), row(1, "a"), now);
        assert!(flight.is_doubtful("a", &row(2, "a~other")));
        flight.overdue(now + Duration::from_secs(2));
        assert!(flight.is_doubtful("a", &row(2, "a~other")), "its answer may still come");
        assert!(!flight.is_doubtful("a", &row(1, "a")), "the same row may go again");
    }

    #[test]
    fn a_refusal_without_a_name_explains_what_gets_no_answer() {
        let now = Instant::now();
        let mut flight = Flight::new(Duration::from_millis(5));
        flight.sent("a".to_owned(), row(1, "a"), now);
        let retry_after = Duration::ZERO;
        let said = Said::Nack { error: "invalid envelope".into(), retryable: false, retry_after };
        assert!(flight.heard(Heard { name: None, said }).is_none());
        let overdue = flight.overdue(now + Duration::from_secs(1));
        let Outcome::Failed { error, .. } = &overdue[0].outcome else { panic!("{overdue:?}") };
        assert!(error.contains("invalid envelope"), "{error}");
    }
}
