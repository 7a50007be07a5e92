//! Record verification on SQLite. Related rows are read in one transaction.

use admit_core::Seq;
use rusqlite::{Connection, Row, params};

use super::fault::is_of_a_row;
use super::queries;
use super::records::RecordTables;
use super::verify::lossy;
use crate::common::records::{MismatchSink, RecordCheck, RecordError};
use crate::verify::{RecordsChecked, SLICE_ROWS, Slice, VerifyError};
use crate::verify_records::{EventRow, EventRowSink, StoredRecord, StoredRecordField};

/// Records per slice.
const RECORDS: i64 = 200;

/// Mismatches in order.
type Mismatches = Vec<(Option<Seq>, String)>;

pub(super) fn event_rows(
    conn: &Connection,
    door: &str,
    (after, to): Slice,
    each: &mut EventRowSink<'_>,
) -> Result<Option<Seq>, VerifyError> {
    let mut query = conn.prepare_cached(queries::VERIFY_TELLINGS)?;
    let mut rows = query.query(params![after.0, to.0, SLICE_ROWS, door])?;
    let (mut read, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let seq = Seq(row.get("seq")?);
        each(event_row(row, seq).map_err(|error| (seq, error.to_string())));
        (read, last) = (read + 1, Some(seq));
    }
    Ok(last.filter(|_| read == SLICE_ROWS))
}

fn event_row(row: &Row<'_>, seq: Seq) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        seq,
        source: row.get("source")?,
        group: row.get("grp")?,
        number: row.get("number")?,
        event_time: row.get("event_time")?,
        hard_key: row.get("hard_key")?,
        state: row.get("state")?,
        link_status: row.get("link_status")?,
        reason: row.get("reason_code")?,
        confidence: row.get("confidence")?,
        record_id: row.get("record_id")?,
        drift: row.get("drift")?,
        head: row.get("head")?,
        link: row.get("link")?,
        fields: row.get("fields")?,
        facts: row.get("facts")?,
        body: row.get("body")?,
        has_older_fields: row.get("has_older_fields")?,
    })
}

/// Checks the links together; if a row among them is unreadable, one at a time.
pub(super) fn links(
    conn: &Connection,
    check: RecordCheck<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut MismatchSink<'_>,
) -> Result<(), VerifyError> {
    if links_of(conn, check, seqs, checked, wrong)? {
        return Ok(());
    }
    for seq in seqs {
        if !links_of(conn, check, &[*seq], checked, wrong)? {
            checked.undecided += 1;
        }
    }
    Ok(())
}

/// Returns `false`, without reporting anything, if a row is unreadable.
fn links_of(
    conn: &Connection,
    check: RecordCheck<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut MismatchSink<'_>,
) -> Result<bool, VerifyError> {
    let tx = conn.unchecked_transaction()?;
    let (mut tried, mut mismatches) = (checked.clone(), Mismatches::new());
    let mut note = |at, message| mismatches.push((at, message));
    let decided = check.links(&mut RecordTables(&tx), seqs, &mut tried, &mut note);
    if !is_readable(decided)? {
        return Ok(false);
    }
    *checked = tried;
    mismatches.into_iter().for_each(|(at, message)| wrong(at, message));
    Ok(true)
}

pub(super) fn records(
    conn: &Connection,
    check: RecordCheck<'_>,
    after: &str,
    checked: &mut RecordsChecked,
    wrong: &mut MismatchSink<'_>,
) -> Result<Option<String>, VerifyError> {
    let tx = conn.unchecked_transaction()?;
    let mut query = tx.prepare_cached(queries::VERIFY_RECORDS)?;
    let mut rows = query.query(params![check.door, after, RECORDS])?;
    let (mut read, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let id = lossy(row, 0)?;
        read += 1;
        last = Some(id.clone());
        let (mut tried, mut mismatches) = (checked.clone(), Mismatches::new());
        let mut note = |at, message| mismatches.push((at, message));
        let merged = record(&tx, row).map_err(RecordError::Store).and_then(|(stored, members)| {
            check.record(&mut RecordTables(&tx), &stored, &members, &mut tried, &mut note)
        });
        if is_readable(merged)? {
            *checked = tried;
            mismatches.into_iter().for_each(|(at, message)| wrong(at, message));
        } else {
            checked.unmerged += 1;
            wrong(None, format!("the record {id} or an event of it is unreadable"));
        }
    }
    Ok(last.filter(|last| read == RECORDS && **last > *after))
}

fn record(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<(StoredRecord, Vec<Seq>)> {
    let record_id: String = row.get("record_id")?;
    let mut query = conn.prepare_cached(queries::RECORD_FIELDS)?;
    let fields = query.query_map(params![record_id, None::<i64>], |row| {
        let event = Seq(row.get("event")?);
        let (name, value) = (row.get("name")?, row.get("value")?);
        Ok(StoredRecordField { name, value, source: row.get("source")?, event })
    })?;
    let fields = fields.collect::<rusqlite::Result<_>>()?;
    let mut query = conn.prepare_cached(queries::VERIFY_RECORD_EVENTS)?;
    let members = query.query_map([&record_id], |row| row.get(0).map(Seq))?;
    let members = members.collect::<rusqlite::Result<_>>()?;
    let stored = StoredRecord {
        record_id,
        group: row.get("grp")?,
        number: row.get("number")?,
        date: row.get("date")?,
        time: row.get("time")?,
        event_time: row.get("event_time")?,
        state: row.get("state")?,
        fingerprints: row.get("fingerprints")?,
        fields,
    };
    Ok((stored, members))
}

/// Whether every row was readable; any other failure ends the check.
fn is_readable(done: Result<(), RecordError<rusqlite::Error>>) -> Result<bool, VerifyError> {
    match done {
        Ok(()) => Ok(true),
        Err(RecordError::Store(error)) if !is_of_a_row(&error) => Err(error.into()),
        Err(_) => Ok(false),
    }
}
