//! Reads records.

use std::collections::BTreeMap;

use admit_core::{Fault, Seq};

use crate::db::{Columns, Db, Param, ReadBackend, Statement, params, statements};
use crate::port::{
    BoxFuture, CountsFilter, EventLine, FieldLine, RecordCounts, RecordDetail, RecordFilter,
    RecordLine, RecordReader, SourceCounts, StepLine,
};

statements! {
    each COUNT_DAYS "record_count_days";
    each COUNT_RECORD_DAYS "record_count_record_days";
    each COUNT_ROW_DAYS "record_count_row_days";
    shared COUNT_ROWS "record_count_rows";
    shared COUNT_SOURCES "record_count_sources";
    shared COUNT_STATES "record_count_states";
    shared EVENTS_NEWEST "record_events_newest";
    shared EVENTS_OF "record_events_of";
    shared EVENTS_OPEN "record_events_open";
    each FIELDS "record_fields";
    shared GET "record_get";
    shared HISTORY "record_history";
    shared LIST "records";
}

/// Longer fields are not listed, in characters of JSON.
const SHORT_CHARS_MAX: i64 = 200;

/// Maximum events and steps of one record to list.
const EVENTS_MAX: i64 = 1_000;
const STEPS_MAX: i64 = 10_000;

impl<B: ReadBackend> RecordReader for B {
    fn records(&self, filter: RecordFilter) -> BoxFuture<'_, Result<Vec<RecordLine>, Fault>> {
        self.read(move |db, _| list(db, &filter))
    }

    fn record_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Option<RecordDetail>, Fault>> {
        self.read(move |db, _| db.snapshot(|| get(db, &door, &record_id)))
    }

    fn open_events(
        &self,
        door: String,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<EventLine>, Fault>> {
        self.read(move |db, _| events(db, &EVENTS_OPEN, params![&door, after, rows_max]))
    }

    fn record_counts(
        &self,
        door: String,
        filter: CountsFilter,
    ) -> BoxFuture<'_, Result<RecordCounts, Fault>> {
        self.read(move |db, _| db.snapshot(|| counts(db, &door, &filter)))
    }
}

fn list<D: Db>(db: &D, filter: &RecordFilter) -> Result<Vec<RecordLine>, D::Error> {
    let (at, id) = filter.after.clone().unzip();
    let RecordFilter { door, group, date, state, rows_max, .. } = filter;
    let rows = db.query(&LIST, params![door, group, date, state, at, &id, *rows_max])?;
    let mut lines: Vec<RecordLine> = rows.iter().map(line).collect::<Result<_, _>>()?;
    let ids: Vec<&str> = lines.iter().map(|line| line.record_id.as_str()).collect();
    let mut fields = fields(db, &ids, Some(SHORT_CHARS_MAX))?;
    for line in &mut lines {
        line.fields = fields.remove(&line.record_id).unwrap_or_default();
    }
    Ok(lines)
}

fn get<D: Db>(db: &D, door: &str, id: &str) -> Result<Option<RecordDetail>, D::Error> {
    let Some(row) = db.query_opt(&GET, params![id, door])? else { return Ok(None) };
    let (mut line, fingerprints) = (line(&row)?, row.text("fingerprints")?);
    line.fields = fields(db, &[id], None)?.remove(id).unwrap_or_default();
    let events = events(db, &EVENTS_OF, params![id, EVENTS_MAX])?;
    let steps = db.query(&HISTORY, params![id, STEPS_MAX])?;
    let steps = steps.iter().map(step).collect::<Result<_, _>>()?;
    Ok(Some(RecordDetail { line, fingerprints, events, steps }))
}

fn counts<D: Db>(db: &D, door: &str, filter: &CountsFilter) -> Result<RecordCounts, D::Error> {
    let CountsFilter { recent_since, days_since, without, newest } = filter;
    let without: Vec<&str> = without.iter().map(|source| &**source).collect();
    let sources = db.query(&COUNT_SOURCES, params![door, *recent_since])?;
    let states = db.query(&COUNT_STATES, params![door])?;
    let days = db.query(&COUNT_DAYS, params![door, *days_since])?;
    let record_days =
        db.query(&COUNT_RECORD_DAYS, params![door, days_since.0 / 1000, &without[..]])?;
    let rows = db.query(&COUNT_ROWS, &[])?;
    let row_days = db.query(&COUNT_ROW_DAYS, params![*days_since])?;
    let newest = events(db, &EVENTS_NEWEST, params![door, *newest])?;
    let state = |row: &D::Row| Ok((row.text("state")?, row.num("records")?));
    let day = |row: &D::Row| {
        Ok((row.text("day")?, row.text("source")?, row.num("events")?, row.num("unlinked")?))
    };
    let record_day =
        |row: &D::Row| Ok((row.text("day")?, row.num("records")?, row.num("without")?));
    let of_table = |row: &D::Row| Ok((row.text("name")?, row.num("rows")?, row.num("unlinked")?));
    let row_day = |row: &D::Row| Ok((row.text("day")?, row.num("rows")?, row.num("unlinked")?));
    Ok(RecordCounts {
        sources: sources.iter().map(source).collect::<Result<_, D::Error>>()?,
        states: states.iter().map(state).collect::<Result<_, D::Error>>()?,
        days: days.iter().map(day).collect::<Result<_, D::Error>>()?,
        record_days: record_days.iter().map(record_day).collect::<Result<_, D::Error>>()?,
        rows: rows.iter().map(of_table).collect::<Result<_, D::Error>>()?,
        row_days: row_days.iter().map(row_day).collect::<Result<_, D::Error>>()?,
        newest,
    })
}

fn source<R: Columns>(row: &R) -> Result<SourceCounts, R::Error> {
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
}

fn line<R: Columns>(row: &R) -> Result<RecordLine, R::Error> {
    Ok(RecordLine {
        record_id: row.text("record_id")?,
        group: row.text("grp")?,
        number: row.int("number")?,
        date: row.text_opt("date")?,
        time: row.text_opt("time")?,
        event_time: row.int_opt("event_time")?,
        state: row.text("state")?,
        revision: row.num("revision")?,
        opened_at: row.millis("opened_at")?,
        changed_at: row.millis("changed_at")?,
        fields: Vec::new(),
    })
}

/// Returns the fields of these records, by their ids; with `chars_max` only the short ones.
pub(crate) fn fields<D: Db>(
    db: &D,
    ids: &[&str],
    chars_max: Option<i64>,
) -> Result<BTreeMap<String, Vec<FieldLine>>, D::Error> {
    let mut fields: BTreeMap<String, Vec<FieldLine>> = BTreeMap::new();
    for row in db.query(&FIELDS, params![ids, chars_max])? {
        fields.entry(row.text("record_id")?).or_default().push(FieldLine {
            name: row.text("name")?,
            value: row.text("value")?,
            source: row.text("source")?,
            event: row.seq("event")?,
        });
    }
    Ok(fields)
}

fn events<D: Db>(
    db: &D,
    statement: &'static Statement,
    params: &[Param<'_>],
) -> Result<Vec<EventLine>, D::Error> {
    let event = |row: &D::Row| {
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
    db.query(statement, params)?.iter().map(event).collect()
}

fn step<R: Columns>(row: &R) -> Result<StepLine, R::Error> {
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
