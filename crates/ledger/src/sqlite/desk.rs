//! The rows that decisions about effects, documents and runs read and write, one statement each.

use std::collections::HashMap;

use admit_core::effect::{By, Effect, Standing, StoredReply};
use admit_core::{Filed, Issued, IssuedKind, Millis, RunState, Seq, Taken};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::{effects, issued, queries};
use crate::desk::{About, Counters, Line, Open, Runs};

/// The desk of one transaction.
pub(super) struct Desk<'c> {
    conn: &'c Connection,
    epoch: u64,
    runs: Runs,
    counters: Counters,
    /// Of the runs that somebody has asked about.
    states: HashMap<String, Option<RunState>>,
}

impl<'c> Desk<'c> {
    pub(super) fn new(conn: &'c Connection, epoch: u64) -> Self {
        Self {
            conn,
            epoch,
            runs: Runs::default(),
            counters: Counters::default(),
            states: HashMap::new(),
        }
    }

    /// Writes what the transaction as a whole adds.
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

impl Taken for Desk<'_> {
    fn by_other(&self, kind: IssuedKind, run: Option<&str>, id: &str, identity: &str) -> bool {
        let run = run.unwrap_or_default();
        let other = self
            .conn
            .prepare_cached(queries::ISSUED_IDENTITY)
            .and_then(|mut other| other.exists((id, run, kind.as_str(), identity)));
        // A look that fails fails the transaction at the next statement; until then, nothing is lost
        // by taking the longer id.
        other.unwrap_or(true)
    }
}

impl crate::desk::Desk for Desk<'_> {
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

    fn turn_effect(
        &mut self,
        seq: Seq,
        standing: &Standing,
        said: Option<&StoredReply>,
        at: Millis,
    ) -> rusqlite::Result<()> {
        effects::update(self.conn, seq, standing, at, said)
    }

    fn add_line(&mut self, seq: Seq, line: &Line<'_>) -> rusqlite::Result<()> {
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
        kind: IssuedKind,
        run: &str,
        id: &str,
    ) -> rusqlite::Result<Option<Filed>> {
        issued::find(self.conn, kind, run, id)
    }

    fn put_document(&mut self, issued: Issued, about: About) -> rusqlite::Result<Filed> {
        issued::insert(self.conn, issued, about)
    }

    fn open_of(&mut self, seq: Seq) -> rusqlite::Result<Vec<Open>> {
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

    fn release(&mut self, n: u64, how: &str, by: &By, at: Millis) -> rusqlite::Result<bool> {
        let row = (n, how, &by.who, &by.why, at.0);
        Ok(self.conn.prepare_cached(queries::ISSUED_RELEASE)?.execute(row)? > 0)
    }

    fn run_state(&mut self, run: &str) -> rusqlite::Result<Option<RunState>> {
        if let Some(state) = self.states.get(run) {
            return Ok(*state);
        }
        let state = issued::run(self.conn, run)?.map(|run| run.state);
        self.states.insert(run.to_owned(), state);
        Ok(state)
    }

    fn runs(&mut self) -> &mut Runs {
        &mut self.runs
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
