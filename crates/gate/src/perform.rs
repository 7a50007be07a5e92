//! Performs effects: begin, call, settle; and what copies are told meanwhile.
//!
//! Invariants: the first byte leaves only after "in flight" is committed; what the gateway answered
//! is not let go before it is committed; nothing is called twice for one attempt.

use std::time::Duration;

use admit_contracts::{AdmissionContext, CallOutcome, GatewayCalls, Conclusion, Reply};
use admit_core::effect::{Effect, IllegalStep, Outcome, Step, StoredReply};
use admit_core::json::{self, Object, Value};
use admit_core::{Entry, Fault, FaultKind, Receipt, RecordedEntry, Seq, InitialState, Verdict};
use admit_ledger::{AdvanceError, BoxFuture, RecoveredEffects};
use tokio::time::{sleep, timeout};

use crate::gate::Gate;
use crate::parts::DoorMount;

/// Pauses between tries to write to a ledger that cannot be written to just now.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long an answer that came too late is still waited for, to be kept as evidence.
const LATE_MAX: Duration = Duration::from_secs(120);

/// The answer to what was recorded at a door whose events cause calls: the first performs, a copy
/// waits for the first.
pub(crate) async fn conclude(
    gate: &Gate,
    door: &DoorMount,
    calling: &dyn GatewayCalls,
    recorded: &RecordedEntry,
) -> Result<Reply, Fault> {
    let Entry::Event(event) = &recorded.entry else { return Ok(door.contract.reply(recorded)) };
    match &recorded.verdict {
        Verdict::Fresh { seq }
            if event.effect.as_ref().is_some_and(|e| e.starts != InitialState::Withheld) =>
        {
            let Some(id) = recorded.receipt_id() else { return Err(lost_effect()) };
            let trace = text(&event.facts, "trace_id");
            let admission = AdmissionContext { id, facts: &event.facts, trace };
            match attempt(gate, door, calling, *seq, 1, admission).await? {
                Some(reply) => Ok(calling.with_headers(&event.facts, trace, reply)),
                None => Ok(door.contract.reply(recorded)),
            }
        }
        Verdict::Duplicate { first, .. } => again(gate, door, calling, recorded, first.seq).await,
        Verdict::Fresh { .. }
        | Verdict::Revision { .. }
        | Verdict::Conflict { .. }
        | Verdict::Refused { .. } => Ok(door.contract.reply(recorded)),
    }
}

/// A copy: waits a while for the first, then says how it stands.
async fn again(
    gate: &Gate,
    door: &DoorMount,
    calling: &dyn GatewayCalls,
    recorded: &RecordedEntry,
    first: Seq,
) -> Result<Reply, Fault> {
    let mut watch = gate.in_work.watch(first);
    let mut effect = gate.ledger.effect(first).await?;
    // Where nobody performs, there is nothing to wait for.
    let is_performed = calling.is_executing() && door.outward.gateway.is_some();
    let is_open = effect.as_ref().is_some_and(|effect| {
        effect.reply.is_none() && effect.state.is_in_work() && effect.state.attempt() == 1
    });
    if is_performed && is_open {
        let ended = watch.ended_anywhere(&*gate.ledger);
        if timeout(door.outward.in_work_wait, ended).await.is_ok() {
            effect = gate.ledger.effect(first).await?;
        }
    }
    Ok(calling.reply_from_state(recorded, effect.as_ref()))
}

/// Makes one attempt, from "intended" to settled. `None` when there is nobody to call: then it stays
/// intended.
async fn attempt(
    gate: &Gate,
    door: &DoorMount,
    calling: &dyn GatewayCalls,
    seq: Seq,
    attempt: u32,
    admission: AdmissionContext<'_>,
) -> Result<Option<StoredReply>, Fault> {
    let Some(gateway) = door.outward.gateway.clone() else { return Ok(None) };
    // Until there is a place, the effect is intended and a restart may take it up.
    let _place = door.outward.calls.acquire().await.map_err(|_| lost_effect())?;
    let Persisted { effect, is_sure } =
        persist(gate, seq, || Step::Begin { attempt }).await?.ok_or_else(|| taken_up(gate))?;
    let never = |reason: &str| (CallOutcome::NeverSent { reason: reason.to_owned() }, None);
    let (outcome, late) = match calling.call(&effect, admission.trace) {
        // Another gate may have begun it. If it was this one after all, the outcome is settled; if
        // not, the ledger takes no outcome from us.
        Some(_) if !is_sure && gate.ledger.lease().is_some() => {
            never("the ledger did not confirm in time that the call may begin")
        }
        Some(call) => {
            let called = gateway.call(call).await;
            (called.outcome, called.late)
        }
        None => never("the plan of this effect cannot be read"),
    };
    let Conclusion { outcome, evidence, reply } = calling.conclude(admission, &outcome);
    let settle = || Step::Settle {
        attempt,
        outcome,
        evidence: evidence.clone(),
        reply: Some(reply.clone()),
    };
    let settled = persist(gate, seq, settle).await;
    gate.in_work.ended(seq);
    let is_ours = |settled: &Persisted| {
        settled.is_sure || settled.effect.state.evidence() == Some(&evidence)
    };
    if settled?.filter(is_ours).is_none() {
        // Others took this gate for dead meanwhile: what is known now is kept beside their finding.
        let evidence = || Step::Evidence { attempt, evidence: evidence.clone() };
        persist(gate, seq, evidence).await?;
        return Err(taken_up(gate));
    }
    gate.metrics().effects.of(outcome).add_one();
    if outcome == Outcome::Ambiguous {
        let receipt = admission.id;
        tracing::warn!(door = %door.door, %receipt, attempt, "the outcome of an effect is not known");
    }
    if let Some(late) = late {
        keep_late(gate, door, seq, attempt, late);
    }
    Ok(Some(reply))
}

/// Commits a step, however long the ledger cannot: an effect is not given up halfway. `None` when it
/// is no longer ours to take.
async fn persist(
    gate: &Gate,
    seq: Seq,
    step: impl Fn() -> Step,
) -> Result<Option<Persisted>, Fault> {
    let mut pause = PAUSE_MIN;
    let mut may_be_in = false;
    loop {
        let fault = match gate.ledger.advance(seq, step(), gate.clock.now()).await {
            Ok(effect) => return Ok(Some(Persisted { effect, is_sure: true })),
            // A commit that was not confirmed went through after all: nobody else takes our steps,
            // as long as nobody takes us for dead.
            Err(AdvanceError::Illegal(_)) if may_be_in => {
                let effect = gate.ledger.effect(seq).await?;
                return Ok(effect.map(|effect| Persisted { effect, is_sure: false }));
            }
            Err(AdvanceError::Illegal(illegal)) => {
                tracing::error!(seq = seq.0, %illegal, "an effect is not where it was left");
                return Ok(None);
            }
            Err(AdvanceError::Fault(fault)) => fault,
        };
        may_be_in |= fault.kind == FaultKind::OutcomeUnknown;
        if gate.is_draining() && !gate.ledger.is_healthy() {
            return Err(fault);
        }
        sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// A step that is committed.
struct Persisted {
    effect: Effect,
    /// Whether the commit was confirmed; else the effect is as it was found afterwards.
    is_sure: bool,
}

/// Keeps an answer that comes after its attempt was settled, as evidence.
fn keep_late(
    gate: &Gate,
    door: &DoorMount,
    seq: Seq,
    attempt: u32,
    late: BoxFuture<'static, CallOutcome>,
) {
    let (ledger, clock, drain) = (gate.ledger.clone(), gate.clock.clone(), gate.drain.clone());
    let contract = door.contract.clone();
    gate.tasks.spawn(async move {
        let outcome = tokio::select! {
            outcome = timeout(LATE_MAX, late) => outcome,
            () = drain.cancelled() => return,
        };
        let (Ok(outcome), Some(calling)) = (outcome, contract.gateway_calls()) else { return };
        let evidence = calling.evidence(&outcome);
        let step = Step::Evidence { attempt, evidence };
        if let Err(error) = ledger.advance(seq, step, clock.now()).await {
            tracing::warn!(seq = seq.0, %error, "late evidence could not be kept");
        }
    });
}

/// Before any door opens: what earlier processes had in flight becomes ambiguous, and what they had
/// not begun is remembered.
pub(crate) async fn recover(gate: &Gate) -> Result<RecoveredEffects, Fault> {
    let recovered = gate.ledger.recover(gate.clock.now()).await?;
    for _ in &recovered.ambiguous {
        gate.metrics().effects.of(Outcome::Ambiguous).add_one();
    }
    if !recovered.ambiguous.is_empty() {
        let count = recovered.ambiguous.len();
        tracing::warn!(
            count,
            "effects were in flight when the gate stopped, their outcome is not known"
        );
    }
    Ok(recovered)
}

/// Takes up an effect that was intended before a restart.
pub(crate) async fn resume(gate: &Gate, effect: &Effect) {
    let resumed = async {
        let Some(receipt) = gate.ledger.receipt(effect.seq).await? else { return Ok(()) };
        let Some(door) = gate.doors.iter().find(|mount| mount.door == receipt.door) else {
            return Ok(());
        };
        let Some(calling) = door.contract.gateway_calls().filter(|calling| calling.is_executing()) else {
            return Ok(());
        };
        let facts = facts(&receipt);
        let trace = text(&facts, "trace_id");
        let admission = AdmissionContext { id: receipt.id, facts: &facts, trace };
        let number = effect.state.attempt();
        attempt(gate, door, calling, effect.seq, number, admission).await.map(drop)
    };
    if let Err(fault) = resumed.await {
        tracing::error!(seq = effect.seq.0, %fault, "an effect could not be resumed");
    }
}

/// Why a replay did not happen.
#[derive(Debug)]
pub(crate) enum NoReplay {
    /// An attempt is in work.
    InWork,
    /// There is nothing to do again, or nobody to call.
    Nothing(&'static str),
    /// Our side failed.
    Fault(Fault),
}

impl From<Fault> for NoReplay {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Makes another attempt because a person asked for it. `receipt` is the admission's own.
pub(crate) async fn replay(
    gate: &Gate,
    door: &DoorMount,
    receipt: &Receipt,
    asked: Step,
    trace: &str,
) -> Result<Reply, NoReplay> {
    let calling = door.contract.gateway_calls();
    let (Some(calling), true) = (calling, door.outward.gateway.is_some()) else {
        return Err(NoReplay::Nothing("no gateway is configured for this door"));
    };
    let seq = receipt.id.seq;
    let effect = match gate.ledger.advance(seq, asked, gate.clock.now()).await {
        Ok(effect) => effect,
        Err(AdvanceError::Illegal(IllegalStep::InWork)) => return Err(NoReplay::InWork),
        Err(AdvanceError::Illegal(IllegalStep::AlreadyDone)) => {
            return Err(NoReplay::Nothing(
                "the last attempt was executed; to execute it again, say so: {\"again\": true}, or --again",
            ));
        }
        Err(AdvanceError::Illegal(_)) => {
            return Err(NoReplay::Nothing("this event has no effect that could be done again"));
        }
        Err(AdvanceError::Fault(fault)) => return Err(fault.into()),
    };
    let facts = facts(receipt);
    let admission = AdmissionContext { id: receipt.id, facts: &facts, trace };
    let number = effect.state.attempt();
    let reply = attempt(gate, door, calling, seq, number, admission).await?;
    let reply = reply.ok_or_else(lost_effect)?;
    Ok(calling.with_headers(&facts, trace, reply))
}

fn facts(receipt: &Receipt) -> Object<'_> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(&receipt.facts, &limits) {
        Ok(Value::Object(facts)) => facts,
        _ => Object::new(),
    }
}

fn text<'o>(facts: &'o Object<'_>, name: &str) -> &'o str {
    facts.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What is said when a step is no longer ours to take.
fn taken_up(gate: &Gate) -> Fault {
    if gate.ledger.lease().is_none() {
        return lost_effect();
    }
    Fault::new(
        FaultKind::OutcomeUnknown,
        "another gate has looked after the effect of this event; send it again",
    )
}

fn lost_effect() -> Fault {
    Fault::new(FaultKind::Internal, "the effect of this event is not where it was left")
}
