//! Prefetches the rows of a batch in two round trips: first the admissions under its keys, then what they
//! make necessary.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{
    Digest, EntityId, Entry, Event, Key, Principal, PriorAdmission, Seq, evidence_of,
};
use bytes::Bytes;

use super::super::conn::{Columns, Conn, Query, Result};
use super::super::documents::Documents;
use super::super::effect_store::ExpectedEntry;
use super::super::{nul_escape, sql};
use super::Delivery;
use super::refusals::Refusals;
use crate::common::RefusalQuota;

/// Admissions under the keys of a batch.
pub(super) struct KeyPrefetch {
    firsts: HashMap<Key, PriorAdmission>,
    /// Revisions and conflicts by content, as far as looked up; `None` if there is none.
    same_content: HashMap<ContentKey, Option<Seq>>,
}

/// Content under a key, of one principal only if keys are scoped to principals.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ContentKey {
    key: Key,
    digest: Digest,
    principal: Option<Principal>,
}

impl ContentKey {
    fn of(event: &Event) -> Self {
        Self { key: event.key, digest: event.digest, principal: evidence_of(event).cloned() }
    }
}

impl KeyPrefetch {
    /// First the admissions that claimed the keys. Then, only for keys met again, whether other content of
    /// theirs is stored.
    pub(super) fn prefetch(conn: &Conn, deliveries: &[Delivery<'_>]) -> Result<Self> {
        let mut known = Self { firsts: HashMap::new(), same_content: HashMap::new() };
        let (mut keys, mut repeated) = (HashSet::new(), HashSet::new());
        for event in events(deliveries) {
            if !keys.insert(event.key) {
                repeated.insert(event.key);
            }
        }
        if keys.is_empty() {
            return Ok(known);
        }
        let expected: Vec<&[u8]> = keys.iter().map(|key| &key.as_bytes()[..]).collect();
        for row in conn.query(sql!("firsts"), &[&expected])? {
            let first = PriorAdmission {
                seq: row.seq("seq")?,
                digest: Digest::from_bytes(row.bytes32("digest")?),
                received_at: row.millis("received_at")?,
                principal: Principal::new(&row.text("principal")?),
                facts: Bytes::from(row.text("facts")?),
            };
            known.firsts.insert(Key::from_bytes(row.bytes32("key")?), first);
        }
        known.prefetch_same_content(conn, deliveries, &repeated)?;
        Ok(known)
    }

    fn prefetch_same_content(
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
                self.same_content.insert(ContentKey::of(event), None);
            }
        }
        if self.same_content.is_empty() {
            return Ok(());
        }
        let contents: Vec<ContentKey> = self.same_content.keys().cloned().collect();
        for (content, seq) in find_stored(conn, contents)? {
            self.same_content.insert(content, Some(seq));
        }
        Ok(())
    }

    pub(super) fn first(&self, key: &Key) -> Option<&PriorAdmission> {
        self.firsts.get(key)
    }

    /// Returns the stored revision or conflict with exactly this content.
    pub(super) fn same_content(&mut self, conn: &Conn, event: &Event) -> Result<Option<Seq>> {
        let content = ContentKey::of(event);
        if let Some(known) = self.same_content.get(&content) {
            return Ok(*known);
        }
        let known = find_stored(conn, vec![content.clone()])?.pop().map(|(_, seq)| seq);
        self.same_content.insert(content, known);
        Ok(known)
    }

    /// Adds a revision or conflict.
    pub(super) fn keep(&mut self, event: &Event, seq: Seq) {
        self.same_content.insert(ContentKey::of(event), Some(seq));
    }

    /// The deliveries at doors that issue documents, each with the first admission under its key.
    pub(super) fn expected<'e>(&'e self, deliveries: &[Delivery<'e>]) -> Vec<ExpectedEntry<'e>> {
        deliveries
            .iter()
            .filter_map(|&(entry, issue)| {
                let first = match entry {
                    Entry::Event(event) => self.firsts.get(&event.key),
                    Entry::Refused(_) => None,
                };
                Some(ExpectedEntry { entry, issue: issue?, first })
            })
            .collect()
    }
}

/// Returns the contents stored as a revision or conflict, with their seqs.
fn find_stored(conn: &Conn, contents: Vec<ContentKey>) -> Result<Vec<(ContentKey, Seq)>> {
    let keys: Vec<&[u8]> = contents.iter().map(|content| &content.key.as_bytes()[..]).collect();
    let digests: Vec<&[u8]> =
        contents.iter().map(|content| &content.digest.as_bytes()[..]).collect();
    let name = |principal: &Principal| nul_escape::escape(principal.as_str()).into_owned();
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

/// Prefetches what refusals and projections need, in one round trip.
pub(super) fn prefetch_rest(
    conn: &Conn,
    quota: RefusalQuota,
    known: &KeyPrefetch,
    deliveries: &[Delivery<'_>],
) -> Result<(Refusals, Documents)> {
    let refused = deliveries.iter().filter_map(|(entry, _)| match entry {
        Entry::Refused(refused) => Some(refused),
        Entry::Event(_) => None,
    });
    let mut refusals = Refusals::expecting(quota, refused);
    let mut documents = Documents::expecting(touched(known, deliveries));
    let (mut queries, at) = (refusals.queries(), refusals.queries().len());
    queries.extend(documents.queries());
    if queries.is_empty() {
        return Ok((refusals, documents));
    }
    let mut results = conn.query_all(&queries)?;
    drop::<Vec<Query<'_>>>(queries);
    let of_documents = results.split_off(at);
    refusals.load(&results)?;
    documents.load(&of_documents)?;
    Ok((refusals, documents))
}

/// The documents that the events of the batch may change: those of events that are new or have other content
/// than the first one.
fn touched(known: &KeyPrefetch, deliveries: &[Delivery<'_>]) -> BTreeSet<EntityId> {
    let mut touched = BTreeSet::new();
    for event in events(deliveries) {
        if known.first(&event.key).is_some_and(|first| first.digest == event.digest) {
            continue;
        }
        for projection in &event.projections {
            // A panic here repeats when the projection is applied, where it is handled.
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
