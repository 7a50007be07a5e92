//! Copying a ledger from SQLite into PostgreSQL, with no gate at either end.
//!
//! It is one transaction: every row is copied, every table is read back and compared (how many rows,
//! and what they come to), and only then it is committed. Whatever goes wrong before leaves the
//! target as empty as it was, so the copy is simply started again. Places, the tag, epochs and
//! counters are kept, so every receipt id stays valid and every copy of an event is known as before.

pub(crate) mod cell;
mod plan;

use std::path::Path;

use admit_core::Seq;
use bytes::Bytes;

use crate::postgres::target::{Column, Failed, Head, Target, write_cell};
use crate::sqlite::source::Source;
use crate::{postgres, sqlite};
use cell::{Cell, Kind, Tally};
use plan::{ELSEWHERE, PLANS, Plan};

/// So many bytes are on their way at a time.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// At most so many rows are read back at a time.
const FETCH_ROWS_MAX: u64 = 5_000;

/// How far the copy is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The table.
    pub table: &'a str,
    /// Whether its rows are being read back already.
    pub is_checking: bool,
    /// So many rows of it so far.
    pub rows: u64,
    /// Of so many.
    pub of: u64,
}

/// A table that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    /// Its name.
    pub name: &'static str,
    /// Its rows.
    pub rows: u64,
    /// What its rows come to, the same in both ledgers.
    pub digest: String,
    /// Values that are no numbers in columns of numbers; they are not in the copy.
    pub unfit_values: u64,
    /// Rows whose key is no number where it has to be one; they are not in the copy.
    pub unfit_rows: u64,
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedLedger {
    /// The number that names the ledger.
    pub tag: u32,
    /// The last place.
    pub last_seq: Seq,
    /// The database it is in now.
    pub place: String,
    /// Table by table.
    pub tables: Vec<CopiedTable>,
}

/// Why nothing was copied. The texts are for the person who has to act on them.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The ledger in the folder cannot be opened.
    #[error(transparent)]
    From(#[from] sqlite::OpenError),
    /// The ledger on PostgreSQL cannot be opened.
    #[error(transparent)]
    To(#[from] postgres::OpenError),
    /// It is there already.
    #[error(
        "{place} already holds this very ledger (tag {tag:08x}, {last_seq} places), complete\n  nothing was changed; serve it with ledger.url"
    )]
    AlreadyThere {
        /// The database.
        place: String,
        /// The ledger.
        tag: u32,
        /// Its last place.
        last_seq: u64,
    },
    /// The target is somebody's ledger.
    #[error(
        "{place} is not empty: its table {table} has rows\n  nothing was changed; choose an empty database or another ledger.schema"
    )]
    NotEmpty {
        /// The database.
        place: String,
        /// Where something was found.
        table: &'static str,
    },
    /// The two versions do not fit each other.
    #[error("{0} would be lost\n  nothing was changed; this build cannot copy that ledger")]
    WouldBeLost(String),
    /// A value cannot be kept as it is.
    #[error(
        "a value in column {column} of {table} cannot be kept by PostgreSQL\n  nothing was changed; check the ledger with: admit verify"
    )]
    Unfit {
        /// The table.
        table: &'static str,
        /// The column.
        column: String,
    },
    /// What was read back is not what was copied.
    #[error(
        "{table} was read back with {found} rows ({found_digest}), copied were {copied} ({copied_digest})\n  everything was undone; check the disks of the database, then copy again"
    )]
    Differs {
        /// The table.
        table: &'static str,
        /// So many rows were copied.
        copied: u64,
        /// What they come to.
        copied_digest: String,
        /// So many rows are there.
        found: u64,
        /// What those come to.
        found_digest: String,
    },
    /// The source cannot be read.
    #[error("the ledger cannot be read: {0}\n  everything was undone, copy again")]
    Source(#[from] rusqlite::Error),
    /// The target could not be written or read back.
    #[error("the database failed: {0}\n  everything was undone, copy again")]
    Target(Box<dyn std::error::Error + Send + Sync>),
    /// The commit was not confirmed.
    #[error(
        "the database did not confirm the commit: {0}\n  copy again: it says whether the ledger is there"
    )]
    Unconfirmed(Box<dyn std::error::Error + Send + Sync>),
}

impl From<Failed> for CopyError {
    fn from(Failed(error): Failed) -> Self {
        Self::Target(error)
    }
}

/// Copies the ledger in the data folder `from` into the empty one at `to`. No gate may serve either;
/// the folder's lock is held, and so is the lock that every gate on PostgreSQL needs to write.
pub fn copy(
    from: &Path,
    to: &postgres::Options,
    told: &mut dyn FnMut(Progress<'_>),
) -> Result<CopiedLedger, CopyError> {
    let source = Source::open(from)?;
    let target = Target::open(to)?;
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
        tables.push(Copying::new(&source, &target, plan)?.run(told)?);
        if let Some(column) = plan.counts {
            target.count_on(plan.name, column)?;
        }
    }
    target.put_head(&head)?;
    target.commit().map_err(|Failed(error)| CopyError::Unconfirmed(error))?;
    let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
    if let Err(Failed(error)) = target.analyze(&names) {
        tracing::warn!(%error, "the copy is complete, but the database could not look at it yet");
    }
    Ok(CopiedLedger { tag, last_seq, place: target.place().to_owned(), tables })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Where the ledger stands.
fn head(source: &Source) -> Result<Head, CopyError> {
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

/// Every table of the source has a plan.
fn check_whole(source: &Source) -> Result<(), CopyError> {
    let is_planned =
        |table: &str| PLANS.iter().any(|plan| plan.name == table) || ELSEWHERE.contains(&table);
    match source.tables()?.into_iter().find(|table| !is_planned(table)) {
        Some(table) => Err(CopyError::WouldBeLost(format!("the table {table}"))),
        None => Ok(()),
    }
}

/// Partitions for what is there, and none for what retention has removed already.
fn make_room(source: &Source, target: &Target, last: Seq) -> Result<(), CopyError> {
    for table in ["body", "sighting"] {
        let first = source.number(&format!("SELECT min(seq) FROM {table}"))?;
        target.make_room(table, first.map_or(last.0, unsigned), last.0)?;
    }
    Ok(())
}

/// One table on its way.
struct Copying<'c> {
    source: &'c Source,
    target: &'c Target,
    plan: &'static Plan,
    columns: Vec<Column>,
    of: u64,
    tally: Tally,
    row_bytes_max: usize,
    unfit_values: u64,
    unfit_rows: u64,
}

impl<'c> Copying<'c> {
    fn new(source: &'c Source, target: &'c Target, plan: &'static Plan) -> Result<Self, CopyError> {
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
    fn run(mut self, told: &mut dyn FnMut(Progress<'_>)) -> Result<CopiedTable, CopyError> {
        self.write(told)?;
        self.check(told)?;
        Ok(CopiedTable {
            name: self.plan.name,
            rows: self.tally.rows,
            digest: self.tally.text(),
            unfit_values: self.unfit_values,
            unfit_rows: self.unfit_rows,
        })
    }

    fn write(&mut self, told: &mut dyn FnMut(Progress<'_>)) -> Result<(), CopyError> {
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
                told(self.progress(false, self.tally.rows));
            }
            Ok::<(), CopyError>(())
        })?;
        if waiting > 0 {
            put(&mut chunk, &mut waiting)?;
        }
        told(self.progress(false, self.tally.rows));
        self.columns = columns;
        Ok(())
    }

    /// Adds a row to the chunk; `false` when it cannot be kept and need not be.
    fn add(
        &mut self,
        columns: &[Column],
        cells: &[Cell<'_>],
        chunk: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, CopyError> {
        let mut fitted = Vec::with_capacity(cells.len());
        let mut unfit = 0;
        for (column, cell) in columns.iter().zip(cells) {
            let cell = match fit(column.kind, *cell) {
                Some(cell) => cell,
                // Rows that are made from events can do without.
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
                    Cell::Null
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
        let compared: Vec<Cell<'_>> = columns
            .iter()
            .zip(fitted)
            .filter(|(column, _)| column.kind != Kind::Beside)
            .map(|(_, cell)| cell)
            .collect();
        self.tally.add(&compared, scratch);
        Ok(true)
    }

    /// Reads the table back and compares.
    fn check(&self, told: &mut dyn FnMut(Progress<'_>)) -> Result<(), CopyError> {
        let at_once = (CHUNK_BYTES / self.row_bytes_max) as u64;
        let at_once = at_once.clamp(1, FETCH_ROWS_MAX);
        let (mut found, mut scratch) = (Tally::default(), Vec::new());
        self.target.rows(self.plan.name, &self.columns, at_once, |cells| {
            found.add(cells, &mut scratch);
            if found.rows % (FETCH_ROWS_MAX * 10) == 0 {
                told(self.progress(true, found.rows));
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

/// Where a column comes from.
fn expression(plan: &Plan, column: &Column) -> String {
    let other = plan.columns.iter().find(|(name, _)| *name == column.name);
    // Between quotes SQLite takes a name that it does not know for a text.
    other.map_or_else(|| format!("[{}]", column.name), |(_, other)| (*other).to_owned())
}

/// A value as its column takes it, the same in both ledgers.
fn fit(kind: Kind, cell: Cell<'_>) -> Option<Cell<'_>> {
    Some(match (kind, cell) {
        (_, Cell::Null)
        | (Kind::Integer, Cell::Integer(_))
        | (Kind::Text | Kind::Beside, Cell::Text(_))
        | (Kind::Bytes, Cell::Blob(_))
        | (Kind::Number, Cell::Integer(_)) => cell,
        (Kind::Number, Cell::Real(real)) => cell::number(&real.to_string())?,
        (Kind::Number, Cell::Text(text)) => cell::number(text)?,
        (Kind::Bytes, Cell::Text(text)) => Cell::Blob(text.as_bytes()),
        _ => return None,
    })
}
