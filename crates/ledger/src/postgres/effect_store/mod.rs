//! Effect store on PostgreSQL: reads and writes the rows of many decisions at once.
//!
//! The rows that a batch will need are prefetched in one round trip ([`prefetch`]), decisions change memory
//! only, and the changes are written in one round trip ([`flush`]). A row that was not prefetched is read
//! when it is needed, for an extra round trip.
//!
//! The ids that a contract looks up are only known once it issues documents. So a decision first assumes that
//! an id without a look-up is free, then all of them are looked up at once, and if one was not free, the
//! decision is repeated.

mod flush;
mod prefetch;
mod probe;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use admit_core::effect::{Attribution, Effect, EffectState, StoredReply};
use admit_core::{
    Document, DocumentKind, DocumentRelease, IdRegistry, Millis, RunState, Seq, StoredDocument,
};
use bytes::Bytes;

use super::conn::{Conn, Error, Result, big};
use super::sql;
use crate::db::Transaction;
use crate::rules::{
    Counters, DocumentSubject, HistoryLine, OpenQuarantine, RunDeltas, evidence_text,
};
use crate::tables::effect::{EffectDb, NeededRows};
use prefetch::EffectPrefetch;

pub(super) use prefetch::PrefetchRequest;
pub(super) use probe::ExpectedEntry;

/// Maximum repetitions with assumed ids. A longer id is tried after a short one was not free, so two are
/// enough for all contracts.
const ASSUME_MAX: usize = 3;

/// Name of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    kind: DocumentKind,
    run: String,
    id: String,
}

impl Name {
    fn new(kind: DocumentKind, run: &str, id: &str) -> Self {
        Self { kind, run: run.to_owned(), id: id.to_owned() }
    }
}

/// The effect store of one transaction.
pub(crate) struct PgEffectStore<'c> {
    conn: &'c Conn,
    epoch: u64,
    /// All epochs of this process.
    own: &'c [u64],
    /// Rows read from the database.
    prefetched: RefCell<EffectPrefetch>,
    /// Changes of this transaction.
    changes: Changes,
    /// Whether ids without a look-up are assumed to be free.
    is_assuming: bool,
    /// The ids assumed to be free.
    assumed: RefCell<HashSet<Name>>,
    /// Database error inside a callback that cannot return it.
    failed: Cell<Option<Error>>,
}

/// Changes of a transaction.
struct Changes {
    /// Number of the newest document before the transaction.
    issued_before: u64,
    last_issued: u64,
    effects: BTreeMap<Seq, ChangedEffect>,
    lines: Vec<PendingHistoryLine>,
    documents: BTreeMap<u64, StoredDocument>,
    named: HashMap<Name, u64>,
    of: HashMap<Seq, Vec<u64>>,
    runs: RunDeltas,
    counters: Counters,
}

struct ChangedEffect {
    effect: Effect,
    at: Millis,
    is_new: bool,
}

/// A history line to be written.
struct PendingHistoryLine {
    seq: Seq,
    at: Millis,
    attempt: u32,
    what: &'static str,
    who: Option<String>,
    why: Option<String>,
    evidence: Option<String>,
}

impl Changes {
    fn after(last_issued: u64) -> Self {
        Self {
            issued_before: last_issued,
            last_issued,
            effects: BTreeMap::new(),
            lines: Vec::new(),
            documents: BTreeMap::new(),
            named: HashMap::new(),
            of: HashMap::new(),
            runs: RunDeltas::default(),
            counters: Counters::default(),
        }
    }
}

impl EffectDb for Conn {
    type Store<'t> = PgEffectStore<'t>;

    fn decide<'t, T>(
        tx: &Transaction<'t, Self>,
        rows: NeededRows,
        decision: impl Fn(&mut PgEffectStore<'t>) -> Result<T>,
    ) -> Result<T> {
        let mut store = PgEffectStore::new(tx.db, tx.epoch, tx.last_issued.get());
        store.own = tx.own_epochs;
        let NeededRows { seqs, facts, effects, documents } = rows;
        effects.iter().for_each(|effect| store.insert_effect(effect));
        documents.into_iter().for_each(|document| store.insert_document(document));
        store.fetch(PrefetchRequest { seqs, facts, runs: HashSet::new() })?;
        let decided = store.decide(decision)?;
        tx.last_issued.set(store.flush()?);
        Ok(decided)
    }

    fn own_effects(&self, seqs: &[i64], epoch: u64) -> Result<()> {
        self.execute(sql!("effect_own"), &[&seqs, &big(epoch)]).map(drop)
    }

    fn note_documented(&self, seqs: &[i64]) -> Result<()> {
        self.execute(sql!("effect_documented"), &[&seqs]).map(drop)
    }
}

impl<'c> PgEffectStore<'c> {
    /// A store for the gate of `epoch`, in a ledger whose newest document is `last_issued`.
    pub(super) fn new(conn: &'c Conn, epoch: u64, last_issued: u64) -> Self {
        Self {
            conn,
            epoch,
            own: &[],
            prefetched: RefCell::default(),
            changes: Changes::after(last_issued),
            is_assuming: false,
            assumed: RefCell::default(),
            failed: Cell::new(None),
        }
    }

    /// Decides, and repeats the decision if an assumed id was not free.
    pub(super) fn decide<T>(&mut self, decision: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        let last_issued = self.changes.last_issued;
        self.is_assuming = true;
        for _ in 0..ASSUME_MAX {
            let decided = decision(self)?;
            if self.check_assumed()? {
                self.is_assuming = false;
                return Ok(decided);
            }
            self.changes = Changes::after(last_issued);
        }
        self.is_assuming = false;
        let decided = decision(self)?;
        self.check()?;
        Ok(decided)
    }

    /// Looks up every assumed id. Returns whether all of them are free.
    fn check_assumed(&self) -> Result<bool> {
        let assumed: Vec<Name> = self.assumed.borrow_mut().drain().collect();
        self.prefetched.borrow_mut().find_by_name(self.conn, assumed)
    }

    /// Returns the error that occurred in a callback, if any.
    fn check(&self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns the number of a document by name.
    fn number(&self, name: &Name) -> Result<Option<u64>> {
        if let Some(n) = self.changes.named.get(name) {
            return Ok(Some(*n));
        }
        if let Some(n) = self.prefetched.borrow().named(name) {
            return Ok(n);
        }
        if self.is_assuming {
            self.assumed.borrow_mut().insert(name.clone());
            return Ok(None);
        }
        let mut prefetched = self.prefetched.borrow_mut();
        prefetched.find_by_name(self.conn, vec![name.clone()])?;
        Ok(prefetched.named(name).flatten())
    }

    /// Reads a document including changes.
    fn filed<T>(&self, n: u64, look: impl FnOnce(&StoredDocument) -> T) -> Option<T> {
        match self.changes.documents.get(&n) {
            Some(filed) => Some(look(filed)),
            None => self.prefetched.borrow().document(n).map(look),
        }
    }

    /// Returns a document to be changed.
    fn change(&mut self, n: u64) -> Option<&mut StoredDocument> {
        if !self.changes.documents.contains_key(&n) {
            let prefetched = self.prefetched.borrow().document(n)?.clone();
            self.changes.documents.insert(n, prefetched);
        }
        self.changes.documents.get_mut(&n)
    }

    /// Selects from the documents of an admission, in order.
    fn documents_of<T>(
        &self,
        seq: Seq,
        mut pick: impl FnMut(&StoredDocument) -> Option<T>,
    ) -> Result<Vec<T>> {
        self.prefetched.borrow_mut().need_documents_of(self.conn, seq)?;
        let prefetched = self.prefetched.borrow();
        let new = self.changes.of.get(&seq).into_iter().flatten();
        let numbers = prefetched.of(seq).iter().chain(new);
        Ok(numbers.filter_map(|n| self.filed(*n, &mut pick).flatten()).collect())
    }
}

impl IdRegistry for PgEffectStore<'_> {
    fn is_used_by_other(
        &self,
        kind: DocumentKind,
        run: Option<&str>,
        id: &str,
        identity: &str,
    ) -> bool {
        let is_other = |filed: &StoredDocument| filed.document.identity != identity;
        match self.number(&Name::new(kind, run.unwrap_or_default(), id)) {
            Ok(n) => n.and_then(|n| self.filed(n, is_other)).unwrap_or(false),
            Err(error) => {
                // The transaction is lost; reported once the contract returns.
                self.failed.set(Some(error));
                true
            }
        }
    }
}

impl crate::rules::EffectStore for PgEffectStore<'_> {
    type Error = Error;

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn is_own(&self, epoch: u64) -> bool {
        epoch == self.epoch || self.own.contains(&epoch)
    }

    fn effect(&mut self, seq: Seq) -> Result<Option<Effect>> {
        if let Some(changed) = self.changes.effects.get(&seq) {
            return Ok(Some(changed.effect.clone()));
        }
        self.prefetched.borrow_mut().effect(self.conn, seq)
    }

    fn put_effect(&mut self, effect: Effect, at: Millis) -> Result<()> {
        self.changes.effects.insert(effect.seq, ChangedEffect { effect, at, is_new: true });
        Ok(())
    }

    fn set_effect_state(
        &mut self,
        seq: Seq,
        state: &EffectState,
        reply: Option<&StoredReply>,
        at: Millis,
    ) -> Result<()> {
        let changed = match self.changes.effects.remove(&seq) {
            Some(changed) => Some(changed),
            None => {
                let prefetched = self.prefetched.get_mut().effect(self.conn, seq)?;
                prefetched.map(|effect| ChangedEffect { effect, at, is_new: false })
            }
        };
        if let Some(ChangedEffect { mut effect, is_new, .. }) = changed {
            effect.state = state.clone();
            effect.reply = effect.reply.or_else(|| reply.cloned());
            self.changes.effects.insert(seq, ChangedEffect { effect, at, is_new });
        }
        Ok(())
    }

    fn add_history_line(&mut self, seq: Seq, line: &HistoryLine<'_>) -> Result<()> {
        self.changes.lines.push(PendingHistoryLine {
            seq,
            at: line.at,
            attempt: line.attempt,
            what: line.what,
            who: line.by.map(|by| by.who.clone()),
            why: line.by.and_then(|by| by.why.clone()),
            evidence: line.evidence.map(evidence_text),
        });
        Ok(())
    }

    fn facts(&mut self, seq: Seq) -> Result<Option<Bytes>> {
        self.prefetched.get_mut().facts(self.conn, seq)
    }

    fn document(
        &mut self,
        kind: DocumentKind,
        run: &str,
        id: &str,
    ) -> Result<Option<StoredDocument>> {
        self.check()?;
        let n = self.number(&Name::new(kind, run, id))?;
        Ok(n.and_then(|n| self.filed(n, StoredDocument::clone)))
    }

    fn put_document(
        &mut self,
        document: Document,
        about: DocumentSubject,
    ) -> Result<StoredDocument> {
        let changes = &mut self.changes;
        changes.last_issued += 1;
        let (n, DocumentSubject { seq, of, at, .. }) = (changes.last_issued, about);
        let name =
            Name::new(document.kind, document.run.as_deref().unwrap_or_default(), &document.id);
        changes.named.insert(name, n);
        if let Some(of) = of {
            changes.of.entry(of).or_default().push(n);
        }
        let filed =
            StoredDocument { n, seq, of, at, document, superseded_by: None, released: None };
        changes.documents.insert(n, filed.clone());
        Ok(filed)
    }

    fn open_of(&mut self, seq: Seq) -> Result<Vec<OpenQuarantine>> {
        self.documents_of(seq, |filed| {
            let is_open = filed.superseded_by.is_none() && filed.released.is_none();
            let StoredDocument { n, document, .. } = filed;
            (is_open && document.decision == "QUARANTINE").then(|| OpenQuarantine {
                n: *n,
                run: document.run.clone().unwrap_or_default(),
                kind: document.kind,
                reason: document.reason.as_deref().map(str::to_owned),
            })
        })
    }

    fn receipt_of(&mut self, seq: Seq) -> Result<Option<String>> {
        let receipts = self.documents_of(seq, |filed| {
            let StoredDocument { document, .. } = filed;
            let is_it = filed.seq == seq
                && document.kind == DocumentKind::Receipt
                && document.reason.is_none();
            is_it.then(|| document.path.clone())
        })?;
        Ok(receipts.into_iter().next())
    }

    fn reopen(&mut self, n: u64) -> Result<()> {
        if let Some(filed) = self.change(n) {
            filed.released = None;
        }
        Ok(())
    }

    fn supersede(&mut self, n: u64, by: u64) -> Result<()> {
        if let Some(filed) = self.change(n) {
            filed.superseded_by = Some(by);
        }
        Ok(())
    }

    fn release(&mut self, n: u64, how: &str, by: &Attribution, at: Millis) -> Result<bool> {
        let Some(filed) = self.change(n).filter(|filed| filed.released.is_none()) else {
            return Ok(false);
        };
        filed.released = Some(DocumentRelease { how: how.to_owned(), by: by.clone(), at });
        Ok(true)
    }

    fn run_state(&mut self, run: &str) -> Result<Option<RunState>> {
        self.prefetched.get_mut().run(self.conn, run)
    }

    fn runs(&mut self) -> &mut RunDeltas {
        &mut self.changes.runs
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.changes.counters
    }
}
