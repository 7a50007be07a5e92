//! Maps database errors to faults.

use admit_core::{Fault, FaultKind};
use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use super::conn::Error;

fn state(error: &Error) -> Option<&SqlState> {
    match error {
        Error::Server(error) => error.code(),
        Error::Timeout(_) | Error::Unexpected(_) => None,
    }
}

/// Whether the server is read-only, as the old primary is after a failover.
pub(super) fn is_read_only(error: &Error) -> bool {
    state(error) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether the database rejected the content of a statement and did not fail as a whole: without it the others
/// can be written.
pub(super) fn is_of_content(error: &Error) -> bool {
    match error {
        Error::Server(error) => match error.code() {
            // Invalid values, rejected by a constraint or trigger, too large, syntax errors; or any of that earlier in
            // the same transaction.
            Some(state) => {
                let class = state.code().get(..2).unwrap_or_default();
                ["22", "23", "38", "39", "42", "44", "54", "P0"].contains(&class)
                    || *state == SqlState::IN_FAILED_SQL_TRANSACTION
            }
            // A parameter that cannot be encoded, if the connection is still open.
            None => true,
        },
        Error::Unexpected(_) => true,
        Error::Timeout(_) => false,
    }
}

/// Whether a key was to be claimed that another admission has claimed.
pub(super) fn is_key_taken(error: &Error) -> bool {
    let Error::Server(error) = error else { return false };
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::UNIQUE_VIOLATION
            && error.table().is_some_and(|table| table.starts_with("key_index"))
    })
}

/// Failure before COMMIT: nothing of the batch was stored.
pub(super) fn unavailable(error: Error) -> Fault {
    let message = match state(&error) {
        Some(&SqlState::DISK_FULL) => "the database's disk is full, nothing was stored",
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            "the database is currently read-only, nothing was stored"
        }
        Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED) => {
            "the database took too long, nothing was stored"
        }
        Some(&SqlState::TOO_MANY_CONNECTIONS) => {
            "the database has no free connection, nothing was stored"
        }
        Some(_) => "the ledger is unavailable, nothing was stored",
        None => "the database cannot be reached, nothing was stored",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}

/// Failure of COMMIT whose outcome could not be resolved in time.
pub(super) fn unknown(error: Error) -> Fault {
    Fault::caused_by(
        FaultKind::OutcomeUnknown,
        "the ledger did not confirm the commit, send the same event again to find out",
        error,
    )
}

/// Failed query; nothing was to be stored.
pub(super) fn unreadable(error: Error) -> Fault {
    let message = match error {
        Error::Unexpected(_) => "stored data of the ledger cannot be parsed",
        Error::Server(_) | Error::Timeout(_) => "the ledger cannot be read at the moment",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}

/// No connection for a query.
pub(super) fn no_reader(error: PoolError) -> Fault {
    match error {
        PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
            let message = "too many queries wait for the ledger, retry later";
            Fault::caused_by(FaultKind::Overloaded, message, error)
        }
        PoolError::Timeout(_)
        | PoolError::Backend(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            let message = "the ledger cannot be read at the moment";
            Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
        }
    }
}
