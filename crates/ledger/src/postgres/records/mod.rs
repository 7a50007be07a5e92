//! The tables of records in PostgreSQL, and the questions about them. What is done with them stands
//! in [`crate::common::records`].

mod publications;
mod published;
mod read;
mod rows;

use admit_core::record::{Fields, Link, SourceEvent, Table};
use admit_core::{Millis, Seq};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::conn::{self, Ask, Columns, Conn, Error, big};
use super::sql;
use super::task::{Tx, Work};
use super::text::kept;
use crate::common::records::{
    Asked, Decided, Drift, FarAsked, Linked, NewRecord, RecordError, Relinking, RowSet, Side, Step,
    Tables, decided,
};
use crate::port::Relinked;

/// The tables inside the writer's transaction.
pub(super) struct RecordTables<'c>(pub(super) &'c Conn);

impl From<Error> for RecordError<Error> {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Parameters that a question owns until it is sent.
type Owned = Vec<Box<dyn ToSql + Sync>>;

/// What is asked, as a statement with its parameters.
fn statement(door: &str, asked: Asked<'_>) -> (&'static str, Owned) {
    let text = |text: &str| Box::new(kept(text).into_owned()) as Box<dyn ToSql + Sync>;
    let number = |number: i64| Box::new(number) as Box<dyn ToSql + Sync>;
    match asked {
        Asked::At(seq) => (sql!("record_event_get"), vec![number(big(seq.0))]),
        Asked::Near { side, group, from, to, most } => {
            let mut params = vec![text(door), text(group)];
            params.extend([from, to, most].map(number));
            match side {
                Side::Before => (sql!("record_near_before"), params),
                Side::After => (sql!("record_near_after"), params),
            }
        }
        Asked::Timeless { group, most } => {
            (sql!("record_timeless"), vec![text(door), text(group), number(most)])
        }
        Asked::Groupless { side, from, to, most } => {
            let mut params = vec![text(door)];
            params.extend([from, to, most].map(number));
            match side {
                Side::Before => (sql!("record_groupless_before"), params),
                Side::After => (sql!("record_groupless_after"), params),
            }
        }
        Asked::SameKey { hard_key, group, most } => {
            let params = vec![text(door), text(hard_key), text(group), number(most)];
            (sql!("record_same_key"), params)
        }
    }
}

/// What lies beyond an edge, as a statement with its parameters.
fn far_statement(asked: &FarAsked<'_>) -> (&'static str, Owned) {
    let FarAsked { side, door, group, edge, number, source } = *asked;
    let query = match side {
        Side::Before => sql!("record_far_before"),
        Side::After => sql!("record_far_after"),
    };
    let text = |text: &str| Box::new(kept(text).into_owned()) as Box<dyn ToSql + Sync>;
    (query, vec![text(door), text(group), Box::new(number), text(source), Box::new(edge)])
}

/// All of them, to be sent at once.
fn asks<'o>(owned: &'o [(&str, Owned)]) -> Vec<Ask<'o>> {
    let ask = |(sql, params): &'o (&str, Owned)| {
        Ask::new(sql, params.iter().map(|param| -> conn::Param<'o> { &**param }).collect())
    };
    owned.iter().map(ask).collect()
}

fn event(row: &Row) -> Result<Decided, RecordError<Error>> {
    Ok(decided(&row.text("head")?, &row.text("link")?, row.millis("seen_at")?)?)
}

fn places(seqs: &[Seq]) -> Vec<i64> {
    seqs.iter().map(|seq| big(seq.0)).collect()
}

fn kept_opt(text: Option<&str>) -> Option<String> {
    text.map(|text| kept(text).into_owned())
}

impl Tables for RecordTables<'_> {
    type Error = Error;

    fn events(
        &mut self,
        door: &str,
        asked: &[Asked<'_>],
    ) -> Result<Vec<Vec<Decided>>, RecordError<Error>> {
        let owned: Vec<(&str, Owned)> = asked.iter().map(|asked| statement(door, *asked)).collect();
        let answers = self.0.query_all(&asks(&owned))?;
        answers.iter().map(|rows| rows.iter().map(event).collect()).collect()
    }

    fn far(&mut self, asked: &[FarAsked<'_>]) -> conn::Result<Vec<Option<(i64, String)>>> {
        let owned: Vec<(&str, Owned)> = asked.iter().map(far_statement).collect();
        let answers = self.0.query_all(&asks(&owned))?;
        let first =
            |rows: &Vec<Row>| rows.first().map(|row| Ok((row.val(0)?, row.text(1)?))).transpose();
        answers.iter().map(first).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> conn::Result<Vec<Seq>> {
        let open = self.0.query(sql!("record_open"), &[&kept(door), &big(after.0), &rows_max])?;
        open.iter().map(|row| row.seq(0)).collect()
    }

    fn told(&mut self, seqs: &[Seq]) -> conn::Result<Vec<(Seq, Fields)>> {
        let told = self.0.query(sql!("record_told"), &[&places(seqs)])?;
        told.iter().map(|row| Ok((row.seq(0)?, Fields::from_stored(row.text(1)?)))).collect()
    }

    fn drifts(&mut self, seqs: &[Seq]) -> conn::Result<Drift> {
        let drifts = self.0.query(sql!("record_drifts"), &[&places(seqs)])?;
        drifts.iter().map(|row| Ok((row.seq(0)?, row.text_opt(1)?))).collect()
    }

    fn insert(&mut self, door: &str, event: &SourceEvent, link: &Link) -> conn::Result<()> {
        let (seq, fields) = (big(event.seq.0), kept(event.fields.as_str()));
        let (door, source, group) = (kept(door), kept(&event.source), kept(&event.group));
        let hard_key = kept_opt(event.hard_key.as_deref());
        let record_id = kept_opt(link.record_id.as_deref());
        let (head, link_text) = (event.to_text(), link.to_text());
        let (head, link_text) = (kept(&head), kept(&link_text));
        let reason = kept(&link.reason);
        let (state, status) = (link.state.word(), link.status.word());
        let confidence = link.confidence.word();
        self.0.execute_all(&[
            Ask::new(sql!("record_told_put"), vec![&seq, &fields]),
            Ask::new(
                sql!("record_event_insert"),
                vec![
                    &seq,
                    &door,
                    &source,
                    &group,
                    &link.number,
                    &event.event_time,
                    &hard_key,
                    &event.received_at.0,
                    &state,
                    &status,
                    &reason,
                    &confidence,
                    &record_id,
                    &head,
                    &link_text,
                ],
            ),
        ])?;
        Ok(())
    }

    fn seen(&mut self, seq: Seq, at: Millis) -> conn::Result<()> {
        self.0.execute(sql!("record_event_seen"), &[&big(seq.0), &at.0])?;
        Ok(())
    }

    fn drifted(&mut self, drift: &Drift) -> conn::Result<()> {
        let seqs: Vec<i64> = drift.keys().map(|seq| big(seq.0)).collect();
        let whys: Vec<Option<String>> =
            drift.values().map(|why| kept_opt(why.as_deref())).collect();
        self.0.execute(sql!("record_event_drift"), &[&seqs, &whys])?;
        Ok(())
    }

    fn relink(&mut self, links: &[Linked<'_>]) -> conn::Result<()> {
        let seqs: Vec<i64> = links.iter().map(|linked| big(linked.seq.0)).collect();
        let numbers: Vec<Option<i64>> = links.iter().map(|linked| linked.link.number).collect();
        let states: Vec<&str> = links.iter().map(|linked| linked.state.word()).collect();
        let statuses: Vec<&str> = links.iter().map(|linked| linked.link.status.word()).collect();
        let reasons: Vec<_> = links.iter().map(|linked| kept(linked.reason)).collect();
        let confidences: Vec<&str> =
            links.iter().map(|linked| linked.link.confidence.word()).collect();
        let records: Vec<Option<String>> =
            links.iter().map(|linked| kept_opt(linked.link.record_id.as_deref())).collect();
        let texts: Vec<_> = links.iter().map(|linked| kept(&linked.text)).collect();
        self.0.execute(
            sql!("record_event_link"),
            &[&seqs, &numbers, &states, &statuses, &reasons, &confidences, &records, &texts],
        )?;
        Ok(())
    }

    fn step(&mut self, steps: &[Step<'_>]) -> conn::Result<()> {
        let taken = || steps.iter().map(|step| step.taken);
        let seqs: Vec<i64> = taken().map(|step| big(step.seq.0)).collect();
        let ats: Vec<i64> = taken().map(|step| step.at.0).collect();
        let attempts: Vec<i64> = taken().map(|step| i64::from(step.attempt)).collect();
        let froms: Vec<&str> = taken().map(|step| step.from.word()).collect();
        let tos: Vec<&str> = taken().map(|step| step.to.word()).collect();
        let sources: Vec<_> = taken().map(|step| kept(&step.source)).collect();
        let prints = || taken().map(|step| step.fingerprint.as_ref());
        let kinds: Vec<Option<&str>> = prints().map(|it| it.map(|it| it.kind.word())).collect();
        let values: Vec<Option<String>> =
            prints().map(|it| kept_opt(it.map(|it| it.value.as_str()))).collect();
        let statuses: Vec<&str> = taken().map(|step| step.link_status.word()).collect();
        let confidences: Vec<&str> = taken().map(|step| step.confidence.word()).collect();
        let reasons: Vec<Option<String>> = steps.iter().map(|step| kept_opt(step.reason)).collect();
        let records: Vec<Option<String>> =
            taken().map(|step| kept_opt(step.record_id.as_deref())).collect();
        self.0.execute(
            sql!("record_history_add"),
            &[
                &seqs,
                &ats,
                &attempts,
                &froms,
                &tos,
                &sources,
                &kinds,
                &values,
                &statuses,
                &confidences,
                &reasons,
                &records,
            ],
        )?;
        Ok(())
    }

    fn retire(&mut self, ids: &[String]) -> conn::Result<()> {
        let ids: Vec<_> = ids.iter().map(|id| kept(id)).collect();
        self.0.execute_all(&[
            Ask::new(sql!("record_field_clear"), vec![&ids]),
            Ask::new(sql!("record_remove"), vec![&ids]),
        ])?;
        Ok(())
    }

    fn put(&mut self, new: &NewRecord<'_>) -> conn::Result<()> {
        let record = new.record;
        let (id, door, group) = (kept(&record.record_id), kept(new.door), kept(&record.group));
        let (date, time) = (kept_opt(record.date.as_deref()), kept_opt(record.time.as_deref()));
        let written = self.0.execute(
            sql!("record_put"),
            &[
                &id,
                &door,
                &group,
                &record.number,
                &date,
                &time,
                &record.event_time,
                &record.state.word(),
                &new.at.0,
                &&new.digest.as_bytes()[..],
                &kept(&new.fingerprints),
            ],
        )?;
        if written == 0 {
            return Ok(());
        }
        let ids = vec![&id];
        let names: Vec<_> = record.fields.iter().map(|field| kept(&field.name)).collect();
        let values: Vec<String> = new.values().map(|value| kept(&value).into_owned()).collect();
        let sources: Vec<_> = record.fields.iter().map(|field| kept(&field.source)).collect();
        let events: Vec<i64> = record.fields.iter().map(|field| big(field.event.0)).collect();
        let fields = vec![&id as conn::Param<'_>, &names, &values, &sources, &events];
        self.0.execute_all(&[
            Ask::new(sql!("record_field_clear"), vec![&ids]),
            Ask::new(sql!("record_field_put"), fields),
        ])?;
        Ok(())
    }

    fn stamp(
        &mut self,
        record_id: &str,
        name: &str,
        source: &str,
        value: &str,
    ) -> conn::Result<()> {
        let row: [conn::Param<'_>; 4] =
            [&kept(record_id), &kept(name), &kept(source), &kept(value)];
        self.0.execute(sql!("record_field_seen"), &row)?;
        Ok(())
    }

    fn clear_rows(&mut self, table: &Table, seqs: &[Seq]) -> conn::Result<()> {
        let query = format!("DELETE FROM {} WHERE event = ANY($1)", table.name);
        self.0.execute(&query, &[&places(seqs)])?;
        Ok(())
    }

    fn put_rows(&mut self, rows: RowSet<'_>) -> conn::Result<Option<String>> {
        rows::put(self.0, &rows)
    }

    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> conn::Result<()> {
        let query = format!(
            "UPDATE {} SET captured_at = greatest(captured_at, $2) WHERE event = $1",
            table.name
        );
        self.0.execute(&query, &[&big(seq.0), &at.0])?;
        Ok(())
    }

    fn mark(&mut self) -> conn::Result<()> {
        self.0.batch("SAVEPOINT relink")
    }

    fn release(&mut self, take_back: bool) -> conn::Result<()> {
        let back = if take_back { "ROLLBACK TO SAVEPOINT relink; " } else { "" };
        self.0.batch(&format!("{back}RELEASE SAVEPOINT relink"))
    }
}

impl Work for Relinking {
    /// What this slice came to, and where the next one begins.
    type Answer = (Relinked, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<Self::Answer> {
        self.slice(&mut RecordTables(tx.conn))
    }
}
