//! What a group needs to know, read in two rounds: what is known under its keys, and then what that
//! makes necessary.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{Digest, EntityId, Entry, Event, First, Key, Seq};
use bytes::Bytes;

use super::super::conn::{Ask, Columns, Conn, Result};
use super::super::desk::Wanted;
use super::super::documents::Documents;
use super::super::sql;
use super::Delivery;
use super::refusals::Refusals;
use crate::common::RefusalQuota;

/// What the ledger holds under the keys of a group.
pub(super) struct Known {
    firsts: HashMap<Key, First>,
    /// Revisions and conflicts by their content, as far as somebody has asked; none where there is
    /// nothing.
    again: HashMap<(Key, Digest), Option<Seq>>,
}

impl Known {
    /// The first round: who claimed the keys. The second, only where a key is met again: whether
    /// its other contents are kept.
    pub(super) fn fetch(conn: &Conn, deliveries: &[Delivery<'_>]) -> Result<Self> {
        let mut known = Self { firsts: HashMap::new(), again: HashMap::new() };
        let (mut keys, mut repeated) = (HashSet::new(), HashSet::new());
        for event in events(deliveries) {
            if !keys.insert(event.key) {
                repeated.insert(event.key);
            }
        }
        if keys.is_empty() {
            return Ok(known);
        }
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &key.as_bytes()[..]).collect();
        for row in conn.query(sql!("firsts"), &[&wanted])? {
            let first = First {
                seq: row.seq("seq")?,
                digest: Digest::from_bytes(row.bytes32("digest")?),
                received_at: row.millis("received_at")?,
                facts: Bytes::from(row.text("facts")?),
            };
            known.firsts.insert(Key::from_bytes(row.bytes32("key")?), first);
        }
        known.fetch_again(conn, deliveries, &repeated)?;
        Ok(known)
    }

    fn fetch_again(
        &mut self,
        conn: &Conn,
        deliveries: &[Delivery<'_>],
        repeated: &HashSet<Key>,
    ) -> Result<()> {
        for event in events(deliveries) {
            let differs = match self.firsts.get(&event.key) {
                Some(first) => first.digest != event.digest,
                None => repeated.contains(&event.key),
            };
            if differs {
                self.again.insert((event.key, event.digest), None);
            }
        }
        if self.again.is_empty() {
            return Ok(());
        }
        let pairs: Vec<(Key, Digest)> = self.again.keys().copied().collect();
        let keys: Vec<&[u8]> = pairs.iter().map(|(key, _)| &key.as_bytes()[..]).collect();
        let digests: Vec<&[u8]> = pairs.iter().map(|(_, digest)| &digest.as_bytes()[..]).collect();
        for row in conn.query(sql!("agains"), &[&keys, &digests])? {
            let key = Key::from_bytes(row.bytes32("key")?);
            let digest = Digest::from_bytes(row.bytes32("digest")?);
            self.again.insert((key, digest), Some(row.seq("seq")?));
        }
        Ok(())
    }

    pub(super) fn first(&self, key: &Key) -> Option<&First> {
        self.firsts.get(key)
    }

    /// A revision or conflict with this very content that is kept already.
    pub(super) fn again(&mut self, conn: &Conn, event: &Event) -> Result<Option<Seq>> {
        let content = (event.key, event.digest);
        if let Some(known) = self.again.get(&content) {
            return Ok(*known);
        }
        let (keys, digests) = ([&event.key.as_bytes()[..]], [&event.digest.as_bytes()[..]]);
        let row = conn.query_opt(sql!("agains"), &[&&keys[..], &&digests[..]])?;
        let known = row.map(|row| row.seq("seq")).transpose()?;
        self.again.insert(content, known);
        Ok(known)
    }

    /// A revision or conflict is kept from here on.
    pub(super) fn keep(&mut self, event: &Event, seq: Seq) {
        self.again.insert((event.key, event.digest), Some(seq));
    }

    /// The deliveries at doors that issue, each with the first under its key.
    pub(super) fn wanted<'e>(&'e self, deliveries: &[Delivery<'e>]) -> Vec<Wanted<'e>> {
        deliveries
            .iter()
            .filter_map(|&(entry, issue)| {
                let first = match entry {
                    Entry::Event(event) => self.firsts.get(&event.key),
                    Entry::Refused(_) => None,
                };
                Some(Wanted { entry, issue: issue?, first })
            })
            .collect()
    }
}

/// What refusals and projections need, in one round trip.
pub(super) fn beside(
    conn: &Conn,
    quota: RefusalQuota,
    known: &Known,
    deliveries: &[Delivery<'_>],
) -> Result<(Refusals, Documents)> {
    let refused = deliveries.iter().filter_map(|(entry, _)| match entry {
        Entry::Refused(refused) => Some(refused),
        Entry::Event(_) => None,
    });
    let mut refusals = Refusals::wanting(quota, refused);
    let mut documents = Documents::wanting(touched(known, deliveries));
    let (mut asks, at) = (refusals.asks(), refusals.asks().len());
    asks.extend(documents.asks());
    if asks.is_empty() {
        return Ok((refusals, documents));
    }
    let mut answers = conn.query_all(&asks)?;
    drop::<Vec<Ask<'_>>>(asks);
    let of_documents = answers.split_off(at);
    refusals.answered(&answers)?;
    documents.answered(&of_documents)?;
    Ok((refusals, documents))
}

/// The documents that the events of the group may change: those of events that are new, or say
/// something else than what is known.
fn touched(known: &Known, deliveries: &[Delivery<'_>]) -> BTreeSet<EntityId> {
    let mut touched = BTreeSet::new();
    for event in events(deliveries) {
        if known.first(&event.key).is_some_and(|first| first.digest == event.digest) {
            continue;
        }
        for projection in &event.projections {
            // One that panics here does so again when it is applied, where it is told.
            touched.extend(catch_unwind(AssertUnwindSafe(|| projection.entity())).ok());
        }
    }
    touched
}

fn events<'e>(deliveries: &[Delivery<'e>]) -> impl Iterator<Item = &'e Event> {
    deliveries.iter().filter_map(|(entry, _)| match *entry {
        Entry::Event(event) => Some(event),
        Entry::Refused(_) => None,
    })
}
