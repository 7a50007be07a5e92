//! Publications of records: begun and settled inside the writer's transaction.
//!
//! The effect machine of the core decides about each step; here is what a step means for the record
//! and for the events that go out with it, whatever database keeps them.

use admit_core::effect::{By, Evidence, Illegal, Standing, Starts, Step as Taken, advance as lead};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::record::{Link, PUBLISH_UNKNOWN, State, Transition};
use admit_core::{Millis, Seq};

use super::RecordError;
use super::tables::{Asked, Decided, Linked, Step, Tables, Write};
use crate::desk::Line;
use crate::publications::{Offer, Publication, PublicationStep};

/// What a lost attempt rests on.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// The tables of publications, as they are inside one transaction.
pub(crate) trait PublicationTables: Tables {
    /// How far records have come; those that are no more are left out.
    fn ways(&mut self, ids: &[&str]) -> Result<Vec<Way>, Self::Error>;

    /// Writes, and then says how far records have come.
    fn write_to(&mut self, writes: &[Write<'_>], ids: &[&str]) -> Result<Vec<Way>, Self::Error>;

    /// The events of a record that have something in it and are not out, in ledger order.
    fn unsent(&mut self, record_id: &str, which: Unsent) -> Result<Vec<Seq>, Self::Error>;

    /// One publication.
    fn publication(&mut self, which: Which<'_>) -> Result<Option<Publication>, Self::Error>;

    /// The events that went out with a publication, JSON.
    fn members(&mut self, n: u64) -> Result<String, Self::Error>;

    /// Takes a revision as the one that is handed to the bus, so that nobody else can; whether it
    /// is still the present one, and nobody has.
    fn take_revision(&mut self, offer: &Offer) -> Result<bool, Self::Error>;

    /// A revision that did not go out may be handed over again, if it is still the newest.
    fn give_back(&mut self, record_id: &str, revision: u64, at: Millis) -> Result<(), Self::Error>;

    /// The present revision of a record has gone out, or could not.
    fn sent(&mut self, record_id: &str, revision: u64, state: State) -> Result<(), Self::Error>;

    /// Keeps a publication that begins, and numbers it.
    fn begun(&mut self, door: &str, new: &Publication, members: &str) -> Result<u64, Self::Error>;

    /// Keeps another attempt at one that was found not to have gone out.
    fn renewed(&mut self, again: &Publication, members: &str) -> Result<(), Self::Error>;

    /// Keeps where a publication stands now.
    fn turned(&mut self, publication: &Publication) -> Result<(), Self::Error>;

    /// Adds a line to the history of a publication.
    fn note(&mut self, n: u64, epoch: u64, line: &Line<'_>) -> Result<(), Self::Error>;
}

/// How far a record has come on its way to the bus.
pub(crate) struct Way {
    pub(crate) record_id: String,
    pub(crate) revision: u64,
    /// The newest revision that was handed over.
    pub(crate) offered: u64,
    pub(crate) state: String,
}

/// Which events of a record are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// Those that have just got something into it.
    New,
    /// Those too that could not go out before.
    All,
}

/// Which publication is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    Place(u64),
    Revision(&'a str, u64),
}

/// Who takes a step: the present start of a gate, and those that its process has had.
#[derive(Clone, Copy)]
pub(crate) struct Performer<'a> {
    pub(crate) epoch: u64,
    pub(crate) own: &'a [u64],
}

impl Performer<'_> {
    /// In whose name it settles what stands so: what it began itself is still its own.
    fn of(&self, standing: &Standing) -> u64 {
        standing.epoch().filter(|epoch| self.own.contains(epoch)).unwrap_or(self.epoch)
    }
}

/// Begins a publication, unless the record says something else by now or somebody has begun it.
pub(crate) fn begin<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    offer: &Offer,
    at: Millis,
) -> Result<Option<Publication>, T::Error> {
    let before = tables.publication(Which::Revision(&offer.record_id, offer.revision))?;
    let renewed = before.map(|before| {
        let standing = lead(before.standing.clone(), &Taken::Renew, epoch);
        standing.map(|standing| Publication { standing, ..before })
    });
    // Somebody has begun it, and nobody has found that it did not go out.
    if matches!(renewed, Some(Err(_))) || !tables.take_revision(offer)? {
        return Ok(None);
    }
    let members = written(&tables.unsent(&offer.record_id, Unsent::All)?);
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
            standing: Starts::InFlight.standing(epoch),
            reason: None,
            begun_at: at,
            changed_at: at,
        },
    };
    (publication.reason, publication.begun_at, publication.changed_at) = (None, at, at);
    match publication.n {
        0 => publication.n = tables.begun(&door, &publication, &members)?,
        _ => tables.renewed(&publication, &members)?,
    }
    add_line(tables, epoch, &publication, None)?;
    Ok(Some(publication))
}

/// Takes one step. An illegal one writes nothing.
pub(crate) fn take<T: PublicationTables>(
    tables: &mut T,
    performer: Performer<'_>,
    asked: &PublicationStep,
    at: Millis,
) -> Result<Result<Publication, Illegal>, T::Error> {
    let epoch = performer.epoch;
    let found = tables.publication(Which::Place(asked.n))?;
    let Some(mut publication) = found else { return Ok(Err(Illegal::NoEffect)) };
    let owner = performer.of(&publication.standing);
    let standing = match lead(publication.standing.clone(), &asked.step, owner) {
        Ok(standing) => standing,
        Err(illegal) => return Ok(Err(illegal)),
    };
    if let Taken::Evidence { attempt, evidence } = &asked.step {
        let (attempt, evidence) = (*attempt, Some(evidence));
        let line = Line { at, attempt, what: "evidence", by: None, evidence };
        tables.note(asked.n, epoch, &line)?;
        return Ok(Ok(publication));
    }
    publication.standing = standing;
    publication.changed_at = at;
    publication.reason = asked.reason.map(str::to_owned);
    let by = if let Taken::Reconcile { by, .. } | Taken::Replay(by) = &asked.step {
        Some(by)
    } else {
        None
    };
    tables.turned(&publication)?;
    add_line(tables, epoch, &publication, by)?;
    match (&publication.standing, by) {
        (Standing::Done(_), _) => went(tables, &publication, None, at)?,
        // A person says that it did not go out: it may be handed over again.
        (Standing::Refused(_), Some(_)) => {
            tables.give_back(&publication.record_id, publication.revision, at)?;
        }
        (Standing::Refused(_) | Standing::Ambiguous(_), _) => {
            went(tables, &publication, Some(asked.reason.unwrap_or(PUBLISH_UNKNOWN)), at)?;
        }
        (Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_), _) => {}
    }
    Ok(Ok(publication))
}

/// Looks after publications whose processes are gone: nobody knows what became of them.
pub(crate) fn lose<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    left: Vec<Publication>,
    at: Millis,
) -> Result<Vec<Publication>, T::Error> {
    let mut lost = Vec::with_capacity(left.len());
    for mut publication in left {
        let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
        publication.standing = publication.standing.recovered(epoch, evidence);
        publication.reason = Some(PUBLISH_UNKNOWN.to_owned());
        publication.changed_at = at;
        tables.turned(&publication)?;
        add_line(tables, epoch, &publication, None)?;
        went(tables, &publication, Some(PUBLISH_UNKNOWN), at)?;
        lost.push(publication);
    }
    Ok(lost)
}

/// Writes where events stand. Those that have just got into records which say nothing new with them
/// become what has become of the record. Returns whether there was one.
pub(super) fn catch_up<T: PublicationTables>(
    tables: &mut T,
    writes: &[Write<'_>],
    ids: &[&str],
    at: Millis,
) -> Result<bool, T::Error> {
    let mut caught_up = false;
    for Way { record_id, revision, offered, state } in tables.write_to(writes, ids)? {
        let failed = match State::parse(&state) {
            Some(State::Published) if offered >= revision => None,
            Some(State::PublishFailed) if offered >= revision => {
                let publication = tables.publication(Which::Revision(&record_id, revision))?;
                let reason = publication.and_then(|publication| publication.reason);
                Some(reason.unwrap_or_else(|| PUBLISH_UNKNOWN.to_owned()))
            }
            _ => continue,
        };
        let events = tables.unsent(&record_id, Unsent::New)?;
        send(tables, &events, &record_id, failed.as_deref(), at)?;
        caught_up |= !events.is_empty();
    }
    Ok(caught_up)
}

/// The record has gone out, or could not: says so of it and of its events. Where the record says
/// something else by now, only those that were in it then have gone with it.
fn went<T: PublicationTables>(
    tables: &mut T,
    publication: &Publication,
    failed: Option<&str>,
    at: Millis,
) -> Result<(), T::Error> {
    let Publication { n, record_id, revision, .. } = publication;
    let is_present = tables.ways(&[record_id])?.iter().any(|way| way.revision == *revision);
    let events = if is_present {
        let state = if failed.is_some() { State::PublishFailed } else { State::Published };
        tables.sent(record_id, *revision, state)?;
        tables.unsent(record_id, Unsent::All)?
    } else {
        read(&tables.members(*n)?)
    };
    send(tables, &events, record_id, failed, at)
}

/// Takes the steps of events. One that belongs elsewhere by now, or whose rows are missing, takes
/// none.
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
    let links: Vec<Linked<'_>> =
        gone.iter().map(|(link, step)| Linked::of(step.seq, link, None)).collect();
    let steps: Vec<Step<'_>> = gone.iter().filter_map(|(_, step)| Step::of(step, None)).collect();
    tables.write(&[Write::Links(&links), Write::Steps(&steps)])?;
    Ok(())
}

/// Events with what was decided about them. What cannot be read is left as it is: what is known of a
/// publication is not lost for it.
fn readable<T: PublicationTables>(
    tables: &mut T,
    events: &[Seq],
) -> Result<Vec<Decided>, T::Error> {
    let asked: Vec<Asked<'_>> = events.iter().copied().map(Asked::At).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    match (tables.events("", &asked), events) {
        (Ok(found), _) => Ok(found.into_iter().flatten().collect()),
        (Err(RecordError::Store(error)), _) => Err(error),
        (Err(error), [seq]) => {
            tracing::error!(seq = seq.0, %error, "an event of a record cannot be read");
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

fn add_line<T: PublicationTables>(
    tables: &mut T,
    epoch: u64,
    publication: &Publication,
    by: Option<&By>,
) -> Result<(), T::Error> {
    let Publication { n, standing, changed_at, .. } = publication;
    let (attempt, what) = (standing.attempt(), standing.word());
    let line = Line { at: *changed_at, attempt, what, by, evidence: standing.evidence() };
    tables.note(*n, epoch, &line)
}

/// Places as they are kept.
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
