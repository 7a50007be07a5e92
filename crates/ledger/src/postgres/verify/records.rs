//! Record verification on PostgreSQL. Related rows are read in one transaction.

use admit_core::Seq;
use tokio_postgres::Row;

use super::super::conn::{Columns as _, Conn, Error, Result, big};
use super::super::records::RecordTables;
use super::super::{nul_escape, sql};
use crate::common::records::{MismatchSink, RecordCheck, RecordError};
use crate::verify::{RecordsChecked, SLICE_ROWS, VerifyError};
use crate::verify_records::{EventRow, EventRowSink, StoredRecord, StoredRecordField};

/// Records per slice.
const RECORDS: i64 = 200;

/// Several queries on one snapshot.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

pub(super) fn event_rows(
    conn: &Conn,
    door: &str,
    (after, to): (Seq, Seq),
    each: &mut EventRowSink<'_>,
) -> Result<Option<Seq>> {
    let params: [super::Param<'_>; 4] =
        [&big(after.0), &big(to.0), &SLICE_ROWS, &nul_escape::escape(door)];
    let found = conn.query(sql!("verify_tellings"), &params)?;
    let mut last = None;
    for row in &found {
        let seq = row.seq("seq")?;
        each(event_row(row, seq).map_err(|error| (seq, error.to_string())));
        last = Some(seq);
    }
    Ok(last.filter(|_| found.len() as i64 == SLICE_ROWS))
}

fn event_row(row: &Row, seq: Seq) -> Result<EventRow> {
    Ok(EventRow {
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
        has_older_fields: row.val("has_older_fields")?,
    })
}

pub(super) fn links(
    conn: &Conn,
    check: RecordCheck<'_>,
    seqs: &[Seq],
    checked: &mut RecordsChecked,
    wrong: &mut MismatchSink<'_>,
) -> std::result::Result<(), VerifyError> {
    on_one_snapshot(conn, || check.links(&mut RecordTables::new(conn), seqs, checked, wrong))
}

pub(super) fn records(
    conn: &Conn,
    check: RecordCheck<'_>,
    after: &str,
    checked: &mut RecordsChecked,
    wrong: &mut MismatchSink<'_>,
) -> std::result::Result<Option<String>, VerifyError> {
    let mut last = None;
    on_one_snapshot(conn, || {
        let params: [super::Param<'_>; 3] =
            [&nul_escape::escape(check.door), &nul_escape::escape(after), &RECORDS];
        let rows = conn.query(sql!("verify_records"), &params)?;
        for row in &rows {
            let (stored, members) = record(conn, row)?;
            check.record(&mut RecordTables::new(conn), &stored, &members, checked, wrong)?;
            last = Some(stored.record_id);
        }
        last.take_if(|_| (rows.len() as i64) < RECORDS);
        Ok(())
    })?;
    Ok(last)
}

fn record(conn: &Conn, row: &Row) -> Result<(StoredRecord, Vec<Seq>)> {
    let record_id = row.text("record_id")?;
    let id = nul_escape::escape(&record_id);
    let field = |row: &Row| {
        let (name, value) = (row.text("name")?, row.text("value")?);
        Ok(StoredRecordField { name, value, source: row.text("source")?, event: row.seq("event")? })
    };
    let found = conn.query(sql!("verify_record_fields"), &[&id])?;
    let fields = found.iter().map(field).collect::<Result<_>>()?;
    let found = conn.query(sql!("verify_record_events"), &[&id])?;
    let members = found.iter().map(|row| row.seq("seq")).collect::<Result<_>>()?;
    let stored = StoredRecord {
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
    Ok((stored, members))
}

/// Runs `read` in a read-only transaction and rolls it back.
fn on_one_snapshot(
    conn: &Conn,
    read: impl FnOnce() -> std::result::Result<(), RecordError<Error>>,
) -> std::result::Result<(), VerifyError> {
    conn.batch(BEGIN)?;
    let done = read();
    conn.batch("ROLLBACK")?;
    done.map_err(|error| VerifyError(Box::new(error)))
}
