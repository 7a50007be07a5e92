//! Rows of the queried tables in SQLite, whose columns accept any value.

use admit_core::entity::{Scalar, Table};
use admit_core::{Millis, Seq};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, ToSql};

use crate::common::records::{RowSet, SCHEMA_DRIFT};

/// Deletes the rows that these events made in a table.
pub(super) fn clear(conn: &Connection, table: &Table, seqs: &[Seq]) -> rusqlite::Result<()> {
    let query = format!("DELETE FROM {} WHERE event = ?1", table.name);
    let mut remove = conn.prepare_cached(&query)?;
    for seq in seqs {
        remove.execute([seq.0])?;
    }
    Ok(())
}

/// Writes all rows or none; returns the reason if they were rejected.
pub(super) fn put(conn: &Connection, rows: &RowSet<'_>) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached("SAVEPOINT record_rows")?.execute([])?;
    let reasons = match write(conn, rows) {
        Ok(reasons) => reasons,
        Err(Error::SqliteFailure(code, message)) if code.code == ErrorCode::ConstraintViolation => {
            Some(format!("{SCHEMA_DRIFT}: {}", message.unwrap_or_else(|| code.to_string())))
        }
        Err(error) => return Err(error),
    };
    if reasons.is_some() {
        conn.prepare_cached("ROLLBACK TO record_rows")?.execute([])?;
    }
    conn.prepare_cached("RELEASE record_rows")?.execute([])?;
    Ok(reasons)
}

fn write(conn: &Connection, set: &RowSet<'_>) -> rusqlite::Result<Option<String>> {
    let mut statement = conn.prepare_cached(&upsert(set.table))?;
    for row in &set.rows {
        let columns = row.len();
        for (place, cell) in row.iter().enumerate() {
            statement.raw_bind_parameter(place + 1, BoundScalar(cell))?;
        }
        statement.raw_bind_parameter(columns + 1, set.event.received_at.0)?;
        statement.raw_bind_parameter(columns + 2, &set.link.record_id)?;
        statement.raw_bind_parameter(columns + 3, set.event.seq.0)?;
        statement.raw_bind_parameter(columns + 4, set.owner)?;
        if statement.raw_execute()? == 0 {
            return Ok(Some(set.key_taken()));
        }
    }
    Ok(None)
}

/// The statement that upserts a row: columns it leaves out keep their value, and rows of other owners are not
/// touched.
fn upsert(table: &Table) -> String {
    let own = table.columns.iter().map(|(name, _)| *name);
    let names: Vec<&str> = own.chain(RowSet::COMMON).collect();
    let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
    let is_updated = |name: &&&str| !table.key.contains(name) && !RowSet::COMMON.contains(name);
    let fields = names.iter().filter(is_updated);
    let set: Vec<String> =
        fields.map(|name| format!("{name} = coalesce(excluded.{name}, {name})")).collect();
    format!(
        "INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT ({key}) DO UPDATE SET {set}{comma} \
         captured_at = max(captured_at, excluded.captured_at), \
         round_id = coalesce(excluded.round_id, round_id), event = excluded.event \
         WHERE owner = excluded.owner",
        table = table.name,
        names = names.join(", "),
        places = places.join(", "),
        key = table.key.join(", "),
        set = set.join(", "),
        comma = if set.is_empty() { "" } else { "," },
    )
}

/// Records a sighting of the event at `seq`.
pub(super) fn seen(conn: &Connection, table: &Table, seq: Seq, at: Millis) -> rusqlite::Result<()> {
    let query =
        format!("UPDATE {} SET captured_at = max(captured_at, ?2) WHERE event = ?1", table.name);
    conn.prepare_cached(&query)?.execute((seq.0, at.0))?;
    Ok(())
}

/// Converts a cell for SQLite.
struct BoundScalar<'a>(&'a Scalar);

impl ToSql for BoundScalar<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Scalar::Null => ValueRef::Null,
            Scalar::Integer(whole) => ValueRef::Integer(*whole),
            Scalar::Real(real) => ValueRef::Real(*real),
            Scalar::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
