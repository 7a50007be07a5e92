//! Ports that are not kept yet.

use std::sync::Arc;

use admit_core::effect::{Effect, Passage, Step};
use admit_core::record::Policy;
use admit_core::{Door, Fault, FaultKind, Millis, Seq};

use super::PostgresLedger;
use crate::effects::{AdvanceError, EffectFilter, EffectReader, Effects, Recovered};
use crate::port::{
    BoxFuture, Claimed, Claims, CountsAsked, EventLine, Finished, Inbox, InboxFilter, InboxPage,
    InboxRow, LeaseAnswer, LeaseChange, RecordCounts, RecordDetail, RecordFilter, RecordLine,
    RecordReader, Records, Relinked, Standing, Wanted,
};

fn absent<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, Fault>> {
    Box::pin(async { Err(Fault::new(FaultKind::Internal, "this port is not kept yet")) })
}

// Effects: goes when effects.rs is whole.
impl EffectReader for PostgresLedger {
    fn effect(&self, _: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        absent()
    }

    fn history(&self, _: Seq) -> BoxFuture<'_, Result<Vec<Passage>, Fault>> {
        absent()
    }

    fn effects(&self, _: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        absent()
    }
}

impl Effects for PostgresLedger {
    fn advance(&self, _: Seq, _: Step, _: Millis) -> BoxFuture<'_, Result<Effect, AdvanceError>> {
        Box::pin(async { Ok(absent().await?) })
    }

    fn recover(&self, _: Millis) -> BoxFuture<'_, Result<Recovered, Fault>> {
        absent()
    }
}

// Claims: goes when claims.rs is there.
impl Claims for PostgresLedger {
    fn claim(&self, _: Wanted) -> BoxFuture<'_, Result<Vec<Claimed>, Fault>> {
        absent()
    }

    fn change(
        &self,
        _: Door,
        _: Vec<LeaseChange>,
        _: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseAnswer>, Fault>> {
        absent()
    }

    fn standing(&self, _: Door, _: Millis) -> BoxFuture<'_, Result<Standing, Fault>> {
        absent()
    }

    fn finished(&self, _: Door, _: Seq, _: usize) -> BoxFuture<'_, Result<Vec<Finished>, Fault>> {
        absent()
    }
}

// The inbox: goes when inbox.rs is whole.
impl Inbox for PostgresLedger {
    fn inbox(&self, _: InboxFilter) -> BoxFuture<'_, Result<InboxPage, Fault>> {
        absent()
    }

    fn in_inbox(&self, _: String) -> BoxFuture<'_, Result<Option<InboxRow>, Fault>> {
        absent()
    }
}

// Records: goes when records/ is there.
impl RecordReader for PostgresLedger {
    fn records(&self, _: RecordFilter) -> BoxFuture<'_, Result<Vec<RecordLine>, Fault>> {
        absent()
    }

    fn record_of(
        &self,
        _: String,
        _: String,
    ) -> BoxFuture<'_, Result<Option<RecordDetail>, Fault>> {
        absent()
    }

    fn open_events(
        &self,
        _: String,
        _: Seq,
        _: usize,
    ) -> BoxFuture<'_, Result<Vec<EventLine>, Fault>> {
        absent()
    }

    fn record_counts(
        &self,
        _: String,
        _: CountsAsked,
    ) -> BoxFuture<'_, Result<RecordCounts, Fault>> {
        absent()
    }
}

impl Records for PostgresLedger {
    fn relink(
        &self,
        _: String,
        _: Arc<Policy>,
        _: Millis,
        _: bool,
    ) -> BoxFuture<'_, Result<Relinked, Fault>> {
        absent()
    }
}
