//! Publications of records, begun and settled inside the writer's transaction.
//!
//! The effect state machine of the core decides each step; this applies it to the record and to the events
//! published with it, for every database.

use admit_core::effect::{
    Attribution, EffectState, Evidence, IllegalStep, InitialState, Step as EffectStep,
    advance as next_state,
};
use admit_core::entity::{Link, PUBLISH_UNKNOWN, ProcessingState, Transition};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, Seq};

use super::RecordError;
use super::tables::{EventQuery, HistoryRow, LinkRow, StoredEvent, Tables, Write};
use crate::publications::{BusEnd, Offer, Publication, PublicationStep};
use crate::rules::HistoryLine;

/// Evidence of a lost attempt.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// The tables of publications inside one transaction.
pub(crate) trait PublicationTables: Tables {
    /// Returns the publication progress of records; retired ones are left out.
    fn publication_progress(
        &mut self,
        ids: &[&str],
    ) -> Result<Vec<PublicationProgress>, Self::Error>;

    /// Writes, then returns the publication progress of records.
    fn write_to(
        &mut self,
        writes: &[Write<'_>],
        ids: &[&str],
    ) -> Result<Vec<PublicationProgress>, Self::Error>;

    /// Returns the events of a record that are enriched and not published, in ledger order.
    fn unsent(&mut self, record_id: &str, which: UnsentEvents) -> Result<Vec<Seq>, Self::Error>;

    /// Returns one publication.
    fn publication(
        &mut self,
        which: PublicationKey<'_>,
    ) -> Result<Option<Publication>, Self::Error>;

    /// Returns the events published with a publication, JSON.
    fn members(&mut self, n: u64) -> Result<String, Self::Error>;

    /// Claims a revision for publishing. Returns whether it is still the current one, and was not claimed
    /// before.
    fn claim_revision(&mut self, offer: &Offer) -> Result<bool, Self::Error>;

    /// Releases a revision that was not published, if it is still the newest.
    fn release_revision(
        &mut self,
        record_id: &str,
        revision: u64,
        at: Millis,
    ) -> Result<(), Self::Error>;

    /// Sets the state of a record whose current revision was published, or failed.
    fn set_sent(
        &mut self,
        record_id: &str,
        revision: u64,
        state: ProcessingState,
    ) -> Result<(), Self::Error>;

    /// Inserts a publication and returns its number.
    fn insert_publication(
        &mut self,
        door: &str,
        new: &Publication,
        members: &str,
    ) -> Result<u64, Self::Error>;

    /// Stores another attempt at a publication that was found absent.
    fn renewed(&mut self, again: &Publication, members: &str) -> Result<(), Self::Error>;

    /// Raises the acknowledged end of a topic.
    fn raise_bus_end(&mut self, end: &BusEnd) -> Result<(), Self::Error>;

    /// Stores the state of a publication.
    fn update_publication(&mut self, publication: &Publication) -> Result<(), Self::Error>;

    /// Appends a line to the history of a publication.
    fn note(&mut self, n: u64, epoch: u64, line: &HistoryLine<'_>) -> Result<(), Self::Error>;
}

/// Publication progress of a record.
pub(crate) struct PublicationProgress {
    pub(crate) record_id: String,
    pub(crate) revision: u64,
    /// Newest revision handed to the bus.
    pub(crate) offered: u64,
    pub(crate) state: String,
}

/// Selects events of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsentEvents {
    /// Those added since the last publication.
    New,
    /// Also those whose publication failed before.
    All,
}

/// Selects a publication.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PublicationKey<'a> {
    Place(u64),
    Revision(&'a str, u64),
}

/// The gate that applies a step: its current epoch, and all epochs of its process.
#[derive(Clone, Copy)]
pub(crate) struct Performer<'a> {
    pub(crate) epoch: u64,
    pub(crate) own: &'a [u64],
}

impl Performer<'_> {
    /// The epoch to settle under: the original one if this process began the publication.
    fn of(&self, state: &EffectState) -> u64 {
        state.epoch().filter(|epoch| self.own.contains(epoch)).unwrap_or(self.epoch)
    }
}

/// Begins a publication, unless the record has changed or another gate has begun it.
pub(crate) fn begin<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    offer: &Offer,
    at: Millis,
) -> Result<Option<Publication>, T::Error> {
    let before = tables.publication(PublicationKey::Revision(&offer.record_id, offer.revision))?;
    let renewed = before.map(|before| {
        let state = next_state(before.state.clone(), &EffectStep::Renew, epoch);
        state.map(|state| Publication { state, ..before })
    });
    // Another gate has begun it, and it was not found absent.
    if matches!(renewed, Some(Err(_))) || !tables.claim_revision(offer)? {
        return Ok(None);
    }
    let members = written(&tables.unsent(&offer.record_id, UnsentEvents::All)?);
    let Offer { door, record_id, revision, topic, partition_key, dedupe_key, digest } =
        offer.clone();
    let mut publication = match renewed.and_then(Result::ok) {
        Some(renewed) => Publication { topic, digest, ..renewed },
        None => Publication {
            n: 0,
            record_id,
            revision,
            topic,
            partition_key,
            dedupe_key,
            digest,
            state: InitialState::InFlight.effect_state(epoch),
            reason: None,
            begun_at: at,
            changed_at: at,
        },
    };
    (publication.reason, publication.begun_at, publication.changed_at) = (None, at, at);
    match publication.n {
        0 => publication.n = tables.insert_publication(&door, &publication, &members)?,
        _ => tables.renewed(&publication, &members)?,
    }
    add_history_line(tables, epoch, &publication, None)?;
    Ok(Some(publication))
}

/// Applies one step. An illegal one writes nothing.
pub(crate) fn take<T: PublicationTables>(
    tables: &mut T,
    performer: Performer<'_>,
    request: &PublicationStep,
    at: Millis,
) -> Result<Result<Publication, IllegalStep>, T::Error> {
    let epoch = performer.epoch;
    let found = tables.publication(PublicationKey::Place(request.n))?;
    let Some(mut publication) = found else { return Ok(Err(IllegalStep::NoEffect)) };
    let owner = performer.of(&publication.state);
    let state = match next_state(publication.state.clone(), &request.step, owner) {
        Ok(state) => state,
        Err(illegal) => return Ok(Err(illegal)),
    };
    if let Some(end) = &request.acknowledged {
        tables.raise_bus_end(end)?;
    }
    if let EffectStep::Evidence { attempt, evidence } = &request.step {
        let (attempt, evidence) = (*attempt, Some(evidence));
        let line = HistoryLine { at, attempt, what: "evidence", by: None, evidence };
        tables.note(request.n, epoch, &line)?;
        return Ok(Ok(publication));
    }
    publication.state = state;
    publication.changed_at = at;
    publication.reason = request.reason.map(str::to_owned);
    let by = if let EffectStep::Reconcile { by, .. } | EffectStep::Replay(by) = &request.step {
        Some(by)
    } else {
        None
    };
    tables.update_publication(&publication)?;
    add_history_line(tables, epoch, &publication, by)?;
    match (&publication.state, by) {
        (EffectState::Done(_), _) => mark_sent(tables, &publication, None, at)?,
        // An operator found it absent: it may be published again.
        (EffectState::Refused(_), Some(_)) => {
            tables.release_revision(&publication.record_id, publication.revision, at)?;
        }
        (EffectState::Refused(_) | EffectState::Ambiguous(_), _) => {
            mark_sent(tables, &publication, Some(request.reason.unwrap_or(PUBLISH_UNKNOWN)), at)?;
        }
        (EffectState::Withheld(_) | EffectState::Intended(_) | EffectState::InFlight(_), _) => {}
    }
    Ok(Ok(publication))
}

/// Recovers publications of dead processes: their outcome is unknown.
pub(crate) fn recover_lost<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    left: Vec<Publication>,
    at: Millis,
) -> Result<Vec<Publication>, T::Error> {
    let mut lost = Vec::with_capacity(left.len());
    for mut publication in left {
        let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
        publication.state = publication.state.recovered(epoch, evidence);
        publication.reason = Some(PUBLISH_UNKNOWN.to_owned());
        publication.changed_at = at;
        tables.update_publication(&publication)?;
        add_history_line(tables, epoch, &publication, None)?;
        mark_sent(tables, &publication, Some(PUBLISH_UNKNOWN), at)?;
        lost.push(publication);
    }
    Ok(lost)
}

/// Writes the states of events. Events added to a record without changing it take over its publication
/// state. Returns whether there was one.
pub(super) fn catch_up<T: PublicationTables>(
    tables: &mut T,
    writes: &[Write<'_>],
    ids: &[&str],
    at: Millis,
) -> Result<bool, T::Error> {
    let mut caught_up = false;
    for PublicationProgress { record_id, revision, offered, state } in
        tables.write_to(writes, ids)?
    {
        let failed = match ProcessingState::parse(&state) {
            Some(ProcessingState::Published) if offered >= revision => None,
            Some(ProcessingState::PublishFailed) if offered >= revision => {
                let publication =
                    tables.publication(PublicationKey::Revision(&record_id, revision))?;
                let reason = publication.and_then(|publication| publication.reason);
                Some(reason.unwrap_or_else(|| PUBLISH_UNKNOWN.to_owned()))
            }
            _ => continue,
        };
        let events = tables.unsent(&record_id, UnsentEvents::New)?;
        send(tables, &events, &record_id, failed.as_deref(), at)?;
        caught_up |= !events.is_empty();
    }
    Ok(caught_up)
}

/// Marks the record and its events as published, or failed. If the record has changed since, only the events
/// of that publication are marked.
fn mark_sent<T: PublicationTables>(
    tables: &mut T,
    publication: &Publication,
    failed: Option<&str>,
    at: Millis,
) -> Result<(), T::Error> {
    let Publication { n, record_id, revision, .. } = publication;
    let is_present =
        tables.publication_progress(&[record_id])?.iter().any(|way| way.revision == *revision);
    let events = if is_present {
        let state = if failed.is_some() {
            ProcessingState::PublishFailed
        } else {
            ProcessingState::Published
        };
        tables.set_sent(record_id, *revision, state)?;
        tables.unsent(record_id, UnsentEvents::All)?
    } else {
        read(&tables.members(*n)?)
    };
    send(tables, &events, record_id, failed, at)
}

/// Applies publication steps to events. An event that moved to another record, or whose rows are missing,
/// is skipped.
fn send<T: PublicationTables>(
    tables: &mut T,
    events: &[Seq],
    record_id: &str,
    failed: Option<&str>,
    at: Millis,
) -> Result<(), T::Error> {
    let mut found = readable(tables, events)?;
    found.retain(|it| it.link.record_id.as_deref() == Some(record_id) && it.drift.is_none());
    let gone: Vec<(Link, Transition)> =
        found.iter().filter_map(|it| it.link.sent(&it.event, failed, at)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let links: Vec<LinkRow<'_>> =
        gone.iter().map(|(link, step)| LinkRow::of(step.seq, link, None)).collect();
    let steps: Vec<HistoryRow<'_>> =
        gone.iter().filter_map(|(_, step)| HistoryRow::of(step, None)).collect();
    tables.write(&[Write::Links(&links), Write::Steps(&steps)], &[])?;
    Ok(())
}

/// Returns events with their links. An event that cannot be parsed is skipped: the state of a publication
/// must not be lost because of it.
fn readable<T: PublicationTables>(
    tables: &mut T,
    events: &[Seq],
) -> Result<Vec<StoredEvent>, T::Error> {
    let request: Vec<EventQuery<'_>> = events.iter().copied().map(EventQuery::At).collect();
    if request.is_empty() {
        return Ok(Vec::new());
    }
    match (tables.events("", &request), events) {
        (Ok(found), _) => Ok(found.into_iter().flatten().collect()),
        (Err(RecordError::Store(error)), _) => Err(error),
        (Err(error), [seq]) => {
            tracing::error!(seq = seq.0, %error, "stored event of a record cannot be parsed");
            Ok(Vec::new())
        }
        (Err(_), events) => {
            let mut found = Vec::with_capacity(events.len());
            for seq in events {
                found.extend(readable(tables, &[*seq])?);
            }
            Ok(found)
        }
    }
}

fn add_history_line<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    publication: &Publication,
    by: Option<&Attribution>,
) -> Result<(), T::Error> {
    let Publication { n, state, changed_at, .. } = publication;
    let (attempt, what) = (state.attempt(), state.word());
    let line = HistoryLine { at: *changed_at, attempt, what, by, evidence: state.evidence() };
    tables.note(*n, epoch, &line)
}

/// Seqs as stored.
fn written(events: &[Seq]) -> String {
    let members: Value<'_> = events.iter().map(|seq| seq.0).collect();
    let mut text = Vec::new();
    json::write(&members, &mut text);
    String::from_utf8(text).expect("json is written as utf-8")
}

fn read(members: &str) -> Vec<Seq> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let members = json::parse(members.as_bytes(), &limits);
    let members = members.as_ref().ok().and_then(Value::as_array).unwrap_or_default();
    members.iter().filter_map(Value::as_u64).map(Seq).collect()
}
