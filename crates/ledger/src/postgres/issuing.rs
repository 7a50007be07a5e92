//! Recording and settling at doors that issue documents: verdict, documents and the counters of the
//! run in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use admit_core::effect::{Attribution, Effect, IllegalStep};
use admit_core::{
    Door, Entry, Event, Fault, FaultKind, Issue, Key, Millis, PriorAdmission, RecordedEntry,
    RefusedSubmission, RunState, Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::conn::{Columns, Conn, Result, big, rows};
use super::effect_store::{PgEffectStore, PrefetchRequest};
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, effects, issued, nul_escape, sql};
use crate::issuance::{
    FileNote, Issuance, IssueHandlers, RecordedDelivery, SettledCopy, SettledEffect, Settlement,
};
use crate::port::BoxFuture;
use crate::rules::{self, IssueResult, Recording};

type Reply<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

impl Issuance for PostgresLedger {
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<std::result::Result<RecordedDelivery, Fault>>> {
        self.queue.record_issuing(batch, issuing)
    }

    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Reply<'_, Vec<std::result::Result<SettledEffect, IllegalStep>>> {
        Box::pin(self.write(Settle { batch, issue, at }))
    }

    fn settle_copy(
        &self,
        copy: RecordedEntry,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Reply<'_, SettledCopy> {
        let work = SettleCopy { copy, first, issue, at };
        Box::pin(async move {
            let lost =
                "the effect of the first event under this key is missing or changed concurrently";
            self.write(work).await?.map_err(|_| Fault::new(FaultKind::Internal, lost))
        })
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover_issuing(
        &self,
        door: Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Reply<'_, Vec<Effect>> {
        Box::pin(async move {
            let request = door.clone();
            let look = move |conn: &Conn, _| lost(conn, &request, Seq(0), 1);
            let mut recovered = Vec::new();
            if self.readers.read(look).await?.is_empty() {
                return Ok(recovered);
            }
            let mut after = Some(Seq(0));
            while let Some(from) = after {
                let (door, issue) = (door.clone(), Arc::clone(&issue));
                let (part, next) = self.write(RecoverDoor { door, issue, at, after: from }).await?;
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
    ) -> Reply<'_, bool> {
        Box::pin(self.write(Release { run, id, how, by, at }))
    }

    fn issued_here(&self, after: u64, rows_max: usize) -> Reply<'_, Vec<u64>> {
        let own: Vec<i64> = self.epochs.all().into_iter().map(big).collect();
        Box::pin(self.readers.read(move |conn, _| {
            let numbers = conn.query(sql!("issued_here"), &[&own, &big(after), &rows(rows_max)])?;
            numbers.iter().map(|row| row.num("n")).collect()
        }))
    }

    fn note_files(&self, note: FileNote) -> Reply<'_, ()> {
        Box::pin(self.write(NoteFiles(note)))
    }

    fn turn_run(&self, id: String, from: RunState, to: RunState, at: Millis) -> Reply<'_, bool> {
        Box::pin(self.write(TurnRun { id, from, to, at }))
    }
}

impl Batch<'_> {
    /// Records one entry of a door that issues. After an error the transaction is rolled back.
    pub(super) fn issuing(
        &mut self,
        entry: &Entry,
        issue: &dyn Issue,
    ) -> std::result::Result<(Verdict, IssueResult), BatchError> {
        rules::record(self, entry, issue)
    }
}

impl<'c> Recording for Batch<'c> {
    type Error = BatchError;
    type Store = PgEffectStore<'c>;

    fn poisoned(fault: Fault) -> BatchError {
        BatchError::Poisoned(fault)
    }

    fn store(&mut self) -> &mut PgEffectStore<'c> {
        &mut self.store
    }

    fn first(&mut self, key: &Key) -> std::result::Result<Option<PriorAdmission>, BatchError> {
        Ok(Batch::first(self, key))
    }

    fn same_content(&mut self, event: &Event) -> std::result::Result<Option<Seq>, BatchError> {
        Ok(Batch::same_content(self, event)?)
    }

    fn admit(
        &mut self,
        event: &Event,
        first: Option<PriorAdmission>,
    ) -> std::result::Result<(Verdict, Seq), BatchError> {
        Batch::admit(self, event, first)
    }

    fn conflict(
        &mut self,
        event: &Event,
        first: PriorAdmission,
    ) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::conflict(self, event, first)?)
    }

    fn sighting(&mut self, event: &Event, first: Seq) -> std::result::Result<Seq, BatchError> {
        Ok(Batch::sighting(self, first, event, None))
    }

    fn refused(&mut self, refused: &RefusedSubmission) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::refused(self, refused)?)
    }
}

/// Advances effects.
struct Settle {
    batch: Vec<Settlement>,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl WriteOp for Settle {
    type Output = Vec<std::result::Result<SettledEffect, IllegalStep>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        let mut store = PgEffectStore::of(tx);
        let factless = self.batch.iter().filter(|settlement| settlement.facts.is_none());
        store.fetch(PrefetchRequest {
            seqs: self.batch.iter().map(|settlement| settlement.seq).collect(),
            facts: factless.map(|settlement| settlement.seq).collect(),
            runs: HashSet::new(),
        })?;
        let settled =
            store.decide(|store| rules::settle(store, &self.batch, &*self.issue, self.at))?;
        tx.position.last_issued = store.flush()?;
        Ok(settled)
    }
}

/// Issues the documents of a copy that waited.
struct SettleCopy {
    copy: RecordedEntry,
    first: Seq,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl WriteOp for SettleCopy {
    type Output = std::result::Result<SettledCopy, IllegalStep>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        let mut store = PgEffectStore::of(tx);
        let first = HashSet::from([self.first]);
        store.fetch(PrefetchRequest { seqs: first.clone(), facts: first, runs: HashSet::new() })?;
        let copied = store.decide(|store| {
            rules::settle_copy(store, &self.copy, self.first, &*self.issue, self.at)
        })?;
        tx.position.last_issued = store.flush()?;
        Ok(copied)
    }
}

/// Returns what a door had in flight in gates whose leases have ended, and outcomes without documents.
fn lost(conn: &Conn, door: &Door, after: Seq, rows_max: usize) -> Result<Vec<Effect>> {
    let request = [&door.as_str() as _, &big(after.0) as _, &rows(rows_max) as _];
    let lost = conn.query(sql!("effect_lost_of_door"), &request)?;
    lost.iter().map(effects::effect_row).collect()
}

/// Recovers those effects of one door.
struct RecoverDoor {
    door: Door,
    issue: Arc<dyn Issue>,
    at: Millis,
    after: Seq,
}

impl WriteOp for RecoverDoor {
    type Output = (Vec<Effect>, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        if !tx.may_recover_others {
            return Ok((Vec::new(), None));
        }
        let lost = lost(tx.conn, &self.door, self.after, effects::RECOVERED_MAX)?;
        let seqs: HashSet<Seq> = lost.iter().map(|effect| effect.seq).collect();
        let mut store = PgEffectStore::of(tx);
        store.fetch(PrefetchRequest { seqs: seqs.clone(), facts: seqs, runs: HashSet::new() })?;
        let recovered = store
            .decide(|store| rules::recover_door(store, lost.clone(), &*self.issue, self.at))?;
        tx.position.last_issued = store.flush()?;
        let documented: Vec<i64> = recovered.iter().map(|effect| big(effect.seq.0)).collect();
        if !documented.is_empty() {
            tx.conn.execute(sql!("effect_documented"), &[&documented])?;
        }
        Ok((recovered, effects::next(&lost)))
    }
}

/// Releases a quarantine.
struct Release {
    run: String,
    id: String,
    how: &'static str,
    by: Attribution,
    at: Millis,
}

impl WriteOp for Release {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool> {
        let open = issued::open_named(tx.conn, &self.run, &self.id)?;
        let mut store = PgEffectStore::of(tx);
        let quarantines = open.iter().map(issued::open).collect();
        open.into_iter().for_each(|filed| store.insert_document(filed));
        let any = rules::release_documents(&mut store, quarantines, self.how, &self.by, self.at)?;
        store.flush()?;
        Ok(any)
    }
}

/// Records progress on files.
struct NoteFiles(FileNote);

impl WriteOp for NoteFiles {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let (numbers, is_unwritten) = match &self.0 {
            FileNote::SyncedTo(n) => {
                let own: Vec<i64> = tx.own.iter().copied().chain([tx.epoch]).map(big).collect();
                tx.conn.execute(sql!("gate_synced"), &[&own, &big(*n)])?;
                return Ok(());
            }
            FileNote::Restored { after, to } => {
                tx.conn.execute(sql!("gate_restored"), &[&big(*after), &big(*to)])?;
                return Ok(());
            }
            FileNote::Unwritten(numbers) => (numbers, true),
            FileNote::Written(numbers) => (numbers, false),
        };
        let numbers: Vec<i64> = numbers.iter().map(|n| big(*n)).collect();
        let flag = i64::from(is_unwritten);
        tx.conn.execute(sql!("issued_unwritten_put"), &[&numbers, &flag])?;
        Ok(())
    }
}

/// Changes whether a run accepts events.
struct TurnRun {
    id: String,
    from: RunState,
    to: RunState,
    at: Millis,
}

impl WriteOp for TurnRun {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool> {
        turn_run(tx.conn, &self.id, self.from, self.to, self.at)
    }
}

/// Changes the state of a run. Returns `false` if it is not in the state `from`.
pub(super) fn turn_run(
    conn: &Conn,
    run: &str,
    from: RunState,
    to: RunState,
    at: Millis,
) -> Result<bool> {
    let row = [&nul_escape::escape(run) as _, &from.as_str() as _, &to.as_str() as _, &at.0 as _];
    Ok(conn.execute(sql!("run_state"), &row)? > 0)
}
