//! Errors of opening a ledger on PostgreSQL.

use std::error::Error;

/// Why the ledger could not be opened. The messages address the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is invalid.
    #[error("invalid ledger address: {source}\n  expected postgres://user@host:5432/name")]
    Address {
        /// What is wrong with it.
        source: tokio_postgres::Error,
    },
    /// The address requires TLS and no trusted certificates are configured.
    #[error("the ledger address requires TLS, but no trusted certificates are configured")]
    WithoutTls,
    /// The database cannot be reached, or rejects the login.
    #[error(
        "the database {place} cannot be reached: {source}\n  check that it runs and accepts this user, then start again"
    )]
    Unreachable {
        /// The database.
        place: String,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database does not meet the requirements.
    #[error("the database {place} cannot keep a ledger: {reason}")]
    Unfit {
        /// The database.
        place: String,
        /// The requirement that is not met.
        reason: String,
    },
    /// The schema contains foreign tables.
    #[error(
        "the schema {schema:?} of {place} has a table {table:?} that is not Admit's\n  nothing was changed; choose another schema or another database"
    )]
    NotALedger {
        /// The database.
        place: String,
        /// The schema.
        schema: String,
        /// The foreign table.
        table: String,
    },
    /// There is no ledger, or it lacks migrations, and the caller only reads.
    #[error(
        "the ledger in {place} has schema version {found}, this build needs {needed}\n  nothing was changed; run: admit ledger migrate"
    )]
    Older {
        /// The database.
        place: String,
        /// Its schema version; zero if there is none.
        found: usize,
        /// Version that this build needs.
        needed: usize,
    },
    /// The ledger comes from a newer version.
    #[error(
        "the ledger in {place} has schema version {found}, this build knows {known}\n  nothing was changed; use the newer admit that wrote it"
    )]
    Newer {
        /// The database.
        place: String,
        /// Its schema version.
        found: usize,
        /// Newest version known to this build.
        known: usize,
    },
    /// Any other database error.
    #[error("the ledger in {place} cannot be opened: {source}")]
    Database {
        /// The database.
        place: String,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A thread could not be started.
    #[error("the ledger cannot be opened: {source}")]
    Thread {
        /// The error.
        source: std::io::Error,
    },
}
