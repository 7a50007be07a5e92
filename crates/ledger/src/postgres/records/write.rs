//! What an arrival writes, sent together: a database that is far away is asked twice, not twenty times.
//!
//! Something may be in the way of rows. They are sent behind a point to go back to, as if nothing were;
//! only when something is, they are taken back and written set by set, to find out which.

use admit_core::record::{Link, SourceEvent};

use super::{Owned, RecordTables, Statement, asks, kept_opt, param, places, rows, text, text_opt};
use crate::common::records::{Drift, Linked, NewRecord, Step, Write};
use crate::postgres::conn::{Result, big};
use crate::postgres::sql;
use crate::postgres::text::kept;

/// The point before rows.
const GUARD: &str = "SAVEPOINT record_rows";
const UNGUARD: &str = "RELEASE SAVEPOINT record_rows";
const TAKE_BACK: &str = "ROLLBACK TO SAVEPOINT record_rows; RELEASE SAVEPOINT record_rows";

impl RecordTables<'_> {
    /// Does these in their order, and says what was in the way of each set of rows.
    pub(super) fn write_all(&mut self, writes: &[Write<'_>]) -> Result<Vec<Option<String>>> {
        let is_of_rows = |write: &Write<'_>| matches!(write, Write::ClearRows(..) | Write::Rows(_));
        let first = writes.iter().position(is_of_rows).unwrap_or(writes.len());
        let (plain, guarded) = writes.split_at(first);
        let mut sent = self.before();
        sent.extend(plain.iter().flat_map(statements));
        if guarded.is_empty() {
            self.conn.execute_all(&asks(&sent))?;
            return Ok(Vec::new());
        }
        sent.push(Statement::new(GUARD, Owned::new()));
        let certain = sent.len();
        let mut said = Vec::new();
        let mut wanted = Vec::new();
        for write in guarded {
            let Write::Rows(set) = write else {
                sent.extend(statements(write));
                continue;
            };
            match rows::statement(set) {
                Ok((statement, count)) => {
                    wanted.push((sent.len(), count));
                    sent.push(statement);
                    said.push(None);
                }
                Err(why) => said.push(Some(why)),
            }
        }
        let mut done = self.conn.try_all(&asks(&sent))?;
        let in_the_way = done.split_off(certain);
        // What is not about rows is nobody's to get over.
        done.into_iter().collect::<std::result::Result<Vec<u64>, _>>()?;
        let written = |at: usize| in_the_way.get(at - certain).and_then(|done| done.as_ref().ok());
        let is_whole = wanted.iter().all(|(at, count)| written(*at) == Some(count));
        if is_whole && in_the_way.iter().all(std::result::Result::is_ok) {
            self.is_guarded = true;
            return Ok(said);
        }
        self.conn.batch(TAKE_BACK)?;
        self.one_by_one(guarded)
    }

    /// Writes what is said of rows set by set: each that something is in the way of is left out.
    fn one_by_one(&self, writes: &[Write<'_>]) -> Result<Vec<Option<String>>> {
        let mut said = Vec::new();
        for write in writes {
            if let Write::Rows(set) = write {
                said.push(rows::put(self.conn, set)?);
            } else {
                let statements: Vec<Statement> = statements(write).collect();
                self.conn.execute_all(&asks(&statements))?;
            }
        }
        Ok(said)
    }

    /// What is to be sent before anything else.
    pub(super) fn before(&mut self) -> Vec<Statement> {
        let is_guarded = std::mem::take(&mut self.is_guarded);
        is_guarded.then(|| Statement::new(UNGUARD, Owned::new())).into_iter().collect()
    }
}

/// What has to be said for it. Rows are not among it: something may be in their way.
pub(super) fn statements(write: &Write<'_>) -> impl Iterator<Item = Statement> + use<> {
    let statements = match write {
        Write::Event(door, event, link) => Vec::from(arrival(door, event, link)),
        Write::Head(event) => {
            let row = vec![param(big(event.seq.0)), text(&event.to_text())];
            vec![Statement::new(sql!("record_event_head"), row)]
        }
        Write::Retire(ids) => {
            let ids =
                || vec![param(ids.iter().map(|id| kept(id).into_owned()).collect::<Vec<_>>())];
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

/// Keeps an event that has just come.
fn arrival(door: &str, event: &SourceEvent, link: &Link) -> [Statement; 2] {
    let seq = big(event.seq.0);
    let told = vec![param(seq), text(event.fields.as_str())];
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
        Statement::new(sql!("record_told_put"), told),
        Statement::new(sql!("record_event_insert"), row),
    ]
}

/// Writes a record and its fields, if what it says has changed. The fields are first: whether it has
/// is told by what the record said before.
fn record(new: &NewRecord<'_>) -> [Statement; 3] {
    let record = new.record;
    let (id, digest) = (|| text(&record.record_id), || param(new.digest.as_bytes().to_vec()));
    let fields = || record.fields.iter();
    let texts = |of: Vec<&str>| {
        param(of.into_iter().map(|text| kept(text).into_owned()).collect::<Vec<String>>())
    };
    let values: Vec<String> = new.values().map(|value| kept(&value).into_owned()).collect();
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

/// Writes down whether the rows of events could be kept.
fn drifted(drift: &Drift) -> Statement {
    let seqs: Vec<i64> = drift.keys().map(|seq| big(seq.0)).collect();
    let whys: Vec<Option<String>> = drift.values().map(|why| kept_opt(why.as_deref())).collect();
    Statement::new(sql!("record_event_drift"), vec![param(seqs), param(whys)])
}

/// Where events belong now.
fn relink(links: &[Linked<'_>]) -> Statement {
    let owned = |text: &str| kept(text).into_owned();
    let words = |word: fn(&Linked<'_>) -> &'static str| {
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

/// Adds steps, each after those that its event has.
fn step(steps: &[Step<'_>]) -> Statement {
    let taken = || steps.iter().map(|step| step.taken);
    let numbers = |numbers: Vec<i64>| param(numbers);
    let words = |words: Vec<&'static str>| param(words);
    let prints = || taken().map(|step| step.fingerprint.as_ref());
    let kinds: Vec<Option<&'static str>> =
        prints().map(|print| print.map(|print| print.kind.word())).collect();
    let values: Vec<Option<String>> =
        prints().map(|print| kept_opt(print.map(|print| print.value.as_str()))).collect();
    let sources: Vec<String> = taken().map(|step| kept(&step.source).into_owned()).collect();
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
