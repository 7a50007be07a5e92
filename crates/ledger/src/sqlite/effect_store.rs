//! Effect store on SQLite: one statement per row.

use std::collections::HashMap;

use admit_core::effect::{Attribution, Effect, EffectState, StoredReply};
use admit_core::{Document, DocumentKind, IdRegistry, Millis, RunState, Seq, StoredDocument};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::queries;
use crate::db::Transaction;
use crate::rules::{
    Counters, DocumentSubject, HistoryLine, OpenQuarantine, RunDeltas, evidence_text,
};
use crate::tables::effect::{self, EffectDb, NeededRows, stored_effect};
use crate::tables::issued::{document_kind, stored_document};
use crate::tables::run;

impl EffectDb for Connection {
    type Store<'t> = SqliteEffectStore<'t>;

    fn decide<'t, T>(
        tx: &Transaction<'t, Self>,
        _: NeededRows,
        decision: impl Fn(&mut SqliteEffectStore<'t>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut store = SqliteEffectStore::new(tx.db, tx.epoch);
        let decided = decision(&mut store)?;
        store.finish()?;
        Ok(decided)
    }
}

/// The effect store of one transaction.
pub(crate) struct SqliteEffectStore<'c> {
    conn: &'c Connection,
    epoch: u64,
    runs: RunDeltas,
    counters: Counters,
    /// Cached run states.
    states: HashMap<String, Option<RunState>>,
}

impl<'c> SqliteEffectStore<'c> {
    pub(super) fn new(conn: &'c Connection, epoch: u64) -> Self {
        Self {
            conn,
            epoch,
            runs: RunDeltas::default(),
            counters: Counters::default(),
            states: HashMap::new(),
        }
    }

    /// Writes the counters of the whole transaction.
    pub(super) fn finish(&self) -> rusqlite::Result<()> {
        for value in self.counters.raised() {
            self.conn.prepare_cached(queries::META_MAX)?.execute(value)?;
        }
        for value in self.counters.added() {
            self.conn.prepare_cached(queries::META_ADD)?.execute(value)?;
        }
        let mut changes = self.runs.changes().peekable();
        if changes.peek().is_none() {
            return Ok(());
        }
        let mut add = self.conn.prepare_cached(queries::RUN_ADD)?;
        for (run, at, counts) in changes {
            add.execute(params![
                run,
                at.0,
                counts.deliveries,
                counts.in_flight,
                counts.ambiguous,
                counts.admit,
                counts.duplicate,
                counts.quarantine,
                counts.superseded,
                counts.released,
            ])?;
        }
        Ok(())
    }
}

impl IdRegistry for SqliteEffectStore<'_> {
    fn is_used_by_other(
        &self,
        kind: DocumentKind,
        run: Option<&str>,
        id: &str,
        identity: &str,
    ) -> bool {
        let run = run.unwrap_or_default();
        let other = self
            .conn
            .prepare_cached(queries::ISSUED_IDENTITY)
            .and_then(|mut other| other.exists((id, run, kind.as_str(), identity)));
        // A failed query fails the transaction at the next statement; until then, nothing is lost by taking the
        // longer id.
        other.unwrap_or(true)
    }
}

impl crate::rules::EffectStore for SqliteEffectStore<'_> {
    type Error = rusqlite::Error;

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn effect(&mut self, seq: Seq) -> rusqlite::Result<Option<Effect>> {
        self.conn
            .prepare_cached(effect::GET.sqlite())?
            .query_row([seq.0], |row| stored_effect(row))
            .optional()
    }

    fn put_effect(&mut self, effect: Effect, at: Millis) -> rusqlite::Result<()> {
        let Effect { seq, kind, plan, state, .. } = &effect;
        let plan = str::from_utf8(plan).expect("json is written as utf-8");
        let row = (seq.0, kind, plan, state.word(), state.attempt(), state.epoch(), at.0);
        self.conn.prepare_cached(queries::EFFECT_INSERT)?.execute(row)?;
        Ok(())
    }

    fn set_effect_state(
        &mut self,
        seq: Seq,
        state: &EffectState,
        reply: Option<&StoredReply>,
        at: Millis,
    ) -> rusqlite::Result<()> {
        self.conn.prepare_cached(queries::EFFECT_UPDATE)?.execute((
            seq.0,
            state.word(),
            state.attempt(),
            state.epoch(),
            state.evidence().map(evidence_text),
            at.0,
            reply.map(|reply| reply.status),
            reply.map(|reply| &reply.body[..]),
        ))?;
        Ok(())
    }

    fn add_history_line(&mut self, seq: Seq, line: &HistoryLine<'_>) -> rusqlite::Result<()> {
        self.conn.prepare_cached(queries::EFFECT_NOTE)?.execute((
            seq.0,
            line.at.0,
            line.attempt,
            line.what,
            self.epoch,
            line.by.map(|by| by.who.as_str()),
            line.by.and_then(|by| by.why.as_deref()),
            line.evidence.map(evidence_text),
        ))?;
        Ok(())
    }

    fn facts(&mut self, seq: Seq) -> rusqlite::Result<Option<Bytes>> {
        self.conn
            .prepare_cached(queries::FIRST)?
            .query_row([seq.0], |row| row.get::<_, String>(2).map(Bytes::from))
            .optional()
    }

    fn document(
        &mut self,
        kind: DocumentKind,
        run: &str,
        id: &str,
    ) -> rusqlite::Result<Option<StoredDocument>> {
        self.conn
            .prepare_cached(queries::ISSUED_FIND)?
            .query_row((id, run, kind.as_str()), |row| stored_document(row))
            .optional()
    }

    fn put_document(
        &mut self,
        document: Document,
        about: DocumentSubject,
    ) -> rusqlite::Result<StoredDocument> {
        self.conn.prepare_cached(queries::ISSUED_INSERT)?.execute(params![
            document.kind.as_str(),
            document.run.as_deref().unwrap_or_default(),
            document.id,
            document.identity,
            document.decision,
            document.reason,
            about.seq.0,
            about.of.map(|of| of.0),
            document.event_id,
            document.event_type,
            about.at.0,
            document.path,
            document.text,
        ])?;
        let n = self.conn.last_insert_rowid().unsigned_abs();
        let DocumentSubject { seq, of, at, .. } = about;
        Ok(StoredDocument { n, seq, of, at, document, superseded_by: None, released: None })
    }

    fn open_of(&mut self, seq: Seq) -> rusqlite::Result<Vec<OpenQuarantine>> {
        let mut open = self.conn.prepare_cached(queries::ISSUED_OPEN_OF)?;
        open.query_map([seq.0], quarantine)?.collect()
    }

    fn receipt_of(&mut self, seq: Seq) -> rusqlite::Result<Option<String>> {
        let mut receipt = self.conn.prepare_cached(queries::ISSUED_RECEIPT_OF)?;
        receipt.query_row([seq.0], |row| row.get(0)).optional()
    }

    fn reopen(&mut self, n: u64) -> rusqlite::Result<()> {
        self.conn.prepare_cached(queries::ISSUED_REOPEN)?.execute([n])?;
        Ok(())
    }

    fn supersede(&mut self, n: u64, by: u64) -> rusqlite::Result<()> {
        self.conn.prepare_cached(queries::ISSUED_SUPERSEDE)?.execute((n, by))?;
        Ok(())
    }

    fn release(
        &mut self,
        n: u64,
        how: &str,
        by: &Attribution,
        at: Millis,
    ) -> rusqlite::Result<bool> {
        let row = (n, how, &by.who, &by.why, at.0);
        Ok(self.conn.prepare_cached(queries::ISSUED_RELEASE)?.execute(row)? > 0)
    }

    fn run_state(&mut self, run: &str) -> rusqlite::Result<Option<RunState>> {
        if let Some(state) = self.states.get(run) {
            return Ok(*state);
        }
        let state = run::get(self.conn, run)?.map(|run| run.state);
        self.states.insert(run.to_owned(), state);
        Ok(state)
    }

    fn runs(&mut self) -> &mut RunDeltas {
        &mut self.runs
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

fn quarantine(row: &Row<'_>) -> rusqlite::Result<OpenQuarantine> {
    let kind = document_kind(row)?;
    Ok(OpenQuarantine { n: row.get("n")?, run: row.get("run")?, kind, reason: row.get("reason")? })
}
