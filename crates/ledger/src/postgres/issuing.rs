//! Recording and settling at doors that issue documents: verdict, documents and the counters of the
//! run in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use admit_core::effect::{By, Effect, Illegal};
use admit_core::{
    Door, Entry, Event, Fault, FaultKind, First, Issue, Key, Millis, Recorded, Refused, RunState,
    Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::conn::{Columns, Conn, Result, big, rows};
use super::desk::{Asked, Desk};
use super::task::{Tx, Work};
use super::{PostgresLedger, effects, issued, sql, text};
use crate::desk::{self, Recording, Told};
use crate::issuance::{Copied, FileNote, Issuance, Issuing, Kept, Settled, Settlement};
use crate::port::BoxFuture;

type Answer<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

impl Issuance for PostgresLedger {
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: Issuing,
    ) -> BoxFuture<'_, Vec<std::result::Result<Kept, Fault>>> {
        self.queue.record_issuing(batch, issuing)
    }

    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Answer<'_, Vec<std::result::Result<Settled, Illegal>>> {
        Box::pin(self.write(Settle { batch, issue, at }))
    }

    fn settle_copy(
        &self,
        copy: Recorded,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Answer<'_, Copied> {
        let work = SettleCopy { copy, first, issue, at };
        Box::pin(async move {
            let lost = "the first event under this key is not where it was left";
            self.write(work).await?.map_err(|_| Fault::new(FaultKind::Internal, lost))
        })
    }

    /// Looks first, beside the writer: most of the time nobody has left anything.
    fn recover_issuing(
        &self,
        door: Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> Answer<'_, Vec<Effect>> {
        Box::pin(async move {
            let asked = door.clone();
            let look = move |conn: &Conn, _| lost(conn, &asked, Seq(0), 1);
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
        by: By,
        at: Millis,
    ) -> Answer<'_, bool> {
        Box::pin(self.write(Release { run, id, how, by, at }))
    }

    fn issued_here(&self, after: u64, rows_max: usize) -> Answer<'_, Vec<u64>> {
        let own: Vec<i64> = self.epochs.all().into_iter().map(big).collect();
        Box::pin(self.readers.read(move |conn, _| {
            let numbers = conn.query(sql!("issued_here"), &[&own, &big(after), &rows(rows_max)])?;
            numbers.iter().map(|row| row.num("n")).collect()
        }))
    }

    fn note_files(&self, note: FileNote) -> Answer<'_, ()> {
        Box::pin(self.write(NoteFiles(note)))
    }

    fn turn_run(&self, id: String, from: RunState, to: RunState, at: Millis) -> Answer<'_, bool> {
        Box::pin(self.write(TurnRun { id, from, to, at }))
    }
}

impl Batch<'_> {
    /// Records one entry of a door that issues. After an error the transaction is rolled back.
    pub(super) fn issuing(
        &mut self,
        entry: &Entry,
        issue: &dyn Issue,
    ) -> std::result::Result<(Verdict, Told), BatchError> {
        desk::record(self, entry, issue)
    }
}

impl<'c> Recording for Batch<'c> {
    type Error = BatchError;
    type Desk = Desk<'c>;

    fn poisoned(fault: Fault) -> BatchError {
        BatchError::Poisoned(fault)
    }

    fn desk(&mut self) -> &mut Desk<'c> {
        &mut self.desk
    }

    fn first(&mut self, key: &Key) -> std::result::Result<Option<First>, BatchError> {
        Ok(Batch::first(self, key))
    }

    fn admit(&mut self, event: &Event) -> std::result::Result<(Verdict, Seq), BatchError> {
        Batch::admit(self, event, None)
    }

    fn conflict(
        &mut self,
        event: &Event,
        first: First,
    ) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::conflict(self, event, first)?)
    }

    fn sighting(&mut self, event: &Event, first: Seq) -> std::result::Result<Seq, BatchError> {
        Ok(Batch::sighting(self, first, event, None))
    }

    fn refused(&mut self, refused: &Refused) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::refused(self, refused)?)
    }
}

/// Moving effects on, for the writer.
struct Settle {
    batch: Vec<Settlement>,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl Work for Settle {
    type Answer = Vec<std::result::Result<Settled, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let mut desk = Desk::of(tx);
        let factless = self.batch.iter().filter(|settlement| settlement.facts.is_none());
        desk.fetch(Asked {
            seqs: self.batch.iter().map(|settlement| settlement.seq).collect(),
            facts: factless.map(|settlement| settlement.seq).collect(),
            runs: HashSet::new(),
        })?;
        let settled = desk.decide(|desk| desk::settle(desk, &self.batch, &*self.issue, self.at))?;
        tx.position.last_issued = desk.flush()?;
        Ok(settled)
    }
}

/// Saying what there is to say about a copy that has waited, for the writer.
struct SettleCopy {
    copy: Recorded,
    first: Seq,
    issue: Arc<dyn Issue>,
    at: Millis,
}

impl Work for SettleCopy {
    type Answer = std::result::Result<Copied, Illegal>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let mut desk = Desk::of(tx);
        let first = HashSet::from([self.first]);
        desk.fetch(Asked { seqs: first.clone(), facts: first, runs: HashSet::new() })?;
        let copied = desk.decide(|desk| {
            desk::settle_copy(desk, &self.copy, self.first, &*self.issue, self.at)
        })?;
        tx.position.last_issued = desk.flush()?;
        Ok(copied)
    }
}

/// What a door had in flight in gates whose leases have ended, and what was lost without a word.
fn lost(conn: &Conn, door: &Door, after: Seq, rows_max: usize) -> Result<Vec<Effect>> {
    let asked = [&door.as_str() as _, &big(after.0) as _, &rows(rows_max) as _];
    let lost = conn.query(sql!("effect_lost_of_door"), &asked)?;
    lost.iter().map(effects::effect_row).collect()
}

/// Looking after what such gates had in flight at one door, for the writer.
struct RecoverDoor {
    door: Door,
    issue: Arc<dyn Issue>,
    at: Millis,
    after: Seq,
}

impl Work for RecoverDoor {
    type Answer = (Vec<Effect>, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        if !tx.may_judge {
            return Ok((Vec::new(), None));
        }
        let lost = lost(tx.conn, &self.door, self.after, effects::RECOVERED_MAX)?;
        let seqs: HashSet<Seq> = lost.iter().map(|effect| effect.seq).collect();
        let mut desk = Desk::of(tx);
        desk.fetch(Asked { seqs: seqs.clone(), facts: seqs, runs: HashSet::new() })?;
        let recovered =
            desk.decide(|desk| desk::recover_door(desk, lost.clone(), &*self.issue, self.at))?;
        tx.position.last_issued = desk.flush()?;
        let said: Vec<i64> = recovered.iter().map(|effect| big(effect.seq.0)).collect();
        if !said.is_empty() {
            tx.conn.execute(sql!("effect_said"), &[&said])?;
        }
        Ok((recovered, effects::next(&lost)))
    }
}

/// Letting a quarantine go, for the writer.
struct Release {
    run: String,
    id: String,
    how: &'static str,
    by: By,
    at: Millis,
}

impl Work for Release {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool> {
        let open = issued::open_named(tx.conn, &self.run, &self.id)?;
        let mut desk = Desk::of(tx);
        let quarantines = open.iter().map(issued::open).collect();
        open.into_iter().for_each(|filed| desk.knows_document(filed));
        let any = desk::let_go(&mut desk, quarantines, self.how, &self.by, self.at)?;
        desk.flush()?;
        Ok(any)
    }
}

/// Noting what is known about files, for the writer.
struct NoteFiles(FileNote);

impl Work for NoteFiles {
    type Answer = ();

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

/// Changing whether a run takes events, for the writer.
struct TurnRun {
    id: String,
    from: RunState,
    to: RunState,
    at: Millis,
}

impl Work for TurnRun {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool> {
        turn_run(tx.conn, &self.id, self.from, self.to, self.at)
    }
}

/// Turns a run from one state to another. `false` when it is not in that state.
pub(super) fn turn_run(
    conn: &Conn,
    run: &str,
    from: RunState,
    to: RunState,
    at: Millis,
) -> Result<bool> {
    let row = [&text::kept(run) as _, &from.as_str() as _, &to.as_str() as _, &at.0 as _];
    Ok(conn.execute(sql!("run_state"), &row)? > 0)
}
