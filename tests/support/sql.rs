//! SQL access to either ledger, like `sqlite3` or `psql` on a running gate.
//!
//! With `ADMIT_TEST_LEDGER=postgres` every data folder has a schema of its own in the database that
//! `ADMIT_TEST_POSTGRES` names; gates and commands get it through environment variables.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// File name of the SQLite ledger.
const FILE: &str = "ledger.db";

/// Whether the tests run on PostgreSQL.
pub(crate) fn is_postgres() -> bool {
    std::env::var("ADMIT_TEST_LEDGER").is_ok_and(|kind| kind == "postgres")
}

/// Reports a test for the SQLite ledger as skipped and returns true if the tests run on PostgreSQL.
pub(crate) fn skip_on_postgres() -> bool {
    if is_postgres() {
        super::machine::not_applicable("sqlite only");
    }
    is_postgres()
}

/// URL of the PostgreSQL database of the tests.
pub(crate) fn server() -> String {
    std::env::var("ADMIT_TEST_POSTGRES")
        .expect("with ADMIT_TEST_LEDGER=postgres, ADMIT_TEST_POSTGRES names a database")
}

/// Schema name of a data folder.
fn schema(data: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    format!("t_{:016x}", hasher.finish())
}

/// Environment variables with the ledger config of a data folder.
pub(crate) fn variables(data: &Path) -> Vec<(&'static str, String)> {
    if !is_postgres() {
        return Vec::new();
    }
    vec![
        ("ADMIT_LEDGER__URL", server()),
        ("ADMIT_LEDGER__SCHEMA", schema(data)),
        // The next gate on the folder has the same id, so it recovers without waiting for the lease.
        ("ADMIT_LEDGER__GATE_ID", "test".to_owned()),
    ]
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Conversion from a [`Cell`].
pub(crate) trait FromCell: Sized {
    fn from_cell(cell: &Cell) -> Option<Self>;
}

impl FromCell for i64 {
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Int(number) => Some(*number),
            Cell::Text(text) => text.parse().ok(),
            Cell::Null | Cell::Bytes(_) => None,
        }
    }
}

impl FromCell for String {
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text.clone()),
            Cell::Int(number) => Some(number.to_string()),
            Cell::Null | Cell::Bytes(_) => None,
        }
    }
}

impl FromCell for Vec<u8> {
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Bytes(bytes) => Some(bytes.clone()),
            // PostgreSQL prints bytea as hex.
            Cell::Text(text) => {
                let digits = text.strip_prefix("\\x")?;
                let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
                (0..digits.len()).step_by(2).map(byte).collect()
            }
            Cell::Null | Cell::Int(_) => None,
        }
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: &Cell) -> Option<Self> {
        if *cell == Cell::Null { Some(None) } else { T::from_cell(cell).map(Some) }
    }
}

/// A row of a query result.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    names: Vec<String>,
    cells: Vec<Cell>,
}

impl Row {
    /// Returns the value of the column at index `at`.
    pub(crate) fn get<T: FromCell>(&self, at: usize) -> T {
        T::from_cell(&self.cells[at]).unwrap_or_else(|| panic!("column {at} of {self:?}"))
    }

    /// Returns the value of the column `name`.
    pub(crate) fn get_by_name<T: FromCell>(&self, name: &str) -> T {
        let at = self.names.iter().position(|known| known == name);
        self.get(at.unwrap_or_else(|| panic!("no column {name} in {self:?}")))
    }
}

/// Returns the rows of a query. The ledger must exist.
pub(crate) fn query_rows(data: &Path, sql: &str) -> Vec<Row> {
    if is_postgres() {
        return Database::of(data).rows(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let conn = open_file(data);
    let mut query = conn.prepare(sql).unwrap();
    let names: Vec<String> = query.column_names().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut rows = query.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let cells = (0..names.len()).map(|at| match row.get_ref(at).unwrap() {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Int(number),
            ValueRef::Real(number) => Cell::Text(number.to_string()),
            ValueRef::Text(text) => Cell::Text(String::from_utf8(text.to_vec()).unwrap()),
            ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
        });
        found.push(Row { cells: cells.collect(), names: names.clone() });
    }
    found
}

/// Returns the first value of the first row, if there is one.
pub(crate) fn query_first<T: FromCell>(data: &Path, sql: &str) -> Option<T> {
    query_rows(data, sql).first().map(|row| row.get(0))
}

/// Returns the first value of the first row; panics if there is no row.
pub(crate) fn query_one<T: FromCell>(data: &Path, sql: &str) -> T {
    query_first(data, sql).unwrap_or_else(|| panic!("no row for {sql}"))
}

/// Returns the first column of every row.
pub(crate) fn query_column<T: FromCell>(data: &Path, sql: &str) -> Vec<T> {
    query_rows(data, sql).iter().map(|row| row.get(0)).collect()
}

/// Runs a script that changes the ledger.
pub(crate) fn execute(data: &Path, script: &str) {
    if is_postgres() {
        Database::of(data).rows(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    } else {
        Connection::open(data.join(FILE)).unwrap().execute_batch(script).unwrap();
    }
}

/// SQL expression for the text at a path in a column of JSON text.
pub(crate) fn json_text(column: &str, path: &[&str]) -> String {
    if is_postgres() {
        let (last, front) = path.split_last().expect("the path is not empty");
        let front: String = front.iter().map(|name| format!("->'{name}'")).collect();
        return format!("{column}::json{front}->>'{last}'");
    }
    format!("json_extract({column}, '$.{}')", path.join("."))
}

/// SQL literal of bytes.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if is_postgres() { format!("'\\x{digits}'::bytea") } else { format!("x'{digits}'") }
}

/// Opens the SQLite ledger read-only.
pub(crate) fn open_file(data: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(data.join(FILE), flags).unwrap()
}

/// A connection to PostgreSQL.
pub(crate) struct Database {
    runtime: Runtime,
    client: Client,
}

impl Database {
    /// Connects with the schema of a data folder as search path.
    pub(crate) fn of(data: &Path) -> Self {
        let database = Self::at(&server());
        let schema = schema(data);
        database.rows(&format!("SET search_path TO {schema}")).unwrap();
        database
    }

    /// Connects to the database at `url`.
    pub(crate) fn at(url: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            runtime.spawn(connection);
            client
        });
        Self { runtime, client }
    }

    pub(crate) fn rows(&self, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let mut rows = Vec::new();
        for message in &messages {
            if let SimpleQueryMessage::Row(row) = message {
                let names = row.columns().iter().map(|column| column.name().to_owned()).collect();
                let text = |at| row.get(at).map_or(Cell::Null, |text| Cell::Text(text.to_owned()));
                rows.push(Row { names, cells: (0..row.len()).map(text).collect() });
            }
        }
        Ok(rows)
    }
}
