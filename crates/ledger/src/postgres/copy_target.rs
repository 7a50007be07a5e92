//! Target of a ledger copy: an empty ledger, filled in one transaction and checked before its commit.

use std::time::Duration;

use admit_core::Seq;
use bytes::Bytes;
use tokio_postgres::Row;

use super::conn::{self, Columns as _, Conn, Error, big};
use super::connect::{Connector, identifier};
use super::head_lock::{self, Position};
use super::migrate::Schema;
use super::partitions::Partitions;
use super::{OpenError, Options, connect_once, nul_escape, sql};
use crate::copy::cell::{CopyCell, Kind, number};

/// Timeout of statements: checking a large table may take long, and nothing else uses the database.
const STATEMENT_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// Database error.
pub(crate) struct TargetError(pub(crate) Box<dyn std::error::Error + Send + Sync>);

impl From<Error> for TargetError {
    fn from(error: Error) -> Self {
        Self(error.into())
    }
}

type Result<T> = std::result::Result<T, TargetError>;

/// Counters of the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) tag: u64,
    pub(crate) last_seq: Seq,
    pub(crate) admissions: u64,
    pub(crate) sightings: u64,
    pub(crate) keys: u64,
    pub(crate) last_issued: u64,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The ledger to fill.
pub(crate) struct CopyTarget {
    conn: Conn,
    place: String,
    partition_places: u64,
}

impl CopyTarget {
    /// Connects, and migrates the tables.
    pub(crate) fn open(options: &Options) -> std::result::Result<Self, OpenError> {
        let options = Options { statement_timeout: STATEMENT_MAX, ..options.clone() };
        let (conn, place) = connect_once(&Connector::new(&options)?)?;
        Schema { place: &place, name: &options.schema }.migrate(&conn)?;
        let fail =
            |error: Error| OpenError::Database { place: place.clone(), source: error.into() };
        // Reading from the source may take a while.
        conn.batch("SET idle_in_transaction_session_timeout = 0").map_err(fail)?;
        Ok(Self { conn, place, partition_places: options.partition_places.max(1) })
    }

    /// Display name of the database.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Begins, with the head lock: no gate writes before this has ended. Returns the tag and the last seq.
    pub(crate) fn begin(&self) -> Result<(u64, u64)> {
        self.conn.batch("BEGIN")?;
        self.conn.query_one(sql!("head_lock"), &[])?;
        let head = self.conn.query_one(sql!("head_get"), &[])?;
        Ok((head.num("tag")?, head.num("last_seq")?))
    }

    pub(crate) fn commit(&self) -> Result<()> {
        Ok(self.conn.batch("COMMIT")?)
    }

    /// Whether a table has a row.
    pub(crate) fn has_rows(&self, table: &str) -> Result<bool> {
        let query = format!("SELECT EXISTS (SELECT 1 FROM {})", identifier(table));
        Ok(self.conn.query_one(&query, &[])?.val(0)?)
    }

    /// Returns the columns of a table.
    pub(crate) fn columns(&self, table: &str) -> Result<Vec<Column>> {
        let rows = self.conn.query(sql!("copy_columns"), &[&table])?;
        let column = |row: &Row| -> Result<Column> {
            let (name, kind) = (row.text("name")?, row.text("kind")?);
            let kind = Kind::of(&kind).ok_or_else(|| Error::unexpected("type", &kind))?;
            Ok(Column { name, kind })
        };
        rows.iter().map(column).collect()
    }

    /// Creates partitions of a table for seqs from `first` to `last`, none for those that retention has removed
    /// already.
    pub(crate) fn make_room(&self, table: &str, first: u64, last: u64) -> Result<()> {
        let mut partitions = Partitions::new(self.partition_places);
        partitions.begin_at(&self.conn, table, first - first % self.partition_places)?;
        Ok(partitions.make_room(&self.conn, last)?)
    }

    /// Inserts rows, in the text format of COPY.
    pub(crate) fn put(&self, table: &str, columns: &[Column], rows: Bytes) -> Result<u64> {
        let names: Vec<String> = columns.iter().map(|column| identifier(&column.name)).collect();
        let copy = format!("COPY {} ({}) FROM STDIN", identifier(table), names.join(", "));
        Ok(self.conn.copy_in(&copy, rows)?)
    }

    /// Passes every row of a table to a callback, with `fetch_rows` rows in memory.
    pub(crate) fn rows(
        &self,
        table: &str,
        columns: &[Column],
        fetch_rows: u64,
        mut each: impl FnMut(&[CopyCell<'_>]),
    ) -> Result<()> {
        let report = |column: &Column| {
            let cast = if column.kind == Kind::Number { "::text" } else { "" };
            format!("{}{cast}", identifier(&column.name))
        };
        let compared = columns.iter().filter(|column| column.kind != Kind::Beside);
        let columns: Vec<&Column> = compared.collect();
        let names: Vec<String> = columns.iter().map(|column| report(column)).collect();
        let (table, names) = (identifier(table), names.join(", "));
        self.conn
            .batch(&format!("DECLARE copied NO SCROLL CURSOR FOR SELECT {names} FROM {table}"))?;
        let fetch = format!("FETCH {fetch_rows} FROM copied");
        loop {
            let rows = self.conn.query_once(&fetch)?;
            for row in &rows {
                let held: Vec<RowValue> = columns
                    .iter()
                    .enumerate()
                    .map(|(at, column)| RowValue::read(row, at, column.kind))
                    .collect::<conn::Result<_>>()?;
                let cells: Vec<CopyCell<'_>> = held.iter().map(RowValue::cell).collect();
                each(&cells);
            }
            if rows.is_empty() {
                return Ok(self.conn.batch("CLOSE copied")?);
            }
        }
    }

    /// Writes the counters of the ledger.
    pub(crate) fn put_head(&self, head: &Head) -> Result<()> {
        let Head { tag, last_seq, admissions, sightings, keys, last_issued } = *head;
        let position =
            Position { last_seq, admissions, sightings, keys, last_issued, given_back: 0 };
        self.conn.execute_all(&[head_lock::put(&position)])?;
        self.conn.execute("UPDATE head SET tag = $1", &[&big(tag)])?;
        Ok(())
    }

    /// Continues an auto-increment column after the existing rows.
    pub(crate) fn count_on(&self, table: &str, column: &str) -> Result<()> {
        let query = format!(
            "SELECT setval(pg_get_serial_sequence($1, $2), last) \
             FROM (SELECT max({}) AS last FROM {}) AS there WHERE last > 0",
            identifier(column),
            identifier(table)
        );
        self.conn.query(&query, &[&identifier(table), &column])?;
        Ok(())
    }

    /// Updates the statistics, for good plans from the first query on.
    pub(crate) fn analyze(&self, tables: &[&str]) -> Result<()> {
        let tables: Vec<String> = tables.iter().map(|table| identifier(table)).collect();
        Ok(self.conn.batch(&format!("ANALYZE {}", tables.join(", ")))?)
    }
}

/// A value of a row.
enum RowValue {
    Null,
    Integer(i64),
    Number(String),
    Text(String),
    Bytes(Vec<u8>),
}

impl RowValue {
    fn read(row: &Row, at: usize, kind: Kind) -> conn::Result<Self> {
        let held = match kind {
            Kind::Integer => row.val::<Option<i64>>(at)?.map(Self::Integer),
            Kind::Number => row.val::<Option<String>>(at)?.map(Self::Number),
            Kind::Bytes => row.val::<Option<Vec<u8>>>(at)?.map(Self::Bytes),
            Kind::Text | Kind::Beside => row.text_opt(at)?.map(Self::Text),
        };
        Ok(held.unwrap_or(Self::Null))
    }

    fn cell(&self) -> CopyCell<'_> {
        match self {
            Self::Null => CopyCell::Null,
            Self::Integer(whole) => CopyCell::Integer(*whole),
            Self::Number(digits) => number(digits).unwrap_or(CopyCell::Text(digits)),
            Self::Text(text) => CopyCell::Text(text),
            Self::Bytes(bytes) => CopyCell::Blob(bytes),
        }
    }
}

/// Appends a cell to a line of COPY.
pub(crate) fn write_cell(cell: CopyCell<'_>, line: &mut Vec<u8>) {
    match cell {
        CopyCell::Null => line.extend(b"\\N"),
        CopyCell::Integer(whole) => line.extend(whole.to_string().bytes()),
        CopyCell::Real(real) => line.extend(real.to_string().bytes()),
        CopyCell::Text(text) => {
            for byte in nul_escape::escape(text).bytes() {
                match byte {
                    b'\\' => line.extend(b"\\\\"),
                    b'\n' => line.extend(b"\\n"),
                    b'\r' => line.extend(b"\\r"),
                    b'\t' => line.extend(b"\\t"),
                    other => line.push(other),
                }
            }
        }
        CopyCell::Blob(bytes) => {
            line.extend(b"\\\\x");
            for byte in bytes {
                line.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
