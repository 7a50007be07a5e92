//! Delivery of effects to a gateway: begin, call, settle; and replies to duplicates meanwhile.
//!
//! Invariants: the first byte is sent only after "in flight" is committed; the reply of the gateway is
//! not dropped before it is committed; an attempt makes at most one call.

use std::time::Duration;

use admit_contracts::{AdmissionContext, CallOutcome, Conclusion, GatewayCalls, Reply};
use admit_core::effect::{Effect, IllegalStep, Outcome, Step, StoredReply};
use admit_core::json::{self, Object, Value};
use admit_core::{Entry, Fault, FaultKind, InitialState, Receipt, RecordedEntry, Seq, Verdict};
use admit_ledger::{AdvanceError, BoxFuture, RecoveredEffects};
use tokio::time::{sleep, timeout};

use crate::builder::DoorMount;
use crate::gate::Gate;

/// Backoff while the ledger cannot be written.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Maximum wait for a late outcome, which is stored as evidence.
const LATE_MAX: Duration = Duration::from_secs(120);

/// Produces the reply of a recorded event whose contract makes calls: a fresh event makes the call, a
/// duplicate waits for the first delivery.
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
        Verdict::Duplicate { first, .. } => {
            reply_to_duplicate(gate, door, calling, recorded, first.seq).await
        }
        Verdict::Fresh { .. }
        | Verdict::Revision { .. }
        | Verdict::Conflict { .. }
        | Verdict::Refused { .. } => Ok(door.contract.reply(recorded)),
    }
}

/// Waits for the outcome of the first delivery up to a timeout, then replies with its state.
async fn reply_to_duplicate(
    gate: &Gate,
    door: &DoorMount,
    calling: &dyn GatewayCalls,
    recorded: &RecordedEntry,
    first: Seq,
) -> Result<Reply, Fault> {
    let mut waiter = gate.in_flight_effects.subscribe(first);
    let mut effect = gate.ledger.effect(first).await?;
    // Without a gateway there is nothing to wait for.
    let is_performed = calling.is_executing() && door.effect_target.gateway.is_some();
    let is_open = effect.as_ref().is_some_and(|effect| {
        effect.reply.is_none() && effect.state.is_in_work() && effect.state.attempt() == 1
    });
    if is_performed && is_open {
        let ended = waiter.wait_on_any_gate(&*gate.ledger);
        if timeout(door.effect_target.in_flight_wait, ended).await.is_ok() {
            effect = gate.ledger.effect(first).await?;
        }
    }
    Ok(calling.reply_from_state(recorded, effect.as_ref()))
}

/// Makes one attempt, from "intended" to settled. `None` without a gateway: the effect stays intended.
async fn attempt(
    gate: &Gate,
    door: &DoorMount,
    calling: &dyn GatewayCalls,
    seq: Seq,
    attempt: u32,
    admission: AdmissionContext<'_>,
) -> Result<Option<StoredReply>, Fault> {
    let Some(gateway) = door.effect_target.gateway.clone() else { return Ok(None) };
    // Until a permit is available, the effect is intended and a restart may resume it.
    let _permit = door.effect_target.calls.acquire().await.map_err(|_| lost_effect())?;
    let CommittedStep { effect, is_confirmed } = persist(gate, seq, || Step::Begin { attempt })
        .await?
        .ok_or_else(|| lost_ownership(gate))?;
    let never = |reason: &str| (CallOutcome::NeverSent { reason: reason.to_owned() }, None);
    let (outcome, late) = match calling.call(&effect, admission.trace) {
        // Another gate may have begun it. If this gate did after all, the outcome is settled; if not,
        // the ledger rejects our outcome.
        Some(_) if !is_confirmed && gate.ledger.lease().is_some() => {
            never("the ledger did not confirm in time that the attempt began")
        }
        Some(call) => {
            let called = gateway.call(call).await;
            (called.outcome, called.late)
        }
        None => never("invalid plan of the effect"),
    };
    let Conclusion { outcome, evidence, reply } = calling.conclude(admission, &outcome);
    let settle = || Step::Settle {
        attempt,
        outcome,
        evidence: evidence.clone(),
        reply: Some(reply.clone()),
    };
    let settled = persist(gate, seq, settle).await;
    gate.in_flight_effects.notify_ended(seq);
    let is_ours = |settled: &CommittedStep| {
        settled.is_confirmed || settled.effect.state.evidence() == Some(&evidence)
    };
    if settled?.filter(is_ours).is_none() {
        // Another gate recovered the effect after our lease expired: store our outcome as evidence only.
        let evidence = || Step::Evidence { attempt, evidence: evidence.clone() };
        persist(gate, seq, evidence).await?;
        return Err(lost_ownership(gate));
    }
    gate.metrics().effects.of(outcome).add_one();
    if outcome == Outcome::Ambiguous {
        let receipt = admission.id;
        tracing::warn!(door = %door.door, %receipt, attempt, "effect is ambiguous: its outcome is unknown");
    }
    if let Some(late) = late {
        store_late_outcome(gate, door, seq, attempt, late);
    }
    Ok(Some(reply))
}

/// Commits a step, and retries until the ledger accepts it. `None` if this gate no longer owns the
/// effect.
async fn persist(
    gate: &Gate,
    seq: Seq,
    step: impl Fn() -> Step,
) -> Result<Option<CommittedStep>, Fault> {
    let mut backoff = BACKOFF_MIN;
    let mut may_be_committed = false;
    loop {
        let fault = match gate.ledger.advance(seq, step(), gate.clock.now()).await {
            Ok(effect) => return Ok(Some(CommittedStep { effect, is_confirmed: true })),
            // The unconfirmed commit succeeded after all: no other gate makes our steps while our lease
            // lasts.
            Err(AdvanceError::Illegal(_)) if may_be_committed => {
                let effect = gate.ledger.effect(seq).await?;
                return Ok(effect.map(|effect| CommittedStep { effect, is_confirmed: false }));
            }
            Err(AdvanceError::Illegal(illegal)) => {
                tracing::error!(seq = seq.0, %illegal, "illegal effect transition: state changed concurrently");
                return Ok(None);
            }
            Err(AdvanceError::Fault(fault)) => fault,
        };
        may_be_committed |= fault.kind == FaultKind::OutcomeUnknown;
        if gate.is_draining() && !gate.ledger.is_healthy() {
            return Err(fault);
        }
        sleep(backoff).await;
        backoff = BACKOFF_MAX.min(backoff * 2);
    }
}

/// Effect after a committed step.
struct CommittedStep {
    effect: Effect,
    /// Whether the commit was confirmed; otherwise `effect` was read afterwards.
    is_confirmed: bool,
}

/// Stores an outcome that arrives after its attempt was settled, as evidence.
fn store_late_outcome(
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
            tracing::warn!(seq = seq.0, %error, "failed to store late evidence");
        }
    });
}

/// Marks effects that earlier processes had in flight as ambiguous, and returns those not begun. Runs
/// before the doors open.
pub(crate) async fn recover(gate: &Gate) -> Result<RecoveredEffects, Fault> {
    let recovered = gate.ledger.recover(gate.clock.now()).await?;
    for _ in &recovered.ambiguous {
        gate.metrics().effects.of(Outcome::Ambiguous).add_one();
    }
    if !recovered.ambiguous.is_empty() {
        let count = recovered.ambiguous.len();
        tracing::warn!(
            count,
            "effects were in flight when their gate stopped and are now ambiguous"
        );
    }
    Ok(recovered)
}

/// Performs an effect that was intended before a restart.
pub(crate) async fn resume(gate: &Gate, effect: &Effect) {
    let resumed = async {
        let Some(receipt) = gate.ledger.receipt(effect.seq).await? else { return Ok(()) };
        let Some(door) = gate.doors.iter().find(|mount| mount.door == receipt.door) else {
            return Ok(());
        };
        let Some(calling) = door.contract.gateway_calls().filter(|calling| calling.is_executing())
        else {
            return Ok(());
        };
        let facts = facts(&receipt);
        let trace = text(&facts, "trace_id");
        let admission = AdmissionContext { id: receipt.id, facts: &facts, trace };
        let number = effect.state.attempt();
        attempt(gate, door, calling, effect.seq, number, admission).await.map(drop)
    };
    if let Err(fault) = resumed.await {
        tracing::error!(seq = effect.seq.0, %fault, "failed to resume an effect");
    }
}

/// Reason why a replay was not made.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// An attempt is in progress.
    InWork,
    /// The event has no repeatable effect, or the door has no gateway.
    NotReplayable(&'static str),
    /// The gate failed.
    Fault(Fault),
}

impl From<Fault> for ReplayError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Makes another attempt on request of an operator. `receipt` is that of the admission.
pub(crate) async fn replay(
    gate: &Gate,
    door: &DoorMount,
    receipt: &Receipt,
    step: Step,
    trace: &str,
) -> Result<Reply, ReplayError> {
    let calling = door.contract.gateway_calls();
    let (Some(calling), true) = (calling, door.effect_target.gateway.is_some()) else {
        return Err(ReplayError::NotReplayable("no gateway is configured for this door"));
    };
    let seq = receipt.id.seq;
    let effect = match gate.ledger.advance(seq, step, gate.clock.now()).await {
        Ok(effect) => effect,
        Err(AdvanceError::Illegal(IllegalStep::InWork)) => return Err(ReplayError::InWork),
        Err(AdvanceError::Illegal(IllegalStep::AlreadyDone)) => {
            return Err(ReplayError::NotReplayable(
                "the last attempt was executed; to execute it again, send {\"again\": true} or pass --again",
            ));
        }
        Err(AdvanceError::Illegal(_)) => {
            return Err(ReplayError::NotReplayable(
                "this event has no effect that can be replayed",
            ));
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

/// Fault of a step on an effect that this gate no longer owns.
fn lost_ownership(gate: &Gate) -> Fault {
    if gate.ledger.lease().is_none() {
        return lost_effect();
    }
    Fault::new(
        FaultKind::OutcomeUnknown,
        "another gate has recovered the effect of this event; retry",
    )
}

fn lost_effect() -> Fault {
    Fault::new(FaultKind::Internal, "illegal effect transition: state changed concurrently")
}
