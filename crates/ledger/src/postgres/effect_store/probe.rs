//! Determines the ids that a batch will look up, before it is recorded.
//!
//! The batch is decided once as a dry run, with the prefetched rows. The ids it looks up are then read in one
//! round trip, so that recording finds them.

use std::collections::HashSet;

use admit_core::{
    Entry, Event, Fault, Issue, Key, PriorAdmission, RefusedSubmission, Seq, Verdict,
};

use super::super::conn::{Error, Result};
use super::{Changes, PgEffectStore, PrefetchRequest};
use crate::rules::{RecordingBatch, record};

/// An entry to be recorded at a door that issues documents.
pub(in super::super) struct ExpectedEntry<'a> {
    pub(in super::super) entry: &'a Entry,
    pub(in super::super) issue: &'a dyn Issue,
    /// First admission under its key.
    pub(in super::super) first: Option<&'a PriorAdmission>,
}

impl PgEffectStore<'_> {
    /// Prefetches what recording these entries will need: a few round trips, regardless of their number.
    pub(in super::super) fn prepare(&mut self, expected: &[ExpectedEntry<'_>]) -> Result<()> {
        if expected.is_empty() {
            return Ok(());
        }
        let facts = expected.iter().map(|expected| match expected.entry {
            Entry::Event(event) => (expected.issue, &event.facts),
            Entry::Refused(refused) => (expected.issue, &refused.facts),
        });
        self.fetch(PrefetchRequest {
            seqs: expected.iter().filter_map(|expected| Some(expected.first?.seq)).collect(),
            facts: HashSet::new(),
            runs: facts.filter_map(|(issue, facts)| Some(issue.run(facts)?.to_owned())).collect(),
        })?;
        let before = self.changes.last_issued;
        self.decide(|store| {
            for ExpectedEntry { entry, issue, first } in expected {
                match record(&mut Probe { store, first: *first }, entry, *issue) {
                    // A poisoned entry is detected again, and reported, when it is recorded.
                    Ok(_) | Err(ProbeError::Poisoned) => {}
                    Err(ProbeError::Server(error)) => return Err(error),
                }
            }
            Ok(())
        })?;
        self.changes = Changes::after(before);
        Ok(())
    }
}

/// A batch that stores nothing.
struct Probe<'p, 'c> {
    store: &'p mut PgEffectStore<'c>,
    first: Option<&'p PriorAdmission>,
}

enum ProbeError {
    Server(Error),
    Poisoned,
}

impl From<Error> for ProbeError {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

/// Seq of entries that are not stored.
const NOWHERE: Seq = Seq(0);

impl<'c> RecordingBatch for Probe<'_, 'c> {
    type Error = ProbeError;
    type Store = PgEffectStore<'c>;

    fn poisoned(_: Fault) -> ProbeError {
        ProbeError::Poisoned
    }

    fn store(&mut self) -> &mut PgEffectStore<'c> {
        self.store
    }

    fn first(&mut self, _: &Key) -> std::result::Result<Option<PriorAdmission>, ProbeError> {
        Ok(self.first.cloned())
    }

    fn same_content(&mut self, _: &Event) -> std::result::Result<Option<Seq>, ProbeError> {
        Ok(None)
    }

    fn admit(
        &mut self,
        _: &Event,
        _: Option<PriorAdmission>,
    ) -> std::result::Result<(Verdict, Seq), ProbeError> {
        Ok((Verdict::Fresh { seq: NOWHERE }, NOWHERE))
    }

    fn conflict(
        &mut self,
        _: &Event,
        first: PriorAdmission,
    ) -> std::result::Result<Verdict, ProbeError> {
        Ok(Verdict::Conflict { seq: NOWHERE, first })
    }

    fn sighting(&mut self, _: &Event, _: Seq) -> std::result::Result<Seq, ProbeError> {
        Ok(NOWHERE)
    }

    fn refused(&mut self, _: &RefusedSubmission) -> std::result::Result<Verdict, ProbeError> {
        Ok(Verdict::Refused { seq: Some(NOWHERE) })
    }
}
