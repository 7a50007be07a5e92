//! Our side failed. A fault is never a verdict: the key makes sending again safe.

use std::error::Error;
use std::sync::Arc;

use crate::Code;

/// What kind of failure it was, and so what the producer may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The ledger refused before anything was written: nothing of the event was kept.
    LedgerUnavailable,
    /// The commit was started and its outcome is not known. Never say "stored" or "not stored".
    OutcomeUnknown,
    /// Too much is waiting already.
    Overloaded,
    /// The gate is shutting down.
    Draining,
    /// A defect of ours.
    Internal,
}

/// A failure of ours, with its cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind it is.
    pub kind: FaultKind,
    /// For people and logs; no secrets, no paths of the operator's machine on the wire.
    pub message: &'static str,
    /// The cause, for the log.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Fault {
    /// A fault without a deeper cause.
    pub fn new(kind: FaultKind, message: &'static str) -> Self {
        Self { kind, message, source: None }
    }

    /// A fault caused by `source`.
    pub fn caused_by(
        kind: FaultKind,
        message: &'static str,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, message, source: Some(Arc::new(source)) }
    }

    /// The code for it.
    pub fn code(&self) -> Code {
        match self.kind {
            FaultKind::LedgerUnavailable => Code::LedgerUnavailable,
            FaultKind::OutcomeUnknown => Code::OutcomeUnknown,
            FaultKind::Overloaded => Code::Overloaded,
            FaultKind::Draining => Code::Draining,
            FaultKind::Internal => Code::InternalError,
        }
    }
}

/// An error with everything that caused it, for people. Some errors say themselves what caused them;
/// nothing is told twice.
pub fn with_causes(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !told.contains(&said) {
            told.push_str(": ");
            told.push_str(&said);
        }
        cause = error.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Self>>);

    #[test]
    fn every_cause_is_told_once() {
        let root = Said("the disk is full", None);
        let between = Said("cannot write: the disk is full", Some(Box::new(root)));
        let top = Said("the receipt was not kept", Some(Box::new(between)));
        assert_eq!(with_causes(&top), "the receipt was not kept: cannot write: the disk is full");
        assert_eq!(with_causes(&Said("alone", None)), "alone");
    }
}
