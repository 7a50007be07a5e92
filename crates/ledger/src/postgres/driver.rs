//! PostgreSQL driver.

use std::borrow::Cow;
use std::cell::Cell;

use admit_core::Fault;
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
use crate::port::BoxFuture;

impl From<InvalidValue> for Error {
    fn from(error: InvalidValue) -> Self {
        Self::Unexpected(error.into_message())
    }
}

/// Texts are stored without NUL characters; see [`text`].
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
enum Column<'a> {
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Bytes(Vec<Option<&'a [u8]>>),
}

impl<'a> Column<'a> {
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
                    .map(|cell| match cell? {
                        Param::Text(text) => Ok(text.map(nul_escape::escape)),
                        _ => Err(mixed()),
                    })
                    .collect::<conn::Result<_>>()?,
            ),
            Param::Bytes(_) => Self::Bytes(
                cells()
                    .map(|cell| if let Param::Bytes(x) = cell? { Ok(*x) } else { Err(mixed()) })
                    .collect::<conn::Result<_>>()?,
            ),
            Param::Texts(_) => return Err(mixed()),
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

/// The parameters of the rows of a call.
fn columns_of<'a>(call: &Call<'a>) -> conn::Result<Vec<Column<'a>>> {
    let rows = call.rows.unwrap_or_default();
    let width = rows.first().map_or(0, Vec::len);
    (0..width).map(|index| Column::of(rows, index)).collect()
}

/// Sends the calls, except those without rows; the results have the order of the calls.
fn send_all<T: Default>(
    calls: &[Call<'_>],
    send: impl FnOnce(&[Query<'_>]) -> conn::Result<Vec<T>>,
) -> conn::Result<Vec<T>> {
    let is_sent = |call: &Call<'_>| call.rows.is_none_or(|rows| !rows.is_empty());
    let columns: Vec<Vec<Column<'_>>> =
        calls.iter().map(columns_of).collect::<conn::Result<_>>()?;
    let queries: Vec<Query<'_>> = calls
        .iter()
        .zip(&columns)
        .filter(|(call, _)| is_sent(call))
        .map(|(call, columns)| {
            let mut params = erased(call.params);
            params.extend(columns.iter().map(Column::erased));
            Query::new(call.statement.postgres(), params)
        })
        .collect();
    if queries.is_empty() {
        return Ok(calls.iter().map(|_| T::default()).collect());
    }
    let mut results = send(&queries)?.into_iter();
    let result = |call| if is_sent(call) { results.next() } else { None };
    Ok(calls.iter().map(result).map(Option::unwrap_or_default).collect())
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
        Box::pin(self.write(Applied(operation)))
    }
}

/// An operation of a port as the writer thread takes it.
struct Applied<O>(O);

impl<O: Operation<Conn>> WriteOp for Applied<O> {
    type Output = O::Output;

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<O::Output> {
        let transaction = Transaction {
            db: tx.conn,
            epoch: tx.epoch,
            may_expire_gates: tx.may_recover_others,
            is_shared: true,
            has_released: Cell::new(false),
        };
        let output = self.0.apply(&transaction)?;
        if transaction.has_released.get() {
            tx.position.given_back += 1;
        }
        Ok(output)
    }

    fn notify(&self, output: &O::Output, notifier: &Notifier) {
        self.0.notify(output, notifier);
    }
}
