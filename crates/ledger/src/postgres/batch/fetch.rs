//! What a group needs to know, read in two rounds: what is known under its keys, and then what that
//! makes necessary.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{Digest, EntityId, Entry, Event, First, Key, Principal, Seq, evidence_of};
use bytes::Bytes;

use super::super::conn::{Ask, Columns, Conn, Result};
use super::super::desk::Wanted;
use super::super::documents::Documents;
use super::super::{sql, text};
use super::Delivery;
use super::refusals::Refusals;
use crate::common::RefusalQuota;

/// What the ledger holds under the keys of a group.
pub(super) struct Known {
    firsts: HashMap<Key, First>,
    /// Revisions and conflicts by their content, as far as somebody has asked; none where there is
    /// nothing.
    again: HashMap<Content, Option<Seq>>,
}

/// Content under a key, of one principal only where keys belong to principals.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Content {
    key: Key,
    digest: Digest,
    principal: Option<Principal>,
}

impl Content {
    fn of(event: &Event) -> Self {
        Self { key: event.key, digest: event.digest, principal: evidence_of(event).cloned() }
    }
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
                principal: Principal::new(&row.text("principal")?),
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
                self.again.insert(Content::of(event), None);
            }
        }
        if self.again.is_empty() {
            return Ok(());
        }
        let contents: Vec<Content> = self.again.keys().cloned().collect();
        for (content, seq) in kept(conn, contents)? {
            self.again.insert(content, Some(seq));
        }
        Ok(())
    }

    pub(super) fn first(&self, key: &Key) -> Option<&First> {
        self.firsts.get(key)
    }

    /// A revision or conflict with this very content that is kept already.
    pub(super) fn again(&mut self, conn: &Conn, event: &Event) -> Result<Option<Seq>> {
        let content = Content::of(event);
        if let Some(known) = self.again.get(&content) {
            return Ok(*known);
        }
        let known = kept(conn, vec![content.clone()])?.pop().map(|(_, seq)| seq);
        self.again.insert(content, known);
        Ok(known)
    }

    /// A revision or conflict is kept from here on.
    pub(super) fn keep(&mut self, event: &Event, seq: Seq) {
        self.again.insert(Content::of(event), Some(seq));
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

/// Those of the contents that are kept as a revision or conflict, with their places.
fn kept(conn: &Conn, contents: Vec<Content>) -> Result<Vec<(Content, Seq)>> {
    let keys: Vec<&[u8]> = contents.iter().map(|content| &content.key.as_bytes()[..]).collect();
    let digests: Vec<&[u8]> =
        contents.iter().map(|content| &content.digest.as_bytes()[..]).collect();
    let name = |principal: &Principal| text::kept(principal.as_str()).into_owned();
    let principals: Vec<Option<String>> =
        contents.iter().map(|content| content.principal.as_ref().map(name)).collect();
    let mut found = Vec::new();
    for row in conn.query(sql!("agains"), &[&keys, &digests, &principals])? {
        let at = usize::try_from(row.num("at")?).unwrap_or(usize::MAX).wrapping_sub(1);
        let Some(content) = contents.get(at) else { continue };
        found.push((content.clone(), row.seq("seq")?));
    }
    Ok(found)
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
