//! What a contract writes down for people outside the ledger, decided inside the commit.
//!
//! Some contracts hand out documents: a receipt, a quarantine record, a note for governance. Their
//! text is made by the contract, purely, while the commit that decides is being written; it is kept
//! in that commit, and the file that people read is only a copy. So no file can claim what the
//! ledger does not hold, and every file can be made again.

use std::borrow::Cow;
use std::fmt;

use crate::Code;
use crate::effect::{By, Evidence, Standing};
use crate::json::Object;
use crate::receipt::Seq;
use crate::time::Millis;

/// Which kind of document it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IssuedKind {
    /// What became of a delivery.
    Receipt,
    /// What was kept of one that was not admitted.
    Quarantine,
    /// A line for whoever governs, and the marker that makes it one line only.
    Governance,
}

impl IssuedKind {
    /// The word for it in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receipt => "receipt",
            Self::Quarantine => "quarantine",
            Self::Governance => "governance",
        }
    }

    /// The kind that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Receipt, Self::Quarantine, Self::Governance]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Which kind.
    pub kind: IssuedKind,
    /// The run it belongs to, by its own event; `None` for what names no run, or may not be in one.
    pub run: Option<String>,
    /// Its id. One id of a kind stands for one document in a run.
    pub id: String,
    /// What makes it this very document. The same id with the same identity is the same one, and is
    /// kept once.
    pub identity: String,
    /// The decision, in the contract's words.
    pub decision: Cow<'static, str>,
    /// Why, in the contract's words, where there is a why.
    pub reason: Option<Cow<'static, str>>,
    /// The contract's own id of the event.
    pub event_id: Option<String>,
    /// The contract's own type of the event.
    pub event_type: Option<String>,
    /// Where the file goes, below the root of the artifacts.
    pub path: String,
    /// The document, JSON without a line end.
    pub text: String,
}

/// How and by whom a quarantine was released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// `dismissed`, `resubmitted` or `reconciled`.
    pub how: String,
    /// Who and why.
    pub by: By,
    /// When.
    pub at: Millis,
}

/// A document as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filed {
    /// Its number: documents are numbered in the order they were kept.
    pub n: u64,
    /// The place of the delivery it is about.
    pub seq: Seq,
    /// The admission it is about, where there is one.
    pub of: Option<Seq>,
    /// When it was issued.
    pub at: Millis,
    /// The document.
    pub issued: Issued,
    /// The document that made it void: the event was admitted after all.
    pub superseded_by: Option<u64>,
    /// Who let it go, and why.
    pub released: Option<Released>,
}

/// What the ledger knows of the admission that a delivery is a copy of.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// Its place.
    pub seq: Seq,
    /// The contract's facts of it.
    pub facts: &'a Object<'a>,
    /// Where its effect stands.
    pub standing: &'a Standing,
    /// Where the receipt of its admission is, once there is one.
    pub receipt: Option<&'a str>,
}

/// What there is to write down.
#[derive(Clone, Copy, Debug)]
pub enum Occasion<'a> {
    /// It could not be admitted.
    Refused {
        /// Why.
        code: Code,
        /// Why, for people.
        message: &'a str,
    },
    /// Its key is known with other content.
    Conflict {
        /// What was admitted under the key.
        first: Original<'a>,
    },
    /// It is a copy.
    Copy {
        /// Of this.
        first: Original<'a>,
    },
    /// Its run takes nothing new any more; it is kept outside of the run.
    RunClosed,
    /// Its effect has come to this, by itself or because a person found out.
    Settled {
        /// Where the effect stands now.
        standing: &'a Standing,
        /// Who found out.
        by: Option<&'a By>,
    },
}

/// Everything a document may be made from.
#[derive(Clone, Copy)]
pub struct Said<'a> {
    /// What happened.
    pub occasion: Occasion<'a>,
    /// The place of the delivery, or of the admission whose effect was settled.
    pub seq: Seq,
    /// When.
    pub at: Millis,
    /// The contract's facts of the delivery, or of the admission.
    pub facts: &'a Object<'a>,
    /// Which ids are taken.
    pub taken: &'a dyn Taken,
}

impl fmt::Debug for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said")
            .field("occasion", &self.occasion)
            .field("seq", &self.seq)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Knows the ids that are in use.
pub trait Taken {
    /// Whether another document (another identity) of this kind has this id in this run.
    fn by_other(&self, kind: IssuedKind, run: Option<&str>, id: &str, identity: &str) -> bool;
}

/// A contract that hands out documents.
pub trait Issue: Send + Sync + fmt::Debug {
    /// The run that a delivery with these facts belongs to.
    fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str>;

    /// The bus topic and the number of messages that this evidence of an outcome proves to be
    /// acknowledged there, on a bus that counts its messages from 0.
    fn acknowledged(&self, _evidence: &Evidence) -> Option<(String, u64)> {
        None
    }

    /// The documents for what happened; none where there is nothing to say yet. Called inside the
    /// commit and pure. A document that is there already is not kept twice.
    fn issue(&self, said: &Said<'_>) -> Vec<Issued>;

    /// Whether documents with this reason only say that somebody was still performing; they are void
    /// once the event is admitted.
    fn is_passing(&self, reason: &str) -> bool;

    /// Whether documents with this reason say no more than that the effect is not settled; whoever
    /// finds out how it ended lets them go.
    fn is_about_the_effect(&self, reason: &str) -> bool;
}

/// Whether a run takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It does.
    Open,
    /// It is being closed: what is new is refused, what is known is recognised.
    Closing,
    /// It is closed, which is for ever.
    Closed,
}

impl RunState {
    /// The word for it in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }

    /// The state that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Open, Self::Closing, Self::Closed].into_iter().find(|state| state.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for kind in [IssuedKind::Receipt, IssuedKind::Quarantine, IssuedKind::Governance] {
            assert_eq!(IssuedKind::parse(kind.as_str()), Some(kind));
        }
        for state in [RunState::Open, RunState::Closing, RunState::Closed] {
            assert_eq!(RunState::parse(state.as_str()), Some(state));
        }
        assert_eq!((IssuedKind::parse("x"), RunState::parse("x")), (None, None));
    }
}
