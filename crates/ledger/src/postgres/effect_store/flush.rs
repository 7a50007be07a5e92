//! Writes the changes of effects, documents and runs in one round trip.

use std::borrow::Cow;
use std::collections::HashMap;

use admit_core::effect::EffectState;
use admit_core::{Seq, StoredDocument};

use super::super::conn::{Query, Result, big, big_opt};
use super::super::{nul_escape, sql};
use super::{ChangedEffect, Changes, PendingHistoryLine, PgEffectStore};
use crate::rules::{RunDeltas, evidence_text};

type Text<'a> = Cow<'a, str>;

/// Escapes a stored value.
fn kept<'a>((name, value): (&'a str, u64)) -> (Text<'a>, i64) {
    (nul_escape::escape(name), big(value))
}

impl PgEffectStore<'_> {
    /// Writes everything in one round trip. Returns the number of the newest document.
    pub(in super::super) fn flush(&mut self) -> Result<u64> {
        self.check()?;
        let Changes {
            issued_before, last_issued, effects, lines, documents, runs, counters, ..
        } = &self.changes;
        let raised: Vec<(Text<'_>, i64)> = counters.raised().map(kept).collect();
        let added: Vec<(Text<'_>, i64)> = counters.added().map(kept).collect();
        let (epoch, newest) = (big(self.epoch), big(*last_issued));
        let (new_effects, changed): (Vec<_>, Vec<_>) =
            effects.values().partition(|changed| changed.is_new);
        let (new_effects, changed) =
            (EffectRows::of(&new_effects, self.epoch), EffectRows::of(&changed, self.epoch));
        let lines = LineRows::of(lines, effects);
        let new = IssuedRows::of(documents.values().filter(|filed| filed.n > *issued_before));
        let old = StandingRows::of(documents.values().filter(|filed| filed.n <= *issued_before));
        let runs = RunRows::of(runs);
        let mut queries = Vec::with_capacity(7);
        if !new_effects.seq.is_empty() {
            queries.push(new_effects.query(sql!("effect_put_many")));
        }
        if !changed.seq.is_empty() {
            queries.push(changed.query(sql!("effect_turn_many")));
        }
        if !lines.seq.is_empty() {
            queries.push(lines.query(&epoch));
        }
        if !new.n.is_empty() {
            queries.push(new.query(&epoch));
            queries.push(Query::new(sql!("gate_issued"), vec![&epoch, &newest]));
        }
        if !old.n.is_empty() {
            queries.push(old.query());
        }
        if !runs.run.is_empty() {
            queries.push(runs.query());
        }
        queries.extend(
            raised.iter().map(|(name, to)| Query::new(sql!(shared "meta_max"), vec![name, to])),
        );
        queries.extend(
            added.iter().map(|(name, more)| Query::new(sql!(shared "meta_add"), vec![name, more])),
        );
        if !queries.is_empty() {
            self.conn.execute_all(&queries)?;
        }
        Ok(*last_issued)
    }
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

    fn query(&'a self, sql: &'a str) -> Query<'a> {
        Query::new(
            sql,
            vec![
                &self.seq,
                &self.kind,
                &self.plan,
                &self.state,
                &self.attempt,
                &self.epoch,
                &self.evidence,
                &self.reply_status,
                &self.reply,
                &self.changed_at,
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

    fn query(&'a self, epoch: &'a i64) -> Query<'a> {
        let Self { seq, nth, is_new, at, attempt, what, who, why, evidence } = self;
        Query::new(
            sql!("effect_note_many"),
            vec![seq, nth, is_new, at, attempt, what, who, why, evidence, epoch],
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

    fn query(&'a self, epoch: &'a i64) -> Query<'a> {
        let StandingRows { superseded_by, how, who, why, at, .. } = &self.standing;
        Query::new(
            sql!("issued_put_many"),
            vec![
                &self.n,
                &self.kind,
                &self.run,
                &self.id,
                &self.identity,
                &self.decision,
                &self.reason,
                &self.seq,
                &self.of,
                &self.event_id,
                &self.event_type,
                &self.at,
                &self.path,
                &self.text,
                superseded_by,
                how,
                who,
                why,
                at,
                epoch,
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

    fn query(&'a self) -> Query<'a> {
        let Self { n, superseded_by, how, who, why, at } = self;
        Query::new(sql!("issued_turn_many"), vec![n, superseded_by, how, who, why, at])
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

    fn query(&'a self) -> Query<'a> {
        Query::new(
            sql!("run_add_many"),
            vec![
                &self.run,
                &self.at,
                &self.deliveries,
                &self.in_flight,
                &self.ambiguous,
                &self.admit,
                &self.duplicate,
                &self.quarantine,
                &self.superseded,
                &self.released,
            ],
        )
    }
}
