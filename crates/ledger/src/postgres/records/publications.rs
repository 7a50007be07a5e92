//! The tables of publications in PostgreSQL, and the writer's work with them. What is done with them
//! stands in [`crate::common::records::publications`].
//!
//! A publication in flight belongs to the start of the gate that began it. Only once the lease of
//! that one has ended does another gate say that nobody knows what became of it; nobody repeats it.

use admit_core::effect::Illegal;
use admit_core::record::State;
use admit_core::{Fault, Millis, Seq};
use tokio_postgres::Row;

use super::published::publication_row;
use super::write::statements;
use super::{RecordTables, Statement, asks, kept_opt, param};
use crate::common::records::Write;
use crate::common::records::publications::{
    Performer, PublicationTables, Unsent, Way, Which, begin, lose, take,
};
use crate::desk::{Line, evidence_text};
use crate::port::BoxFuture;
use crate::postgres::conn::{Columns, Conn, Result, big, big_opt, rows};
use crate::postgres::task::{Tx, Work};
use crate::postgres::text::kept;
use crate::postgres::{PostgresLedger, sql};
use crate::publications::{Offer, Publication, PublicationStep, Publications};

/// Most publications that are looked after in one commit: everything else waits for it.
const LOST_MAX: usize = 256;

impl Publications for PostgresLedger {
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<Option<Publication>>, Fault>> {
        Box::pin(self.write(Begin { batch, at }))
    }

    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<std::result::Result<Publication, Illegal>>, Fault>>
    {
        Box::pin(self.write(Steps { batch, at }))
    }

    /// Looks first, beside the writer: most of the time nobody has left anything.
    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<Publication>, Fault>> {
        Box::pin(async move {
            let asked = door.clone();
            let left = self.readers.read(move |conn, _| left(conn, &asked, 1)).await?;
            let mut lost = Vec::new();
            let mut is_over = left.is_empty();
            while !is_over {
                let part = self.write(Recover { door: door.clone(), at }).await?;
                is_over = part.len() < LOST_MAX;
                lost.extend(part);
            }
            Ok(lost)
        })
    }
}

/// Beginnings, for the writer.
struct Begin {
    batch: Vec<Offer>,
    at: Millis,
}

impl Work for Begin {
    type Answer = Vec<Option<Publication>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let mut tables = RecordTables::new(tx.conn);
        self.batch.iter().map(|offer| begin(&mut tables, tx.epoch, offer, self.at)).collect()
    }
}

/// Steps, for the writer.
struct Steps {
    batch: Vec<PublicationStep>,
    at: Millis,
}

impl Work for Steps {
    type Answer = Vec<std::result::Result<Publication, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let mut tables = RecordTables::new(tx.conn);
        let performer = Performer { epoch: tx.epoch, own: tx.own };
        self.batch.iter().map(|step| take(&mut tables, performer, step, self.at)).collect()
    }
}

/// Looking after what gates left whose leases have ended, for the writer.
struct Recover {
    door: String,
    at: Millis,
}

impl Work for Recover {
    type Answer = Vec<Publication>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        if !tx.may_judge {
            return Ok(Vec::new());
        }
        let left = left(tx.conn, &self.door, LOST_MAX)?;
        lose(&mut RecordTables::new(tx.conn), tx.epoch, left, self.at)
    }
}

fn way(row: &Row) -> Result<Way> {
    Ok(Way {
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        offered: row.num("offered")?,
        state: row.text("state")?,
    })
}

/// What gates left in flight whose leases have ended.
fn left(conn: &Conn, door: &str, rows_max: usize) -> Result<Vec<Publication>> {
    let left = conn.query(sql!("publications_lost"), &[&kept(door), &rows(rows_max)])?;
    left.iter().map(publication_row).collect()
}

impl PublicationTables for RecordTables<'_> {
    fn ways(&mut self, ids: &[&str]) -> Result<Vec<Way>> {
        self.write_to(&[], ids)
    }

    fn write_to(&mut self, writes: &[Write<'_>], ids: &[&str]) -> Result<Vec<Way>> {
        let mut sent = self.before();
        sent.extend(writes.iter().flat_map(statements));
        let ids: Vec<String> = ids.iter().map(|id| kept(id).into_owned()).collect();
        sent.push(Statement::new(sql!("record_standings"), vec![param(ids)]));
        let answers = self.conn.query_all(&asks(&sent))?;
        answers.iter().flatten().map(way).collect()
    }

    fn unsent(&mut self, record_id: &str, which: Unsent) -> Result<Vec<Seq>> {
        let query = match which {
            Unsent::New => sql!("record_events_enriched"),
            Unsent::All => sql!("record_events_unsent"),
        };
        self.conn.query(query, &[&kept(record_id)])?.iter().map(|row| row.seq(0)).collect()
    }

    fn publication(&mut self, which: Which<'_>) -> Result<Option<Publication>> {
        let found = match which {
            Which::Place(n) => self.conn.query_opt(sql!("publication_get"), &[&big(n)])?,
            Which::Revision(record_id, revision) => {
                self.conn.query_opt(sql!("publication_of"), &[&kept(record_id), &big(revision)])?
            }
        };
        found.as_ref().map(publication_row).transpose()
    }

    fn members(&mut self, n: u64) -> Result<String> {
        self.conn.query_one(sql!("publication_get"), &[&big(n)])?.text("members")
    }

    fn take_revision(&mut self, offer: &Offer) -> Result<bool> {
        let (id, door) = (kept(&offer.record_id), kept(&offer.door));
        Ok(self.conn.execute(sql!("record_offer"), &[&id, &door, &big(offer.revision)])? > 0)
    }

    fn give_back(&mut self, record_id: &str, revision: u64, at: Millis) -> Result<()> {
        let revision = big(revision);
        self.conn.execute(sql!("record_release"), &[&kept(record_id), &revision, &at.0])?;
        Ok(())
    }

    fn sent(&mut self, record_id: &str, revision: u64, state: State) -> Result<()> {
        let (id, revision) = (kept(record_id), big(revision));
        self.conn.execute(sql!("record_sent"), &[&id, &revision, &state.word()])?;
        Ok(())
    }

    fn begun(&mut self, door: &str, new: &Publication, members: &str) -> Result<u64> {
        let standing = &new.standing;
        let row = self.conn.query_one(
            sql!("publication_insert"),
            &[
                &kept(door),
                &kept(&new.record_id),
                &big(new.revision),
                &kept(&new.topic),
                &kept(&new.partition_key),
                &kept(&new.dedupe_key),
                &&new.digest.as_bytes()[..],
                &members,
                &standing.word(),
                &i64::from(standing.attempt()),
                &big_opt(standing.epoch()),
                &new.begun_at.0,
            ],
        )?;
        row.num(0)
    }

    fn renewed(&mut self, again: &Publication, members: &str) -> Result<()> {
        let standing = &again.standing;
        self.conn.execute(
            sql!("publication_renew"),
            &[
                &big(again.n),
                &kept(&again.topic),
                &&again.digest.as_bytes()[..],
                &members,
                &standing.word(),
                &i64::from(standing.attempt()),
                &big_opt(standing.epoch()),
                &again.begun_at.0,
            ],
        )?;
        Ok(())
    }

    fn turned(&mut self, publication: &Publication) -> Result<()> {
        let standing = &publication.standing;
        let evidence = standing.evidence().map(evidence_text);
        self.conn.execute(
            sql!("publication_update"),
            &[
                &big(publication.n),
                &standing.word(),
                &i64::from(standing.attempt()),
                &big_opt(standing.epoch()),
                &kept_opt(evidence.as_deref()),
                &kept_opt(publication.reason.as_deref()),
                &publication.changed_at.0,
            ],
        )?;
        Ok(())
    }

    fn note(&mut self, n: u64, epoch: u64, line: &Line<'_>) -> Result<()> {
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
