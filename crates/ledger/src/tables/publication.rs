//! Publications of records: their tables inside a transaction, and their ports. The rules are in
//! [`crate::common::records::publications`].
//!
//! A publication in flight is owned by the epoch that began it. Only once that process is known to be dead,
//! on PostgreSQL by its lease, is it marked as ambiguous; it is never repeated.

use admit_core::effect::{EffectLogEntry, IllegalStep};
use admit_core::entity::ProcessingState;
use admit_core::{Digest, Fault, Millis, Seq};

use super::effect::{history_entry, stored_state};
use super::record::{PlannedCall, RecordTables, RowTables, planned};
use crate::common::records::Write;
use crate::common::records::publications::{
    Performer, PublicationKey, PublicationProgress, PublicationTables, UnsentEvents, begin,
    recover_lost, take,
};
use crate::db::{
    Call, Columns, Db, Operation, Param, ReadBackend, Statement, Transaction, WriteBackend, params,
    statements,
};
use crate::port::BoxFuture;
use crate::publications::{
    BusEnd, Offer, Publication, PublicationCounts, PublicationReader, PublicationStep,
    Publications, UnpublishedRecord,
};
use crate::rules::{HistoryLine, bus_end_name, evidence_text};

statements! {
    shared AMBIGUOUS "publications_ambiguous";
    shared COUNTS "publication_counts";
    shared GET "publication_get";
    shared HISTORY "publication_history";
    each INSERT "publication_insert";
    shared LIST "publications";
    shared META_MAX "meta_max";
    each LOST "publications_lost";
    shared NAMED "publication_named";
    shared NOTE "publication_note";
    shared OF_RECORD "publications_of";
    shared OF_REVISION "publication_of";
    shared RENEW "publication_renew";
    shared UPDATE "publication_update";
    shared RECORD_EVENTS_ENRICHED "record_events_enriched";
    shared RECORD_EVENTS_UNSENT "record_events_unsent";
    shared RECORD_OFFER "record_offer";
    shared RECORD_RELEASE "record_release";
    shared RECORD_SENT "record_sent";
    each RECORD_STANDINGS "record_standings";
    shared RECORD_UNOFFERED "record_unoffered";
    shared RECORD_UNOFFERED_COUNT "record_unoffered_count";
}

/// Maximum publications of one record to list.
const SHOWN_MAX: i64 = 100;

/// Maximum publications recovered in one commit: everything else waits for it.
const LOST_MAX: usize = 256;

impl<B: WriteBackend<Db: RowTables>> Publications for B {
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Option<Publication>>, Fault>> {
        self.apply(BeginPublications { batch, at })
    }

    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Publication, IllegalStep>>, Fault>> {
        self.apply(Steps { batch, at })
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        Box::pin(async move {
            let of_door = door.clone();
            let mut is_over = self.read(move |db, _| lost(db, &of_door, 1)).await?.is_empty();
            let mut recovered = Vec::new();
            while !is_over {
                let part = self.apply(RecoverPublications { door: door.clone(), at }).await?;
                is_over = part.len() < LOST_MAX;
                recovered.extend(part);
            }
            Ok(recovered)
        })
    }
}

impl<B: ReadBackend> PublicationReader for B {
    fn unoffered(
        &self,
        door: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<UnpublishedRecord>, Fault>> {
        self.read(move |db, _| {
            let waiting = db.query(&RECORD_UNOFFERED, params![&door, rows_max])?;
            waiting.iter().map(unpublished).collect()
        })
    }

    fn publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        self.read(move |db, _| publications(&db.query(&LIST, params![&door, after, rows_max])?))
    }

    fn publications_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        self.read(move |db, _| {
            publications(&db.query(&OF_RECORD, params![&record_id, &door, SHOWN_MAX])?)
        })
    }

    fn ambiguous_publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        self.read(move |db, _| {
            publications(&db.query(&AMBIGUOUS, params![&door, after, rows_max])?)
        })
    }

    fn publication(
        &self,
        door: String,
        dedupe_key: String,
    ) -> BoxFuture<'_, Result<Option<Publication>, Fault>> {
        self.read(move |db, _| {
            let row = db.query_opt(&NAMED, params![&door, &dedupe_key])?;
            row.as_ref().map(publication).transpose()
        })
    }

    fn publication_history(&self, n: u64) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>> {
        self.read(move |db, _| db.query(&HISTORY, params![n])?.iter().map(history_entry).collect())
    }

    fn publication_counts(&self, door: String) -> BoxFuture<'_, Result<PublicationCounts, Fault>> {
        self.read(move |db, _| db.snapshot(|| counts(db, &door)))
    }
}

/// Begins publications.
struct BeginPublications {
    batch: Vec<Offer>,
    at: Millis,
}

impl<D: RowTables> Operation<D> for BeginPublications {
    type Output = Vec<Option<Publication>>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        let mut tables = RecordTables::new(tx.db);
        self.batch.iter().map(|offer| begin(&mut tables, tx.epoch, offer, self.at)).collect()
    }
}

/// Applies steps.
struct Steps {
    batch: Vec<PublicationStep>,
    at: Millis,
}

impl<D: RowTables> Operation<D> for Steps {
    type Output = Vec<Result<Publication, IllegalStep>>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        let mut tables = RecordTables::new(tx.db);
        let performer = Performer { epoch: tx.epoch, own: tx.own_epochs };
        self.batch.iter().map(|step| take(&mut tables, performer, step, self.at)).collect()
    }
}

/// Recovers publications of dead processes.
struct RecoverPublications {
    door: String,
    at: Millis,
}

impl<D: RowTables> Operation<D> for RecoverPublications {
    type Output = Vec<Publication>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        if !tx.may_expire_gates {
            return Ok(Vec::new());
        }
        let lost = lost(tx.db, &self.door, LOST_MAX)?;
        recover_lost(&mut RecordTables::new(tx.db), tx.epoch, lost, self.at)
    }
}

/// Returns publications that dead processes had in flight.
fn lost<D: Db>(db: &D, door: &str, rows_max: usize) -> Result<Vec<Publication>, D::Error> {
    publications(&db.query(&LOST, params![door, rows_max])?)
}

fn counts<D: Db>(db: &D, door: &str) -> Result<PublicationCounts, D::Error> {
    let states = db.query(&COUNTS, params![door])?;
    let states = states.iter().map(|row| Ok((row.text("state")?, row.num("publications")?)));
    let states = states.collect::<Result<_, D::Error>>()?;
    let waiting = db.query_one(&RECORD_UNOFFERED_COUNT, params![door])?;
    Ok(PublicationCounts {
        states,
        waiting: waiting.num("waiting")?,
        waiting_since: waiting.millis_opt("since")?,
    })
}

fn unpublished<R: Columns>(row: &R) -> Result<UnpublishedRecord, R::Error> {
    Ok(UnpublishedRecord {
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        changed_at: row.millis("changed_at")?,
        since: row.millis("unoffered_at")?,
    })
}

fn publications<R: Columns>(rows: &[R]) -> Result<Vec<Publication>, R::Error> {
    rows.iter().map(publication).collect()
}

fn publication<R: Columns>(row: &R) -> Result<Publication, R::Error> {
    Ok(Publication {
        n: row.num("n")?,
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        topic: row.text("topic")?,
        partition_key: row.text("partition_key")?,
        dedupe_key: row.text("dedupe_key")?,
        digest: Digest::from_bytes(row.bytes32("digest")?),
        state: stored_state(row)?,
        reason: row.text_opt("reason_code")?,
        begun_at: row.millis("begun_at")?,
        changed_at: row.millis("changed_at")?,
    })
}

fn progress<R: Columns>(row: &R) -> Result<PublicationProgress, R::Error> {
    Ok(PublicationProgress {
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        offered: row.num("offered")?,
        state: row.text("state")?,
    })
}

impl<D: RowTables> PublicationTables for RecordTables<'_, D> {
    fn publication_progress(&mut self, ids: &[&str]) -> Result<Vec<PublicationProgress>, D::Error> {
        self.write_to(&[], ids)
    }

    fn write_to(
        &mut self,
        writes: &[Write<'_>],
        ids: &[&str],
    ) -> Result<Vec<PublicationProgress>, D::Error> {
        let planned = planned(writes);
        let mut calls = self.release_savepoint();
        calls.extend(planned.iter().map(PlannedCall::call));
        let ids = [Param::from(ids)];
        calls.push(Call::new(&RECORD_STANDINGS, &ids));
        let results = self.db.query_all(&calls)?;
        results.iter().flatten().map(progress).collect()
    }

    fn unsent(&mut self, record_id: &str, which: UnsentEvents) -> Result<Vec<Seq>, D::Error> {
        let statement: &'static Statement = match which {
            UnsentEvents::New => &RECORD_EVENTS_ENRICHED,
            UnsentEvents::All => &RECORD_EVENTS_UNSENT,
        };
        self.db.query(statement, params![record_id])?.iter().map(|row| row.seq("seq")).collect()
    }

    fn publication(&mut self, which: PublicationKey<'_>) -> Result<Option<Publication>, D::Error> {
        let row = match which {
            PublicationKey::Place(n) => self.db.query_opt(&GET, params![n])?,
            PublicationKey::Revision(record_id, revision) => {
                self.db.query_opt(&OF_REVISION, params![record_id, revision])?
            }
        };
        row.as_ref().map(publication).transpose()
    }

    fn members(&mut self, n: u64) -> Result<String, D::Error> {
        self.db.query_one(&GET, params![n])?.text("members")
    }

    fn claim_revision(&mut self, offer: &Offer) -> Result<bool, D::Error> {
        let Offer { door, record_id, revision, .. } = offer;
        Ok(self.db.execute(&RECORD_OFFER, params![record_id, door, *revision])? > 0)
    }

    fn release_revision(
        &mut self,
        record_id: &str,
        revision: u64,
        at: Millis,
    ) -> Result<(), D::Error> {
        self.db.execute(&RECORD_RELEASE, params![record_id, revision, at]).map(drop)
    }

    fn set_sent(
        &mut self,
        record_id: &str,
        revision: u64,
        state: ProcessingState,
    ) -> Result<(), D::Error> {
        self.db.execute(&RECORD_SENT, params![record_id, revision, state.word()]).map(drop)
    }

    fn insert_publication(
        &mut self,
        door: &str,
        new: &Publication,
        members: &str,
    ) -> Result<u64, D::Error> {
        let Publication { record_id, revision, topic, partition_key, dedupe_key, .. } = new;
        let state = &new.state;
        let params = params![
            door,
            record_id,
            *revision,
            topic,
            partition_key,
            dedupe_key,
            new.digest.as_bytes(),
            members,
            state.word(),
            state.attempt(),
            state.epoch(),
            new.begun_at,
        ];
        self.db.query_one(&INSERT, params)?.num("n")
    }

    fn renewed(&mut self, again: &Publication, members: &str) -> Result<(), D::Error> {
        let Publication { n, topic, digest, state, begun_at, .. } = again;
        let (word, attempt, epoch) = (state.word(), state.attempt(), state.epoch());
        let params =
            params![*n, topic, digest.as_bytes(), members, word, attempt, epoch, *begun_at];
        self.db.execute(&RENEW, params).map(drop)
    }

    fn update_publication(&mut self, publication: &Publication) -> Result<(), D::Error> {
        let Publication { n, state, reason, changed_at, .. } = publication;
        let evidence = state.evidence().map(evidence_text);
        let (word, attempt, epoch) = (state.word(), state.attempt(), state.epoch());
        let params = params![*n, word, attempt, epoch, &evidence, reason, *changed_at];
        self.db.execute(&UPDATE, params).map(drop)
    }

    fn raise_bus_end(&mut self, end: &BusEnd) -> Result<(), D::Error> {
        let name = bus_end_name(&end.topic);
        self.db.execute(&META_MAX, params![&name, end.messages]).map(drop)
    }

    fn note(&mut self, n: u64, epoch: u64, line: &HistoryLine<'_>) -> Result<(), D::Error> {
        let HistoryLine { at, attempt, what, by, evidence } = line;
        let who = by.map(|by| by.who.as_str());
        let why = by.and_then(|by| by.why.as_deref());
        let evidence = evidence.map(evidence_text);
        self.db
            .execute(&NOTE, params![n, *at, *attempt, *what, epoch, who, why, &evidence])
            .map(drop)
    }
}
