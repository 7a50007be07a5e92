//! Rows of a SQLite ledger to be verified, read beside a gate that may be running: every slice is a short
//! transaction, so that the WAL can be reset in between.

use std::path::Path;

use admit_core::{Digest, Key, Millis, Seq};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::fault::is_of_a_row;
use super::keys::{check, find_merged};
use super::{OpenError, open, queries, verify_records};
use crate::common::records::{MismatchSink, RecordCheck};
use crate::verify::{
    AdmissionRow, Disagreement, DisagreementSink, DocumentFile, EachAdmission, EachInboxPresence,
    EachKey, EachSighting, InboxPresence, KeyRow, ProjectedDocument, RecordsChecked, SLICE_ROWS,
    SightingRow, Slice, StoredAdmission, Structure, UnreadableDocument, Verifier, VerifyCounters,
    VerifyError, VerifyRows,
};
use crate::verify_inbox::{EachInboxRow, InboxClaim, InboxOrigin, InboxRecord};
use crate::verify_laws::{EachBreach, Law};
use crate::verify_records::EventRowSink;

impl From<rusqlite::Error> for VerifyError {
    fn from(error: rusqlite::Error) -> Self {
        Self(Box::new(error))
    }
}

/// Opens the ledger in the data folder `dir` for verification. `forgets` is whether retention has removed
/// anything from it.
pub fn verifier(dir: &Path, forgets: bool) -> Result<Verifier, OpenError> {
    let (path, conn) = open::open_folder_read_only(dir)?;
    let fail = |source| OpenError::from_sqlite(&path, source);
    // One transaction, so that the counters match the last seq.
    let counters = {
        let tx = conn.unchecked_transaction().map_err(fail)?;
        let value = |name: &str| {
            let found = tx.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
            Ok::<u64, rusqlite::Error>(found.optional()?.unwrap_or(0))
        };
        let read = || {
            Ok(VerifyCounters {
                last: Seq(value("last_seq")?),
                admissions: value("admissions")?,
                sightings: value("sightings")?,
            })
        };
        read().map_err(fail)?
    };
    Ok(Verifier::new(Box::new(SqliteRows { conn }), counters, forgets))
}

struct SqliteRows {
    conn: Connection,
}

impl VerifyRows for SqliteRows {
    /// Runs SQLite's integrity check, table by table.
    fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure, VerifyError> {
        let tables: Vec<String> = self
            .conn
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for table in tables {
            let mut check = self.conn.prepare(&format!("PRAGMA integrity_check(\"{table}\")"))?;
            let mut rows = check.query([])?;
            while let Some(row) = rows.next()? {
                let problem: String = row.get(0)?;
                if problem != "ok" {
                    let message = format!("table {table}: {problem}");
                    found(Disagreement { at: None, check: "structure", message });
                }
            }
        }
        Ok(Structure::default())
    }

    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.slice(queries::VERIFY_ADMISSIONS, slice, |row, seq| {
            let row = admission(row, seq).and_then(|admission| {
                let claimed_by = admission.kept.key.map(|key| find_merged(&self.conn, &key));
                Ok(AdmissionRow { claimed_by: claimed_by.transpose()?.flatten(), ..admission })
            });
            each(row.map_err(|error| (seq, error.to_string())));
            Ok(())
        })
    }

    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, VerifyError> {
        Ok(check::merged(&self.conn, after, SLICE_ROWS, &mut |found| self.claim(&found, each))?)
    }

    fn logged_keys(
        &self,
        slice: Slice,
        each: &mut EachKey<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        let logged = check::LoggedClaims::load(&self.conn)?;
        self.slice(queries::VERIFY_KEY_LOG, slice, |row, _| {
            logged.claims(row, &mut |found| self.claim(&found, each))
        })
    }

    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.slice(queries::VERIFY_SIGHTINGS, slice, |row, seq| {
            each(sighting(row, seq).map_err(|error| (seq, error.to_string())));
            Ok(())
        })
    }

    fn inbox(
        &self,
        slice: Slice,
        each: &mut EachInboxPresence<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        if !self.has_inbox()? {
            return Ok(None);
        }
        self.slice(queries::VERIFY_INBOX, slice, |row, seq| {
            let read = || Ok((row.get("has_row")?, row.get("differs")?));
            let read = read().map(|(has_row, differs)| InboxPresence { seq, has_row, differs });
            each(read.map_err(|error: rusqlite::Error| (seq, error.to_string())));
            Ok(())
        })
    }

    fn inbox_rows(
        &self,
        after: i64,
        each: &mut EachInboxRow<'_>,
    ) -> Result<Option<i64>, VerifyError> {
        if !self.has_inbox()? {
            return Ok(None);
        }
        let mut query = self.conn.prepare_cached(queries::VERIFY_INBOX_ROWS)?;
        let mut rows = query.query((after, SLICE_ROWS))?;
        let (mut read, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            let place: i64 = row.get("seq")?;
            let seq = Seq(u64::try_from(place).unwrap_or(0));
            each(inbox_record(row).map_err(|error| (seq, error.to_string())));
            (read, last) = (read + 1, Some(place));
        }
        Ok(last.filter(|_| read == SLICE_ROWS))
    }

    fn files(&self) -> Result<Vec<DocumentFile>, VerifyError> {
        let mut query = self.conn.prepare(queries::VERIFY_FILES)?;
        let mut rows = query.query([])?;
        let mut files = Vec::new();
        while let Some(row) = rows.next()? {
            let read =
                || Ok(DocumentFile { kind: row.get(0)?, path: row.get(2)?, text: row.get(3)? });
            match read() {
                Ok(file) => files.push(file),
                // A repair must not write it.
                Err(error) if is_of_a_row(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(files)
    }

    fn scenario_runs(&self) -> Result<Vec<String>, VerifyError> {
        let mut query = self.conn.prepare(queries::VERIFY_SCENARIO_RUNS)?;
        let runs = query.query_map([], |row| lossy(row, 0))?;
        Ok(runs.collect::<rusqlite::Result<_>>()?)
    }

    fn reconciled(&self) -> Result<Vec<Seq>, VerifyError> {
        let mut query = self.conn.prepare(queries::VERIFY_RECONCILED)?;
        let seqs = query.query_map([], |row| row.get(0).map(Seq))?;
        Ok(seqs.collect::<rusqlite::Result<_>>()?)
    }

    fn breaches(
        &self,
        law: Law,
        (after, to): Slice,
        each: &mut EachBreach<'_>,
    ) -> Result<(), VerifyError> {
        let query = match law {
            Law::Effects => queries::VERIFY_LAW_EFFECTS,
            Law::Ambiguous => queries::VERIFY_LAW_AMBIGUOUS,
            Law::Runs => queries::VERIFY_LAW_RUNS,
            Law::Closures => queries::VERIFY_LAW_CLOSURES,
            Law::Scenarios => queries::VERIFY_LAW_SCENARIOS,
            Law::Records => queries::VERIFY_LAW_RECORDS,
            Law::RecordRows => queries::VERIFY_LAW_RECORD_ROWS,
        };
        let mut query = self.conn.prepare_cached(query)?;
        let mut rows = match law.is_sliced() {
            true => query.query((after.0, to.0))?,
            false => query.query([])?,
        };
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, Option<i64>>(0)?.and_then(|seq| u64::try_from(seq).ok());
            each(seq.map(Seq), lossy(row, 1)?);
        }
        Ok(())
    }

    fn event_rows(
        &self,
        door: &str,
        slice: Slice,
        each: &mut EventRowSink<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        verify_records::event_rows(&self.conn, door, slice, each)
    }

    fn links(
        &self,
        checking: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), VerifyError> {
        verify_records::links(&self.conn, checking, seqs, checked, wrong)
    }

    fn records(
        &self,
        checking: RecordCheck<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<Option<String>, VerifyError> {
        verify_records::records(&self.conn, checking, after, checked, wrong)
    }

    fn documents(
        &self,
        after: &(String, String),
    ) -> Result<Vec<Result<ProjectedDocument, UnreadableDocument>>, VerifyError> {
        let mut query = self.conn.prepare_cached(queries::VERIFY_DOCUMENTS)?;
        let page = query.query_map((&after.0, &after.1, SLICE_ROWS), |row| {
            let seq = Seq(row.get(2)?);
            let read = || {
                let (projection, entity, text) = (row.get(0)?, row.get(1)?, row.get(3)?);
                Ok(ProjectedDocument { projection, entity, seq, text })
            };
            let unreadable = |error: rusqlite::Error| {
                let (projection, entity) = (lossy(row, 0)?, lossy(row, 1)?);
                let why = error.to_string();
                Ok(UnreadableDocument { projection, entity, seq, why })
            };
            match read() {
                Ok(document) => Ok(Ok(document)),
                Err(error) => unreadable(error).map(Err),
            }
        })?;
        Ok(page.collect::<rusqlite::Result<_>>()?)
    }
}

impl SqliteRows {
    /// A ledger that no gate of this version has opened yet has no inbox.
    fn has_inbox(&self) -> rusqlite::Result<bool> {
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = 'event_inbox'";
        self.conn.prepare(exists)?.exists([])
    }

    /// Reads a claim, with the admission it refers to.
    fn claim(
        &self,
        claim: &check::CheckedClaim<'_>,
        each: &mut EachKey<'_>,
    ) -> rusqlite::Result<()> {
        let mut named = self.conn.prepare_cached(queries::VERIFY_CLAIMED)?;
        let mut rows = named.query([claim.seq.0])?;
        let (is_its_key, verdict) = match rows.next()? {
            Some(row) => {
                // The check of the admissions reports text that is not UTF-8.
                let verdict = row.get_ref("verdict")?.as_str_or_null().unwrap_or(Some(""));
                (bytes(row, "key")? == Some(claim.key), verdict)
            }
            None => (false, None),
        };
        let check::CheckedClaim { seq, is_in_place, .. } = *claim;
        each(KeyRow { seq, is_its_key, is_in_place, verdict });
        Ok(())
    }

    /// Reads one slice of seqs.
    fn slice(
        &self,
        query: &str,
        (after, to): Slice,
        mut each: impl FnMut(&Row<'_>, Seq) -> rusqlite::Result<()>,
    ) -> Result<Option<Seq>, VerifyError> {
        let mut query = self.conn.prepare_cached(query)?;
        let mut rows = query.query((after.0, to.0, SLICE_ROWS))?;
        let (mut read, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            read += 1;
            let seq = Seq(row.get("seq")?);
            each(row, seq)?;
            last = Some(seq);
        }
        Ok(last.filter(|_| read == SLICE_ROWS))
    }
}

fn admission<'r>(row: &'r Row<'_>, seq: Seq) -> rusqlite::Result<AdmissionRow<'r>> {
    let key = |name: &str| row.get::<_, Option<[u8; 32]>>(name).map(|it| it.map(Key::from_bytes));
    let seq_of = |name: &str| row.get::<_, Option<u64>>(name).map(|it| it.map(Seq));
    Ok(AdmissionRow {
        kept: StoredAdmission {
            seq,
            door: row.get_ref("door")?.as_str()?,
            principal: row.get_ref("principal")?.as_str()?,
            verdict: row.get_ref("verdict")?.as_str()?,
            key: key("key")?,
            digest: Digest::from_bytes(row.get("digest")?),
            received_at: Millis(row.get("received_at")?),
            attempt: row.get("attempt")?,
            facts: row.get_ref("facts")?.as_str()?,
            body: bytes(row, "body")?,
        },
        first: seq_of("first")?,
        first_key: key("first_key")?,
        first_verdict: row.get_ref("first_verdict")?.as_str_or_null()?,
        code: row.get_ref("code")?.as_str_or_null()?,
        claimed_by: None,
        logged_key: key("noted_key")?,
    })
}

fn sighting<'r>(row: &'r Row<'_>, seq: Seq) -> rusqlite::Result<SightingRow<'r>> {
    Ok(SightingRow {
        seq,
        admission: Seq(row.get("admission")?),
        verdict: row.get_ref("verdict")?.as_str_or_null()?,
        other: row.get::<_, Option<u64>>("other")?.map(Seq),
        other_verdict: row.get_ref("other_verdict")?.as_str_or_null()?,
        other_first: row.get::<_, Option<u64>>("other_first")?.map(Seq),
        has_twin: row.get::<_, Option<i64>>("twice")?.is_some(),
    })
}

fn inbox_record(row: &Row<'_>) -> rusqlite::Result<InboxRecord> {
    let is_ours: Option<bool> = row.get("is_ours")?;
    let admission = match is_ours {
        Some(true) => Some(InboxOrigin {
            event_id: row.get("own_id")?,
            received_at: Millis(row.get("admitted_at")?),
        }),
        _ => None,
    };
    let claim = match row.get("is_claimed")? {
        true => Some(InboxClaim {
            is_held: row.get("is_held")?,
            expires_at: Millis(row.get("expires_at")?),
        }),
        false => None,
    };
    let finished = match row.get::<_, Option<String>>("finished")? {
        Some(word) => Some((word, Millis(row.get("finished_at")?))),
        None => None,
    };
    Ok(InboxRecord {
        place: row.get("seq")?,
        event_id: row.get("event_id")?,
        status: row.get("status")?,
        received_at: row.get("received_at")?,
        last_updated_at: row.get("last_updated_at")?,
        admission,
        claim,
        finished,
        was_claimed: row.get("was_out")?,
    })
}

/// A cell as text, with invalid text replaced.
pub(super) fn lossy(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => String::new(),
    })
}

fn bytes<'r>(row: &'r Row<'_>, name: &str) -> rusqlite::Result<Option<&'r [u8]>> {
    Ok(row.get_ref(name)?.as_blob_or_null()?)
}
