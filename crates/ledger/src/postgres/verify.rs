//! Rows of a PostgreSQL ledger to be verified, read beside gates that may be running: every slice is one
//! statement, so that no old snapshot is held for long.

mod indexes;
mod records;

use std::collections::BTreeMap;
use std::time::Duration;

use admit_core::{Digest, Key, Seq};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Param, Result, big};
use super::connect::Connector;
use super::migrate::Schema;
use super::{OpenError, Options, connect_once, nul_escape, sql};
use crate::common::records::{MismatchSink, RecordCheck};
use crate::tables::inbox::event_id;
use crate::verify::{
    AdmissionRow, Counters, Disagreement, DisagreementSink, DocumentFile, EachAdmission,
    EachInboxPresence, EachKey, EachSighting, InboxPresence, KeyRow, ProjectedDocument,
    RecordsChecked, SLICE_ROWS, SightingRow, Slice, StoredAdmission, Structure, UnreadableDocument,
    Verifier, VerifyError, VerifyRows,
};
use crate::verify_inbox::{EachInboxRow, InboxClaim, InboxOrigin, InboxRecord};
use crate::verify_laws::{EachBreach, Law};
use crate::verify_records::EventRowSink;

/// Timeout of the query of a law.
const LAW_MAX: Duration = Duration::from_secs(3_600);

impl From<Error> for VerifyError {
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

/// Opens the ledger for verification. `forgets` is whether retention has removed anything from it.
pub fn verifier(options: &Options, forgets: bool) -> std::result::Result<Verifier, OpenError> {
    let (conn, place) = connect_once(&Connector::new(options)?)?;
    Schema { place: &place, name: &options.schema }.check(&conn)?;
    let counters = || -> Result<Counters> {
        let row = conn.query_one(sql!("verify_counters"), &[])?;
        Ok(Counters {
            last: row.seq("last_seq")?,
            admissions: row.num("admissions")?,
            sightings: row.num("sightings")?,
        })
    };
    let fail = |error: Error| OpenError::Database { place: place.clone(), source: error.into() };
    let counters = counters().map_err(fail)?;
    Ok(Verifier::new(Box::new(PostgresRows { conn }), counters, forgets))
}

struct PostgresRows {
    conn: Conn,
}

impl VerifyRows for PostgresRows {
    /// Reports invalid indexes and constraints, and checks every index if the extension `amcheck` can be
    /// used.
    fn structure(
        &self,
        found: &mut DisagreementSink<'_>,
    ) -> std::result::Result<Structure, VerifyError> {
        let mut report = |name: &str, problem: &str| {
            let message = format!("{name}: {problem}");
            found(Disagreement { at: None, check: "structure", message });
        };
        for row in self.conn.query(sql!("verify_indexes"), &[])? {
            report(&row.text("name")?, &row.text("problem")?);
        }
        Ok(indexes::check(&self.conn, &mut report)?)
    }

    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        self.slice(sql!("verify_admissions"), slice, |row, seq| {
            admission(row, seq, each);
            Ok(())
        })
    }

    fn keys(
        &self,
        after: &[u8],
        each: &mut EachKey<'_>,
    ) -> std::result::Result<Option<Vec<u8>>, VerifyError> {
        let found = self.conn.query(sql!("verify_keys"), &[&after, &SLICE_ROWS])?;
        for row in &found {
            let verdict = row.text_opt("verdict")?;
            let is_its_key = row.val::<Vec<u8>>("key")?
                == row.val::<Option<Vec<u8>>>("admission_key")?.unwrap_or_default();
            let (seq, verdict) = (row.seq("seq")?, verdict.as_deref());
            each(KeyRow { seq, is_its_key, is_in_place: true, verdict });
        }
        let last = found.last().filter(|_| found.len() as i64 == SLICE_ROWS);
        Ok(last.map(|row| row.val("key")).transpose()?)
    }

    fn logged_keys(
        &self,
        _: Slice,
        _: &mut EachKey<'_>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        Ok(None)
    }

    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        self.slice(sql!("verify_sightings"), slice, |row, seq| {
            let (verdict, other) = (row.text_opt("verdict")?, row.text_opt("other_verdict")?);
            each(Ok(SightingRow {
                seq,
                admission: row.seq("admission")?,
                verdict: verdict.as_deref(),
                other: row.seq_opt("other")?,
                other_verdict: other.as_deref(),
                other_first: row.seq_opt("other_first")?,
                has_twin: row.val("has_twin")?,
            }));
            Ok(())
        })
    }

    fn inbox(
        &self,
        slice: Slice,
        each: &mut EachInboxPresence<'_>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        let mut events: Vec<(Seq, Option<String>, Option<Vec<u8>>)> = Vec::new();
        let last = self.slice(sql!("verify_inbox"), slice, |row, seq| {
            events.push((seq, event_id(&row.text("facts")?), row.val("bytes")?));
            Ok(())
        })?;
        let ids: Vec<_> =
            events.iter().filter_map(|(_, id, _)| Some(nul_escape::escape(id.as_ref()?))).collect();
        let mut payloads: BTreeMap<String, String> = BTreeMap::new();
        for row in self.conn.query(sql!("verify_in_inbox"), &[&ids])? {
            payloads.insert(row.text("event_id")?, row.text("payload")?);
        }
        for (seq, id, body) in events {
            let payload = id.and_then(|id| payloads.get(&id));
            let differs = match (payload, body) {
                (Some(payload), Some(body)) => String::from_utf8_lossy(&body) != payload.as_str(),
                _ => false,
            };
            each(Ok(InboxPresence { seq, has_row: payload.is_some(), differs }));
        }
        Ok(last)
    }

    fn inbox_rows(
        &self,
        after: i64,
        each: &mut EachInboxRow<'_>,
    ) -> std::result::Result<Option<i64>, VerifyError> {
        let found = self.conn.query(sql!("verify_inbox_rows"), &[&after, &SLICE_ROWS])?;
        let mut last = None;
        for row in &found {
            let place: i64 = row.val("seq")?;
            let seq = Seq(u64::try_from(place).unwrap_or(0));
            each(inbox_record(row).map_err(|error| (seq, error.to_string())));
            last = Some(place);
        }
        Ok(last.filter(|_| found.len() as i64 == SLICE_ROWS))
    }

    fn files(&self) -> std::result::Result<Vec<DocumentFile>, VerifyError> {
        let found = self.conn.query(sql!("verify_files"), &[])?;
        let file = |row: &Row| {
            let (kind, path, text) = (row.text("kind")?, row.text("path")?, row.text("text")?);
            Ok(DocumentFile { kind, path, text })
        };
        Ok(found.iter().map(file).collect::<Result<_>>()?)
    }

    fn scenario_runs(&self) -> std::result::Result<Vec<String>, VerifyError> {
        let found = self.conn.query(sql!("verify_scenario_runs"), &[])?;
        Ok(found.iter().map(|row| row.text("run_id")).collect::<Result<_>>()?)
    }

    fn reconciled(&self) -> std::result::Result<Vec<Seq>, VerifyError> {
        let found = self.conn.query(sql!("verify_reconciled"), &[])?;
        Ok(found.iter().map(|row| row.seq("seq")).collect::<Result<_>>()?)
    }

    fn breaches(
        &self,
        law: Law,
        (after, to): Slice,
        each: &mut EachBreach<'_>,
    ) -> std::result::Result<(), VerifyError> {
        let query = match law {
            Law::Effects => sql!("verify_law_effects"),
            Law::Ambiguous => sql!("verify_law_ambiguous"),
            Law::Runs => sql!("verify_law_runs"),
            Law::Closures => sql!("verify_law_closures"),
            Law::Scenarios => sql!("verify_law_scenarios"),
            Law::Records => sql!("verify_law_records"),
            Law::RecordRows => sql!("verify_law_record_rows"),
        };
        let (after, to) = (big(after.0), big(to.0));
        let params: &[Param<'_>] = if law.is_sliced() { &[&after, &to] } else { &[] };
        self.conn.batch("BEGIN READ ONLY; SET LOCAL statement_timeout = 0")?;
        let found = self.conn.with_timeout(LAW_MAX, || self.conn.query(query, params));
        self.conn.batch("ROLLBACK")?;
        let found = found?;
        for row in &found {
            let seq = row.val::<Option<i64>>("seq")?.and_then(|seq| u64::try_from(seq).ok());
            each(seq.map(Seq), row.text_opt("what")?.unwrap_or_default());
        }
        Ok(())
    }

    fn event_rows(
        &self,
        door: &str,
        slice: Slice,
        each: &mut EventRowSink<'_>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        Ok(records::event_rows(&self.conn, door, slice, each)?)
    }

    fn links(
        &self,
        checking: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> std::result::Result<(), VerifyError> {
        records::links(&self.conn, checking, seqs, checked, wrong)
    }

    fn records(
        &self,
        checking: RecordCheck<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> std::result::Result<Option<String>, VerifyError> {
        records::records(&self.conn, checking, after, checked, wrong)
    }

    fn documents(
        &self,
        after: &(String, String),
    ) -> std::result::Result<
        Vec<std::result::Result<ProjectedDocument, UnreadableDocument>>,
        VerifyError,
    > {
        let (projection, entity) = (nul_escape::escape(&after.0), nul_escape::escape(&after.1));
        let page =
            self.conn.query(sql!("verify_documents"), &[&projection, &entity, &SLICE_ROWS])?;
        let document = |row: &Row| {
            Ok(ProjectedDocument {
                projection: row.text("projection")?,
                entity: row.text("entity")?,
                seq: row.seq("seq")?,
                text: row.text("text")?,
            })
        };
        // The database rejects invalid text, so every document can be read.
        let documents = page.iter().map(document).collect::<Result<Vec<_>>>()?;
        Ok(documents.into_iter().map(Ok).collect())
    }
}

fn inbox_record(row: &Row) -> Result<InboxRecord> {
    let admission = match row.val("is_ours")? {
        true => Some(InboxOrigin {
            event_id: event_id(&row.text("facts")?),
            received_at: row.millis("admitted_at")?,
        }),
        false => None,
    };
    let claim = match row.val("is_claimed")? {
        true => {
            Some(InboxClaim { is_held: row.val("is_held")?, expires_at: row.millis("expires_at")? })
        }
        false => None,
    };
    let finished = match row.text_opt("finished")? {
        Some(word) => Some((word, row.millis("finished_at")?)),
        None => None,
    };
    Ok(InboxRecord {
        place: row.val("seq")?,
        event_id: row.text("event_id")?,
        status: row.text("status")?,
        received_at: row.text("received_at")?,
        last_updated_at: row.text("last_updated_at")?,
        admission,
        claim,
        finished,
        was_claimed: row.val("was_out")?,
    })
}

impl PostgresRows {
    /// Reads one slice of seqs.
    fn slice(
        &self,
        query: &str,
        (after, to): Slice,
        mut each: impl FnMut(&Row, Seq) -> Result<()>,
    ) -> std::result::Result<Option<Seq>, VerifyError> {
        let found = self.conn.query(query, &[&big(after.0), &big(to.0), &SLICE_ROWS])?;
        let mut last = None;
        for row in &found {
            let seq = row.seq("seq")?;
            each(row, seq)?;
            last = Some(seq);
        }
        Ok(last.filter(|_| found.len() as i64 == SLICE_ROWS))
    }
}

/// Passes an admission, or why it cannot be read, to `each`.
fn admission(row: &Row, seq: Seq, each: &mut EachAdmission<'_>) {
    let read = || -> Result<_> {
        let texts = (row.text("door")?, row.text("principal")?, row.text("verdict")?);
        let more = (row.text("facts")?, row.text_opt("first_verdict")?, row.text_opt("code")?);
        Ok((texts, more, row.val::<Option<Vec<u8>>>("body")?))
    };
    let key = |name: &str| row.bytes32_opt(name).map(|bytes| bytes.map(Key::from_bytes));
    let (texts, more, body) = match read() {
        Ok(read) => read,
        Err(error) => return each(Err((seq, error.to_string()))),
    };
    let (door, principal, verdict) = &texts;
    let (facts, first_verdict, code) = &more;
    let made = || -> Result<AdmissionRow<'_>> {
        Ok(AdmissionRow {
            kept: StoredAdmission {
                seq,
                door,
                principal,
                verdict,
                key: key("key")?,
                digest: Digest::from_bytes(row.bytes32("digest")?),
                received_at: row.millis("received_at")?,
                attempt: row.small_opt("attempt")?,
                facts,
                body: body.as_deref(),
            },
            first: row.seq_opt("first")?,
            first_key: key("first_key")?,
            first_verdict: first_verdict.as_deref(),
            code: code.as_deref(),
            claimed_by: row.seq_opt("claimed_by")?,
            logged_key: None,
        })
    };
    each(made().map_err(|error| (seq, error.to_string())));
}
