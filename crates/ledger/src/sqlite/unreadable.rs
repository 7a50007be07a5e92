//! Text cells that are not UTF-8. One of them fails every query that reads its row, so a verification
//! lists them first and then hides their rows: temporary views take the place of their tables.

use std::path::Path;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::{OpenError, open};

/// SQL function that checks the encoding of a text.
const IS_UTF8: &str = "is_utf8";

/// A text cell that is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableCell {
    /// Its table.
    pub table: String,
    /// Its column.
    pub column: String,
    /// Its row: the rowid, or the primary key in SQL.
    pub row: String,
}

impl UnreadableCell {
    /// Its place, for operators.
    pub fn place(&self) -> String {
        format!("{}.{} of row {}", self.table, self.column, self.row)
    }
}

/// All unreadable cells of a ledger.
#[derive(Clone, Debug, Default)]
pub struct UnreadableCells {
    /// The cells.
    pub cells: Vec<UnreadableCell>,
    /// The tables that have some.
    tables: Vec<TextTable>,
}

/// A table with the columns that may contain text.
#[derive(Clone, Debug)]
struct TextTable {
    name: String,
    columns: Vec<String>,
    /// SQL expression that identifies a row.
    row: String,
}

/// Lists the unreadable cells of the ledger in the data folder `dir`.
///
/// # Errors
/// When the ledger cannot be opened or read.
pub fn find(dir: &Path) -> Result<UnreadableCells, OpenError> {
    let (path, conn) = open::open_folder_read_only(dir)?;
    let found = add_function(&conn).and_then(|()| cells(&conn));
    found.map_err(|source| OpenError::from_sqlite(&path, source))
}

fn cells(conn: &Connection) -> rusqlite::Result<UnreadableCells> {
    let mut found = UnreadableCells::default();
    for table in tables(conn)? {
        let before = found.cells.len();
        let sql = format!(
            "SELECT {}, {} FROM main.{} WHERE NOT ({})",
            table.row,
            table.columns.iter().map(|it| is_readable(it)).collect::<Vec<_>>().join(", "),
            quoted(&table.name),
            table.is_readable(),
        );
        let mut query = conn.prepare(&sql)?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            for column in table.unreadable_columns(row)? {
                let (table, row) = (table.name.clone(), lossy(row, 0)?);
                found.cells.push(UnreadableCell { table, column, row });
            }
        }
        if found.cells.len() > before {
            found.tables.push(table);
        }
    }
    Ok(found)
}

/// Hides the rows with unreadable cells from the queries of this connection, and makes it read-only.
pub(super) fn hide(conn: &Connection, cells: &UnreadableCells) -> rusqlite::Result<()> {
    add_function(conn)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "query_only", false)?;
    for table in &cells.tables {
        let (name, is_readable) = (quoted(&table.name), table.is_readable());
        conn.execute_batch(&format!(
            "CREATE TEMP VIEW {name} AS SELECT * FROM main.{name} WHERE {is_readable}"
        ))?;
    }
    // The ledger's own views read its tables, unless they are temporary too.
    let mut views = conn.prepare("SELECT sql FROM main.sqlite_schema WHERE type = 'view'")?;
    let views: Vec<String> = views.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for view in views {
        conn.execute_batch(&view.replacen("CREATE VIEW", "CREATE TEMP VIEW", 1))?;
    }
    conn.pragma_update(None, "query_only", true)
}

fn tables(conn: &Connection) -> rusqlite::Result<Vec<TextTable>> {
    let mut tables = conn.prepare(
        "SELECT name, wr FROM pragma_table_list \
         WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name",
    )?;
    let named = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut columns_of = conn.prepare("SELECT name, pk, type FROM pragma_table_info(?1)")?;
    let mut found = Vec::new();
    for named in named {
        let (name, is_without_rowid): (String, bool) = named?;
        let (mut keys, mut columns) = (Vec::new(), Vec::new());
        let mut rows = columns_of.query([&name])?;
        while let Some(row) = rows.next()? {
            let (column, is_key, kind): (String, bool, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            if is_key {
                keys.push(format!("quote({})", quoted(&column)));
            }
            if kind != "INTEGER" {
                columns.push(column);
            }
        }
        if columns.is_empty() {
            continue;
        }
        let row = match is_without_rowid {
            true => keys.join(" || ' ' || "),
            false => "CAST(rowid AS TEXT)".to_owned(),
        };
        found.push(TextTable { name, columns, row });
    }
    Ok(found)
}

impl TextTable {
    /// SQL condition of the rows whose text is all readable.
    fn is_readable(&self) -> String {
        self.columns.iter().map(|it| is_readable(it)).collect::<Vec<_>>().join(" AND ")
    }

    fn unreadable_columns(&self, row: &Row<'_>) -> rusqlite::Result<Vec<String>> {
        let mut unreadable = Vec::new();
        for (column, at) in self.columns.iter().zip(1_usize..) {
            if !row.get::<_, bool>(at)? {
                unreadable.push(column.clone());
            }
        }
        Ok(unreadable)
    }
}

/// SQL condition; the content of other types is not read.
fn is_readable(column: &str) -> String {
    let column = quoted(column);
    format!("(typeof({column}) <> 'text' OR {IS_UTF8}({column}))")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn add_function(conn: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    conn.create_scalar_function(IS_UTF8, 1, flags, |call| {
        Ok(match call.get_raw(0) {
            ValueRef::Text(text) => std::str::from_utf8(text).is_ok(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => true,
        })
    })
}

/// A cell as text, with invalid text replaced.
fn lossy(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => String::new(),
    })
}
