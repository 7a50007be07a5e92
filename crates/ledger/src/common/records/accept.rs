//! Accepts an event: an operator lets its content count where a replay would not change anything.
//!
//! The acceptance is stored with the event, and the record follows from it by the usual rule, so later
//! arrivals do not matter.

use std::sync::Arc;

use admit_core::entity::{
    Acceptance, EntityInput, LinkStatus, MatchBasis, Policy, ProcessingState, ReplayRule,
    SourceEvent,
};
use admit_core::{Millis, Seq};

use super::candidates::{self, LoadedCandidates};
use super::publications::PublicationTables;
use super::tables::{StoredEvent, Write};
use super::{RecordError, ResolutionWrite, write_resolution};
use crate::port::{AcceptError, AcceptedEvent};

/// An acceptance to be applied.
#[derive(Clone)]
pub(crate) struct AcceptEvent {
    pub(crate) door: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) seq: Seq,
    pub(crate) word: Acceptance,
}

impl AcceptEvent {
    /// Accepts the event, or returns why not. After an error nothing was written.
    pub(crate) fn accept<T: PublicationTables>(
        &self,
        tables: &mut T,
    ) -> Result<Result<AcceptedEvent, AcceptError>, T::Error> {
        tables.mark()?;
        let accepted = match self.try_accept(tables) {
            Ok(accepted) => Ok(accepted),
            Err(AcceptFailure::Rejected(why)) => Err(why),
            Err(AcceptFailure::Record(RecordError::Store(error))) => return Err(error),
            Err(AcceptFailure::Record(error)) => {
                tracing::error!(seq = self.seq.0, %error, "stored event of a record cannot be parsed");
                Err(AcceptError::Unreadable)
            }
        };
        tables.release(accepted.is_err())?;
        Ok(accepted)
    }

    fn try_accept<T: PublicationTables>(
        &self,
        tables: &mut T,
    ) -> Result<AcceptedEvent, AcceptFailure<T::Error>> {
        let found = candidates::event_at(tables, self.seq)?.ok_or(AcceptError::Unknown)?;
        check_acceptable(&self.policy, &found)?;
        let rule = EntityInput { policy: Arc::clone(&self.policy), event: found.event.clone() };
        let mut near = LoadedCandidates::load(tables, &self.door, &rule, &found.event)?;
        let word = |event: &SourceEvent| event.accepted.as_ref().map(|word| word.at);
        let is_rival = |event: &&SourceEvent| {
            event.source == found.event.source && event.key == found.event.key
        };
        let latest = near.events.iter().filter(is_rival).filter_map(word).max();
        let record_id = found.link.record_id.clone().unwrap_or_default();
        if found.link.is_accepted() {
            return Ok(AcceptedEvent { record_id, is_new: false });
        }
        // Of two acceptances within a millisecond the later one wins.
        let at = latest.map_or(self.word.at, |at| self.word.at.max(Millis(at.0.saturating_add(1))));
        let event = near.events.iter_mut().find(|event| event.seq == self.seq);
        let event = event.ok_or(AcceptError::Unknown)?;
        event.accepted = Some(Acceptance { at, ..self.word.clone() });
        let head = Write::Head(event.seq, event.to_text());
        tables.write(&[head], &[]).map_err(RecordError::Store)?;
        let resolution = near.resolve(tables, &rule, self.word.at)?;
        let write = ResolutionWrite {
            door: &self.door,
            policy: &self.policy,
            resolution: &resolution,
            new: None,
            at: self.word.at,
        };
        write_resolution(tables, &mut near, &write)?;
        Ok(AcceptedEvent { record_id, is_new: true })
    }
}

/// Checks that accepting the event can change anything.
fn check_acceptable(policy: &Policy, found: &StoredEvent) -> Result<(), AcceptError> {
    let StoredEvent { event, link, .. } = found;
    let why = match policy.source(&event.source).map(|source| source.replay) {
        _ if link.state == ProcessingState::ParseFailed => "it could not be parsed",
        _ if link.status != LinkStatus::Linked => "it is linked to no record",
        Some(ReplayRule::Skip) if link.matched == Some(MatchBasis::Opens) => return Ok(()),
        Some(ReplayRule::Skip) => {
            "it is a copy under another name; accept what came under the name itself"
        }
        Some(ReplayRule::Overwrite { .. }) | None => {
            "repeated deliveries of this source count automatically"
        }
    };
    Err(AcceptError::Unfit(why))
}

/// Why the event was not accepted.
enum AcceptFailure<E> {
    Rejected(AcceptError),
    Record(RecordError<E>),
}

impl<E> From<AcceptError> for AcceptFailure<E> {
    fn from(why: AcceptError) -> Self {
        Self::Rejected(why)
    }
}

impl<E> From<RecordError<E>> for AcceptFailure<E> {
    fn from(error: RecordError<E>) -> Self {
        Self::Record(error)
    }
}
