//! Port of effects: what admissions cause outside the ledger, and the state of each.
//!
//! The intended effect is written by [`record`](crate::Admissions::record), in the commit of its
//! admission. Every later step goes through [`Effects::advance`], which applies the state machine in
//! `admit_core::effect` to the stored state in a durable commit.

use admit_core::effect::{Effect, EffectLogEntry, IllegalStep, Step};
use admit_core::{Fault, FaultKind, Millis, Seq};

use crate::port::BoxFuture;

/// Reads effects. Never blocks the writer. The default methods are those of a ledger whose admissions have
/// no effects, such as a fake.
pub trait EffectReader: Send + Sync {
    /// Returns the effect of an admission.
    fn effect(&self, _seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns its history, oldest first.
    fn history(&self, _seq: Seq) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Lists effects in ledger order.
    fn effects(&self, _filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Advances effects. The default methods are those of a ledger whose admissions have no effects.
pub trait Effects: EffectReader {
    /// Applies one step. Resolves once the commit that holds the step is durable. An illegal step changes
    /// nothing; a fault never claims more than is known.
    fn advance(
        &self,
        _seq: Seq,
        _step: Step,
        _at: Millis,
    ) -> BoxFuture<'_, Result<Effect, AdvanceError>> {
        let fault = Fault::new(FaultKind::Internal, "this ledger keeps no effects");
        Box::pin(async { Err(fault.into()) })
    }

    /// Recovers the effects of earlier processes, once, before any door opens: those in flight become
    /// ambiguous, those not started are returned to be resumed.
    fn recover(&self, _at: Millis) -> BoxFuture<'_, Result<RecoveredEffects, Fault>> {
        Box::pin(async { Ok(RecoveredEffects::default()) })
    }
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
