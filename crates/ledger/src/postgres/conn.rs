//! A connection with a synchronous interface.
//!
//! The writer is a thread and readers run off the async threads, so their code is sequential. Statements are
//! prepared once per connection. Every reply has a timeout; a connection that timed out is not used
//! again.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::{Millis, Seq};
use bytes::Bytes;
use deadpool_postgres::{ClientWrapper, Object};
use futures_util::future::{join, join_all, maybe_done};
use futures_util::{FutureExt as _, SinkExt as _};
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Row, Statement};

use super::nul_escape;

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// Result of a statement.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Error of the server, or the connection was lost.
    #[error("{}", server_message(.0))]
    Server(#[from] tokio_postgres::Error),
    /// Timeout.
    #[error("no reply from the database within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// A stored value that this ledger never writes.
    #[error("{0}")]
    Unexpected(String),
}

/// The message of the server, without the wrapping.
fn server_message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db_error) => format!("{} ({})", db_error.message(), db_error.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl Error {
    /// A stored word that the ledger never writes.
    pub(super) fn unexpected(what: &str, word: &str) -> Self {
        Self::Unexpected(format!("unknown {what} {word:?}"))
    }
}

/// A statement with its parameters, to be sent together with others.
pub(super) struct Query<'a> {
    sql: &'a str,
    params: Vec<Param<'a>>,
}

impl<'a> Query<'a> {
    pub(super) fn new(sql: &'a str, params: Vec<Param<'a>>) -> Self {
        Self { sql, params }
    }
}

/// A statement that owns parameters, so that it outlives the function that makes it.
pub(super) struct OwnedQuery<'a> {
    sql: &'a str,
    params: Vec<OwnedParam<'a>>,
}

/// A parameter of an [`OwnedQuery`].
pub(super) type OwnedParam<'a> = Box<dyn ToSql + Sync + 'a>;

impl<'a> OwnedQuery<'a> {
    pub(super) fn new(sql: &'a str, params: Vec<OwnedParam<'a>>) -> Self {
        Self { sql, params }
    }
}

/// A statement of a pipeline.
pub(super) trait PipelinedQuery {
    fn sql(&self) -> &str;
    fn params(&self) -> Vec<Param<'_>>;
}

impl PipelinedQuery for Query<'_> {
    fn sql(&self) -> &str {
        self.sql
    }

    fn params(&self) -> Vec<Param<'_>> {
        self.params.clone()
    }
}

impl PipelinedQuery for OwnedQuery<'_> {
    fn sql(&self) -> &str {
        self.sql
    }

    fn params(&self) -> Vec<Param<'_>> {
        self.params.iter().map(|param| &**param as Param<'_>).collect()
    }
}

/// Why [`Conn::commit`] failed.
#[derive(Debug)]
pub(super) enum CommitError {
    /// Nothing was committed.
    Before(Error),
    /// COMMIT was sent and got no reply, or an error.
    NoReply(Error),
}

/// Owner of the connection.
enum ClientHandle {
    /// The writer's own.
    Own(ClientWrapper),
    /// Borrowed from the pool of the readers.
    Pooled(Object),
}

/// The runtime that drives the connection.
enum Driver {
    /// A runtime of this thread: a reply needs no second thread to be woken.
    Own(Arc<Runtime>),
    Shared(Handle),
}

/// A connection.
pub(crate) struct Conn {
    client_handle: ClientHandle,
    driver: Driver,
    answer_max: Cell<Duration>,
    has_timed_out: Cell<bool>,
}

impl Conn {
    /// The writer's connection, driven by `runtime`.
    pub(super) fn dedicated(
        client: ClientWrapper,
        runtime: Arc<Runtime>,
        answer_max: Duration,
    ) -> Self {
        let (client_handle, driver) = (ClientHandle::Own(client), Driver::Own(runtime));
        Self {
            client_handle,
            driver,
            answer_max: Cell::new(answer_max),
            has_timed_out: Cell::new(false),
        }
    }

    /// A pooled connection for the duration of one query.
    pub(super) fn pooled(client: Object, handle: Handle, answer_max: Duration) -> Self {
        let (client_handle, driver) = (ClientHandle::Pooled(client), Driver::Shared(handle));
        Self {
            client_handle,
            driver,
            answer_max: Cell::new(answer_max),
            has_timed_out: Cell::new(false),
        }
    }

    /// Runs `work` with another timeout per statement.
    pub(super) fn with_timeout<T>(&self, patience: Duration, work: impl FnOnce() -> T) -> T {
        let usual = self.answer_max.replace(patience);
        let done = work();
        self.answer_max.set(usual);
        done
    }

    /// Whether the connection must not be used any more.
    pub(super) fn is_lost(&self) -> bool {
        self.has_timed_out.get() || self.client().is_closed()
    }

    /// Returns a pooled connection to its pool, or closes it if it is lost.
    pub(super) fn give_back(self) {
        let is_lost = self.is_lost();
        if let ClientHandle::Pooled(object) = self.client_handle
            && is_lost
        {
            drop(Object::take(object));
        }
    }

    fn client(&self) -> &ClientWrapper {
        match &self.client_handle {
            ClientHandle::Own(client) => client,
            ClientHandle::Pooled(object) => object,
        }
    }

    fn wait<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        let answer_max = self.answer_max.get();
        let bounded = async { tokio::time::timeout(answer_max, answer).await };
        let answered = match &self.driver {
            Driver::Own(runtime) => runtime.block_on(bounded),
            Driver::Shared(handle) => handle.block_on(bounded),
        };
        match answered {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.has_timed_out.set(true);
                Err(Error::Timeout(answer_max))
            }
        }
    }

    /// Returns every row.
    pub(super) fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.wait(async {
            let statement = self.client().prepare_cached(sql).await?;
            self.client().query(&statement, params).await
        })
    }

    /// Returns the first row, if there is one.
    pub(super) fn query_opt(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// Returns the only row.
    pub(super) fn query_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row> {
        let none = || Error::Unexpected("a row that is always there is missing".to_owned());
        self.query_opt(sql, params)?.ok_or_else(none)
    }

    /// Returns the number of affected rows.
    pub(super) fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        self.wait(async {
            let statement = self.client().prepare_cached(sql).await?;
            self.client().execute(&statement, params).await
        })
    }

    /// Executes statements without parameters and without a result.
    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.wait(self.client().batch_execute(sql))
    }

    /// Returns every row of a statement that is not worth preparing.
    pub(super) fn query_once(&self, sql: &str) -> Result<Vec<Row>> {
        self.wait(self.client().query_typed(sql, &[]))
    }

    /// Copies rows into a table, in the text format of COPY. Returns their number.
    pub(super) fn copy_in(&self, sql: &str, rows: Bytes) -> Result<u64> {
        self.wait(async {
            let mut sink = pin!(self.client().copy_in(sql).await?);
            sink.send(rows).await?;
            sink.finish().await
        })
    }

    /// Pipelines statements: one round trip. They are executed in order; returns the error of the first that
    /// fails.
    pub(super) fn query_all(&self, queries: &[impl PipelinedQuery]) -> Result<Vec<Vec<Row>>> {
        self.wait(async {
            let statements = self.prepared(queries).await?;
            let params: Vec<_> = queries.iter().map(PipelinedQuery::params).collect();
            let sent = params.iter().zip(&statements);
            let sent = sent.map(|(params, prepared)| self.client().query(prepared, params));
            join_all(sent).await.into_iter().collect()
        })
    }

    /// Pipelines statements; returns the number of affected rows of each.
    pub(super) fn execute_all(&self, queries: &[impl PipelinedQuery]) -> Result<Vec<u64>> {
        Ok(self.try_all(queries)?.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// Pipelines statements; returns the result of each, including failures.
    pub(super) fn try_all(
        &self,
        queries: &[impl PipelinedQuery],
    ) -> Result<Vec<std::result::Result<u64, tokio_postgres::Error>>> {
        self.wait(async {
            let statements = self.prepared(queries).await?;
            let params: Vec<_> = queries.iter().map(PipelinedQuery::params).collect();
            let sent = params.iter().zip(&statements);
            let sent = sent.map(|(params, prepared)| self.client().execute(prepared, params));
            Ok(join_all(sent).await)
        })
    }

    /// Pipelines statements and a COMMIT behind them: one round trip. The server does not commit after a
    /// failed statement, and COMMIT is not sent if a statement could not be.
    pub(super) fn commit(
        &self,
        queries: &[impl PipelinedQuery],
    ) -> std::result::Result<(), CommitError> {
        let is_sent = Cell::new(false);
        let answered = self.wait(async {
            let statements = self.prepared(queries).await?;
            let params: Vec<_> = queries.iter().map(PipelinedQuery::params).collect();
            let sent = params.iter().zip(&statements);
            let sent = sent.map(|(params, prepared)| self.client().execute(prepared, params));
            let mut sent: Vec<_> = sent.map(|sent| Box::pin(maybe_done(sent))).collect();
            for statement in &mut sent {
                // The first poll encodes and sends it.
                if statement.as_mut().now_or_never().is_some()
                    && statement.as_mut().output_mut().is_some_and(|done| done.is_err())
                    && let Some(failed) = statement.as_mut().take_output()
                {
                    return Ok((failed.map(drop), Ok(())));
                }
            }
            is_sent.set(true);
            let commit = self.client().batch_execute("COMMIT");
            let ((), committed) = join(join_all(&mut sent).map(drop), commit).await;
            let done = sent.iter_mut().filter_map(|done| done.as_mut().take_output());
            let written: std::result::Result<Vec<u64>, _> = done.collect();
            Ok((written.map(drop), committed))
        });
        match answered {
            Ok((Ok(()), Ok(()))) => Ok(()),
            Ok((Err(error), _)) if !is_sent.get() || self.is_rejected(&error) => {
                Err(CommitError::Before(error.into()))
            }
            Ok((Err(error), _) | (Ok(()), Err(error))) => Err(CommitError::NoReply(error.into())),
            Err(error) if is_sent.get() => Err(CommitError::NoReply(error)),
            Err(error) => Err(CommitError::Before(error)),
        }
    }

    /// Whether the server has rejected a statement, and therefore its transaction.
    fn is_rejected(&self, error: &tokio_postgres::Error) -> bool {
        error.as_db_error().is_some() && !self.is_lost()
    }

    /// Prepares statements, once per connection.
    async fn prepared(
        &self,
        queries: &[impl PipelinedQuery],
    ) -> std::result::Result<Vec<Statement>, tokio_postgres::Error> {
        let mut statements = Vec::with_capacity(queries.len());
        for call in queries {
            statements.push(self.client().prepare_cached(call.sql()).await?);
        }
        Ok(statements)
    }

    /// Runs `work` in a savepoint. The outer error is of the connection, the inner one is of `work`, which was
    /// rolled back.
    pub(super) fn in_savepoint<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
        self.batch("SAVEPOINT guarded")?;
        match work() {
            Ok(done) => {
                self.batch("RELEASE SAVEPOINT guarded")?;
                Ok(Ok(done))
            }
            Err(error) if self.is_lost() => Err(error),
            Err(error) => {
                self.batch("ROLLBACK TO SAVEPOINT guarded; RELEASE SAVEPOINT guarded")?;
                Ok(Err(error))
            }
        }
    }
}

/// Converts to the integer type of the database. The ledger's numbers never come near the sign bit.
pub(super) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The same for an optional number.
pub(super) fn big_opt(number: Option<u64>) -> Option<i64> {
    number.map(big)
}

/// Column name or index.
pub(super) trait At: RowIndex + fmt::Display {}

impl<T: RowIndex + fmt::Display> At for T {}

/// Typed access to the columns of a row.
pub(super) trait Columns {
    fn val<T: FromSqlOwned>(&self, at: impl At) -> Result<T>;

    fn num(&self, at: impl At) -> Result<u64> {
        self.val::<i64>(at).and_then(unsigned)
    }

    fn small(&self, at: impl At) -> Result<u32> {
        self.num(at).and_then(small)
    }

    fn seq(&self, at: impl At) -> Result<Seq> {
        self.num(at).map(Seq)
    }

    fn millis(&self, at: impl At) -> Result<Millis> {
        self.val(at).map(Millis)
    }

    fn millis_opt(&self, at: impl At) -> Result<Option<Millis>> {
        Ok(self.val::<Option<i64>>(at)?.map(Millis))
    }

    fn text(&self, at: impl At) -> Result<String> {
        self.val(at).map(nul_escape::unescape)
    }

    fn text_opt(&self, at: impl At) -> Result<Option<String>> {
        Ok(self.val::<Option<String>>(at)?.map(nul_escape::unescape))
    }

    fn bytes32(&self, at: impl At) -> Result<[u8; 32]> {
        self.val::<Vec<u8>>(at).and_then(thirty_two)
    }
}

impl Columns for Row {
    fn val<T: FromSqlOwned>(&self, at: impl At) -> Result<T> {
        Ok(self.try_get(at)?)
    }
}

fn unsigned(number: i64) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| Error::Unexpected(format!("negative value {number} in an unsigned column")))
}

fn small(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::Unexpected(format!("value {number} exceeds 32 bits")))
}

fn thirty_two(bytes: Vec<u8>) -> Result<[u8; 32]> {
    let length = bytes.len();
    bytes.try_into().map_err(|_| Error::Unexpected(format!("{length} bytes in a column of 32")))
}
