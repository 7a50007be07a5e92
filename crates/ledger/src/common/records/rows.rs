//! Rows of the queried tables: made from events, again whenever their links change.
//!
//! Events that share a hard key share their rows. They are written one after the other, the most
//! trusted last, and what one leaves out stays as the other said it; so the order in which they came
//! does not matter.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::Seq;
use admit_core::json::Object;
use admit_core::record::{Link, LinkStatus, Policy, SourceEvent};

use super::RecordError;
use super::near::Near;
use super::tables::{Drift, RowSet, Tables};

/// Writes the rows of the events in `changed`, and of those that share them. `links` are the links
/// that have changed.
pub(super) fn write<T: Tables>(
    tables: &mut T,
    policy: &Policy,
    near: &mut Near,
    links: &BTreeMap<Seq, &Link>,
    changed: &BTreeSet<Seq>,
) -> Result<Drift, RecordError<T::Error>> {
    let mut drift = Drift::new();
    let tells = |source: &str| policy.tables.iter().any(|table| table.sources.contains(&source));
    let owners: BTreeSet<String> = near
        .events
        .iter()
        .filter(|event| changed.contains(&event.seq) && tells(&event.source))
        .map(|event| owner(policy, event))
        .collect();
    for owner_name in owners {
        let sharing: Vec<Seq> = near
            .events
            .iter()
            .filter(|event| tells(&event.source) && owner(policy, event) == owner_name)
            .map(|event| event.seq)
            .collect();
        near.read_fields(tables, &sharing).map_err(RecordError::Store)?;
        let shared = share(tables, policy, near, links, &sharing, &owner_name, &mut drift);
        shared.map_err(RecordError::Store)?;
    }
    if !drift.is_empty() {
        tables.drifted(&drift).map_err(RecordError::Store)?;
    }
    Ok(drift)
}

/// What names the events that share rows.
fn owner(policy: &Policy, event: &SourceEvent) -> String {
    let family = policy.family(&event.source);
    match &event.hard_key {
        Some(hard_key) => format!("{family}|{hard_key}"),
        None => format!("{family}|{}", event.key),
    }
}

/// Writes the rows of events that share them.
fn share<T: Tables>(
    tables: &mut T,
    policy: &Policy,
    near: &Near,
    links: &BTreeMap<Seq, &Link>,
    sharing: &[Seq],
    owner: &str,
    drift: &mut Drift,
) -> Result<(), T::Error> {
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
        let before: Vec<Seq> =
            events.iter().map(|event| event.seq).filter(|seq| known.contains_key(seq)).collect();
        if !before.is_empty() {
            tables.clear_rows(table, &before)?;
        }
        for event in events {
            let link = links.get(&event.seq).or_else(|| known.get(&event.seq));
            let (Some(link), Some(fields)) = (link, told.get(&event.seq)) else { continue };
            let why = drift.entry(event.seq).or_default();
            if link.status == LinkStatus::Ambiguous {
                continue;
            }
            let rows = table.rows(event, fields, link);
            if rows.is_empty() {
                continue;
            }
            if let Some(said) = tables.put_rows(RowSet { table, event, link, owner, rows })? {
                // It is told by the event itself and by the diagnostics; a folder of such files
                // would flood the log.
                tracing::debug!(seq = event.seq.0, table = table.name, said, "rows are left out");
                *why = Some(said);
            }
        }
    }
    Ok(())
}
