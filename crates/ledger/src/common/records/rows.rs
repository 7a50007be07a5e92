//! Rows of the queried tables: made from events, and made again whenever their links change.
//!
//! Events that share a hard key share their rows. They are written one after the other, the most trusted
//! source last, and a column that one leaves out keeps the value of another; so their order of arrival
//! does not matter.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::Seq;
use admit_core::entity::{Link, LinkStatus, Policy, SourceEvent};
use admit_core::json::Object;

use super::candidates::LoadedCandidates;
use super::tables::{Drift, RowSet, RowWrite, Tables};

/// Loads what is needed to write the rows of the events in `changed` and of those that share their rows.
/// Returns which events share rows, by owner name.
pub(super) fn load_shares<T: Tables>(
    tables: &mut T,
    policy: &Policy,
    near: &mut LoadedCandidates,
    changed: &BTreeSet<Seq>,
) -> Result<SharesByOwner, T::Error> {
    let has_tables =
        |source: &str| policy.tables.iter().any(|table| table.sources.contains(&source));
    let events = || near.events.iter().filter(|event| has_tables(&event.source));
    let owners = events().filter(|event| changed.contains(&event.seq));
    let mut shares: SharesByOwner =
        owners.map(|event| (owner(policy, event), Vec::new())).collect();
    if shares.is_empty() {
        return Ok(shares);
    }
    for event in events() {
        if let Some(share) = shares.get_mut(&owner(policy, event)) {
            share.push(event.seq);
        }
    }
    let all: Vec<Seq> = shares.values().flatten().copied().collect();
    near.read_fields(tables, &all)?;
    Ok(shares)
}

/// Events that share rows, by owner name.
pub(super) type SharesByOwner = BTreeMap<String, Vec<Seq>>;

/// Returns the row writes in order; `links` are the changed links. Every event whose rows are written gets
/// an entry in `drift`.
pub(super) fn writes<'a>(
    policy: &'a Policy,
    near: &'a LoadedCandidates,
    links: &BTreeMap<Seq, &'a Link>,
    shares: &'a SharesByOwner,
    drift: &mut Drift,
) -> Vec<RowWrite<'a>> {
    let mut writes = Vec::new();
    for (owner, load_shares) in shares {
        share(policy, near, links, (owner, load_shares), drift, &mut writes);
    }
    writes
}

/// Owner name of the events that share rows.
fn owner(policy: &Policy, event: &SourceEvent) -> String {
    let family = policy.family(&event.source);
    match &event.hard_key {
        Some(hard_key) => format!("{family}|{hard_key}"),
        None => format!("{family}|{}", event.key),
    }
}

/// Appends the writes of events that share their rows.
fn share<'a>(
    policy: &'a Policy,
    near: &'a LoadedCandidates,
    links: &BTreeMap<Seq, &'a Link>,
    (owner, load_shares): (&'a str, &[Seq]),
    drift: &mut Drift,
    writes: &mut Vec<RowWrite<'a>>,
) {
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_sharing = |event: &&SourceEvent| load_shares.contains(&event.seq);
    let all: Vec<&SourceEvent> = near.events.iter().filter(is_sharing).collect();
    let fields_by_event: BTreeMap<Seq, Object<'_>> =
        all.iter().map(|event| (event.seq, event.fields.read())).collect();
    for table in policy.tables {
        let rank = |event: &SourceEvent| table.sources.iter().position(|s| *s == event.source);
        let mut events = all.clone();
        events.retain(|event| rank(event).is_some());
        events.sort_by_key(|event| (std::cmp::Reverse(rank(event)), event.seq));
        let link_of = |seq: &Seq| links.get(seq).or_else(|| known.get(seq)).copied();
        let is_sure = |event: &&SourceEvent| {
            link_of(&event.seq).is_some_and(|link| link.status != LinkStatus::Ambiguous)
        };
        let has_sure = events.iter().any(is_sure);
        let before: Vec<Seq> =
            events.iter().map(|event| event.seq).filter(|seq| known.contains_key(seq)).collect();
        if !before.is_empty() {
            writes.push(RowWrite::Clear(table, before));
        }
        for event in events {
            let (Some(link), Some(fields)) = (link_of(&event.seq), fields_by_event.get(&event.seq))
            else {
                continue;
            };
            drift.entry(event.seq).or_default();
            // An ambiguous event has rows of its own only if no linked event shares them.
            if !link.has_rows() || (link.status == LinkStatus::Ambiguous && has_sure) {
                continue;
            }
            let rows = table.rows(event, fields, link);
            if !rows.is_empty() {
                writes.push(RowWrite::Put(RowSet { table, event, link, owner, rows }));
            }
        }
    }
}

/// Records which rows could not be stored, by event.
pub(super) fn collect_drift(
    writes: &[RowWrite<'_>],
    messages: Vec<Option<String>>,
    drift: &mut Drift,
) {
    let sets = writes
        .iter()
        .filter_map(|write| if let RowWrite::Put(set) = write { Some(set) } else { None });
    for (set, message) in sets.zip(messages) {
        let Some(message) = message else { continue };
        // The event itself and the diagnostics report it; at a higher level an import of such files would flood
        // the log.
        tracing::debug!(
            seq = set.event.seq.0,
            table = set.table.name,
            message,
            "rows of an event skipped"
        );
        match drift.entry(set.event.seq).or_default() {
            // The rows of its other tables are stored; each table that lacks some is named.
            Some(before) => *before = format!("{before}; {message}"),
            none => *none = Some(message),
        }
    }
}
