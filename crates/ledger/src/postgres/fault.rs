//! What an error of the database means for the event that met it.

use admit_core::{Fault, FaultKind};
use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use super::conn::Error;

fn state(error: &Error) -> Option<&SqlState> {
    match error {
        Error::Server(error) => error.code(),
        Error::Silent(_) | Error::NotOurs(_) => None,
    }
}

/// Whether the server is only read, as the old one is after a failover.
pub(super) fn is_read_only(error: &Error) -> bool {
    state(error) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether the database refused what it was given, and not whoever gave it: without the culprit the
/// others can be written.
pub(super) fn is_of_content(error: &Error) -> bool {
    match error {
        Error::Server(error) => match error.code() {
            // A value that is none, a rule or a trigger that refuses it, too large, not understood; or
            // all of that earlier in the same transaction.
            Some(state) => {
                let class = state.code().get(..2).unwrap_or_default();
                ["22", "23", "38", "39", "42", "44", "54", "P0"].contains(&class)
                    || *state == SqlState::IN_FAILED_SQL_TRANSACTION
            }
            // A parameter that cannot be sent, where the connection is still there.
            None => true,
        },
        Error::NotOurs(_) => true,
        Error::Silent(_) => false,
    }
}

/// A failure before the commit was asked for: nothing of the batch was kept.
pub(super) fn unavailable(error: Error) -> Fault {
    let message = match state(&error) {
        Some(&SqlState::DISK_FULL) => "the database's disk is full, nothing was stored",
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            "the database is read-only just now, nothing was stored"
        }
        Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED) => {
            "the database took too long, nothing was stored"
        }
        Some(&SqlState::TOO_MANY_CONNECTIONS) => {
            "the database has no connection to give, nothing was stored"
        }
        Some(_) => "the ledger is unavailable, nothing was stored",
        None => "the database cannot be reached, nothing was stored",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}

/// A commit of which nobody could find out in time what became of it.
pub(super) fn unknown(error: Error) -> Fault {
    Fault::caused_by(
        FaultKind::OutcomeUnknown,
        "the ledger did not confirm the commit, send the same event again to find out",
        error,
    )
}

/// A failed question; nothing was to be stored.
pub(super) fn unreadable(error: Error) -> Fault {
    let message = match error {
        Error::NotOurs(_) => "what the ledger keeps cannot be read",
        Error::Server(_) | Error::Silent(_) => "the ledger cannot be read just now",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}

/// No connection to ask on.
pub(super) fn no_reader(error: PoolError) -> Fault {
    match error {
        PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
            let message = "too many questions wait for the ledger, ask again later";
            Fault::caused_by(FaultKind::Overloaded, message, error)
        }
        PoolError::Timeout(_)
        | PoolError::Backend(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            let message = "the ledger cannot be read just now";
            Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
        }
    }
}
