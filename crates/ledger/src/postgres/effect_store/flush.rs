//! Statements that write the changes of effects, documents and runs.

use std::borrow::Cow;
use std::collections::HashMap;

use admit_core::effect::EffectState;
use admit_core::{Seq, StoredDocument};

use super::super::conn::{OwnedParam, OwnedQuery, Result, big, big_opt};
use super::super::{nul_escape, sql};
use super::{ChangedEffect, Changes, PendingHistoryLine, PgEffectStore};
use crate::rules::{RunDeltas, evidence_text};

type Text<'a> = Cow<'a, str>;

impl PgEffectStore<'_> {
    /// Writes everything in one round trip. Returns the number of the newest document.
    pub(in super::super) fn flush(&mut self) -> Result<u64> {
        let writes = self.writes()?;
        if !writes.is_empty() {
            self.conn.execute_all(&writes)?;
        }
        Ok(self.changes.last_issued)
    }

    /// Number of the newest document.
    pub(in super::super) fn last_issued(&self) -> u64 {
        self.changes.last_issued
    }

    /// The statements that write everything.
    pub(in super::super) fn writes(&self) -> Result<Vec<OwnedQuery<'_>>> {
        self.check()?;
        let Changes {
            issued_before, last_issued, effects, lines, documents, runs, counters, ..
        } = &self.changes;
        let (epoch, newest) = (big(self.epoch), big(*last_issued));
        let (new_effects, changed): (Vec<_>, Vec<_>) =
            effects.values().partition(|changed| changed.is_new);
        let (new_effects, changed) =
            (EffectRows::of(&new_effects, self.epoch), EffectRows::of(&changed, self.epoch));
        let lines = LineRows::of(lines, effects);
        let new = IssuedRows::of(documents.values().filter(|filed| filed.n > *issued_before));
        let old = StandingRows::of(documents.values().filter(|filed| filed.n <= *issued_before));
        let runs = RunRows::of(runs);
        let mut queries = Vec::new();
        if !new_effects.seq.is_empty() {
            queries.push(new_effects.query(sql!("effect_put_many")));
        }
        if !changed.seq.is_empty() {
            queries.push(changed.query(sql!("effect_turn_many")));
        }
        if !lines.seq.is_empty() {
            queries.push(lines.query(epoch));
        }
        if !new.n.is_empty() {
            queries.push(new.query(epoch));
            let issued: Vec<OwnedParam<'_>> = vec![Box::new(epoch), Box::new(newest)];
            queries.push(OwnedQuery::new(sql!("gate_issued"), issued));
        }
        if !old.n.is_empty() {
            queries.push(old.query());
        }
        if !runs.run.is_empty() {
            queries.push(runs.query());
        }
        queries.extend(counters.raised().map(|counter| counted(sql!(shared "meta_max"), counter)));
        queries.extend(counters.added().map(|counter| counted(sql!(shared "meta_add"), counter)));
        Ok(queries)
    }
}

/// A statement about a stored value.
fn counted<'a>(sql: &'static str, (name, value): (&'a str, u64)) -> OwnedQuery<'a> {
    OwnedQuery::new(sql, vec![Box::new(nul_escape::escape(name)), Box::new(big(value))])
}

#[derive(Default)]
struct EffectRows<'a> {
    seq: Vec<i64>,
    kind: Vec<Text<'a>>,
    plan: Vec<Text<'a>>,
    state: Vec<&'static str>,
    attempt: Vec<i64>,
    epoch: Vec<Option<i64>>,
    evidence: Vec<Option<String>>,
    reply_status: Vec<Option<i64>>,
    reply: Vec<Option<&'a [u8]>>,
    changed_at: Vec<i64>,
}

impl<'a> EffectRows<'a> {
    fn of(changed: &[&'a ChangedEffect], epoch: u64) -> Self {
        let mut rows = Self::default();
        for ChangedEffect { effect, at, .. } in changed {
            // Intended effects have an owner too: the gate that will perform them, unless its lease ends.
            let is_intended = matches!(effect.state, EffectState::Intended(_));
            let owner = if is_intended { Some(epoch) } else { effect.state.epoch() };
            rows.seq.push(big(effect.seq.0));
            rows.kind.push(nul_escape::escape(&effect.kind));
            rows.plan.push(plan(&effect.plan));
            rows.state.push(effect.state.word());
            rows.attempt.push(effect.state.attempt().into());
            rows.epoch.push(big_opt(owner));
            rows.evidence
                .push(effect.state.evidence().map(evidence_text).map(nul_escape::escape_owned));
            rows.reply_status.push(effect.reply.as_ref().map(|reply| reply.status.into()));
            rows.reply.push(effect.reply.as_ref().map(|reply| &reply.body[..]));
            rows.changed_at.push(at.0);
        }
        rows
    }

    fn query(self, sql: &'static str) -> OwnedQuery<'a> {
        OwnedQuery::new(
            sql,
            vec![
                Box::new(self.seq),
                Box::new(self.kind),
                Box::new(self.plan),
                Box::new(self.state),
                Box::new(self.attempt),
                Box::new(self.epoch),
                Box::new(self.evidence),
                Box::new(self.reply_status),
                Box::new(self.reply),
                Box::new(self.changed_at),
            ],
        )
    }
}

fn plan(plan: &[u8]) -> Text<'_> {
    match String::from_utf8_lossy(plan) {
        Cow::Borrowed(plan) => nul_escape::escape(plan),
        Cow::Owned(plan) => Cow::Owned(nul_escape::escape_owned(plan)),
    }
}

#[derive(Default)]
struct LineRows<'a> {
    seq: Vec<i64>,
    /// Index of the line among those of its effect in this transaction.
    nth: Vec<i64>,
    /// Whether the effect was inserted by this transaction.
    is_new: Vec<bool>,
    at: Vec<i64>,
    attempt: Vec<i64>,
    what: Vec<&'static str>,
    who: Vec<Option<Text<'a>>>,
    why: Vec<Option<Text<'a>>>,
    evidence: Vec<Option<Text<'a>>>,
}

impl<'a> LineRows<'a> {
    fn of(
        lines: &'a [PendingHistoryLine],
        effects: &std::collections::BTreeMap<Seq, ChangedEffect>,
    ) -> Self {
        let mut rows = Self::default();
        let mut counts: HashMap<Seq, i64> = HashMap::new();
        for line in lines {
            let nth = counts.entry(line.seq).or_default();
            *nth += 1;
            rows.seq.push(big(line.seq.0));
            rows.nth.push(*nth);
            rows.is_new.push(effects.get(&line.seq).is_some_and(|changed| changed.is_new));
            rows.at.push(line.at.0);
            rows.attempt.push(line.attempt.into());
            rows.what.push(line.what);
            rows.who.push(line.who.as_deref().map(nul_escape::escape));
            rows.why.push(line.why.as_deref().map(nul_escape::escape));
            rows.evidence.push(line.evidence.as_deref().map(nul_escape::escape));
        }
        rows
    }

    fn query(self, epoch: i64) -> OwnedQuery<'a> {
        OwnedQuery::new(
            sql!("effect_note_many"),
            vec![
                Box::new(self.seq),
                Box::new(self.nth),
                Box::new(self.is_new),
                Box::new(self.at),
                Box::new(self.attempt),
                Box::new(self.what),
                Box::new(self.who),
                Box::new(self.why),
                Box::new(self.evidence),
                Box::new(epoch),
            ],
        )
    }
}

#[derive(Default)]
struct IssuedRows<'a> {
    n: Vec<i64>,
    kind: Vec<&'static str>,
    run: Vec<Text<'a>>,
    id: Vec<Text<'a>>,
    identity: Vec<Text<'a>>,
    decision: Vec<Text<'a>>,
    reason: Vec<Option<Text<'a>>>,
    seq: Vec<i64>,
    of: Vec<Option<i64>>,
    event_id: Vec<Option<Text<'a>>>,
    event_type: Vec<Option<Text<'a>>>,
    at: Vec<i64>,
    path: Vec<Text<'a>>,
    text: Vec<Text<'a>>,
    standing: StandingRows<'a>,
}

impl<'a> IssuedRows<'a> {
    fn of(documents: impl Iterator<Item = &'a StoredDocument>) -> Self {
        let mut rows = Self::default();
        for filed in documents {
            let issued = &filed.document;
            rows.n.push(big(filed.n));
            rows.kind.push(issued.kind.as_str());
            rows.run.push(nul_escape::escape(issued.run.as_deref().unwrap_or_default()));
            rows.id.push(nul_escape::escape(&issued.id));
            rows.identity.push(nul_escape::escape(&issued.identity));
            rows.decision.push(nul_escape::escape(&issued.decision));
            rows.reason.push(issued.reason.as_deref().map(nul_escape::escape));
            rows.seq.push(big(filed.seq.0));
            rows.of.push(big_opt(filed.of.map(|of| of.0)));
            rows.event_id.push(issued.event_id.as_deref().map(nul_escape::escape));
            rows.event_type.push(issued.event_type.as_deref().map(nul_escape::escape));
            rows.at.push(filed.at.0);
            rows.path.push(nul_escape::escape(&issued.path));
            rows.text.push(nul_escape::escape(&issued.text));
            rows.standing.push(filed);
        }
        rows
    }

    fn query(self, epoch: i64) -> OwnedQuery<'a> {
        let StandingRows { superseded_by, how, who, why, at, .. } = self.standing;
        OwnedQuery::new(
            sql!("issued_put_many"),
            vec![
                Box::new(self.n),
                Box::new(self.kind),
                Box::new(self.run),
                Box::new(self.id),
                Box::new(self.identity),
                Box::new(self.decision),
                Box::new(self.reason),
                Box::new(self.seq),
                Box::new(self.of),
                Box::new(self.event_id),
                Box::new(self.event_type),
                Box::new(self.at),
                Box::new(self.path),
                Box::new(self.text),
                Box::new(superseded_by),
                Box::new(how),
                Box::new(who),
                Box::new(why),
                Box::new(at),
                Box::new(epoch),
            ],
        )
    }
}

/// The mutable columns of a document.
#[derive(Default)]
struct StandingRows<'a> {
    n: Vec<i64>,
    superseded_by: Vec<Option<i64>>,
    how: Vec<Option<Text<'a>>>,
    who: Vec<Option<Text<'a>>>,
    why: Vec<Option<Text<'a>>>,
    at: Vec<Option<i64>>,
}

impl<'a> StandingRows<'a> {
    fn of(documents: impl Iterator<Item = &'a StoredDocument>) -> Self {
        let mut rows = Self::default();
        documents.for_each(|filed| rows.push(filed));
        rows
    }

    fn push(&mut self, filed: &'a StoredDocument) {
        let released = filed.released.as_ref();
        self.n.push(big(filed.n));
        self.superseded_by.push(big_opt(filed.superseded_by));
        self.how.push(released.map(|released| nul_escape::escape(&released.how)));
        self.who.push(released.map(|released| nul_escape::escape(&released.by.who)));
        self.why
            .push(released.and_then(|released| released.by.why.as_deref()).map(nul_escape::escape));
        self.at.push(released.map(|released| released.at.0));
    }

    fn query(self) -> OwnedQuery<'a> {
        let columns: Vec<OwnedParam<'a>> = vec![
            Box::new(self.n),
            Box::new(self.superseded_by),
            Box::new(self.how),
            Box::new(self.who),
            Box::new(self.why),
            Box::new(self.at),
        ];
        OwnedQuery::new(sql!("issued_turn_many"), columns)
    }
}

#[derive(Default)]
struct RunRows<'a> {
    run: Vec<Text<'a>>,
    at: Vec<i64>,
    deliveries: Vec<i64>,
    in_flight: Vec<i64>,
    ambiguous: Vec<i64>,
    admit: Vec<i64>,
    duplicate: Vec<i64>,
    quarantine: Vec<i64>,
    superseded: Vec<i64>,
    released: Vec<i64>,
}

impl<'a> RunRows<'a> {
    fn of(runs: &'a RunDeltas) -> Self {
        let mut rows = Self::default();
        for (run, at, counts) in runs.changes() {
            rows.run.push(nul_escape::escape(run));
            rows.at.push(at.0);
            rows.deliveries.push(counts.deliveries);
            rows.in_flight.push(counts.in_flight);
            rows.ambiguous.push(counts.ambiguous);
            rows.admit.push(counts.admit);
            rows.duplicate.push(counts.duplicate);
            rows.quarantine.push(counts.quarantine);
            rows.superseded.push(counts.superseded);
            rows.released.push(counts.released);
        }
        rows
    }

    fn query(self) -> OwnedQuery<'a> {
        OwnedQuery::new(
            sql!("run_add_many"),
            vec![
                Box::new(self.run),
                Box::new(self.at),
                Box::new(self.deliveries),
                Box::new(self.in_flight),
                Box::new(self.ambiguous),
                Box::new(self.admit),
                Box::new(self.duplicate),
                Box::new(self.quarantine),
                Box::new(self.superseded),
                Box::new(self.released),
            ],
        )
    }
}
