//! Rows of a ledger to be verified, read beside gates that may be running: in slices, each in a short
//! transaction, so that no old snapshot is held for long.

mod records;
mod rows;

use std::collections::BTreeMap;

use admit_core::{Key, Seq};

use crate::common::records::{MismatchSink, RecordCheck};
use crate::db::{Columns, Param, Statement, params, statements};
use crate::tables::inbox;
use crate::tables::record::RowTables;
use crate::verify::{
    AdmissionRow, DisagreementSink, DocumentFile, EachAdmission, EachInboxPresence, EachKey,
    EachSighting, InboxPresence, ProjectedDocument, RecordsChecked, SLICE_ROWS, Slice, Structure,
    UnreadableDocument, VerifyError, VerifyRows,
};
use crate::verify_inbox::EachInboxRow;
use crate::verify_laws::{EachBreach, Law};
use crate::verify_records::EventRowSink;
use rows::{AdmissionColumns, SightingColumns, document, inbox_record};

statements! {
    each ADMISSIONS "verify_admissions";
    shared DOCUMENTS "verify_documents";
    shared FILES "verify_files";
    each IN_INBOX "verify_in_inbox";
    shared INBOX "verify_inbox";
    each INBOX_ROWS "verify_inbox_rows";
    shared LAW_AMBIGUOUS "verify_law_ambiguous";
    each LAW_CLOSURES "verify_law_closures";
    shared LAW_EFFECTS "verify_law_effects";
    shared LAW_RECORDS "verify_law_records";
    shared LAW_RECORD_ROWS "verify_law_record_rows";
    each LAW_RUNS "verify_law_runs";
    each LAW_SCENARIOS "verify_law_scenarios";
    shared RECONCILED "verify_reconciled";
    shared SCENARIO_RUNS "verify_scenario_runs";
    shared SIGHTINGS "verify_sightings";
}

/// What the databases verify differently: their own structure, and how they store the claims of keys.
pub(crate) trait VerifyDb: RowTables {
    /// Lets the database check its own structure.
    fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure, Self::Error>;

    /// Reads a slice of the claims; see [`VerifyRows::keys`].
    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Reads claims that are logged and not in the index yet; a ledger may have none.
    fn logged_keys(
        &self,
        _slice: Slice,
        _each: &mut EachKey<'_>,
    ) -> Result<Option<Seq>, Self::Error> {
        Ok(None)
    }

    /// Returns the seq that claimed the key of an admission, and the key that is logged for its seq.
    fn claim_of(
        &self,
        row: &dyn Columns<Error = Self::Error>,
        key: Option<&Key>,
    ) -> Result<(Option<Seq>, Option<Key>), Self::Error>;

    /// Whether there is an inbox: not before a gate of a version that has one.
    fn has_inbox(&self) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// Whether an error concerns the content of one row; other rows can be verified.
    fn is_of_a_row(_error: &Self::Error) -> bool {
        false
    }

    /// Runs a query that may take long.
    fn unhurried<T>(
        &self,
        query: impl FnOnce() -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error> {
        query()
    }
}

/// The rows of a ledger.
pub(crate) struct SqlRows<D> {
    pub(crate) db: D,
}

/// Receives each row with its seq.
type EachRow<'f, E> = dyn FnMut(&dyn Columns<Error = E>, Seq) -> Result<(), E> + 'f;

impl<D: VerifyDb> SqlRows<D> {
    /// Reads one slice of seqs. Returns the last seq if there may be more.
    fn slice(
        &self,
        statement: &'static Statement,
        (after, to): Slice,
        each: &mut EachRow<'_, D::Error>,
    ) -> Result<Option<Seq>, D::Error> {
        self.rows_of(statement, params![after, to, SLICE_ROWS], each)
    }

    /// Reads a slice of rows that have a seq. Returns the last seq if there may be more.
    fn rows_of(
        &self,
        statement: &'static Statement,
        params: &[Param<'_>],
        each: &mut EachRow<'_, D::Error>,
    ) -> Result<Option<Seq>, D::Error> {
        let (mut read, mut last) = (0, None);
        self.db.for_each(statement, params, &mut |row| {
            let seq = row.seq("seq")?;
            (read, last) = (read + 1, Some(seq));
            each(row, seq)
        })?;
        Ok(last.filter(|_| read == SLICE_ROWS))
    }

    /// Returns a text of each row, with what is invalid in it replaced.
    fn texts<T>(
        &self,
        statement: &'static Statement,
        read: impl Fn(&D::Row) -> Result<T, D::Error>,
    ) -> Result<Vec<T>, VerifyError> {
        let rows = self.db.query(statement, &[]).map_err(failed)?;
        rows.iter().map(read).collect::<Result<_, _>>().map_err(failed)
    }
}

/// The ledger cannot be read any further.
fn failed<E: std::error::Error + Send + Sync + 'static>(error: E) -> VerifyError {
    VerifyError(Box::new(error))
}

impl<D: VerifyDb> VerifyRows for SqlRows<D> {
    fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure, VerifyError> {
        self.db.structure(found).map_err(failed)
    }

    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        let last = self.slice(&ADMISSIONS, slice, &mut |row, seq| {
            let read = AdmissionColumns::read(row).and_then(|columns| {
                let (claimed_by, logged_key) = self.db.claim_of(row, columns.key.as_ref())?;
                Ok((columns, claimed_by, logged_key))
            });
            match read {
                Ok((columns, claimed_by, logged_key)) => {
                    let row = columns.admission(seq);
                    each(Ok(AdmissionRow { claimed_by, logged_key, ..row }));
                }
                Err(error) => each(Err((seq, error.to_string()))),
            }
            Ok(())
        });
        last.map_err(failed)
    }

    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, VerifyError> {
        self.db.keys(after, each).map_err(failed)
    }

    fn logged_keys(
        &self,
        slice: Slice,
        each: &mut EachKey<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.db.logged_keys(slice, each).map_err(failed)
    }

    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        let last = self.slice(&SIGHTINGS, slice, &mut |row, seq| {
            match SightingColumns::read(row) {
                Ok(columns) => each(Ok(columns.sighting(seq))),
                Err(error) => each(Err((seq, error.to_string()))),
            }
            Ok(())
        });
        last.map_err(failed)
    }

    fn inbox(
        &self,
        slice: Slice,
        each: &mut EachInboxPresence<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        if !self.db.has_inbox().map_err(failed)? {
            return Ok(None);
        }
        self.inbox_presence(slice, each).map_err(failed)
    }

    fn inbox_rows(
        &self,
        after: i64,
        each: &mut EachInboxRow<'_>,
    ) -> Result<Option<i64>, VerifyError> {
        if !self.db.has_inbox().map_err(failed)? {
            return Ok(None);
        }
        let found = self.db.query(&INBOX_ROWS, params![after, SLICE_ROWS]).map_err(failed)?;
        let mut last = None;
        for row in &found {
            let place = row.int("seq").map_err(failed)?;
            let seq = Seq(u64::try_from(place).unwrap_or(0));
            each(inbox_record(row).map_err(|error| (seq, error.to_string())));
            last = Some(place);
        }
        Ok(last.filter(|_| found.len() as i64 == SLICE_ROWS))
    }

    fn files(&self) -> Result<Vec<DocumentFile>, VerifyError> {
        let mut files = Vec::new();
        let read = self.db.for_each(&FILES, &[], &mut |row| {
            let file = || -> Result<_, D::Error> {
                let (kind, path) = (row.text("kind")?, row.text("path")?);
                Ok(DocumentFile { kind, path, text: row.text("text")? })
            };
            match file() {
                Ok(file) => files.push(file),
                // A repair must not write it.
                Err(error) if D::is_of_a_row(&error) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        });
        read.map_err(failed)?;
        Ok(files)
    }

    fn scenario_runs(&self) -> Result<Vec<String>, VerifyError> {
        self.texts(&SCENARIO_RUNS, |row| row.text_lossy("run_id"))
    }

    fn reconciled(&self) -> Result<Vec<Seq>, VerifyError> {
        self.texts(&RECONCILED, |row| row.seq("seq"))
    }

    fn breaches(
        &self,
        law: Law,
        (after, to): Slice,
        each: &mut EachBreach<'_>,
    ) -> Result<(), VerifyError> {
        let statement: &'static Statement = match law {
            Law::Effects => &LAW_EFFECTS,
            Law::Ambiguous => &LAW_AMBIGUOUS,
            Law::Runs => &LAW_RUNS,
            Law::Closures => &LAW_CLOSURES,
            Law::Scenarios => &LAW_SCENARIOS,
            Law::Records => &LAW_RECORDS,
            Law::RecordRows => &LAW_RECORD_ROWS,
        };
        let of_slice = [Param::from(after), Param::from(to)];
        let params = if law.is_sliced() { &of_slice[..] } else { &[] };
        let found = self.db.unhurried(|| self.db.query(statement, params)).map_err(failed)?;
        for row in &found {
            let seq = row.int_opt("seq").map_err(failed)?.and_then(|seq| u64::try_from(seq).ok());
            each(seq.map(Seq), row.text_lossy("what").map_err(failed)?);
        }
        Ok(())
    }

    fn event_rows(
        &self,
        door: &str,
        slice: Slice,
        each: &mut EventRowSink<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.record_events(door, slice, each).map_err(failed)
    }

    fn links(
        &self,
        checking: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), VerifyError> {
        self.record_links(checking, seqs, checked, wrong).map_err(failed)
    }

    fn records(
        &self,
        checking: RecordCheck<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<Option<String>, VerifyError> {
        self.record_merges(checking, after, checked, wrong).map_err(failed)
    }

    fn documents(
        &self,
        after: &(String, String),
    ) -> Result<Vec<Result<ProjectedDocument, UnreadableDocument>>, VerifyError> {
        let (projection, entity) = after;
        let page = self.db.query(&DOCUMENTS, params![projection, entity, SLICE_ROWS]);
        let page = page.map_err(failed)?;
        page.iter().map(document).collect::<Result<_, _>>().map_err(failed)
    }
}

impl<D: VerifyDb> SqlRows<D> {
    fn inbox_presence(
        &self,
        slice: Slice,
        each: &mut EachInboxPresence<'_>,
    ) -> Result<Option<Seq>, D::Error> {
        let mut events: Vec<(Seq, Result<Event, String>)> = Vec::new();
        let last = self.slice(&INBOX, slice, &mut |row, seq| {
            let event = || -> Result<Event, D::Error> {
                Ok((inbox::event_id(&row.text("facts")?), row.bytes_opt("body")?))
            };
            events.push((seq, event().map_err(|error| error.to_string())));
            Ok(())
        })?;
        let ids = events.iter().filter_map(|(_, event)| event.as_ref().ok()?.0.as_deref());
        let ids: Vec<&str> = ids.collect();
        let mut payloads: BTreeMap<String, Option<String>> = BTreeMap::new();
        self.db.for_each(&IN_INBOX, params![&ids[..]], &mut |row| {
            // A payload that is no text differs from every body.
            let payload = match row.text_opt("payload") {
                Ok(payload) => payload,
                Err(_) => Some(row.text_lossy("payload")?),
            };
            payloads.insert(row.text_lossy("event_id")?, payload);
            Ok(())
        })?;
        for (seq, event) in events {
            each(event.map_err(|message| (seq, message)).map(|(id, body)| {
                let payload = id.and_then(|id| payloads.get(&id));
                let differs = match (payload, body) {
                    (Some(Some(payload)), Some(body)) => {
                        String::from_utf8_lossy(&body) != payload.as_str()
                    }
                    _ => false,
                };
                InboxPresence { seq, has_row: payload.is_some(), differs }
            }));
        }
        Ok(last)
    }
}

/// The `event_id` and the raw body of an event of the inbox.
type Event = (Option<String>, Option<Vec<u8>>);
