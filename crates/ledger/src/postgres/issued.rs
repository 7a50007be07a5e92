//! Documents and runs, as they are read.

use std::collections::BTreeMap;

use admit_core::effect::By;
use admit_core::{Fault, Filed, Issued, IssuedKind, Released, RunState, Seq};
use tokio_postgres::Row;

use super::answers::answering;
use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::{sql, text};
use crate::desk::{BUS_END, Open};
use crate::issuance::{FiledFilter, IssuedReader, Run, RunCounts};
use crate::port::BoxFuture;

type Answer<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

answering!(IssuedReader {
    fn filed(&self, filter: FiledFilter) -> Answer<'_, Vec<Filed>> {
        Box::pin(self.readers.read(move |conn, _| list(conn, &filter)))
    }

    fn named(&self, id: String) -> Answer<'_, Vec<Filed>> {
        Box::pin(self.readers.read(move |conn, _| {
            filed_rows(&conn.query(sql!("issued_named"), &[&text::kept(&id)])?)
        }))
    }

    fn filed_of(&self, seq: Seq) -> Answer<'_, Vec<Filed>> {
        Box::pin(
            self.readers
                .read(move |conn, _| filed_rows(&conn.query(sql!("issued_of"), &[&big(seq.0)])?)),
        )
    }

    fn unwritten(&self, after: u64, rows_max: usize) -> Answer<'_, Vec<Filed>> {
        Box::pin(self.readers.read(move |conn, _| {
            let asked = [&big(after) as _, &rows(rows_max) as _];
            filed_rows(&conn.query(sql!("issued_unwritten"), &asked)?)
        }))
    }

    fn synced(&self) -> Answer<'_, (u64, u64)> {
        Box::pin(self.readers.read(|conn, _| synced(conn, sql!("issued_synced"))))
    }

    fn left_unsynced(&self) -> Answer<'_, (u64, u64)> {
        Box::pin(self.readers.read(|conn, _| synced(conn, sql!("issued_left"))))
    }

    fn bus_ends(&self) -> Answer<'_, BTreeMap<String, u64>> {
        Box::pin(self.readers.read(|conn, _| {
            let ends = conn.query(sql!("bus_ends"), &[&BUS_END])?;
            ends.iter().map(|row| Ok((row.text("topic")?, row.num("messages")?))).collect()
        }))
    }

    fn run(&self, id: String) -> Answer<'_, Option<Run>> {
        Box::pin(self.readers.read(move |conn, _| run(conn, &id)))
    }

    fn runs(&self, after: String, rows_max: usize) -> Answer<'_, Vec<Run>> {
        Box::pin(self.readers.read(move |conn, _| {
            let asked = [&text::kept(&after) as _, &rows(rows_max) as _];
            conn.query(sql!("run_list"), &asked)?.iter().map(run_row).collect()
        }))
    }
});

fn list(conn: &Conn, filter: &FiledFilter) -> Result<Vec<Filed>> {
    let (after, rows_max) = (big(filter.after), rows(filter.rows_max));
    let run = filter.run.as_deref().map(text::kept);
    let kind = filter.kind.map(IssuedKind::as_str);
    if let (Some(IssuedKind::Quarantine), Some(run), None) = (filter.kind, &run, &filter.decision) {
        let asked = [run as _, &after as _, &filter.is_open as _, &rows_max as _];
        return filed_rows(&conn.query(sql!("issued_quarantine"), &asked)?);
    }
    let decision = filter.decision.as_deref().map(text::kept);
    filed_rows(&conn.query(
        sql!("issued_list"),
        &[&kind, &run, &decision, &filter.is_open, &after, &rows_max],
    )?)
}

fn synced(conn: &Conn, sql: &str) -> Result<(u64, u64)> {
    let row = conn.query_one(sql, &[])?;
    Ok((row.num("synced_to")?, row.num("newest")?))
}

/// One run.
pub(super) fn run(conn: &Conn, id: &str) -> Result<Option<Run>> {
    conn.query_opt(sql!("run_get"), &[&text::kept(id)])?.as_ref().map(run_row).transpose()
}

/// The open quarantine with this id: its receipt and its record.
pub(super) fn open_named(conn: &Conn, run: &str, id: &str) -> Result<Vec<Filed>> {
    filed_rows(&conn.query(sql!("issued_twin"), &[&text::kept(id), &text::kept(run)])?)
}

/// What closing it needs of a quarantine.
pub(super) fn open(filed: &Filed) -> Open {
    Open {
        n: filed.n,
        run: filed.issued.run.clone().unwrap_or_default(),
        kind: filed.issued.kind,
        reason: filed.issued.reason.as_deref().map(str::to_owned),
    }
}

/// The state that a stored word names.
pub(super) fn run_state(word: &str) -> Result<RunState> {
    RunState::parse(word).ok_or_else(|| Error::not_ours("run state", word))
}

fn run_row(row: &Row) -> Result<Run> {
    Ok(Run {
        id: row.text("platform_run_id")?,
        state: run_state(&row.text("state")?)?,
        opened_at: row.millis("opened_at")?,
        changed_at: row.millis("changed_at")?,
        counts: RunCounts {
            deliveries: row.val("deliveries")?,
            in_flight: row.val("in_flight")?,
            ambiguous: row.val("ambiguous")?,
            admit: row.val("admit")?,
            duplicate: row.val("duplicate")?,
            quarantine: row.val("quarantine")?,
            superseded: row.val("superseded")?,
            released: row.val("released")?,
        },
    })
}

fn filed_rows(rows: &[Row]) -> Result<Vec<Filed>> {
    rows.iter().map(filed_row).collect()
}

pub(super) fn filed_row(row: &Row) -> Result<Filed> {
    let word = row.text("kind")?;
    let kind = IssuedKind::parse(&word).ok_or_else(|| Error::not_ours("document", &word))?;
    let released = match row.millis_opt("released_at")? {
        Some(at) => {
            let by = By { who: row.text("released_by")?, why: row.text_opt("released_why")? };
            Some(Released { how: row.text("released_how")?, by, at })
        }
        None => None,
    };
    Ok(Filed {
        n: row.num("n")?,
        seq: row.seq("seq")?,
        of: row.seq_opt("of")?,
        at: row.millis("at")?,
        issued: Issued {
            kind,
            run: Some(row.text("run")?).filter(|run| !run.is_empty()),
            id: row.text("id")?,
            identity: row.text("identity")?,
            decision: row.text("decision")?.into(),
            reason: row.text_opt("reason")?.map(Into::into),
            event_id: row.text_opt("event_id")?,
            event_type: row.text_opt("event_type")?,
            path: row.text("path")?,
            text: row.text("text")?,
        },
        superseded_by: row.num_opt("superseded_by")?,
        released,
    })
}
