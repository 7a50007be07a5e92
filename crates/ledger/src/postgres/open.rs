//! Why a ledger on PostgreSQL could not be opened.

use std::error::Error;

/// Why the ledger could not be opened. The texts are for the person who has to act on them.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error(
        "the address of the ledger is not one of a database: {source}\n  it looks like postgres://user@host:5432/name"
    )]
    Address {
        /// What is wrong with it.
        source: tokio_postgres::Error,
    },
    /// The address asks for TLS and nothing says whom to trust.
    #[error("the address of the ledger asks for tls, but no certificates to trust are configured")]
    WithoutTls,
    /// The database cannot be reached, or does not let us in.
    #[error(
        "the database {place} cannot be reached: {source}\n  check that it runs and lets this user in, then start again"
    )]
    Unreachable {
        /// Which database.
        place: String,
        /// What it said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database cannot keep a ledger.
    #[error("the database {place} cannot keep a ledger: {reason}")]
    Unfit {
        /// Which database.
        place: String,
        /// Why not.
        reason: String,
    },
    /// There are tables in the schema that are not ours.
    #[error(
        "the schema {schema:?} of {place} has a table {table:?} that is not Admit's\n  nothing was changed; choose another schema or another database"
    )]
    NotALedger {
        /// Which database.
        place: String,
        /// Which schema.
        schema: String,
        /// The table in the way.
        table: String,
    },
    /// There is no ledger, or it lacks migrations, and whoever asked only reads.
    #[error(
        "the ledger in {place} has schema version {found}, this build needs {needed}\n  nothing was changed; run: admit ledger migrate"
    )]
    Older {
        /// Which database.
        place: String,
        /// What it has; zero is none.
        found: usize,
        /// What this build needs.
        needed: usize,
    },
    /// The ledger comes from a newer version.
    #[error(
        "the ledger in {place} has schema version {found}, this build knows {known}\n  nothing was changed; use the newer admit that wrote it"
    )]
    Newer {
        /// Which database.
        place: String,
        /// What it has.
        found: usize,
        /// What we know.
        known: usize,
    },
    /// Anything else the database says.
    #[error("the ledger in {place} cannot be opened: {source}")]
    Database {
        /// Which database.
        place: String,
        /// What it said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system has no thread to give.
    #[error("the ledger cannot be opened: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}
