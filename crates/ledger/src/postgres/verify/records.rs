//! The records of a PostgreSQL ledger that is checked. What belongs together is read in one transaction.

use admit_core::Seq;
use tokio_postgres::Row;

use super::super::conn::{Columns as _, Conn, Error, Result, big};
use super::super::records::RecordTables;
use super::super::{sql, text};
use crate::common::records::{Checking, EachWrong, RecordError};
use crate::verify::{RecordsChecked, SLICE_ROWS, VerifyError};
use crate::verify_records::{EachTelling, KeptField, KeptRecord, TellingRow};

/// Records of one slice.
const RECORDS: i64 = 200;

/// One state of the ledger for several questions.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

pub(super) fn tellings(
    conn: &Conn,
    door: &str,
    (after, to): (Seq, Seq),
    each: &mut EachTelling<'_>,
) -> Result<Option<Seq>> {
    let params: [super::Param<'_>; 4] = [&big(after.0), &big(to.0), &SLICE_ROWS, &text::kept(door)];
    let found = conn.query(sql!("verify_tellings"), &params)?;
    let mut last = None;
    for row in &found {
        let seq = row.seq("seq")?;
        each(telling(row, seq).map_err(|error| (seq, error.to_string())));
        last = Some(seq);
    }
    Ok(last.filter(|_| found.len() as i64 == SLICE_ROWS))
}

fn telling(row: &Row, seq: Seq) -> Result<TellingRow> {
    Ok(TellingRow {
        seq,
        source: row.text("source")?,
        group: row.text("grp")?,
        number: row.val("number")?,
        event_time: row.val("event_time")?,
        hard_key: row.text_opt("hard_key")?,
        state: row.text("state")?,
        link_status: row.text("link_status")?,
        reason: row.text("reason_code")?,
        confidence: row.text("confidence")?,
        record_id: row.text_opt("record_id")?,
        drift: row.text_opt("drift")?,
        head: row.text("head")?,
        link: row.text("link")?,
        fields: row.text_opt("fields")?,
        facts: row.text_opt("facts")?,
        body: row.val("body")?,
    })
}

pub(super) fn links(
    conn: &Conn,
    checking: Checking<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut EachWrong<'_>,
) -> std::result::Result<(), VerifyError> {
    in_one_state(conn, || checking.links(&mut RecordTables::new(conn), seqs, checked, wrong))
}

pub(super) fn records(
    conn: &Conn,
    checking: Checking<'_>,
    after: &str,
    checked: &mut RecordsChecked,
    wrong: &mut EachWrong<'_>,
) -> std::result::Result<Option<String>, VerifyError> {
    let mut last = None;
    in_one_state(conn, || {
        let params: [super::Param<'_>; 3] =
            [&text::kept(checking.door), &text::kept(after), &RECORDS];
        let rows = conn.query(sql!("verify_records"), &params)?;
        for row in &rows {
            let (kept, members) = record(conn, row)?;
            checking.record(&mut RecordTables::new(conn), &kept, &members, checked, wrong)?;
            last = Some(kept.record_id);
        }
        last.take_if(|_| (rows.len() as i64) < RECORDS);
        Ok(())
    })?;
    Ok(last)
}

fn record(conn: &Conn, row: &Row) -> Result<(KeptRecord, Vec<Seq>)> {
    let record_id = row.text("record_id")?;
    let id = text::kept(&record_id);
    let field = |row: &Row| {
        let (name, value) = (row.text("name")?, row.text("value")?);
        Ok(KeptField { name, value, source: row.text("source")?, event: row.seq("event")? })
    };
    let found = conn.query(sql!("verify_record_fields"), &[&id])?;
    let fields = found.iter().map(field).collect::<Result<_>>()?;
    let found = conn.query(sql!("verify_record_events"), &[&id])?;
    let members = found.iter().map(|row| row.seq("seq")).collect::<Result<_>>()?;
    let kept = KeptRecord {
        group: row.text("grp")?,
        number: row.val("number")?,
        date: row.text_opt("date")?,
        time: row.text_opt("time")?,
        event_time: row.val("event_time")?,
        state: row.text("state")?,
        fingerprints: row.text("fingerprints")?,
        fields,
        record_id,
    };
    Ok((kept, members))
}

/// Runs `read` in a transaction that leaves nothing.
fn in_one_state(
    conn: &Conn,
    read: impl FnOnce() -> std::result::Result<(), RecordError<Error>>,
) -> std::result::Result<(), VerifyError> {
    conn.batch(BEGIN)?;
    let done = read();
    conn.batch("ROLLBACK")?;
    done.map_err(|error| VerifyError(Box::new(error)))
}
