//! The records of a SQLite ledger that is checked. What belongs together is read in one transaction.

use admit_core::Seq;
use rusqlite::{Connection, Row, params};

use super::fault::is_of_a_row;
use super::queries;
use super::records::RecordTables;
use super::verify::lossy;
use crate::common::records::{Checking, EachWrong, RecordError};
use crate::verify::{RecordsChecked, SLICE_ROWS, Slice, VerifyError};
use crate::verify_records::{EachTelling, KeptField, KeptRecord, TellingRow};

/// Records of one slice.
const RECORDS: i64 = 200;

/// Messages about events, in their order.
type Wrong = Vec<(Option<Seq>, String)>;

pub(super) fn tellings(
    conn: &Connection,
    door: &str,
    (after, to): Slice,
    each: &mut EachTelling<'_>,
) -> Result<Option<Seq>, VerifyError> {
    let mut query = conn.prepare_cached(queries::VERIFY_TELLINGS)?;
    let mut rows = query.query(params![after.0, to.0, SLICE_ROWS, door])?;
    let (mut read, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let seq = Seq(row.get("seq")?);
        each(telling(row, seq).map_err(|error| (seq, error.to_string())));
        (read, last) = (read + 1, Some(seq));
    }
    Ok(last.filter(|_| read == SLICE_ROWS))
}

fn telling(row: &Row<'_>, seq: Seq) -> rusqlite::Result<TellingRow> {
    Ok(TellingRow {
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
    })
}

/// All of them at once; where a row among them cannot be read, one by one.
pub(super) fn links(
    conn: &Connection,
    checking: Checking<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut EachWrong<'_>,
) -> Result<(), VerifyError> {
    if links_of(conn, checking, seqs, checked, wrong)? {
        return Ok(());
    }
    for seq in seqs {
        if !links_of(conn, checking, &[*seq], checked, wrong)? {
            checked.undecided += 1;
        }
    }
    Ok(())
}

/// Whether all rows could be read; otherwise nothing is said.
fn links_of(
    conn: &Connection,
    checking: Checking<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut EachWrong<'_>,
) -> Result<bool, VerifyError> {
    let tx = conn.unchecked_transaction()?;
    let (mut tried, mut said) = (checked.clone(), Wrong::new());
    let mut note = |at, message| said.push((at, message));
    let decided = checking.links(&mut RecordTables(&tx), seqs, &mut tried, &mut note);
    if !is_readable(decided)? {
        return Ok(false);
    }
    *checked = tried;
    said.into_iter().for_each(|(at, message)| wrong(at, message));
    Ok(true)
}

pub(super) fn records(
    conn: &Connection,
    checking: Checking<'_>,
    after: &str,
    checked: &mut RecordsChecked,
    wrong: &mut EachWrong<'_>,
) -> Result<Option<String>, VerifyError> {
    let tx = conn.unchecked_transaction()?;
    let mut query = tx.prepare_cached(queries::VERIFY_RECORDS)?;
    let mut rows = query.query(params![checking.door, after, RECORDS])?;
    let (mut read, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let id = lossy(row, 0)?;
        read += 1;
        last = Some(id.clone());
        let (mut tried, mut said) = (checked.clone(), Wrong::new());
        let mut note = |at, message| said.push((at, message));
        let merged = record(&tx, row).map_err(RecordError::Store).and_then(|(kept, members)| {
            checking.record(&mut RecordTables(&tx), &kept, &members, &mut tried, &mut note)
        });
        if is_readable(merged)? {
            *checked = tried;
            said.into_iter().for_each(|(at, message)| wrong(at, message));
        } else {
            checked.unmerged += 1;
            wrong(None, format!("the record {id} cannot be read, or an event of it"));
        }
    }
    Ok(last.filter(|last| read == RECORDS && **last > *after))
}

fn record(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<(KeptRecord, Vec<Seq>)> {
    let record_id: String = row.get("record_id")?;
    let mut query = conn.prepare_cached(queries::RECORD_FIELDS)?;
    let fields = query.query_map(params![record_id, None::<i64>], |row| {
        let event = Seq(row.get("event")?);
        let (name, value) = (row.get("name")?, row.get("value")?);
        Ok(KeptField { name, value, source: row.get("source")?, event })
    })?;
    let fields = fields.collect::<rusqlite::Result<_>>()?;
    let mut query = conn.prepare_cached(queries::VERIFY_RECORD_EVENTS)?;
    let members = query.query_map([&record_id], |row| row.get(0).map(Seq))?;
    let members = members.collect::<rusqlite::Result<_>>()?;
    let kept = KeptRecord {
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
    Ok((kept, members))
}

/// Whether what was asked could be read; a failure that is not of a row ends the check.
fn is_readable(done: Result<(), RecordError<rusqlite::Error>>) -> Result<bool, VerifyError> {
    match done {
        Ok(()) => Ok(true),
        Err(RecordError::Store(error)) if !is_of_a_row(&error) => Err(error.into()),
        Err(_) => Ok(false),
    }
}
