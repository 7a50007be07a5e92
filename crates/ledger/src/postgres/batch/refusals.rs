//! Refusals of a batch: the same bytes are stored once, and no producer stores more than its quota.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Digest, RefusedSubmission, Seq, Verdict};
use tokio_postgres::Row;

use super::super::conn::{self, Columns, Conn, OwnedParam, OwnedQuery, Result, big};
use super::super::{nul_escape, sql};
use super::Batch;
use crate::common::write_command::facts_text;
use crate::common::{RefusalQuota, refusal_cost};

/// Identity of a refusal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusedContent {
    digest: Digest,
    door: String,
    principal: String,
    code: &'static str,
}

impl RefusedContent {
    fn of(refused: &RefusedSubmission) -> Self {
        Self {
            digest: Digest::of(&refused.body),
            door: refused.door.as_str().to_owned(),
            principal: nul_escape::escape(refused.principal.as_str()).into_owned(),
            code: refused.code.as_str(),
        }
    }
}

/// Quota usage of a producer at a door.
#[derive(Clone, Copy, Default)]
struct QuotaUsage {
    /// Whether it has a stored row.
    is_known: bool,
    rows: u64,
    bytes: u64,
    has_changed: bool,
}

/// Prefetched refusals of a batch.
pub(super) struct Refusals {
    quota: RefusalQuota,
    /// Seq of the stored refusal, as far as looked up.
    before: BTreeMap<RefusedContent, Option<Seq>>,
    used: BTreeMap<(String, String), QuotaUsage>,
    lookup: LookupColumns,
}

/// The contents to look up, column by column.
#[derive(Default)]
struct LookupColumns {
    digests: Vec<Vec<u8>>,
    doors: Vec<String>,
    principals: Vec<String>,
    codes: Vec<&'static str>,
}

impl Refusals {
    pub(super) fn expecting<'e>(
        quota: RefusalQuota,
        refused: impl Iterator<Item = &'e RefusedSubmission>,
    ) -> Self {
        let contents: BTreeSet<RefusedContent> = refused.map(RefusedContent::of).collect();
        let mut refusals = Self {
            quota,
            before: BTreeMap::new(),
            used: BTreeMap::new(),
            lookup: LookupColumns::default(),
        };
        for content in contents {
            refusals.lookup.digests.push(content.digest.as_bytes().to_vec());
            refusals.lookup.doors.push(content.door.clone());
            refusals.lookup.principals.push(content.principal.clone());
            refusals.lookup.codes.push(content.code);
            let producer = (content.door.clone(), content.principal.clone());
            refusals.used.insert(producer, QuotaUsage::default());
            refusals.before.insert(content, None);
        }
        refusals
    }

    /// The queries to send; none for a batch without refusals.
    pub(super) fn queries(&self) -> Vec<OwnedQuery<'_>> {
        let LookupColumns { digests, doors, principals, codes } = &self.lookup;
        if digests.is_empty() {
            return Vec::new();
        }
        vec![
            OwnedQuery::new(
                sql!("refused_befores"),
                vec![Box::new(digests), Box::new(doors), Box::new(principals), Box::new(codes)],
            ),
            OwnedQuery::new(sql!("quotas"), vec![Box::new(doors), Box::new(principals)]),
        ]
    }

    pub(super) fn load(&mut self, results: &[Vec<Row>]) -> Result<()> {
        let [before, used] = results else { return Ok(()) };
        for row in before {
            // Index into the looked-up contents, counted from one.
            let at = usize::try_from(row.num("at")?).unwrap_or(usize::MAX).wrapping_sub(1);
            let Some(&code) = self.lookup.codes.get(at) else { continue };
            let content = RefusedContent {
                digest: Digest::from_bytes(row.bytes32("digest")?),
                door: self.lookup.doors[at].clone(),
                principal: self.lookup.principals[at].clone(),
                code,
            };
            self.before.insert(content, Some(row.seq("seq")?));
        }
        for row in used {
            let producer = (row.val("door")?, row.val("principal")?);
            let (rows, bytes) = (row.num("rows")?, row.num("bytes")?);
            self.used
                .insert(producer, QuotaUsage { is_known: true, rows, bytes, has_changed: false });
        }
        Ok(())
    }

    /// Looks up a refusal that was not in the batch as received.
    fn look_up_one(&mut self, conn: &Conn, refused: &RefusedSubmission) -> Result<()> {
        let mut one = Self::expecting(self.quota, std::iter::once(refused));
        let results = conn.query_all(&one.queries())?;
        one.load(&results)?;
        self.absorb(one);
        Ok(())
    }

    /// Adds the refusals of another lookup.
    pub(super) fn absorb(&mut self, other: Self) {
        self.before.extend(other.before);
        for (producer, used) in other.used {
            self.used.entry(producer).or_insert(used);
        }
    }

    /// Takes one refusal from the quota; returns `false` if it is used up.
    fn take(&mut self, producer: (String, String), bytes: u64) -> bool {
        let used = self.used.entry(producer).or_default();
        let fits = used.rows < self.quota.rows_max && used.bytes + bytes <= self.quota.bytes_max;
        if used.is_known && !fits {
            return false;
        }
        let (rows, bytes) = (used.rows + 1, used.bytes + bytes);
        *used = QuotaUsage { is_known: true, rows, bytes, has_changed: true };
        true
    }

    /// The statement that writes the quota usage.
    pub(super) fn writes(&self) -> Option<OwnedQuery<'_>> {
        let (mut doors, mut principals) = (Vec::new(), Vec::new());
        let (mut rows, mut bytes) = (Vec::new(), Vec::new());
        for ((door, principal), used) in self.used.iter().filter(|(_, used)| used.has_changed) {
            doors.push(door.as_str());
            principals.push(principal.as_str());
            rows.push(big(used.rows));
            bytes.push(big(used.bytes));
        }
        let is_changed = !doors.is_empty();
        let columns: Vec<OwnedParam<'_>> =
            vec![Box::new(doors), Box::new(principals), Box::new(rows), Box::new(bytes)];
        is_changed.then(|| OwnedQuery::new(sql!("quotas_put"), columns))
    }
}

impl Batch<'_> {
    pub(in super::super) fn refused(
        &mut self,
        refused: &RefusedSubmission,
    ) -> conn::Result<Verdict> {
        let content = RefusedContent::of(refused);
        if !self.refusals.before.contains_key(&content) {
            self.refusals.look_up_one(self.conn, refused)?;
        }
        if let Some(Some(admission)) = self.refusals.before.get(&content) {
            let seq = self.seen(*admission, refused.received_at, refused.attempt, None);
            return Ok(Verdict::Refused { seq: Some(seq) });
        }
        let producer = (content.door.clone(), content.principal.clone());
        let facts = facts_text(&refused.facts);
        if !self.refusals.take(producer, refusal_cost(refused, &facts)) {
            return Ok(Verdict::Refused { seq: None });
        }
        let seq = self.position.next();
        self.position.admissions += 1;
        self.rows.refused(seq, refused, content.digest, facts);
        self.refusals.before.insert(content, Some(seq));
        Ok(Verdict::Refused { seq: Some(seq) })
    }
}
