//! Records: their tables inside a transaction, and the port that changes them. The rules are in
//! [`crate::common::records`].

mod read;
mod write;

use std::sync::Arc;

use admit_core::entity::{Acceptance, EventFields, Policy, Table};
use admit_core::{Fault, Millis, Seq};

use crate::common::records::{
    AcceptEvent, EventQuery, FarQuery, RecordError, RelinkSlice, RowWrite, Side, StoredEvent,
    Tables, Write, stored_event,
};
use crate::db::{
    Call, Columns, Db, Operation, Param, Statement, Transaction, WriteBackend, ints, params,
    statements,
};
use crate::port::{AcceptError, AcceptedEvent, BoxFuture, Records, RelinkCounts};

pub(crate) use read::fields;
pub(crate) use write::{PlannedCall, planned};

statements! {
    shared EVENT_GET "record_event_get";
    shared EVENT_SEEN "record_event_seen";
    shared FIELD_SEEN "record_field_seen";
    shared OPEN "record_open";
    each INPUT "record_input";
}

static RELEASE_ROWS: Statement =
    Statement::new("RELEASE SAVEPOINT record_rows", "RELEASE SAVEPOINT record_rows");

/// The queries around an event; a test looks at what they cost.
pub(crate) mod queries {
    use crate::db::statements;

    statements! {
        shared FAR_AFTER "record_far_after";
        shared FAR_BEFORE "record_far_before";
        shared GROUPLESS_AFTER "record_groupless_after";
        shared GROUPLESS_BEFORE "record_groupless_before";
        shared NEAR_AFTER "record_near_after";
        shared NEAR_BEFORE "record_near_before";
        shared SAME_KEY "record_same_key";
        shared TIMELESS "record_timeless";
    }
}

/// A database with the rows that are made from events, for SQL queries. Their tables are known at run time
/// only, and a row may be rejected.
pub(crate) trait RowTables: Db {
    /// Executes calls, then the writes of rows in order; returns for each row set why it was rejected, if it
    /// was. Sets `has_savepoint` if it leaves the savepoint `record_rows` behind, to be released later.
    fn write_rows(
        &self,
        has_savepoint: &mut bool,
        before: &[Call<'_>],
        writes: &[RowWrite<'_>],
    ) -> Result<Vec<Option<String>>, Self::Error>;

    /// Records a sighting of the event at `seq` in the rows that it made in `table`.
    fn touch_rows(&self, table: &Table, seq: Seq, at: Millis) -> Result<(), Self::Error>;
}

/// The tables of records inside a transaction.
pub(crate) struct RecordTables<'c, D> {
    pub(super) db: &'c D,
    /// Whether there is a savepoint that is no longer needed. It is released with the next statements, and at the
    /// latest with the transaction.
    pub(super) has_savepoint: bool,
}

impl<'c, D> RecordTables<'c, D> {
    pub(crate) fn new(db: &'c D) -> Self {
        Self { db, has_savepoint: false }
    }

    /// The calls that release the savepoint, if there is one.
    pub(super) fn release_savepoint(&mut self) -> Vec<Call<'static>> {
        let has_savepoint = std::mem::take(&mut self.has_savepoint);
        has_savepoint.then(|| Call::new(&RELEASE_ROWS, &[])).into_iter().collect()
    }
}

/// The statement of an event query, with its parameters.
fn event_call<'a>(door: &'a str, query: EventQuery<'a>) -> (&'static Statement, Vec<Param<'a>>) {
    let door = Param::from(door);
    match query {
        EventQuery::At(seq) => (&EVENT_GET, vec![seq.into()]),
        EventQuery::Near { side, group, from, to, most } => {
            let statement = match side {
                Side::Before => &queries::NEAR_BEFORE,
                Side::After => &queries::NEAR_AFTER,
            };
            (statement, vec![door, group.into(), from.into(), to.into(), most.into()])
        }
        EventQuery::Timeless { group, most } => {
            (&queries::TIMELESS, vec![door, group.into(), most.into()])
        }
        EventQuery::Groupless { side, from, to, most } => {
            let statement = match side {
                Side::Before => &queries::GROUPLESS_BEFORE,
                Side::After => &queries::GROUPLESS_AFTER,
            };
            (statement, vec![door, from.into(), to.into(), most.into()])
        }
        EventQuery::SameKey { hard_key, group, most } => {
            (&queries::SAME_KEY, vec![door, hard_key.into(), group.into(), most.into()])
        }
    }
}

/// The statement of a query beyond an edge, with its parameters.
fn far_call<'a>(query: &FarQuery<'a>) -> (&'static Statement, Vec<Param<'a>>) {
    let FarQuery { side, door, group, edge, number, source } = *query;
    let statement = match side {
        Side::Before => &queries::FAR_BEFORE,
        Side::After => &queries::FAR_AFTER,
    };
    (statement, vec![door.into(), group.into(), number.into(), source.into(), edge.into()])
}

/// Runs every query at once.
fn query_all<D: Db>(
    db: &D,
    queries: &[(&'static Statement, Vec<Param<'_>>)],
) -> Result<Vec<Vec<D::Row>>, D::Error> {
    let calls: Vec<Call<'_>> =
        queries.iter().map(|(statement, params)| Call::new(statement, params)).collect();
    db.query_all(&calls)
}

fn event<R: Columns>(row: &R) -> Result<StoredEvent, RecordError<R::Error>> {
    let texts = || -> Result<_, R::Error> { Ok((row.text("head")?, row.text("link")?)) };
    let more = || -> Result<_, R::Error> { Ok((row.millis("seen_at")?, row.text_opt("drift")?)) };
    let (head, link) = texts().map_err(RecordError::Store)?;
    let (seen_at, drift) = more().map_err(RecordError::Store)?;
    Ok(stored_event(&head, &link, seen_at, drift)?)
}

impl<D: RowTables> Tables for RecordTables<'_, D> {
    type Error = D::Error;

    fn events(
        &mut self,
        door: &str,
        event_queries: &[EventQuery<'_>],
    ) -> Result<Vec<Vec<StoredEvent>>, RecordError<D::Error>> {
        let queries: Vec<_> = event_queries.iter().map(|query| event_call(door, *query)).collect();
        let found = query_all(self.db, &queries).map_err(RecordError::Store)?;
        found.iter().map(|rows| rows.iter().map(event).collect()).collect()
    }

    fn far(&mut self, queries: &[FarQuery<'_>]) -> Result<Vec<Option<(i64, String)>>, D::Error> {
        let queries: Vec<_> = queries.iter().map(far_call).collect();
        let found = query_all(self.db, &queries)?;
        let nearest = |rows: &Vec<D::Row>| {
            let row = rows.first().map(|row| Ok((row.int("event_time")?, row.text("head")?)));
            row.transpose()
        };
        found.iter().map(nearest).collect()
    }

    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> Result<Vec<Seq>, D::Error> {
        let open = self.db.query(&OPEN, params![door, after, rows_max])?;
        open.iter().map(|row| row.seq("seq")).collect()
    }

    fn fields(&mut self, seqs: &[Seq]) -> Result<Vec<(Seq, EventFields)>, D::Error> {
        let seqs = ints(seqs.iter().map(|seq| seq.0));
        let rows = self.db.query(&INPUT, params![&seqs])?;
        let fields =
            |row: &D::Row| Ok((row.seq("seq")?, EventFields::from_stored(row.text("fields")?)));
        rows.iter().map(fields).collect()
    }

    fn write(
        &mut self,
        writes: &[Write<'_>],
        rows: &[RowWrite<'_>],
    ) -> Result<Vec<Option<String>>, D::Error> {
        let planned = planned(writes);
        let mut calls = self.release_savepoint();
        calls.extend(planned.iter().map(PlannedCall::call));
        if rows.is_empty() {
            self.db.execute_all(&calls)?;
            return Ok(Vec::new());
        }
        self.db.write_rows(&mut self.has_savepoint, &calls, rows)
    }

    fn seen(&mut self, seq: Seq, at: Millis) -> Result<(), D::Error> {
        self.db.execute(&EVENT_SEEN, params![seq, at]).map(drop)
    }

    fn stamp(
        &mut self,
        record_id: &str,
        name: &str,
        source: &str,
        value: &str,
    ) -> Result<(), D::Error> {
        self.db.execute(&FIELD_SEEN, params![record_id, name, source, value]).map(drop)
    }

    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> Result<(), D::Error> {
        self.db.touch_rows(table, seq, at)
    }

    fn mark(&mut self) -> Result<(), D::Error> {
        self.db.batch("SAVEPOINT relink")
    }

    fn release(&mut self, take_back: bool) -> Result<(), D::Error> {
        self.db.batch(match take_back {
            true => "ROLLBACK TO SAVEPOINT relink; RELEASE SAVEPOINT relink",
            false => "RELEASE SAVEPOINT relink",
        })
    }
}

impl<B: WriteBackend<Db: RowTables>> Records for B {
    fn accept(
        &self,
        door: String,
        policy: Arc<Policy>,
        seq: Seq,
        word: Acceptance,
    ) -> BoxFuture<'_, Result<Result<AcceptedEvent, AcceptError>, Fault>> {
        self.apply(AcceptEvent { door, policy, seq, word })
    }

    fn relink(
        &self,
        door: String,
        policy: Arc<Policy>,
        at: Millis,
        is_dry: bool,
    ) -> BoxFuture<'_, Result<RelinkCounts, Fault>> {
        Box::pin(async move {
            let mut all = RelinkCounts::default();
            let mut slice = RelinkSlice { door, policy, at, is_dry, after: Seq(0) };
            loop {
                let (relinked, next) = self.apply(slice.clone()).await?;
                all.scanned += relinked.scanned;
                all.updated += relinked.updated;
                match next {
                    Some(next) => slice.after = next,
                    None => return Ok(all),
                }
            }
        })
    }
}

impl<D: RowTables> Operation<D> for AcceptEvent {
    type Output = Result<AcceptedEvent, AcceptError>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        self.accept(&mut RecordTables::new(tx.db))
    }
}

impl<D: RowTables> Operation<D> for RelinkSlice {
    /// The counts, and where the next slice begins.
    type Output = (RelinkCounts, Option<Seq>);

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        self.slice(&mut RecordTables::new(tx.db))
    }
}
