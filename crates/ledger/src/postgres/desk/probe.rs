//! Finding out which ids a batch will ask for, before it is recorded.
//!
//! The batch is decided once for nothing: with what is known, and without keeping anything. What
//! that asks for is then read in one round trip, and recording finds it.

use std::collections::HashSet;

use admit_core::{Entry, Event, Fault, First, Issue, Key, Refused, Seq, Verdict};

use super::super::conn::{Error, Result};
use super::{Asked, Changes, Desk};
use crate::desk::{Recording, record};

/// An entry that will be recorded at a door that issues.
pub(in super::super) struct Wanted<'a> {
    pub(in super::super) entry: &'a Entry,
    pub(in super::super) issue: &'a dyn Issue,
    /// What the ledger holds under its key.
    pub(in super::super) first: Option<&'a First>,
}

impl Desk<'_> {
    /// Reads everything that recording these will ask for: a few round trips, however many they are.
    pub(in super::super) fn prepare(&mut self, wanted: &[Wanted<'_>]) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let facts = wanted.iter().map(|wanted| match wanted.entry {
            Entry::Event(event) => (wanted.issue, &event.facts),
            Entry::Refused(refused) => (wanted.issue, &refused.facts),
        });
        self.fetch(Asked {
            seqs: wanted.iter().filter_map(|wanted| Some(wanted.first?.seq)).collect(),
            facts: HashSet::new(),
            runs: facts.filter_map(|(issue, facts)| Some(issue.run(facts)?.to_owned())).collect(),
        })?;
        let before = self.changes.last_issued;
        self.decide(|desk| {
            for Wanted { entry, issue, first } in wanted {
                match record(&mut Probe { desk, first: *first }, entry, *issue) {
                    // What cannot be recorded is found out again, by whoever answers for it.
                    Ok(_) | Err(Unsaid::Poisoned) => {}
                    Err(Unsaid::Server(error)) => return Err(error),
                }
            }
            Ok(())
        })?;
        self.changes = Changes::after(before);
        Ok(())
    }
}

/// A batch that keeps nothing.
struct Probe<'p, 'c> {
    desk: &'p mut Desk<'c>,
    first: Option<&'p First>,
}

enum Unsaid {
    Server(Error),
    Poisoned,
}

impl From<Error> for Unsaid {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

/// Where nothing is kept.
const NOWHERE: Seq = Seq(0);

impl<'c> Recording for Probe<'_, 'c> {
    type Error = Unsaid;
    type Desk = Desk<'c>;

    fn poisoned(_: Fault) -> Unsaid {
        Unsaid::Poisoned
    }

    fn desk(&mut self) -> &mut Desk<'c> {
        self.desk
    }

    fn first(&mut self, _: &Key) -> std::result::Result<Option<First>, Unsaid> {
        Ok(self.first.cloned())
    }

    fn admit(&mut self, _: &Event) -> std::result::Result<(Verdict, Seq), Unsaid> {
        Ok((Verdict::Fresh { seq: NOWHERE }, NOWHERE))
    }

    fn conflict(&mut self, _: &Event, first: First) -> std::result::Result<Verdict, Unsaid> {
        Ok(Verdict::Conflict { seq: NOWHERE, first })
    }

    fn sighting(&mut self, _: &Event, _: Seq) -> std::result::Result<Seq, Unsaid> {
        Ok(NOWHERE)
    }

    fn refused(&mut self, _: &Refused) -> std::result::Result<Verdict, Unsaid> {
        Ok(Verdict::Refused { seq: Some(NOWHERE) })
    }
}
