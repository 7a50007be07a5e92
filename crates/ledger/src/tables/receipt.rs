//! Reads admissions, sightings and projected documents.

use admit_core::{
    Age, Code, Digest, Door, EntityId, Fault, Key, Principal, Receipt, ReceiptId, Seq,
};
use bytes::Bytes;

use crate::common::receipts::{StoredSighting, end_of, verdict};
use crate::db::{Columns, Db, InvalidValue, Param, ReadBackend, params, statements};
use crate::port::{BoxFuture, Reader, ReceiptFilter, ReceiptPage, Status};

statements! {
    shared BODY "body";
    shared DOCUMENT_GET "document_get";
    shared DOCUMENTS "documents";
    each LIST "list";
    each LIST_QUARANTINE "list_quarantine";
    shared LIST_QUARANTINE_WINDOW "list_quarantine_window";
    shared LIST_WINDOW "list_window";
    shared RECEIPT "receipt";
    shared SIGHTING "sighting";
    each STATUS "status";
}

/// What reading receipts needs of a ledger.
pub(crate) trait ReceiptBackend: ReadBackend {
    /// The number that names this ledger.
    fn ledger_tag(&self) -> u32;

    /// Returns the admission that claimed `key`.
    fn find_key(db: &Self::Db, key: &Key) -> Result<Option<Seq>, <Self::Db as Db>::Error>;

    /// Adds what only this kind of ledger knows about its state.
    fn complete_status(&self) -> CompleteStatus<Self::Db>;
}

/// Completes the state of a ledger on a read connection.
pub(crate) type CompleteStatus<D> =
    Box<dyn Fn(&D, &mut Status) -> Result<(), <D as Db>::Error> + Send + Sync>;

impl<B: ReceiptBackend> Reader for B {
    fn tag(&self) -> u32 {
        self.ledger_tag()
    }

    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        self.read(move |db, tag| receipt(db, tag, seq))
    }

    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        self.read(move |db, tag| match B::find_key(db, &key)? {
            Some(seq) => receipt(db, tag, seq),
            None => Ok(None),
        })
    }

    fn body(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        self.read(move |db, _| {
            let row = db.query_opt(&BODY, params![seq])?;
            row.map(|row| row.bytes("bytes").map(Bytes::from)).transpose()
        })
    }

    fn list(&self, filter: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        self.read(move |db, tag| list_to(db, tag, &filter, Seq::MAX))
    }

    fn page_of(
        &self,
        filter: ReceiptFilter,
        examined_max: usize,
    ) -> BoxFuture<'_, Result<ReceiptPage, Fault>> {
        self.read(move |db, tag| page_of(db, tag, &filter, examined_max))
    }

    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        self.read(move |db, _| document(db, &id))
    }

    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        self.read(move |db, _| {
            let (end, after) = (end_of(&prefix), after.as_deref().unwrap_or(""));
            let params = params![projection, &prefix, &end, after, rows_max];
            let found = db.query(&DOCUMENTS, params)?;
            found.iter().map(|row| Ok((row.text("entity")?, row.text("text")?))).collect()
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        let complete = self.complete_status();
        self.read(move |db, _| {
            let mut status = status_of(&db.query_one(&STATUS, &[])?)?;
            complete(db, &mut status)?;
            Ok(status)
        })
    }
}

/// Returns the receipt at `seq`, whether of an admission or a sighting.
fn receipt<D: Db>(db: &D, tag: u32, seq: Seq) -> Result<Option<Receipt>, D::Error> {
    if let Some(receipt) = receipt_at(db, tag, seq)? {
        return Ok(Some(receipt));
    }
    let Some(row) = db.query_opt(&SIGHTING, params![seq])? else { return Ok(None) };
    let copy = StoredSighting {
        seq,
        admission: row.seq("admission")?,
        other: row.seq_opt("other")?,
        received_at: row.millis("received_at")?,
        attempt: row.small_opt("attempt")?,
    };
    let of = receipt_at(db, tag, copy.other.unwrap_or(copy.admission))?;
    Ok(of.map(|of| copy.receipt(of, tag)))
}

fn receipt_at<D: Db>(db: &D, tag: u32, seq: Seq) -> Result<Option<Receipt>, D::Error> {
    db.query_opt(&RECEIPT, params![seq])?.map(|row| receipt_of(&row, tag)).transpose()
}

/// Returns a page; at most `examined_max` admissions are examined.
fn page_of<D: Db>(
    db: &D,
    tag: u32,
    filter: &ReceiptFilter,
    examined_max: usize,
) -> Result<ReceiptPage, D::Error> {
    let window = if is_of_quarantine(filter) { &LIST_QUARANTINE_WINDOW } else { &LIST_WINDOW };
    // The first admission that is not examined any more.
    let beyond = match filter.is_selective() {
        true => db.query_opt(window, params![filter.after, examined_max])?,
        false => None,
    };
    let beyond = beyond.map(|row| row.seq("seq")).transpose()?;
    let examined_to = beyond.map(|beyond| Seq(beyond.0.saturating_sub(1)));
    let receipts = list_to(db, tag, filter, examined_to.unwrap_or(Seq::MAX))?;
    Ok(ReceiptPage::of(receipts, filter.rows_max, examined_to))
}

fn is_of_quarantine(filter: &ReceiptFilter) -> bool {
    let quarantine = |verdict: &String| verdict == "conflict" || verdict == "refused";
    !filter.verdicts.is_empty() && filter.verdicts.iter().all(quarantine)
}

/// Returns receipts up to the seq `to`.
fn list_to<D: Db>(
    db: &D,
    tag: u32,
    filter: &ReceiptFilter,
    to: Seq,
) -> Result<Vec<Receipt>, D::Error> {
    let statement = if is_of_quarantine(filter) { &LIST_QUARANTINE } else { &LIST };
    let ReceiptFilter { door, principal, verdicts, after, rows_max } = filter;
    let verdicts: Vec<&str> = verdicts.iter().map(String::as_str).collect();
    let verdicts = match verdicts.is_empty() {
        true => Param::Text(None),
        false => Param::Texts(&verdicts),
    };
    let params = params![door, principal, verdicts, *after, *rows_max, to];
    db.query(statement, params)?.iter().map(|row| receipt_of(row, tag)).collect()
}

/// Returns one projected document.
pub(crate) fn document<D: Db>(db: &D, id: &EntityId) -> Result<Option<String>, D::Error> {
    let row = db.query_opt(&DOCUMENT_GET, params![id.projection, &id.entity])?;
    row.map(|row| row.text("text")).transpose()
}

fn status_of<R: Columns>(row: &R) -> Result<Status, R::Error> {
    let count = |name| Ok::<_, R::Error>(row.num_opt(name)?.unwrap_or(0));
    let removed_keys = count("removed_keys")?;
    Ok(Status {
        admissions: count("admissions")?.saturating_sub(count("removed_admissions")?),
        sightings: count("sightings")?.saturating_sub(count("removed_sightings")?),
        last_seq: Seq(count("last_seq")?),
        oldest_at: row.millis_opt("oldest_at")?,
        bytes: 0,
        free_bytes: 0,
        keys: row.num_opt("keys")?.map(|keys| keys.saturating_sub(removed_keys)),
        oldest_body_at: row.millis_opt("oldest_body_at")?,
        retain: row.num_opt("retain_ms")?.map(Age::from_millis),
        forgotten_to: row.millis_opt("forgotten_to")?,
        trusted_at: row.millis_opt("trusted_at")?,
        refusals: count("refusals")?,
        refusal_bytes: count("refusal_bytes")?,
        removed_bodies: count("removed_bodies")?,
        removed_keys,
        gates: Vec::new(),
    })
}

fn receipt_of<R: Columns>(row: &R, ledger: u32) -> Result<Receipt, R::Error> {
    let word = row.text("verdict")?;
    let verdict = verdict(&word).ok_or_else(|| InvalidValue::unknown("verdict", &word))?;
    let code = row.text_opt("code")?.as_deref().and_then(Code::parse);
    let message = row.text_opt("message")?;
    Ok(Receipt {
        id: ReceiptId { ledger, seq: row.seq("seq")? },
        door: Door::new(&row.text("door")?),
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
