//! The read ports, for the ledger of a gate and for a reader beside it.

use admit_core::{
    Age, Code, Digest, Door, EntityId, Fault, Key, Millis, Principal, Receipt, ReceiptId, Seq,
};
use bytes::Bytes;
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Query, Result, big, rows};
use super::{documents, nul_escape, sql};
use crate::common::receipts::{StoredSighting, end_of, verdict};
use crate::port::{BoxFuture, GateStatus, Reader, ReceiptFilter, ReceiptPage, Status};

/// Implements a read port for the ledger of a gate and for a reader beside it. A second blanket implementation
/// would conflict with that of the embedded ledger.
macro_rules! read_port {
    ($port:ident $results:tt) => {
        impl $port for $crate::postgres::PostgresLedger $results
        impl $port for $crate::postgres::PostgresReader $results
    };
}

read_port! {
Reader {
    fn tag(&self) -> u32 {
        self.readers.tag()
    }

    fn receipt(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| receipt(conn, tag, seq)))
    }

    fn find(&self, key: Key) -> BoxFuture<'_, std::result::Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| find(conn, tag, &key)))
    }

    fn body(&self, seq: Seq) -> BoxFuture<'_, std::result::Result<Option<Bytes>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| body(conn, seq)))
    }

    fn list(&self, filter: ReceiptFilter) -> BoxFuture<'_, std::result::Result<Vec<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| list(conn, tag, &filter)))
    }

    fn page_of(
        &self,
        filter: ReceiptFilter,
        examined_max: usize,
    ) -> BoxFuture<'_, std::result::Result<ReceiptPage, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| page_of(conn, tag, &filter, examined_max)))
    }

    fn document(&self, id: EntityId) -> BoxFuture<'_, std::result::Result<Option<String>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| documents::get(conn, &id)))
    }

    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<(String, String)>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let prefix = nul_escape::escape(&prefix);
            let (end, after) = (end_of(&prefix), nul_escape::escape(after.as_deref().unwrap_or("")));
            let found = conn
                .query(sql!("documents"), &[&projection, &prefix, &end, &after, &rows(rows_max)])?;
            found.iter().map(|row| Ok((row.text("entity")?, row.text("text")?))).collect()
        }))
    }

    fn status(&self) -> BoxFuture<'_, std::result::Result<Status, Fault>> {
        Box::pin(self.readers.read(|conn, _| status(conn)))
    }
}
}

/// Returns the receipt at `seq`, whether of an admission or a sighting.
fn receipt(conn: &Conn, tag: u32, seq: Seq) -> Result<Option<Receipt>> {
    let at = |seq: Seq| {
        let row = conn.query_opt(sql!("receipt"), &[&big(seq.0)])?;
        row.map(|row| receipt_row(&row, tag)).transpose()
    };
    if let Some(receipt) = at(seq)? {
        return Ok(Some(receipt));
    }
    let Some(row) = conn.query_opt(sql!("sighting"), &[&big(seq.0)])? else { return Ok(None) };
    let copy = StoredSighting {
        seq,
        admission: row.seq("admission")?,
        other: row.seq_opt("other")?,
        received_at: row.millis("received_at")?,
        attempt: row.small_opt("attempt")?,
    };
    let of = at(copy.other.unwrap_or(copy.admission))?;
    Ok(of.map(|of| copy.receipt(of, tag)))
}

/// Returns the receipt of the admission that claimed `key`.
fn find(conn: &Conn, tag: u32, key: &Key) -> Result<Option<Receipt>> {
    let row = conn.query_opt(sql!("key_find"), &[&&key.as_bytes()[..]])?;
    match row {
        Some(row) => receipt(conn, tag, row.seq("seq")?),
        None => Ok(None),
    }
}

fn body(conn: &Conn, seq: Seq) -> Result<Option<Bytes>> {
    let row = conn.query_opt(sql!("body"), &[&big(seq.0)])?;
    row.map(|row| row.val::<Vec<u8>>("bytes").map(Bytes::from)).transpose()
}

fn list(conn: &Conn, tag: u32, filter: &ReceiptFilter) -> Result<Vec<Receipt>> {
    list_to(conn, tag, filter, Seq::MAX)
}

/// Returns a page; at most `examined_max` admissions are examined.
fn page_of(
    conn: &Conn,
    tag: u32,
    filter: &ReceiptFilter,
    examined_max: usize,
) -> Result<ReceiptPage> {
    let window = match is_of_quarantine(filter) {
        true => sql!("list_quarantine_window"),
        false => sql!("list_window"),
    };
    // The first admission that is not examined any more.
    let beyond = match filter.is_selective() {
        true => conn.query_opt(window, &[&big(filter.after.0), &rows(examined_max)])?,
        false => None,
    };
    let beyond = beyond.map(|row| row.seq("seq")).transpose()?;
    let examined_to = beyond.map(|beyond| Seq(beyond.0.saturating_sub(1)));
    let receipts = list_to(conn, tag, filter, examined_to.unwrap_or(Seq::MAX))?;
    Ok(ReceiptPage::of(receipts, filter.rows_max, examined_to))
}

fn is_of_quarantine(filter: &ReceiptFilter) -> bool {
    let quarantine = |verdict: &String| verdict == "conflict" || verdict == "refused";
    !filter.verdicts.is_empty() && filter.verdicts.iter().all(quarantine)
}

/// Returns receipts up to the seq `to`.
fn list_to(conn: &Conn, tag: u32, filter: &ReceiptFilter, to: Seq) -> Result<Vec<Receipt>> {
    let query = if is_of_quarantine(filter) { sql!("list_quarantine") } else { sql!("list") };
    let verdicts = (!filter.verdicts.is_empty()).then_some(&filter.verdicts);
    let door = filter.door.as_deref().map(nul_escape::escape);
    let principal = filter.principal.as_deref().map(nul_escape::escape);
    let (after, rows_max) = (big(filter.after.0), rows(filter.rows_max));
    conn.query(query, &[&door, &principal, &verdicts, &after, &rows_max, &big(to.0)])?
        .iter()
        .map(|row| receipt_row(row, tag))
        .collect()
}

fn status(conn: &Conn) -> Result<Status> {
    let queries = [Query::new(sql!("status"), Vec::new()), Query::new(sql!("gates"), Vec::new())];
    let mut results = conn.query_all(&queries)?.into_iter();
    let mut next = || results.next().unwrap_or_default();
    let (rows, gates) = (next(), next());
    let none = || Error::Unexpected("the head row of the ledger is missing".to_owned());
    let row = rows.first().ok_or_else(none)?;
    let count = |name| Ok::<_, Error>(row.num_opt(name)?.unwrap_or(0));
    let removed_keys = count("removed_keys")?;
    Ok(Status {
        admissions: count("admissions")?.saturating_sub(count("removed_admissions")?),
        sightings: count("sightings")?.saturating_sub(count("removed_sightings")?),
        last_seq: Seq(count("last_seq")?),
        oldest_at: row.millis_opt("oldest_at")?,
        bytes: count("bytes")?,
        // The database does not report free space without reading its files.
        free_bytes: 0,
        keys: Some(count("keys")?.saturating_sub(removed_keys)),
        oldest_body_at: row.millis_opt("oldest_body_at")?,
        retain: row.num_opt("retain_ms")?.map(Age::from_millis),
        forgotten_to: row.val::<Option<i64>>("forgotten_to")?.map(Millis),
        trusted_at: row.millis_opt("trusted_at")?,
        refusals: count("refusals")?,
        refusal_bytes: count("refusal_bytes")?,
        removed_bodies: count("removed_bodies")?,
        removed_keys,
        gates: gates.iter().map(gate).collect::<Result<_>>()?,
    })
}

fn gate(row: &Row) -> Result<GateStatus> {
    Ok(GateStatus {
        id: row.text("owner")?,
        epoch: row.num("epoch")?,
        since: row.millis("started_at")?,
        lease_until: row.millis("lease_until")?,
        is_alive: row.val("is_alive")?,
    })
}

fn receipt_row(row: &Row, ledger: u32) -> Result<Receipt> {
    let word: String = row.val("verdict")?;
    let verdict = verdict(&word).ok_or_else(|| Error::unexpected("verdict", &word))?;
    let code = row.val::<Option<String>>("code")?.as_deref().and_then(Code::parse);
    let message = row.text_opt("message")?;
    Ok(Receipt {
        id: ReceiptId { ledger, seq: row.seq("seq")? },
        door: Door::new(&row.val::<String>("door")?),
        principal: Principal::new(&row.text("principal")?),
        verdict,
        key: row.bytes32_opt("key")?.map(Key::from_bytes),
        digest: Digest::from_bytes(row.bytes32("digest")?),
        received_at: row.millis("received_at")?,
        last_seen_at: row.millis("last_seen_at")?,
        duplicate_count: row.num("duplicate_count")?,
        last_attempt: row.small_opt("last_attempt")?,
        first: row.seq_opt("first")?.map(|seq| ReceiptId { ledger, seq }),
        reason: code.map(|code| (code, message.unwrap_or_default())),
        facts: Bytes::from(row.text("facts")?),
    })
}
