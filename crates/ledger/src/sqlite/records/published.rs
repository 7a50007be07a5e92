//! Reads publications.

use admit_core::effect::{EffectLogEntry, EffectState};
use admit_core::{Digest, Millis};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::publications::{Publication, PublicationCounts, UnpublishedRecord};
use crate::sqlite::effects::{evidence, passage_row};
use crate::sqlite::queries;

/// Maximum publications of one record to list.
const SHOWN_MAX: i64 = 100;

pub(super) fn publication_row(row: &Row<'_>) -> rusqlite::Result<Publication> {
    let word = row.get_ref("state")?.as_str()?;
    let state = EffectState::restore(word, row.get("attempt")?, row.get("epoch")?, evidence(row)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(9, Type::Text, error.into()))?;
    Ok(Publication {
        n: row.get("n")?,
        record_id: row.get("record_id")?,
        revision: row.get("revision")?,
        topic: row.get("topic")?,
        partition_key: row.get("partition_key")?,
        dedupe_key: row.get("dedupe_key")?,
        digest: Digest::from_bytes(row.get("digest")?),
        state,
        reason: row.get("reason_code")?,
        begun_at: Millis(row.get("begun_at")?),
        changed_at: Millis(row.get("changed_at")?),
    })
}

pub(in crate::sqlite) fn unoffered(
    conn: &Connection,
    door: &str,
    rows_max: usize,
) -> rusqlite::Result<Vec<UnpublishedRecord>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::RECORD_UNOFFERED)?
        .query_map((door, rows_max), |row| {
            Ok(UnpublishedRecord {
                record_id: row.get(0)?,
                revision: row.get(1)?,
                changed_at: Millis(row.get(2)?),
                since: Millis(row.get(3)?),
            })
        })?
        .collect()
}

pub(in crate::sqlite) fn of(
    conn: &Connection,
    door: &str,
    record_id: &str,
) -> rusqlite::Result<Vec<Publication>> {
    conn.prepare_cached(queries::PUBLICATIONS_OF)?
        .query_map((record_id, door, SHOWN_MAX), publication_row)?
        .collect()
}

pub(in crate::sqlite) fn list(
    conn: &Connection,
    door: &str,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<Publication>> {
    page(conn, queries::PUBLICATIONS, door, after, rows_max)
}

pub(in crate::sqlite) fn ambiguous(
    conn: &Connection,
    door: &str,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<Publication>> {
    page(conn, queries::PUBLICATIONS_AMBIGUOUS, door, after, rows_max)
}

fn page(
    conn: &Connection,
    query: &str,
    door: &str,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<Publication>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(query)?.query_map((door, after, rows_max), publication_row)?.collect()
}

pub(in crate::sqlite) fn named(
    conn: &Connection,
    door: &str,
    dedupe_key: &str,
) -> rusqlite::Result<Option<Publication>> {
    conn.prepare_cached(queries::PUBLICATION_NAMED)?
        .query_row((door, dedupe_key), publication_row)
        .optional()
}

pub(in crate::sqlite) fn history(
    conn: &Connection,
    n: u64,
) -> rusqlite::Result<Vec<EffectLogEntry>> {
    conn.prepare_cached(queries::PUBLICATION_HISTORY)?.query_map([n], passage_row)?.collect()
}

pub(in crate::sqlite) fn counts(
    conn: &Connection,
    door: &str,
) -> rusqlite::Result<PublicationCounts> {
    let tx = conn.unchecked_transaction()?;
    let states = tx
        .prepare_cached(queries::PUBLICATION_COUNTS)?
        .query_map([door], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let (waiting, since) = tx
        .prepare_cached(queries::RECORD_UNOFFERED_COUNT)?
        .query_row([door], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))?;
    Ok(PublicationCounts { states, waiting, waiting_since: since.map(Millis) })
}
