//! Checks a ledger against itself, row by row, beside a gate that may be running.
//!
//! What is checked is fixed at the start: everything up to the place the ledger had reached then.
//! Rows are read in slices, each in a short transaction of its own, so that nothing old is held for
//! long. Whether a body really says what its row says is for the contracts; whoever calls hands that
//! part in.

use std::collections::HashSet;
use std::error::Error;

use admit_core::{Code, Digest, Key, Millis, Seq};

pub use crate::verify_inbox::InboxChecked;
pub use crate::verify_records::{RecordsChecked, Retell, Telling};
use crate::verify_inbox::{self, EachInboxRow};
use crate::common::records::{Checking, EachWrong};
use crate::verify_laws::{EachBreach, Law};
use crate::verify_records::EachTelling;

/// Rows of one slice.
pub(crate) const SLICE_ROWS: i64 = 1_000;

/// Places of one slice of a law.
const LAW_PLACES: u64 = 20_000;

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
pub struct VerifyError(#[source] pub(crate) Box<dyn Error + Send + Sync>);

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

/// A document whose text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableDocument {
    /// Its kind.
    pub projection: String,
    /// Which one; what is no text in it is replaced.
    pub entity: String,
    /// The admission that changed it last.
    pub seq: Seq,
    /// Why.
    pub why: String,
}

/// A document whose file is a copy of what the ledger keeps: a closure, or of a scenario run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// `closure` or `scenario`.
    pub kind: String,
    /// Where its file is.
    pub path: String,
    /// All of it, without the line end.
    pub text: String,
}

/// An admission with everything that must agree with it.
pub(crate) struct AdmissionRow<'r> {
    pub(crate) kept: Kept<'r>,
    pub(crate) first: Option<Seq>,
    pub(crate) first_key: Option<Key>,
    pub(crate) first_verdict: Option<&'r str>,
    pub(crate) code: Option<&'r str>,
    /// Who holds its key.
    pub(crate) claimed_by: Option<Seq>,
    /// The key that is noted for its place, where claims are noted first.
    pub(crate) noted_key: Option<Key>,
}

/// The claim of a key, with the admission that it names.
pub(crate) struct KeyRow<'r> {
    pub(crate) seq: Seq,
    pub(crate) is_its_key: bool,
    /// Whether whoever looks for the key finds this claim.
    pub(crate) is_in_place: bool,
    /// Nothing where there is no such admission.
    pub(crate) verdict: Option<&'r str>,
}

/// A sighting with what it refers to.
pub(crate) struct SightingRow<'r> {
    pub(crate) seq: Seq,
    pub(crate) admission: Seq,
    pub(crate) verdict: Option<&'r str>,
    pub(crate) other: Option<Seq>,
    pub(crate) other_verdict: Option<&'r str>,
    pub(crate) other_first: Option<Seq>,
    pub(crate) has_twin: bool,
}

/// An event of the inbox's door, with what the inbox holds of it.
pub(crate) struct InInbox {
    pub(crate) seq: Seq,
    pub(crate) has_row: bool,
    pub(crate) differs: bool,
}

/// Where the ledger stood when the check began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) last: Seq,
    pub(crate) admissions: u64,
    pub(crate) sightings: u64,
}

/// Places after the first and up to the second.
pub(crate) type Slice = (Seq, Seq);

/// Take one row after the other.
pub(crate) type EachAdmission<'f> = dyn FnMut(Result<AdmissionRow<'_>, (Seq, String)>) + 'f;
pub(crate) type EachKey<'f> = dyn FnMut(KeyRow<'_>) + 'f;
pub(crate) type EachSighting<'f> = dyn FnMut(Result<SightingRow<'_>, (Seq, String)>) + 'f;
pub(crate) type EachInInbox<'f> = dyn FnMut(Result<InInbox, (Seq, String)>) + 'f;

/// Names a row that cannot be read; the check goes on with the next one.
fn unreadable(seq: Seq, why: &str, found: &mut Found<'_>) {
    let message = format!("the row cannot be read: {why}");
    found(Disagreement::at(seq, "row", message));
}

/// What a database has to say of its own structure, besides what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Indexes that were checked one by one.
    pub indexes: u64,
    /// Why indexes were not looked into, where they were not.
    pub unchecked: Option<String>,
}

/// Reads the rows of a ledger in slices. Each reading of places returns the last place of a slice
/// that was full, after which there may be more.
pub(crate) trait Rows {
    /// Has the database check what it can check itself.
    fn structure(&self, found: &mut Found<'_>) -> Result<Structure, VerifyError>;

    /// Admissions, or why one of them cannot be read.
    fn admissions(
        &self,
        slice: Slice,
        each: &mut EachAdmission<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// A slice of the claims, from the beginning or from what it returned before. Returns where it is, or
    /// nothing at the end.
    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>, VerifyError>;

    /// Claims that are noted but not in the index yet; a ledger may have none.
    fn noted_keys(&self, slice: Slice, each: &mut EachKey<'_>) -> Result<Option<Seq>, VerifyError>;

    /// Sightings.
    fn sightings(
        &self,
        slice: Slice,
        each: &mut EachSighting<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Events of the inbox's door.
    fn inbox(&self, slice: Slice, each: &mut EachInInbox<'_>) -> Result<Option<Seq>, VerifyError>;

    /// A slice of the rows of the inbox after a place. Returns the last one's place
    /// when there may be more.
    fn inbox_rows(
        &self,
        after: i64,
        each: &mut EachInboxRow<'_>,
    ) -> Result<Option<i64>, VerifyError>;

    /// Documents of closures and scenario runs whose files are copies.
    fn files(&self) -> Result<Vec<KeptFile>, VerifyError>;

    /// The ids of the scenario runs.
    fn scenario_runs(&self) -> Result<Vec<String>, VerifyError>;

    /// Effects that a person has settled.
    fn reconciled(&self) -> Result<Vec<Seq>, VerifyError>;

    /// What breaks a law, in a slice of places where it has some.
    fn breaches(
        &self,
        law: Law,
        slice: Slice,
        each: &mut EachBreach<'_>,
    ) -> Result<(), VerifyError>;

    /// Events of the records of a door.
    fn tellings(
        &self,
        door: &str,
        slice: Slice,
        each: &mut EachTelling<'_>,
    ) -> Result<Option<Seq>, VerifyError>;

    /// Has the links of events decided again.
    fn links(
        &self,
        checking: Checking<'_>,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut EachWrong<'_>,
    ) -> Result<(), VerifyError>;

    /// Has a slice of the records after an id merged again. Returns the last one's id when there may
    /// be more.
    fn records(
        &self,
        checking: Checking<'_>,
        after: &str,
        checked: &mut RecordsChecked,
        wrong: &mut EachWrong<'_>,
    ) -> Result<Option<String>, VerifyError>;

    /// Documents after one of them, by name.
    fn documents(
        &self,
        after: &(String, String),
    ) -> Result<Vec<Result<KeptDocument, UnreadableDocument>>, VerifyError>;
}

/// A ledger being checked.
pub struct Verifier {
    pub(crate) rows: Box<dyn Rows>,
    counters: Counters,
    /// Retention removes bodies, rows and keys, so that something missing proves nothing.
    forgets: bool,
}

impl Verifier {
    pub(crate) fn new(rows: Box<dyn Rows>, counters: Counters, forgets: bool) -> Self {
        Self { rows, counters, forgets }
    }

    /// The last place that is checked.
    pub fn last(&self) -> Seq {
        self.counters.last
    }

    /// Has the database check its own structure, as far as it can.
    pub fn structure(&self, found: &mut Found<'_>) -> Result<Structure, VerifyError> {
        self.rows.structure(found)
    }

    /// Checks every admission against its key's claim, its body's presence and what it refers to,
    /// and hands it to `each`, which says what else is wrong with it. Returns how many there were.
    pub fn admissions(
        &self,
        found: &mut Found<'_>,
        each: &mut dyn FnMut(&Kept<'_>, &mut Found<'_>),
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
        found: &mut Found<'_>,
        each: &mut dyn FnMut(&Kept<'_>, &mut Found<'_>),
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
                    let message = "it names no first admission of its key";
                    found(Disagreement::at(kept.seq, "first", message));
                }
            }
            "refused" => {
                if row.code.and_then(Code::parse).is_none() || kept.key.is_some() {
                    let message = "a refusal has a known code and no key, this one has not";
                    found(Disagreement::at(kept.seq, "refusal", message));
                }
                if kept.body.is_some_and(|body| Digest::of(body) != kept.digest) {
                    let message = "the digest is not that of the refused body";
                    found(Disagreement::at(kept.seq, "digest", message));
                }
            }
            other => {
                let message = format!("{other:?} is no verdict that is kept");
                found(Disagreement::at(kept.seq, "verdict", message));
            }
        }
        if kept.body.is_none() && !self.forgets {
            found(Disagreement::at(kept.seq, "body", "the raw body is missing"));
        }
        each(kept, found);
    }

    /// A fresh admission holds its key, in the index or noted.
    fn claim(&self, row: &AdmissionRow<'_>, found: &mut Found<'_>) {
        let kept = &row.kept;
        let message = match (kept.key, row.claimed_by, row.noted_key) {
            (None, _, _) => "a fresh admission has no key".to_owned(),
            (_, Some(other), _) if other != kept.seq => {
                format!("its key is claimed by place {}", other.0)
            }
            (Some(key), _, Some(noted)) if noted != key => {
                "another key is noted for its place".to_owned()
            }
            (_, None, None) if !self.forgets => "nobody has claimed its key".to_owned(),
            _ => return,
        };
        found(Disagreement::at(kept.seq, "key_index", message));
    }

    /// Checks that every claim names a fresh admission with that key. Returns how many there were.
    pub fn keys(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
        let mut count = 0;
        let mut claim = |row: KeyRow<'_>| {
            if row.seq > self.last() {
                return;
            }
            count += 1;
            let message = match row.verdict {
                _ if !row.is_in_place => "a claim is not where its key is looked for",
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
        self.slices(|slice| self.rows.noted_keys(slice, &mut claim))?;
        Ok(count)
    }

    /// Checks what sightings refer to. Returns how many there were.
    pub fn sightings(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
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

    fn sighting(&self, row: &SightingRow<'_>, found: &mut Found<'_>) {
        let SightingRow { seq, admission, verdict, .. } = *row;
        let is_copy = matches!(verdict, Some("fresh" | "revision" | "refused"));
        if (!is_copy && (verdict.is_some() || !self.forgets)) || admission >= seq {
            let message = format!("place {}, of which it is a copy, is none to copy", admission.0);
            found(Disagreement::at(seq, "sighting", message));
        }
        if let Some(other) = row.other {
            let is_right = matches!(row.other_verdict, Some("conflict" | "revision"))
                && row.other_first == Some(admission);
            if !is_right && (row.other_verdict.is_some() || !self.forgets) {
                let message = format!("place {} does not hold what it said instead", other.0);
                found(Disagreement::at(seq, "sighting", message));
            }
        }
        if row.has_twin {
            found(Disagreement::at(seq, "place", "an admission has the same place"));
        }
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
        compare("admissions", self.counters.admissions, admissions);
        compare("sightings", self.counters.sightings, sightings);
        compare("last_seq", self.counters.last.0, admissions + sightings);
    }

    /// Checks that every event of the inbox's door is in the inbox, as it came. Returns how many
    /// there were.
    pub fn inbox(&self, found: &mut Found<'_>) -> Result<u64, VerifyError> {
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
    pub fn inbox_rows(&self, found: &mut Found<'_>) -> Result<InboxChecked, VerifyError> {
        let mut checked = InboxChecked::default();
        let mut after = Some(i64::MIN);
        while let Some(place) = after {
            after = self.rows.inbox_rows(place, &mut |row| match row {
                Ok(row) => verify_inbox::check(&row, &mut checked, found),
                Err((seq, why)) => unreadable(seq, &why, found),
            })?;
        }
        Ok(checked)
    }

    /// Checks what must hold between the rows of effects, documents, runs, closures, scenario runs and
    /// records.
    pub fn laws(&self, found: &mut Found<'_>) -> Result<(), VerifyError> {
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

    /// The documents of closures and scenario runs whose files are copies.
    pub fn files(&self) -> Result<Vec<KeptFile>, VerifyError> {
        self.rows.files()
    }

    /// The effects that a person has settled.
    pub fn reconciled(&self) -> Result<HashSet<Seq>, VerifyError> {
        Ok(self.rows.reconciled()?.into_iter().collect())
    }

    /// The ids of the scenario runs.
    pub fn scenario_runs(&self) -> Result<Vec<String>, VerifyError> {
        self.rows.scenario_runs()
    }

    /// Hands out every projected document.
    pub fn documents(
        &self,
        each: &mut dyn FnMut(Result<KeptDocument, UnreadableDocument>),
    ) -> Result<(), VerifyError> {
        let mut after = (String::new(), String::new());
        loop {
            let page = self.rows.documents(&after)?;
            after = match page.last() {
                None => return Ok(()),
                Some(Ok(last)) => (last.projection.clone(), last.entity.clone()),
                Some(Err(last)) => (last.projection.clone(), last.entity.clone()),
            };
            page.into_iter().for_each(&mut *each);
        }
    }

    /// Reads slice after slice, up to the last place.
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
