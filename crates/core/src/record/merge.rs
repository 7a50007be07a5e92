//! The merge: one record of everything that is linked to it, each field by whom it is known.
//!
//! Everything is set, nothing is added up, so a replay cannot make a number grow.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::anchor;
use super::event::SourceEvent;
use super::fingerprint::{Fingerprint, Named};
use super::policy::{Domain, Policy, Replay};
use super::state::State;
use super::strand::{self, Strand};
use crate::json::{Object, Value};
use crate::receipt::Seq;
use crate::time::Millis;

/// One field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value<'static>,
    /// Who is believed.
    pub source: String,
    /// The event that told it.
    pub event: Seq,
}

/// A record: one entity, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its id, for ever.
    pub record_id: String,
    /// Its group.
    pub group: String,
    /// Its number.
    pub number: i64,
    /// The day, by the clock of the source that opened it.
    pub date: Option<String>,
    /// The time, by the same clock.
    pub time: Option<String>,
    /// The best time there is for what opened it.
    pub event_time: Option<i64>,
    /// How far it has come: the furthest of its events.
    pub state: State,
    /// Every fingerprint that leads here, the strongest first.
    pub fingerprints: Vec<Fingerprint>,
    /// The fields, by name.
    pub fields: Vec<Field>,
    /// The events it is made of, in ledger order, with their sources.
    pub sources: Vec<(Seq, String)>,
}

impl Record {
    /// A field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A value with the event that told it.
#[derive(Clone, Debug)]
struct Cell {
    value: Value<'static>,
    event: Seq,
}

/// What one source says, all told.
type Told = BTreeMap<String, Cell>;

/// The record of these events, and which of them count in it. `None` when none of them opens one.
pub fn record(
    policy: &Policy,
    record_id: &str,
    members: &[&SourceEvent],
) -> Option<(Record, BTreeSet<Seq>)> {
    let mut strands = strand::fold(policy, members.iter().copied()).strands;
    // Of several that carry the same, the one that gave the record its name comes first.
    let is_copy =
        |strand: &Strand<'_>| strand.opens && anchor::record_id(policy, strand) != record_id;
    strands.sort_by_key(|strand| (strand.rank, is_copy(strand)));
    let opening = strands.iter().find(|strand| strand.opens)?;
    let mut applied = BTreeSet::new();
    let mut told: BTreeMap<&str, Vec<Told>> = BTreeMap::new();
    for strand in &strands {
        told.entry(strand.source).or_default().push(fold(policy, strand, &mut applied));
    }
    for source in policy.sources {
        let Some(stamp) = source.stamp else { continue };
        let newest = members.iter().filter(|event| event.source == source.name);
        let Some(newest) = newest.max_by_key(|event| (event.received_at, event.seq)) else {
            continue;
        };
        let cell = Cell { value: at(newest.received_at), event: newest.seq };
        if let Some(first) = told.get_mut(source.name).and_then(|told| told.first_mut()) {
            first.insert(stamp.to_owned(), cell);
        }
    }
    let mut sources: Vec<(Seq, String)> =
        members.iter().map(|event| (event.seq, event.source.clone())).collect();
    sources.sort();
    let is_enriched = members.iter().any(|event| event.enriches);
    let first = opening.events.first()?;
    let record = Record {
        record_id: record_id.to_owned(),
        group: opening.named.group.clone(),
        number: opening.named.number.unwrap_or_default(),
        date: first.date.clone(),
        time: first.time.clone(),
        event_time: opening.time(),
        state: if is_enriched { State::Enriched } else { State::Linked },
        fingerprints: fingerprints(&strands),
        fields: fields(policy, &told),
        sources,
    };
    Some((record, applied))
}

fn at(time: Millis) -> Value<'static> {
    Value::from(time.to_rfc3339_millis())
}

/// Every fingerprint of the strands, the strongest first, then by trust.
fn fingerprints(strands: &[Strand<'_>]) -> Vec<Fingerprint> {
    let number = strands.iter().find(|strand| strand.opens).and_then(|s| s.named.number);
    let mut found: Vec<Fingerprint> = Vec::new();
    for strand in strands {
        let named = Named { number, ..strand.named.clone() };
        found.extend(named.fingerprints());
    }
    found.sort_by_key(|fingerprint| fingerprint.kind);
    let mut kept: Vec<Fingerprint> = Vec::new();
    for fingerprint in found {
        if !kept.contains(&fingerprint) {
            kept.push(fingerprint);
        }
    }
    kept
}

/// What one strand says, by the replay rule of its source.
fn fold(policy: &Policy, strand: &Strand<'_>, applied: &mut BTreeSet<Seq>) -> Told {
    let replay = policy.source(strand.source).map_or(Replay::Skip, |source| source.replay);
    let mut told = Told::new();
    let events = strand.events.iter().map(|event| (*event, false));
    let accepted = strand.accepted().into_iter().map(|event| (event, true));
    for (place, (event, is_accepted)) in events.chain(accepted).enumerate() {
        let is_overwriting = is_accepted || matches!(replay, Replay::Overwrite { .. });
        if place == 0 || is_overwriting {
            applied.insert(event.seq);
        }
        let fields = event.fields.read();
        if is_overwriting {
            let mut wholes = fields.iter().filter_map(|(name, _)| policy.domain(name));
            while let Some(whole) = wholes.by_ref().find(|domain| domain.is_whole) {
                told.retain(|name, _| policy.domain(name) != Some(whole));
            }
        }
        for (name, value) in &fields {
            if value.is_null() {
                continue;
            }
            let domain = policy.domain(name);
            let may_replace = match replay {
                _ if is_accepted => true,
                Replay::Skip => event.updates && !domain.is_some_and(|domain| domain.is_total),
                Replay::Overwrite { keeps } => !keeps.contains(&name),
            };
            let value = value.clone().into_owned();
            if put(&mut told, name, value, event.seq, domain, may_replace) {
                applied.insert(event.seq);
            }
        }
    }
    told
}

/// Sets a value, or merges its rows into those that are there. Tells whether anything changed.
fn put(
    told: &mut Told,
    name: &str,
    value: Value<'static>,
    event: Seq,
    domain: Option<&Domain>,
    may_replace: bool,
) -> bool {
    let Some(cell) = told.get_mut(name) else {
        let value = match domain.and_then(|domain| domain.row_key) {
            Some(row_key) => rows(row_key, &Value::Array(Vec::new()), &value),
            None => value,
        };
        told.insert(name.to_owned(), Cell { value, event });
        return true;
    };
    let next = match domain.and_then(|domain| domain.row_key) {
        Some(row_key) if may_replace => rows(row_key, &cell.value, &value),
        Some(row_key) => rows(row_key, &value, &cell.value),
        None if may_replace => value,
        None => return false,
    };
    if next == cell.value {
        return false;
    }
    *cell = Cell { value: next, event };
    true
}

/// The rows of both lists, by the member that names a row; what `newer` says of a row replaces what
/// `older` says, and what it leaves out stays. Rows are in the order of their names.
fn rows(row_key: &str, older: &Value<'static>, newer: &Value<'static>) -> Value<'static> {
    let mut rows: BTreeMap<String, Object<'static>> = BTreeMap::new();
    for row in [older, newer].into_iter().filter_map(Value::as_array).flatten() {
        let Some(object) = row.as_object() else { continue };
        let Some(name) = object.get(row_key).and_then(Value::as_str) else { continue };
        let known = rows.entry(name.to_owned()).or_default();
        for (member, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            set(known, member, value);
        }
    }
    rows.into_values().collect()
}

/// Sets a member where it stands, so that the order of members does not depend on who spoke last.
fn set(object: &mut Object<'static>, name: &str, value: &Value<'static>) {
    if object.contains_key(name) {
        let replaced: Object<'static> = std::mem::take(object)
            .into_iter()
            .map(|(key, old)| if key == name { (key, value.clone()) } else { (key, old) })
            .collect();
        *object = replaced;
    } else {
        object.push(Cow::Owned(name.to_owned()), value.clone());
    }
}

/// Each field by whom it is known.
fn fields(policy: &Policy, told: &BTreeMap<&str, Vec<Told>>) -> Vec<Field> {
    let names: BTreeSet<&str> =
        told.values().flatten().flat_map(|told| told.keys().map(String::as_str)).collect();
    names.into_iter().filter_map(|name| field(policy, told, name)).collect()
}

/// Whether any of these tells a field of the domain that `name` is in.
fn tells(policy: &Policy, told: &[Told], name: &str) -> bool {
    let domain = policy.domain(name);
    told.iter().flat_map(BTreeMap::keys).any(|field| policy.domain(field) == domain)
}

fn field(policy: &Policy, told: &BTreeMap<&str, Vec<Told>>, name: &str) -> Option<Field> {
    let authority = policy.authority(name);
    let is_told = |source: &&str| told.get(*source).is_some_and(|told| tells(policy, told, name));
    let authority = match policy.domain(name).is_some_and(|domain| domain.is_whole) {
        true => authority.into_iter().find(is_told).into_iter().collect(),
        false => authority,
    };
    let cells = authority.iter().flat_map(|source| {
        let strands = told.get(source).map(Vec::as_slice).unwrap_or_default();
        strands.iter().filter_map(|told| told.get(name)).map(|cell| (*source, cell))
    });
    let mut found: Option<Field> = None;
    for (source, cell) in cells {
        match (&mut found, policy.domain(name).and_then(|domain| domain.row_key)) {
            (None, _) => {
                found = Some(Field {
                    name: name.to_owned(),
                    value: cell.value.clone(),
                    source: source.to_owned(),
                    event: cell.event,
                });
            }
            // The rows of the others come in where the believed one has none.
            (Some(field), Some(row_key)) => field.value = rows(row_key, &cell.value, &field.value),
            (Some(_), None) => break,
        }
    }
    found
}
