//! The port of effects: what admissions cause outside the ledger, and how far each has come.
//!
//! The intended effect is written by [`record`](crate::Admissions::record), in the commit of its
//! admission. From there every step goes through [`Effects::advance`], which applies the one machine
//! in `admit_core::effect` to the stored state, inside a durable commit.

use admit_core::effect::{Effect, Illegal, Passage, Step};
use admit_core::{Fault, FaultKind, Millis, Seq};

use crate::port::BoxFuture;

/// Answers questions about effects. Never blocks a writer.
pub trait EffectReader: Send + Sync {
    /// The effect of the admission at a place.
    fn effect(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>>;

    /// Everything that happened to it, in order.
    fn history(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<Passage>, Fault>>;

    /// Effects in ledger order.
    fn effects(&self, filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>>;
}

/// Moves effects on.
pub trait Effects: EffectReader {
    /// Takes one step. When it resolves with the effect, the commit that holds the step is durable;
    /// an illegal step has changed nothing; a fault never claims more than is known.
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, Result<Effect, AdvanceError>>;

    /// Looks after what earlier processes left, once, before any door opens: what they had in flight
    /// becomes ambiguous, and what they had not begun is handed back to be resumed.
    fn recover(&self, at: Millis) -> BoxFuture<'_, Result<Recovered, Fault>>;
}

/// Why a step was not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdvanceError {
    /// It leads nowhere from where the effect stands.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// Our side failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What earlier processes left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// What was in flight, and is ambiguous now.
    pub ambiguous: Vec<Effect>,
    /// What had not begun, to be resumed.
    pub intended: Vec<Effect>,
}

/// Which effects to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectFilter {
    /// Only of admissions at this door.
    pub door: Option<String>,
    /// Only in these states, by their words; empty means all of them.
    pub states: Vec<String>,
    /// Only places after this one.
    pub after: Seq,
    /// At most so many.
    pub rows_max: usize,
}

/// A ledger whose admissions cause nothing, such as a fake: it has no effects and takes no steps.
pub trait WithoutEffects: Send + Sync {}

impl<L: WithoutEffects> EffectReader for L {
    fn effect(&self, _: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn history(&self, _: Seq) -> BoxFuture<'_, Result<Vec<Passage>, Fault>> {
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

    fn recover(&self, _: Millis) -> BoxFuture<'_, Result<Recovered, Fault>> {
        Box::pin(async { Ok(Recovered::default()) })
    }
}
