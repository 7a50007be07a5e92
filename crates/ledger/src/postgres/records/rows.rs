//! Rows of the queried tables in PostgreSQL, whose columns have types.
//!
//! Values are converted as SQLite's column affinity would: numeric text becomes a number, a number in a text
//! column becomes text. A value that is no number is left out of a numeric column; in a key column, the row
//! cannot be stored and the event reports it.

use std::collections::BTreeMap;

use admit_core::entity::{Scalar, Table};

use crate::common::records::{RowSet, SCHEMA_DRIFT};
use crate::postgres::conn::{Conn, Error, Param, Query, Result, big};
use crate::postgres::nul_escape::{escape, escape_owned};

/// The text columns; all others are numeric, as in the migrations.
const TEXTS: [&str; 13] = [
    "match_id",
    "map_name",
    "end_reason",
    "lua_pause_events",
    "surrender_caller_guid",
    "surrender_caller_name",
    "axis_players",
    "allies_players",
    "lua_version",
    "player_guid",
    "player_name",
    "session_date",
    "data",
];

/// The statement that writes rows.
pub(super) struct RowsCall {
    sql: String,
    /// One array for each column.
    columns: Vec<Vec<Option<String>>>,
    count: u64,
    captured_at: i64,
    round_id: Option<String>,
    event: i64,
    owner: String,
}

impl RowsCall {
    /// The statement, or why the rows cannot be written.
    pub(super) fn of(set: &RowSet<'_>) -> std::result::Result<Self, String> {
        let rows = fitted(set)?;
        let count = rows.len() as u64;
        let mut columns = vec![Vec::with_capacity(rows.len()); set.table.columns.len()];
        for row in rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                column.push(cell.map(escape_owned));
            }
        }
        Ok(Self {
            sql: upsert(set.table),
            columns,
            count,
            captured_at: set.event.received_at.0,
            round_id: set.link.record_id.clone().map(escape_owned),
            event: big(set.event.seq.0),
            owner: escape(set.owner).into_owned(),
        })
    }

    /// The number of rows.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn query(&self) -> Query<'_> {
        let mut params: Vec<Param<'_>> =
            self.columns.iter().map(|column| -> Param<'_> { column }).collect();
        params.extend([&self.captured_at as Param<'_>, &self.round_id, &self.event, &self.owner]);
        Query::new(&self.sql, params)
    }
}

/// Writes all rows or none; returns the reason if they were rejected.
pub(super) fn put(conn: &Conn, set: &RowSet<'_>) -> Result<Option<String>> {
    let call = match RowsCall::of(set) {
        Ok(call) => call,
        Err(reason) => return Ok(Some(reason)),
    };
    let done = conn.in_savepoint(|| {
        let written: u64 = conn.execute_all(&[call.query()])?.into_iter().sum();
        // Fewer than were sent: a row of another owner has one of the keys. None of them is stored.
        if written < call.count {
            return Err(Error::Unexpected(set.key_taken()));
        }
        Ok(())
    })?;
    match done {
        Ok(()) => Ok(None),
        Err(Error::Unexpected(reason)) => Ok(Some(reason)),
        Err(error) => drift(&error).map_or(Err(error), |reason| Ok(Some(reason))),
    }
}

/// The reason if an error concerns these rows: a foreign constraint, or a value that a foreign column type
/// rejects.
fn drift(error: &Error) -> Option<String> {
    let Error::Server(error) = error else { return None };
    let reasons = error.as_db_error()?;
    let class = reasons.code().code().get(..2)?;
    matches!(class, "22" | "23").then(|| format!("{SCHEMA_DRIFT}: {}", reasons.message()))
}

/// Converts a cell to the type of its column.
type ColumnText = Option<String>;

/// Merges rows with the same key: columns that a later one leaves out keep the value of an earlier one.
fn fitted(set: &RowSet<'_>) -> std::result::Result<Vec<Vec<ColumnText>>, String> {
    let mut rows: Vec<Vec<ColumnText>> = Vec::with_capacity(set.rows.len());
    let mut known: BTreeMap<Vec<ColumnText>, usize> = BTreeMap::new();
    for row in &set.rows {
        let (mut cells, mut key) = (Vec::with_capacity(row.len()), Vec::new());
        for ((name, _), cell) in set.table.columns.iter().zip(row) {
            let fitted = if TEXTS.contains(name) { text(cell) } else { number(cell) };
            if set.table.key.contains(name) {
                if fitted.is_none() {
                    let table = set.table.name;
                    return Err(format!("{SCHEMA_DRIFT}: {name} of {table} takes numbers only"));
                }
                key.push(fitted.clone());
            }
            cells.push(fitted);
        }
        match known.get(&key) {
            None => {
                known.insert(key, rows.len());
                rows.push(cells);
            }
            Some(place) => {
                for (before, cell) in rows[*place].iter_mut().zip(cells) {
                    *before = cell.or_else(|| before.take());
                }
            }
        }
    }
    Ok(rows)
}

fn text(cell: &Scalar) -> ColumnText {
    match cell {
        Scalar::Null => None,
        Scalar::Integer(whole) => Some(whole.to_string()),
        Scalar::Real(real) => Some(format!("{real:?}")),
        Scalar::Text(text) => Some(text.clone()),
    }
}

fn number(cell: &Scalar) -> ColumnText {
    match cell {
        Scalar::Null => None,
        Scalar::Integer(whole) => Some(whole.to_string()),
        Scalar::Real(real) => spelt(*real),
        Scalar::Text(text) => {
            let text = text.trim();
            match text.parse::<i64>() {
                Ok(whole) => Some(whole.to_string()),
                Err(_) => text.parse().ok().and_then(spelt),
            }
        }
    }
}

/// Normal form of a number, so that equal keys are equal texts.
fn spelt(real: f64) -> ColumnText {
    real.is_finite().then(|| if real == 0.0 { "0".to_owned() } else { real.to_string() })
}

/// The statement that upserts rows: columns they leave out keep their value, and rows of other owners are not
/// touched.
fn upsert(table: &Table) -> String {
    let own: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let arrays: Vec<String> = (1..=own.len()).map(|place| format!("${place}::text[]")).collect();
    let cell = |name: &&str| {
        if TEXTS.contains(name) {
            format!("input.{name}")
        } else {
            format!("input.{name}::numeric")
        }
    };
    let cells: Vec<String> = own.iter().map(cell).collect();
    let [captured_at, round_id, event, owner] =
        [1, 2, 3, 4].map(|place| format!("${}", own.len() + place));
    let fields = own.iter().filter(|name| !table.key.contains(name));
    let set: String =
        fields.map(|name| format!("{name} = coalesce(excluded.{name}, kept.{name}), ")).collect();
    format!(
        "INSERT INTO {table} AS kept ({names}, {common}) \
         SELECT {cells}, {captured_at}::bigint, {round_id}::text, {event}::bigint, {owner}::text \
         FROM unnest({arrays}) AS input ({names}) \
         ON CONFLICT ({key}) DO UPDATE SET {set}\
         captured_at = greatest(kept.captured_at, excluded.captured_at), \
         round_id = coalesce(excluded.round_id, kept.round_id), event = excluded.event \
         WHERE kept.owner = excluded.owner",
        table = table.name,
        names = own.join(", "),
        common = RowSet::COMMON.join(", "),
        cells = cells.join(", "),
        arrays = arrays.join(", "),
        key = table.key.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of the queried tables and their types, from the migration.
    fn columns() -> Vec<(&'static str, &'static str)> {
        let migration = include_str!("../migrations/0006_records.sql");
        let tables = migration.split("CREATE TABLE ").filter(|table| {
            ["lua_", "combat_", "player_", "proximity_"].iter().any(|name| table.starts_with(name))
        });
        let lines = tables.flat_map(|table| table.split(");").next().unwrap().lines().skip(1));
        lines
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?, words.next()?.trim_end_matches(',')))
            })
            .filter(|(name, _)| *name != "UNIQUE" && !RowSet::COMMON.contains(name))
            .collect()
    }

    #[test]
    fn columns_of_text_are_those_of_the_migration() {
        let columns = columns();
        assert!(columns.len() > 40, "{columns:?}");
        for (name, kind) in columns {
            let wanted: &[&str] =
                if TEXTS.contains(&name) { &["TEXT"] } else { &["NUMERIC", "BIGINT"] };
            assert!(wanted.contains(&kind), "{name} is {kind}");
        }
    }

    #[test]
    fn a_value_is_converted_to_the_type_of_its_column() {
        let number = |cell: Scalar| super::number(&cell);
        assert_eq!(number(Scalar::Text(" 7 ".to_owned())).as_deref(), Some("7"));
        assert_eq!(number(Scalar::Text("2.50".to_owned())).as_deref(), Some("2.5"));
        assert_eq!(number(Scalar::Real(2.0)).as_deref(), Some("2"));
        assert_eq!(number(Scalar::Real(-0.0)).as_deref(), Some("0"));
        assert_eq!(number(Scalar::Text("e1".to_owned())), None);
        assert_eq!(number(Scalar::Text("NaN".to_owned())), None);
        assert_eq!(text(&Scalar::Integer(7)).as_deref(), Some("7"));
        assert_eq!(text(&Scalar::Real(2.0)).as_deref(), Some("2.0"));
    }
}
