//! Documents and runs: written inside the writer's transaction, read outside of it.

use admit_core::effect::Attribution;
use admit_core::{Document, DocumentKind, DocumentRelease, Millis, Seq, StoredDocument};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::queries;
use crate::issuance::DocumentFilter;
use crate::rules::{DocumentSubject, OpenQuarantine, RunDeltas};

/// Returns the document with this id.
pub(super) fn find(
    conn: &Connection,
    kind: DocumentKind,
    run: &str,
    id: &str,
) -> rusqlite::Result<Option<StoredDocument>> {
    conn.prepare_cached(queries::ISSUED_FIND)?
        .query_row((id, run, kind.as_str()), filed_row)
        .optional()
}

/// Inserts a document.
pub(super) fn insert(
    conn: &Connection,
    document: Document,
    about: DocumentSubject,
) -> rusqlite::Result<StoredDocument> {
    conn.prepare_cached(queries::ISSUED_INSERT)?.execute(params![
        document.kind.as_str(),
        document.run.as_deref().unwrap_or_default(),
        document.id,
        document.identity,
        document.decision,
        document.reason,
        about.seq.0,
        about.of.map(|of| of.0),
        document.event_id,
        document.event_type,
        about.at.0,
        document.path,
        document.text,
    ])?;
    let n = conn.last_insert_rowid().unsigned_abs();
    let DocumentSubject { seq, of, at, .. } = about;
    Ok(StoredDocument { n, seq, of, at, document, superseded_by: None, released: None })
}

/// Returns the open quarantines of one admission.
pub(super) fn open_of(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<OpenQuarantine>> {
    conn.prepare_cached(queries::ISSUED_OPEN_OF)?.query_map([seq.0], open_row)?.collect()
}

/// Returns the open quarantine with this id: its receipt and its record.
pub(super) fn open_named(
    conn: &Connection,
    run: &str,
    id: &str,
) -> rusqlite::Result<Vec<OpenQuarantine>> {
    conn.prepare_cached(queries::ISSUED_TWIN)?.query_map((id, run), open_row)?.collect()
}

fn open_row(row: &Row<'_>) -> rusqlite::Result<OpenQuarantine> {
    let kind = kind(row.get_ref("kind")?.as_str()?)?;
    Ok(OpenQuarantine { n: row.get("n")?, run: row.get("run")?, kind, reason: row.get("reason")? })
}

/// Adds to the counters of runs.
pub(super) fn add(conn: &Connection, runs: &RunDeltas) -> rusqlite::Result<()> {
    let mut changes = runs.changes().peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    let mut add = conn.prepare_cached(queries::RUN_ADD)?;
    for (run, at, counts) in changes {
        add.execute(params![
            run,
            at.0,
            counts.deliveries,
            counts.in_flight,
            counts.ambiguous,
            counts.admit,
            counts.duplicate,
            counts.quarantine,
            counts.superseded,
            counts.released,
        ])?;
    }
    Ok(())
}

/// Returns the path of the receipt of an admission.
pub(super) fn receipt_of(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(queries::ISSUED_RECEIPT_OF)?.query_row([seq.0], |row| row.get(0)).optional()
}

pub(super) fn list(
    conn: &Connection,
    filter: &DocumentFilter,
) -> rusqlite::Result<Vec<StoredDocument>> {
    let rows_max = i64::try_from(filter.rows_max).unwrap_or(i64::MAX);
    if let (Some(DocumentKind::Quarantine), Some(run), None) =
        (filter.kind, &filter.run, &filter.decision)
    {
        return conn
            .prepare_cached(queries::ISSUED_QUARANTINE)?
            .query_map((run, filter.after, filter.is_open, rows_max), filed_row)?
            .collect();
    }
    conn.prepare_cached(queries::ISSUED_LIST)?
        .query_map(
            (
                filter.kind.map(DocumentKind::as_str),
                &filter.run,
                &filter.decision,
                filter.is_open,
                filter.after,
                rows_max,
            ),
            filed_row,
        )?
        .collect()
}

pub(super) fn named(conn: &Connection, id: &str) -> rusqlite::Result<Vec<StoredDocument>> {
    conn.prepare_cached(queries::ISSUED_NAMED)?.query_map([id], filed_row)?.collect()
}

pub(super) fn of(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<StoredDocument>> {
    conn.prepare_cached(queries::ISSUED_OF)?.query_map([seq.0], filed_row)?.collect()
}

pub(super) fn unwritten(
    conn: &Connection,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<StoredDocument>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::ISSUED_UNWRITTEN)?
        .query_map((after, rows_max), filed_row)?
        .collect()
}

/// Returns the numbers of documents after one.
pub(super) fn numbers(
    conn: &Connection,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<u64>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached("SELECT n FROM issued WHERE n > ?1 ORDER BY n LIMIT ?2")?
        .query_map((after, rows_max), |row| row.get(0))?
        .collect()
}

/// Name of the stored number up to which files are synced.
pub(super) const SYNCED: &str = "artifacts_synced";

pub(super) fn synced(conn: &Connection) -> rusqlite::Result<(u64, u64)> {
    let to = conn
        .prepare_cached(queries::META_GET)?
        .query_row([SYNCED], |row| row.get::<_, u64>(0))
        .optional()?;
    let newest =
        conn.query_row("SELECT max(n) FROM issued", [], |row| row.get::<_, Option<u64>>(0))?;
    Ok((to.unwrap_or(0), newest.unwrap_or(0)))
}

fn not_ours(what: &str, word: &str) -> rusqlite::Error {
    let unknown = format!("{what} {word:?} is unknown").into();
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, unknown)
}

fn kind(word: &str) -> rusqlite::Result<DocumentKind> {
    DocumentKind::parse(word).ok_or_else(|| not_ours("document", word))
}

fn filed_row(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    let kind = kind(row.get_ref("kind")?.as_str()?)?;
    let run: String = row.get("run")?;
    let released = match row.get::<_, Option<i64>>("released_at")? {
        Some(at) => {
            let by = Attribution { who: row.get("released_by")?, why: row.get("released_why")? };
            Some(DocumentRelease { how: row.get("released_how")?, by, at: Millis(at) })
        }
        None => None,
    };
    Ok(StoredDocument {
        n: row.get("n")?,
        seq: Seq(row.get("seq")?),
        of: row.get::<_, Option<u64>>("of")?.map(Seq),
        at: Millis(row.get("at")?),
        document: Document {
            kind,
            run: Some(run).filter(|run| !run.is_empty()),
            id: row.get("id")?,
            identity: row.get("identity")?,
            decision: row.get::<_, String>("decision")?.into(),
            reason: row.get::<_, Option<String>>("reason")?.map(Into::into),
            event_id: row.get("event_id")?,
            event_type: row.get("event_type")?,
            path: row.get("path")?,
            text: row.get("text")?,
        },
        superseded_by: row.get("superseded_by")?,
        released,
    })
}
