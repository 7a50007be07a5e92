//! State of events after their entity was published, or could not be.
//!
//! An event is published with the first revision that contains it, and stays published: later
//! revisions are published again, but contain nothing new of it. A failure ends an attempt: when
//! the entity is published later, the event begins another attempt at `enriched`.

use super::link::{Link, LinkStatus};
use super::source_event::SourceEvent;
use super::state::{ProcessingState, Transition};
use crate::time::Millis;

/// It is unknown whether the entity was published.
pub const PUBLISH_UNKNOWN: &str = "publish_unknown";

/// The bus has proven that the entity was not published.
pub const PUBLISH_NOT_WRITTEN: &str = "publish_not_written";

impl Link {
    /// Returns the link and transition of `event` after its entity was published, or failed to be
    /// because of `failed`. `None` if it contributes nothing or is already published.
    pub fn sent(
        &self,
        event: &SourceEvent,
        failed: Option<&str>,
        now: Millis,
    ) -> Option<(Self, Transition)> {
        let attempt = match self.state {
            ProcessingState::Enriched => self.attempt,
            ProcessingState::PublishFailed => self.attempt.saturating_add(1),
            ProcessingState::Seen
            | ProcessingState::Parsed
            | ProcessingState::Linked
            | ProcessingState::Published
            | ProcessingState::ParseFailed
            | ProcessingState::LinkFailed => return None,
        };
        if self.status != LinkStatus::Linked {
            return None;
        }
        let state = if failed.is_some() {
            ProcessingState::PublishFailed
        } else {
            ProcessingState::Published
        };
        let unsent = failed.map(str::to_owned);
        let link = Self { state, attempt, unsent: unsent.clone(), ..self.clone() };
        let step = Transition {
            seq: event.seq,
            attempt,
            from: ProcessingState::Enriched,
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
    use crate::entity::{Confidence, LinkDiagnostics};
    use crate::hash::Key;

    fn link(state: ProcessingState, status: LinkStatus) -> Link {
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
            diagnostics: LinkDiagnostics::default(),
            unsent: None,
        }
    }

    #[test]
    fn every_transition_of_a_publication_is_legal() {
        let event = SourceEvent::new("source", Key::derive("door", &[b"k"]), Millis(1));
        for state in ProcessingState::ALL {
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
    fn published_events_stay_published_and_failed_ones_begin_another_attempt() {
        let event = SourceEvent::new("source", Key::derive("door", &[b"k"]), Millis(1));
        let sent = |state, failed| {
            let sent = link(state, LinkStatus::Linked).sent(&event, failed, Millis(5));
            sent.map(|(link, _)| (link.state, link.attempt))
        };
        assert_eq!(sent(ProcessingState::Enriched, None), Some((ProcessingState::Published, 3)));
        assert_eq!(
            sent(ProcessingState::PublishFailed, None),
            Some((ProcessingState::Published, 4))
        );
        assert_eq!(sent(ProcessingState::Published, Some(PUBLISH_UNKNOWN)), None);
        assert_eq!(sent(ProcessingState::Linked, None), None, "it has nothing in the record");
        assert!(
            link(ProcessingState::Enriched, LinkStatus::Ambiguous)
                .sent(&event, None, Millis(5))
                .is_none()
        );
    }
}
