//! Port of effects: what admissions cause outside the ledger, and the state of each.
//!
//! The intended effect is written by [`record`](crate::Admissions::record), in the commit of its
//! admission. Every later step goes through [`Effects::advance`], which applies the state machine in
//! `admit_core::effect` to the stored state in a durable commit.

use admit_core::effect::{Effect, EffectLogEntry, IllegalStep, Step};
use admit_core::{Fault, FaultKind, Millis, Seq};

use crate::port::BoxFuture;

/// Reads effects. Never blocks the writer.
pub trait EffectReader: Send + Sync {
    /// Returns the effect of an admission.
    fn effect(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>>;

    /// Returns its history, oldest first.
    fn history(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>>;

    /// Lists effects in ledger order.
    fn effects(&self, filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>>;
}

/// Advances effects.
pub trait Effects: EffectReader {
    /// Applies one step. Resolves once the commit that holds the step is durable. An illegal step changes
    /// nothing; a fault never claims more than is known.
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, Result<Effect, AdvanceError>>;

    /// Recovers the effects of earlier processes, once, before any door opens: those in flight become
    /// ambiguous, those not started are returned to be resumed.
    fn recover(&self, at: Millis) -> BoxFuture<'_, Result<RecoveredEffects, Fault>>;
}

/// Why a step was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdvanceError {
    /// The transition is not allowed from the current state.
    #[error(transparent)]
    Illegal(#[from] IllegalStep),
    /// The ledger failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Effects of earlier processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredEffects {
    /// Effects that were in flight and are ambiguous now.
    pub ambiguous: Vec<Effect>,
    /// Effects that were not started and can be resumed.
    pub intended: Vec<Effect>,
}

/// Which effects to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectFilter {
    /// Only of admissions at this door.
    pub door: Option<String>,
    /// Only in these states; empty means all.
    pub states: Vec<String>,
    /// Only after this seq.
    pub after: Seq,
    /// Maximum number of rows.
    pub rows_max: usize,
}

/// A ledger whose admissions have no effects, such as a fake.
pub trait WithoutEffects: Send + Sync {}

impl<L: WithoutEffects> EffectReader for L {
    fn effect(&self, _: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn history(&self, _: Seq) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn effects(&self, _: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl<L: WithoutEffects> Effects for L {
    fn advance(&self, _: Seq, _: Step, _: Millis) -> BoxFuture<'_, Result<Effect, AdvanceError>> {
        let fault = Fault::new(FaultKind::Internal, "this ledger keeps no effects");
        Box::pin(async { Err(fault.into()) })
    }

    fn recover(&self, _: Millis) -> BoxFuture<'_, Result<RecoveredEffects, Fault>> {
        Box::pin(async { Ok(RecoveredEffects::default()) })
    }
}
