//! PostgreSQL driver.

use std::borrow::Cow;
use std::cell::Cell;

use admit_core::{Entry, Fault};
use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::conn::{self, Conn, Error, Query};
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, PostgresReader, nul_escape};
use crate::common::notifier::Notifier;
use crate::db::{
    Call, Columns, Db, InvalidValue, Operation, Param, ReadBackend, Statement, Transaction,
    WriteBackend,
};
use crate::issuance::{IssueHandlers, RecordedDelivery};
use crate::port::BoxFuture;

impl From<InvalidValue> for Error {
    fn from(error: InvalidValue) -> Self {
        Self::Unexpected(error.into_message())
    }
}

/// Texts are stored without NUL characters.
impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) => Ok(IsNull::Yes),
            Self::Int(Some(number)) => match *ty {
                Type::BOOL => (*number != 0).to_sql(ty, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(ty, out),
                Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
                _ => number.to_sql(ty, out),
            },
            Self::Text(Some(text)) => nul_escape::escape(text).to_sql(ty, out),
            Self::Bytes(Some(bytes)) => bytes.to_sql(ty, out),
            Self::Texts(texts) => {
                let texts: Vec<_> = texts.iter().map(|text| nul_escape::escape(text)).collect();
                texts.to_sql(ty, out)
            }
            Self::Ints(numbers) => numbers.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(
            *ty,
            Type::BOOL
                | Type::INT2
                | Type::INT4
                | Type::INT8
                | Type::TEXT
                | Type::VARCHAR
                | Type::BYTEA
                | Type::TEXT_ARRAY
                | Type::INT8_ARRAY
        )
    }

    to_sql_checked!();
}

/// An integer column of any width, or a truth value.
struct AnyInt(i64);

impl<'a> FromSql<'a> for AnyInt {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::BOOL => i64::from(bool::from_sql(ty, raw)?),
            Type::INT2 => i64::from(i16::from_sql(ty, raw)?),
            Type::INT4 => i64::from(i32::from_sql(ty, raw)?),
            _ => i64::from_sql(ty, raw)?,
        }))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8)
    }
}

impl Columns for Row {
    type Error = Error;

    fn int_opt(&self, column: &str) -> conn::Result<Option<i64>> {
        Ok(self.try_get::<_, Option<AnyInt>>(column)?.map(|number| number.0))
    }

    fn text_opt(&self, column: &str) -> conn::Result<Option<String>> {
        Ok(self.try_get::<_, Option<String>>(column)?.map(nul_escape::unescape))
    }

    fn bytes_opt(&self, column: &str) -> conn::Result<Option<Vec<u8>>> {
        Ok(self.try_get(column)?)
    }
}

/// The parameters in the form that the client library takes.
fn erased<'a>(params: &'a [Param<'_>]) -> Vec<conn::Param<'a>> {
    params.iter().map(|param| param as _).collect()
}

/// A parameter of many rows, as an array.
#[derive(Debug)]
enum ParamColumn<'a> {
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Bytes(Vec<Option<&'a [u8]>>),
}

impl<'a> ParamColumn<'a> {
    /// The parameter at `index` of each row, or an error where they are of different types.
    fn of(rows: &'a [Vec<Param<'a>>], index: usize) -> conn::Result<Self> {
        let mixed = || Error::Unexpected(format!("parameter {index} of the rows has no one type"));
        let cells = || rows.iter().map(|row| row.get(index).ok_or_else(mixed));
        Ok(match cells().next().ok_or_else(mixed)?? {
            Param::Int(_) => Self::Ints(
                cells()
                    .map(|cell| if let Param::Int(int) = cell? { Ok(*int) } else { Err(mixed()) })
                    .collect::<conn::Result<_>>()?,
            ),
            Param::Text(_) => Self::Texts(
                cells()
                    .map(|cell| {
                        let Param::Text(text) = cell? else { return Err(mixed()) };
                        Ok(text.map(nul_escape::escape))
                    })
                    .collect::<conn::Result<_>>()?,
            ),
            Param::Bytes(_) => Self::Bytes(
                cells()
                    .map(|cell| if let Param::Bytes(x) = cell? { Ok(*x) } else { Err(mixed()) })
                    .collect::<conn::Result<_>>()?,
            ),
            Param::Texts(_) | Param::Ints(_) => return Err(mixed()),
        })
    }

    fn erased(&self) -> conn::Param<'_> {
        match self {
            Self::Ints(ints) => ints,
            Self::Texts(texts) => texts,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A call with its parameters in the form that the client library takes.
pub(super) struct BoundCall<'a> {
    sql: &'static str,
    params: &'a [Param<'a>],
    columns: Vec<ParamColumn<'a>>,
}

impl<'a> BoundCall<'a> {
    /// Nothing of a call for rows where there are none.
    pub(super) fn of(call: &Call<'a>) -> Option<conn::Result<Self>> {
        let columns = match call.rows {
            None => Ok(Vec::new()),
            Some(rows) => (0..rows.first()?.len()).map(|at| ParamColumn::of(rows, at)).collect(),
        };
        let (sql, params) = (call.statement.postgres(), call.params);
        Some(columns.map(|columns| Self { sql, params, columns }))
    }

    pub(super) fn query(&self) -> Query<'_> {
        let mut params = erased(self.params);
        params.extend(self.columns.iter().map(ParamColumn::erased));
        Query::new(self.sql, params)
    }
}

/// Sends the calls, except those without rows; the results have the order of the calls.
fn send_all<T: Default>(
    calls: &[Call<'_>],
    send: impl FnOnce(&[Query<'_>]) -> conn::Result<Vec<T>>,
) -> conn::Result<Vec<T>> {
    let bound: Vec<Option<BoundCall<'_>>> =
        calls.iter().map(|call| BoundCall::of(call).transpose()).collect::<conn::Result<_>>()?;
    let queries: Vec<Query<'_>> = bound.iter().flatten().map(BoundCall::query).collect();
    let results = if queries.is_empty() { Vec::new() } else { send(&queries)? };
    let mut results = results.into_iter();
    let result = |call: &Option<_>| call.as_ref().and_then(|_| results.next()).unwrap_or_default();
    Ok(bound.iter().map(result).collect())
}

impl Db for Conn {
    type Row = Row;
    type Error = Error;

    fn query(&self, statement: &'static Statement, params: &[Param<'_>]) -> conn::Result<Vec<Row>> {
        Self::query(self, statement.postgres(), &erased(params))
    }

    fn execute(&self, statement: &'static Statement, params: &[Param<'_>]) -> conn::Result<u64> {
        Self::execute(self, statement.postgres(), &erased(params))
    }

    fn batch(&self, statements: &'static str) -> conn::Result<()> {
        Self::batch(self, statements)
    }

    fn snapshot<T>(&self, read: impl FnOnce() -> conn::Result<T>) -> conn::Result<T> {
        self.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let result = read();
        self.batch("COMMIT")?;
        result
    }

    fn query_all(&self, calls: &[Call<'_>]) -> conn::Result<Vec<Vec<Row>>> {
        send_all(calls, |queries| Self::query_all(self, queries))
    }

    fn execute_all(&self, calls: &[Call<'_>]) -> conn::Result<Vec<u64>> {
        send_all(calls, |queries| Self::execute_all(self, queries))
    }
}

impl ReadBackend for PostgresLedger {
    type Db = Conn;

    fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Conn, u32) -> conn::Result<T> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Fault>> {
        Box::pin(self.readers.read(query))
    }
}

impl ReadBackend for PostgresReader {
    type Db = Conn;

    fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Conn, u32) -> conn::Result<T> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Fault>> {
        Box::pin(self.readers.read(query))
    }
}

impl WriteBackend for PostgresLedger {
    fn apply<O: Operation<Conn>>(&self, operation: O) -> BoxFuture<'_, Result<O::Output, Fault>> {
        Box::pin(self.write(AppliedOperation(operation)))
    }

    fn own_epochs(&self) -> Vec<u64> {
        self.epochs.all()
    }

    fn queue_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<Result<RecordedDelivery, Fault>>> {
        self.queue.record_issuing(batch, issuing)
    }
}

/// An operation of a port as the writer thread takes it.
struct AppliedOperation<O>(O);

impl<O: Operation<Conn>> WriteOp for AppliedOperation<O> {
    type Output = O::Output;

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<O::Output> {
        let transaction = Transaction {
            db: tx.conn,
            epoch: tx.epoch,
            may_expire_gates: tx.may_recover_others,
            is_shared: true,
            has_released: Cell::new(false),
            own_epochs: tx.own,
            last_issued: Cell::new(tx.position.last_issued),
        };
        let output = self.0.apply(&transaction)?;
        if transaction.has_released.get() {
            tx.position.given_back += 1;
        }
        tx.position.last_issued = transaction.last_issued.get();
        Ok(output)
    }

    fn notify(&self, output: &O::Output, notifier: &Notifier) {
        self.0.notify(output, notifier);
    }
}
