//! Looks up what a batch needs: the admissions under its keys, refusals and documents in the round trip that
//! begins the transaction, then what these make necessary.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{
    Digest, EntityId, Entry, Event, Key, Principal, PriorAdmission, Seq, evidence_of,
};
use bytes::Bytes;
use tokio_postgres::Row;

use super::super::conn::{Columns, Conn, OwnedQuery, Result};
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

/// What deliveries need from the ledger, before it is looked up.
pub(in super::super) struct Lookup {
    keys: Vec<Key>,
    refusals: Refusals,
    documents: Documents,
}

impl Lookup {
    pub(in super::super) fn of<'e>(
        quota: RefusalQuota,
        deliveries: impl Iterator<Item = Delivery<'e>> + Clone,
    ) -> Self {
        let keys: HashSet<Key> = events(deliveries.clone()).map(|event| event.key).collect();
        let documents = Documents::expecting(touched(deliveries.clone()));
        let refused = deliveries.filter_map(|(entry, _)| match entry {
            Entry::Refused(refused) => Some(refused),
            Entry::Event(_) => None,
        });
        let refusals = Refusals::expecting(quota, refused);
        Self { keys: keys.into_iter().collect(), refusals, documents }
    }

    pub(in super::super) fn queries(&self) -> Vec<OwnedQuery<'_>> {
        let mut queries = Vec::with_capacity(4);
        if !self.keys.is_empty() {
            let keys: Vec<&[u8]> = self.keys.iter().map(|key| &key.as_bytes()[..]).collect();
            queries.push(OwnedQuery::new(sql!("firsts"), vec![Box::new(keys)]));
        }
        queries.extend(self.refusals.queries());
        queries.extend(self.documents.queries());
        queries
    }

    /// Reads the results of the queries, in their order.
    pub(in super::super) fn load(mut self, results: Vec<Vec<Row>>) -> Result<LookedUp> {
        let mut known = KeyPrefetch { firsts: HashMap::new(), same_content: HashMap::new() };
        let mut results = &results[..];
        if !self.keys.is_empty()
            && let Some((firsts, rest)) = results.split_first()
        {
            known.load(firsts)?;
            results = rest;
        }
        let (of_refusals, of_documents) = results.split_at(self.refusals.queries().len());
        self.refusals.load(of_refusals)?;
        self.documents.load(of_documents)?;
        Ok(LookedUp { known, refusals: self.refusals, documents: self.documents })
    }
}

/// Results of a [`Lookup`].
pub(in super::super) struct LookedUp {
    pub(super) known: KeyPrefetch,
    pub(super) refusals: Refusals,
    pub(super) documents: Documents,
}

impl LookedUp {
    /// Adds the results for calls that arrived later.
    pub(in super::super) fn absorb(&mut self, other: Self) {
        self.known.firsts.extend(other.known.firsts);
        self.refusals.absorb(other.refusals);
        self.documents.absorb(other.documents);
    }
}

impl KeyPrefetch {
    fn load(&mut self, firsts: &[Row]) -> Result<()> {
        for row in firsts {
            let first = PriorAdmission {
                seq: row.seq("seq")?,
                digest: Digest::from_bytes(row.bytes32("digest")?),
                received_at: row.millis("received_at")?,
                principal: Principal::new(&row.text("principal")?),
                facts: Bytes::from(row.text("facts")?),
            };
            self.firsts.insert(Key::from_bytes(row.bytes32("key")?), first);
        }
        Ok(())
    }

    /// Looks up, only for keys met again, whether other content of theirs is stored.
    pub(super) fn prefetch_same_content(
        &mut self,
        conn: &Conn,
        deliveries: &[Delivery<'_>],
    ) -> Result<()> {
        let mut seen = HashSet::new();
        for event in events(deliveries.iter().copied()) {
            let is_repeated = !seen.insert(event.key);
            let differs = match self.firsts.get(&event.key) {
                Some(first) => first.digest != event.digest,
                None => is_repeated,
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

/// The documents that the events may change. A copy changes none, but is known as one only later.
fn touched<'e>(deliveries: impl Iterator<Item = Delivery<'e>>) -> BTreeSet<EntityId> {
    let mut touched = BTreeSet::new();
    for event in events(deliveries) {
        for projection in &event.projections {
            // A panic here repeats when the projection is applied, where it is handled.
            touched.extend(catch_unwind(AssertUnwindSafe(|| projection.entity())).ok());
        }
    }
    touched
}

fn events<'e>(deliveries: impl Iterator<Item = Delivery<'e>>) -> impl Iterator<Item = &'e Event> {
    deliveries.filter_map(|(entry, _)| match entry {
        Entry::Event(event) => Some(event),
        Entry::Refused(_) => None,
    })
}
