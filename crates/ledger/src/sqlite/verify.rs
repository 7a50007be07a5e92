//! What SQLite verifies in its own way: its structure, and the claims of keys in merged pages and in the log.

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::keys::{check, find_merged};
use super::{OpenError, fault, open, queries};
use crate::db::Columns;
use crate::tables::verify::{SqlRows, VerifyDb};
use crate::verify::{
    Disagreement, DisagreementSink, EachKey, KeyRow, SLICE_ROWS, Slice, Structure, Verifier,
    VerifyCounters,
};

/// Opens the ledger in the data folder `dir` for verification. `forgets` is whether retention has removed
/// anything from it.
pub fn verifier(dir: &Path, forgets: bool) -> Result<Verifier, OpenError> {
    let (path, conn) = open::open_folder_read_only(dir)?;
    let fail = |source| OpenError::from_sqlite(&path, source);
    // One transaction, so that the counters match the last seq.
    let counters = {
        let tx = conn.unchecked_transaction().map_err(fail)?;
        let value = |name: &str| {
            let found = tx.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
            Ok::<u64, rusqlite::Error>(found.optional()?.unwrap_or(0))
        };
        let read = || {
            Ok(VerifyCounters {
                last: Seq(value("last_seq")?),
                admissions: value("admissions")?,
                sightings: value("sightings")?,
            })
        };
        read().map_err(fail)?
    };
    Ok(Verifier::new(Box::new(SqlRows { db: conn }), counters, forgets))
}

impl VerifyDb for Connection {
    /// Runs SQLite's integrity check, table by table.
    fn structure(&self, found: &mut DisagreementSink<'_>) -> rusqlite::Result<Structure> {
        let tables: Vec<String> = self
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for table in tables {
            let mut check = self.prepare(&format!("PRAGMA integrity_check(\"{table}\")"))?;
            let mut rows = check.query([])?;
            while let Some(row) = rows.next()? {
                let problem: String = row.get(0)?;
                if problem != "ok" {
                    let message = format!("table {table}: {problem}");
                    found(Disagreement { at: None, check: "structure", message });
                }
            }
        }
        Ok(Structure::default())
    }

    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        check::merged(self, after, SLICE_ROWS, &mut |found| claim(self, &found, each))
    }

    fn logged_keys(
        &self,
        (after, to): Slice,
        each: &mut EachKey<'_>,
    ) -> rusqlite::Result<Option<Seq>> {
        let logged = check::LoggedClaims::load(self)?;
        let mut query = self.prepare_cached(queries::VERIFY_KEY_LOG)?;
        let mut rows = query.query((after.0, to.0, SLICE_ROWS))?;
        let (mut read, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            (read, last) = (read + 1, Some(Seq(row.get("seq")?)));
            logged.claims(row, &mut |found| claim(self, &found, each))?;
        }
        Ok(last.filter(|_| read == SLICE_ROWS))
    }

    fn claim_of(
        &self,
        row: &dyn Columns<Error = rusqlite::Error>,
        key: Option<&Key>,
    ) -> rusqlite::Result<(Option<Seq>, Option<Key>)> {
        let logged = row.bytes32_opt("noted_key")?.map(Key::from_bytes);
        let claimed_by = key.map(|key| find_merged(self, key)).transpose()?;
        Ok((claimed_by.flatten(), logged))
    }

    /// A ledger that no gate of this version has opened yet has none.
    fn has_inbox(&self) -> rusqlite::Result<bool> {
        self.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'event_inbox'")?.exists([])
    }

    fn is_of_a_row(error: &rusqlite::Error) -> bool {
        fault::is_of_a_row(error)
    }
}

/// Passes a claim to `each`, with the admission it refers to.
fn claim(
    conn: &Connection,
    claim: &check::CheckedClaim<'_>,
    each: &mut EachKey<'_>,
) -> rusqlite::Result<()> {
    let mut named = conn.prepare_cached(queries::VERIFY_CLAIMED)?;
    let mut rows = named.query([claim.seq.0])?;
    let (is_its_key, verdict) = match rows.next()? {
        Some(row) => {
            // The check of the admissions reports text that is not UTF-8.
            let verdict = row.get_ref("verdict")?.as_str_or_null().unwrap_or(Some(""));
            (row.get_ref("key")?.as_blob_or_null()? == Some(claim.key), verdict)
        }
        None => (false, None),
    };
    let check::CheckedClaim { seq, is_in_place, .. } = *claim;
    each(KeyRow { seq, is_its_key, is_in_place, verdict });
    Ok(())
}
