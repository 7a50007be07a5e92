//! Effects: written inside the writer's transaction, read outside of it.

use admit_core::effect::{
    Attribution, Effect, EffectLogEntry, EffectState, Evidence, IllegalStep, Step, StoredReply,
};
use admit_core::{Millis, Seq};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::effect_store::SqliteEffectStore;
use super::queries;
use super::write_op::{Tx, WriteOp};
use crate::effects::{EffectFilter, RecoveredEffects};
use crate::rules::{self, HistoryLine, evidence_text};

/// Applies a step of one effect.
pub(super) struct Advance {
    pub(super) epoch: u64,
    pub(super) seq: Seq,
    pub(super) step: Step,
    pub(super) at: Millis,
}

impl WriteOp for Advance {
    type Output = Result<Effect, IllegalStep>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let mut store = SqliteEffectStore::new(tx.conn, self.epoch);
        let advanced = rules::advance(&mut store, self.seq, &self.step, self.at)?;
        Ok(advanced.map(|advanced| advanced.effect))
    }
}

/// Recovers effects of earlier processes.
pub(super) struct Recover {
    pub(super) epoch: u64,
    pub(super) at: Millis,
}

impl WriteOp for Recover {
    type Output = RecoveredEffects;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let open: Vec<Effect> = tx
            .conn
            .prepare_cached(queries::EFFECT_OPEN)?
            .query_map([], effect_row)?
            .collect::<Result<_, _>>()?;
        rules::recover(&mut SqliteEffectStore::new(tx.conn, self.epoch), open, self.at)
    }
}

pub(super) fn get(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<Effect>> {
    conn.prepare_cached(queries::EFFECT_GET)?.query_row([seq.0], effect_row).optional()
}

pub(super) fn history(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<EffectLogEntry>> {
    conn.prepare_cached(queries::EFFECT_HISTORY)?.query_map([seq.0], passage_row)?.collect()
}

/// Reads a history line of an effect or publication.
pub(super) fn passage_row(row: &Row<'_>) -> rusqlite::Result<EffectLogEntry> {
    let who: Option<String> = row.get("who")?;
    let why = row.get("why")?;
    Ok(EffectLogEntry {
        at: Millis(row.get("at")?),
        attempt: row.get("attempt")?,
        what: row.get("what")?,
        by: who.map(|who| Attribution { who, why }),
        evidence: evidence(row)?,
    })
}

pub(super) fn list(conn: &Connection, filter: &EffectFilter) -> rusqlite::Result<Vec<Effect>> {
    let states = (!filter.states.is_empty()).then(|| format!(" {} ", filter.states.join(" ")));
    let rows_max = i64::try_from(filter.rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::EFFECTS)?
        .query_map((&filter.door, states, filter.after.0, rows_max), effect_row)?
        .collect()
}

pub(super) fn insert(conn: &Connection, effect: &Effect, at: Millis) -> rusqlite::Result<()> {
    let Effect { seq, kind, plan, state, .. } = effect;
    let plan = str::from_utf8(plan).expect("json is written as utf-8");
    let row = (seq.0, kind, plan, state.word(), state.attempt(), state.epoch(), at.0);
    conn.prepare_cached(queries::EFFECT_INSERT)?.execute(row)?;
    Ok(())
}

/// Appends a line to the history that `query` writes to.
pub(super) fn note(
    conn: &Connection,
    query: &str,
    epoch: u64,
    of: u64,
    line: &HistoryLine<'_>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(query)?.execute((
        of,
        line.at.0,
        line.attempt,
        line.what,
        epoch,
        line.by.map(|by| by.who.as_str()),
        line.by.and_then(|by| by.why.as_deref()),
        line.evidence.map(evidence_text),
    ))?;
    Ok(())
}

pub(super) fn update(
    conn: &Connection,
    seq: Seq,
    state: &EffectState,
    at: Millis,
    reply: Option<&StoredReply>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(queries::EFFECT_UPDATE)?.execute((
        seq.0,
        state.word(),
        state.attempt(),
        state.epoch(),
        state.evidence().map(evidence_text),
        at.0,
        reply.map(|reply| reply.status),
        reply.map(|reply| &reply.body[..]),
    ))?;
    Ok(())
}

pub(super) fn evidence(row: &Row<'_>) -> rusqlite::Result<Option<Evidence>> {
    Ok(row.get::<_, Option<String>>("evidence")?.map(Evidence::from_stored))
}

pub(super) fn effect_row(row: &Row<'_>) -> rusqlite::Result<Effect> {
    let word = row.get_ref("state")?.as_str()?;
    let state = EffectState::restore(word, row.get("attempt")?, row.get("epoch")?, evidence(row)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, error.into()))?;
    let reply = match (row.get("reply_status")?, row.get::<_, Option<Vec<u8>>>("reply")?) {
        (Some(status), Some(body)) => Some(StoredReply { status, body: body.into() }),
        _ => None,
    };
    Ok(Effect {
        seq: Seq(row.get("seq")?),
        kind: row.get("kind")?,
        plan: Bytes::from(row.get::<_, String>("plan")?),
        state,
        reply,
    })
}
