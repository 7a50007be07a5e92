//! The rows of a batch, collected column by column.

use admit_core::{Code, Digest, Door, Event, Key, Millis, Principal, RefusedSubmission, Seq};
use bytes::Bytes;

use super::super::conn::{OwnedParam, OwnedQuery, big, big_opt};
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

    /// The statements that write the rows.
    pub(super) fn writes(&mut self, epoch: u64) -> Vec<OwnedQuery<'_>> {
        // Neighbours in the index are inserted together.
        self.claims.sort_unstable();
        let mut queries = Vec::with_capacity(4);
        if !self.claims.is_empty() {
            let keys: Vec<&[u8]> = self.claims.iter().map(|(key, _)| &key.as_bytes()[..]).collect();
            let seqs: Vec<i64> = self.claims.iter().map(|(_, seq)| *seq).collect();
            queries.push(OwnedQuery::new(sql!("keys_claim"), vec![Box::new(keys), Box::new(seqs)]));
        }
        if !self.admissions.seqs.is_empty() {
            queries.push(self.admissions.write(big(epoch)));
        }
        for (seqs, bytes) in chunks(&self.bodies) {
            queries.push(OwnedQuery::new(
                sql!("insert_bodies"),
                vec![Box::new(seqs), Box::new(bytes)],
            ));
        }
        let Sightings { seqs, admissions, received_ats, attempts, others } = &self.sightings;
        if !seqs.is_empty() {
            let columns: Vec<OwnedParam<'_>> = vec![
                Box::new(seqs),
                Box::new(admissions),
                Box::new(received_ats),
                Box::new(attempts),
                Box::new(others),
            ];
            queries.push(OwnedQuery::new(sql!("insert_sightings"), columns));
        }
        queries
    }
}

impl AdmissionArrays {
    /// The statement that writes the rows of `epoch`.
    fn write(&self, epoch: i64) -> OwnedQuery<'_> {
        let doors: Vec<&str> = self.doors.iter().map(Door::as_str).collect();
        let escaped = |name: &Principal| nul_escape::escape(name.as_str()).into_owned();
        let principals: Vec<String> = self.principals.iter().map(escaped).collect();
        let keys: Vec<Option<&[u8]>> =
            self.keys.iter().map(|key| key.as_ref().map(|key| &key.as_bytes()[..])).collect();
        let digests: Vec<&[u8]> =
            self.digests.iter().map(|digest| &digest.as_bytes()[..]).collect();
        let columns: Vec<OwnedParam<'_>> = vec![
            Box::new(epoch),
            Box::new(&self.seqs),
            Box::new(doors),
            Box::new(principals),
            Box::new(&self.verdicts),
            Box::new(keys),
            Box::new(digests),
            Box::new(&self.received_ats),
            Box::new(&self.attempts),
            Box::new(&self.firsts),
            Box::new(&self.codes),
            Box::new(&self.messages),
            Box::new(&self.facts),
            Box::new(&self.happened_ats),
        ];
        OwnedQuery::new(sql!("insert_admissions"), columns)
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
