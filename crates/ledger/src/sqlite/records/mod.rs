//! Storage of records in SQLite. The rules are in [`crate::common::records`].

#[cfg(test)]
mod candidates_tests;
pub(super) mod publications;
pub(super) mod published;
pub(super) mod read;
mod rows;

use admit_core::entity::{EventFields, Link, SourceEvent, Table};
use admit_core::{Millis, Seq};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::queries;
use super::write_op::{Tx, WriteOp};
use crate::common::records::{
    AcceptEvent, Drift, EventQuery, FarQuery, HistoryRow, LinkRow, NewRecord, RecordError,
    RelinkSlice, Side, StoredEvent, Tables, Write, stored_event,
};
use crate::port::{AcceptError, AcceptedEvent, RelinkCounts};

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
        event_queries: impl rusqlite::Params,
    ) -> Result<Vec<StoredEvent>, RecordError<rusqlite::Error>> {
        let mut statement = self.0.prepare_cached(query)?;
        let mut rows = statement.query(event_queries)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let text = |name| row.get_ref(name)?.as_str().map_err(rusqlite::Error::from);
            let (seen_at, drift) = (Millis(row.get("seen_at")?), row.get("drift")?);
            found.push(stored_event(text("head")?, text("link")?, seen_at, drift)?);
        }
        Ok(found)
    }

    fn insert(&self, door: &str, event: &SourceEvent, link: &Link) -> rusqlite::Result<()> {
        let fields = (event.seq.0, event.fields.as_str());
        self.0.prepare_cached(queries::RECORD_INPUT_PUT)?.execute(fields)?;
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

    fn relink(&self, links: &[LinkRow<'_>]) -> rusqlite::Result<()> {
        let mut put = self.0.prepare_cached(queries::RECORD_EVENT_LINK)?;
        for LinkRow { seq, link, state, reason, text } in links {
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

    fn step(&self, steps: &[HistoryRow<'_>]) -> rusqlite::Result<()> {
        let mut add = self.0.prepare_cached(queries::RECORD_HISTORY_ADD)?;
        for HistoryRow { taken, reason } in steps {
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
        event_queries: &[EventQuery<'_>],
    ) -> Result<Vec<Vec<StoredEvent>>, RecordError<rusqlite::Error>> {
        let answer = |event_queries: &EventQuery<'_>| match *event_queries {
            EventQuery::At(seq) => self.rows(queries::RECORD_EVENT_GET, [seq.0]),
            EventQuery::Near { side, group, from, to, most } => {
                let query = match side {
                    Side::Before => queries::RECORD_NEAR_BEFORE,
                    Side::After => queries::RECORD_NEAR_AFTER,
                };
                self.rows(query, (door, group, from, to, most))
            }
            EventQuery::Timeless { group, most } => {
                self.rows(queries::RECORD_TIMELESS, (door, group, most))
            }
            EventQuery::Groupless { side, from, to, most } => {
                let query = match side {
                    Side::Before => queries::RECORD_GROUPLESS_BEFORE,
                    Side::After => queries::RECORD_GROUPLESS_AFTER,
                };
                self.rows(query, (door, from, to, most))
            }
            EventQuery::SameKey { hard_key, group, most } => {
                self.rows(queries::RECORD_SAME_KEY, (door, hard_key, group, most))
            }
        };
        event_queries.iter().map(answer).collect()
    }

    fn far(
        &mut self,
        event_queries: &[FarQuery<'_>],
    ) -> rusqlite::Result<Vec<Option<(i64, String)>>> {
        let answer = |event_queries: &FarQuery<'_>| {
            let FarQuery { side, door, group, edge, number, source } = *event_queries;
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
        event_queries.iter().map(answer).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> rusqlite::Result<Vec<Seq>> {
        self.0
            .prepare_cached(queries::RECORD_OPEN)?
            .query_map((door, after.0, rows_max), |row| row.get(0).map(Seq))?
            .collect()
    }

    fn fields(&mut self, seqs: &[Seq]) -> rusqlite::Result<Vec<(Seq, EventFields)>> {
        let mut get = self.0.prepare_cached(queries::RECORD_INPUT_GET)?;
        let mut fields = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let text: Option<String> = get.query_row([seq.0], |row| row.get(0)).optional()?;
            fields.extend(text.map(|text| (*seq, EventFields::from_stored(text))));
        }
        Ok(fields)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> rusqlite::Result<Vec<Option<String>>> {
        let mut reasons = Vec::new();
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
                Write::Rows(set) => reasons.push(rows::put(self.0, set)?),
                Write::Drift(drift) => self.drifted(drift)?,
                Write::Links(links) => self.relink(links)?,
                Write::Steps(steps) => self.step(steps)?,
            }
        }
        Ok(reasons)
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

impl WriteOp for AcceptEvent {
    type Output = Result<AcceptedEvent, AcceptError>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        self.accept(&mut RecordTables(tx.conn))
    }
}

impl WriteOp for RelinkSlice {
    /// Runs the slice. Returns its counts, and where the next one begins.
    type Output = (RelinkCounts, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        self.slice(&mut RecordTables(tx.conn))
    }
}
