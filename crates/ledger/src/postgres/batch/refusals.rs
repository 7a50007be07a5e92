//! Refused submissions of a group: the same bytes are kept once, and no producer keeps more than its
//! quota.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Digest, Refused, Seq, Verdict};
use tokio_postgres::Row;

use super::super::conn::{self, Ask, Columns, Conn, Result, big};
use super::super::{sql, text};
use super::Batch;
use crate::common::job::facts_text;
use crate::common::{RefusalQuota, refusal_cost};

/// What makes two refusals the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Content {
    digest: Digest,
    door: String,
    principal: String,
    code: &'static str,
}

impl Content {
    fn of(refused: &Refused) -> Self {
        Self {
            digest: Digest::of(&refused.body),
            door: refused.door.as_str().to_owned(),
            principal: text::kept(refused.principal.as_str()).into_owned(),
            code: refused.code.as_str(),
        }
    }
}

/// What a producer has used of its quota at a door.
#[derive(Clone, Copy, Default)]
struct Used {
    /// Whether anything was ever kept.
    is_known: bool,
    rows: u64,
    bytes: u64,
    has_changed: bool,
}

/// What is known about the refusals of a group.
pub(super) struct Refusals {
    quota: RefusalQuota,
    /// Where each is kept, as far as somebody has asked.
    before: BTreeMap<Content, Option<Seq>>,
    used: BTreeMap<(String, String), Used>,
    asked: Columns4,
}

/// The contents that are asked for, column by column.
#[derive(Default)]
struct Columns4 {
    digests: Vec<Vec<u8>>,
    doors: Vec<String>,
    principals: Vec<String>,
    codes: Vec<&'static str>,
}

impl Refusals {
    pub(super) fn wanting<'e>(
        quota: RefusalQuota,
        refused: impl Iterator<Item = &'e Refused>,
    ) -> Self {
        let contents: BTreeSet<Content> = refused.map(Content::of).collect();
        let mut refusals = Self {
            quota,
            before: BTreeMap::new(),
            used: BTreeMap::new(),
            asked: Columns4::default(),
        };
        for content in contents {
            refusals.asked.digests.push(content.digest.as_bytes().to_vec());
            refusals.asked.doors.push(content.door.clone());
            refusals.asked.principals.push(content.principal.clone());
            refusals.asked.codes.push(content.code);
            let producer = (content.door.clone(), content.principal.clone());
            refusals.used.insert(producer, Used::default());
            refusals.before.insert(content, None);
        }
        refusals
    }

    /// What has to be asked; nothing in a group without refusals.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        let Columns4 { digests, doors, principals, codes } = &self.asked;
        if digests.is_empty() {
            return Vec::new();
        }
        vec![
            Ask::new(sql!("refused_befores"), vec![digests, doors, principals, codes]),
            Ask::new(sql!("quotas"), vec![doors, principals]),
        ]
    }

    pub(super) fn answered(&mut self, answers: &[Vec<Row>]) -> Result<()> {
        let [before, used] = answers else { return Ok(()) };
        for row in before {
            // Which of the contents that were asked for, counted from one.
            let at = usize::try_from(row.num("at")?).unwrap_or(usize::MAX).wrapping_sub(1);
            let Some(&code) = self.asked.codes.get(at) else { continue };
            let content = Content {
                digest: Digest::from_bytes(row.bytes32("digest")?),
                door: self.asked.doors[at].clone(),
                principal: self.asked.principals[at].clone(),
                code,
            };
            self.before.insert(content, Some(row.seq("seq")?));
        }
        for row in used {
            let producer = (row.val("door")?, row.val("principal")?);
            let (rows, bytes) = (row.num("rows")?, row.num("bytes")?);
            self.used.insert(producer, Used { is_known: true, rows, bytes, has_changed: false });
        }
        Ok(())
    }

    /// One that was not in the group as it came: asked for by itself.
    fn ask_one(&mut self, conn: &Conn, refused: &Refused) -> Result<()> {
        let mut one = Self::wanting(self.quota, std::iter::once(refused));
        let answers = conn.query_all(&one.asks())?;
        one.answered(&answers)?;
        self.before.extend(one.before);
        for (producer, used) in one.used {
            self.used.entry(producer).or_insert(used);
        }
        Ok(())
    }

    /// Takes one refusal from the quota; `false` when it is used up.
    fn take(&mut self, producer: (String, String), bytes: u64) -> bool {
        let used = self.used.entry(producer).or_default();
        let fits = used.rows < self.quota.rows_max && used.bytes + bytes <= self.quota.bytes_max;
        if used.is_known && !fits {
            return false;
        }
        let (rows, bytes) = (used.rows + 1, used.bytes + bytes);
        *used = Used { is_known: true, rows, bytes, has_changed: true };
        true
    }

    /// Writes what was used.
    pub(super) fn flush(&self, conn: &Conn) -> Result<()> {
        let (mut doors, mut principals) = (Vec::new(), Vec::new());
        let (mut rows, mut bytes) = (Vec::new(), Vec::new());
        for ((door, principal), used) in self.used.iter().filter(|(_, used)| used.has_changed) {
            doors.push(door.as_str());
            principals.push(principal.as_str());
            rows.push(big(used.rows));
            bytes.push(big(used.bytes));
        }
        if !doors.is_empty() {
            conn.execute(sql!("quotas_put"), &[&doors, &principals, &rows, &bytes])?;
        }
        Ok(())
    }
}

impl Batch<'_> {
    pub(in super::super) fn refused(&mut self, refused: &Refused) -> conn::Result<Verdict> {
        let content = Content::of(refused);
        if !self.refusals.before.contains_key(&content) {
            self.refusals.ask_one(self.conn, refused)?;
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
