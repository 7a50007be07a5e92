//! The read ports, for the ledger of a gate and for a reader beside it.

use std::collections::BTreeMap;

use admit_core::effect::{Effect, EffectLogEntry};
use admit_core::{Fault, Seq, StoredDocument};

use super::reader::Readers;
use super::records::{self, published};
use super::{SqliteLedger, SqliteReader, effects, issued, queries};
use crate::effects::{EffectFilter, EffectReader};
use crate::issuance::{DocumentFilter, DocumentReader, Run};
use crate::port::{
    BoxFuture, CountsFilter, EventLine, RecordCounts, RecordDetail, RecordFilter, RecordLine,
    RecordReader,
};
use crate::publications::{Publication, PublicationCounts, PublicationReader, UnpublishedRecord};
use crate::rules::BUS_END;
use crate::tables::run;

/// Has a pool of read-only connections.
trait HasReaders: Send + Sync {
    fn readers(&self) -> &Readers;
}

impl HasReaders for SqliteLedger {
    fn readers(&self) -> &Readers {
        &self.readers
    }
}

impl HasReaders for SqliteReader {
    fn readers(&self) -> &Readers {
        &self.readers
    }
}

impl<T: HasReaders> RecordReader for T {
    fn records(&self, filter: RecordFilter) -> BoxFuture<'_, Result<Vec<RecordLine>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| records::read::list(conn, &filter)))
    }

    fn record_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Option<RecordDetail>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| records::read::one(conn, &door, &record_id)))
    }

    fn open_events(
        &self,
        door: String,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<EventLine>, Fault>> {
        Box::pin(
            self.readers().read(move |conn, _| records::read::open(conn, &door, after, rows_max)),
        )
    }

    fn record_counts(
        &self,
        door: String,
        filter: CountsFilter,
    ) -> BoxFuture<'_, Result<RecordCounts, Fault>> {
        Box::pin(self.readers().read(move |conn, _| records::read::counts(conn, &door, &filter)))
    }
}

impl<T: HasReaders> PublicationReader for T {
    fn unoffered(
        &self,
        door: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<UnpublishedRecord>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| published::unoffered(conn, &door, rows_max)))
    }

    fn publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        let listed = move |conn: &_, _| published::list(conn, &door, after, rows_max);
        Box::pin(self.readers().read(listed))
    }

    fn publications_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| published::of(conn, &door, &record_id)))
    }

    fn ambiguous_publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        let ambiguous = move |conn: &_, _| published::ambiguous(conn, &door, after, rows_max);
        Box::pin(self.readers().read(ambiguous))
    }

    fn publication(
        &self,
        door: String,
        dedupe_key: String,
    ) -> BoxFuture<'_, Result<Option<Publication>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| published::named(conn, &door, &dedupe_key)))
    }

    fn publication_history(&self, n: u64) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| published::history(conn, n)))
    }

    fn publication_counts(&self, door: String) -> BoxFuture<'_, Result<PublicationCounts, Fault>> {
        Box::pin(self.readers().read(move |conn, _| published::counts(conn, &door)))
    }
}

/// Not for every `T`: ledgers without effects have a blanket implementation of their own.
macro_rules! effect_read_ports {
    ($($ledger:ty),+) => {$(
        impl EffectReader for $ledger {
            fn effect(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
                Box::pin(self.readers().read(move |conn, _| effects::get(conn, seq)))
            }

            fn history(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
                Box::pin(self.readers().read(move |conn, _| effects::history(conn, seq)))
            }

            fn effects(&self, filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
                Box::pin(self.readers().read(move |conn, _| effects::list(conn, &filter)))
            }
        }
    )+};
}

effect_read_ports!(SqliteLedger, SqliteReader);

impl<T: HasReaders> DocumentReader for T {
    fn filed(&self, filter: DocumentFilter) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| issued::list(conn, &filter)))
    }

    fn named(&self, id: String) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| issued::named(conn, &id)))
    }

    fn filed_of(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| issued::of(conn, seq)))
    }

    fn unwritten(
        &self,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| issued::unwritten(conn, after, rows_max)))
    }

    fn synced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        Box::pin(self.readers().read(|conn, _| issued::synced(conn)))
    }

    fn bus_ends(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, Fault>> {
        Box::pin(self.readers().read(|conn, _| {
            let mut ends = conn.prepare_cached(queries::BUS_ENDS)?;
            ends.query_map([BUS_END], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        }))
    }

    fn run(&self, id: String) -> BoxFuture<'_, Result<Option<Run>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| run::get(conn, &id)))
    }

    fn runs(&self, after: String, rows_max: usize) -> BoxFuture<'_, Result<Vec<Run>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| run::list(conn, &after, rows_max)))
    }
}
