//! Effects: written inside of a transaction, read outside of it.
//!
//! An effect that is intended or in flight is owned by an epoch. Only effects of a process that is known to
//! be dead, on PostgreSQL by its lease, are ever taken over; and a transaction is the only writer, so a gate
//! cannot begin an effect at the moment another one takes it over.

use std::collections::HashSet;

use admit_core::effect::{
    Attribution, Effect, EffectLogEntry, EffectState, Evidence, IllegalStep, Step, StoredReply,
};
use admit_core::{Fault, Millis, Seq, StoredDocument};
use bytes::Bytes;

use crate::db::{
    Columns, Db, InvalidValue, Operation, ReadBackend, Transaction, WriteBackend, ints, params,
    statements,
};
use crate::effects::{AdvanceError, EffectFilter, EffectReader, Effects, RecoveredEffects};
use crate::port::BoxFuture;
use crate::rules::{self, EffectStore};

statements! {
    shared GET "effect_get";
    shared HISTORY "effect_history";
    each LEFT "effect_left";
    each LIST "effects";
}

/// Maximum effects recovered in one commit: everything else waits for it.
pub(crate) const RECOVERED_MAX: usize = 1024;

/// A database with a store of effects: on SQLite every row is read and written when it is needed, on PostgreSQL
/// the rows of many decisions at once.
pub(crate) trait EffectDb: Db {
    /// The store of one transaction.
    type Store<'t>: EffectStore<Error = Self::Error>;

    /// Decides, and writes what was decided. A decision may be repeated, with other ids that are known to be
    /// used.
    fn decide<'t, T>(
        tx: &Transaction<'t, Self>,
        rows: NeededRows,
        decision: impl Fn(&mut Self::Store<'t>) -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error>
    where
        Self: Sized;

    /// Makes this gate the owner of recovered effects, so that no other one recovers them. Nothing where there is
    /// one gate.
    fn own_effects(&self, _seqs: &[i64], _epoch: u64) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Notes that recovered effects have their documents, where that is stored.
    fn note_documented(&self, _seqs: &[i64]) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The rows that a decision is known to need.
#[derive(Default)]
pub(crate) struct NeededRows {
    /// Admissions whose effects and documents are needed.
    pub(crate) seqs: HashSet<Seq>,
    /// Admissions whose facts are needed.
    pub(crate) facts: HashSet<Seq>,
    /// Effects that were read before.
    pub(crate) effects: Vec<Effect>,
    /// Documents that were read before.
    pub(crate) documents: Vec<StoredDocument>,
}

impl<B: WriteBackend<Db: EffectDb>> Effects for B {
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, Result<Effect, AdvanceError>> {
        Box::pin(async move { Ok(self.apply(Advance { seq, step, at }).await??) })
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover(&self, at: Millis) -> BoxFuture<'_, Result<RecoveredEffects, Fault>> {
        Box::pin(async move {
            let mut recovered = RecoveredEffects::default();
            if self.read(|db, _| left(db, Seq(0), 1)).await?.is_empty() {
                return Ok(recovered);
            }
            let mut after = Some(Seq(0));
            while let Some(from) = after {
                let (part, next) = self.apply(Recover { at, after: from }).await?;
                recovered.ambiguous.extend(part.ambiguous);
                recovered.intended.extend(part.intended);
                after = next;
            }
            Ok(recovered)
        })
    }
}

impl<B: ReadBackend> EffectReader for B {
    fn effect(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        self.read(move |db, _| {
            db.query_opt(&GET, params![seq])?.as_ref().map(stored_effect).transpose()
        })
    }

    fn history(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
        self.read(move |db, _| {
            db.query(&HISTORY, params![seq])?.iter().map(history_entry).collect()
        })
    }

    fn effects(&self, filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        self.read(move |db, _| {
            let EffectFilter { door, states, after, rows_max } = &filter;
            let states: Vec<&str> = states.iter().map(String::as_str).collect();
            let rows = db.query(&LIST, params![door, &states[..], *after, *rows_max])?;
            rows.iter().map(stored_effect).collect()
        })
    }
}

/// Applies a step of one effect.
struct Advance {
    seq: Seq,
    step: Step,
    at: Millis,
}

impl<D: EffectDb> Operation<D> for Advance {
    type Output = Result<Effect, IllegalStep>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        let advanced = D::decide(tx, NeededRows::default(), |store| {
            rules::advance(store, self.seq, &self.step, self.at)
        })?;
        Ok(advanced.map(|advanced| advanced.effect))
    }
}

/// Recovers effects of dead processes.
struct Recover {
    at: Millis,
    after: Seq,
}

impl<D: EffectDb> Operation<D> for Recover {
    type Output = (RecoveredEffects, Option<Seq>);

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        if !tx.may_expire_gates {
            return Ok((RecoveredEffects::default(), None));
        }
        let left = left(tx.db, self.after, RECOVERED_MAX)?;
        let next = next_page(&left);
        let rows = NeededRows { effects: left.clone(), ..NeededRows::default() };
        let recovered = D::decide(tx, rows, |store| rules::recover(store, left.clone(), self.at))?;
        let taken = recovered.intended.iter().chain(&recovered.ambiguous);
        let taken = ints(taken.map(|effect| effect.seq.0));
        if !taken.is_empty() {
            tx.db.own_effects(&taken, tx.epoch)?;
        }
        Ok((recovered, next))
    }
}

/// The cursor after a page of effects to recover; `None` after the last one.
pub(crate) fn next_page(page: &[Effect]) -> Option<Seq> {
    page.get(RECOVERED_MAX - 1).map(|last| last.seq)
}

/// Returns unfinished effects of dead processes.
fn left<D: Db>(db: &D, after: Seq, rows_max: usize) -> Result<Vec<Effect>, D::Error> {
    db.query(&LEFT, params![after, rows_max])?.iter().map(stored_effect).collect()
}

/// Reads a history line of an effect or publication.
pub(crate) fn history_entry<R: Columns>(row: &R) -> Result<EffectLogEntry, R::Error> {
    let why = row.text_opt("why")?;
    Ok(EffectLogEntry {
        at: row.millis("at")?,
        attempt: row.small("attempt")?,
        what: row.text("what")?,
        by: row.text_opt("who")?.map(|who| Attribution { who, why }),
        evidence: evidence(row)?,
    })
}

/// Reads the state of an effect or publication.
pub(crate) fn stored_state<R: Columns>(row: &R) -> Result<EffectState, R::Error> {
    let (word, attempt) = (row.text("state")?, row.small("attempt")?);
    EffectState::restore(&word, attempt, row.num_opt("epoch")?, evidence(row)?)
        .map_err(|error| InvalidValue::new(error.to_string()).into())
}

pub(crate) fn stored_effect<R: Columns>(row: &R) -> Result<Effect, R::Error> {
    let state = stored_state(row)?;
    let status = row.num_opt("reply_status")?.map(u16::try_from).transpose();
    let status = status.map_err(|_| InvalidValue::new("a reply without a status"))?;
    let reply = match (status, row.bytes_opt("reply")?) {
        (Some(status), Some(body)) => Some(StoredReply { status, body: body.into() }),
        _ => None,
    };
    Ok(Effect {
        seq: row.seq("seq")?,
        kind: row.text("kind")?,
        plan: Bytes::from(row.text("plan")?),
        state,
        reply,
    })
}

fn evidence<R: Columns>(row: &R) -> Result<Option<Evidence>, R::Error> {
    Ok(row.text_opt("evidence")?.map(Evidence::from_stored))
}
