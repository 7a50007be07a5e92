//! Verifies records. Related rows are read in one snapshot.

use admit_core::Seq;

use super::{SqlRows, VerifyDb};
use crate::common::records::{MismatchSink, RecordCheck, RecordError};
use crate::db::{Columns, InvalidValue, params, statements};
use crate::tables::record::{RecordTables, fields};
use crate::verify::{RecordsChecked, SLICE_ROWS, Slice};
use crate::verify_records::{EventRow, EventRowSink, StoredRecord, StoredRecordField};

statements! {
    shared EVENTS "verify_record_inputs";
    shared RECORDS "verify_records";
    shared RECORD_EVENTS "verify_record_events";
}

/// Records per slice.
const RECORDS_MAX: i64 = 200;

/// Mismatches in order.
type Mismatches = Vec<(Option<Seq>, String)>;

impl<D: VerifyDb> SqlRows<D> {
    pub(super) fn record_events(
        &self,
        door: &str,
        (after, to): Slice,
        each: &mut EventRowSink<'_>,
    ) -> Result<Option<Seq>, D::Error> {
        self.rows_of(&EVENTS, params![after, to, SLICE_ROWS, door], &mut |row, seq| {
            each(event_row(row, seq).map_err(|error| (seq, error.to_string())));
            Ok(())
        })
    }

    /// Checks the links together; if a row among them is unreadable, one at a time.
    pub(super) fn record_links(
        &self,
        check: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), D::Error> {
        if self.links_of(check, seqs, checked, wrong)? {
            return Ok(());
        }
        for seq in seqs {
            if !self.links_of(check, &[*seq], checked, wrong)? {
                checked.undecided += 1;
            }
        }
        Ok(())
    }

    /// Returns `false`, without reporting anything, if a row is unreadable.
    fn links_of(
        &self,
        check: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<bool, D::Error> {
        let (mut tried, mut mismatches) = (checked.clone(), Mismatches::new());
        let mut note = |at, message| mismatches.push((at, message));
        let is_readable = self.db.snapshot(|| {
            let tables = &mut RecordTables::new(&self.db);
            is_readable::<D>(check.links(tables, seqs, &mut tried, &mut note))
        })?;
        if is_readable {
            *checked = tried;
            mismatches.into_iter().for_each(|(at, message)| wrong(at, message));
        }
        Ok(is_readable)
    }

    pub(super) fn record_merges(
        &self,
        check: RecordCheck<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<Option<String>, D::Error> {
        self.db.snapshot(|| {
            let rows = self.db.query(&RECORDS, params![check.door, after, RECORDS_MAX])?;
            let mut last = None;
            for row in &rows {
                last = Some(self.record_merge(check, row, checked, wrong)?);
            }
            let is_full = rows.len() as i64 == RECORDS_MAX;
            Ok(last.filter(|last| is_full && **last > *after))
        })
    }

    /// Checks one record and returns its id.
    fn record_merge(
        &self,
        check: RecordCheck<'_>,
        row: &D::Row,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<String, D::Error> {
        let id = row.text_lossy("record_id")?;
        let (mut tried, mut mismatches) = (checked.clone(), Mismatches::new());
        let mut note = |at, message| mismatches.push((at, message));
        let merged = self.record(row).map_err(RecordError::Store).and_then(|(stored, members)| {
            let tables = &mut RecordTables::new(&self.db);
            check.record(tables, &stored, &members, &mut tried, &mut note)
        });
        if is_readable::<D>(merged)? {
            *checked = tried;
            mismatches.into_iter().for_each(|(at, message)| wrong(at, message));
        } else {
            checked.unmerged += 1;
            wrong(None, format!("the record {id} or an event of it is unreadable"));
        }
        Ok(id)
    }

    fn record(&self, row: &D::Row) -> Result<(StoredRecord, Vec<Seq>), D::Error> {
        let record_id = row.text("record_id")?;
        let fields =
            fields(&self.db, &[record_id.as_str()], None)?.remove(&record_id).unwrap_or_default();
        let fields = fields.into_iter().map(|field| StoredRecordField {
            name: field.name,
            value: field.value,
            source: field.source,
            event: field.event,
        });
        let members = self.db.query(&RECORD_EVENTS, params![&record_id])?;
        let members = members.iter().map(|row| row.seq("seq")).collect::<Result<_, D::Error>>()?;
        let stored = StoredRecord {
            group: row.text("grp")?,
            number: row.int("number")?,
            date: row.text_opt("date")?,
            time: row.text_opt("time")?,
            event_time: row.int_opt("event_time")?,
            state: row.text("state")?,
            fingerprints: row.text("fingerprints")?,
            fields: fields.collect(),
            record_id,
        };
        Ok((stored, members))
    }
}

fn event_row<E>(row: &dyn Columns<Error = E>, seq: Seq) -> Result<EventRow, E>
where
    E: From<InvalidValue>,
{
    Ok(EventRow {
        seq,
        source: row.text("source")?,
        group: row.text("grp")?,
        number: row.int_opt("number")?,
        event_time: row.int_opt("event_time")?,
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
        has_older_fields: row.flag("has_older_fields")?,
        facts: row.text_opt("facts")?,
        body: row.bytes_opt("body")?,
    })
}

/// Whether every row was readable; any other failure ends the check.
fn is_readable<D: VerifyDb>(done: Result<(), RecordError<D::Error>>) -> Result<bool, D::Error> {
    match done {
        Ok(()) => Ok(true),
        Err(RecordError::Store(error)) if !D::is_of_a_row(&error) => Err(error),
        Err(_) => Ok(false),
    }
}
