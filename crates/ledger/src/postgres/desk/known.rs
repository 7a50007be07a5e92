//! What the database holds of effects, documents and runs, read for many at a time.

use std::collections::{HashMap, HashSet};

use admit_core::effect::Effect;
use admit_core::{Filed, RunState, Seq};
use bytes::Bytes;

use super::super::conn::{Ask, Columns, Conn, Result, big};
use super::super::{effects, issued, sql, text};
use super::{Desk, Name};

/// What a decision will ask for, as far as that can be said before.
#[derive(Default)]
pub(in super::super) struct Asked {
    /// Admissions whose effects and documents it looks at.
    pub(in super::super) seqs: HashSet<Seq>,
    /// Admissions whose facts it reads.
    pub(in super::super) facts: HashSet<Seq>,
    /// Runs whose states it looks at.
    pub(in super::super) runs: HashSet<String>,
}

/// What the database holds. Something that is `None` is known not to be there.
#[derive(Default)]
pub(super) struct Known {
    effects: HashMap<Seq, Option<Effect>>,
    facts: HashMap<Seq, Option<Bytes>>,
    runs: HashMap<String, Option<RunState>>,
    documents: HashMap<u64, Filed>,
    named: HashMap<Name, Option<u64>>,
    /// Everything about an admission.
    of: HashMap<Seq, Vec<u64>>,
}

impl Desk<'_> {
    /// Reads what will be asked for, in one round trip.
    pub(in super::super) fn fetch(&mut self, asked: Asked) -> Result<()> {
        self.known.get_mut().fetch(self.conn, asked)
    }

    /// Knows an effect without reading it again.
    pub(in super::super) fn knows(&mut self, effect: &Effect) {
        self.known.get_mut().effects.insert(effect.seq, Some(effect.clone()));
    }

    /// The same for a document.
    pub(in super::super) fn knows_document(&mut self, filed: Filed) {
        self.known.get_mut().keep(filed);
    }
}

impl Known {
    fn fetch(&mut self, conn: &Conn, mut asked: Asked) -> Result<()> {
        asked.seqs.retain(|seq| !self.of.contains_key(seq));
        let seqs: Vec<i64> = asked.seqs.iter().map(|seq| big(seq.0)).collect();
        let facts: Vec<i64> = asked.facts.iter().map(|seq| big(seq.0)).collect();
        let runs: Vec<_> = asked.runs.iter().map(|run| text::kept(run)).collect();
        let mut asks = Vec::with_capacity(4);
        if !seqs.is_empty() {
            asks.push(Ask::new(sql!("effect_many"), vec![&seqs]));
            asks.push(Ask::new(sql!("issued_of_many"), vec![&seqs]));
        }
        if !facts.is_empty() {
            asks.push(Ask::new(sql!("facts_many"), vec![&facts]));
        }
        if !runs.is_empty() {
            asks.push(Ask::new(sql!("run_states"), vec![&runs]));
        }
        if asks.is_empty() {
            return Ok(());
        }
        let mut answers = conn.query_all(&asks)?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        if !seqs.is_empty() {
            for row in next() {
                let effect = effects::effect_row(&row)?;
                self.effects.insert(effect.seq, Some(effect));
            }
            for row in next() {
                let filed = issued::filed_row(&row)?;
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
                let state = issued::run_state(&row.text("state")?)?;
                self.runs.insert(row.text("platform_run_id")?, Some(state));
            }
        }
        // What did not come is not there.
        for seq in asked.seqs {
            self.effects.entry(seq).or_default();
            self.of.entry(seq).or_default();
        }
        for seq in asked.facts {
            self.facts.entry(seq).or_default();
        }
        for run in asked.runs {
            self.runs.entry(run).or_default();
        }
        Ok(())
    }

    fn keep(&mut self, filed: Filed) {
        let issued = &filed.issued;
        let run = issued.run.as_deref().unwrap_or_default();
        self.named.insert(Name::new(issued.kind, run, &issued.id), Some(filed.n));
        self.documents.insert(filed.n, filed);
    }

    /// Looks for documents by their names, in one round trip. Whether there is none.
    pub(super) fn look_for(&mut self, conn: &Conn, names: Vec<Name>) -> Result<bool> {
        if names.is_empty() {
            return Ok(true);
        }
        let ids: Vec<_> = names.iter().map(|name| text::kept(&name.id)).collect();
        let runs: Vec<_> = names.iter().map(|name| text::kept(&name.run)).collect();
        let kinds: Vec<&str> = names.iter().map(|name| name.kind.as_str()).collect();
        let found = conn.query(sql!("issued_find_many"), &[&ids, &runs, &kinds])?;
        for row in &found {
            self.keep(issued::filed_row(row)?);
        }
        for name in names {
            self.named.entry(name).or_default();
        }
        Ok(found.is_empty())
    }

    /// The number behind a name; the outer `None` is that nobody has looked.
    pub(super) fn named(&self, name: &Name) -> Option<Option<u64>> {
        self.named.get(name).copied()
    }

    pub(super) fn document(&self, n: u64) -> Option<&Filed> {
        self.documents.get(&n)
    }

    /// What is known of an admission's documents.
    pub(super) fn of(&self, seq: Seq) -> &[u64] {
        self.of.get(&seq).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn need_documents_of(&mut self, conn: &Conn, seq: Seq) -> Result<()> {
        if self.of.contains_key(&seq) {
            return Ok(());
        }
        self.fetch(conn, Asked { seqs: HashSet::from([seq]), ..Asked::default() })
    }

    pub(super) fn effect(&mut self, conn: &Conn, seq: Seq) -> Result<Option<Effect>> {
        if !self.effects.contains_key(&seq) {
            self.fetch(conn, Asked { seqs: HashSet::from([seq]), ..Asked::default() })?;
        }
        Ok(self.effects.get(&seq).cloned().flatten())
    }

    pub(super) fn facts(&mut self, conn: &Conn, seq: Seq) -> Result<Option<Bytes>> {
        if !self.facts.contains_key(&seq) {
            self.fetch(conn, Asked { facts: HashSet::from([seq]), ..Asked::default() })?;
        }
        Ok(self.facts.get(&seq).cloned().flatten())
    }

    pub(super) fn run(&mut self, conn: &Conn, run: &str) -> Result<Option<RunState>> {
        if !self.runs.contains_key(run) {
            self.fetch(conn, Asked { runs: HashSet::from([run.to_owned()]), ..Asked::default() })?;
        }
        Ok(self.runs.get(run).copied().flatten())
    }
}
