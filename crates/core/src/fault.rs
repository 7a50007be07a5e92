//! Server-side failures. A fault is never a verdict; the key makes a retry safe.

use std::error::Error;
use std::sync::Arc;

use crate::Code;

/// Kind of failure, and so what the producer may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The ledger failed before anything was written: the event was not stored.
    LedgerUnavailable,
    /// The commit was started and its outcome is unknown. Replies must claim neither "stored" nor
    /// "not stored".
    OutcomeUnknown,
    /// A queue is full.
    Overloaded,
    /// The gate is shutting down.
    Draining,
    /// Internal error.
    Internal,
}

/// Server-side failure with its cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Kind of failure.
    pub kind: FaultKind,
    /// Message for clients and logs; no secrets, no local paths.
    pub message: &'static str,
    /// Cause, for the log.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Fault {
    /// Creates a fault without a cause.
    pub fn new(kind: FaultKind, message: &'static str) -> Self {
        Self { kind, message, source: None }
    }

    /// Creates a fault caused by `source`.
    pub fn caused_by(
        kind: FaultKind,
        message: &'static str,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, message, source: Some(Arc::new(source)) }
    }

    /// Error code.
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

/// Renders an error with its chain of causes. A cause whose text is already contained in the
/// message is skipped.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct TestError(&'static str, #[source] Option<Box<Self>>);

    #[test]
    fn every_cause_is_rendered_once() {
        let root = TestError("the disk is full", None);
        let between = TestError("cannot write: the disk is full", Some(Box::new(root)));
        let top = TestError("the receipt was not kept", Some(Box::new(between)));
        assert_eq!(with_causes(&top), "the receipt was not kept: cannot write: the disk is full");
        assert_eq!(with_causes(&TestError("alone", None)), "alone");
    }
}
