//! One connection, asked synchronously.
//!
//! The writer is a thread and readers run away from the async threads, so what they do reads like
//! what it is: one statement after the other. Statements are prepared once per connection. Every
//! answer is waited for a bounded time; a connection that stayed silent is not used again.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::{Millis, Seq};
use bytes::Bytes;
use deadpool_postgres::{ClientWrapper, Object};
use futures_util::SinkExt as _;
use futures_util::future::join_all;
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Row, Statement};

use super::text;

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// What a statement gives.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// Why a statement gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The server said no, or the connection is lost.
    #[error("{}", told(.0))]
    Server(#[from] tokio_postgres::Error),
    /// No answer came in time.
    #[error("the database did not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    /// What is stored is not what this ledger writes.
    #[error("{0}")]
    NotOurs(String),
}

/// What the server said, without the wrapping.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl Error {
    /// A stored word that nobody of ours writes.
    pub(super) fn not_ours(what: &str, word: &str) -> Self {
        Self::NotOurs(format!("{what} {word:?} is not one of ours"))
    }
}

/// One statement with its parameters, to be sent together with others.
pub(super) struct Ask<'a> {
    sql: &'a str,
    params: Vec<Param<'a>>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(sql: &'a str, params: Vec<Param<'a>>) -> Self {
        Self { sql, params }
    }
}

/// Whose the connection is.
enum Held {
    /// The writer's own.
    Own(ClientWrapper),
    /// Lent by the pool of the readers.
    Lent(Object),
}

/// What carries its bytes.
enum Drive {
    /// A runtime of this thread: an answer needs no second thread to be woken.
    Own(Arc<Runtime>),
    Shared(Handle),
}

/// A connection.
pub(super) struct Conn {
    held: Held,
    drive: Drive,
    answer_max: Cell<Duration>,
    is_silent: Cell<bool>,
}

impl Conn {
    /// The writer's connection, which `runtime` carries.
    pub(super) fn own(client: ClientWrapper, runtime: Arc<Runtime>, answer_max: Duration) -> Self {
        let (held, drive) = (Held::Own(client), Drive::Own(runtime));
        Self { held, drive, answer_max: Cell::new(answer_max), is_silent: Cell::new(false) }
    }

    /// A reader's connection for the time of one question.
    pub(super) fn lent(client: Object, handle: Handle, answer_max: Duration) -> Self {
        let (held, drive) = (Held::Lent(client), Drive::Shared(handle));
        Self { held, drive, answer_max: Cell::new(answer_max), is_silent: Cell::new(false) }
    }

    /// Does work whose statements may take as long as it says, and not as long as others may.
    pub(super) fn patiently<T>(&self, patience: Duration, work: impl FnOnce() -> T) -> T {
        let usual = self.answer_max.replace(patience);
        let done = work();
        self.answer_max.set(usual);
        done
    }

    /// Whether it can not be used any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_silent.get() || self.client().is_closed()
    }

    /// What the pool lent is given back, unless it is of no more use.
    pub(super) fn give_back(self) {
        let is_lost = self.is_lost();
        if let Held::Lent(object) = self.held
            && is_lost
        {
            drop(Object::take(object));
        }
    }

    fn client(&self) -> &ClientWrapper {
        match &self.held {
            Held::Own(client) => client,
            Held::Lent(object) => object,
        }
    }

    fn wait<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let answer_max = self.answer_max.get();
        let bounded = async { tokio::time::timeout(answer_max, answer).await };
        let answered = match &self.drive {
            Drive::Own(runtime) => runtime.block_on(bounded),
            Drive::Shared(handle) => handle.block_on(bounded),
        };
        match answered {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.is_silent.set(true);
                Err(Error::Silent(answer_max))
            }
        }
    }

    /// Every row.
    pub(super) fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.wait(async {
            let statement = self.client().prepare_cached(sql).await?;
            self.client().query(&statement, params).await
        })
    }

    /// The first row, if there is one.
    pub(super) fn query_opt(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// The one row there is.
    pub(super) fn query_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row> {
        let none = || Error::NotOurs("a row that is always there is missing".to_owned());
        self.query_opt(sql, params)?.ok_or_else(none)
    }

    /// How many rows it touched.
    pub(super) fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        self.wait(async {
            let statement = self.client().prepare_cached(sql).await?;
            self.client().execute(&statement, params).await
        })
    }

    /// Statements without parameters and without an answer.
    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.wait(self.client().batch_execute(sql))
    }

    /// Every row of a statement that is not worth preparing.
    pub(super) fn query_once(&self, sql: &str) -> Result<Vec<Row>> {
        self.wait(self.client().query_typed(sql, &[]))
    }

    /// Puts rows into a table, in the text form of COPY. Returns how many were taken.
    pub(super) fn copy_in(&self, sql: &str, rows: Bytes) -> Result<u64> {
        self.wait(async {
            let mut sink = pin!(self.client().copy_in(sql).await?);
            sink.send(rows).await?;
            sink.finish().await
        })
    }

    /// Sends all statements before it waits for the first answer: one round trip. They are done in
    /// order; the first that fails is what is told.
    pub(super) fn query_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>> {
        self.wait(async {
            let statements = self.prepared(asks).await?;
            let sent = asks.iter().zip(&statements);
            let sent = sent.map(|(ask, prepared)| self.client().query(prepared, &ask.params));
            join_all(sent).await.into_iter().collect()
        })
    }

    /// The same for statements of which only the number of rows matters.
    pub(super) fn execute_all(&self, asks: &[Ask<'_>]) -> Result<Vec<u64>> {
        Ok(self.try_all(asks)?.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// The same where it matters which of them fail: what became of each.
    pub(super) fn try_all(
        &self,
        asks: &[Ask<'_>],
    ) -> Result<Vec<std::result::Result<u64, tokio_postgres::Error>>> {
        self.wait(async {
            let statements = self.prepared(asks).await?;
            let sent = asks.iter().zip(&statements);
            let sent = sent.map(|(ask, prepared)| self.client().execute(prepared, &ask.params));
            Ok(join_all(sent).await)
        })
    }

    /// The statements, each prepared once per connection.
    async fn prepared(
        &self,
        asks: &[Ask<'_>],
    ) -> std::result::Result<Vec<Statement>, tokio_postgres::Error> {
        let mut statements = Vec::with_capacity(asks.len());
        for ask in asks {
            statements.push(self.client().prepare_cached(ask.sql).await?);
        }
        Ok(statements)
    }

    /// Does work that may fail without taking the open transaction with it. The outer error is of
    /// the connection, the inner one is the work's own: then nothing of it is left.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
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

/// A number as the database keeps it. Ours never come near the sign.
pub(super) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The same for one that may be missing.
pub(super) fn big_opt(number: Option<u64>) -> Option<i64> {
    number.map(big)
}

/// A limit of rows.
pub(super) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A column by its name or its number.
pub(super) trait At: RowIndex + fmt::Display {}

impl<T: RowIndex + fmt::Display> At for T {}

/// What the columns of a row hold, in our types.
pub(super) trait Columns {
    fn val<T: FromSqlOwned>(&self, at: impl At) -> Result<T>;

    fn num(&self, at: impl At) -> Result<u64> {
        self.val::<i64>(at).and_then(unsigned)
    }

    fn num_opt(&self, at: impl At) -> Result<Option<u64>> {
        self.val::<Option<i64>>(at)?.map(unsigned).transpose()
    }

    fn small(&self, at: impl At) -> Result<u32> {
        self.num(at).and_then(small)
    }

    fn small_opt(&self, at: impl At) -> Result<Option<u32>> {
        self.num_opt(at)?.map(small).transpose()
    }

    fn seq(&self, at: impl At) -> Result<Seq> {
        self.num(at).map(Seq)
    }

    fn seq_opt(&self, at: impl At) -> Result<Option<Seq>> {
        Ok(self.num_opt(at)?.map(Seq))
    }

    fn millis(&self, at: impl At) -> Result<Millis> {
        self.val(at).map(Millis)
    }

    fn millis_opt(&self, at: impl At) -> Result<Option<Millis>> {
        Ok(self.val::<Option<i64>>(at)?.map(Millis))
    }

    fn text(&self, at: impl At) -> Result<String> {
        self.val(at).map(text::shown)
    }

    fn text_opt(&self, at: impl At) -> Result<Option<String>> {
        Ok(self.val::<Option<String>>(at)?.map(text::shown))
    }

    fn flag(&self, at: impl At) -> Result<bool> {
        Ok(self.val::<i64>(at)? != 0)
    }

    fn bytes32(&self, at: impl At) -> Result<[u8; 32]> {
        self.val::<Vec<u8>>(at).and_then(thirty_two)
    }

    fn bytes32_opt(&self, at: impl At) -> Result<Option<[u8; 32]>> {
        self.val::<Option<Vec<u8>>>(at)?.map(thirty_two).transpose()
    }
}

impl Columns for Row {
    fn val<T: FromSqlOwned>(&self, at: impl At) -> Result<T> {
        Ok(self.try_get(at)?)
    }
}

fn unsigned(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| Error::NotOurs(format!("{number} is less than nothing")))
}

fn small(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::NotOurs(format!("{number} is too large to be ours")))
}

fn thirty_two(bytes: Vec<u8>) -> Result<[u8; 32]> {
    let length = bytes.len();
    bytes.try_into().map_err(|_| Error::NotOurs(format!("{length} bytes where 32 belong")))
}
