//! What a SQLite error means for the event that met it.

use admit_core::{Fault, FaultKind};
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// How a failed write must be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// It may pass by itself (full, locked, read-only): answer, go on, try again with the next.
    Passing,
    /// The disk did not confirm a sync. What is in the page cache can no longer be believed, so
    /// the process must stop and come back through recovery.
    SyncFailed,
    /// A promise of the ledger is broken (a key claimed twice, a damaged file): stop.
    Broken,
}

/// How serious `error` is.
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

/// Whether `error` is about what a single row holds, such as text that is none. Then whatever has nothing
/// to do with that row can go on.
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

/// Whether the ledger refused what one write command contains, and did not fail as a whole: without
/// that command the rest of its group can be committed.
pub(super) fn is_of_content(error: &rusqlite::Error) -> bool {
    use ErrorCode as C;
    match error.sqlite_error_code() {
        // The value never reached the database, or what was read is not what the ledger writes.
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

/// What an event is told whose key or whose document is in such a row.
pub(super) fn damaged_row(error: rusqlite::Error) -> Fault {
    let message = "what is kept of this event's past is damaged, nothing was stored";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// A failure before the commit was asked for: nothing of the batch was kept.
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

/// A failure of the commit itself, after which nobody knows what the disk holds.
pub(super) fn unknown(error: rusqlite::Error) -> Fault {
    Fault::caused_by(
        FaultKind::OutcomeUnknown,
        "the ledger did not confirm the commit, send the same event again to find out",
        error,
    )
}

/// A failed question; nothing was to be stored.
pub(super) fn unreadable(error: rusqlite::Error) -> Fault {
    let message = match severity(&error) {
        Severity::Broken => "the ledger's file is damaged",
        Severity::Passing | Severity::SyncFailed => "the ledger cannot be read just now",
    };
    Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
}
