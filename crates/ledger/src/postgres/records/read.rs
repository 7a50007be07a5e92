//! Reads records.

use std::collections::BTreeMap;
use std::sync::Arc;

use admit_core::entity::{Acceptance, Policy};
use admit_core::{Fault, Millis, Seq};
use tokio_postgres::Row;

use crate::common::records::{AcceptEvent, RelinkSlice};
use crate::port::{
    AcceptError, AcceptedEvent, BoxFuture, CountsFilter, EventLine, FieldLine, RecordCounts,
    RecordDetail, RecordFilter, RecordLine, RecordReader, Records, RelinkCounts, SourceCounts,
    StepLine,
};
use crate::postgres::conn::{Columns, Conn, Param, Result, big, rows};
use crate::postgres::nul_escape::escape;
use crate::postgres::{PostgresLedger, PostgresReader, sql};

/// Longer fields are not listed, in characters of JSON.
const SHORT_CHARS_MAX: i64 = 200;

/// Maximum events and steps of one record to list.
const EVENTS_MAX: i64 = 1_000;
const STEPS_MAX: i64 = 10_000;

macro_rules! answer_about_records {
    ($($ledger:ty),+) => {$(
        impl RecordReader for $ledger {
            fn records(
                &self,
                filter: RecordFilter,
            ) -> BoxFuture<'_, std::result::Result<Vec<RecordLine>, Fault>> {
                Box::pin(self.readers.read(move |conn, _| list(conn, &filter)))
            }

            fn record_of(
                &self,
                door: String,
                record_id: String,
            ) -> BoxFuture<'_, std::result::Result<Option<RecordDetail>, Fault>> {
                Box::pin(self.readers.read(move |conn, _| {
                    at_one_moment(conn, || one(conn, &door, &record_id))
                }))
            }

            fn open_events(
                &self,
                door: String,
                after: Seq,
                rows_max: usize,
            ) -> BoxFuture<'_, std::result::Result<Vec<EventLine>, Fault>> {
                Box::pin(self.readers.read(move |conn, _| open(conn, &door, after, rows_max)))
            }

            fn record_counts(
                &self,
                door: String,
                params: CountsFilter,
            ) -> BoxFuture<'_, std::result::Result<RecordCounts, Fault>> {
                Box::pin(self.readers.read(move |conn, _| {
                    at_one_moment(conn, || counts(conn, &door, &params))
                }))
            }
        }
    )+};
}

answer_about_records!(PostgresLedger, PostgresReader);

impl Records for PostgresLedger {
    fn accept(
        &self,
        door: String,
        policy: Arc<Policy>,
        seq: Seq,
        word: Acceptance,
    ) -> BoxFuture<'_, std::result::Result<std::result::Result<AcceptedEvent, AcceptError>, Fault>>
    {
        Box::pin(self.write(AcceptEvent { door, policy, seq, word }))
    }

    fn relink(
        &self,
        door: String,
        policy: Arc<Policy>,
        at: Millis,
        is_dry: bool,
    ) -> BoxFuture<'_, std::result::Result<RelinkCounts, Fault>> {
        Box::pin(async move {
            let mut all = RelinkCounts::default();
            let mut slice = RelinkSlice { door, policy, at, is_dry, after: Seq(0) };
            loop {
                let (relinked, next) = self.write(slice.clone()).await?;
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

/// Reads in one snapshot.
pub(super) fn at_one_moment<T>(conn: &Conn, read: impl FnOnce() -> Result<T>) -> Result<T> {
    conn.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let found = read();
    // Rolled back, because the connection returns to the pool.
    conn.batch("ROLLBACK")?;
    found
}

fn list(conn: &Conn, filter: &RecordFilter) -> Result<Vec<RecordLine>> {
    let (at, id) = filter.after.clone().unzip();
    let kept_opt = |text: &Option<String>| text.as_deref().map(|it| escape(it).into_owned());
    let params: [Param<'_>; 7] = [
        &escape(&filter.door),
        &kept_opt(&filter.group),
        &kept_opt(&filter.date),
        &filter.state,
        &at,
        &kept_opt(&id),
        &rows(filter.rows_max),
    ];
    let found = conn.query(sql!("records"), &params)?;
    let mut lines: Vec<RecordLine> = found.iter().map(line).collect::<Result<_>>()?;
    let ids: Vec<&str> = lines.iter().map(|line| line.record_id.as_str()).collect();
    let mut fields = fields(conn, &ids, Some(SHORT_CHARS_MAX))?;
    for line in &mut lines {
        line.fields = fields.remove(&line.record_id).unwrap_or_default();
    }
    Ok(lines)
}

fn one(conn: &Conn, door: &str, id: &str) -> Result<Option<RecordDetail>> {
    let params: [Param<'_>; 2] = [&escape(id), &escape(door)];
    let Some(found) = conn.query_opt(sql!("record_get"), &params)? else { return Ok(None) };
    let (mut line, fingerprints) = (line(&found)?, found.text("fingerprints")?);
    line.fields = fields(conn, &[id], None)?.remove(id).unwrap_or_default();
    let events = events(conn, sql!("record_events_of"), &[&escape(id), &EVENTS_MAX])?;
    let steps = conn.query(sql!("record_history"), &[&escape(id), &STEPS_MAX])?;
    let steps = steps.iter().map(step).collect::<Result<_>>()?;
    Ok(Some(RecordDetail { line, fingerprints, events, steps }))
}

fn open(conn: &Conn, door: &str, after: Seq, rows_max: usize) -> Result<Vec<EventLine>> {
    let params: [Param<'_>; 3] = [&escape(door), &big(after.0), &rows(rows_max)];
    events(conn, sql!("record_events_open"), &params)
}

fn counts(conn: &Conn, door: &str, params: &CountsFilter) -> Result<RecordCounts> {
    let door = escape(door);
    let sources = conn.query(sql!("record_count_sources"), &[&door, &params.recent_since.0])?;
    let states = conn.query(sql!("record_count_states"), &[&door])?;
    let days = conn.query(sql!("record_count_days"), &[&door, &params.days_since.0])?;
    let since = params.days_since.0 / 1000;
    let record_days =
        conn.query(sql!("record_count_record_days"), &[&door, &since, &params.without])?;
    let counted = conn.query(sql!("record_count_rows"), &[])?;
    let row_days = conn.query(sql!("record_count_row_days"), &[&params.days_since.0])?;
    let newest = events(conn, sql!("record_events_newest"), &[&door, &rows(params.newest)])?;
    let source = |row: &Row| {
        Ok(SourceCounts {
            source: row.text("source")?,
            total: row.num("total")?,
            unlinked: row.num("unlinked")?,
            recent: row.num("recent")?,
            recent_unlinked: row.num("recent_unlinked")?,
            latest_at: row.millis_opt("latest_at")?,
            unread: row.num("unread")?,
            drifted: row.num("drifted")?,
        })
    };
    let state = |row: &Row| Ok((row.text(0)?, row.num(1)?));
    let day = |row: &Row| Ok((row.text(0)?, row.text(1)?, row.num(2)?, row.num(3)?));
    let three = |row: &Row| Ok((row.text(0)?, row.num(1)?, row.num(2)?));
    Ok(RecordCounts {
        sources: sources.iter().map(source).collect::<Result<_>>()?,
        states: states.iter().map(state).collect::<Result<_>>()?,
        days: days.iter().map(day).collect::<Result<_>>()?,
        record_days: record_days.iter().map(three).collect::<Result<_>>()?,
        rows: counted.iter().map(three).collect::<Result<_>>()?,
        row_days: row_days.iter().map(three).collect::<Result<_>>()?,
        newest,
    })
}

fn line(row: &Row) -> Result<RecordLine> {
    Ok(RecordLine {
        record_id: row.text("record_id")?,
        group: row.text("grp")?,
        number: row.val("number")?,
        date: row.text_opt("date")?,
        time: row.text_opt("time")?,
        event_time: row.val("event_time")?,
        state: row.text("state")?,
        revision: row.num("revision")?,
        opened_at: row.millis("opened_at")?,
        changed_at: row.millis("changed_at")?,
        fields: Vec::new(),
    })
}

/// Returns the fields of these records, by their ids.
fn fields(
    conn: &Conn,
    ids: &[&str],
    chars_max: Option<i64>,
) -> Result<BTreeMap<String, Vec<FieldLine>>> {
    let ids: Vec<_> = ids.iter().map(|id| escape(id)).collect();
    let mut fields: BTreeMap<String, Vec<FieldLine>> = BTreeMap::new();
    for row in conn.query(sql!("record_fields"), &[&ids, &chars_max])? {
        fields.entry(row.text("record_id")?).or_default().push(FieldLine {
            name: row.text("name")?,
            value: row.text("value")?,
            source: row.text("source")?,
            event: row.seq("event")?,
        });
    }
    Ok(fields)
}

fn events(conn: &Conn, query: &str, params: &[Param<'_>]) -> Result<Vec<EventLine>> {
    let found = conn.query(query, params)?;
    let event = |row: &Row| {
        Ok(EventLine {
            seq: row.seq("seq")?,
            source: row.text("source")?,
            received_at: row.millis("received_at")?,
            seen_at: row.millis("seen_at")?,
            state: row.text("state")?,
            link_status: row.text("link_status")?,
            reason_code: row.text("reason_code")?,
            confidence: row.text("confidence")?,
            record_id: row.text_opt("record_id")?,
            drift: row.text_opt("drift")?,
            head: row.text("head")?,
            link: row.text("link")?,
        })
    };
    found.iter().map(event).collect()
}

fn step(row: &Row) -> Result<StepLine> {
    let kind = row.text_opt("fingerprint_kind")?;
    Ok(StepLine {
        seq: row.seq("seq")?,
        at: row.millis("at")?,
        attempt: row.small("attempt")?,
        from: row.text("from_state")?,
        to: row.text("to_state")?,
        source: row.text("source")?,
        fingerprint: kind.zip(row.text_opt("round_fingerprint")?),
        link_status: row.text("link_status")?,
        confidence: row.text("confidence")?,
        reason_code: row.text_opt("reason_code")?,
        record_id: row.text_opt("record_id")?,
    })
}
