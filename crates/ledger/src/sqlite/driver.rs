//! SQLite driver.

use std::cell::Cell;
use std::rc::Rc;

use admit_core::{Entry, Fault, json};
use rusqlite::types::{ToSqlOutput, Type, Value, ValueRef};
use rusqlite::{Connection, ToSql};

use super::write_op::{Tx, WriteOp};
use super::{SqliteLedger, SqliteReader};
use crate::common::notifier::Notifier;
use crate::db::{
    Call, Columns, Db, EachRow, InvalidValue, Operation, Param, ReadBackend, Statement,
    Transaction, WriteBackend,
};
use crate::issuance::{IssueHandlers, RecordedDelivery};
use crate::port::BoxFuture;

impl From<InvalidValue> for rusqlite::Error {
    fn from(error: InvalidValue) -> Self {
        // The position is not known by then; the message names the column.
        Self::FromSqlConversionFailure(0, Type::Null, Box::new(error))
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Int(number) => number.map_or(ValueRef::Null, ValueRef::Integer),
            Self::Text(text) => text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => bytes.map_or(ValueRef::Null, ValueRef::Blob),
            Self::Texts(texts) => {
                let texts = texts.iter().map(|text| json::Value::String((*text).into()));
                return Ok(ToSqlOutput::Owned(json_array(texts.collect())));
            }
            Self::Ints(numbers) => {
                let numbers = numbers.iter().map(|number| (*number).into());
                return Ok(ToSqlOutput::Owned(json_array(numbers.collect())));
            }
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// An array for `json_each`.
fn json_array(values: Vec<json::Value<'_>>) -> Value {
    let mut array = Vec::new();
    json::write(&json::Value::Array(values), &mut array);
    Value::Text(String::from_utf8_lossy(&array).into_owned())
}

/// A row that was copied out of its statement.
pub(crate) struct SqliteRow {
    names: Rc<[String]>,
    cells: Vec<StoredValue>,
}

/// A value as SQLite stores it. Text may be no UTF-8 where another program wrote it.
enum StoredValue {
    Null,
    Int(i64),
    Real,
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl From<ValueRef<'_>> for StoredValue {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Int(number),
            ValueRef::Real(_) => Self::Real,
            ValueRef::Text(text) => Self::Text(text.to_vec()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
        }
    }
}

impl SqliteRow {
    fn cell(&self, column: &str) -> Result<&StoredValue, InvalidValue> {
        let index = self.names.iter().position(|name| name == column);
        let missing = || InvalidValue::new(format!("no column `{column}` in the result"));
        index.and_then(|index| self.cells.get(index)).ok_or_else(missing)
    }
}

fn wrong_type(column: &str, expected: &str) -> rusqlite::Error {
    InvalidValue::new(format!("the column `{column}` does not hold {expected}")).into()
}

impl Columns for SqliteRow {
    type Error = rusqlite::Error;

    fn int_opt(&self, column: &str) -> rusqlite::Result<Option<i64>> {
        match self.cell(column)? {
            StoredValue::Null => Ok(None),
            StoredValue::Int(number) => Ok(Some(*number)),
            StoredValue::Real | StoredValue::Text(_) | StoredValue::Bytes(_) => {
                Err(wrong_type(column, "an integer"))
            }
        }
    }

    fn text_opt(&self, column: &str) -> rusqlite::Result<Option<String>> {
        match self.cell(column)? {
            StoredValue::Null => Ok(None),
            StoredValue::Text(text) => {
                let text = std::str::from_utf8(text).map_err(|_| wrong_type(column, "UTF-8"))?;
                Ok(Some(text.to_owned()))
            }
            StoredValue::Int(_) | StoredValue::Real | StoredValue::Bytes(_) => {
                Err(wrong_type(column, "text"))
            }
        }
    }

    fn text_lossy(&self, column: &str) -> rusqlite::Result<String> {
        Ok(match self.cell(column)? {
            StoredValue::Text(bytes) | StoredValue::Bytes(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            StoredValue::Null | StoredValue::Int(_) | StoredValue::Real => String::new(),
        })
    }

    fn bytes_opt(&self, column: &str) -> rusqlite::Result<Option<Vec<u8>>> {
        match self.cell(column)? {
            StoredValue::Null => Ok(None),
            StoredValue::Bytes(bytes) => Ok(Some(bytes.clone())),
            StoredValue::Int(_) | StoredValue::Real | StoredValue::Text(_) => {
                Err(wrong_type(column, "bytes"))
            }
        }
    }
}

/// A row that is read while its statement runs.
impl Columns for rusqlite::Row<'_> {
    type Error = rusqlite::Error;

    fn int_opt(&self, column: &str) -> rusqlite::Result<Option<i64>> {
        self.get(column)
    }

    fn text_opt(&self, column: &str) -> rusqlite::Result<Option<String>> {
        self.get(column)
    }

    fn bytes_opt(&self, column: &str) -> rusqlite::Result<Option<Vec<u8>>> {
        self.get(column)
    }

    fn text_lossy(&self, column: &str) -> rusqlite::Result<String> {
        Ok(match self.get_ref(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => String::new(),
        })
    }
}

impl Db for Connection {
    type Row = SqliteRow;
    type Error = rusqlite::Error;

    fn query(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> rusqlite::Result<Vec<SqliteRow>> {
        let mut statement = self.prepare_cached(statement.sqlite())?;
        let names: Rc<[String]> = statement.column_names().map(ToOwned::to_owned).collect();
        let rows = statement.query_map(rusqlite::params_from_iter(params), |row| {
            let cells = (0..names.len()).map(|index| Ok(StoredValue::from(row.get_ref(index)?)));
            Ok(SqliteRow { cells: cells.collect::<rusqlite::Result<_>>()?, names: names.clone() })
        })?;
        rows.collect()
    }

    fn execute(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> rusqlite::Result<u64> {
        let mut statement = self.prepare_cached(statement.sqlite())?;
        Ok(statement.execute(rusqlite::params_from_iter(params))? as u64)
    }

    fn for_each(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
        each: &mut EachRow<'_, rusqlite::Error>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.prepare_cached(statement.sqlite())?;
        let mut rows = statement.query(rusqlite::params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn batch(&self, statements: &'static str) -> rusqlite::Result<()> {
        self.execute_batch(statements)
    }

    fn snapshot<T>(&self, read: impl FnOnce() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let snapshot = self.unchecked_transaction()?;
        let result = read()?;
        snapshot.finish()?;
        Ok(result)
    }

    fn query_all(&self, calls: &[Call<'_>]) -> rusqlite::Result<Vec<Vec<SqliteRow>>> {
        let rows = |call: &Call<'_>| match call.rows {
            None => Db::query(self, call.statement, call.params),
            Some(rows) => {
                let each = rows.iter().map(|row| [call.params, row].concat());
                let found = each.map(|params| Db::query(self, call.statement, &params));
                Ok(found.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
            }
        };
        calls.iter().map(rows).collect()
    }

    fn execute_all(&self, calls: &[Call<'_>]) -> rusqlite::Result<Vec<u64>> {
        let changed = |call: &Call<'_>| match call.rows {
            None => Db::execute(self, call.statement, call.params),
            Some(rows) => {
                let each = rows.iter().map(|row| [call.params, row].concat());
                each.map(|params| Db::execute(self, call.statement, &params)).sum()
            }
        };
        calls.iter().map(changed).collect()
    }
}

impl ReadBackend for SqliteLedger {
    type Db = Connection;

    fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection, u32) -> rusqlite::Result<T> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Fault>> {
        Box::pin(self.readers.read(query))
    }
}

impl ReadBackend for SqliteReader {
    type Db = Connection;

    fn read<T: Send + 'static>(
        &self,
        query: impl Fn(&Connection, u32) -> rusqlite::Result<T> + Send + Sync + 'static,
    ) -> BoxFuture<'_, Result<T, Fault>> {
        Box::pin(self.readers.read(query))
    }
}

impl WriteBackend for SqliteLedger {
    fn apply<O: Operation<Connection>>(
        &self,
        operation: O,
    ) -> BoxFuture<'_, Result<O::Output, Fault>> {
        Box::pin(self.write(AppliedOperation { operation, epoch: self.epoch }))
    }

    fn own_epochs(&self) -> Vec<u64> {
        vec![self.epoch]
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
struct AppliedOperation<O> {
    operation: O,
    epoch: u64,
}

impl<O: Operation<Connection>> WriteOp for AppliedOperation<O> {
    type Output = O::Output;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<O::Output> {
        self.operation.apply(&Transaction {
            db: tx.conn,
            epoch: self.epoch,
            may_expire_gates: true,
            is_shared: false,
            // No other gate polls.
            has_released: Cell::new(false),
            own_epochs: &[self.epoch],
            last_issued: Cell::new(0),
        })
    }

    fn notify(&self, output: &O::Output, notifier: &Notifier) {
        self.operation.notify(output, notifier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{params, row};

    static VALUES: Statement =
        Statement::new("SELECT ?1 AS a, ?2 AS b, ?3 AS c, ?4 AS d, ?5 AS e", "");

    #[test]
    fn values_are_read_back_unchanged() {
        let conn = Connection::open_in_memory().unwrap();
        let bytes = [7_u8; 32];
        let none: Option<&str> = None;
        let params = params![u64::MAX, "a\0b", &bytes, none, &["x", "\"y\""][..]];
        let row = Db::query_one(&conn, &VALUES, params).unwrap();
        assert_eq!(row.num("a").unwrap(), i64::MAX as u64);
        assert_eq!(row.text("b").unwrap(), "a\0b");
        assert_eq!(row.bytes32("c").unwrap(), bytes);
        assert_eq!(row.text_opt("d").unwrap(), None);
        assert_eq!(row.text("e").unwrap(), r#"["x","\"y\""]"#);
        for error in [row.text("a").err(), row.text("d").err(), row.text("nothing").err()] {
            assert!(error.is_some_and(|error| error.sqlite_error().is_none()));
        }
    }

    static DOUBLE: Statement = Statement::new("SELECT ?1 * ?2 AS product", "");

    #[test]
    fn a_call_with_rows_runs_once_per_row_and_without_rows_not_at_all() {
        let conn = Connection::open_in_memory().unwrap();
        let (rows, none) = ([row![3_u64], row![4_u64]], []);
        let two = params![2_u64];
        let calls = [Call::rows(&DOUBLE, two, &rows), Call::rows(&DOUBLE, &[], &none)];
        let results = conn.query_all(&calls).unwrap();
        let products = results[0].iter().map(|row| row.num("product").unwrap());
        assert_eq!(products.collect::<Vec<_>>(), [6, 8]);
        assert!(results[1].is_empty());
    }
}
