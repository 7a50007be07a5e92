//! The rows of a SQLite ledger that is checked, read beside a gate that may be running: every slice
//! is a short transaction of its own, so that the log can start over in between.

use std::path::Path;

use admit_core::{Digest, Key, Millis, Seq};
use rusqlite::{Connection, OptionalExtension, Row};

use super::keys::{check, find_merged};
use super::{OpenError, open, queries};
use crate::verify::{
    AdmissionRow, Counters, Disagreement, EachAdmission, EachInInbox, EachKey, EachSighting, Found,
    InInbox, Kept, KeptDocument, KeyRow, Rows, SLICE_ROWS, SightingRow, Slice, Structure, Verifier,
    VerifyError,
};

impl From<rusqlite::Error> for VerifyError {
    fn from(error: rusqlite::Error) -> Self {
        Self(Box::new(error))
    }
}

/// Opens the ledger in the data folder `dir` for a check. `forgets` says that retention has removed
/// something from it.
pub fn verifier(dir: &Path, forgets: bool) -> Result<Verifier, OpenError> {
    let (path, conn) = open::beside(dir)?;
    let fail = |source| OpenError::from_sqlite(&path, source);
    // One transaction, so that the counters are those of the place.
    let counters = {
        let tx = conn.unchecked_transaction().map_err(fail)?;
        let value = |name: &str| {
            let found = tx.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
            Ok::<u64, rusqlite::Error>(found.optional()?.unwrap_or(0))
        };
        let read = || {
            Ok(Counters {
                last: Seq(value("last_seq")?),
                admissions: value("admissions")?,
                sightings: value("sightings")?,
            })
        };
        read().map_err(fail)?
    };
    Ok(Verifier::new(Box::new(SqliteRows { conn }), counters, forgets))
}

struct SqliteRows {
    conn: Connection,
}

impl Rows for SqliteRows {
    /// Has SQLite check the structure of the file, table by table.
    fn structure(&self, found: &mut Found<'_>) -> Result<Structure, VerifyError> {
        let tables: Vec<String> = self
            .conn
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for table in tables {
            let mut check = self.conn.prepare(&format!("PRAGMA integrity_check(\"{table}\")"))?;
            let mut rows = check.query([])?;
            while let Some(row) = rows.next()? {
                let said: String = row.get(0)?;
                if said != "ok" {
                    let message = format!("table {table}: {said}");
                    found(Disagreement { at: None, check: "structure", message });
                }
            }
        }
        Ok(Structure::default())
    }

    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.slice(queries::VERIFY_ADMISSIONS, slice, |row, seq| {
            let row = admission(row, seq).and_then(|admission| {
                let claimed_by = admission.kept.key.map(|key| find_merged(&self.conn, &key));
                Ok(AdmissionRow { claimed_by: claimed_by.transpose()?.flatten(), ..admission })
            });
            each(row.map_err(|error| (seq, error.to_string())));
            Ok(())
        })
    }

    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, VerifyError> {
        Ok(check::merged(&self.conn, after, SLICE_ROWS, &mut |found| self.claim(&found, each))?)
    }

    fn noted_keys(&self, slice: Slice, each: &mut EachKey<'_>) -> Result<Option<Seq>, VerifyError> {
        let noted = check::Noted::load(&self.conn)?;
        self.slice(queries::VERIFY_KEY_LOG, slice, |row, _| {
            noted.claims(row, &mut |found| self.claim(&found, each))
        })
    }

    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> Result<Option<Seq>, VerifyError> {
        self.slice(queries::VERIFY_SIGHTINGS, slice, |row, seq| {
            each(SightingRow {
                seq,
                admission: Seq(row.get("admission")?),
                verdict: row.get_ref("verdict")?.as_str_or_null()?,
                other: row.get::<_, Option<u64>>("other")?.map(Seq),
                other_verdict: row.get_ref("other_verdict")?.as_str_or_null()?,
                other_first: row.get::<_, Option<u64>>("other_first")?.map(Seq),
                has_twin: row.get::<_, Option<i64>>("twice")?.is_some(),
            });
            Ok(())
        })
    }

    fn inbox(&self, slice: Slice, each: &mut EachInInbox<'_>) -> Result<Option<Seq>, VerifyError> {
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = 'event_inbox'";
        // A ledger that no gate of this version has opened yet has none.
        if !self.conn.prepare(exists)?.exists([])? {
            return Ok(None);
        }
        self.slice(queries::VERIFY_INBOX, slice, |row, seq| {
            each(InInbox { seq, has_row: row.get("has_row")?, differs: row.get("differs")? });
            Ok(())
        })
    }

    fn documents(&self, after: &(String, String)) -> Result<Vec<KeptDocument>, VerifyError> {
        let mut query = self.conn.prepare_cached(queries::VERIFY_DOCUMENTS)?;
        let page = query.query_map((&after.0, &after.1, SLICE_ROWS), |row| {
            Ok(KeptDocument {
                projection: row.get(0)?,
                entity: row.get(1)?,
                seq: Seq(row.get(2)?),
                text: row.get(3)?,
            })
        })?;
        Ok(page.collect::<rusqlite::Result<_>>()?)
    }
}

impl SqliteRows {
    /// A claim, with the admission that it names.
    fn claim(&self, claim: &check::Found<'_>, each: &mut EachKey<'_>) -> rusqlite::Result<()> {
        let mut named = self.conn.prepare_cached(queries::VERIFY_CLAIMED)?;
        let mut rows = named.query([claim.seq.0])?;
        let (is_its_key, verdict) = match rows.next()? {
            Some(row) => {
                let verdict = row.get_ref("verdict")?.as_str_or_null()?;
                (bytes(row, "key")? == Some(claim.key), verdict)
            }
            None => (false, None),
        };
        let check::Found { seq, is_in_place, .. } = *claim;
        each(KeyRow { seq, is_its_key, is_in_place, verdict });
        Ok(())
    }

    /// One slice of places.
    fn slice(
        &self,
        query: &str,
        (after, to): Slice,
        mut each: impl FnMut(&Row<'_>, Seq) -> rusqlite::Result<()>,
    ) -> Result<Option<Seq>, VerifyError> {
        let mut query = self.conn.prepare_cached(query)?;
        let mut rows = query.query((after.0, to.0, SLICE_ROWS))?;
        let (mut read, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            read += 1;
            let seq = Seq(row.get("seq")?);
            each(row, seq)?;
            last = Some(seq);
        }
        Ok(last.filter(|_| read == SLICE_ROWS))
    }
}

fn admission<'r>(row: &'r Row<'_>, seq: Seq) -> rusqlite::Result<AdmissionRow<'r>> {
    let key = |name: &str| row.get::<_, Option<[u8; 32]>>(name).map(|it| it.map(Key::from_bytes));
    let seq_of = |name: &str| row.get::<_, Option<u64>>(name).map(|it| it.map(Seq));
    Ok(AdmissionRow {
        kept: Kept {
            seq,
            door: row.get_ref("door")?.as_str()?,
            principal: row.get_ref("principal")?.as_str()?,
            verdict: row.get_ref("verdict")?.as_str()?,
            key: key("key")?,
            digest: Digest::from_bytes(row.get("digest")?),
            received_at: Millis(row.get("received_at")?),
            attempt: row.get("attempt")?,
            facts: row.get_ref("facts")?.as_str()?,
            body: bytes(row, "body")?,
        },
        first: seq_of("first")?,
        first_key: key("first_key")?,
        first_verdict: row.get_ref("first_verdict")?.as_str_or_null()?,
        code: row.get_ref("code")?.as_str_or_null()?,
        claimed_by: None,
        noted_key: key("noted_key")?,
    })
}

fn bytes<'r>(row: &'r Row<'_>, name: &str) -> rusqlite::Result<Option<&'r [u8]>> {
    Ok(row.get_ref(name)?.as_blob_or_null()?)
}
