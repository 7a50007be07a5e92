//! Accepting an event: a person says that what it tells counts, where a replay changes nothing.
//!
//! The word is kept with the event, and the record follows from it by the same rule as ever, so it does
//! not matter what comes later.

use std::sync::Arc;

use admit_core::record::{
    Acceptance, LinkStatus, Matched, Policy, Replay, SourceEvent, State, Told,
};
use admit_core::{Millis, Seq};

use super::near::{self, Near};
use super::publications::PublicationTables;
use super::tables::{Decided, Write};
use super::{RecordError, Settling, settle};
use crate::port::{Accepted, NotAccepted};

/// What is to be accepted, and by whom.
#[derive(Clone)]
pub(crate) struct Accepting {
    pub(crate) door: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) seq: Seq,
    pub(crate) word: Acceptance,
}

impl Accepting {
    /// Accepts the event, or says why not. Nothing was written where an error is returned.
    pub(crate) fn accept<T: PublicationTables>(
        &self,
        tables: &mut T,
    ) -> Result<Result<Accepted, NotAccepted>, T::Error> {
        tables.mark()?;
        let accepted = match self.settled(tables) {
            Ok(accepted) => Ok(accepted),
            Err(Stopped::NotFit(why)) => Err(why),
            Err(Stopped::Record(RecordError::Store(error))) => return Err(error),
            Err(Stopped::Record(error)) => {
                tracing::error!(seq = self.seq.0, %error, "an event of a record cannot be read");
                Err(NotAccepted::Unreadable)
            }
        };
        tables.release(accepted.is_err())?;
        Ok(accepted)
    }

    fn settled<T: PublicationTables>(&self, tables: &mut T) -> Result<Accepted, Stopped<T::Error>> {
        let found = near::one(tables, self.seq)?.ok_or(NotAccepted::Unknown)?;
        fits(&self.policy, &found)?;
        let rule = Told { policy: Arc::clone(&self.policy), event: found.event.clone() };
        let mut near = Near::load(tables, &self.door, &rule, &found.event)?;
        let word = |event: &SourceEvent| event.accepted.as_ref().map(|word| word.at);
        let is_rival = |event: &&SourceEvent| {
            event.source == found.event.source && event.key == found.event.key
        };
        let latest = near.events.iter().filter(is_rival).filter_map(word).max();
        let record_id = found.link.record_id.clone().unwrap_or_default();
        if found.link.is_accepted() {
            return Ok(Accepted { record_id, is_new: false });
        }
        // Of two words within a millisecond the later one counts too.
        let at = latest.map_or(self.word.at, |at| self.word.at.max(Millis(at.0.saturating_add(1))));
        let event = near.events.iter_mut().find(|event| event.seq == self.seq);
        let event = event.ok_or(NotAccepted::Unknown)?;
        event.accepted = Some(Acceptance { at, ..self.word.clone() });
        tables.write(&[Write::Head(event)]).map_err(RecordError::Store)?;
        let resolution = near.resolve(tables, &rule, self.word.at)?;
        let settling = Settling {
            door: &self.door,
            policy: &self.policy,
            resolution: &resolution,
            new: None,
            at: self.word.at,
        };
        settle(tables, &mut near, &settling)?;
        Ok(Accepted { record_id, is_new: true })
    }
}

/// Whether accepting the event can change anything.
fn fits(policy: &Policy, found: &Decided) -> Result<(), NotAccepted> {
    let Decided { event, link, .. } = found;
    let why = match policy.source(&event.source).map(|source| source.replay) {
        _ if link.state == State::ParseFailed => "it could not be read",
        _ if link.status != LinkStatus::Linked => "it is linked to no record",
        Some(Replay::Skip) if link.matched == Some(Matched::Opens) => return Ok(()),
        Some(Replay::Skip) => {
            "it is a copy under another name; accept what came under the name itself"
        }
        Some(Replay::Overwrite { .. }) | None => "what this source tells again counts by itself",
    };
    Err(NotAccepted::Unfit(why))
}

/// Why nothing was accepted.
enum Stopped<E> {
    NotFit(NotAccepted),
    Record(RecordError<E>),
}

impl<E> From<NotAccepted> for Stopped<E> {
    fn from(why: NotAccepted) -> Self {
        Self::NotFit(why)
    }
}

impl<E> From<RecordError<E>> for Stopped<E> {
    fn from(error: RecordError<E>) -> Self {
        Self::Record(error)
    }
}
