//! Merge: builds an entity from its linked events, each field from the source with authority.
//!
//! Values are set, never added up, so a replay cannot increase a total.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::canonical_event;
use super::fingerprint::{EntityIdentifiers, Fingerprint};
use super::policy::{FieldDomain, Policy, ReplayRule};
use super::source_event::SourceEvent;
use super::source_thread::{self, SourceThread};
use super::state::ProcessingState;
use crate::json::{Object, Value};
use crate::receipt::Seq;
use crate::time::Millis;

/// Merged field of an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct EntityField {
    /// Field name.
    pub name: String,
    /// Field value.
    pub value: Value<'static>,
    /// Source of the value.
    pub source: String,
    /// Event of the value.
    pub event: Seq,
}

/// Merged entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// Stable id.
    pub record_id: String,
    /// Group.
    pub group: String,
    /// Number within the group.
    pub number: i64,
    /// Local date of the opening source.
    pub date: Option<String>,
    /// Local time of the opening source.
    pub time: Option<String>,
    /// Best known time of the opening event.
    pub event_time: Option<i64>,
    /// Most advanced state of its events.
    pub state: ProcessingState,
    /// All fingerprints, strongest first.
    pub fingerprints: Vec<Fingerprint>,
    /// Fields, ordered by name.
    pub fields: Vec<EntityField>,
    /// Contributing events in ledger order, with their sources.
    pub sources: Vec<(Seq, String)>,
}

impl Entity {
    /// Returns the field called `name`.
    pub fn field(&self, name: &str) -> Option<&EntityField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Value with its event.
#[derive(Clone, Debug)]
struct SourcedValue {
    value: Value<'static>,
    event: Seq,
}

/// Folded fields of one source thread.
type FoldedFields = BTreeMap<String, SourcedValue>;

/// Builds the entity from `members` and returns it with the applied events. `None` if none of them
/// opens it.
pub fn entity(
    policy: &Policy,
    record_id: &str,
    members: &[&SourceEvent],
) -> Option<(Entity, BTreeSet<Seq>)> {
    let mut threads = source_thread::fold(policy, members.iter().copied()).threads;
    // Of threads with the same payload, the one that determined the id comes first.
    let is_copy = |thread: &SourceThread<'_>| {
        thread.opens && canonical_event::record_id(policy, thread) != record_id
    };
    threads.sort_by_key(|thread| (thread.rank, is_copy(thread)));
    let opening = threads.iter().find(|thread| thread.opens)?;
    let mut applied = BTreeSet::new();
    let mut folded: BTreeMap<&str, Vec<FoldedFields>> = BTreeMap::new();
    for thread in &threads {
        folded.entry(thread.source).or_default().push(fold(policy, thread, &mut applied));
    }
    for source in policy.sources {
        let Some(stamp) = source.stamp else { continue };
        let newest = members.iter().filter(|event| event.source == source.name);
        let Some(newest) = newest.max_by_key(|event| (event.received_at, event.seq)) else {
            continue;
        };
        let sourced = SourcedValue { value: at(newest.received_at), event: newest.seq };
        if let Some(first) = folded.get_mut(source.name).and_then(|folded| folded.first_mut()) {
            first.insert(stamp.to_owned(), sourced);
        }
    }
    let mut sources: Vec<(Seq, String)> =
        members.iter().map(|event| (event.seq, event.source.clone())).collect();
    sources.sort();
    let is_enriched = members.iter().any(|event| event.enriches);
    let first = opening.events.first()?;
    let entity = Entity {
        record_id: record_id.to_owned(),
        group: opening.identifiers.group.clone(),
        number: opening.identifiers.number.unwrap_or_default(),
        date: first.date.clone(),
        time: first.time.clone(),
        event_time: opening.time(),
        state: if is_enriched { ProcessingState::Enriched } else { ProcessingState::Linked },
        fingerprints: fingerprints(&threads),
        fields: fields(policy, &folded),
        sources,
    };
    Some((entity, applied))
}

fn at(time: Millis) -> Value<'static> {
    Value::from(time.to_rfc3339_millis())
}

/// All fingerprints of the threads, strongest first, then by trust.
fn fingerprints(threads: &[SourceThread<'_>]) -> Vec<Fingerprint> {
    let number = threads.iter().find(|thread| thread.opens).and_then(|s| s.identifiers.number);
    let mut found: Vec<Fingerprint> = Vec::new();
    for thread in threads {
        let identifiers = EntityIdentifiers { number, ..thread.identifiers.clone() };
        found.extend(identifiers.fingerprints());
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

/// Folds one thread by the replay rule of its source.
fn fold(policy: &Policy, thread: &SourceThread<'_>, applied: &mut BTreeSet<Seq>) -> FoldedFields {
    let replay = policy.source(thread.source).map_or(ReplayRule::Skip, |source| source.replay);
    let mut folded = FoldedFields::new();
    let events = thread.events.iter().map(|event| (*event, false));
    let accepted = thread.accepted().into_iter().map(|event| (event, true));
    for (place, (event, is_accepted)) in events.chain(accepted).enumerate() {
        let is_overwriting = is_accepted || matches!(replay, ReplayRule::Overwrite { .. });
        if place == 0 || is_overwriting {
            applied.insert(event.seq);
        }
        let fields = event.fields.read();
        if is_overwriting {
            let mut wholes = fields.iter().filter_map(|(name, _)| policy.domain(name));
            while let Some(whole) = wholes.by_ref().find(|domain| domain.is_whole) {
                folded.retain(|name, _| policy.domain(name) != Some(whole));
            }
        }
        for (name, value) in &fields {
            if value.is_null() {
                continue;
            }
            let domain = policy.domain(name);
            let may_replace = match replay {
                _ if is_accepted => true,
                ReplayRule::Skip => event.updates && !domain.is_some_and(|domain| domain.is_total),
                ReplayRule::Overwrite { keeps } => !keeps.contains(&name),
            };
            let value = value.clone().into_owned();
            if put(&mut folded, name, value, event.seq, domain, may_replace) {
                applied.insert(event.seq);
            }
        }
    }
    folded
}

/// Sets a value, or merges its rows into existing ones. Returns whether anything changed.
fn put(
    folded: &mut FoldedFields,
    name: &str,
    value: Value<'static>,
    event: Seq,
    domain: Option<&FieldDomain>,
    may_replace: bool,
) -> bool {
    let Some(sourced) = folded.get_mut(name) else {
        let value = match domain.and_then(|domain| domain.row_key) {
            Some(row_key) => rows(row_key, &Value::Array(Vec::new()), &value),
            None => value,
        };
        folded.insert(name.to_owned(), SourcedValue { value, event });
        return true;
    };
    let next = match domain.and_then(|domain| domain.row_key) {
        Some(row_key) if may_replace => rows(row_key, &sourced.value, &value),
        Some(row_key) => rows(row_key, &value, &sourced.value),
        None if may_replace => value,
        None => return false,
    };
    if next == sourced.value {
        return false;
    }
    *sourced = SourcedValue { value: next, event };
    true
}

/// Merges two lists of rows by the naming member. Members of `newer` replace those of `older`;
/// missing members stay. Rows are ordered by name.
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

/// Replaces a member in place, so that the order of members does not depend on the order of
/// arrival.
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

/// Selects every field by authority.
fn fields(policy: &Policy, folded: &BTreeMap<&str, Vec<FoldedFields>>) -> Vec<EntityField> {
    let names: BTreeSet<&str> =
        folded.values().flatten().flat_map(|folded| folded.keys().map(String::as_str)).collect();
    names.into_iter().filter_map(|name| field(policy, folded, name)).collect()
}

/// Whether any of these contains a field of the domain of `name`.
fn has_domain(policy: &Policy, folded: &[FoldedFields], name: &str) -> bool {
    let domain = policy.domain(name);
    folded.iter().flat_map(BTreeMap::keys).any(|field| policy.domain(field) == domain)
}

fn field(
    policy: &Policy,
    folded: &BTreeMap<&str, Vec<FoldedFields>>,
    name: &str,
) -> Option<EntityField> {
    let authority = policy.authority(name);
    let has_domain_field =
        |source: &&str| folded.get(*source).is_some_and(|folded| has_domain(policy, folded, name));
    let authority = match policy.domain(name).is_some_and(|domain| domain.is_whole) {
        true => authority.into_iter().find(has_domain_field).into_iter().collect(),
        false => authority,
    };
    let values = authority.iter().flat_map(|source| {
        let threads = folded.get(source).map(Vec::as_slice).unwrap_or_default();
        threads.iter().filter_map(|folded| folded.get(name)).map(|sourced| (*source, sourced))
    });
    let mut found: Option<EntityField> = None;
    for (source, sourced) in values {
        match (&mut found, policy.domain(name).and_then(|domain| domain.row_key)) {
            (None, _) => {
                found = Some(EntityField {
                    name: name.to_owned(),
                    value: sourced.value.clone(),
                    source: source.to_owned(),
                    event: sourced.event,
                });
            }
            // Rows of other sources fill gaps of the authoritative one.
            (Some(field), Some(row_key)) => {
                field.value = rows(row_key, &sourced.value, &field.value)
            }
            (Some(_), None) => break,
        }
    }
    found
}
