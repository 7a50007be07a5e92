//! Documents and runs: settled inside of a transaction, read outside of it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use admit_core::effect::{Attribution, Effect, IllegalStep};
use admit_core::{
    Document, DocumentKind, DocumentRelease, Door, Entry, Fault, FaultKind, Issue, Millis,
    RecordedEntry, RunState, Seq, StoredDocument,
};

use super::effect::{EffectDb, NeededRows, RECOVERED_MAX, next_page, stored_effect};
use crate::db::{
    Call, Columns, Db, InvalidValue, Operation, ReadBackend, Statement, Transaction, WriteBackend,
    ints, params, row, statements,
};
use crate::issuance::{
    DocumentFilter, DocumentReader, FileNote, Issuance, IssueHandlers, RecordedDelivery, Run,
    SettledCopy, SettledEffect, Settlement,
};
use crate::port::BoxFuture;
use crate::rules::{self, BUS_END, OpenQuarantine};
use crate::tables::run;

statements! {
    shared BUS_ENDS "bus_ends";
    each FILES_RESTORED "gate_restored";
    each FILES_SYNCED "gate_synced";
    each HERE "issued_here";
    each LEFT_UNSYNCED "issued_left";
    shared LIST "issued_list";
    each LOST_OF_DOOR "effect_lost_of_door";
    shared NAMED "issued_named";
    shared OF_ADMISSION "issued_of";
    shared OPEN_NAMED "issued_twin";
    shared QUARANTINE "issued_quarantine";
    each SYNCED "issued_synced";
    shared UNWRITTEN "issued_unwritten";
    each UNWRITTEN_PUT "issued_unwritten_put";
}

impl<B: WriteBackend<Db: EffectDb>> Issuance for B {
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<Result<RecordedDelivery, Fault>>> {
        self.queue_issuing(batch, issuing)
    }

    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<SettledEffect, IllegalStep>>, Fault>> {
        self.apply(Settle { batch, issue, at })
    }

    fn settle_copy(
        &self,
        copy: RecordedEntry,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<SettledCopy, Fault>> {
        let settled = self.apply(SettleCopy { copy, first, issue, at });
        Box::pin(async move {
            let lost =
                "the effect of the first event under this key is missing or changed concurrently";
            settled.await?.map_err(|_| Fault::new(FaultKind::Internal, lost))
        })
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover_issuing(
        &self,
        door: Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        Box::pin(async move {
            let of_door = door.clone();
            let mut recovered = Vec::new();
            if self.read(move |db, _| lost(db, &of_door, Seq(0), 1)).await?.is_empty() {
                return Ok(recovered);
            }
            let mut after = Some(Seq(0));
            while let Some(from) = after {
                let (door, issue) = (door.clone(), Arc::clone(&issue));
                let (part, next) = self.apply(RecoverDoor { door, issue, at, after: from }).await?;
                recovered.extend(part);
                after = next;
            }
            Ok(recovered)
        })
    }

    fn release(
        &self,
        run: String,
        id: String,
        how: &'static str,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        self.apply(Release { run, id, how, by, at })
    }

    fn issued_here(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<u64>, Fault>> {
        let own = ints(self.own_epochs());
        self.read(move |db, _| {
            let numbers = db.query(&HERE, params![&own, after, rows_max])?;
            numbers.iter().map(|row| row.num("n")).collect()
        })
    }

    fn note_files(&self, note: FileNote) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(NoteFiles(note))
    }

    fn turn_run(
        &self,
        id: String,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        self.apply(run::SetState { id, from, to, at })
    }
}

impl<B: ReadBackend> DocumentReader for B {
    fn filed(&self, filter: DocumentFilter) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.read(move |db, _| list(db, &filter))
    }

    fn named(&self, id: String) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.read(move |db, _| documents(&db.query(&NAMED, params![&id])?))
    }

    fn filed_of(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.read(move |db, _| documents(&db.query(&OF_ADMISSION, params![seq])?))
    }

    fn unwritten(
        &self,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.read(move |db, _| documents(&db.query(&UNWRITTEN, params![after, rows_max])?))
    }

    fn synced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        self.read(|db, _| synced(db, &SYNCED))
    }

    fn left_unsynced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        self.read(|db, _| synced(db, &LEFT_UNSYNCED))
    }

    fn bus_ends(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, Fault>> {
        self.read(|db, _| {
            let ends = db.query(&BUS_ENDS, params![BUS_END])?;
            ends.iter().map(|row| Ok((row.text("topic")?, row.num("messages")?))).collect()
        })
    }

    fn run(&self, id: String) -> BoxFuture<'_, Result<Option<Run>, Fault>> {
        self.read(move |db, _| run::get(db, &id))
    }

    fn runs(&self, after: String, rows_max: usize) -> BoxFuture<'_, Result<Vec<Run>, Fault>> {
        self.read(move |db, _| run::list(db, &after, rows_max))
    }
}

/// Advances effects.
struct Settle {
    batch: Vec<Settlement>,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl<D: EffectDb> Operation<D> for Settle {
    type Output = Vec<Result<SettledEffect, IllegalStep>>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        let without_facts = self.batch.iter().filter(|settlement| settlement.facts.is_none());
        let rows = NeededRows {
            seqs: self.batch.iter().map(|settlement| settlement.seq).collect(),
            facts: without_facts.map(|settlement| settlement.seq).collect(),
            ..NeededRows::default()
        };
        D::decide(tx, rows, |store| rules::settle(store, &self.batch, &*self.issue, self.at))
    }
}

/// Issues the documents of a copy that waited.
struct SettleCopy {
    copy: RecordedEntry,
    first: Seq,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl<D: EffectDb> Operation<D> for SettleCopy {
    type Output = Result<SettledCopy, IllegalStep>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        let first = HashSet::from([self.first]);
        let rows = NeededRows { seqs: first.clone(), facts: first, ..NeededRows::default() };
        D::decide(tx, rows, |store| {
            rules::settle_copy(store, &self.copy, self.first, &*self.issue, self.at)
        })
    }
}

/// Recovers what dead processes had in flight at one door.
struct RecoverDoor {
    door: Door,
    issue: Arc<dyn Issue>,
    at: Millis,
    after: Seq,
}

impl<D: EffectDb> Operation<D> for RecoverDoor {
    type Output = (Vec<Effect>, Option<Seq>);

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        if !tx.may_expire_gates {
            return Ok((Vec::new(), None));
        }
        let lost = lost(tx.db, &self.door, self.after, RECOVERED_MAX)?;
        let seqs: HashSet<Seq> = lost.iter().map(|effect| effect.seq).collect();
        let rows = NeededRows { seqs: seqs.clone(), facts: seqs, ..NeededRows::default() };
        let recovered = D::decide(tx, rows, |store| {
            rules::recover_door(store, lost.clone(), &*self.issue, self.at)
        })?;
        let documented = ints(recovered.iter().map(|effect| effect.seq.0));
        if !documented.is_empty() {
            tx.db.note_documented(&documented)?;
        }
        Ok((recovered, next_page(&lost)))
    }
}

/// Returns what a door had in flight in dead processes, and outcomes without documents.
fn lost<D: Db>(db: &D, door: &Door, after: Seq, rows_max: usize) -> Result<Vec<Effect>, D::Error> {
    let lost = db.query(&LOST_OF_DOOR, params![door.as_str(), after, rows_max])?;
    lost.iter().map(stored_effect).collect()
}

/// Releases a quarantine.
struct Release {
    run: String,
    id: String,
    how: &'static str,
    by: Attribution,
    at: Millis,
}

impl<D: EffectDb> Operation<D> for Release {
    type Output = bool;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<bool, D::Error> {
        // Its receipt and its record.
        let open = documents(&tx.db.query(&OPEN_NAMED, params![&self.id, &self.run])?)?;
        let quarantines = || -> Vec<OpenQuarantine> { open.iter().map(quarantine).collect() };
        let rows = NeededRows { documents: open.clone(), ..NeededRows::default() };
        D::decide(tx, rows, |store| {
            rules::release_documents(store, quarantines(), self.how, &self.by, self.at)
        })
    }
}

/// A quarantine, as needed to close it.
fn quarantine(stored: &StoredDocument) -> OpenQuarantine {
    OpenQuarantine {
        n: stored.n,
        run: stored.document.run.clone().unwrap_or_default(),
        kind: stored.document.kind,
        reason: stored.document.reason.as_deref().map(str::to_owned),
    }
}

/// Records progress on files.
struct NoteFiles(FileNote);

impl<D: Db> Operation<D> for NoteFiles {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        let (numbers, is_unwritten) = match &self.0 {
            FileNote::SyncedTo(n) => {
                let own = ints(tx.own_epochs.iter().copied().chain([tx.epoch]));
                return tx.db.execute(&FILES_SYNCED, params![&own, *n]).map(drop);
            }
            FileNote::Restored { after, to } => {
                return tx.db.execute(&FILES_RESTORED, params![*after, *to]).map(drop);
            }
            FileNote::Unwritten(numbers) => (numbers, true),
            FileNote::Written(numbers) => (numbers, false),
        };
        let rows: Vec<_> = numbers.iter().map(|n| row![*n]).collect();
        tx.db.execute_all(&[Call::rows(&UNWRITTEN_PUT, params![is_unwritten], &rows)]).map(drop)
    }
}

fn list<D: Db>(db: &D, filter: &DocumentFilter) -> Result<Vec<StoredDocument>, D::Error> {
    let DocumentFilter { run, kind, decision, is_open, after, rows_max } = filter;
    if let (Some(DocumentKind::Quarantine), Some(run), None) = (kind, run, decision) {
        let rows = db.query(&QUARANTINE, params![run, *after, *is_open, *rows_max])?;
        return documents(&rows);
    }
    let kind = kind.map(DocumentKind::as_str);
    documents(&db.query(&LIST, params![kind, run, decision, *is_open, *after, *rows_max])?)
}

fn synced<D: Db>(db: &D, statement: &'static Statement) -> Result<(u64, u64), D::Error> {
    let row = db.query_one(statement, &[])?;
    Ok((row.num("synced_to")?, row.num("newest")?))
}

/// Parses the stored kind of a document.
pub(crate) fn document_kind<R: Columns>(row: &R) -> Result<DocumentKind, R::Error> {
    let word = row.text("kind")?;
    DocumentKind::parse(&word).ok_or_else(|| InvalidValue::unknown("document", &word).into())
}

fn documents<R: Columns>(rows: &[R]) -> Result<Vec<StoredDocument>, R::Error> {
    rows.iter().map(stored_document).collect()
}

pub(crate) fn stored_document<R: Columns>(row: &R) -> Result<StoredDocument, R::Error> {
    let released = match row.millis_opt("released_at")? {
        Some(at) => {
            let by =
                Attribution { who: row.text("released_by")?, why: row.text_opt("released_why")? };
            Some(DocumentRelease { how: row.text("released_how")?, by, at })
        }
        None => None,
    };
    Ok(StoredDocument {
        n: row.num("n")?,
        seq: row.seq("seq")?,
        of: row.seq_opt("of")?,
        at: row.millis("at")?,
        document: Document {
            kind: document_kind(row)?,
            run: Some(row.text("run")?).filter(|run| !run.is_empty()),
            id: row.text("id")?,
            identity: row.text("identity")?,
            decision: row.text("decision")?.into(),
            reason: row.text_opt("reason")?.map(Into::into),
            event_id: row.text_opt("event_id")?,
            event_type: row.text_opt("event_type")?,
            path: row.text("path")?,
            text: row.text("text")?,
        },
        superseded_by: row.num_opt("superseded_by")?,
        released,
    })
}
