//! Rows of the queried tables: made from events, again whenever their links change.
//!
//! Events that share a hard key share their rows. They are written one after the other, the most
//! trusted last, and what one leaves out stays as the other said it; so the order in which they came
//! does not matter.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::Seq;
use admit_core::json::Object;
use admit_core::record::{Link, LinkStatus, Policy, SourceEvent};

use super::near::Near;
use super::tables::{Drift, RowSet, Tables, Write};

/// Reads what is needed to write the rows of the events in `changed`, and of those that share them:
/// which events share rows, by what names them.
pub(super) fn sharing<T: Tables>(
    tables: &mut T,
    policy: &Policy,
    near: &mut Near,
    changed: &BTreeSet<Seq>,
) -> Result<Shares, T::Error> {
    let tells = |source: &str| policy.tables.iter().any(|table| table.sources.contains(&source));
    let telling = || near.events.iter().filter(|event| tells(&event.source));
    let owners = telling().filter(|event| changed.contains(&event.seq));
    let mut shares: Shares = owners.map(|event| (owner(policy, event), Vec::new())).collect();
    if shares.is_empty() {
        return Ok(shares);
    }
    for event in telling() {
        if let Some(share) = shares.get_mut(&owner(policy, event)) {
            share.push(event.seq);
        }
    }
    let all: Vec<Seq> = shares.values().flatten().copied().collect();
    near.read_fields(tables, &all)?;
    Ok(shares)
}

/// Events that share rows, by what names them.
pub(super) type Shares = BTreeMap<String, Vec<Seq>>;

/// What is to be written for rows, in its order; `links` are the links that have changed. Every event
/// that rows were looked for gets its place in `drift`.
pub(super) fn writes<'a>(
    policy: &'a Policy,
    near: &'a Near,
    links: &BTreeMap<Seq, &'a Link>,
    shares: &'a Shares,
    drift: &mut Drift,
) -> Vec<Write<'a>> {
    let mut writes = Vec::new();
    for (owner, sharing) in shares {
        share(policy, near, links, (owner, sharing), drift, &mut writes);
    }
    writes
}

/// What names the events that share rows.
fn owner(policy: &Policy, event: &SourceEvent) -> String {
    let family = policy.family(&event.source);
    match &event.hard_key {
        Some(hard_key) => format!("{family}|{hard_key}"),
        None => format!("{family}|{}", event.key),
    }
}

/// What is to be written for events that share their rows.
fn share<'a>(
    policy: &'a Policy,
    near: &'a Near,
    links: &BTreeMap<Seq, &'a Link>,
    (owner, sharing): (&'a str, &[Seq]),
    drift: &mut Drift,
    writes: &mut Vec<Write<'a>>,
) {
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_sharing = |event: &&SourceEvent| sharing.contains(&event.seq);
    let all: Vec<&SourceEvent> = near.events.iter().filter(is_sharing).collect();
    let told: BTreeMap<Seq, Object<'_>> =
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
            writes.push(Write::ClearRows(table, before));
        }
        for event in events {
            let (Some(link), Some(fields)) = (link_of(&event.seq), told.get(&event.seq)) else {
                continue;
            };
            drift.entry(event.seq).or_default();
            // What contradicts others has rows of its own only where it shares none with them.
            if !link.has_rows() || (link.status == LinkStatus::Ambiguous && has_sure) {
                continue;
            }
            let rows = table.rows(event, fields, link);
            if !rows.is_empty() {
                writes.push(Write::Rows(RowSet { table, event, link, owner, rows }));
            }
        }
    }
}

/// Notes what was in the way of rows, for their events.
pub(super) fn note(writes: &[Write<'_>], said: Vec<Option<String>>, drift: &mut Drift) {
    let sets = writes
        .iter()
        .filter_map(|write| if let Write::Rows(set) = write { Some(set) } else { None });
    for (set, said) in sets.zip(said) {
        let Some(said) = said else { continue };
        // It is told by the event itself and by the diagnostics; a folder of such files would flood
        // the log.
        tracing::debug!(seq = set.event.seq.0, table = set.table.name, said, "rows are left out");
        match drift.entry(set.event.seq).or_default() {
            // The rows of its other tables are kept; each table that lacks some is named.
            Some(before) => *before = format!("{before}; {said}"),
            none => *none = Some(said),
        }
    }
}
