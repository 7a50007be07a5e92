//! Reads records.

use admit_core::{Millis, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::port::{
    CountsFilter, EventLine, FieldLine, RecordCounts, RecordDetail, RecordFilter, RecordLine,
    SourceCounts, StepLine,
};
use crate::sqlite::queries;

/// Longer fields are not listed, in characters of JSON.
const SHORT_CHARS_MAX: i64 = 200;

/// Maximum events and steps of one record to list.
const EVENTS_MAX: i64 = 1_000;
const STEPS_MAX: i64 = 10_000;

pub(in crate::sqlite) fn list(
    conn: &Connection,
    filter: &RecordFilter,
) -> rusqlite::Result<Vec<RecordLine>> {
    let (at, id) = filter.after.clone().unzip();
    let rows_max = i64::try_from(filter.rows_max).unwrap_or(i64::MAX);
    let params = (&filter.door, &filter.group, &filter.date, &filter.state, at, id, rows_max);
    let mut lines: Vec<RecordLine> = conn
        .prepare_cached(queries::RECORDS)?
        .query_map(params, line)?
        .collect::<rusqlite::Result<_>>()?;
    for line in &mut lines {
        line.fields = fields(conn, &line.record_id, Some(SHORT_CHARS_MAX))?;
    }
    Ok(lines)
}

pub(in crate::sqlite) fn one(
    conn: &Connection,
    door: &str,
    id: &str,
) -> rusqlite::Result<Option<RecordDetail>> {
    // In one snapshot.
    let tx = conn.unchecked_transaction()?;
    let found = tx
        .prepare_cached(queries::RECORD_GET)?
        .query_row((id, door), |row| Ok((line(row)?, row.get("fingerprints")?)))
        .optional()?;
    let Some((mut line, fingerprints)) = found else { return Ok(None) };
    line.fields = fields(&tx, id, None)?;
    let events = events(&tx, queries::RECORD_EVENTS_OF, (id, EVENTS_MAX))?;
    let steps = tx
        .prepare_cached(queries::RECORD_HISTORY)?
        .query_map((id, STEPS_MAX), step)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(RecordDetail { line, fingerprints, events, steps }))
}

pub(in crate::sqlite) fn open(
    conn: &Connection,
    door: &str,
    after: Seq,
    rows_max: usize,
) -> rusqlite::Result<Vec<EventLine>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    events(conn, queries::RECORD_EVENTS_OPEN, (door, after.0, rows_max))
}

pub(in crate::sqlite) fn counts(
    conn: &Connection,
    door: &str,
    params: &CountsFilter,
) -> rusqlite::Result<RecordCounts> {
    let tx = conn.unchecked_transaction()?;
    let sources = tx
        .prepare_cached(queries::RECORD_COUNT_SOURCES)?
        .query_map((door, params.recent_since.0), |row| {
            Ok(SourceCounts {
                source: row.get(0)?,
                total: row.get(1)?,
                unlinked: row.get(2)?,
                recent: row.get(3)?,
                recent_unlinked: row.get(4)?,
                latest_at: row.get::<_, Option<i64>>(5)?.map(Millis),
                unread: row.get(6)?,
                drifted: row.get(7)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let states = tx
        .prepare_cached(queries::RECORD_COUNT_STATES)?
        .query_map([door], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let days = tx
        .prepare_cached(queries::RECORD_COUNT_DAYS)?
        .query_map((door, params.days_since.0), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let without = format!(" {} ", params.without.join(" "));
    let record_days = tx
        .prepare_cached(queries::RECORD_COUNT_RECORD_DAYS)?
        .query_map((door, params.days_since.0 / 1000, without), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let three = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows = tx
        .prepare_cached(queries::RECORD_COUNT_ROWS)?
        .query_map([], three)?
        .collect::<rusqlite::Result<_>>()?;
    let row_days = tx
        .prepare_cached(queries::RECORD_COUNT_ROW_DAYS)?
        .query_map([params.days_since.0], three)?
        .collect::<rusqlite::Result<_>>()?;
    let newest = i64::try_from(params.newest).unwrap_or(i64::MAX);
    let newest = events(&tx, queries::RECORD_EVENTS_NEWEST, (door, newest))?;
    Ok(RecordCounts { sources, states, days, record_days, rows, row_days, newest })
}

fn line(row: &Row<'_>) -> rusqlite::Result<RecordLine> {
    Ok(RecordLine {
        record_id: row.get("record_id")?,
        group: row.get("grp")?,
        number: row.get("number")?,
        date: row.get("date")?,
        time: row.get("time")?,
        event_time: row.get("event_time")?,
        state: row.get("state")?,
        revision: row.get("revision")?,
        opened_at: Millis(row.get("opened_at")?),
        changed_at: Millis(row.get("changed_at")?),
        fields: Vec::new(),
    })
}

fn fields(conn: &Connection, id: &str, chars_max: Option<i64>) -> rusqlite::Result<Vec<FieldLine>> {
    conn.prepare_cached(queries::RECORD_FIELDS)?
        .query_map((id, chars_max), |row| {
            Ok(FieldLine {
                name: row.get(0)?,
                value: row.get(1)?,
                source: row.get(2)?,
                event: Seq(row.get(3)?),
            })
        })?
        .collect()
}

fn events(
    conn: &Connection,
    query: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Vec<EventLine>> {
    conn.prepare_cached(query)?
        .query_map(params, |row| {
            Ok(EventLine {
                seq: Seq(row.get("seq")?),
                source: row.get("source")?,
                received_at: Millis(row.get("received_at")?),
                seen_at: Millis(row.get("seen_at")?),
                state: row.get("state")?,
                link_status: row.get("link_status")?,
                reason_code: row.get("reason_code")?,
                confidence: row.get("confidence")?,
                record_id: row.get("record_id")?,
                drift: row.get("drift")?,
                head: row.get("head")?,
                link: row.get("link")?,
            })
        })?
        .collect()
}

fn step(row: &Row<'_>) -> rusqlite::Result<StepLine> {
    let kind: Option<String> = row.get("fingerprint_kind")?;
    Ok(StepLine {
        seq: Seq(row.get("seq")?),
        at: Millis(row.get("at")?),
        attempt: row.get("attempt")?,
        from: row.get("from_state")?,
        to: row.get("to_state")?,
        source: row.get("source")?,
        fingerprint: kind.zip(row.get("round_fingerprint")?),
        link_status: row.get("link_status")?,
        confidence: row.get("confidence")?,
        reason_code: row.get("reason_code")?,
        record_id: row.get("record_id")?,
    })
}
