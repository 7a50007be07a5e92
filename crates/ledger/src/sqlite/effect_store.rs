//! Effect store on SQLite: one statement per row.

use std::collections::HashMap;

use admit_core::effect::{Attribution, Effect, EffectState, StoredReply};
use admit_core::{Document, DocumentKind, IdRegistry, Millis, RunState, Seq, StoredDocument};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::{effects, issued, queries};
use crate::rules::{Counters, DocumentSubject, HistoryLine, OpenQuarantine, RunDeltas};
use crate::tables::run;

/// The effect store of one transaction.
pub(super) struct SqliteEffectStore<'c> {
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
        issued::add(self.conn, &self.runs)
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
        effects::get(self.conn, seq)
    }

    fn put_effect(&mut self, effect: Effect, at: Millis) -> rusqlite::Result<()> {
        effects::insert(self.conn, &effect, at)
    }

    fn set_effect_state(
        &mut self,
        seq: Seq,
        state: &EffectState,
        reply: Option<&StoredReply>,
        at: Millis,
    ) -> rusqlite::Result<()> {
        effects::update(self.conn, seq, state, at, reply)
    }

    fn add_history_line(&mut self, seq: Seq, line: &HistoryLine<'_>) -> rusqlite::Result<()> {
        effects::note(self.conn, queries::EFFECT_NOTE, self.epoch, seq.0, line)
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
        issued::find(self.conn, kind, run, id)
    }

    fn put_document(
        &mut self,
        document: Document,
        about: DocumentSubject,
    ) -> rusqlite::Result<StoredDocument> {
        issued::insert(self.conn, document, about)
    }

    fn open_of(&mut self, seq: Seq) -> rusqlite::Result<Vec<OpenQuarantine>> {
        issued::open_of(self.conn, seq)
    }

    fn receipt_of(&mut self, seq: Seq) -> rusqlite::Result<Option<String>> {
        issued::receipt_of(self.conn, seq)
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
