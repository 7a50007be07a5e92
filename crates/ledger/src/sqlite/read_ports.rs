//! The read ports, for the ledger of a gate and for a reader beside it.

use admit_core::{EntityId, Fault, Key, Receipt, Seq};
use bytes::Bytes;

use super::reader::{self, Readers};
use super::{SqliteLedger, SqliteReader};
use crate::port::{BoxFuture, Reader, ReceiptFilter, ReceiptPage, Status};

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

impl<T: HasReaders> Reader for T {
    fn tag(&self) -> u32 {
        self.readers().tag()
    }

    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers().read(move |conn, tag| reader::receipt(conn, tag, seq)))
    }

    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers().read(move |conn, tag| reader::find(conn, tag, &key)))
    }

    fn body(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| reader::body(conn, seq)))
    }

    fn list(&self, filter: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        Box::pin(self.readers().read(move |conn, tag| reader::list(conn, tag, &filter)))
    }

    fn page_of(
        &self,
        filter: ReceiptFilter,
        examined_max: usize,
    ) -> BoxFuture<'_, Result<ReceiptPage, Fault>> {
        let page = move |conn: &_, tag| reader::page_of(conn, tag, &filter, examined_max);
        Box::pin(self.readers().read(page))
    }

    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| reader::document(conn, &id)))
    }

    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        Box::pin(self.readers().read(move |conn, _| {
            reader::documents(conn, projection, &prefix, after.as_deref(), rows_max)
        }))
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        let path = self.readers().path().to_owned();
        Box::pin(self.readers().read(move |conn, _| reader::status(conn, &path)))
    }
}
