//! Effects, documents and runs, whatever database keeps them: what is decided about them inside a
//! transaction, so that every ledger decides alike.
//!
//! A ledger brings a [`Desk`], the rows that such a decision reads and writes; the decisions are
//! here. A desk shows what its own transaction has written before.

mod closing;
mod documents;
mod recording;
mod runs;
mod scenario;
mod settling;
mod steps;

use std::collections::BTreeMap;

use admit_core::effect::{By, Effect, Evidence, Standing, StoredReply};
use admit_core::{Filed, Issue, Issued, IssuedKind, Millis, RunState, Seq, Taken};
use bytes::Bytes;

pub(crate) use closing::{Closing, begin_closing, end_closing, reopen};
pub(crate) use documents::let_go;
pub(crate) use recording::{Recording, Told, record, refused_while_closing};
pub(crate) use runs::Runs;
pub(crate) use scenario::{Held, ScenarioRows, keep, open_run, take_lease};
pub(crate) use settling::{recover_door, settle, settle_copy};
pub(crate) use steps::{advance, born, recover};

/// The acknowledged end of each bus topic is a single value of the ledger under this prefix.
pub(crate) const BUS_END: &str = "bus_end:";

/// Single values of the ledger that a transaction raises or counts up.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The least that each may be.
    raised: BTreeMap<String, u64>,
    /// What is added to each.
    added: BTreeMap<String, u64>,
}

impl Counters {
    fn raise(&mut self, name: String, to: u64) {
        let value = self.raised.entry(name).or_default();
        *value = to.max(*value);
    }

    fn add(&mut self, name: &str, more: u64) {
        *self.added.entry(name.to_owned()).or_default() += more;
    }

    pub(crate) fn raised(&self) -> impl Iterator<Item = (&str, u64)> {
        self.raised.iter().map(|(name, value)| (name.as_str(), *value))
    }

    pub(crate) fn added(&self) -> impl Iterator<Item = (&str, u64)> {
        self.added.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// What a transaction reads and writes of effects, documents and runs.
pub(crate) trait Desk: Taken {
    /// What the database says when it fails; the transaction is lost then.
    type Error;

    /// The start of the gate that writes.
    fn epoch(&self) -> u64;

    /// Whether this very process has begun what is in flight in the name of `epoch`.
    fn is_own(&self, epoch: u64) -> bool {
        epoch == self.epoch()
    }

    /// The effect of an admission.
    fn effect(&mut self, seq: Seq) -> Result<Option<Effect>, Self::Error>;

    /// Keeps an effect that is born.
    fn put_effect(&mut self, effect: Effect, at: Millis) -> Result<(), Self::Error>;

    /// Keeps where an effect stands now. `said` is kept where nothing was said before.
    fn turn_effect(
        &mut self,
        seq: Seq,
        standing: &Standing,
        said: Option<&StoredReply>,
        at: Millis,
    ) -> Result<(), Self::Error>;

    /// Adds a line to the history of an effect.
    fn add_line(&mut self, seq: Seq, line: &Line<'_>) -> Result<(), Self::Error>;

    /// The facts of an admission, as they are kept.
    fn facts(&mut self, seq: Seq) -> Result<Option<Bytes>, Self::Error>;

    /// The document that has this id.
    fn document(
        &mut self,
        kind: IssuedKind,
        run: &str,
        id: &str,
    ) -> Result<Option<Filed>, Self::Error>;

    /// Keeps a document that is new, and numbers it.
    fn put_document(&mut self, issued: Issued, about: About) -> Result<Filed, Self::Error>;

    /// The quarantines of an admission that are neither void nor released.
    fn open_of(&mut self, seq: Seq) -> Result<Vec<Open>, Self::Error>;

    /// Where the receipt of an admission is: the one about the admission itself that needs no
    /// reason.
    fn receipt_of(&mut self, seq: Seq) -> Result<Option<String>, Self::Error>;

    /// What was let go counts again.
    fn reopen(&mut self, n: u64) -> Result<(), Self::Error>;

    /// The event was admitted after all, says the document `by`.
    fn supersede(&mut self, n: u64, by: u64) -> Result<(), Self::Error>;

    /// Somebody lets it go. `false` when somebody has before.
    fn release(&mut self, n: u64, how: &str, by: &By, at: Millis) -> Result<bool, Self::Error>;

    /// Whether a run takes events; `None` when nobody has named it.
    fn run_state(&mut self, run: &str) -> Result<Option<RunState>, Self::Error>;

    /// What is added to the counters of runs.
    fn runs(&mut self) -> &mut Runs;

    /// Single values that the transaction moves forward.
    fn counters(&mut self) -> &mut Counters;
}

/// One line of an effect's history, before it has a number.
pub(crate) struct Line<'a> {
    pub(crate) at: Millis,
    pub(crate) attempt: u32,
    pub(crate) what: &'static str,
    pub(crate) by: Option<&'a By>,
    pub(crate) evidence: Option<&'a Evidence>,
}

/// An effect after a step, and the state it was in before.
pub(crate) struct Stepped {
    pub(crate) before: &'static str,
    pub(crate) effect: Effect,
}

/// What a document is about.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub(crate) seq: Seq,
    pub(crate) of: Option<Seq>,
    pub(crate) at: Millis,
    /// A document that is there already and was let go counts again.
    pub(crate) reopens: bool,
}

/// A quarantine that is still open, as far as closing it needs.
pub(crate) struct Open {
    pub(crate) n: u64,
    pub(crate) run: String,
    pub(crate) kind: IssuedKind,
    pub(crate) reason: Option<String>,
}

impl Open {
    /// Whether it says no more than that the effect of the event is not settled.
    fn is_about_the_effect(&self, issue: &dyn Issue) -> bool {
        self.reason.as_deref().is_some_and(|reason| issue.is_about_the_effect(reason))
    }
}

/// Evidence as a ledger keeps it.
pub(crate) fn evidence_text(evidence: &Evidence) -> String {
    String::from_utf8_lossy(evidence.as_bytes()).into_owned()
}
