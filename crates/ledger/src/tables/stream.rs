//! Reads streams over the index of their order.

use admit_core::{Door, Fault, Key, Principal, Seq};
use bytes::Bytes;

use crate::common::receipts::{PageBuilder, verdict};
use crate::db::{Columns, Db, InvalidValue, ReadBackend, params, statements};
use crate::port::{BoxFuture, Page, StreamEntry, Streams};

statements! {
    shared ENTRIES "stream";
}

/// Rows read per query before the byte limit is checked.
const READ_ROWS: usize = 64;

impl<B: ReadBackend> Streams for B {
    fn read(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Page, Fault>> {
        ReadBackend::read(self, move |db, _| page(db, &door, after, rows_max, bytes_max))
    }
}

fn page<D: Db>(
    db: &D,
    door: &Door,
    after: Seq,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Page, D::Error> {
    let mut builder = PageBuilder::after(after, rows_max, bytes_max);
    // One row more than requested shows whether there is more.
    let (mut left, mut after) = (rows_max.saturating_add(1), after);
    while left > 0 {
        let limit = left.min(READ_ROWS);
        let read = db.query(&ENTRIES, params![door.as_str(), after, limit])?;
        for row in &read {
            let entry = entry(row)?;
            after = entry.seq;
            if !builder.take(entry) {
                return Ok(builder.done());
            }
        }
        if read.len() < limit {
            break;
        }
        left -= read.len();
    }
    Ok(builder.done())
}

/// One entry of a stream.
pub(crate) fn entry<R: Columns>(row: &R) -> Result<StreamEntry, R::Error> {
    let word = row.text("verdict")?;
    let verdict = verdict(&word)
        .filter(|word| ["fresh", "revision"].contains(word))
        .ok_or_else(|| InvalidValue::unknown("verdict in a stream", &word))?;
    Ok(StreamEntry {
        seq: row.seq("seq")?,
        key: Key::from_bytes(row.bytes32("key")?),
        verdict,
        principal: Principal::new(&row.text("principal")?),
        received_at: row.millis("received_at")?,
        facts: Bytes::from(row.text("facts")?),
        body: row.bytes_opt("bytes")?.map(Bytes::from),
    })
}
