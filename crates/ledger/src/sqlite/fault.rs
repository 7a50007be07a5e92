//! Maps SQLite errors to faults.

use admit_core::{Fault, FaultKind};
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// How a failed write must be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Transient (full, locked, read-only): reply, continue, retry with the next commit.
    Passing,
    /// The disk did not confirm a sync. The page cache can no longer be trusted, so the process must stop and
    /// restart through recovery.
    SyncFailed,
    /// An invariant is broken (a key claimed twice, a damaged file): stop.
    Broken,
}

/// The severity of `error`.
pub(super) fn severity(error: &rusqlite::Error) -> Severity {
    let Some(inner) = error.sqlite_error() else { return Severity::Passing };
    match inner.extended_code {
        ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC => Severity::SyncFailed,
        _ if matches!(inner.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Severity::Broken
        }
        _ => Severity::Passing,
    }
}

/// Whether `error` concerns the content of a single row, such as invalid text. Everything unrelated to that
/// row can continue.
pub(super) fn is_of_a_row(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(
        error,
        E::FromSqlConversionFailure(..)
            | E::InvalidColumnType(..)
            | E::IntegralValueOutOfRange(..)
            | E::Utf8Error(..)
    )
}

/// Whether the database rejected the content of one write operation and did not fail as a whole: without it
/// the rest of the batch can be committed.
pub(super) fn is_of_content(error: &rusqlite::Error) -> bool {
    use ErrorCode as C;
    match error.sqlite_error_code() {
        // The value never reached the database, or a stored value is invalid.
        None => true,
        Some(code) => matches!(
            code,
            C::ConstraintViolation
                | C::TypeMismatch
                | C::TooBig
                | C::ParameterOutOfRange
                | C::Unknown
        ),
    }
}

/// Fault of an event whose key or document is in a damaged row.
pub(super) fn damaged_row(error: rusqlite::Error) -> Fault {
    let message = "a stored row that this event depends on is damaged, nothing was stored";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// Failure before COMMIT: nothing of the batch was stored.
pub(super) fn unavailable(error: rusqlite::Error) -> Fault {
    let message = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the ledger's disk is full, nothing was stored",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "the ledger cannot be written to, nothing was stored"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "the ledger is locked by another program, nothing was stored"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "the ledger's file is damaged, nothing was stored"
        }
        _ => "the ledger is unavailable, nothing was stored",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}

/// Failure of COMMIT itself: the outcome is unknown.
pub(super) fn unknown(error: rusqlite::Error) -> Fault {
    Fault::caused_by(
        FaultKind::OutcomeUnknown,
        "the ledger did not confirm the commit, send the same event again to find out",
        error,
    )
}

/// Failed query; nothing was to be stored.
pub(super) fn unreadable(error: rusqlite::Error) -> Fault {
    let message = match severity(&error) {
        Severity::Broken => "the ledger's file is damaged",
        Severity::Passing | Severity::SyncFailed => "the ledger cannot be read just now",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}
