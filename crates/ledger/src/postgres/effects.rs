//! Effects: written inside the writer's transaction, read beside it.
//!
//! An effect has an owner while it is in work: the start of the gate that has it in flight, or is
//! about to. Only what belonged to a gate whose lease has ended is ever taken over, and since every
//! transaction holds the head, a gate cannot begin what another takes from it in the same moment.

use admit_core::effect::{By, Effect, Evidence, Illegal, Passage, Standing, Step, StoredReply};
use admit_core::{Fault, Millis, Seq};
use bytes::Bytes;
use tokio_postgres::Row;

use super::answers::answering;
use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::desk::Desk;
use super::task::{Tx, Work};
use super::{PostgresLedger, sql};
use crate::desk;
use crate::effects::{AdvanceError, EffectFilter, EffectReader, Effects, Recovered};
use crate::port::BoxFuture;

impl Effects for PostgresLedger {
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Effect, AdvanceError>> {
        Box::pin(async move { Ok(self.write(Advance { seq, step, at }).await??) })
    }

    /// Looks first, beside the writer: most of the time nobody has left anything.
    fn recover(&self, at: Millis) -> BoxFuture<'_, std::result::Result<Recovered, Fault>> {
        Box::pin(async move {
            let mut recovered = Recovered::default();
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

answering!(EffectReader {
    fn effect(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Option<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| get(conn, seq)))
    }

    fn history(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Vec<Passage>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| history(conn, seq)))
    }

    fn effects(
        &self,
        filter: EffectFilter,
    ) -> BoxFuture<'_, std::result::Result<Vec<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| list(conn, &filter)))
    }
});

/// A step of one effect, for the writer.
struct Advance {
    seq: Seq,
    step: Step,
    at: Millis,
}

impl Work for Advance {
    type Answer = std::result::Result<Effect, Illegal>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let mut desk = Desk::of(tx);
        let stepped = desk::advance(&mut desk, self.seq, &self.step, self.at)?;
        desk.flush()?;
        Ok(stepped.map(|stepped| stepped.effect))
    }
}

/// Looking after what gates left whose leases have ended, for the writer.
struct Recover {
    at: Millis,
    after: Seq,
}

impl Work for Recover {
    type Answer = (Recovered, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        if !tx.may_judge {
            return Ok((Recovered::default(), None));
        }
        let left = left(tx.conn, self.after, RECOVERED_MAX)?;
        let next = next(&left);
        let mut desk = Desk::of(tx);
        left.iter().for_each(|effect| desk.knows(effect));
        let recovered = desk::recover(&mut desk, left, self.at)?;
        desk.flush()?;
        let taken = recovered.intended.iter().chain(&recovered.ambiguous);
        let taken: Vec<i64> = taken.map(|effect| big(effect.seq.0)).collect();
        if !taken.is_empty() {
            tx.conn.execute(sql!("effect_own"), &[&taken, &big(tx.epoch)])?;
        }
        Ok((recovered, next))
    }
}

/// Most effects that are looked after in one commit: everything else waits for it.
pub(super) const RECOVERED_MAX: usize = 1024;

/// Where to go on after a page of what was left; `None` where it was the last.
pub(super) fn next(page: &[Effect]) -> Option<Seq> {
    page.get(RECOVERED_MAX - 1).map(|last| last.seq)
}

/// What gates left in work whose leases have ended.
fn left(conn: &Conn, after: Seq, rows_max: usize) -> Result<Vec<Effect>> {
    let left = conn.query(sql!("effect_left"), &[&big(after.0), &rows(rows_max)])?;
    left.iter().map(effect_row).collect()
}

fn get(conn: &Conn, seq: Seq) -> Result<Option<Effect>> {
    conn.query_opt(sql!("effect_get"), &[&big(seq.0)])?.as_ref().map(effect_row).transpose()
}

fn history(conn: &Conn, seq: Seq) -> Result<Vec<Passage>> {
    let lines = conn.query(sql!("effect_history"), &[&big(seq.0)])?;
    lines.iter().map(passage_row).collect()
}

/// A line of history, of whatever takes the steps of an effect.
pub(super) fn passage_row(row: &Row) -> Result<Passage> {
    let why = row.text_opt("why")?;
    Ok(Passage {
        at: row.millis("at")?,
        attempt: row.small("attempt")?,
        what: row.text("what")?,
        by: row.text_opt("who")?.map(|who| By { who, why }),
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

/// Where an effect stands, or whatever takes its steps.
pub(super) fn standing(row: &Row) -> Result<Standing> {
    let word = row.text("state")?;
    let epoch = row.num_opt("epoch")?;
    Standing::restore(&word, row.small("attempt")?, epoch, evidence(row)?)
        .map_err(|error| Error::NotOurs(error.to_string()))
}

pub(super) fn effect_row(row: &Row) -> Result<Effect> {
    let standing = standing(row)?;
    let status = row.num_opt("reply_status")?.map(u16::try_from).transpose();
    let status = status.map_err(|_| Error::NotOurs("a reply without a status".to_owned()))?;
    let reply = match (status, row.val::<Option<Vec<u8>>>("reply")?) {
        (Some(status), Some(body)) => Some(StoredReply { status, body: body.into() }),
        _ => None,
    };
    Ok(Effect {
        seq: row.seq("seq")?,
        kind: row.text("kind")?,
        plan: Bytes::from(row.text("plan")?),
        standing,
        reply,
    })
}
