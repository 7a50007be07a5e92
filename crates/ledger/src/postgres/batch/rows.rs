//! The rows of a batch, collected column by column and written in one round trip.

use admit_core::{Code, Digest, Door, Event, Key, Millis, Principal, RefusedSubmission, Seq};
use bytes::Bytes;

use super::super::conn::{Conn, Param, Query, Result, big, big_opt};
use super::super::{nul_escape, sql};

/// Maximum bytes of bodies in one statement, unless one alone is larger.
const STATEMENT_BYTES: usize = 8 * 1024 * 1024;

/// Rows to write.
#[derive(Default)]
pub(super) struct BatchRows {
    admissions: AdmissionArrays,
    bodies: Vec<(i64, Bytes)>,
    sightings: Sightings,
    claims: Vec<(Key, i64)>,
}

/// The columns of `admission`.
#[derive(Default)]
struct AdmissionArrays {
    seqs: Vec<i64>,
    doors: Vec<Door>,
    principals: Vec<Principal>,
    verdicts: Vec<&'static str>,
    keys: Vec<Option<Key>>,
    digests: Vec<Digest>,
    received_ats: Vec<i64>,
    attempts: Vec<Option<i64>>,
    firsts: Vec<Option<i64>>,
    codes: Vec<Option<&'static str>>,
    messages: Vec<Option<String>>,
    facts: Vec<String>,
    happened_ats: Vec<Option<i64>>,
}

/// The columns of `sighting`.
#[derive(Default)]
struct Sightings {
    seqs: Vec<i64>,
    admissions: Vec<i64>,
    received_ats: Vec<i64>,
    attempts: Vec<Option<i64>>,
    others: Vec<Option<i64>>,
}

impl BatchRows {
    pub(super) fn event(
        &mut self,
        seq: Seq,
        event: &Event,
        verdict: &'static str,
        first: Option<Seq>,
        reason: Option<(Code, &str)>,
        facts: String,
    ) {
        let rows = &mut self.admissions;
        rows.seqs.push(big(seq.0));
        rows.doors.push(event.door.clone());
        rows.principals.push(event.principal.clone());
        rows.verdicts.push(verdict);
        rows.keys.push(Some(event.key));
        rows.digests.push(event.digest);
        rows.received_ats.push(event.received_at.0);
        rows.attempts.push(event.attempt.map(i64::from));
        rows.firsts.push(first.map(|first| big(first.0)));
        rows.codes.push(reason.map(|(code, _)| code.as_str()));
        rows.messages.push(reason.map(|(_, message)| message.to_owned()));
        rows.facts.push(nul_escape::escape_owned(facts));
        rows.happened_ats.push(event.happened_at.map(|at| at.0));
        self.bodies.push((big(seq.0), event.body.clone()));
    }

    pub(super) fn refused(
        &mut self,
        seq: Seq,
        refused: &RefusedSubmission,
        digest: Digest,
        facts: String,
    ) {
        let rows = &mut self.admissions;
        rows.seqs.push(big(seq.0));
        rows.doors.push(refused.door.clone());
        rows.principals.push(refused.principal.clone());
        rows.verdicts.push("refused");
        rows.keys.push(None);
        rows.digests.push(digest);
        rows.received_ats.push(refused.received_at.0);
        rows.attempts.push(refused.attempt.map(i64::from));
        rows.firsts.push(None);
        rows.codes.push(Some(refused.code.as_str()));
        rows.messages.push(Some(nul_escape::escape(&refused.message).into_owned()));
        rows.facts.push(nul_escape::escape_owned(facts));
        rows.happened_ats.push(None);
        self.bodies.push((big(seq.0), refused.body.clone()));
    }

    pub(super) fn sighting(
        &mut self,
        seq: Seq,
        admission: Seq,
        at: Millis,
        attempt: Option<u32>,
        other: Option<Seq>,
    ) {
        let rows = &mut self.sightings;
        rows.seqs.push(big(seq.0));
        rows.admissions.push(big(admission.0));
        rows.received_ats.push(at.0);
        rows.attempts.push(attempt.map(i64::from));
        rows.others.push(big_opt(other.map(|other| other.0)));
    }

    pub(super) fn claim(&mut self, key: Key, seq: Seq) {
        self.claims.push((key, big(seq.0)));
    }

    /// Number of claimed keys.
    pub(super) fn claims(&self) -> usize {
        self.claims.len()
    }

    /// Writes the rows, and `more` after them, in one round trip. Returns how many keys were free.
    pub(super) fn flush(&mut self, conn: &Conn, epoch: u64, more: Vec<Query<'_>>) -> Result<usize> {
        // Neighbours in the index are inserted together.
        self.claims.sort_unstable();
        let keys: Vec<&[u8]> = self.claims.iter().map(|(key, _)| &key.as_bytes()[..]).collect();
        let places: Vec<i64> = self.claims.iter().map(|(_, seq)| *seq).collect();
        let admissions = AdmissionColumns::of(&self.admissions);
        let bodies = chunks(&self.bodies);
        let epoch = big(epoch);
        let mut queries = Vec::new();
        if !keys.is_empty() {
            queries.push(Query::new(sql!("keys_claim"), vec![&keys, &places]));
        }
        if !admissions.seqs.is_empty() {
            queries.push(Query::new(sql!("insert_admissions"), admissions.params(&epoch)));
        }
        for (seqs, bytes) in &bodies {
            queries.push(Query::new(sql!("insert_bodies"), vec![seqs, bytes]));
        }
        let seen = &self.sightings;
        if !seen.seqs.is_empty() {
            let columns: Vec<Param<'_>> = vec![
                &seen.seqs,
                &seen.admissions,
                &seen.received_ats,
                &seen.attempts,
                &seen.others,
            ];
            queries.push(Query::new(sql!("insert_sightings"), columns));
        }
        queries.extend(more);
        if queries.is_empty() {
            return Ok(0);
        }
        let counts = conn.execute_all(&queries)?;
        let claimed = if keys.is_empty() { 0 } else { counts[0] };
        Ok(usize::try_from(claimed).unwrap_or(usize::MAX))
    }
}

/// The columns of `admission` as statement parameters.
struct AdmissionColumns<'r> {
    seqs: &'r Vec<i64>,
    doors: Vec<&'r str>,
    principals: Vec<String>,
    verdicts: &'r Vec<&'static str>,
    keys: Vec<Option<&'r [u8]>>,
    digests: Vec<&'r [u8]>,
    rows: &'r AdmissionArrays,
}

impl<'r> AdmissionColumns<'r> {
    fn of(rows: &'r AdmissionArrays) -> Self {
        let kept = |name: &Principal| nul_escape::escape(name.as_str()).into_owned();
        Self {
            seqs: &rows.seqs,
            doors: rows.doors.iter().map(Door::as_str).collect(),
            principals: rows.principals.iter().map(kept).collect(),
            verdicts: &rows.verdicts,
            keys: rows.keys.iter().map(|key| key.as_ref().map(|key| &key.as_bytes()[..])).collect(),
            digests: rows.digests.iter().map(|digest| &digest.as_bytes()[..]).collect(),
            rows,
        }
    }

    fn params<'p>(&'p self, epoch: &'p i64) -> Vec<Param<'p>> {
        vec![
            epoch,
            self.seqs,
            &self.doors,
            &self.principals,
            self.verdicts,
            &self.keys,
            &self.digests,
            &self.rows.received_ats,
            &self.rows.attempts,
            &self.rows.firsts,
            &self.rows.codes,
            &self.rows.messages,
            &self.rows.facts,
            &self.rows.happened_ats,
        ]
    }
}

/// Splits bodies into statements of a bounded size.
fn chunks(bodies: &[(i64, Bytes)]) -> Vec<(Vec<i64>, Vec<&[u8]>)> {
    let mut chunks: Vec<(Vec<i64>, Vec<&[u8]>)> = Vec::new();
    let mut bytes = usize::MAX;
    for (seq, body) in bodies {
        if bytes.saturating_add(body.len()) > STATEMENT_BYTES {
            chunks.push((Vec::new(), Vec::new()));
            bytes = 0;
        }
        bytes += body.len();
        if let Some((seqs, rows)) = chunks.last_mut() {
            seqs.push(*seq);
            rows.push(&body[..]);
        }
    }
    chunks
}
