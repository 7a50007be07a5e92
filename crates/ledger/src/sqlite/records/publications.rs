//! The tables of publications in SQLite, and the writer's work with them. What is done with them
//! stands in [`crate::common::records::publications`].

use admit_core::effect::Illegal;
use admit_core::record::State;
use admit_core::{Millis, Seq};
use rusqlite::OptionalExtension as _;

use super::RecordTables;
use super::published::publication_row;
use crate::common::records::publications::{
    Performer, PublicationTables, Unsent, Way, Which, begin, lose, take,
};
use crate::common::records::{Tables as _, Write};
use crate::desk::{Line, evidence_text};
use crate::publications::{Offer, Publication, PublicationStep};
use crate::sqlite::effects;
use crate::sqlite::queries;
use crate::sqlite::task::{Tx, Work};

/// Beginnings, for the writer.
pub(in crate::sqlite) struct Begin {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<Offer>,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Begin {
    type Answer = Vec<Option<Publication>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut tables = RecordTables(tx.conn);
        self.batch.iter().map(|offer| begin(&mut tables, self.epoch, offer, self.at)).collect()
    }
}

/// Steps, for the writer.
pub(in crate::sqlite) struct Steps {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) batch: Vec<PublicationStep>,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Steps {
    type Answer = Vec<Result<Publication, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut tables = RecordTables(tx.conn);
        let performer = Performer { epoch: self.epoch, own: &[self.epoch] };
        self.batch.iter().map(|step| take(&mut tables, performer, step, self.at)).collect()
    }
}

/// Looking after what earlier processes left, for the writer.
pub(in crate::sqlite) struct Recover {
    pub(in crate::sqlite) epoch: u64,
    pub(in crate::sqlite) door: String,
    pub(in crate::sqlite) at: Millis,
}

impl Work for Recover {
    type Answer = Vec<Publication>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let left: Vec<Publication> = tx
            .conn
            .prepare_cached(queries::PUBLICATIONS_LOST)?
            .query_map((&self.door, self.epoch), publication_row)?
            .collect::<rusqlite::Result<_>>()?;
        lose(&mut RecordTables(tx.conn), self.epoch, left, self.at)
    }
}

impl PublicationTables for RecordTables<'_> {
    fn ways(&mut self, ids: &[&str]) -> rusqlite::Result<Vec<Way>> {
        let mut get = self.0.prepare_cached(queries::RECORD_STANDING)?;
        let mut ways = Vec::with_capacity(ids.len());
        for id in ids {
            let way = get.query_row([id], |row| {
                let record_id = (*id).to_owned();
                let (revision, offered, state) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Way { record_id, revision, offered, state })
            });
            ways.extend(way.optional()?);
        }
        Ok(ways)
    }

    fn write_to(&mut self, writes: &[Write<'_>], ids: &[&str]) -> rusqlite::Result<Vec<Way>> {
        self.write(writes)?;
        self.ways(ids)
    }

    fn unsent(&mut self, record_id: &str, which: Unsent) -> rusqlite::Result<Vec<Seq>> {
        let query = match which {
            Unsent::New => queries::RECORD_EVENTS_ENRICHED,
            Unsent::All => queries::RECORD_EVENTS_UNSENT,
        };
        self.0.prepare_cached(query)?.query_map([record_id], |row| row.get(0).map(Seq))?.collect()
    }

    fn publication(&mut self, which: Which<'_>) -> rusqlite::Result<Option<Publication>> {
        match which {
            Which::Place(n) => self
                .0
                .prepare_cached(queries::PUBLICATION_GET)?
                .query_row([n], publication_row)
                .optional(),
            Which::Revision(record_id, revision) => self
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

    fn take_revision(&mut self, offer: &Offer) -> rusqlite::Result<bool> {
        let row = (&offer.record_id, &offer.door, offer.revision);
        Ok(self.0.prepare_cached(queries::RECORD_OFFER)?.execute(row)? > 0)
    }

    fn give_back(&mut self, record_id: &str, revision: u64, at: Millis) -> rusqlite::Result<()> {
        let row = (record_id, revision, at.0);
        self.0.prepare_cached(queries::RECORD_RELEASE)?.execute(row)?;
        Ok(())
    }

    fn sent(&mut self, record_id: &str, revision: u64, state: State) -> rusqlite::Result<()> {
        let row = (record_id, revision, state.word());
        self.0.prepare_cached(queries::RECORD_SENT)?.execute(row)?;
        Ok(())
    }

    fn begun(&mut self, door: &str, new: &Publication, members: &str) -> rusqlite::Result<u64> {
        let standing = &new.standing;
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
                standing.word(),
                standing.attempt(),
                standing.epoch(),
                new.begun_at.0,
            ),
            |row| row.get(0),
        )
    }

    fn renewed(&mut self, again: &Publication, members: &str) -> rusqlite::Result<()> {
        let standing = &again.standing;
        self.0.prepare_cached(queries::PUBLICATION_RENEW)?.execute((
            again.n,
            &again.topic,
            again.digest.as_bytes(),
            members,
            standing.word(),
            standing.attempt(),
            standing.epoch(),
            again.begun_at.0,
        ))?;
        Ok(())
    }

    fn turned(&mut self, publication: &Publication) -> rusqlite::Result<()> {
        let standing = &publication.standing;
        self.0.prepare_cached(queries::PUBLICATION_UPDATE)?.execute((
            publication.n,
            standing.word(),
            standing.attempt(),
            standing.epoch(),
            standing.evidence().map(evidence_text),
            &publication.reason,
            publication.changed_at.0,
        ))?;
        Ok(())
    }

    fn note(&mut self, n: u64, epoch: u64, line: &Line<'_>) -> rusqlite::Result<()> {
        effects::note(self.0, queries::PUBLICATION_NOTE, epoch, n, line)
    }
}
