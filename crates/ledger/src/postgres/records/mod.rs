//! The tables of records in PostgreSQL, and the questions about them. What is done with them stands
//! in [`crate::common::records`].

mod publications;
mod published;
mod read;
mod rows;
mod write;

use std::borrow::Cow;

use admit_core::record::{Fields, Table};
use admit_core::{Millis, Seq};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::conn::{self, Ask, Columns, Conn, Error, big};
use super::sql;
use super::task::{Tx, Work};
use super::text::kept;
use crate::common::records::{
    Accepting, Asked, Decided, FarAsked, RecordError, Relinking, Side, Tables, Write, decided,
};
use crate::port::{Accepted, NotAccepted, Relinked};

/// The tables inside the writer's transaction.
pub(super) struct RecordTables<'c> {
    conn: &'c Conn,
    /// Whether there is a point to go back to that nobody needs any more. It is forgotten with the next
    /// statements that are sent, and at the latest with the transaction.
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

/// Parameters that a statement owns until it is sent.
type Owned = Vec<Box<dyn ToSql + Sync>>;

/// A statement that is about to be sent.
struct Statement {
    sql: Cow<'static, str>,
    params: Owned,
}

impl Statement {
    fn new(sql: impl Into<Cow<'static, str>>, params: Owned) -> Self {
        Self { sql: sql.into(), params }
    }

    fn ask(&self) -> Ask<'_> {
        Ask::new(
            &self.sql,
            self.params.iter().map(|param| -> conn::Param<'_> { &**param }).collect(),
        )
    }
}

/// A parameter that is text.
fn text(text: &str) -> Box<dyn ToSql + Sync> {
    Box::new(kept(text).into_owned())
}

/// A parameter that is text, where there is one.
fn text_opt(text: Option<&str>) -> Box<dyn ToSql + Sync> {
    Box::new(kept_opt(text))
}

/// Any other parameter.
fn param(param: impl ToSql + Sync + 'static) -> Box<dyn ToSql + Sync> {
    Box::new(param)
}

/// What is asked, as a statement with its parameters.
fn statement(door: &str, asked: Asked<'_>) -> Statement {
    let number = |number: i64| param(number);
    let (sql, params) = match asked {
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
    };
    Statement::new(sql, params)
}

/// What lies beyond an edge, as a statement with its parameters.
fn far_statement(asked: &FarAsked<'_>) -> Statement {
    let FarAsked { side, door, group, edge, number, source } = *asked;
    let query = match side {
        Side::Before => sql!("record_far_before"),
        Side::After => sql!("record_far_after"),
    };
    let params = vec![text(door), text(group), param(number), text(source), param(edge)];
    Statement::new(query, params)
}

/// All of them, to be sent at once.
fn asks(statements: &[Statement]) -> Vec<Ask<'_>> {
    statements.iter().map(Statement::ask).collect()
}

fn event(row: &Row) -> Result<Decided, RecordError<Error>> {
    let (seen_at, drift) = (row.millis("seen_at")?, row.text_opt("drift")?);
    Ok(decided(&row.text("head")?, &row.text("link")?, seen_at, drift)?)
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
        let asked: Vec<_> = asked.iter().map(|asked| statement(door, *asked)).collect();
        let answers = self.conn.query_all(&asks(&asked))?;
        answers.iter().map(|rows| rows.iter().map(event).collect()).collect()
    }

    fn far(&mut self, asked: &[FarAsked<'_>]) -> conn::Result<Vec<Option<(i64, String)>>> {
        let asked: Vec<_> = asked.iter().map(far_statement).collect();
        let answers = self.conn.query_all(&asks(&asked))?;
        let first =
            |rows: &Vec<Row>| rows.first().map(|row| Ok((row.val(0)?, row.text(1)?))).transpose();
        answers.iter().map(first).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> conn::Result<Vec<Seq>> {
        let open =
            self.conn.query(sql!("record_open"), &[&kept(door), &big(after.0), &rows_max])?;
        open.iter().map(|row| row.seq(0)).collect()
    }

    fn told(&mut self, seqs: &[Seq]) -> conn::Result<Vec<(Seq, Fields)>> {
        let told = self.conn.query(sql!("record_told"), &[&places(seqs)])?;
        told.iter().map(|row| Ok((row.seq(0)?, Fields::from_stored(row.text(1)?)))).collect()
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
            [&kept(record_id), &kept(name), &kept(source), &kept(value)];
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

impl Work for Accepting {
    type Answer = Result<Accepted, NotAccepted>;

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<Self::Answer> {
        self.accept(&mut RecordTables::new(tx.conn))
    }
}

impl Work for Relinking {
    /// What this slice came to, and where the next one begins.
    type Answer = (Relinked, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> conn::Result<Self::Answer> {
        self.slice(&mut RecordTables::new(tx.conn))
    }
}
