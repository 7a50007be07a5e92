//! Rows of the queried tables: made from events, again whenever their links change.
//!
//! Events that share a hard key share their rows. They are written one after the other, the most
//! trusted last, and what one leaves out stays as the other said it; so the order in which they came
//! does not matter.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::json::Object;
use admit_core::record::{Link, LinkStatus, Policy, Scalar, SourceEvent, Table};
use admit_core::{Millis, Seq};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ToSql, ffi};

use super::near::Near;
use super::{Drift, ROW_KEY_TAKEN, RecordError, SCHEMA_DRIFT, queries};

/// Columns that every table has.
const COMMON: [&str; 4] = ["captured_at", "round_id", "event", "owner"];

/// Writes the rows of the events in `changed`, and of those that share them. `links` are the links
/// that have changed.
pub(super) fn write(
    conn: &Connection,
    policy: &Policy,
    near: &mut Near,
    links: &BTreeMap<Seq, &Link>,
    changed: &BTreeSet<Seq>,
) -> Result<Drift, RecordError> {
    let mut drift = Drift::new();
    let tells = |source: &str| policy.tables.iter().any(|table| table.sources.contains(&source));
    let owners: BTreeSet<String> = near
        .events
        .iter()
        .filter(|event| changed.contains(&event.seq) && tells(&event.source))
        .map(|event| owner(policy, event))
        .collect();
    for owner_name in owners {
        let sharing: Vec<Seq> = near
            .events
            .iter()
            .filter(|event| tells(&event.source) && owner(policy, event) == owner_name)
            .map(|event| event.seq)
            .collect();
        for seq in &sharing {
            near.read_fields(conn, *seq)?;
        }
        share(conn, policy, near, links, &sharing, &owner_name, &mut drift)?;
    }
    for (seq, why) in &drift {
        conn.prepare_cached(queries::RECORD_EVENT_DRIFT)?.execute((seq.0, why))?;
    }
    Ok(drift)
}

/// What names the events that share rows.
fn owner(policy: &Policy, event: &SourceEvent) -> String {
    let family = policy.family(&event.source);
    match &event.hard_key {
        Some(hard_key) => format!("{family}|{hard_key}"),
        None => format!("{family}|{}", event.key),
    }
}

/// Writes the rows of events that share them.
fn share(
    conn: &Connection,
    policy: &Policy,
    near: &Near,
    links: &BTreeMap<Seq, &Link>,
    sharing: &[Seq],
    owner: &str,
    drift: &mut Drift,
) -> Result<(), RecordError> {
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_sharing = |event: &&SourceEvent| sharing.contains(&event.seq);
    let all: Vec<&SourceEvent> = near.events.iter().filter(is_sharing).collect();
    let told: BTreeMap<Seq, Object<'_>> =
        all.iter().map(|event| (event.seq, event.fields.read())).collect();
    for table in policy.tables {
        let rank = |event: &SourceEvent| table.sources.iter().position(|s| *s == event.source);
        let mut events = all.clone();
        events.retain(|event| rank(event).is_some());
        events.sort_by_key(|event| (std::cmp::Reverse(rank(event)), event.seq));
        for event in events.iter().filter(|event| known.contains_key(&event.seq)) {
            conn.prepare_cached(&format!("DELETE FROM {} WHERE event = ?1", table.name))?
                .execute([event.seq.0])?;
        }
        for event in events {
            let link = links.get(&event.seq).or_else(|| known.get(&event.seq));
            let (Some(link), Some(fields)) = (link, told.get(&event.seq)) else { continue };
            let why = drift.entry(event.seq).or_default();
            if link.status == LinkStatus::Ambiguous {
                continue;
            }
            if let Some(said) = guarded(conn, || put(conn, table, (event, fields), link, owner))? {
                // It is told by the event itself and by the diagnostics; a folder of such files
                // would flood the log.
                tracing::debug!(seq = event.seq.0, table = table.name, said, "rows are left out");
                *why = Some(said);
            }
        }
    }
    Ok(())
}

/// Does `write`, or nothing of it when a unique index is in its way; then that is what it says.
fn guarded(
    conn: &Connection,
    write: impl FnOnce() -> rusqlite::Result<Option<String>>,
) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached("SAVEPOINT record_rows")?.execute([])?;
    let said = match write() {
        Ok(None) => None,
        Ok(Some(taken)) => Some(taken),
        Err(Error::SqliteFailure(code, message))
            if matches!(
                code.extended_code,
                ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            ) =>
        {
            Some(format!("{SCHEMA_DRIFT}: {}", message.unwrap_or_else(|| code.to_string())))
        }
        Err(error) => return Err(error),
    };
    if said.is_some() {
        conn.prepare_cached("ROLLBACK TO record_rows")?.execute([])?;
    }
    conn.prepare_cached("RELEASE record_rows")?.execute([])?;
    Ok(said)
}

/// Writes the rows of one event into one table; says when somebody else's row has their key.
fn put(
    conn: &Connection,
    table: &Table,
    (event, fields): (&SourceEvent, &Object<'_>),
    link: &Link,
    owner: &str,
) -> rusqlite::Result<Option<String>> {
    let rows = table.rows(event, fields, link);
    if rows.is_empty() {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached(&upsert(table))?;
    for row in rows {
        let columns = row.len();
        for (place, cell) in row.into_iter().enumerate() {
            statement.raw_bind_parameter(place + 1, Bound(cell))?;
        }
        statement.raw_bind_parameter(columns + 1, event.received_at.0)?;
        statement.raw_bind_parameter(columns + 2, &link.record_id)?;
        statement.raw_bind_parameter(columns + 3, event.seq.0)?;
        statement.raw_bind_parameter(columns + 4, owner)?;
        if statement.raw_execute()? == 0 {
            let key = table.key.join(", ");
            return Ok(Some(format!("{ROW_KEY_TAKEN}: {} ({key})", table.name)));
        }
    }
    Ok(None)
}

/// The statement that writes a row: what it leaves out stays, and rows of others are left alone.
fn upsert(table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).chain(COMMON).collect();
    let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
    let told = names.iter().filter(|name| !table.key.contains(name) && !COMMON.contains(name));
    let set: Vec<String> =
        told.map(|name| format!("{name} = coalesce(excluded.{name}, {name})")).collect();
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

/// A copy of the event at `seq` came.
pub(super) fn seen(
    conn: &Connection,
    policy: &Policy,
    seq: Seq,
    at: Millis,
) -> rusqlite::Result<()> {
    for table in policy.tables {
        let query = format!(
            "UPDATE {} SET captured_at = max(captured_at, ?2) WHERE event = ?1",
            table.name
        );
        conn.prepare_cached(&query)?.execute((seq.0, at.0))?;
    }
    Ok(())
}

/// A cell as SQLite takes it.
struct Bound(Scalar);

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match &self.0 {
            Scalar::Null => ValueRef::Null,
            Scalar::Integer(whole) => ValueRef::Integer(*whole),
            Scalar::Real(real) => ValueRef::Real(*real),
            Scalar::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
