//! Reads rows to be verified.

use admit_core::{Digest, Key, Millis, Seq};

use crate::db::{Columns, InvalidValue};
use crate::tables::inbox;
use crate::verify::{
    AdmissionRow, ProjectedDocument, SightingRow, StoredAdmission, UnreadableDocument,
};
use crate::verify_inbox::{InboxClaim, InboxOrigin, InboxRecord};

/// The columns of an admission, read as a whole or not at all.
pub(super) struct AdmissionColumns {
    door: String,
    principal: String,
    verdict: String,
    pub(super) key: Option<Key>,
    digest: Digest,
    received_at: Millis,
    attempt: Option<u32>,
    facts: String,
    body: Option<Vec<u8>>,
    first: Option<Seq>,
    first_key: Option<Key>,
    first_verdict: Option<String>,
    code: Option<String>,
}

impl AdmissionColumns {
    pub(super) fn read<E>(row: &dyn Columns<Error = E>) -> Result<Self, E>
    where
        E: From<InvalidValue>,
    {
        let key = |column: &str| row.bytes32_opt(column).map(|bytes| bytes.map(Key::from_bytes));
        Ok(Self {
            door: row.text("door")?,
            principal: row.text("principal")?,
            verdict: row.text("verdict")?,
            key: key("key")?,
            digest: Digest::from_bytes(row.bytes32("digest")?),
            received_at: row.millis("received_at")?,
            attempt: row.small_opt("attempt")?,
            facts: row.text("facts")?,
            body: row.bytes_opt("body")?,
            first: row.seq_opt("first")?,
            first_key: key("first_key")?,
            first_verdict: row.text_opt("first_verdict")?,
            code: row.text_opt("code")?,
        })
    }

    /// The admission, without the claim of its key.
    pub(super) fn admission(&self, seq: Seq) -> AdmissionRow<'_> {
        AdmissionRow {
            kept: StoredAdmission {
                seq,
                door: &self.door,
                principal: &self.principal,
                verdict: &self.verdict,
                key: self.key,
                digest: self.digest,
                received_at: self.received_at,
                attempt: self.attempt,
                facts: &self.facts,
                body: self.body.as_deref(),
            },
            first: self.first,
            first_key: self.first_key,
            first_verdict: self.first_verdict.as_deref(),
            code: self.code.as_deref(),
            claimed_by: None,
            logged_key: None,
        }
    }
}

/// The columns of a sighting, read as a whole or not at all.
pub(super) struct SightingColumns {
    admission: Seq,
    verdict: Option<String>,
    other: Option<Seq>,
    other_verdict: Option<String>,
    other_first: Option<Seq>,
    has_twin: bool,
}

impl SightingColumns {
    pub(super) fn read<E>(row: &dyn Columns<Error = E>) -> Result<Self, E>
    where
        E: From<InvalidValue>,
    {
        Ok(Self {
            admission: row.seq("admission")?,
            verdict: row.text_opt("verdict")?,
            other: row.seq_opt("other")?,
            other_verdict: row.text_opt("other_verdict")?,
            other_first: row.seq_opt("other_first")?,
            has_twin: row.flag("has_twin")?,
        })
    }

    pub(super) fn sighting(&self, seq: Seq) -> SightingRow<'_> {
        SightingRow {
            seq,
            admission: self.admission,
            verdict: self.verdict.as_deref(),
            other: self.other,
            other_verdict: self.other_verdict.as_deref(),
            other_first: self.other_first,
            has_twin: self.has_twin,
        }
    }
}

pub(super) fn inbox_record<R: Columns>(row: &R) -> Result<InboxRecord, R::Error> {
    let admission = match row.flag("is_ours")? {
        true => Some(InboxOrigin {
            event_id: inbox::event_id(&row.text("facts")?),
            received_at: row.millis("admitted_at")?,
        }),
        false => None,
    };
    let claim = match row.flag("is_claimed")? {
        true => Some(InboxClaim {
            is_held: row.flag("is_held")?,
            expires_at: row.millis("expires_at")?,
        }),
        false => None,
    };
    let finished = match row.text_opt("finished")? {
        Some(word) => Some((word, row.millis("finished_at")?)),
        None => None,
    };
    Ok(InboxRecord {
        place: row.int("seq")?,
        event_id: row.text("event_id")?,
        status: row.text("status")?,
        received_at: row.text("received_at")?,
        last_updated_at: row.text("last_updated_at")?,
        admission,
        claim,
        finished,
        was_claimed: row.flag("was_out")?,
    })
}

/// A projected document, or why it cannot be read.
pub(super) fn document<R: Columns<Error: std::fmt::Display>>(
    row: &R,
) -> Result<Result<ProjectedDocument, UnreadableDocument>, R::Error> {
    let seq = row.seq("seq")?;
    let read = || {
        let (projection, entity) = (row.text("projection")?, row.text("entity")?);
        Ok(ProjectedDocument { projection, entity, seq, text: row.text("text")? })
    };
    let read: Result<_, R::Error> = read();
    match read {
        Ok(document) => Ok(Ok(document)),
        Err(error) => {
            let (projection, entity) = (row.text_lossy("projection")?, row.text_lossy("entity")?);
            Ok(Err(UnreadableDocument { projection, entity, seq, why: error.to_string() }))
        }
    }
}
