//! Prefetched effects, documents and runs.

use std::collections::{HashMap, HashSet};

use admit_core::effect::Effect;
use admit_core::{RunState, Seq, StoredDocument};
use bytes::Bytes;

use super::super::conn::{Columns, Conn, Query, Result, big};
use super::super::{nul_escape, sql};
use super::{Name, PgEffectStore};
use crate::tables::effect::stored_effect;
use crate::tables::issued::stored_document;

/// Rows that a decision will need, as far as known.
#[derive(Default)]
pub(in super::super) struct PrefetchRequest {
    /// Admissions whose effects and documents are needed.
    pub(in super::super) seqs: HashSet<Seq>,
    /// Admissions whose facts are needed.
    pub(in super::super) facts: HashSet<Seq>,
    /// Runs whose states are needed.
    pub(in super::super) runs: HashSet<String>,
}

/// Rows read from the database. `None` is known to be absent.
#[derive(Default)]
pub(super) struct EffectPrefetch {
    effects: HashMap<Seq, Option<Effect>>,
    facts: HashMap<Seq, Option<Bytes>>,
    runs: HashMap<String, Option<RunState>>,
    documents: HashMap<u64, StoredDocument>,
    named: HashMap<Name, Option<u64>>,
    /// Documents by admission.
    of: HashMap<Seq, Vec<u64>>,
}

impl PgEffectStore<'_> {
    /// Prefetches rows in one round trip.
    pub(in super::super) fn fetch(&mut self, request: PrefetchRequest) -> Result<()> {
        self.prefetched.get_mut().fetch(self.conn, request)
    }

    /// Adds an effect that was read already.
    pub(in super::super) fn insert_effect(&mut self, effect: &Effect) {
        self.prefetched.get_mut().effects.insert(effect.seq, Some(effect.clone()));
    }

    /// Adds a document that was read already.
    pub(in super::super) fn insert_document(&mut self, filed: StoredDocument) {
        self.prefetched.get_mut().keep(filed);
    }
}

impl EffectPrefetch {
    fn fetch(&mut self, conn: &Conn, mut request: PrefetchRequest) -> Result<()> {
        request.seqs.retain(|seq| !self.of.contains_key(seq));
        let seqs: Vec<i64> = request.seqs.iter().map(|seq| big(seq.0)).collect();
        let facts: Vec<i64> = request.facts.iter().map(|seq| big(seq.0)).collect();
        let runs: Vec<_> = request.runs.iter().map(|run| nul_escape::escape(run)).collect();
        let mut queries = Vec::with_capacity(4);
        if !seqs.is_empty() {
            queries.push(Query::new(sql!("effect_many"), vec![&seqs]));
            queries.push(Query::new(sql!("issued_of_many"), vec![&seqs]));
        }
        if !facts.is_empty() {
            queries.push(Query::new(sql!("facts_many"), vec![&facts]));
        }
        if !runs.is_empty() {
            queries.push(Query::new(sql!("run_states"), vec![&runs]));
        }
        if queries.is_empty() {
            return Ok(());
        }
        let mut answers = conn.query_all(&queries)?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        if !seqs.is_empty() {
            for row in next() {
                let effect = stored_effect(&row)?;
                self.effects.insert(effect.seq, Some(effect));
            }
            for row in next() {
                let filed = stored_document(&row)?;
                self.of.entry(filed.of.unwrap_or_default()).or_default().push(filed.n);
                self.keep(filed);
            }
        }
        if !facts.is_empty() {
            for row in next() {
                self.facts.insert(row.seq("seq")?, Some(row.text("facts")?.into()));
            }
        }
        if !runs.is_empty() {
            for row in next() {
                let state = crate::tables::run::parse_state(&row.text("state")?)?;
                self.runs.insert(row.text("platform_run_id")?, Some(state));
            }
        }
        // Requested rows that were not returned are absent.
        for seq in request.seqs {
            self.effects.entry(seq).or_default();
            self.of.entry(seq).or_default();
        }
        for seq in request.facts {
            self.facts.entry(seq).or_default();
        }
        for run in request.runs {
            self.runs.entry(run).or_default();
        }
        Ok(())
    }

    fn keep(&mut self, filed: StoredDocument) {
        let issued = &filed.document;
        let run = issued.run.as_deref().unwrap_or_default();
        self.named.insert(Name::new(issued.kind, run, &issued.id), Some(filed.n));
        self.documents.insert(filed.n, filed);
    }

    /// Looks up documents by name, in one round trip. Returns whether there are none.
    pub(super) fn find_by_name(&mut self, conn: &Conn, names: Vec<Name>) -> Result<bool> {
        if names.is_empty() {
            return Ok(true);
        }
        let ids: Vec<_> = names.iter().map(|name| nul_escape::escape(&name.id)).collect();
        let runs: Vec<_> = names.iter().map(|name| nul_escape::escape(&name.run)).collect();
        let kinds: Vec<&str> = names.iter().map(|name| name.kind.as_str()).collect();
        let found = conn.query(sql!("issued_find_many"), &[&ids, &runs, &kinds])?;
        for row in &found {
            self.keep(stored_document(row)?);
        }
        for name in names {
            self.named.entry(name).or_default();
        }
        Ok(found.is_empty())
    }

    /// The number of a document by name; the outer `None` means that it was not looked up.
    pub(super) fn named(&self, name: &Name) -> Option<Option<u64>> {
        self.named.get(name).copied()
    }

    pub(super) fn document(&self, n: u64) -> Option<&StoredDocument> {
        self.documents.get(&n)
    }

    /// The numbers of an admission's documents.
    pub(super) fn of(&self, seq: Seq) -> &[u64] {
        self.of.get(&seq).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn need_documents_of(&mut self, conn: &Conn, seq: Seq) -> Result<()> {
        if self.of.contains_key(&seq) {
            return Ok(());
        }
        self.fetch(
            conn,
            PrefetchRequest { seqs: HashSet::from([seq]), ..PrefetchRequest::default() },
        )
    }

    pub(super) fn effect(&mut self, conn: &Conn, seq: Seq) -> Result<Option<Effect>> {
        if !self.effects.contains_key(&seq) {
            self.fetch(
                conn,
                PrefetchRequest { seqs: HashSet::from([seq]), ..PrefetchRequest::default() },
            )?;
        }
        Ok(self.effects.get(&seq).cloned().flatten())
    }

    pub(super) fn facts(&mut self, conn: &Conn, seq: Seq) -> Result<Option<Bytes>> {
        if !self.facts.contains_key(&seq) {
            self.fetch(
                conn,
                PrefetchRequest { facts: HashSet::from([seq]), ..PrefetchRequest::default() },
            )?;
        }
        Ok(self.facts.get(&seq).cloned().flatten())
    }

    pub(super) fn run(&mut self, conn: &Conn, run: &str) -> Result<Option<RunState>> {
        if !self.runs.contains_key(run) {
            self.fetch(
                conn,
                PrefetchRequest {
                    runs: HashSet::from([run.to_owned()]),
                    ..PrefetchRequest::default()
                },
            )?;
        }
        Ok(self.runs.get(run).copied().flatten())
    }
}
