//! Driver seam of the SQL ledgers: everything a port needs to run on SQLite and on PostgreSQL.
//!
//! A port is implemented once, over [`Db`] (an open transaction or a read snapshot), [`ReadBackend`] and
//! [`WriteBackend`] (the ledgers that open them). What differs between the databases is in the drivers
//! (`sqlite/driver.rs`, `postgres/driver.rs`) and in the statements that have a text for each.

mod columns;
mod param;
mod statement;

use std::cell::Cell;

use admit_core::{Entry, Fault};

use crate::common::notifier::Notifier;
use crate::issuance::{IssueHandlers, RecordedDelivery};
use crate::port::BoxFuture;

pub(crate) use columns::{Columns, InvalidValue};
pub(crate) use param::{Param, ints, params, row};
pub(crate) use statement::{
    Statement, numbered_with_question_marks, shared_for_sqlite, statements,
};

/// An open transaction or a read snapshot of a SQL database.
pub(crate) trait Db: 'static {
    /// A row of a result.
    type Row: Columns<Error = Self::Error>;
    /// Why a statement failed.
    type Error: std::error::Error + From<InvalidValue> + Send + Sync + 'static;

    /// Returns every row.
    fn query(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Self::Row>, Self::Error>;

    /// Returns the number of rows changed.
    fn execute(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<u64, Self::Error>;

    /// Runs several calls in order; the first error ends it. One round trip on PostgreSQL.
    fn query_all(&self, calls: &[Call<'_>]) -> Result<Vec<Vec<Self::Row>>, Self::Error>;

    /// Like [`query_all`](Self::query_all), for the numbers of rows changed.
    fn execute_all(&self, calls: &[Call<'_>]) -> Result<Vec<u64>, Self::Error>;

    /// Runs transaction control statements: savepoints. One round trip on PostgreSQL.
    fn batch(&self, statements: &'static str) -> Result<(), Self::Error>;

    /// Runs `read` on one state of the database, whatever is committed meanwhile. Not inside of a
    /// transaction.
    fn snapshot<T>(&self, read: impl FnOnce() -> Result<T, Self::Error>) -> Result<T, Self::Error>;

    /// Passes every row to `each`. SQLite reads one row at a time: for rows that are large together.
    fn for_each(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
        each: &mut EachRow<'_, Self::Error>,
    ) -> Result<(), Self::Error> {
        self.query(statement, params)?.iter().try_for_each(|row| each(row))
    }

    /// Returns the first row, if there is one.
    fn query_opt(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<Option<Self::Row>, Self::Error> {
        Ok(self.query(statement, params)?.into_iter().next())
    }

    /// Returns the first row of a statement that always has one.
    fn query_one(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<Self::Row, Self::Error> {
        let missing = || InvalidValue::new("a row that is always present is missing").into();
        self.query_opt(statement, params)?.ok_or_else(missing)
    }

    /// Whether the statement has a row.
    fn exists(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<bool, Self::Error> {
        Ok(self.query_opt(statement, params)?.is_some())
    }
}

/// Callback that receives one row at a time; an error ends it.
pub(crate) type EachRow<'e, E> = dyn FnMut(&dyn Columns<Error = E>) -> Result<(), E> + 'e;

/// One statement with its parameters, to be sent together with others.
pub(crate) struct Call<'a> {
    pub(crate) statement: &'static Statement,
    pub(crate) params: &'a [Param<'a>],
    pub(crate) rows: Option<&'a [Vec<Param<'a>>]>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(statement: &'static Statement, params: &'a [Param<'a>]) -> Self {
        Self { statement, params, rows: None }
    }

    /// A statement for many rows, with parameters of all of them first; nothing if there are no rows. SQLite
    /// executes it for each row. PostgreSQL executes it once: each parameter of the rows is an array.
    pub(crate) fn rows(
        statement: &'static Statement,
        params: &'a [Param<'a>],
        rows: &'a [Vec<Param<'a>>],
    ) -> Self {
        Self { statement, params, rows: Some(rows) }
    }
}

/// A ledger that can be read: the one of a gate, or one opened only to read.
pub(crate) trait ReadBackend: Send + Sync + 'static {
    /// What a read gets.
    type Db: Db;

    /// Runs `query` on a read connection, away from the async threads. It runs a second time where the
    /// first connection turned out to be dead. Its second argument is the tag of the ledger.
    fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Self::Db, u32) -> Result<T, <Self::Db as Db>::Error> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Fault>>;
}

/// A ledger that can be written: the one of a gate.
pub(crate) trait WriteBackend: ReadBackend {
    /// Applies `operation` in the next group commit and returns its result once that is durable.
    fn apply<O: Operation<Self::Db>>(
        &self,
        operation: O,
    ) -> BoxFuture<'_, Result<O::Output, Fault>>;

    /// All epochs of this process, the current one last.
    fn own_epochs(&self) -> Vec<u64>;

    /// Records a batch of a door that issues documents, in the next group commit.
    fn queue_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<Result<RecordedDelivery, Fault>>>;
}

/// A write of a port, applied inside of a group commit.
pub(crate) trait Operation<D: Db>: Send + 'static {
    /// What the caller gets after the commit.
    type Output: Send + 'static;

    /// Reads and writes inside of the transaction. After an error the transaction is rolled back to where
    /// it was before; an error of another operation rolls back too, and then this is called again.
    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error>;

    /// Notifies subscribers after the commit.
    fn notify(&self, _: &Self::Output, _: &Notifier) {}
}

/// The transaction of a group commit, as a port sees it.
pub(crate) struct Transaction<'t, D> {
    /// The database inside of the transaction.
    pub(crate) db: &'t D,
    /// Epoch of this gate.
    pub(crate) epoch: u64,
    /// Whether other gates may be declared dead now: not while the lease of this gate expired moments
    /// ago, because theirs may have expired for the same reason. Always where there is one gate.
    pub(crate) may_expire_gates: bool,
    /// Whether other gates may write to the same ledger.
    pub(crate) is_shared: bool,
    /// Set when an entry of a stream is released: gates look for that when they poll for news.
    pub(crate) has_released: Cell<bool>,
    /// All epochs of this process.
    pub(crate) own_epochs: &'t [u64],
    /// Number of the newest document, where the gates draw it from a counter.
    pub(crate) last_issued: Cell<u64>,
}
