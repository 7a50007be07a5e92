//! Reads publications.

use admit_core::effect::EffectLogEntry;
use admit_core::{Digest, Fault};
use tokio_postgres::Row;

use super::read::at_one_moment;
use crate::port::BoxFuture;
use crate::postgres::conn::{Columns, Conn, Param, Result, big, rows};
use crate::postgres::effects::{passage_row, standing};
use crate::postgres::nul_escape::escape;
use crate::postgres::read_ports::read_port;
use crate::postgres::sql;
use crate::publications::{Publication, PublicationCounts, PublicationReader, UnpublishedRecord};

/// Maximum publications of one record to list.
const SHOWN_MAX: i64 = 100;

read_port!(PublicationReader {
    fn unoffered(
        &self,
        door: String,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<UnpublishedRecord>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| unoffered(conn, &door, rows_max)))
    }

    fn publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<Publication>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params: [Param<'_>; 3] = [&escape(&door), &big(after), &rows(rows_max)];
            list(conn, sql!("publications"), &params)
        }))
    }

    fn publications_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, std::result::Result<Vec<Publication>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params: [Param<'_>; 3] = [&escape(&record_id), &escape(&door), &SHOWN_MAX];
            list(conn, sql!("publications_of"), &params)
        }))
    }

    fn ambiguous_publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<Publication>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params: [Param<'_>; 3] = [&escape(&door), &big(after), &rows(rows_max)];
            list(conn, sql!("publications_ambiguous"), &params)
        }))
    }

    fn publication(
        &self,
        door: String,
        dedupe_key: String,
    ) -> BoxFuture<'_, std::result::Result<Option<Publication>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params: [Param<'_>; 2] = [&escape(&door), &escape(&dedupe_key)];
            let found = conn.query_opt(sql!("publication_named"), &params)?;
            found.as_ref().map(publication_row).transpose()
        }))
    }

    fn publication_history(
        &self,
        n: u64,
    ) -> BoxFuture<'_, std::result::Result<Vec<EffectLogEntry>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let lines = conn.query(sql!("publication_history"), &[&big(n)])?;
            lines.iter().map(passage_row).collect()
        }))
    }

    fn publication_counts(
        &self,
        door: String,
    ) -> BoxFuture<'_, std::result::Result<PublicationCounts, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            at_one_moment(conn, || counts(conn, &door))
        }))
    }
});

pub(super) fn publication_row(row: &Row) -> Result<Publication> {
    Ok(Publication {
        n: row.num("n")?,
        record_id: row.text("record_id")?,
        revision: row.num("revision")?,
        topic: row.text("topic")?,
        partition_key: row.text("partition_key")?,
        dedupe_key: row.text("dedupe_key")?,
        digest: Digest::from_bytes(row.bytes32("digest")?),
        state: standing(row)?,
        reason: row.text_opt("reason_code")?,
        begun_at: row.millis("begun_at")?,
        changed_at: row.millis("changed_at")?,
    })
}

fn unoffered(conn: &Conn, door: &str, rows_max: usize) -> Result<Vec<UnpublishedRecord>> {
    let waiting = conn.query(sql!("record_unoffered"), &[&escape(door), &rows(rows_max)])?;
    let one = |row: &Row| {
        Ok(UnpublishedRecord {
            record_id: row.text("record_id")?,
            revision: row.num("revision")?,
            changed_at: row.millis("changed_at")?,
            since: row.millis("unoffered_at")?,
        })
    };
    waiting.iter().map(one).collect()
}

fn list(conn: &Conn, query: &str, params: &[Param<'_>]) -> Result<Vec<Publication>> {
    conn.query(query, params)?.iter().map(publication_row).collect()
}

fn counts(conn: &Conn, door: &str) -> Result<PublicationCounts> {
    let states = conn.query(sql!("publication_counts"), &[&escape(door)])?;
    let states = states.iter().map(|row| Ok((row.text(0)?, row.num(1)?)));
    let waiting = conn.query_one(sql!("record_unoffered_count"), &[&escape(door)])?;
    Ok(PublicationCounts {
        states: states.collect::<Result<_>>()?,
        waiting: waiting.num(0)?,
        waiting_since: waiting.millis_opt(1)?,
    })
}
