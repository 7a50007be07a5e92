//! Effects in the file: written inside the writer's transaction, read beside it.

use admit_core::effect::{
    By, Effect, Evidence, Illegal, Passage, Standing, Step, StoredReply, advance as lead,
};
use admit_core::json::{self, Object};
use admit_core::{Intent, Millis, Seq};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::queries;
use super::task::{Tx, Work};
use crate::effects::{EffectFilter, Recovered};

/// What a lost attempt rests on.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// Writes the effect of the admission at `seq`, in its commit.
pub(super) fn insert(
    conn: &Connection,
    epoch: u64,
    seq: Seq,
    intent: &Intent,
    at: Millis,
) -> rusqlite::Result<()> {
    let standing = intent.starts.standing(epoch);
    let mut plan = Vec::new();
    json::write_object(&intent.plan, &mut plan);
    let plan = String::from_utf8(plan).expect("json is written as utf-8");
    let (word, attempt) = (standing.word(), standing.attempt());
    let row = (seq.0, intent.kind, plan, word, attempt, standing.epoch(), at.0);
    conn.prepare_cached(queries::EFFECT_INSERT)?.execute(row)?;
    note(
        conn,
        queries::EFFECT_NOTE,
        epoch,
        seq.0,
        &Line { at, attempt, what: word, by: None, evidence: None },
    )
}

/// A step of one effect, for the writer.
pub(super) struct Advance {
    pub(super) epoch: u64,
    pub(super) seq: Seq,
    pub(super) step: Step,
    pub(super) at: Millis,
}

impl Work for Advance {
    type Answer = Result<Effect, Illegal>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let stepped = advance(tx.conn, self.epoch, self.seq, &self.step, self.at)?;
        Ok(stepped.map(|stepped| stepped.effect))
    }
}

/// Looking after what earlier processes left, for the writer.
pub(super) struct Recover {
    pub(super) epoch: u64,
    pub(super) at: Millis,
}

impl Work for Recover {
    type Answer = Recovered;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        recover(tx.conn, self.epoch, self.at)
    }
}

/// An effect after a step, and the state it was in before.
pub(super) struct Stepped {
    pub(super) before: &'static str,
    pub(super) effect: Effect,
}

/// Takes one step inside an open transaction. An illegal one writes nothing.
pub(super) fn advance(
    conn: &Connection,
    epoch: u64,
    seq: Seq,
    step: &Step,
    at: Millis,
) -> rusqlite::Result<Result<Stepped, Illegal>> {
    let Some(mut effect) = get(conn, seq)? else { return Ok(Err(Illegal::NoEffect)) };
    let before = effect.standing.word();
    let standing = match lead(effect.standing.clone(), step, epoch) {
        Ok(standing) => standing,
        Err(illegal) => return Ok(Err(illegal)),
    };
    let mut line = Line {
        at,
        attempt: standing.attempt(),
        what: standing.word(),
        by: None,
        evidence: standing.evidence(),
    };
    let mut said = None;
    match step {
        Step::Begin { .. } | Step::Renew => {}
        Step::Settle { attempt, reply, .. } => said = reply.as_ref().filter(|_| *attempt == 1),
        Step::Evidence { attempt, evidence } => {
            (line.attempt, line.what, line.evidence) = (*attempt, "evidence", Some(evidence));
        }
        Step::Replay(by) | Step::Reconcile { by, .. } => line.by = Some(by),
    }
    note(conn, queries::EFFECT_NOTE, epoch, seq.0, &line)?;
    if !matches!(step, Step::Evidence { .. }) {
        update(conn, seq, &standing, at, said)?;
    }
    effect.reply = effect.reply.or_else(|| said.cloned());
    effect.standing = standing;
    Ok(Ok(Stepped { before, effect }))
}

/// What earlier processes left: in flight becomes ambiguous, intended is handed back.
fn recover(conn: &Connection, epoch: u64, at: Millis) -> rusqlite::Result<Recovered> {
    let open: Vec<Effect> = conn
        .prepare_cached(queries::EFFECT_OPEN)?
        .query_map([], effect_row)?
        .collect::<Result<_, _>>()?;
    let mut left = Recovered::default();
    for mut effect in open {
        let before = effect.standing.word();
        effect = recovered(conn, epoch, effect, at)?;
        match effect.standing {
            Standing::Intended(_) => left.intended.push(effect),
            Standing::Ambiguous(_) if before != "ambiguous" => left.ambiguous.push(effect),
            Standing::Withheld(_)
            | Standing::InFlight(_)
            | Standing::Done(_)
            | Standing::Refused(_)
            | Standing::Ambiguous(_) => {}
        }
    }
    Ok(left)
}

/// One effect after the process that may have been performing it is gone.
pub(super) fn recovered(
    conn: &Connection,
    epoch: u64,
    mut effect: Effect,
    at: Millis,
) -> rusqlite::Result<Effect> {
    let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
    let standing = effect.standing.clone().recovered(epoch, evidence);
    if standing != effect.standing {
        let (attempt, what) = (standing.attempt(), standing.word());
        let line = Line { at, attempt, what, by: None, evidence: standing.evidence() };
        note(conn, queries::EFFECT_NOTE, epoch, effect.seq.0, &line)?;
        update(conn, effect.seq, &standing, at, None)?;
        effect.standing = standing;
    }
    Ok(effect)
}

pub(super) fn get(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<Effect>> {
    conn.prepare_cached(queries::EFFECT_GET)?.query_row([seq.0], effect_row).optional()
}

pub(super) fn history(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<Passage>> {
    conn.prepare_cached(queries::EFFECT_HISTORY)?.query_map([seq.0], passage_row)?.collect()
}

/// A line of history, of whatever takes the steps of an effect.
pub(super) fn passage_row(row: &Row<'_>) -> rusqlite::Result<Passage> {
    let who: Option<String> = row.get("who")?;
    let why = row.get("why")?;
    Ok(Passage {
        at: Millis(row.get("at")?),
        attempt: row.get("attempt")?,
        what: row.get("what")?,
        by: who.map(|who| By { who, why }),
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

/// One line of history, before it has a number.
pub(super) struct Line<'a> {
    pub(super) at: Millis,
    pub(super) attempt: u32,
    pub(super) what: &'static str,
    pub(super) by: Option<&'a By>,
    pub(super) evidence: Option<&'a Evidence>,
}

/// Adds a line to the history that `query` writes to.
pub(super) fn note(
    conn: &Connection,
    query: &str,
    epoch: u64,
    of: u64,
    line: &Line<'_>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(query)?.execute((
        of,
        line.at.0,
        line.attempt,
        line.what,
        epoch,
        line.by.map(|by| by.who.as_str()),
        line.by.and_then(|by| by.why.as_deref()),
        line.evidence.map(text),
    ))?;
    Ok(())
}

fn update(
    conn: &Connection,
    seq: Seq,
    standing: &Standing,
    at: Millis,
    reply: Option<&StoredReply>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(queries::EFFECT_UPDATE)?.execute((
        seq.0,
        standing.word(),
        standing.attempt(),
        standing.epoch(),
        standing.evidence().map(text),
        at.0,
        reply.map(|reply| reply.status),
        reply.map(|reply| &reply.body[..]),
    ))?;
    Ok(())
}

pub(super) fn text(evidence: &Evidence) -> String {
    String::from_utf8_lossy(evidence.as_bytes()).into_owned()
}

pub(super) fn evidence(row: &Row<'_>) -> rusqlite::Result<Option<Evidence>> {
    Ok(row.get::<_, Option<String>>("evidence")?.map(Evidence::from_stored))
}

pub(super) fn effect_row(row: &Row<'_>) -> rusqlite::Result<Effect> {
    let word = row.get_ref("state")?.as_str()?;
    let standing = Standing::restore(word, row.get("attempt")?, row.get("epoch")?, evidence(row)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, error.into()))?;
    let reply = match (row.get("reply_status")?, row.get::<_, Option<Vec<u8>>>("reply")?) {
        (Some(status), Some(body)) => Some(StoredReply { status, body: body.into() }),
        _ => None,
    };
    Ok(Effect {
        seq: Seq(row.get("seq")?),
        kind: row.get("kind")?,
        plan: Bytes::from(row.get::<_, String>("plan")?),
        standing,
        reply,
    })
}
