//! What becomes of the events of a record when it goes out, or could not.
//!
//! An event is published with the first revision that has it in it, and stays so: later revisions
//! are published again, but nothing about this event is new in them. A failure ends an attempt: when
//! the record goes out after all, the event begins another one at `enriched`.

use super::event::SourceEvent;
use super::link::{Link, LinkStatus};
use super::state::{State, Transition};
use crate::time::Millis;

/// Nobody knows whether the record went out.
pub const PUBLISH_UNKNOWN: &str = "publish_unknown";

/// The bus has proven that the record did not go out.
pub const PUBLISH_NOT_WRITTEN: &str = "publish_not_written";

impl Link {
    /// Where `event` stands once the record with it in it has gone out, or could not because of
    /// `failed`; and the step that leads there. `None` when it has nothing in the record, or is out.
    pub fn sent(
        &self,
        event: &SourceEvent,
        failed: Option<&str>,
        now: Millis,
    ) -> Option<(Self, Transition)> {
        let attempt = match self.state {
            State::Enriched => self.attempt,
            State::PublishFailed => self.attempt.saturating_add(1),
            State::Seen
            | State::Parsed
            | State::Linked
            | State::Published
            | State::ParseFailed
            | State::LinkFailed => return None,
        };
        if self.status != LinkStatus::Linked {
            return None;
        }
        let state = if failed.is_some() { State::PublishFailed } else { State::Published };
        let unsent = failed.map(str::to_owned);
        let link = Self { state, attempt, unsent: unsent.clone(), ..self.clone() };
        let step = Transition {
            seq: event.seq,
            attempt,
            from: State::Enriched,
            to: state,
            at: now,
            source: event.source.clone(),
            fingerprint: link.fingerprint().cloned(),
            link_status: link.status,
            confidence: link.confidence,
            reason: unsent,
            record_id: link.record_id.clone(),
        };
        Some((link, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Key;
    use crate::record::{Confidence, Diagnostics};

    fn link(state: State, status: LinkStatus) -> Link {
        Link {
            status,
            state,
            reason: "resolved".to_owned(),
            confidence: Confidence::High,
            matched: None,
            record_id: Some("rec-1".to_owned()),
            fingerprints: Vec::new(),
            number: Some(1),
            number_from: None,
            is_applied: true,
            attempt: 3,
            diagnostics: Diagnostics::default(),
            unsent: None,
        }
    }

    #[test]
    fn every_step_of_a_publication_is_a_listed_one() {
        let event = SourceEvent::new("source", Key::derive("door", &[b"k"]), Millis(1));
        for state in State::ALL {
            for failed in [None, Some(PUBLISH_UNKNOWN)] {
                let before = link(state, LinkStatus::Linked);
                let Some((after, step)) = before.sent(&event, failed, Millis(5)) else { continue };
                assert!(step.from.leads_to(step.to), "{step:?}");
                assert_eq!((step.to, step.attempt), (after.state, after.attempt));
                assert_eq!(step.reason.is_some(), step.to.is_failure(), "every failure has one");
                assert_eq!(after.reason, "resolved", "why it is linked stays");
            }
        }
    }

    #[test]
    fn what_is_out_stays_out_and_what_failed_begins_another_attempt() {
        let event = SourceEvent::new("source", Key::derive("door", &[b"k"]), Millis(1));
        let sent = |state, failed| {
            let sent = link(state, LinkStatus::Linked).sent(&event, failed, Millis(5));
            sent.map(|(link, _)| (link.state, link.attempt))
        };
        assert_eq!(sent(State::Enriched, None), Some((State::Published, 3)));
        assert_eq!(sent(State::PublishFailed, None), Some((State::Published, 4)));
        assert_eq!(sent(State::Published, Some(PUBLISH_UNKNOWN)), None);
        assert_eq!(sent(State::Linked, None), None, "it has nothing in the record");
        assert!(
            link(State::Enriched, LinkStatus::Ambiguous).sent(&event, None, Millis(5)).is_none()
        );
    }
}
