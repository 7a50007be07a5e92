//! Storage of records in PostgreSQL. The rules are in [`crate::common::records`].

mod publications;
mod published;
mod read;
mod rows;
mod write;

use std::borrow::Cow;

use admit_core::entity::{EventFields, Table};
use admit_core::{Millis, Seq};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::conn::{self, Columns, Conn, Error, Query, big};
use super::nul_escape::escape;
use super::sql;
use super::write_op::{Tx, WriteOp};
use crate::common::records::{
    AcceptEvent, EventQuery, FarQuery, RecordError, RelinkSlice, Side, StoredEvent, Tables, Write,
    stored_event,
};
use crate::port::{AcceptError, AcceptedEvent, RelinkCounts};

/// The tables inside the writer's transaction.
pub(super) struct RecordTables<'c> {
    conn: &'c Conn,
    /// Whether there is a savepoint that is no longer needed. It is released with the next statements, and at the
    /// latest with the transaction.
    is_guarded: bool,
}

impl<'c> RecordTables<'c> {
    pub(super) fn new(conn: &'c Conn) -> Self {
        Self { conn, is_guarded: false }
    }
}

impl From<Error> for RecordError<Error> {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Parameters owned by a statement until it is sent.
type StatementParams = Vec<Box<dyn ToSql + Sync>>;

/// A statement to be sent.
struct Statement {
    sql: Cow<'static, str>,
    params: StatementParams,
}

impl Statement {
    fn new(sql: impl Into<Cow<'static, str>>, params: StatementParams) -> Self {
        Self { sql: sql.into(), params }
    }

    fn event_query(&self) -> Query<'_> {
        Query::new(
            &self.sql,
            self.params.iter().map(|param| -> conn::Param<'_> { &**param }).collect(),
        )
    }
}

/// A text parameter.
fn text(text: &str) -> Box<dyn ToSql + Sync> {
    Box::new(escape(text).into_owned())
}

/// An optional text parameter.
fn text_opt(text: Option<&str>) -> Box<dyn ToSql + Sync> {
    Box::new(kept_opt(text))
}

/// Any other parameter.
fn param(param: impl ToSql + Sync + 'static) -> Box<dyn ToSql + Sync> {
    Box::new(param)
}

/// The statement of an event query.
fn statement(door: &str, event_queries: EventQuery<'_>) -> Statement {
    let number = |number: i64| param(number);
    let (sql, params) = match event_queries {
        EventQuery::At(seq) => (sql!("record_event_get"), vec![number(big(seq.0))]),
        EventQuery::Near { side, group, from, to, most } => {
            let mut params = vec![text(door), text(group)];
            params.extend([from, to, most].map(number));
            match side {
                Side::Before => (sql!("record_near_before"), params),
                Side::After => (sql!("record_near_after"), params),
            }
        }
        EventQuery::Timeless { group, most } => {
            (sql!("record_timeless"), vec![text(door), text(group), number(most)])
        }
        EventQuery::Groupless { side, from, to, most } => {
            let mut params = vec![text(door)];
            params.extend([from, to, most].map(number));
            match side {
                Side::Before => (sql!("record_groupless_before"), params),
                Side::After => (sql!("record_groupless_after"), params),
            }
        }
        EventQuery::SameKey { hard_key, group, most } => {
            let params = vec![text(door), text(hard_key), text(group), number(most)];
            (sql!("record_same_key"), params)
        }
    };
    Statement::new(sql, params)
}

/// The statement of a query beyond an edge.
fn far_statement(event_queries: &FarQuery<'_>) -> Statement {
    let FarQuery { side, door, group, edge, number, source } = *event_queries;
    let query = match side {
        Side::Before => sql!("record_far_before"),
        Side::After => sql!("record_far_after"),
    };
    let params = vec![text(door), text(group), param(number), text(source), param(edge)];
    Statement::new(query, params)
}

/// Builds all queries, to be sent at once.
fn queries(statements: &[Statement]) -> Vec<Query<'_>> {
    statements.iter().map(Statement::event_query).collect()
}

fn event(row: &Row) -> Result<StoredEvent, RecordError<Error>> {
    let (seen_at, drift) = (row.millis("seen_at")?, row.text_opt("drift")?);
    Ok(stored_event(&row.text("head")?, &row.text("link")?, seen_at, drift)?)
}

fn places(seqs: &[Seq]) -> Vec<i64> {
    seqs.iter().map(|seq| big(seq.0)).collect()
}

fn kept_opt(text: Option<&str>) -> Option<String> {
    text.map(|text| escape(text).into_owned())
}

impl Tables for RecordTables<'_> {
    type Error = Error;

    fn events(
        &mut self,
        door: &str,
        event_queries: &[EventQuery<'_>],
    ) -> Result<Vec<Vec<StoredEvent>>, RecordError<Error>> {
        let event_queries: Vec<_> =
            event_queries.iter().map(|event_queries| statement(door, *event_queries)).collect();
        let answers = self.conn.query_all(&queries(&event_queries))?;
        answers.iter().map(|rows| rows.iter().map(event).collect()).collect()
    }

    fn far(&mut self, event_queries: &[FarQuery<'_>]) -> conn::Result<Vec<Option<(i64, String)>>> {
        let event_queries: Vec<_> = event_queries.iter().map(far_statement).collect();
        let answers = self.conn.query_all(&queries(&event_queries))?;
        let first =
            |rows: &Vec<Row>| rows.first().map(|row| Ok((row.val(0)?, row.text(1)?))).transpose();
        answers.iter().map(first).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> conn::Result<Vec<Seq>> {
        let open =
            self.conn.query(sql!("record_open"), &[&escape(door), &big(after.0), &rows_max])?;
        open.iter().map(|row| row.seq(0)).collect()
    }

    fn fields(&mut self, seqs: &[Seq]) -> conn::Result<Vec<(Seq, EventFields)>> {
        let rows = self.conn.query(sql!("record_input"), &[&places(seqs)])?;
        rows.iter().map(|row| Ok((row.seq(0)?, EventFields::from_stored(row.text(1)?)))).collect()
    }

    fn write(&mut self, writes: &[Write<'_>]) -> conn::Result<Vec<Option<String>>> {
        self.write_all(writes)
    }

    fn seen(&mut self, seq: Seq, at: Millis) -> conn::Result<()> {
        self.conn.execute(sql!("record_event_seen"), &[&big(seq.0), &at.0])?;
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
            [&escape(record_id), &escape(name), &escape(source), &escape(value)];
        self.conn.execute(sql!("record_field_seen"), &row)?;
        Ok(())
    }

    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> conn::Result<()> {
        let query = format!(
            "UPDATE {} SET captured_at = greatest(captured_at, $2) WHERE event = $1",
            table.name
        );
        self.conn.execute(&query, &[&big(seq.0), &at.0])?;
        Ok(())
    }

    fn mark(&mut self) -> conn::Result<()> {
        self.conn.batch("SAVEPOINT relink")
    }

    fn release(&mut self, take_back: bool) -> conn::Result<()> {
        let back = if take_back { "ROLLBACK TO SAVEPOINT relink; " } else { "" };
        self.conn.batch(&format!("{back}RELEASE SAVEPOINT relink"))
    }
}

impl WriteOp for AcceptEvent {
    type Output = Result<AcceptedEvent, AcceptError>;

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<Self::Output> {
        self.accept(&mut RecordTables::new(tx.conn))
    }
}

impl WriteOp for RelinkSlice {
    /// Runs the slice. Returns its counts, and where the next one begins.
    type Output = (RelinkCounts, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<Self::Output> {
        self.slice(&mut RecordTables::new(tx.conn))
    }
}
