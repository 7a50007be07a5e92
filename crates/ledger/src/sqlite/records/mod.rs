//! The tables of records in SQLite, and the questions about them. What is done with them stands in
//! [`crate::common::records`].

#[cfg(test)]
mod near_tests;
pub(super) mod publications;
pub(super) mod published;
pub(super) mod read;
mod rows;

use admit_core::record::{Fields, Link, SourceEvent, Table};
use admit_core::{Millis, Seq};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::queries;
use super::task::{Tx, Work};
use crate::common::records::{
    Accepting, Asked, Decided, Drift, FarAsked, Linked, NewRecord, RecordError, Relinking, Side,
    Step, Tables, Write, decided,
};
use crate::port::{Accepted, NotAccepted, Relinked};

/// The tables inside the writer's transaction.
pub(super) struct RecordTables<'c>(pub(super) &'c Connection);

impl From<rusqlite::Error> for RecordError<rusqlite::Error> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

impl RecordTables<'_> {
    fn rows(
        &self,
        query: &str,
        asked: impl rusqlite::Params,
    ) -> Result<Vec<Decided>, RecordError<rusqlite::Error>> {
        let mut statement = self.0.prepare_cached(query)?;
        let mut rows = statement.query(asked)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let text = |name| row.get_ref(name)?.as_str().map_err(rusqlite::Error::from);
            let (seen_at, drift) = (Millis(row.get("seen_at")?), row.get("drift")?);
            found.push(decided(text("head")?, text("link")?, seen_at, drift)?);
        }
        Ok(found)
    }

    fn insert(&self, door: &str, event: &SourceEvent, link: &Link) -> rusqlite::Result<()> {
        let told = (event.seq.0, event.fields.as_str());
        self.0.prepare_cached(queries::RECORD_TOLD_PUT)?.execute(told)?;
        self.0.prepare_cached(queries::RECORD_EVENT_INSERT)?.execute(params![
            event.seq.0,
            door,
            event.source,
            event.group,
            link.number,
            event.event_time,
            event.hard_key,
            event.received_at.0,
            link.state.word(),
            link.status.word(),
            link.reason,
            link.confidence.word(),
            link.record_id,
            event.to_text(),
            link.to_text(),
        ])?;
        Ok(())
    }

    fn drifted(&self, drift: &Drift) -> rusqlite::Result<()> {
        let mut put = self.0.prepare_cached(queries::RECORD_EVENT_DRIFT)?;
        for (seq, why) in drift {
            put.execute((seq.0, why))?;
        }
        Ok(())
    }

    fn relink(&self, links: &[Linked<'_>]) -> rusqlite::Result<()> {
        let mut put = self.0.prepare_cached(queries::RECORD_EVENT_LINK)?;
        for Linked { seq, link, state, reason, text } in links {
            put.execute((
                seq.0,
                link.number,
                state.word(),
                link.status.word(),
                reason,
                link.confidence.word(),
                &link.record_id,
                text,
            ))?;
        }
        Ok(())
    }

    fn step(&self, steps: &[Step<'_>]) -> rusqlite::Result<()> {
        let mut add = self.0.prepare_cached(queries::RECORD_HISTORY_ADD)?;
        for Step { taken, reason } in steps {
            let fingerprint = taken.fingerprint.as_ref();
            add.execute((
                taken.seq.0,
                taken.at.0,
                taken.attempt,
                taken.from.word(),
                taken.to.word(),
                &taken.source,
                fingerprint.map(|fingerprint| fingerprint.kind.word()),
                fingerprint.map(|fingerprint| fingerprint.value.as_str()),
                taken.link_status.word(),
                taken.confidence.word(),
                reason,
                &taken.record_id,
            ))?;
        }
        Ok(())
    }

    fn retire(&self, ids: &[String]) -> rusqlite::Result<()> {
        for id in ids {
            self.0.prepare_cached(queries::RECORD_FIELD_CLEAR)?.execute([id])?;
            self.0.prepare_cached(queries::RECORD_REMOVE)?.execute([id])?;
        }
        Ok(())
    }

    fn put(&self, new: &NewRecord<'_>) -> rusqlite::Result<()> {
        let record = new.record;
        let written = self.0.prepare_cached(queries::RECORD_PUT)?.execute((
            &record.record_id,
            new.door,
            &record.group,
            record.number,
            &record.date,
            &record.time,
            record.event_time,
            record.state.word(),
            new.at.0,
            new.digest.as_bytes(),
            &new.fingerprints,
        ))?;
        if written == 0 {
            return Ok(());
        }
        self.0.prepare_cached(queries::RECORD_FIELD_CLEAR)?.execute([&record.record_id])?;
        let mut put = self.0.prepare_cached(queries::RECORD_FIELD_PUT)?;
        for (field, value) in record.fields.iter().zip(new.values()) {
            put.execute((&record.record_id, &field.name, value, &field.source, field.event.0))?;
        }
        Ok(())
    }
}

impl Tables for RecordTables<'_> {
    type Error = rusqlite::Error;

    fn events(
        &mut self,
        door: &str,
        asked: &[Asked<'_>],
    ) -> Result<Vec<Vec<Decided>>, RecordError<rusqlite::Error>> {
        let answer = |asked: &Asked<'_>| match *asked {
            Asked::At(seq) => self.rows(queries::RECORD_EVENT_GET, [seq.0]),
            Asked::Near { side, group, from, to, most } => {
                let query = match side {
                    Side::Before => queries::RECORD_NEAR_BEFORE,
                    Side::After => queries::RECORD_NEAR_AFTER,
                };
                self.rows(query, (door, group, from, to, most))
            }
            Asked::Timeless { group, most } => {
                self.rows(queries::RECORD_TIMELESS, (door, group, most))
            }
            Asked::Groupless { side, from, to, most } => {
                let query = match side {
                    Side::Before => queries::RECORD_GROUPLESS_BEFORE,
                    Side::After => queries::RECORD_GROUPLESS_AFTER,
                };
                self.rows(query, (door, from, to, most))
            }
            Asked::SameKey { hard_key, group, most } => {
                self.rows(queries::RECORD_SAME_KEY, (door, hard_key, group, most))
            }
        };
        asked.iter().map(answer).collect()
    }

    fn far(&mut self, asked: &[FarAsked<'_>]) -> rusqlite::Result<Vec<Option<(i64, String)>>> {
        let answer = |asked: &FarAsked<'_>| {
            let FarAsked { side, door, group, edge, number, source } = *asked;
            let query = match side {
                Side::Before => queries::RECORD_FAR_BEFORE,
                Side::After => queries::RECORD_FAR_AFTER,
            };
            self.0
                .prepare_cached(query)?
                .query_row((door, group, number, source, edge), |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()
        };
        asked.iter().map(answer).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> rusqlite::Result<Vec<Seq>> {
        self.0
            .prepare_cached(queries::RECORD_OPEN)?
            .query_map((door, after.0, rows_max), |row| row.get(0).map(Seq))?
            .collect()
    }

    fn told(&mut self, seqs: &[Seq]) -> rusqlite::Result<Vec<(Seq, Fields)>> {
        let mut get = self.0.prepare_cached(queries::RECORD_TOLD_GET)?;
        let mut told = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let text: Option<String> = get.query_row([seq.0], |row| row.get(0)).optional()?;
            told.extend(text.map(|text| (*seq, Fields::from_stored(text))));
        }
        Ok(told)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> rusqlite::Result<Vec<Option<String>>> {
        let mut said = Vec::new();
        for write in writes {
            match write {
                Write::Event(door, event, link) => self.insert(door, event, link)?,
                Write::Head(event) => {
                    let row = (event.seq.0, event.to_text());
                    self.0.prepare_cached(queries::RECORD_EVENT_HEAD)?.execute(row)?;
                }
                Write::Retire(ids) => self.retire(ids)?,
                Write::Record(new) => self.put(new)?,
                Write::ClearRows(table, seqs) => rows::clear(self.0, table, seqs)?,
                Write::Rows(set) => said.push(rows::put(self.0, set)?),
                Write::Drift(drift) => self.drifted(drift)?,
                Write::Links(links) => self.relink(links)?,
                Write::Steps(steps) => self.step(steps)?,
            }
        }
        Ok(said)
    }

    fn seen(&mut self, seq: Seq, at: Millis) -> rusqlite::Result<()> {
        self.0.prepare_cached(queries::RECORD_EVENT_SEEN)?.execute((seq.0, at.0))?;
        Ok(())
    }

    fn stamp(
        &mut self,
        record_id: &str,
        name: &str,
        source: &str,
        value: &str,
    ) -> rusqlite::Result<()> {
        let row = (record_id, name, source, value);
        self.0.prepare_cached(queries::RECORD_FIELD_SEEN)?.execute(row)?;
        Ok(())
    }

    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> rusqlite::Result<()> {
        rows::seen(self.0, table, seq, at)
    }

    fn mark(&mut self) -> rusqlite::Result<()> {
        self.0.prepare_cached("SAVEPOINT relink")?.execute([])?;
        Ok(())
    }

    fn release(&mut self, take_back: bool) -> rusqlite::Result<()> {
        if take_back {
            self.0.prepare_cached("ROLLBACK TO relink")?.execute([])?;
        }
        self.0.prepare_cached("RELEASE relink")?.execute([])?;
        Ok(())
    }
}

impl Work for Accepting {
    type Answer = Result<Accepted, NotAccepted>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        self.accept(&mut RecordTables(tx.conn))
    }
}

impl Work for Relinking {
    /// What this slice came to, and where the next one begins.
    type Answer = (Relinked, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        self.slice(&mut RecordTables(tx.conn))
    }
}
