//! The rows that decisions about effects, documents and runs read and write, for many at a time.
//!
//! What a batch will ask for is read in one go ([`known`]), decisions change memory only, and what
//! they changed is written in one go ([`flush`]). Something nobody thought of asking for is looked
//! up when it is needed; it costs a round trip and nothing else.
//!
//! Which ids a contract asks for is only known once it speaks. So a decision first assumes that an id
//! nobody has looked for is free, then all of them are looked for at once, and where one was not free
//! after all, it is decided again.

mod flush;
mod known;
mod probe;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use admit_core::effect::{By, Effect, Standing, StoredReply};
use admit_core::{Filed, Issued, IssuedKind, Millis, Released, RunState, Seq, Taken};
use bytes::Bytes;

use super::conn::{Conn, Error, Result};
use super::task::Tx;
use crate::desk::{About, Counters, Line, Open, Runs, evidence_text};
use known::Known;

pub(super) use known::Asked;
pub(super) use probe::Wanted;

/// So often a decision may rest on ids that nobody has looked for. A longer id is asked for after a
/// short one was not free, so two are enough for every contract there is.
const ASSUME_MAX: usize = 3;

/// What a document is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    kind: IssuedKind,
    run: String,
    id: String,
}

impl Name {
    fn new(kind: IssuedKind, run: &str, id: &str) -> Self {
        Self { kind, run: run.to_owned(), id: id.to_owned() }
    }
}

/// The desk of one transaction.
pub(super) struct Desk<'c> {
    conn: &'c Conn,
    epoch: u64,
    /// The other epochs of this process.
    own: &'c [u64],
    /// What the database holds, as far as somebody has looked.
    known: RefCell<Known>,
    /// What this transaction changes.
    changes: Changes,
    /// Whether ids that nobody has looked for are taken to be free.
    is_assuming: bool,
    /// The ids that were taken to be free.
    assumed: RefCell<HashSet<Name>>,
    /// What went wrong where it could not be told.
    failed: Cell<Option<Error>>,
}

/// What a transaction changes.
struct Changes {
    /// The number of the newest document before it, and now.
    issued_before: u64,
    last_issued: u64,
    effects: BTreeMap<Seq, Turned>,
    lines: Vec<KeptLine>,
    documents: BTreeMap<u64, Filed>,
    named: HashMap<Name, u64>,
    of: HashMap<Seq, Vec<u64>>,
    runs: Runs,
    counters: Counters,
}

struct Turned {
    effect: Effect,
    at: Millis,
    is_born: bool,
}

/// A line of history that waits to be written.
struct KeptLine {
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
            runs: Runs::default(),
            counters: Counters::default(),
        }
    }
}

impl<'c> Desk<'c> {
    /// A desk for the gate of `epoch`, in a ledger whose newest document is `last_issued`.
    pub(super) fn new(conn: &'c Conn, epoch: u64, last_issued: u64) -> Self {
        Self {
            conn,
            epoch,
            own: &[],
            known: RefCell::default(),
            changes: Changes::after(last_issued),
            is_assuming: false,
            assumed: RefCell::default(),
            failed: Cell::new(None),
        }
    }

    /// A desk for a piece of work.
    pub(super) fn of(tx: &Tx<'c>) -> Self {
        Self { own: tx.own, ..Self::new(tx.conn, tx.epoch, tx.position.last_issued) }
    }

    /// Decides, and decides again where it rested on an id that was not free.
    pub(super) fn decide<T>(&mut self, decision: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        let last_issued = self.changes.last_issued;
        self.is_assuming = true;
        for _ in 0..ASSUME_MAX {
            let decided = decision(self)?;
            if self.look_at_assumed()? {
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

    /// Looks for every id that was taken to be free. Whether all of them are.
    fn look_at_assumed(&self) -> Result<bool> {
        let assumed: Vec<Name> = self.assumed.borrow_mut().drain().collect();
        self.known.borrow_mut().look_for(self.conn, assumed)
    }

    /// Tells what went wrong while the contract was speaking.
    fn check(&self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The number of the document that has this name.
    fn number(&self, name: &Name) -> Result<Option<u64>> {
        if let Some(n) = self.changes.named.get(name) {
            return Ok(Some(*n));
        }
        if let Some(n) = self.known.borrow().named(name) {
            return Ok(n);
        }
        if self.is_assuming {
            self.assumed.borrow_mut().insert(name.clone());
            return Ok(None);
        }
        let mut known = self.known.borrow_mut();
        known.look_for(self.conn, vec![name.clone()])?;
        Ok(known.named(name).flatten())
    }

    /// A document as it stands now.
    fn filed<T>(&self, n: u64, look: impl FnOnce(&Filed) -> T) -> Option<T> {
        match self.changes.documents.get(&n) {
            Some(filed) => Some(look(filed)),
            None => self.known.borrow().document(n).map(look),
        }
    }

    /// A document, to be changed.
    fn change(&mut self, n: u64) -> Option<&mut Filed> {
        if !self.changes.documents.contains_key(&n) {
            let known = self.known.borrow().document(n)?.clone();
            self.changes.documents.insert(n, known);
        }
        self.changes.documents.get_mut(&n)
    }

    /// Everything that was issued about an admission, in order.
    fn documents_of<T>(
        &self,
        seq: Seq,
        mut pick: impl FnMut(&Filed) -> Option<T>,
    ) -> Result<Vec<T>> {
        self.known.borrow_mut().need_documents_of(self.conn, seq)?;
        let known = self.known.borrow();
        let new = self.changes.of.get(&seq).into_iter().flatten();
        let numbers = known.of(seq).iter().chain(new);
        Ok(numbers.filter_map(|n| self.filed(*n, &mut pick).flatten()).collect())
    }
}

impl Taken for Desk<'_> {
    fn by_other(&self, kind: IssuedKind, run: Option<&str>, id: &str, identity: &str) -> bool {
        let is_other = |filed: &Filed| filed.issued.identity != identity;
        match self.number(&Name::new(kind, run.unwrap_or_default(), id)) {
            Ok(n) => n.and_then(|n| self.filed(n, is_other)).unwrap_or(false),
            Err(error) => {
                // The transaction is lost; it is told once the contract is done.
                self.failed.set(Some(error));
                true
            }
        }
    }
}

impl crate::desk::Desk for Desk<'_> {
    type Error = Error;

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn is_own(&self, epoch: u64) -> bool {
        epoch == self.epoch || self.own.contains(&epoch)
    }

    fn effect(&mut self, seq: Seq) -> Result<Option<Effect>> {
        if let Some(turned) = self.changes.effects.get(&seq) {
            return Ok(Some(turned.effect.clone()));
        }
        self.known.borrow_mut().effect(self.conn, seq)
    }

    fn put_effect(&mut self, effect: Effect, at: Millis) -> Result<()> {
        self.changes.effects.insert(effect.seq, Turned { effect, at, is_born: true });
        Ok(())
    }

    fn turn_effect(
        &mut self,
        seq: Seq,
        standing: &Standing,
        said: Option<&StoredReply>,
        at: Millis,
    ) -> Result<()> {
        let turned = match self.changes.effects.remove(&seq) {
            Some(turned) => Some(turned),
            None => {
                let known = self.known.get_mut().effect(self.conn, seq)?;
                known.map(|effect| Turned { effect, at, is_born: false })
            }
        };
        if let Some(Turned { mut effect, is_born, .. }) = turned {
            effect.standing = standing.clone();
            effect.reply = effect.reply.or_else(|| said.cloned());
            self.changes.effects.insert(seq, Turned { effect, at, is_born });
        }
        Ok(())
    }

    fn add_line(&mut self, seq: Seq, line: &Line<'_>) -> Result<()> {
        self.changes.lines.push(KeptLine {
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
        self.known.get_mut().facts(self.conn, seq)
    }

    fn document(&mut self, kind: IssuedKind, run: &str, id: &str) -> Result<Option<Filed>> {
        self.check()?;
        let n = self.number(&Name::new(kind, run, id))?;
        Ok(n.and_then(|n| self.filed(n, Filed::clone)))
    }

    fn put_document(&mut self, issued: Issued, about: About) -> Result<Filed> {
        let changes = &mut self.changes;
        changes.last_issued += 1;
        let (n, About { seq, of, at, .. }) = (changes.last_issued, about);
        let name = Name::new(issued.kind, issued.run.as_deref().unwrap_or_default(), &issued.id);
        changes.named.insert(name, n);
        if let Some(of) = of {
            changes.of.entry(of).or_default().push(n);
        }
        let filed = Filed { n, seq, of, at, issued, superseded_by: None, released: None };
        changes.documents.insert(n, filed.clone());
        Ok(filed)
    }

    fn open_of(&mut self, seq: Seq) -> Result<Vec<Open>> {
        self.documents_of(seq, |filed| {
            let is_open = filed.superseded_by.is_none() && filed.released.is_none();
            let Filed { n, issued, .. } = filed;
            (is_open && issued.decision == "QUARANTINE").then(|| Open {
                n: *n,
                run: issued.run.clone().unwrap_or_default(),
                kind: issued.kind,
                reason: issued.reason.as_deref().map(str::to_owned),
            })
        })
    }

    fn receipt_of(&mut self, seq: Seq) -> Result<Option<String>> {
        let receipts = self.documents_of(seq, |filed| {
            let Filed { issued, .. } = filed;
            let is_it =
                filed.seq == seq && issued.kind == IssuedKind::Receipt && issued.reason.is_none();
            is_it.then(|| issued.path.clone())
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

    fn release(&mut self, n: u64, how: &str, by: &By, at: Millis) -> Result<bool> {
        let Some(filed) = self.change(n).filter(|filed| filed.released.is_none()) else {
            return Ok(false);
        };
        filed.released = Some(Released { how: how.to_owned(), by: by.clone(), at });
        Ok(true)
    }

    fn run_state(&mut self, run: &str) -> Result<Option<RunState>> {
        self.known.get_mut().run(self.conn, run)
    }

    fn runs(&mut self) -> &mut Runs {
        &mut self.changes.runs
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.changes.counters
    }
}
