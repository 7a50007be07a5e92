//! Verifies a ledger against itself, row by row, beside a gate that may be running.
//!
//! The range is fixed at start: everything up to the last seq of that moment. Rows are read in slices, each
//! in a short transaction, so that no old snapshot is held for long. Whether a body matches its row is up to
//! the contract; the caller provides that part.

use std::collections::HashSet;
use std::error::Error;

use admit_core::{Code, Digest, Key, Millis, Seq};

use crate::common::records::{MismatchSink, RecordCheck};
pub use crate::verify_inbox::InboxCounts;
use crate::verify_inbox::{self, EachInboxRow};
use crate::verify_laws::{EachBreach, Law};
use crate::verify_records::EventRowSink;
pub use crate::verify_records::{RebuildEvent, RebuildInput, RecordsChecked};

/// Rows per slice.
pub(crate) const SLICE_ROWS: i64 = 1_000;

/// Seqs per slice of a law.
const LAW_PLACES: u64 = 20_000;

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The seq it concerns, if any.
    pub at: Option<Seq>,
    /// Name of the check that failed.
    pub check: &'static str,
    /// Description for operators.
    pub message: String,
}

impl Disagreement {
    /// An inconsistency of the row at `at`.
    pub fn at(at: Seq, check: &'static str, message: impl Into<String>) -> Self {
        Self { at: Some(at), check, message: message.into() }
    }
}

/// The ledger could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be read: {0}")]
pub struct VerifyError(#[source] pub(crate) Box<dyn Error + Send + Sync>);

/// Receives inconsistencies as they are found.
pub type DisagreementSink<'f> = dyn FnMut(Disagreement) + 'f;

/// An admission as stored.
#[derive(Debug)]
pub struct StoredAdmission<'r> {
    /// Its seq.
    pub seq: Seq,
    /// Door.
    pub door: &'r str,
    /// Principal that sent it.
    pub principal: &'r str,
    /// Verdict.
    pub verdict: &'r str,
    /// Its key, unless it was refused.
    pub key: Option<Key>,
    /// The digest of its content.
    pub digest: Digest,
    /// Arrival.
    pub received_at: Millis,
    /// Delivery attempt, as counted by the producer.
    pub attempt: Option<u32>,
    /// The contract's facts, as stored.
    pub facts: &'r str,
    /// The raw body, unless it was removed.
    pub body: Option<&'r [u8]>,
}

/// A projected document as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedDocument {
    /// Projection.
    pub projection: String,
    /// Entity.
    pub entity: String,
    /// The admission that changed it last.
    pub seq: Seq,
    /// Document text.
    pub text: String,
}

/// A document whose text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableDocument {
    /// Its kind.
    pub projection: String,
    /// Entity; invalid text in it is replaced.
    pub entity: String,
    /// The admission that changed it last.
    pub seq: Seq,
    /// The reason.
    pub why: String,
}

/// A document whose file is a copy of the ledger's: a closure, or of a scenario run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentFile {
    /// `closure` or `scenario`.
    pub kind: String,
    /// Path of its file.
    pub path: String,
    /// Its text, without the line end.
    pub text: String,
}

/// An admission with the rows that must match it.
pub(crate) struct AdmissionRow<'r> {
    pub(crate) kept: StoredAdmission<'r>,
    pub(crate) first: Option<Seq>,
    pub(crate) first_key: Option<Key>,
    pub(crate) first_verdict: Option<&'r str>,
    pub(crate) code: Option<&'r str>,
    /// The seq that claimed its key.
    pub(crate) claimed_by: Option<Seq>,
    /// The key logged for its seq, in ledgers with a key log.
    pub(crate) logged_key: Option<Key>,
}

/// The claim of a key, with the admission it refers to.
pub(crate) struct KeyRow<'r> {
    pub(crate) seq: Seq,
    pub(crate) is_its_key: bool,
    /// Whether a look-up of the key finds this claim.
    pub(crate) is_in_place: bool,
    /// `None` if there is no such admission.
    pub(crate) verdict: Option<&'r str>,
}

/// A sighting with the rows it refers to.
pub(crate) struct SightingRow<'r> {
    pub(crate) seq: Seq,
    pub(crate) admission: Seq,
    pub(crate) verdict: Option<&'r str>,
    pub(crate) other: Option<Seq>,
    pub(crate) other_verdict: Option<&'r str>,
    pub(crate) other_first: Option<Seq>,
    pub(crate) has_twin: bool,
}

/// An event of the inbox's door, with its inbox row.
pub(crate) struct InboxPresence {
    pub(crate) seq: Seq,
    pub(crate) has_row: bool,
    pub(crate) differs: bool,
}

/// Counters at the start of the verification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerifyCounters {
    pub(crate) last: Seq,
    pub(crate) admissions: u64,
    pub(crate) sightings: u64,
}

/// Seqs after the first and up to the second.
pub(crate) type Slice = (Seq, Seq);

/// Callbacks that receive one row at a time.
pub(crate) type EachAdmission<'f> = dyn FnMut(Result<AdmissionRow<'_>, (Seq, String)>) + 'f;
pub(crate) type EachKey<'f> = dyn FnMut(KeyRow<'_>) + 'f;
pub(crate) type EachSighting<'f> = dyn FnMut(Result<SightingRow<'_>, (Seq, String)>) + 'f;
pub(crate) type EachInboxPresence<'f> = dyn FnMut(Result<InboxPresence, (Seq, String)>) + 'f;

/// Reports a row that cannot be read; the verification continues with the next one.
fn unreadable(seq: Seq, why: &str, found: &mut DisagreementSink<'_>) {
    let message = format!("the row cannot be read: {why}");
    found(Disagreement::at(seq, "row", message));
}

/// Result of checking the structure, besides inconsistencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Number of indexes checked.
    pub indexes: u64,
    /// Why indexes were not checked, if they were not.
    pub unchecked: Option<String>,
}

/// Reads the rows of a ledger in slices. Each method returns the last seq of a full slice, after which there
/// may be more.
pub(crate) trait VerifyRows {
    /// Lets the database check its own structure.
    fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure, VerifyError>;

    /// Reads admissions, or why one of them cannot be read.
    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Reads a slice of the claims from the start or from a returned cursor. Returns the next cursor, `None` at the
    /// end.
    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, VerifyError>;

    /// Reads claims that are logged and not in the index yet; a ledger may have none.
    fn logged_keys(&self, slice: Slice, each: &mut EachKey<'_>)
    -> Result<Option<Seq>, VerifyError>;

    /// Reads sightings.
    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Reads events of the inbox's door.
    fn inbox(
        &self,
        slice: Slice,
        each: &mut EachInboxPresence<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Reads a slice of the inbox rows after a place. Returns the last place if there may be
    /// more.
    fn inbox_rows(
        &self,
        after: i64,
        each: &mut EachInboxRow<'_>,
    ) -> Result<Option<i64>, VerifyError>;

    /// Returns documents of closures and scenario runs whose files are copies.
    fn files(&self) -> Result<Vec<DocumentFile>, VerifyError>;

    /// Returns the ids of the scenario runs.
    fn scenario_runs(&self) -> Result<Vec<String>, VerifyError>;

    /// Returns effects that an operator has settled.
    fn reconciled(&self) -> Result<Vec<Seq>, VerifyError>;

    /// Returns violations of a law, in a slice of seqs if it is sliced.
    fn breaches(
        &self,
        law: Law,
        slice: Slice,
        each: &mut EachBreach<'_>,
    ) -> Result<(), VerifyError>;

    /// Events of the records of a door.
    fn event_rows(
        &self,
        door: &str,
        slice: Slice,
        each: &mut EventRowSink<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Has the links of events decided again.
    fn links(
        &self,
        checking: RecordCheck<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), VerifyError>;

    /// Has a slice of the records after an id merged again. Returns the last one's id when there may
    /// be more.
    fn records(
        &self,
        checking: RecordCheck<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<Option<String>, VerifyError>;

    /// Returns documents after one of them, by name.
    fn documents(
        &self,
        after: &(String, String),
    ) -> Result<Vec<Result<ProjectedDocument, UnreadableDocument>>, VerifyError>;
}

/// Verifies a ledger.
pub struct Verifier {
    pub(crate) rows: Box<dyn VerifyRows>,
    counters: VerifyCounters,
    /// Retention removes bodies, rows and keys, so missing ones are not inconsistencies.
    forgets: bool,
}

impl Verifier {
    pub(crate) fn new(rows: Box<dyn VerifyRows>, counters: VerifyCounters, forgets: bool) -> Self {
        Self { rows, counters, forgets }
    }

    /// The last seq that is verified.
    pub fn last(&self) -> Seq {
        self.counters.last
    }

    /// Lets the database check its own structure, as far as it can.
    pub fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure, VerifyError> {
        self.rows.structure(found)
    }

    /// Checks every admission against its key claim, its body and the rows it refers to, and passes it to `each`
    /// for further checks. Returns their number.
    pub fn admissions(
        &self,
        found: &mut DisagreementSink<'_>,
        each: &mut dyn FnMut(&StoredAdmission<'_>, &mut DisagreementSink<'_>),
    ) -> Result<u64, VerifyError> {
        let mut count = 0;
        self.slices(|slice| {
            self.rows.admissions(slice, &mut |row| {
                count += 1;
                match row {
                    Ok(row) => self.admission(&row, found, each),
                    Err((seq, why)) => unreadable(seq, &why, found),
                }
            })
        })?;
        Ok(count)
    }

    fn admission(
        &self,
        row: &AdmissionRow<'_>,
        found: &mut DisagreementSink<'_>,
        each: &mut dyn FnMut(&StoredAdmission<'_>, &mut DisagreementSink<'_>),
    ) {
        let kept = &row.kept;
        match kept.verdict {
            "fresh" => self.claim(row, found),
            "revision" | "conflict" => {
                let is_gone = self.forgets && row.first_key.is_none();
                let is_right = row.first.is_some_and(|first| first < kept.seq)
                    && row.first_key == kept.key
                    && row.first_verdict == Some("fresh");
                if !is_right && !is_gone {
                    let message = "it does not refer to the first admission of its key";
                    found(Disagreement::at(kept.seq, "first", message));
                }
            }
            "refused" => {
                if row.code.and_then(Code::parse).is_none() || kept.key.is_some() {
                    let message = "this refusal has an unknown code, or a key";
                    found(Disagreement::at(kept.seq, "refusal", message));
                }
                if kept.body.is_some_and(|body| Digest::of(body) != kept.digest) {
                    let message = "the digest is not that of the refused body";
                    found(Disagreement::at(kept.seq, "digest", message));
                }
            }
            other => {
                let message = format!("unknown verdict {other:?}");
                found(Disagreement::at(kept.seq, "verdict", message));
            }
        }
        if kept.body.is_none() && !self.forgets {
            found(Disagreement::at(kept.seq, "body", "the raw body is missing"));
        }
        each(kept, found);
    }

    /// Checks that a fresh admission holds its key, in the index or in the log.
    fn claim(&self, row: &AdmissionRow<'_>, found: &mut DisagreementSink<'_>) {
        let kept = &row.kept;
        let message = match (kept.key, row.claimed_by, row.logged_key) {
            (None, _, _) => "a fresh admission has no key".to_owned(),
            (_, Some(other), _) if other != kept.seq => {
                format!("its key is claimed by place {}", other.0)
            }
            (Some(key), _, Some(logged)) if logged != key => {
                "another key is logged for its place".to_owned()
            }
            (_, None, None) if !self.forgets => "its key is not claimed".to_owned(),
            _ => return,
        };
        found(Disagreement::at(kept.seq, "key_index", message));
    }

    /// Checks that every claim refers to a fresh admission with that key. Returns their number.
    pub fn keys(&self, found: &mut DisagreementSink<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        let mut claim = |row: KeyRow<'_>| {
            if row.seq > self.last() {
                return;
            }
            count += 1;
            let message = match row.verdict {
                _ if !row.is_in_place => {
                    "a claim is stored where look-ups of its key do not find it"
                }
                Some("fresh") if row.is_its_key => return,
                Some(_) => "the admission at this place did not claim this key",
                None if self.forgets => return,
                None => "a key is claimed for a place without an admission",
            };
            found(Disagreement::at(row.seq, "key_index", message));
        };
        let mut after = Some(Vec::new());
        while let Some(key) = after {
            after = self.rows.keys(&key, &mut claim)?;
        }
        self.slices(|slice| self.rows.logged_keys(slice, &mut claim))?;
        Ok(count)
    }

    /// Checks the rows that sightings refer to. Returns their number.
    pub fn sightings(&self, found: &mut DisagreementSink<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        self.slices(|slice| {
            self.rows.sightings(slice, &mut |row| {
                count += 1;
                match row {
                    Ok(row) => self.sighting(&row, found),
                    Err((seq, why)) => unreadable(seq, &why, found),
                }
            })
        })?;
        Ok(count)
    }

    fn sighting(&self, row: &SightingRow<'_>, found: &mut DisagreementSink<'_>) {
        let SightingRow { seq, admission, verdict, .. } = *row;
        let is_copy = matches!(verdict, Some("fresh" | "revision" | "refused"));
        if (!is_copy && (verdict.is_some() || !self.forgets)) || admission >= seq {
            let message = format!(
                "place {}, of which it is a copy, is not an admission that can have copies",
                admission.0
            );
            found(Disagreement::at(seq, "sighting", message));
        }
        if let Some(other) = row.other {
            let is_right = matches!(row.other_verdict, Some("conflict" | "revision"))
                && row.other_first == Some(admission);
            if !is_right && (row.other_verdict.is_some() || !self.forgets) {
                let message =
                    format!("place {} does not hold the other content of this copy", other.0);
                found(Disagreement::at(seq, "sighting", message));
            }
        }
        if row.has_twin {
            found(Disagreement::at(seq, "place", "an admission has the same place"));
        }
    }

    /// Checks the counters against the counted rows.
    pub fn counters(&self, admissions: u64, sightings: u64, found: &mut DisagreementSink<'_>) {
        if self.forgets {
            return;
        }
        let mut compare = |name: &str, kept: u64, counted: u64| {
            if kept != counted {
                let message = format!("{name} is {kept}, but {counted} were counted");
                found(Disagreement { at: None, check: "counter", message });
            }
        };
        compare("admissions", self.counters.admissions, admissions);
        compare("sightings", self.counters.sightings, sightings);
        compare("last_seq", self.counters.last.0, admissions + sightings);
    }

    /// Checks that every event of the inbox's door is in the inbox, unchanged. Returns their
    /// number.
    pub fn inbox(&self, found: &mut DisagreementSink<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        self.slices(|slice| {
            self.rows.inbox(slice, &mut |row| {
                count += 1;
                let row = match row {
                    Ok(row) => row,
                    Err((seq, why)) => return unreadable(seq, &why, found),
                };
                if !row.has_row && !self.forgets {
                    found(Disagreement::at(row.seq, "inbox", "the event is not in the inbox"));
                }
                if row.differs {
                    let message = "the inbox holds another payload than the raw body";
                    found(Disagreement::at(row.seq, "inbox", message));
                }
            })
        })?;
        Ok(count)
    }

    /// Checks every row of the inbox against its admission and its claims.
    pub fn inbox_rows(&self, found: &mut DisagreementSink<'_>) -> Result<InboxCounts, VerifyError> {
        let mut checked = InboxCounts::default();
        let mut after = Some(i64::MIN);
        while let Some(place) = after {
            after = self.rows.inbox_rows(place, &mut |row| match row {
                Ok(row) => verify_inbox::check(&row, &mut checked, found),
                Err((seq, why)) => unreadable(seq, &why, found),
            })?;
        }
        Ok(checked)
    }

    /// Checks the laws between the rows of effects, documents, runs, closures, scenario runs and
    /// records.
    pub fn laws(&self, found: &mut DisagreementSink<'_>) -> Result<(), VerifyError> {
        for law in Law::ALL {
            let mut breach = |at, message| {
                found(Disagreement { at, check: law.check(), message });
            };
            let last = self.last();
            if !law.is_sliced() {
                self.rows.breaches(law, (Seq(0), last), &mut breach)?;
                continue;
            }
            let mut after = Seq(0);
            while after < last {
                let to = Seq(after.0.saturating_add(LAW_PLACES)).min(last);
                self.rows.breaches(law, (after, to), &mut breach)?;
                after = to;
            }
        }
        Ok(())
    }

    /// Returns the documents of closures and scenario runs whose files are copies.
    pub fn files(&self) -> Result<Vec<DocumentFile>, VerifyError> {
        self.rows.files()
    }

    /// Returns the effects that an operator has settled.
    pub fn reconciled(&self) -> Result<HashSet<Seq>, VerifyError> {
        Ok(self.rows.reconciled()?.into_iter().collect())
    }

    /// Returns the ids of the scenario runs.
    pub fn scenario_runs(&self) -> Result<Vec<String>, VerifyError> {
        self.rows.scenario_runs()
    }

    /// Passes every projected document to `each`.
    pub fn documents(
        &self,
        each: &mut dyn FnMut(Result<ProjectedDocument, UnreadableDocument>),
    ) -> Result<(), VerifyError> {
        let mut after = (String::new(), String::new());
        loop {
            let page = self.rows.documents(&after)?;
            let next = match page.last() {
                None => return Ok(()),
                Some(Ok(last)) => (last.projection.clone(), last.entity.clone()),
                Some(Err(last)) => (last.projection.clone(), last.entity.clone()),
            };
            // A name with replaced characters sorts before the name itself, which would be read for ever.
            let is_last = next <= after || (page.len() as i64) < SLICE_ROWS;
            page.into_iter().for_each(&mut *each);
            if is_last {
                return Ok(());
            }
            after = next;
        }
    }

    /// Reads slice after slice, up to the last seq.
    fn slices(
        &self,
        mut read: impl FnMut(Slice) -> Result<Option<Seq>, VerifyError>,
    ) -> Result<(), VerifyError> {
        let mut after = Some(Seq(0));
        while let Some(seq) = after {
            after = read((seq, self.last()))?;
        }
        Ok(())
    }
}
