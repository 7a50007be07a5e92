//! Storage of publications in SQLite. The rules are in [`crate::common::records::publications`].

use admit_core::effect::IllegalStep;
use admit_core::entity::ProcessingState;
use admit_core::{Millis, Seq};
use rusqlite::OptionalExtension as _;

use super::RecordTables;
use super::published::publication_row;
use crate::common::records::publications::{
    Performer, PublicationKey, PublicationProgress, PublicationTables, UnsentEvents, begin,
    recover_lost, take,
};
use crate::common::records::{Tables as _, Write};
use crate::publications::{BusEnd, Offer, Publication, PublicationStep};
use crate::rules::{HistoryLine, bus_end_name, evidence_text};
use crate::sqlite::effects;
use crate::sqlite::queries;
use crate::sqlite::write_op::{Tx, WriteOp};

/// Begins publications.
pub(in crate::sqlite) struct BeginPublications {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<Offer>,
    pub(in crate::sqlite) at: Millis,
}

impl WriteOp for BeginPublications {
    type Output = Vec<Option<Publication>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let mut tables = RecordTables(tx.conn);
        self.batch.iter().map(|offer| begin(&mut tables, self.epoch, offer, self.at)).collect()
    }
}

/// Applies steps.
pub(in crate::sqlite) struct Steps {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<PublicationStep>,
    pub(in crate::sqlite) at: Millis,
}

impl WriteOp for Steps {
    type Output = Vec<Result<Publication, IllegalStep>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let mut tables = RecordTables(tx.conn);
        let performer = Performer { epoch: self.epoch, own: &[self.epoch] };
        self.batch.iter().map(|step| take(&mut tables, performer, step, self.at)).collect()
    }
}

/// Recovers publications of earlier processes.
pub(in crate::sqlite) struct RecoverPublications {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) door: String,
    pub(in crate::sqlite) at: Millis,
}

impl WriteOp for RecoverPublications {
    type Output = Vec<Publication>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let left: Vec<Publication> = tx
            .conn
            .prepare_cached(queries::PUBLICATIONS_LOST)?
            .query_map((&self.door, self.epoch), publication_row)?
            .collect::<rusqlite::Result<_>>()?;
        recover_lost(&mut RecordTables(tx.conn), self.epoch, left, self.at)
    }
}

impl PublicationTables for RecordTables<'_> {
    fn publication_progress(&mut self, ids: &[&str]) -> rusqlite::Result<Vec<PublicationProgress>> {
        let mut get = self.0.prepare_cached(queries::RECORD_STANDING)?;
        let mut publication_progress = Vec::with_capacity(ids.len());
        for id in ids {
            let way = get.query_row([id], |row| {
                let record_id = (*id).to_owned();
                let (revision, offered, state) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(PublicationProgress { record_id, revision, offered, state })
            });
            publication_progress.extend(way.optional()?);
        }
        Ok(publication_progress)
    }

    fn write_to(
        &mut self,
        writes: &[Write<'_>],
        ids: &[&str],
    ) -> rusqlite::Result<Vec<PublicationProgress>> {
        self.write(writes)?;
        self.publication_progress(ids)
    }

    fn unsent(&mut self, record_id: &str, which: UnsentEvents) -> rusqlite::Result<Vec<Seq>> {
        let query = match which {
            UnsentEvents::New => queries::RECORD_EVENTS_ENRICHED,
            UnsentEvents::All => queries::RECORD_EVENTS_UNSENT,
        };
        self.0.prepare_cached(query)?.query_map([record_id], |row| row.get(0).map(Seq))?.collect()
    }

    fn publication(&mut self, which: PublicationKey<'_>) -> rusqlite::Result<Option<Publication>> {
        match which {
            PublicationKey::Place(n) => self
                .0
                .prepare_cached(queries::PUBLICATION_GET)?
                .query_row([n], publication_row)
                .optional(),
            PublicationKey::Revision(record_id, revision) => self
                .0
                .prepare_cached(queries::PUBLICATION_OF)?
                .query_row((record_id, revision), publication_row)
                .optional(),
        }
    }

    fn members(&mut self, n: u64) -> rusqlite::Result<String> {
        let mut get = self.0.prepare_cached(queries::PUBLICATION_GET)?;
        get.query_row([n], |row| row.get("members"))
    }

    fn claim_revision(&mut self, offer: &Offer) -> rusqlite::Result<bool> {
        let row = (&offer.record_id, &offer.door, offer.revision);
        Ok(self.0.prepare_cached(queries::RECORD_OFFER)?.execute(row)? > 0)
    }

    fn release_revision(
        &mut self,
        record_id: &str,
        revision: u64,
        at: Millis,
    ) -> rusqlite::Result<()> {
        let row = (record_id, revision, at.0);
        self.0.prepare_cached(queries::RECORD_RELEASE)?.execute(row)?;
        Ok(())
    }

    fn set_sent(
        &mut self,
        record_id: &str,
        revision: u64,
        state: ProcessingState,
    ) -> rusqlite::Result<()> {
        let row = (record_id, revision, state.word());
        self.0.prepare_cached(queries::RECORD_SENT)?.execute(row)?;
        Ok(())
    }

    fn insert_publication(
        &mut self,
        door: &str,
        new: &Publication,
        members: &str,
    ) -> rusqlite::Result<u64> {
        let state = &new.state;
        self.0.prepare_cached(queries::PUBLICATION_INSERT)?.query_row(
            (
                door,
                &new.record_id,
                new.revision,
                &new.topic,
                &new.partition_key,
                &new.dedupe_key,
                new.digest.as_bytes(),
                members,
                state.word(),
                state.attempt(),
                state.epoch(),
                new.begun_at.0,
            ),
            |row| row.get(0),
        )
    }

    fn renewed(&mut self, again: &Publication, members: &str) -> rusqlite::Result<()> {
        let state = &again.state;
        self.0.prepare_cached(queries::PUBLICATION_RENEW)?.execute((
            again.n,
            &again.topic,
            again.digest.as_bytes(),
            members,
            state.word(),
            state.attempt(),
            state.epoch(),
            again.begun_at.0,
        ))?;
        Ok(())
    }

    fn update_publication(&mut self, publication: &Publication) -> rusqlite::Result<()> {
        let state = &publication.state;
        self.0.prepare_cached(queries::PUBLICATION_UPDATE)?.execute((
            publication.n,
            state.word(),
            state.attempt(),
            state.epoch(),
            state.evidence().map(evidence_text),
            &publication.reason,
            publication.changed_at.0,
        ))?;
        Ok(())
    }

    fn raise_bus_end(&mut self, end: &BusEnd) -> rusqlite::Result<()> {
        let mut raise = self.0.prepare_cached(queries::META_MAX)?;
        raise.execute((bus_end_name(&end.topic), end.messages)).map(drop)
    }

    fn note(&mut self, n: u64, epoch: u64, line: &HistoryLine<'_>) -> rusqlite::Result<()> {
        effects::note(self.0, queries::PUBLICATION_NOTE, epoch, n, line)
    }
}
