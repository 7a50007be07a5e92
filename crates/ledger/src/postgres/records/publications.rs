//! Storage of publications in PostgreSQL. The rules are in [`crate::common::records::publications`].
//!
//! A publication in flight is owned by the epoch that began it. Only once the lease of that epoch has ended
//! does another gate mark it as ambiguous; it is never repeated.

use admit_core::effect::IllegalStep;
use admit_core::entity::ProcessingState;
use admit_core::{Fault, Millis, Seq};
use tokio_postgres::Row;

use super::published::publication_row;
use super::write::statements;
use super::{RecordTables, Statement, kept_opt, param, queries};
use crate::common::records::Write;
use crate::common::records::publications::{
    Performer, PublicationKey, PublicationProgress, PublicationTables, UnsentEvents, begin,
    recover_lost, take,
};
use crate::port::BoxFuture;
use crate::postgres::conn::{Columns, Conn, Result, big, big_opt, rows};
use crate::postgres::nul_escape::escape;
use crate::postgres::write_op::{Tx, WriteOp};
use crate::postgres::{PostgresLedger, sql};
use crate::publications::{BusEnd, Offer, Publication, PublicationStep, Publications};
use crate::rules::{HistoryLine, bus_end_name, evidence_text};

/// Maximum publications recovered in one commit: everything else waits for it.
const LOST_MAX: usize = 256;

impl Publications for PostgresLedger {
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<Option<Publication>>, Fault>> {
        Box::pin(self.write(BeginPublications { batch, at }))
    }

    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<std::result::Result<Publication, IllegalStep>>, Fault>>
    {
        Box::pin(self.write(Steps { batch, at }))
    }

    /// Checks outside the writer first: usually there is nothing to recover.
    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<Publication>, Fault>> {
        Box::pin(async move {
            let of_door = door.clone();
            let left = self.readers.read(move |conn, _| left(conn, &of_door, 1)).await?;
            let mut lost = Vec::new();
            let mut is_over = left.is_empty();
            while !is_over {
                let part = self.write(RecoverPublications { door: door.clone(), at }).await?;
                is_over = part.len() < LOST_MAX;
                lost.extend(part);
            }
            Ok(lost)
        })
    }
}

/// Begins publications.
struct BeginPublications {
    batch: Vec<Offer>,
    at: Millis,
}

impl WriteOp for BeginPublications {
    type Output = Vec<Option<Publication>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        let mut tables = RecordTables::new(tx.conn);
        self.batch.iter().map(|offer| begin(&mut tables, tx.epoch, offer, self.at)).collect()
    }
}

/// Applies steps.
struct Steps {
    batch: Vec<PublicationStep>,
    at: Millis,
}

impl WriteOp for Steps {
    type Output = Vec<std::result::Result<Publication, IllegalStep>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        let mut tables = RecordTables::new(tx.conn);
        let performer = Performer { epoch: tx.epoch, own: tx.own };
        self.batch.iter().map(|step| take(&mut tables, performer, step, self.at)).collect()
    }
}

/// Recovers publications of gates whose leases have ended.
struct RecoverPublications {
    door: String,
    at: Millis,
}

impl WriteOp for RecoverPublications {
    type Output = Vec<Publication>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output> {
        if !tx.may_recover_others {
            return Ok(Vec::new());
        }
        let left = left(tx.conn, &self.door, LOST_MAX)?;
        recover_lost(&mut RecordTables::new(tx.conn), tx.epoch, left, self.at)
    }
}

fn way(row: &Row) -> Result<PublicationProgress> {
    Ok(PublicationProgress {
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        offered: row.num("offered")?,
        state: row.text("state")?,
    })
}

/// Returns publications in flight of gates whose leases have ended.
fn left(conn: &Conn, door: &str, rows_max: usize) -> Result<Vec<Publication>> {
    let left = conn.query(sql!("publications_lost"), &[&escape(door), &rows(rows_max)])?;
    left.iter().map(publication_row).collect()
}

impl PublicationTables for RecordTables<'_> {
    fn publication_progress(&mut self, ids: &[&str]) -> Result<Vec<PublicationProgress>> {
        self.write_to(&[], ids)
    }

    fn write_to(&mut self, writes: &[Write<'_>], ids: &[&str]) -> Result<Vec<PublicationProgress>> {
        let mut sent = self.before();
        sent.extend(writes.iter().flat_map(statements));
        let ids: Vec<String> = ids.iter().map(|id| escape(id).into_owned()).collect();
        sent.push(Statement::new(sql!("record_standings"), vec![param(ids)]));
        let answers = self.conn.query_all(&queries(&sent))?;
        answers.iter().flatten().map(way).collect()
    }

    fn unsent(&mut self, record_id: &str, which: UnsentEvents) -> Result<Vec<Seq>> {
        let query = match which {
            UnsentEvents::New => sql!("record_events_enriched"),
            UnsentEvents::All => sql!("record_events_unsent"),
        };
        self.conn.query(query, &[&escape(record_id)])?.iter().map(|row| row.seq(0)).collect()
    }

    fn publication(&mut self, which: PublicationKey<'_>) -> Result<Option<Publication>> {
        let found = match which {
            PublicationKey::Place(n) => self.conn.query_opt(sql!("publication_get"), &[&big(n)])?,
            PublicationKey::Revision(record_id, revision) => self
                .conn
                .query_opt(sql!("publication_of"), &[&escape(record_id), &big(revision)])?,
        };
        found.as_ref().map(publication_row).transpose()
    }

    fn members(&mut self, n: u64) -> Result<String> {
        self.conn.query_one(sql!("publication_get"), &[&big(n)])?.text("members")
    }

    fn claim_revision(&mut self, offer: &Offer) -> Result<bool> {
        let (id, door) = (escape(&offer.record_id), escape(&offer.door));
        Ok(self.conn.execute(sql!("record_offer"), &[&id, &door, &big(offer.revision)])? > 0)
    }

    fn release_revision(&mut self, record_id: &str, revision: u64, at: Millis) -> Result<()> {
        let revision = big(revision);
        self.conn.execute(sql!("record_release"), &[&escape(record_id), &revision, &at.0])?;
        Ok(())
    }

    fn set_sent(&mut self, record_id: &str, revision: u64, state: ProcessingState) -> Result<()> {
        let (id, revision) = (escape(record_id), big(revision));
        self.conn.execute(sql!("record_sent"), &[&id, &revision, &state.word()])?;
        Ok(())
    }

    fn insert_publication(&mut self, door: &str, new: &Publication, members: &str) -> Result<u64> {
        let state = &new.state;
        let row = self.conn.query_one(
            sql!("publication_insert"),
            &[
                &escape(door),
                &escape(&new.record_id),
                &big(new.revision),
                &escape(&new.topic),
                &escape(&new.partition_key),
                &escape(&new.dedupe_key),
                &&new.digest.as_bytes()[..],
                &members,
                &state.word(),
                &i64::from(state.attempt()),
                &big_opt(state.epoch()),
                &new.begun_at.0,
            ],
        )?;
        row.num(0)
    }

    fn renewed(&mut self, again: &Publication, members: &str) -> Result<()> {
        let state = &again.state;
        self.conn.execute(
            sql!("publication_renew"),
            &[
                &big(again.n),
                &escape(&again.topic),
                &&again.digest.as_bytes()[..],
                &members,
                &state.word(),
                &i64::from(state.attempt()),
                &big_opt(state.epoch()),
                &again.begun_at.0,
            ],
        )?;
        Ok(())
    }

    fn update_publication(&mut self, publication: &Publication) -> Result<()> {
        let state = &publication.state;
        let evidence = state.evidence().map(evidence_text);
        self.conn.execute(
            sql!("publication_update"),
            &[
                &big(publication.n),
                &state.word(),
                &i64::from(state.attempt()),
                &big_opt(state.epoch()),
                &kept_opt(evidence.as_deref()),
                &kept_opt(publication.reason.as_deref()),
                &publication.changed_at.0,
            ],
        )?;
        Ok(())
    }

    fn raise_bus_end(&mut self, end: &BusEnd) -> Result<()> {
        let name = bus_end_name(&end.topic);
        self.conn.execute(sql!("meta_max"), &[&name, &big(end.messages)])?;
        Ok(())
    }

    fn note(&mut self, n: u64, epoch: u64, line: &HistoryLine<'_>) -> Result<()> {
        let evidence = line.evidence.map(evidence_text);
        self.conn.execute(
            sql!("publication_note"),
            &[
                &big(n),
                &line.at.0,
                &i64::from(line.attempt),
                &line.what,
                &big(epoch),
                &kept_opt(line.by.map(|by| by.who.as_str())),
                &kept_opt(line.by.and_then(|by| by.why.as_deref())),
                &kept_opt(evidence.as_deref()),
            ],
        )?;
        Ok(())
    }
}
