//! Writes of an arrival, pipelined: two round trips instead of twenty.
//!
//! Rows may be rejected. They are sent behind a savepoint optimistically; only if one is rejected, they are
//! rolled back and written set by set, to find out which.

use admit_core::entity::{Link, SourceEvent};

use super::{
    RecordTables, Statement, StatementParams, kept_opt, param, places, queries, rows, text,
    text_opt,
};
use crate::common::records::{Drift, HistoryRow, LinkRow, NewRecord, Write};
use crate::postgres::conn::{Result, big};
use crate::postgres::nul_escape::escape;
use crate::postgres::sql;

/// The savepoint before rows.
const GUARD: &str = "SAVEPOINT record_rows";
const UNGUARD: &str = "RELEASE SAVEPOINT record_rows";
const TAKE_BACK: &str = "ROLLBACK TO SAVEPOINT record_rows; RELEASE SAVEPOINT record_rows";

impl RecordTables<'_> {
    /// Executes writes in order, and returns for each row set why it was rejected, if it was.
    pub(super) fn write_all(&mut self, writes: &[Write<'_>]) -> Result<Vec<Option<String>>> {
        let is_of_rows = |write: &Write<'_>| matches!(write, Write::ClearRows(..) | Write::Rows(_));
        let first = writes.iter().position(is_of_rows).unwrap_or(writes.len());
        let (plain, in_savepoint) = writes.split_at(first);
        let mut sent = self.before();
        sent.extend(plain.iter().flat_map(statements));
        if in_savepoint.is_empty() {
            self.conn.execute_all(&queries(&sent))?;
            return Ok(Vec::new());
        }
        sent.push(Statement::new(GUARD, StatementParams::new()));
        let certain = sent.len();
        let mut reasons = Vec::new();
        let mut wanted = Vec::new();
        for write in in_savepoint {
            let Write::Rows(set) = write else {
                sent.extend(statements(write));
                continue;
            };
            match rows::statement(set) {
                Ok((statement, count)) => {
                    wanted.push((sent.len(), count));
                    sent.push(statement);
                    reasons.push(None);
                }
                Err(why) => reasons.push(Some(why)),
            }
        }
        let mut done = self.conn.try_all(&queries(&sent))?;
        let in_the_way = done.split_off(certain);
        // Errors that do not concern rows fail the transaction.
        done.into_iter().collect::<std::result::Result<Vec<u64>, _>>()?;
        let written = |at: usize| in_the_way.get(at - certain).and_then(|done| done.as_ref().ok());
        let is_whole = wanted.iter().all(|(at, count)| written(*at) == Some(count));
        if is_whole && in_the_way.iter().all(std::result::Result::is_ok) {
            self.is_guarded = true;
            return Ok(reasons);
        }
        self.conn.batch(TAKE_BACK)?;
        self.one_by_one(in_savepoint)
    }

    /// Writes row sets one by one; rejected ones are left out.
    fn one_by_one(&self, writes: &[Write<'_>]) -> Result<Vec<Option<String>>> {
        let mut reasons = Vec::new();
        for write in writes {
            if let Write::Rows(set) = write {
                reasons.push(rows::put(self.conn, set)?);
            } else {
                let statements: Vec<Statement> = statements(write).collect();
                self.conn.execute_all(&queries(&statements))?;
            }
        }
        Ok(reasons)
    }

    /// Statements to send before the rows.
    pub(super) fn before(&mut self) -> Vec<Statement> {
        let is_guarded = std::mem::take(&mut self.is_guarded);
        is_guarded.then(|| Statement::new(UNGUARD, StatementParams::new())).into_iter().collect()
    }
}

/// The statements of a write, except rows, which may be rejected.
pub(super) fn statements(write: &Write<'_>) -> impl Iterator<Item = Statement> + use<> {
    let statements = match write {
        Write::Event(door, event, link) => Vec::from(arrival(door, event, link)),
        Write::Head(event) => {
            let row = vec![param(big(event.seq.0)), text(&event.to_text())];
            vec![Statement::new(sql!("record_event_head"), row)]
        }
        Write::Retire(ids) => {
            let ids =
                || vec![param(ids.iter().map(|id| escape(id).into_owned()).collect::<Vec<_>>())];
            vec![
                Statement::new(sql!("record_field_clear"), ids()),
                Statement::new(sql!("record_remove"), ids()),
            ]
        }
        Write::Record(new) => Vec::from(record(new)),
        Write::ClearRows(table, seqs) => {
            let sql = format!("DELETE FROM {} WHERE event = ANY($1)", table.name);
            vec![Statement::new(sql, vec![param(places(seqs))])]
        }
        Write::Rows(_) => Vec::new(),
        Write::Drift(drift) => vec![drifted(drift)],
        Write::Links(links) => vec![relink(links)],
        Write::Steps(steps) => vec![step(steps)],
    };
    statements.into_iter()
}

/// Inserts a new event.
fn arrival(door: &str, event: &SourceEvent, link: &Link) -> [Statement; 2] {
    let seq = big(event.seq.0);
    let fields = vec![param(seq), text(event.fields.as_str())];
    let row = vec![
        param(seq),
        text(door),
        text(&event.source),
        text(&event.group),
        param(link.number),
        param(event.event_time),
        text_opt(event.hard_key.as_deref()),
        param(event.received_at.0),
        text(link.state.word()),
        text(link.status.word()),
        text(&link.reason),
        text(link.confidence.word()),
        text_opt(link.record_id.as_deref()),
        text(&event.to_text()),
        text(&link.to_text()),
    ];
    [
        Statement::new(sql!("record_input_put"), fields),
        Statement::new(sql!("record_event_insert"), row),
    ]
}

/// Upserts a record and its fields, if its content changed. The fields come first, because the change is
/// detected by the stored digest of the record.
fn record(new: &NewRecord<'_>) -> [Statement; 3] {
    let record = new.record;
    let (id, digest) = (|| text(&record.record_id), || param(new.digest.as_bytes().to_vec()));
    let fields = || record.fields.iter();
    let texts = |of: Vec<&str>| {
        param(of.into_iter().map(|text| escape(text).into_owned()).collect::<Vec<String>>())
    };
    let values: Vec<String> = new.values().map(|value| escape(&value).into_owned()).collect();
    let put = vec![
        id(),
        texts(fields().map(|field| &*field.name).collect()),
        param(values),
        texts(fields().map(|field| &*field.source).collect()),
        param(fields().map(|field| big(field.event.0)).collect::<Vec<i64>>()),
        digest(),
    ];
    let row = vec![
        id(),
        text(new.door),
        text(&record.group),
        param(record.number),
        text_opt(record.date.as_deref()),
        text_opt(record.time.as_deref()),
        param(record.event_time),
        text(record.state.word()),
        param(new.at.0),
        digest(),
        text(&new.fingerprints),
    ];
    [
        Statement::new(sql!("record_field_outdated"), vec![id(), digest()]),
        Statement::new(sql!("record_field_put"), put),
        Statement::new(sql!("record_put"), row),
    ]
}

/// Stores whether the rows of events could be stored.
fn drifted(drift: &Drift) -> Statement {
    let seqs: Vec<i64> = drift.keys().map(|seq| big(seq.0)).collect();
    let whys: Vec<Option<String>> = drift.values().map(|why| kept_opt(why.as_deref())).collect();
    Statement::new(sql!("record_event_drift"), vec![param(seqs), param(whys)])
}

/// Stores the links of events.
fn relink(links: &[LinkRow<'_>]) -> Statement {
    let owned = |text: &str| escape(text).into_owned();
    let words = |word: fn(&LinkRow<'_>) -> &'static str| {
        param(links.iter().map(word).collect::<Vec<&'static str>>())
    };
    let seqs: Vec<i64> = links.iter().map(|linked| big(linked.seq.0)).collect();
    let numbers: Vec<Option<i64>> = links.iter().map(|linked| linked.link.number).collect();
    let reasons: Vec<String> = links.iter().map(|linked| owned(linked.reason)).collect();
    let records: Vec<Option<String>> =
        links.iter().map(|linked| kept_opt(linked.link.record_id.as_deref())).collect();
    let texts: Vec<String> = links.iter().map(|linked| owned(&linked.text)).collect();
    let params = vec![
        param(seqs),
        param(numbers),
        words(|linked| linked.state.word()),
        words(|linked| linked.link.status.word()),
        param(reasons),
        words(|linked| linked.link.confidence.word()),
        param(records),
        param(texts),
    ];
    Statement::new(sql!("record_event_link"), params)
}

/// Appends history rows; each gets its event's next step number.
fn step(steps: &[HistoryRow<'_>]) -> Statement {
    let taken = || steps.iter().map(|step| step.taken);
    let numbers = |numbers: Vec<i64>| param(numbers);
    let words = |words: Vec<&'static str>| param(words);
    let prints = || taken().map(|step| step.fingerprint.as_ref());
    let kinds: Vec<Option<&'static str>> =
        prints().map(|print| print.map(|print| print.kind.word())).collect();
    let values: Vec<Option<String>> =
        prints().map(|print| kept_opt(print.map(|print| print.value.as_str()))).collect();
    let sources: Vec<String> = taken().map(|step| escape(&step.source).into_owned()).collect();
    let reasons: Vec<Option<String>> = steps.iter().map(|step| kept_opt(step.reason)).collect();
    let records: Vec<Option<String>> =
        taken().map(|step| kept_opt(step.record_id.as_deref())).collect();
    let params = vec![
        numbers(taken().map(|step| big(step.seq.0)).collect()),
        numbers(taken().map(|step| step.at.0).collect()),
        numbers(taken().map(|step| i64::from(step.attempt)).collect()),
        words(taken().map(|step| step.from.word()).collect()),
        words(taken().map(|step| step.to.word()).collect()),
        param(sources),
        param(kinds),
        param(values),
        words(taken().map(|step| step.link_status.word()).collect()),
        words(taken().map(|step| step.confidence.word()).collect()),
        param(reasons),
        param(records),
    ];
    Statement::new(sql!("record_history_add"), params)
}
