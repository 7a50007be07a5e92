//! PostgreSQL driver.

use admit_core::Fault;
use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::conn::{self, Conn, Error, Query};
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, PostgresReader, nul_escape};
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

fn queries<'a>(calls: &'a [Call<'_>]) -> Vec<Query<'a>> {
    calls.iter().map(|call| Query::new(call.statement.postgres(), erased(call.params))).collect()
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
        Self::query_all(self, &queries(calls))
    }

    fn execute_all(&self, calls: &[Call<'_>]) -> conn::Result<Vec<u64>> {
        Self::execute_all(self, &queries(calls))
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
}

/// An operation of a port as the writer thread takes it.
struct AppliedOperation<O>(O);

impl<O: Operation<Conn>> WriteOp for AppliedOperation<O> {
    type Output = O::Output;

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<O::Output> {
        self.0.apply(&Transaction { db: tx.conn, may_expire_gates: tx.may_recover_others })
    }
}
