//! Writes of records as calls: one round trip on PostgreSQL.

use crate::common::records::{Drift, HistoryRow, LinkRow, NewEvent, NewRecord, Write};
use crate::db::{Call, Param, Statement, row, statements};

statements! {
    each EVENT_DRIFT "record_event_drift";
    shared EVENT_HEAD "record_event_head";
    shared EVENT_INSERT "record_event_insert";
    each EVENT_LINK "record_event_link";
    each FIELD_CLEAR "record_field_clear";
    shared FIELD_OUTDATED "record_field_outdated";
    each FIELD_PUT "record_field_put";
    each HISTORY_ADD "record_history_add";
    shared PUT "record_put";
    each REMOVE "record_remove";
    shared INPUT_PUT "record_input_put";
}

/// A call with its own parameters.
pub(crate) struct PlannedCall<'a> {
    statement: &'static Statement,
    params: Vec<Param<'a>>,
    rows: Option<Vec<Vec<Param<'a>>>>,
}

impl<'a> PlannedCall<'a> {
    fn one(statement: &'static Statement, params: Vec<Param<'a>>) -> Self {
        Self { statement, params, rows: None }
    }

    fn many(
        statement: &'static Statement,
        params: Vec<Param<'a>>,
        rows: impl Iterator<Item = Vec<Param<'a>>>,
    ) -> Self {
        Self { statement, params, rows: Some(rows.collect()) }
    }

    pub(crate) fn call(&self) -> Call<'_> {
        match &self.rows {
            None => Call::new(self.statement, &self.params),
            Some(rows) => Call::rows(self.statement, &self.params, rows),
        }
    }

    /// The calls of a write.
    pub(crate) fn of(write: &'a Write<'_>) -> Vec<Self> {
        match write {
            Write::Event(new) => event(new),
            Write::Head(seq, head) => vec![Self::one(&EVENT_HEAD, row![*seq, head])],
            Write::Retire(ids) => {
                let ids = || ids.iter().map(|id| row![id]);
                vec![
                    Self::many(&FIELD_CLEAR, Vec::new(), ids()),
                    Self::many(&REMOVE, Vec::new(), ids()),
                ]
            }
            Write::Record(new) => record(new),
            Write::Drift(drift) => vec![drifted(drift)],
            Write::Links(links) => vec![relink(links)],
            Write::Steps(steps) => vec![step(steps)],
        }
    }
}

/// The calls of all writes, in order.
pub(crate) fn planned<'a>(writes: &'a [Write<'_>]) -> Vec<PlannedCall<'a>> {
    writes.iter().flat_map(PlannedCall::of).collect()
}

/// Inserts a new event.
fn event<'a>(new: &'a NewEvent<'_>) -> Vec<PlannedCall<'a>> {
    let NewEvent { door, event, link, head, link_text } = new;
    let row = row![
        event.seq,
        *door,
        &event.source,
        &event.group,
        link.number,
        event.event_time,
        &event.hard_key,
        event.received_at,
        link.state.word(),
        link.status.word(),
        &link.reason,
        link.confidence.word(),
        &link.record_id,
        head,
        link_text,
    ];
    vec![
        PlannedCall::one(&INPUT_PUT, row![event.seq, event.fields.as_str()]),
        PlannedCall::one(&EVENT_INSERT, row),
    ]
}

/// Upserts a record and its fields, if its content changed. The fields come first, because the change is
/// detected by the stored digest of the record.
fn record<'a>(new: &'a NewRecord<'_>) -> Vec<PlannedCall<'a>> {
    let record = new.record;
    let (id, digest) = (&record.record_id, new.digest.as_bytes());
    let fields = record.fields.iter().zip(&new.values);
    let fields = fields.map(|(field, value)| row![&field.name, value, &field.source, field.event]);
    let row = row![
        id,
        new.door,
        &record.group,
        record.number,
        &record.date,
        &record.time,
        record.event_time,
        record.state.word(),
        new.at,
        digest,
        &new.fingerprints,
    ];
    vec![
        PlannedCall::one(&FIELD_OUTDATED, row![id, digest]),
        PlannedCall::many(&FIELD_PUT, row![id, digest], fields),
        PlannedCall::one(&PUT, row),
    ]
}

/// Stores whether the rows of events could be stored.
fn drifted(drift: &Drift) -> PlannedCall<'_> {
    let rows = drift.iter().map(|(seq, message)| row![*seq, message]);
    PlannedCall::many(&EVENT_DRIFT, Vec::new(), rows)
}

/// Stores the links of events.
fn relink<'a>(links: &'a [LinkRow<'_>]) -> PlannedCall<'a> {
    let rows = links.iter().map(|LinkRow { seq, link, state, reason, text }| {
        row![
            *seq,
            link.number,
            state.word(),
            link.status.word(),
            *reason,
            link.confidence.word(),
            &link.record_id,
            text,
        ]
    });
    PlannedCall::many(&EVENT_LINK, Vec::new(), rows)
}

/// Appends history rows; each gets its event's next step number.
fn step<'a>(steps: &'a [HistoryRow<'_>]) -> PlannedCall<'a> {
    let rows = steps.iter().map(|HistoryRow { taken, reason }| {
        let fingerprint = taken.fingerprint.as_ref();
        row![
            taken.seq,
            taken.at,
            taken.attempt,
            taken.from.word(),
            taken.to.word(),
            &taken.source,
            fingerprint.map(|fingerprint| fingerprint.kind.word()),
            fingerprint.map(|fingerprint| fingerprint.value.as_str()),
            taken.link_status.word(),
            taken.confidence.word(),
            *reason,
            &taken.record_id,
        ]
    });
    PlannedCall::many(&HISTORY_ADD, Vec::new(), rows)
}
