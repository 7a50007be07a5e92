//! Copies a ledger from SQLite to PostgreSQL, with no gate on either.
//!
//! In one transaction: every row is copied, every table is read back and compared (row count and checksum),
//! and only then it is committed. A failure before that leaves the target as empty as it was, so the copy
//! can simply be started again. Seqs, the tag, epochs and counters are preserved, so every receipt id stays
//! valid and duplicates are recognised as before.

pub(crate) mod cell;
mod plan;

use std::path::Path;

use admit_core::Seq;
use bytes::Bytes;

use crate::postgres::copy_target::{Column, CopyTarget, Head, TargetError, write_cell};
use crate::sqlite::copy_source::CopySource;
use crate::{postgres, sqlite};
use cell::{CopyCell, Kind, Tally};
use plan::{NOT_COPIED, PLANS, TablePlan};

/// Bytes sent at a time.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Maximum rows read back at a time.
const FETCH_ROWS_MAX: u64 = 5_000;

/// Progress of the copy.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The table.
    pub table: &'a str,
    /// Whether its rows are being read back.
    pub is_checking: bool,
    /// Rows so far.
    pub rows: u64,
    /// Total rows.
    pub of: u64,
}

/// A table that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    /// Its name.
    pub name: &'static str,
    /// Its rows.
    pub rows: u64,
    /// Checksum of its rows, equal in both ledgers.
    pub digest: String,
    /// Values in numeric columns that are not numbers; they are not copied.
    pub unfit_values: u64,
    /// Rows with a key that must be a number and is not; they are not copied.
    pub unfit_rows: u64,
}

/// Result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedLedger {
    /// Random tag of the ledger.
    pub tag: u32,
    /// The last seq.
    pub last_seq: Seq,
    /// The target database.
    pub place: String,
    /// Its tables.
    pub tables: Vec<CopiedTable>,
}

/// Why nothing was copied. The messages address the operator.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The ledger in the folder cannot be opened.
    #[error(transparent)]
    From(#[from] sqlite::OpenError),
    /// The ledger on PostgreSQL cannot be opened.
    #[error(transparent)]
    To(#[from] postgres::OpenError),
    /// It was copied before.
    #[error(
        "{place} already contains this ledger (tag {tag:08x}, {last_seq} seqs), complete\n  nothing was changed; serve it with ledger.url"
    )]
    AlreadyThere {
        /// The database.
        place: String,
        /// The ledger.
        tag: u32,
        /// Its last seq.
        last_seq: u64,
    },
    /// The target is not empty.
    #[error(
        "{place} is not empty: its table {table} has rows\n  nothing was changed; choose an empty database or another ledger.schema"
    )]
    NotEmpty {
        /// The database.
        place: String,
        /// The table that has rows.
        table: &'static str,
    },
    /// The source has a table or column that the target lacks.
    #[error("{0} would be lost\n  nothing was changed; this build cannot copy that ledger")]
    WouldBeLost(String),
    /// A value cannot be stored in the target.
    #[error(
        "a value in column {column} of {table} cannot be stored in PostgreSQL\n  nothing was changed; check the ledger with: admit verify"
    )]
    Unfit {
        /// The table.
        table: &'static str,
        /// The column.
        column: String,
    },
    /// The rows read back differ from those copied.
    #[error(
        "{table}: copied {copied} rows ({copied_digest}), read back {found} ({found_digest})\n  everything was undone; check the disks of the database, then copy again"
    )]
    Differs {
        /// The table.
        table: &'static str,
        /// Rows copied.
        copied: u64,
        /// Their checksum.
        copied_digest: String,
        /// Rows read back.
        found: u64,
        /// Their checksum.
        found_digest: String,
    },
    /// The source cannot be read.
    #[error("the ledger cannot be read: {0}\n  everything was rolled back, copy again")]
    Source(#[from] rusqlite::Error),
    /// The target could not be written or read back.
    #[error("the database failed: {0}\n  everything was rolled back, copy again")]
    Target(Box<dyn std::error::Error + Send + Sync>),
    /// The commit was not confirmed.
    #[error(
        "the database did not confirm the commit: {0}\n  copy again: that reports whether the ledger is there"
    )]
    Unconfirmed(Box<dyn std::error::Error + Send + Sync>),
}

impl From<TargetError> for CopyError {
    fn from(TargetError(error): TargetError) -> Self {
        Self::Target(error)
    }
}

/// Copies the ledger in the data folder `from` into the empty one at `to`. No gate may serve either; the
/// folder lock is held, and so is the lock that every gate on PostgreSQL needs to write.
pub fn copy(
    from: &Path,
    to: &postgres::Options,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<CopiedLedger, CopyError> {
    let source = CopySource::open(from)?;
    let target = CopyTarget::open(to)?;
    let head = head(&source)?;
    let tag = u32::try_from(head.tag).unwrap_or_default();
    let last_seq = head.last_seq;
    let (there, last) = target.begin()?;
    if (there, last) == (head.tag, last_seq.0) && last > 0 {
        let place = target.place().to_owned();
        return Err(CopyError::AlreadyThere { place, tag, last_seq: last });
    }
    check_whole(&source)?;
    for plan in PLANS {
        if target.has_rows(plan.name)? {
            let place = target.place().to_owned();
            return Err(CopyError::NotEmpty { place, table: plan.name });
        }
    }
    make_room(&source, &target, last_seq)?;
    let mut tables = Vec::with_capacity(PLANS.len());
    for plan in PLANS {
        tables.push(TableCopy::new(&source, &target, plan)?.run(report)?);
        if let Some(column) = plan.counts {
            target.count_on(plan.name, column)?;
        }
    }
    target.put_head(&head)?;
    target.commit().map_err(|TargetError(error)| CopyError::Unconfirmed(error))?;
    let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
    if let Err(TargetError(error)) = target.analyze(&names) {
        tracing::warn!(%error, "the copy is complete, but ANALYZE of its tables failed; run it by hand");
    }
    Ok(CopiedLedger { tag, last_seq, place: target.place().to_owned(), tables })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads the counters of the ledger.
fn head(source: &CopySource) -> Result<Head, CopyError> {
    let issued = source.number("SELECT max(n) FROM issued")?.unwrap_or(0);
    Ok(Head {
        tag: unsigned(source.meta("tag")?),
        last_seq: Seq(unsigned(source.meta("last_seq")?)),
        admissions: unsigned(source.meta("admissions")?),
        sightings: unsigned(source.meta("sightings")?),
        keys: unsigned(source.meta("keys")?),
        last_issued: unsigned(issued),
    })
}

/// Checks that every table of the source has a plan.
fn check_whole(source: &CopySource) -> Result<(), CopyError> {
    let is_planned =
        |table: &str| PLANS.iter().any(|plan| plan.name == table) || NOT_COPIED.contains(&table);
    match source.tables()?.into_iter().find(|table| !is_planned(table)) {
        Some(table) => Err(CopyError::WouldBeLost(format!("the table {table}"))),
        None => Ok(()),
    }
}

/// Creates partitions for the existing rows, none for what retention has removed.
fn make_room(source: &CopySource, target: &CopyTarget, last: Seq) -> Result<(), CopyError> {
    for table in ["body", "sighting"] {
        let first = source.number(&format!("SELECT min(seq) FROM {table}"))?;
        target.make_room(table, first.map_or(last.0, unsigned), last.0)?;
    }
    Ok(())
}

/// Copy of one table.
struct TableCopy<'c> {
    source: &'c CopySource,
    target: &'c CopyTarget,
    plan: &'static TablePlan,
    columns: Vec<Column>,
    of: u64,
    tally: Tally,
    row_bytes_max: usize,
    unfit_values: u64,
    unfit_rows: u64,
}

impl<'c> TableCopy<'c> {
    fn new(
        source: &'c CopySource,
        target: &'c CopyTarget,
        plan: &'static TablePlan,
    ) -> Result<Self, CopyError> {
        let columns = target.columns(plan.name)?;
        for column in source.columns(plan.name)? {
            if !columns.iter().any(|there| there.name == column) {
                let lost = format!("the column {column} of {}", plan.name);
                return Err(CopyError::WouldBeLost(lost));
            }
        }
        let count_all = || format!("SELECT count(*) FROM {}", plan.rows.unwrap_or(plan.name));
        let of = source.number(&plan.count.map_or_else(count_all, str::to_owned))?;
        Ok(Self {
            source,
            target,
            plan,
            columns,
            of: of.map_or(0, unsigned),
            tally: Tally::default(),
            row_bytes_max: 1,
            unfit_values: 0,
            unfit_rows: 0,
        })
    }

    /// Copies the rows and reads them back.
    fn run(mut self, report: &mut dyn FnMut(Progress<'_>)) -> Result<CopiedTable, CopyError> {
        self.write(report)?;
        self.check(report)?;
        Ok(CopiedTable {
            name: self.plan.name,
            rows: self.tally.rows,
            digest: self.tally.text(),
            unfit_values: self.unfit_values,
            unfit_rows: self.unfit_rows,
        })
    }

    fn write(&mut self, report: &mut dyn FnMut(Progress<'_>)) -> Result<(), CopyError> {
        let (source, target, plan) = (self.source, self.target, self.plan);
        let columns = std::mem::take(&mut self.columns);
        let expressions: Vec<String> = columns.iter().map(|it| expression(plan, it)).collect();
        let rows = plan.rows.unwrap_or(plan.name);
        let query = format!("SELECT {} FROM {rows}", expressions.join(", "));
        let (mut chunk, mut waiting, mut scratch) = (Vec::new(), 0_u64, Vec::new());
        let put = |chunk: &mut Vec<u8>, waiting: &mut u64| {
            let sent = target.put(plan.name, &columns, Bytes::from(std::mem::take(chunk)))?;
            if sent == std::mem::take(waiting) {
                return Ok(());
            }
            let short = "fewer rows were taken than were sent";
            Err(CopyError::Target(short.into()))
        };
        source.rows(&query, |cells| {
            let begun = chunk.len();
            if !self.add(&columns, cells, &mut chunk, &mut scratch)? {
                return Ok(());
            }
            waiting += 1;
            self.row_bytes_max = self.row_bytes_max.max(chunk.len() - begun);
            if chunk.len() >= CHUNK_BYTES {
                put(&mut chunk, &mut waiting)?;
                report(self.progress(false, self.tally.rows));
            }
            Ok::<(), CopyError>(())
        })?;
        if waiting > 0 {
            put(&mut chunk, &mut waiting)?;
        }
        report(self.progress(false, self.tally.rows));
        self.columns = columns;
        Ok(())
    }

    /// Appends a row to the chunk; returns `false` if it cannot be stored and may be skipped.
    fn add(
        &mut self,
        columns: &[Column],
        cells: &[CopyCell<'_>],
        chunk: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, CopyError> {
        let mut fitted = Vec::with_capacity(cells.len());
        let mut unfit = 0;
        for (column, cell) in columns.iter().zip(cells) {
            let cell = match convert(column.kind, *cell) {
                Some(cell) => cell,
                // Rows that are made from events may be skipped.
                None if self.plan.key.is_empty() => {
                    let (table, column) = (self.plan.name, column.name.clone());
                    return Err(CopyError::Unfit { table, column });
                }
                None if self.plan.key.contains(&column.name.as_str()) => {
                    self.unfit_rows += 1;
                    return Ok(false);
                }
                None => {
                    unfit += 1;
                    CopyCell::Null
                }
            };
            fitted.push(cell);
        }
        self.unfit_values += unfit;
        for (place, cell) in fitted.iter().enumerate() {
            if place > 0 {
                chunk.push(b'\t');
            }
            write_cell(*cell, chunk);
        }
        chunk.push(b'\n');
        let compared: Vec<CopyCell<'_>> = columns
            .iter()
            .zip(fitted)
            .filter(|(column, _)| column.kind != Kind::Beside)
            .map(|(_, cell)| cell)
            .collect();
        self.tally.add(&compared, scratch);
        Ok(true)
    }

    /// Reads the table back and compares.
    fn check(&self, report: &mut dyn FnMut(Progress<'_>)) -> Result<(), CopyError> {
        let fetch_rows = (CHUNK_BYTES / self.row_bytes_max) as u64;
        let fetch_rows = fetch_rows.clamp(1, FETCH_ROWS_MAX);
        let (mut found, mut scratch) = (Tally::default(), Vec::new());
        self.target.rows(self.plan.name, &self.columns, fetch_rows, |cells| {
            found.add(cells, &mut scratch);
            if found.rows % (FETCH_ROWS_MAX * 10) == 0 {
                report(self.progress(true, found.rows));
            }
        })?;
        if found == self.tally {
            return Ok(());
        }
        Err(CopyError::Differs {
            table: self.plan.name,
            copied: self.tally.rows,
            copied_digest: self.tally.text(),
            found: found.rows,
            found_digest: found.text(),
        })
    }

    fn progress(&self, is_checking: bool, rows: u64) -> Progress<'static> {
        Progress { table: self.plan.name, is_checking, rows, of: self.of }
    }
}

/// The source expression of a column.
fn expression(plan: &TablePlan, column: &Column) -> String {
    let other = plan.columns.iter().find(|(name, _)| *name == column.name);
    // In double quotes SQLite treats an unknown name as a text.
    other.map_or_else(|| format!("[{}]", column.name), |(_, other)| (*other).to_owned())
}

/// Converts a value to the type of its column, equal in both ledgers.
fn convert(kind: Kind, cell: CopyCell<'_>) -> Option<CopyCell<'_>> {
    Some(match (kind, cell) {
        (_, CopyCell::Null)
        | (Kind::Integer, CopyCell::Integer(_))
        | (Kind::Text | Kind::Beside, CopyCell::Text(_))
        | (Kind::Bytes, CopyCell::Blob(_))
        | (Kind::Number, CopyCell::Integer(_)) => cell,
        (Kind::Number, CopyCell::Real(real)) => cell::number(&real.to_string())?,
        (Kind::Number, CopyCell::Text(text)) => cell::number(text)?,
        (Kind::Bytes, CopyCell::Text(text)) => CopyCell::Blob(text.as_bytes()),
        _ => return None,
    })
}
