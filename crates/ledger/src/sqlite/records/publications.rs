//! Publications of records: begun and settled inside the writer's transaction.
//!
//! The effect machine of the core decides about each step; here is what a step means for the record
//! and for the events that go out with it.

use admit_core::effect::{By, Evidence, Illegal, Standing, Starts, Step, advance as lead};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::record::{PUBLISH_UNKNOWN, State};
use admit_core::{Millis, Seq};
use rusqlite::{Connection, OptionalExtension as _};

use super::published::publication_row;
use super::{RecordError, near, relinked, step as add_step, stored_drift};
use crate::publications::{Offer, Publication, PublicationStep};
use crate::sqlite::effects::{Line, note as add_line, text};
use crate::sqlite::queries;
use crate::sqlite::task::{Tx, Work};

/// What a lost attempt rests on.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// Beginnings, for the writer.
pub(in crate::sqlite) struct Begin {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<Offer>,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Begin {
    type Answer = Vec<Option<Publication>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        self.batch.iter().map(|offer| begin(tx.conn, self.epoch, offer, self.at)).collect()
    }
}

/// Steps, for the writer.
pub(in crate::sqlite) struct Steps {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<PublicationStep>,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Steps {
    type Answer = Vec<Result<Publication, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        self.batch.iter().map(|step| take(tx.conn, self.epoch, step, self.at)).collect()
    }
}

/// Looking after what earlier processes left, for the writer.
pub(in crate::sqlite) struct Recover {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) door: String,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Recover {
    type Answer = Vec<Publication>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let lost: Vec<Publication> = tx
            .conn
            .prepare_cached(queries::PUBLICATIONS_LOST)?
            .query_map((&self.door, self.epoch), publication_row)?
            .collect::<rusqlite::Result<_>>()?;
        let mut recovered = Vec::with_capacity(lost.len());
        for mut publication in lost {
            let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
            publication.standing = publication.standing.recovered(self.epoch, evidence);
            publication.reason = Some(PUBLISH_UNKNOWN.to_owned());
            publication.changed_at = self.at;
            write(tx.conn, self.epoch, &publication, None)?;
            went(tx.conn, &publication, Some(PUBLISH_UNKNOWN), self.at)?;
            recovered.push(publication);
        }
        Ok(recovered)
    }
}

fn begin(
    conn: &Connection,
    epoch: u64,
    offer: &Offer,
    at: Millis,
) -> rusqlite::Result<Option<Publication>> {
    let before = of_revision(conn, &offer.record_id, offer.revision)?;
    let renewed = before.map(|before| {
        let standing = lead(before.standing.clone(), &Step::Renew, epoch);
        standing.map(|standing| Publication { standing, ..before })
    });
    // Somebody has begun it, and nobody has found that it did not go out.
    if matches!(renewed, Some(Err(_))) {
        return Ok(None);
    }
    let taken = conn.prepare_cached(queries::RECORD_OFFER)?.execute((
        &offer.record_id,
        &offer.door,
        offer.revision,
    ))?;
    if taken == 0 {
        return Ok(None);
    }
    let members: Value<'_> =
        seqs(conn, queries::RECORD_EVENTS_UNSENT, &offer.record_id)?.iter().map(|s| s.0).collect();
    let mut text = Vec::new();
    json::write(&members, &mut text);
    let members = String::from_utf8(text).expect("json is written as utf-8");
    let mut publication = match renewed.and_then(Result::ok) {
        Some(renewed) => {
            let Publication { n, standing, .. } = &renewed;
            conn.prepare_cached(queries::PUBLICATION_RENEW)?.execute((
                n,
                &offer.topic,
                offer.digest.as_bytes(),
                &members,
                standing.word(),
                standing.attempt(),
                standing.epoch(),
                at.0,
            ))?;
            renewed
        }
        None => insert(conn, epoch, offer, &members, at)?,
    };
    publication.topic.clone_from(&offer.topic);
    publication.digest = offer.digest;
    (publication.reason, publication.begun_at, publication.changed_at) = (None, at, at);
    note(conn, epoch, &publication, None)?;
    Ok(Some(publication))
}

fn insert(
    conn: &Connection,
    epoch: u64,
    offer: &Offer,
    members: &str,
    at: Millis,
) -> rusqlite::Result<Publication> {
    let standing = Starts::InFlight.standing(epoch);
    let n = conn.prepare_cached(queries::PUBLICATION_INSERT)?.query_row(
        (
            &offer.door,
            &offer.record_id,
            offer.revision,
            &offer.topic,
            &offer.partition_key,
            &offer.dedupe_key,
            offer.digest.as_bytes(),
            members,
            standing.word(),
            standing.attempt(),
            standing.epoch(),
            at.0,
        ),
        |row| row.get(0),
    )?;
    let Offer { record_id, revision, topic, partition_key, dedupe_key, digest, .. } = offer.clone();
    let (reason, begun_at, changed_at) = (None, at, at);
    Ok(Publication {
        n,
        record_id,
        revision,
        topic,
        partition_key,
        dedupe_key,
        digest,
        standing,
        reason,
        begun_at,
        changed_at,
    })
}

/// Takes one step. An illegal one writes nothing.
fn take(
    conn: &Connection,
    epoch: u64,
    asked: &PublicationStep,
    at: Millis,
) -> rusqlite::Result<Result<Publication, Illegal>> {
    let found = conn
        .prepare_cached(queries::PUBLICATION_GET)?
        .query_row([asked.n], publication_row)
        .optional()?;
    let Some(mut publication) = found else { return Ok(Err(Illegal::NoEffect)) };
    let standing = match lead(publication.standing.clone(), &asked.step, epoch) {
        Ok(standing) => standing,
        Err(illegal) => return Ok(Err(illegal)),
    };
    if let Step::Evidence { attempt, evidence } = &asked.step {
        let line =
            Line { at, attempt: *attempt, what: "evidence", by: None, evidence: Some(evidence) };
        add_line(conn, queries::PUBLICATION_NOTE, epoch, asked.n, &line)?;
        return Ok(Ok(publication));
    }
    publication.standing = standing;
    publication.changed_at = at;
    publication.reason = asked.reason.map(str::to_owned);
    let by = if let Step::Reconcile { by, .. } | Step::Replay(by) = &asked.step {
        Some(by)
    } else {
        None
    };
    write(conn, epoch, &publication, by)?;
    match (&publication.standing, by) {
        (Standing::Done(_), _) => went(conn, &publication, None, at)?,
        // A person says that it did not go out: it may be handed over again.
        (Standing::Refused(_), Some(_)) => {
            let released = (&publication.record_id, publication.revision, at.0);
            conn.prepare_cached(queries::RECORD_RELEASE)?.execute(released)?;
        }
        (Standing::Refused(_) | Standing::Ambiguous(_), _) => {
            went(conn, &publication, Some(asked.reason.unwrap_or(PUBLISH_UNKNOWN)), at)?;
        }
        (Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_), _) => {}
    }
    Ok(Ok(publication))
}

/// The record has gone out, or could not: says so of it and of its events. Where the record says
/// something else by now, only those that were in it then have gone with it.
fn went(
    conn: &Connection,
    publication: &Publication,
    failed: Option<&str>,
    at: Millis,
) -> rusqlite::Result<()> {
    let Publication { n, record_id, revision, .. } = publication;
    let is_present = standing(conn, record_id)?.is_some_and(|(present, ..)| present == *revision);
    let events = if is_present {
        let state = if failed.is_some() { State::PublishFailed } else { State::Published };
        let sent = (record_id, revision, state.word());
        conn.prepare_cached(queries::RECORD_SENT)?.execute(sent)?;
        seqs(conn, queries::RECORD_EVENTS_UNSENT, record_id)?
    } else {
        members(conn, *n)?
    };
    for seq in events {
        send(conn, seq, record_id, failed, at)?;
    }
    Ok(())
}

/// An event that has just got into a record which says nothing new with it: what has become of the
/// record has become of the event. Returns whether there was one.
pub(super) fn catch_up(conn: &Connection, record_id: &str, at: Millis) -> rusqlite::Result<bool> {
    let Some((revision, offered, state)) = standing(conn, record_id)? else { return Ok(false) };
    let failed = match State::parse(&state) {
        Some(State::Published) if offered >= revision => None,
        Some(State::PublishFailed) if offered >= revision => {
            let publication = of_revision(conn, record_id, revision)?;
            let reason = publication.and_then(|publication| publication.reason);
            Some(reason.unwrap_or_else(|| PUBLISH_UNKNOWN.to_owned()))
        }
        _ => return Ok(false),
    };
    let events = seqs(conn, queries::RECORD_EVENTS_ENRICHED, record_id)?;
    for seq in &events {
        send(conn, *seq, record_id, failed.as_deref(), at)?;
    }
    Ok(!events.is_empty())
}

/// Takes the step of one event. One that belongs elsewhere by now, or whose rows are missing, takes
/// none.
fn send(
    conn: &Connection,
    seq: Seq,
    record_id: &str,
    failed: Option<&str>,
    at: Millis,
) -> rusqlite::Result<()> {
    let found = match near::one(conn, seq) {
        Ok(found) => found,
        Err(RecordError::Sqlite(error)) => return Err(error),
        Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided)) => {
            tracing::error!(seq = seq.0, %error, "an event of a record cannot be read");
            return Ok(());
        }
    };
    let Some((event, link)) = found else { return Ok(()) };
    if link.record_id.as_deref() != Some(record_id) || stored_drift(conn, seq)?.is_some() {
        return Ok(());
    }
    if let Some((link, step)) = link.sent(&event, failed, at) {
        relinked(conn, seq, &link, None)?;
        add_step(conn, &step, None)?;
    }
    Ok(())
}

/// Revision, the newest that was handed over, and state of a record.
fn standing(conn: &Connection, record_id: &str) -> rusqlite::Result<Option<(u64, u64, String)>> {
    conn.prepare_cached(queries::RECORD_STANDING)?
        .query_row([record_id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()
}

fn seqs(conn: &Connection, query: &str, record_id: &str) -> rusqlite::Result<Vec<Seq>> {
    conn.prepare_cached(query)?.query_map([record_id], |row| row.get(0).map(Seq))?.collect()
}

/// The events that went out with a publication.
fn members(conn: &Connection, n: u64) -> rusqlite::Result<Vec<Seq>> {
    let text: String =
        conn.prepare_cached(queries::PUBLICATION_GET)?.query_row([n], |row| row.get("members"))?;
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let members = json::parse(text.as_bytes(), &limits);
    let members = members.as_ref().ok().and_then(Value::as_array).unwrap_or_default();
    Ok(members.iter().filter_map(Value::as_u64).map(Seq).collect())
}

fn of_revision(
    conn: &Connection,
    record_id: &str,
    revision: u64,
) -> rusqlite::Result<Option<Publication>> {
    conn.prepare_cached(queries::PUBLICATION_OF)?
        .query_row((record_id, revision), publication_row)
        .optional()
}

/// Writes a publication as it stands from now on, with its line of history.
fn write(
    conn: &Connection,
    epoch: u64,
    publication: &Publication,
    by: Option<&By>,
) -> rusqlite::Result<()> {
    let Publication { n, standing, reason, changed_at, .. } = publication;
    conn.prepare_cached(queries::PUBLICATION_UPDATE)?.execute((
        n,
        standing.word(),
        standing.attempt(),
        standing.epoch(),
        standing.evidence().map(text),
        reason,
        changed_at.0,
    ))?;
    note(conn, epoch, publication, by)
}

fn note(
    conn: &Connection,
    epoch: u64,
    publication: &Publication,
    by: Option<&By>,
) -> rusqlite::Result<()> {
    let Publication { n, standing, changed_at, .. } = publication;
    let (attempt, what) = (standing.attempt(), standing.word());
    let line = Line { at: *changed_at, attempt, what, by, evidence: standing.evidence() };
    add_line(conn, queries::PUBLICATION_NOTE, epoch, *n, &line)
}
