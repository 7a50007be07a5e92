//! What a transaction changed of effects, documents and runs, written in one go.

use std::borrow::Cow;
use std::collections::HashMap;

use admit_core::effect::Standing;
use admit_core::{Filed, Seq};

use super::super::conn::{Ask, Result, big, big_opt};
use super::super::{sql, text};
use super::{Changes, Desk, KeptLine, Turned};
use crate::desk::{Runs, evidence_text};

type Text<'a> = Cow<'a, str>;

/// A single value as it is written.
fn kept<'a>((name, value): (&'a str, u64)) -> (Text<'a>, i64) {
    (text::kept(name), big(value))
}

impl Desk<'_> {
    /// Writes everything, in one round trip. The number of the newest document.
    pub(in super::super) fn flush(&mut self) -> Result<u64> {
        self.check()?;
        let Changes {
            issued_before, last_issued, effects, lines, documents, runs, counters, ..
        } = &self.changes;
        let raised: Vec<(Text<'_>, i64)> = counters.raised().map(kept).collect();
        let added: Vec<(Text<'_>, i64)> = counters.added().map(kept).collect();
        let (epoch, newest) = (big(self.epoch), big(*last_issued));
        let (born, turned): (Vec<_>, Vec<_>) = effects.values().partition(|turned| turned.is_born);
        let (born, turned) =
            (EffectRows::of(&born, self.epoch), EffectRows::of(&turned, self.epoch));
        let lines = LineRows::of(lines, effects);
        let new = IssuedRows::of(documents.values().filter(|filed| filed.n > *issued_before));
        let old = StandingRows::of(documents.values().filter(|filed| filed.n <= *issued_before));
        let runs = RunRows::of(runs);
        let mut asks = Vec::with_capacity(7);
        if !born.seq.is_empty() {
            asks.push(born.ask(sql!("effect_put_many")));
        }
        if !turned.seq.is_empty() {
            asks.push(turned.ask(sql!("effect_turn_many")));
        }
        if !lines.seq.is_empty() {
            asks.push(lines.ask(&epoch));
        }
        if !new.n.is_empty() {
            asks.push(new.ask(&epoch));
            asks.push(Ask::new(sql!("gate_issued"), vec![&epoch, &newest]));
        }
        if !old.n.is_empty() {
            asks.push(old.ask());
        }
        if !runs.run.is_empty() {
            asks.push(runs.ask());
        }
        asks.extend(raised.iter().map(|(name, to)| Ask::new(sql!("meta_max"), vec![name, to])));
        asks.extend(added.iter().map(|(name, more)| Ask::new(sql!("meta_add"), vec![name, more])));
        if !asks.is_empty() {
            self.conn.execute_all(&asks)?;
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
    fn of(turned: &[&'a Turned], epoch: u64) -> Self {
        let mut rows = Self::default();
        for Turned { effect, at, .. } in turned {
            // What is intended has an owner too: whoever is about to do it, unless its lease ends.
            let is_intended = matches!(effect.standing, Standing::Intended(_));
            let owner = if is_intended { Some(epoch) } else { effect.standing.epoch() };
            rows.seq.push(big(effect.seq.0));
            rows.kind.push(text::kept(&effect.kind));
            rows.plan.push(plan(&effect.plan));
            rows.state.push(effect.standing.word());
            rows.attempt.push(effect.standing.attempt().into());
            rows.epoch.push(big_opt(owner));
            rows.evidence.push(effect.standing.evidence().map(evidence_text).map(text::into_kept));
            rows.reply_status.push(effect.reply.as_ref().map(|reply| reply.status.into()));
            rows.reply.push(effect.reply.as_ref().map(|reply| &reply.body[..]));
            rows.changed_at.push(at.0);
        }
        rows
    }

    fn ask(&'a self, sql: &'a str) -> Ask<'a> {
        Ask::new(
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
        Cow::Borrowed(plan) => text::kept(plan),
        Cow::Owned(plan) => Cow::Owned(text::into_kept(plan)),
    }
}

#[derive(Default)]
struct LineRows<'a> {
    seq: Vec<i64>,
    /// The first, second, … line of its effect in this transaction.
    nth: Vec<i64>,
    /// Whether there are no lines of its effect before this transaction.
    is_born: Vec<bool>,
    at: Vec<i64>,
    attempt: Vec<i64>,
    what: Vec<&'static str>,
    who: Vec<Option<Text<'a>>>,
    why: Vec<Option<Text<'a>>>,
    evidence: Vec<Option<Text<'a>>>,
}

impl<'a> LineRows<'a> {
    fn of(lines: &'a [KeptLine], effects: &std::collections::BTreeMap<Seq, Turned>) -> Self {
        let mut rows = Self::default();
        let mut counts: HashMap<Seq, i64> = HashMap::new();
        for line in lines {
            let nth = counts.entry(line.seq).or_default();
            *nth += 1;
            rows.seq.push(big(line.seq.0));
            rows.nth.push(*nth);
            rows.is_born.push(effects.get(&line.seq).is_some_and(|turned| turned.is_born));
            rows.at.push(line.at.0);
            rows.attempt.push(line.attempt.into());
            rows.what.push(line.what);
            rows.who.push(line.who.as_deref().map(text::kept));
            rows.why.push(line.why.as_deref().map(text::kept));
            rows.evidence.push(line.evidence.as_deref().map(text::kept));
        }
        rows
    }

    fn ask(&'a self, epoch: &'a i64) -> Ask<'a> {
        let Self { seq, nth, is_born, at, attempt, what, who, why, evidence } = self;
        Ask::new(
            sql!("effect_note_many"),
            vec![seq, nth, is_born, at, attempt, what, who, why, evidence, epoch],
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
    fn of(documents: impl Iterator<Item = &'a Filed>) -> Self {
        let mut rows = Self::default();
        for filed in documents {
            let issued = &filed.issued;
            rows.n.push(big(filed.n));
            rows.kind.push(issued.kind.as_str());
            rows.run.push(text::kept(issued.run.as_deref().unwrap_or_default()));
            rows.id.push(text::kept(&issued.id));
            rows.identity.push(text::kept(&issued.identity));
            rows.decision.push(text::kept(&issued.decision));
            rows.reason.push(issued.reason.as_deref().map(text::kept));
            rows.seq.push(big(filed.seq.0));
            rows.of.push(big_opt(filed.of.map(|of| of.0)));
            rows.event_id.push(issued.event_id.as_deref().map(text::kept));
            rows.event_type.push(issued.event_type.as_deref().map(text::kept));
            rows.at.push(filed.at.0);
            rows.path.push(text::kept(&issued.path));
            rows.text.push(text::kept(&issued.text));
            rows.standing.push(filed);
        }
        rows
    }

    fn ask(&'a self, epoch: &'a i64) -> Ask<'a> {
        let StandingRows { superseded_by, how, who, why, at, .. } = &self.standing;
        Ask::new(
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

/// What can change about a document.
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
    fn of(documents: impl Iterator<Item = &'a Filed>) -> Self {
        let mut rows = Self::default();
        documents.for_each(|filed| rows.push(filed));
        rows
    }

    fn push(&mut self, filed: &'a Filed) {
        let released = filed.released.as_ref();
        self.n.push(big(filed.n));
        self.superseded_by.push(big_opt(filed.superseded_by));
        self.how.push(released.map(|released| text::kept(&released.how)));
        self.who.push(released.map(|released| text::kept(&released.by.who)));
        self.why.push(released.and_then(|released| released.by.why.as_deref()).map(text::kept));
        self.at.push(released.map(|released| released.at.0));
    }

    fn ask(&'a self) -> Ask<'a> {
        let Self { n, superseded_by, how, who, why, at } = self;
        Ask::new(sql!("issued_turn_many"), vec![n, superseded_by, how, who, why, at])
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
    fn of(runs: &'a Runs) -> Self {
        let mut rows = Self::default();
        for (run, at, counts) in runs.changes() {
            rows.run.push(text::kept(run));
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

    fn ask(&'a self) -> Ask<'a> {
        Ask::new(
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
