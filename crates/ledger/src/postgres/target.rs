//! An empty ledger that another one is copied into: one transaction, checked before it is committed.

use std::time::Duration;

use admit_core::Seq;
use bytes::Bytes;
use tokio_postgres::Row;

use super::conn::{self, Columns as _, Conn, Error, big};
use super::connect::{Connector, identifier};
use super::growth::Growth;
use super::head::{self, Position};
use super::migrate::Schema;
use super::{OpenError, Options, connect_once, sql, text};
use crate::copy::cell::{Cell, Kind, number};

/// Checking a large table may take long, and nobody else is served meanwhile.
const STATEMENT_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// The database failed.
pub(crate) struct Failed(pub(crate) Box<dyn std::error::Error + Send + Sync>);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error.into())
    }
}

type Result<T> = std::result::Result<T, Failed>;

/// Where a ledger stands.
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

/// The ledger that is filled.
pub(crate) struct Target {
    conn: Conn,
    place: String,
    partition_places: u64,
}

impl Target {
    /// Connects, and brings the tables up to date.
    pub(crate) fn open(options: &Options) -> std::result::Result<Self, OpenError> {
        let options = Options { statement_timeout: STATEMENT_MAX, ..options.clone() };
        let (conn, place) = connect_once(&Connector::new(&options)?)?;
        Schema { place: &place, name: &options.schema }.migrate(&conn)?;
        let fail =
            |error: Error| OpenError::Database { place: place.clone(), source: error.into() };
        // Reading from the other ledger may take a while.
        conn.batch("SET idle_in_transaction_session_timeout = 0").map_err(fail)?;
        Ok(Self { conn, place, partition_places: options.partition_places.max(1) })
    }

    /// The database, for people.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Begins, alone: no gate writes before this has ended. Returns the tag and the last place.
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

    /// The columns of a table.
    pub(crate) fn columns(&self, table: &str) -> Result<Vec<Column>> {
        let rows = self.conn.query(sql!("copy_columns"), &[&table])?;
        let column = |row: &Row| -> Result<Column> {
            let (name, kind) = (row.text("name")?, row.text("kind")?);
            let kind = Kind::of(&kind).ok_or_else(|| Error::not_ours("type", &kind))?;
            Ok(Column { name, kind })
        };
        rows.iter().map(column).collect()
    }

    /// Makes partitions of a table for places from `first` on up to `last`, and none for those that
    /// retention has removed already.
    pub(crate) fn make_room(&self, table: &str, first: u64, last: u64) -> Result<()> {
        let mut growth = Growth::new(self.partition_places);
        growth.begin_at(&self.conn, table, first - first % self.partition_places)?;
        Ok(growth.make_room(&self.conn, last)?)
    }

    /// Puts rows in, in the text form of COPY.
    pub(crate) fn put(&self, table: &str, columns: &[Column], rows: Bytes) -> Result<u64> {
        let names: Vec<String> = columns.iter().map(|column| identifier(&column.name)).collect();
        let copy = format!("COPY {} ({}) FROM STDIN", identifier(table), names.join(", "));
        Ok(self.conn.copy_in(&copy, rows)?)
    }

    /// Hands out every row of a table, `at_once` rows in memory.
    pub(crate) fn rows(
        &self,
        table: &str,
        columns: &[Column],
        at_once: u64,
        mut each: impl FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        let told = |column: &Column| match column.kind {
            Kind::Number => format!("{}::text", identifier(&column.name)),
            Kind::Integer | Kind::Text | Kind::Bytes | Kind::Beside => identifier(&column.name),
        };
        let compared = columns.iter().filter(|column| column.kind != Kind::Beside);
        let columns: Vec<&Column> = compared.collect();
        let names: Vec<String> = columns.iter().map(|column| told(column)).collect();
        let (table, names) = (identifier(table), names.join(", "));
        self.conn
            .batch(&format!("DECLARE copied NO SCROLL CURSOR FOR SELECT {names} FROM {table}"))?;
        let fetch = format!("FETCH {at_once} FROM copied");
        loop {
            let rows = self.conn.query_once(&fetch)?;
            for row in &rows {
                let held: Vec<Held> = columns
                    .iter()
                    .enumerate()
                    .map(|(at, column)| Held::read(row, at, column.kind))
                    .collect::<conn::Result<_>>()?;
                let cells: Vec<Cell<'_>> = held.iter().map(Held::cell).collect();
                each(&cells);
            }
            if rows.is_empty() {
                return Ok(self.conn.batch("CLOSE copied")?);
            }
        }
    }

    /// Writes down where the ledger stands.
    pub(crate) fn put_head(&self, head: &Head) -> Result<()> {
        let Head { tag, last_seq, admissions, sightings, keys, last_issued } = *head;
        let position =
            Position { last_seq, admissions, sightings, keys, last_issued, given_back: 0 };
        head::put(&self.conn, &position)?;
        self.conn.execute("UPDATE head SET tag = $1", &[&big(tag)])?;
        Ok(())
    }

    /// Has a column go on counting after what is there.
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

    /// Has the database look at what it holds now, so that it answers well from the first question.
    pub(crate) fn analyze(&self, tables: &[&str]) -> Result<()> {
        let tables: Vec<String> = tables.iter().map(|table| identifier(table)).collect();
        Ok(self.conn.batch(&format!("ANALYZE {}", tables.join(", ")))?)
    }
}

/// A value out of a row.
enum Held {
    Null,
    Integer(i64),
    Number(String),
    Text(String),
    Bytes(Vec<u8>),
}

impl Held {
    fn read(row: &Row, at: usize, kind: Kind) -> conn::Result<Self> {
        let held = match kind {
            Kind::Integer => row.val::<Option<i64>>(at)?.map(Self::Integer),
            Kind::Number => row.val::<Option<String>>(at)?.map(Self::Number),
            Kind::Bytes => row.val::<Option<Vec<u8>>>(at)?.map(Self::Bytes),
            Kind::Text | Kind::Beside => row.text_opt(at)?.map(Self::Text),
        };
        Ok(held.unwrap_or(Self::Null))
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Integer(whole) => Cell::Integer(*whole),
            Self::Number(digits) => number(digits).unwrap_or(Cell::Text(digits)),
            Self::Text(text) => Cell::Text(text),
            Self::Bytes(bytes) => Cell::Blob(bytes),
        }
    }
}

/// Adds a cell to a line of COPY.
pub(crate) fn write_cell(cell: Cell<'_>, line: &mut Vec<u8>) {
    match cell {
        Cell::Null => line.extend(b"\\N"),
        Cell::Integer(whole) => line.extend(whole.to_string().bytes()),
        Cell::Real(real) => line.extend(real.to_string().bytes()),
        Cell::Text(said) => {
            for byte in text::kept(said).bytes() {
                match byte {
                    b'\\' => line.extend(b"\\\\"),
                    b'\n' => line.extend(b"\\n"),
                    b'\r' => line.extend(b"\\r"),
                    b'\t' => line.extend(b"\\t"),
                    other => line.push(other),
                }
            }
        }
        Cell::Blob(bytes) => {
            line.extend(b"\\\\x");
            for byte in bytes {
                line.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
