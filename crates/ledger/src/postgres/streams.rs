//! Reading a stream on from a place, over the index that holds its order.

use admit_core::{Key, Principal};
use bytes::Bytes;
use tokio_postgres::Row;

use super::conn::{Columns, Error, Result};
use crate::port::StreamEntry;

/// One entry of a stream.
pub(super) fn entry(row: &Row) -> Result<StreamEntry> {
    let word: String = row.val("verdict")?;
    let verdict = match &*word {
        "fresh" => "fresh",
        "revision" => "revision",
        other => return Err(Error::not_ours("verdict in a stream", other)),
    };
    Ok(StreamEntry {
        seq: row.seq("seq")?,
        key: Key::from_bytes(row.bytes32("key")?),
        verdict,
        principal: Principal::new(&row.text("principal")?),
        received_at: row.millis("received_at")?,
        facts: Bytes::from(row.text("facts")?),
        body: row.val::<Option<Vec<u8>>>("bytes")?.map(Bytes::from),
    })
}
