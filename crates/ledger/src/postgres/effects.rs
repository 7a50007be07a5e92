//! Effects: written inside the writer's transaction, read outside of it.
//!
//! An effect that is intended or in flight is owned by an epoch. Only effects of a gate whose lease has ended
//! are ever taken over, and since every transaction holds the head lock, a gate cannot begin an effect at
//! the moment another one takes it over.

use admit_core::effect::{
    Attribution, Effect, EffectLogEntry, EffectState, Evidence, IllegalStep, Step, StoredReply,
};
use admit_core::{Fault, Millis, Seq};
use bytes::Bytes;
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::effect_store::PgEffectStore;
use super::read_ports::read_port;
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, sql};
use crate::effects::{AdvanceError, EffectFilter, EffectReader, Effects, RecoveredEffects};
use crate::port::BoxFuture;
use crate::rules;

impl Effects for PostgresLedger {
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Effect, AdvanceError>> {
        Box::pin(async move { Ok(self.write(Advance { seq, step, at }).await??) })
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover(&self, at: Millis) -> BoxFuture<'_, std::result::Result<RecoveredEffects, Fault>> {
        Box::pin(async move {
            let mut recovered = RecoveredEffects::default();
            if self.readers.read(|conn, _| left(conn, Seq(0), 1)).await?.is_empty() {
                return Ok(recovered);
            }
            let mut after = Some(Seq(0));
            while let Some(from) = after {
                let (part, next) = self.write(Recover { at, after: from }).await?;
                recovered.ambiguous.extend(part.ambiguous);
                recovered.intended.extend(part.intended);
                after = next;
            }
            Ok(recovered)
        })
    }
}

read_port!(EffectReader {
    fn effect(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Option<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| get(conn, seq)))
    }

    fn history(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Vec<EffectLogEntry>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| history(conn, seq)))
    }

    fn effects(
        &self,
        filter: EffectFilter,
    ) -> BoxFuture<'_, std::result::Result<Vec<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| list(conn, &filter)))
    }
});

/// Applies a step of one effect.
struct Advance {
    seq: Seq,
    step: Step,
    at: Millis,
}

impl WriteOp for Advance {
    type Output = std::result::Result<Effect, IllegalStep>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        let mut store = PgEffectStore::of(tx);
        let advanced = rules::advance(&mut store, self.seq, &self.step, self.at)?;
        store.flush()?;
        Ok(advanced.map(|advanced| advanced.effect))
    }
}

/// Recovers effects of gates whose leases have ended.
struct Recover {
    at: Millis,
    after: Seq,
}

impl WriteOp for Recover {
    type Output = (RecoveredEffects, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        if !tx.may_recover_others {
            return Ok((RecoveredEffects::default(), None));
        }
        let left = left(tx.conn, self.after, RECOVERED_MAX)?;
        let next = next(&left);
        let mut store = PgEffectStore::of(tx);
        left.iter().for_each(|effect| store.insert_effect(effect));
        let recovered = rules::recover(&mut store, left, self.at)?;
        store.flush()?;
        let taken = recovered.intended.iter().chain(&recovered.ambiguous);
        let taken: Vec<i64> = taken.map(|effect| big(effect.seq.0)).collect();
        if !taken.is_empty() {
            tx.conn.execute(sql!("effect_own"), &[&taken, &big(tx.epoch)])?;
        }
        Ok((recovered, next))
    }
}

/// Maximum effects recovered in one commit: everything else waits for it.
pub(super) const RECOVERED_MAX: usize = 1024;

/// The cursor after a page of effects to recover; `None` after the last one.
pub(super) fn next(page: &[Effect]) -> Option<Seq> {
    page.get(RECOVERED_MAX - 1).map(|last| last.seq)
}

/// Returns unfinished effects of gates whose leases have ended.
fn left(conn: &Conn, after: Seq, rows_max: usize) -> Result<Vec<Effect>> {
    let left = conn.query(sql!("effect_left"), &[&big(after.0), &rows(rows_max)])?;
    left.iter().map(effect_row).collect()
}

fn get(conn: &Conn, seq: Seq) -> Result<Option<Effect>> {
    conn.query_opt(sql!("effect_get"), &[&big(seq.0)])?.as_ref().map(effect_row).transpose()
}

fn history(conn: &Conn, seq: Seq) -> Result<Vec<EffectLogEntry>> {
    let lines = conn.query(sql!("effect_history"), &[&big(seq.0)])?;
    lines.iter().map(passage_row).collect()
}

/// Reads a history line of an effect or publication.
pub(super) fn passage_row(row: &Row) -> Result<EffectLogEntry> {
    let why = row.text_opt("why")?;
    Ok(EffectLogEntry {
        at: row.millis("at")?,
        attempt: row.small("attempt")?,
        what: row.text("what")?,
        by: row.text_opt("who")?.map(|who| Attribution { who, why }),
        evidence: evidence(row)?,
    })
}

fn list(conn: &Conn, filter: &EffectFilter) -> Result<Vec<Effect>> {
    let states = (!filter.states.is_empty()).then_some(&filter.states);
    let (after, rows_max) = (big(filter.after.0), rows(filter.rows_max));
    let effects = conn.query(sql!("effects"), &[&filter.door, &states, &after, &rows_max])?;
    effects.iter().map(effect_row).collect()
}

fn evidence(row: &Row) -> Result<Option<Evidence>> {
    Ok(row.text_opt("evidence")?.map(Evidence::from_stored))
}

/// Reads the state of an effect or publication.
pub(super) fn standing(row: &Row) -> Result<EffectState> {
    let word = row.text("state")?;
    let epoch = row.num_opt("epoch")?;
    EffectState::restore(&word, row.small("attempt")?, epoch, evidence(row)?)
        .map_err(|error| Error::Unexpected(error.to_string()))
}

pub(super) fn effect_row(row: &Row) -> Result<Effect> {
    let state = standing(row)?;
    let status = row.num_opt("reply_status")?.map(u16::try_from).transpose();
    let status = status.map_err(|_| Error::Unexpected("a reply without a status".to_owned()))?;
    let reply = match (status, row.val::<Option<Vec<u8>>>("reply")?) {
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
