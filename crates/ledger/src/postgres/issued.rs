//! Reads documents and runs.

use std::collections::BTreeMap;

use admit_core::effect::Attribution;
use admit_core::{Document, DocumentKind, DocumentRelease, Fault, Seq, StoredDocument};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::read_ports::read_port;
use super::{nul_escape, sql};
use crate::db::ReadBackend as _;
use crate::issuance::{DocumentFilter, DocumentReader, Run};
use crate::port::BoxFuture;
use crate::rules::{BUS_END, OpenQuarantine};
use crate::tables::run;

type Reply<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

read_port!(DocumentReader {
    fn filed(&self, filter: DocumentFilter) -> Reply<'_, Vec<StoredDocument>> {
        Box::pin(self.readers.read(move |conn, _| list(conn, &filter)))
    }

    fn named(&self, id: String) -> Reply<'_, Vec<StoredDocument>> {
        Box::pin(self.readers.read(move |conn, _| {
            filed_rows(&conn.query(sql!("issued_named"), &[&nul_escape::escape(&id)])?)
        }))
    }

    fn filed_of(&self, seq: Seq) -> Reply<'_, Vec<StoredDocument>> {
        Box::pin(
            self.readers
                .read(move |conn, _| filed_rows(&conn.query(sql!("issued_of"), &[&big(seq.0)])?)),
        )
    }

    fn unwritten(&self, after: u64, rows_max: usize) -> Reply<'_, Vec<StoredDocument>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params = [&big(after) as _, &rows(rows_max) as _];
            filed_rows(&conn.query(sql!("issued_unwritten"), &params)?)
        }))
    }

    fn synced(&self) -> Reply<'_, (u64, u64)> {
        Box::pin(self.readers.read(|conn, _| synced(conn, sql!("issued_synced"))))
    }

    fn left_unsynced(&self) -> Reply<'_, (u64, u64)> {
        Box::pin(self.readers.read(|conn, _| synced(conn, sql!("issued_left"))))
    }

    fn bus_ends(&self) -> Reply<'_, BTreeMap<String, u64>> {
        Box::pin(self.readers.read(|conn, _| {
            let ends = conn.query(sql!("bus_ends"), &[&BUS_END])?;
            ends.iter().map(|row| Ok((row.text("topic")?, row.num("messages")?))).collect()
        }))
    }

    fn run(&self, id: String) -> Reply<'_, Option<Run>> {
        self.read(move |db, _| run::get(db, &id))
    }

    fn runs(&self, after: String, rows_max: usize) -> Reply<'_, Vec<Run>> {
        self.read(move |db, _| run::list(db, &after, rows_max))
    }
});

fn list(conn: &Conn, filter: &DocumentFilter) -> Result<Vec<StoredDocument>> {
    let (after, rows_max) = (big(filter.after), rows(filter.rows_max));
    let run = filter.run.as_deref().map(nul_escape::escape);
    let kind = filter.kind.map(DocumentKind::as_str);
    if let (Some(DocumentKind::Quarantine), Some(run), None) = (filter.kind, &run, &filter.decision)
    {
        let params = [run as _, &after as _, &filter.is_open as _, &rows_max as _];
        return filed_rows(&conn.query(sql!("issued_quarantine"), &params)?);
    }
    let decision = filter.decision.as_deref().map(nul_escape::escape);
    filed_rows(&conn.query(
        sql!("issued_list"),
        &[&kind, &run, &decision, &filter.is_open, &after, &rows_max],
    )?)
}

fn synced(conn: &Conn, sql: &str) -> Result<(u64, u64)> {
    let row = conn.query_one(sql, &[])?;
    Ok((row.num("synced_to")?, row.num("newest")?))
}

/// Returns the open quarantine with this id: its receipt and its record.
pub(super) fn open_named(conn: &Conn, run: &str, id: &str) -> Result<Vec<StoredDocument>> {
    filed_rows(
        &conn.query(sql!("issued_twin"), &[&nul_escape::escape(id), &nul_escape::escape(run)])?,
    )
}

/// A quarantine, as needed to close it.
pub(super) fn open(filed: &StoredDocument) -> OpenQuarantine {
    OpenQuarantine {
        n: filed.n,
        run: filed.document.run.clone().unwrap_or_default(),
        kind: filed.document.kind,
        reason: filed.document.reason.as_deref().map(str::to_owned),
    }
}

fn filed_rows(rows: &[Row]) -> Result<Vec<StoredDocument>> {
    rows.iter().map(filed_row).collect()
}

pub(super) fn filed_row(row: &Row) -> Result<StoredDocument> {
    let word = row.text("kind")?;
    let kind = DocumentKind::parse(&word).ok_or_else(|| Error::unexpected("document", &word))?;
    let released = match row.millis_opt("released_at")? {
        Some(at) => {
            let by =
                Attribution { who: row.text("released_by")?, why: row.text_opt("released_why")? };
            Some(DocumentRelease { how: row.text("released_how")?, by, at })
        }
        None => None,
    };
    Ok(StoredDocument {
        n: row.num("n")?,
        seq: row.seq("seq")?,
        of: row.seq_opt("of")?,
        at: row.millis("at")?,
        document: Document {
            kind,
            run: Some(row.text("run")?).filter(|run| !run.is_empty()),
            id: row.text("id")?,
            identity: row.text("identity")?,
            decision: row.text("decision")?.into(),
            reason: row.text_opt("reason")?.map(Into::into),
            event_id: row.text_opt("event_id")?,
            event_type: row.text_opt("event_type")?,
            path: row.text("path")?,
            text: row.text("text")?,
        },
        superseded_by: row.num_opt("superseded_by")?,
        released,
    })
}
