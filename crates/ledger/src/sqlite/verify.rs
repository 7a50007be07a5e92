//! Checks a ledger against itself, row by row, beside a gate that may be running.
//!
//! What is checked is fixed at the start: everything up to the place the ledger had reached then.
//! Rows are read in slices, each in a short transaction of its own, so that the log can start over
//! in between. Whether a body really says what its row says is for the contracts; whoever calls
//! hands that part in.

use std::path::Path;

use admit_core::{Code, Digest, Key, Millis, Seq};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{OpenError, open, queries};

/// Rows of one slice.
const SLICE_ROWS: i64 = 1_000;

/// Something that does not agree with something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The place it is about, where there is one.
    pub at: Option<Seq>,
    /// Which check failed, in one word.
    pub check: &'static str,
    /// What was found, for people.
    pub message: String,
}

impl Disagreement {
    /// A disagreement about the row at `at`.
    pub fn at(at: Seq, check: &'static str, message: impl Into<String>) -> Self {
        Self { at: Some(at), check, message: message.into() }
    }
}

/// The ledger could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be read: {0}")]
pub struct VerifyError(#[from] rusqlite::Error);

/// Takes disagreements as they are found.
pub type Found<'f> = dyn FnMut(Disagreement) + 'f;

/// An admission as it is kept.
#[derive(Debug)]
pub struct Kept<'r> {
    /// Its place.
    pub seq: Seq,
    /// Where it came in.
    pub door: &'r str,
    /// Who sent it.
    pub principal: &'r str,
    /// What became of it.
    pub verdict: &'r str,
    /// Its identity, unless it was refused.
    pub key: Option<Key>,
    /// The digest of its content.
    pub digest: Digest,
    /// When it came.
    pub received_at: Millis,
    /// The producer's own count of the delivery.
    pub attempt: Option<u32>,
    /// The contract's part of the receipt, as it is stored.
    pub facts: &'r str,
    /// The raw body, unless it is gone.
    pub body: Option<&'r [u8]>,
}

/// A projected document as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDocument {
    /// Its kind.
    pub projection: String,
    /// Which one.
    pub entity: String,
    /// The admission that changed it last.
    pub seq: Seq,
    /// What it says.
    pub text: String,
}

/// A ledger being checked.
pub struct Verifier {
    conn: Connection,
    last: Seq,
    admissions: u64,
    sightings: u64,
    /// Retention removes bodies, rows and keys, so that something missing proves nothing.
    forgets: bool,
}

impl Verifier {
    /// Opens the ledger in the data folder `dir` for reading. `forgets` says that retention has
    /// removed something from it.
    pub fn open(dir: &Path, forgets: bool) -> Result<Self, OpenError> {
        let path = dir.join(open::FILE);
        let folder = |source| OpenError::Folder { path: path.clone(), source };
        std::fs::metadata(&path).map_err(folder)?;
        let fail = |source| OpenError::from_sqlite(&path, source);
        let conn = open::reading(&path).map_err(fail)?;
        open::check_owner(&conn, &path)?;
        // One transaction, so that the counters are those of the place.
        let (last, admissions, sightings) = {
            let tx = conn.unchecked_transaction().map_err(fail)?;
            let value = |name: &str| {
                let found = tx.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
                Ok::<u64, rusqlite::Error>(found.optional()?.unwrap_or(0))
            };
            let read = || Ok((value("last_seq")?, value("admissions")?, value("sightings")?));
            read().map_err(fail)?
        };
        Ok(Self { conn, last: Seq(last), admissions, sightings, forgets })
    }

    /// The last place that is checked.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Has SQLite check the structure of the file, table by table.
    pub fn structure(&self, found: &mut Found<'_>) -> Result<(), VerifyError> {
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
        Ok(())
    }

    /// Checks every admission against its key's claim, its body's presence and what it refers to,
    /// and hands it to `each`, which says what else is wrong with it. Returns how many there were.
    pub fn admissions(
        &self,
        found: &mut Found<'_>,
        each: &mut dyn FnMut(&Kept<'_>, &mut Found<'_>),
    ) -> Result<u64, VerifyError> {
        let mut count = 0;
        self.slices(queries::VERIFY_ADMISSIONS, |row| {
            count += 1;
            self.admission(row, found, each)
        })?;
        Ok(count)
    }

    fn admission(
        &self,
        row: &Row<'_>,
        found: &mut Found<'_>,
        each: &mut dyn FnMut(&Kept<'_>, &mut Found<'_>),
    ) -> rusqlite::Result<()> {
        let seq = Seq(row.get("seq")?);
        let kept = match kept(row, seq) {
            Ok(kept) => kept,
            Err(error) => {
                found(Disagreement::at(seq, "row", format!("the row cannot be read: {error}")));
                return Ok(());
            }
        };
        let first = row.get::<_, Option<u64>>("first")?;
        match kept.verdict {
            "fresh" => self.claim(row, &kept, found)?,
            "revision" | "conflict" => {
                let same_key = row.get::<_, Option<[u8; 32]>>("first_key")?.map(Key::from_bytes);
                let is_gone = self.forgets && same_key.is_none();
                let is_right = first.is_some_and(|first| first < seq.0)
                    && same_key == kept.key
                    && row.get_ref("first_verdict")?.as_str_or_null()? == Some("fresh");
                if !is_right && !is_gone {
                    found(Disagreement::at(seq, "first", "it names no first admission of its key"));
                }
            }
            "refused" => {
                let code = row.get_ref("code")?.as_str_or_null()?;
                if code.and_then(Code::parse).is_none() || kept.key.is_some() {
                    let message = "a refusal has a known code and no key, this one has not";
                    found(Disagreement::at(seq, "refusal", message));
                }
                if kept.body.is_some_and(|body| Digest::of(body) != kept.digest) {
                    let message = "the digest is not that of the refused body";
                    found(Disagreement::at(seq, "digest", message));
                }
            }
            other => {
                let message = format!("{other:?} is no verdict that is kept");
                found(Disagreement::at(seq, "verdict", message));
            }
        }
        if kept.body.is_none() && !self.forgets {
            found(Disagreement::at(seq, "body", "the raw body is missing"));
        }
        each(&kept, found);
        Ok(())
    }

    /// A fresh admission holds its key, merged or noted.
    fn claim(&self, row: &Row<'_>, kept: &Kept<'_>, found: &mut Found<'_>) -> rusqlite::Result<()> {
        let merged = row.get::<_, Option<u64>>("claimed_by")?;
        let noted = row.get::<_, Option<[u8; 32]>>("noted_key")?.map(Key::from_bytes);
        let message = match (kept.key, merged, noted) {
            (None, _, _) => "a fresh admission has no key".to_owned(),
            (_, Some(other), _) if other != kept.seq.0 => {
                format!("its key is claimed by place {other}")
            }
            (Some(key), _, Some(noted)) if noted != key => {
                "another key is noted for its place".to_owned()
            }
            (_, None, None) if !self.forgets => "nobody has claimed its key".to_owned(),
            _ => return Ok(()),
        };
        found(Disagreement::at(kept.seq, "key_index", message));
        Ok(())
    }

    /// Checks that every claim names a fresh admission with that key. Returns how many there were.
    pub fn keys(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        let mut claim = |row: &Row<'_>| {
            let seq = Seq(row.get("seq")?);
            if seq <= self.last {
                count += 1;
                let same = bytes(row, "key")? == bytes(row, "admission_key")?;
                let verdict = row.get_ref("verdict")?.as_str_or_null()?;
                if verdict.is_some() && (!same || verdict != Some("fresh")) {
                    let message = "the admission at this place did not claim this key";
                    found(Disagreement::at(seq, "key_index", message));
                } else if verdict.is_none() && !self.forgets {
                    let message = "a key is claimed for a place without an admission";
                    found(Disagreement::at(seq, "key_index", message));
                }
            }
            Ok::<_, rusqlite::Error>(())
        };
        let mut after: Vec<u8> = Vec::new();
        loop {
            let mut read = 0;
            let mut query = self.conn.prepare_cached(queries::VERIFY_KEYS)?;
            let mut rows = query.query((&after, SLICE_ROWS))?;
            let mut last = None;
            while let Some(row) = rows.next()? {
                read += 1;
                claim(row)?;
                last = bytes(row, "key")?.map(<[u8]>::to_vec);
            }
            match last {
                Some(key) if read == SLICE_ROWS => after = key,
                _ => break,
            }
        }
        self.slices(queries::VERIFY_KEY_LOG, claim)?;
        Ok(count)
    }

    /// Checks what sightings refer to. Returns how many there were.
    pub fn sightings(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        self.slices(queries::VERIFY_SIGHTINGS, |row| {
            count += 1;
            let seq = Seq(row.get("seq")?);
            let admission: u64 = row.get("admission")?;
            let of = row.get_ref("verdict")?.as_str_or_null()?;
            let is_copy = matches!(of, Some("fresh" | "revision" | "refused"));
            if (!is_copy && (of.is_some() || !self.forgets)) || admission >= seq.0 {
                let message = format!("place {admission}, of which it is a copy, is none to copy");
                found(Disagreement::at(seq, "sighting", message));
            }
            if let Some(other) = row.get::<_, Option<u64>>("other")? {
                let kept = row.get_ref("other_verdict")?.as_str_or_null()?;
                let is_right = matches!(kept, Some("conflict" | "revision"))
                    && row.get::<_, Option<u64>>("other_first")? == Some(admission);
                if !is_right && (kept.is_some() || !self.forgets) {
                    let message = format!("place {other} does not hold what it said instead");
                    found(Disagreement::at(seq, "sighting", message));
                }
            }
            if row.get::<_, Option<i64>>("twice")?.is_some() {
                found(Disagreement::at(seq, "place", "an admission has the same place"));
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Checks the counters against what was counted.
    pub fn counters(&self, admissions: u64, sightings: u64, found: &mut Found<'_>) {
        if self.forgets {
            return;
        }
        let mut compare = |name: &str, kept: u64, counted: u64| {
            if kept != counted {
                let message = format!("{name} is {kept}, counted were {counted}");
                found(Disagreement { at: None, check: "counter", message });
            }
        };
        compare("admissions", self.admissions, admissions);
        compare("sightings", self.sightings, sightings);
        compare("last_seq", self.last.0, admissions + sightings);
    }

    /// Checks that every event of the inbox's door is in the inbox, as it came. Returns how many
    /// there were.
    pub fn inbox(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = 'event_inbox'";
        // A ledger that no gate of this version has opened yet has none.
        if !self.conn.prepare(exists)?.exists([])? {
            return Ok(0);
        }
        let mut count = 0;
        self.slices(queries::VERIFY_INBOX, |row| {
            count += 1;
            let seq = Seq(row.get("seq")?);
            if !row.get::<_, bool>("has_row")? && !self.forgets {
                found(Disagreement::at(seq, "inbox", "the event is not in the inbox"));
            }
            if row.get::<_, bool>("differs")? {
                let message = "the inbox holds another payload than the raw body";
                found(Disagreement::at(seq, "inbox", message));
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Hands out every projected document.
    pub fn documents(&self, each: &mut dyn FnMut(KeptDocument)) -> Result<(), VerifyError> {
        let mut after = (String::new(), String::new());
        loop {
            let mut query = self.conn.prepare_cached(queries::VERIFY_DOCUMENTS)?;
            let page: Vec<KeptDocument> = query
                .query_map((&after.0, &after.1, SLICE_ROWS), |row| {
                    Ok(KeptDocument {
                        projection: row.get(0)?,
                        entity: row.get(1)?,
                        seq: Seq(row.get(2)?),
                        text: row.get(3)?,
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            let Some(last) = page.last() else { return Ok(()) };
            after = (last.projection.clone(), last.entity.clone());
            page.into_iter().for_each(&mut *each);
        }
    }

    /// Runs a query over places, slice by slice, each in a transaction of its own.
    fn slices(
        &self,
        query: &str,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut after = 0;
        loop {
            let mut query = self.conn.prepare_cached(query)?;
            let mut rows = query.query((after, self.last.0, SLICE_ROWS))?;
            let mut read = 0;
            while let Some(row) = rows.next()? {
                read += 1;
                after = row.get::<_, u64>("seq")?;
                each(row)?;
            }
            if read < SLICE_ROWS {
                return Ok(());
            }
        }
    }
}

fn kept<'r>(row: &'r Row<'_>, seq: Seq) -> rusqlite::Result<Kept<'r>> {
    Ok(Kept {
        seq,
        door: row.get_ref("door")?.as_str()?,
        principal: row.get_ref("principal")?.as_str()?,
        verdict: row.get_ref("verdict")?.as_str()?,
        key: row.get::<_, Option<[u8; 32]>>("key")?.map(Key::from_bytes),
        digest: Digest::from_bytes(row.get("digest")?),
        received_at: Millis(row.get("received_at")?),
        attempt: row.get("attempt")?,
        facts: row.get_ref("facts")?.as_str()?,
        body: bytes(row, "body")?,
    })
}

fn bytes<'r>(row: &'r Row<'_>, name: &str) -> rusqlite::Result<Option<&'r [u8]>> {
    Ok(row.get_ref(name)?.as_blob_or_null()?)
}
