//! The writer: one thread, one connection, group commit.
//!
//! Whatever waits is one transaction (see `group`); a lone event does not wait. An answer goes out only after the commit that holds it has returned, and never claims more than is known:
//!
//! ```text
//! error before COMMIT  -> rolled back, nothing kept        -> ledger_unavailable, go on
//! … of one event or task -> the group is written without it -> internal_error for it alone, go on
//! COMMIT fails         -> look again on a new connection   -> verdicts, or outcome_unknown; go on
//! a sync fails         -> nobody knows                     -> outcome_unknown, stop the process
//! a damaged file       -> rolled back, nothing kept        -> ledger_unavailable, stop the process
//! a key claimed twice  -> a promise is broken              -> internal_error, stop the process
//! the file is gone     -> nobody will ever find it         -> outcome_unknown, stop the process
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use admit_core::{Entry, Fault, FaultKind};
use admit_sqlite_log::Mark;
use admit_sqlite_log::mark::Reach;
use rusqlite::{Connection, OptionalExtension};

use super::batch::{Batch, BatchError, Position};
use super::checkpoint::Log;
use super::fault::{self, Severity};
use super::identity::InPlace;
use super::keys::KeyIndex;
use super::task::{Task, Tx};
use super::{Job, mark_check, open, queries};
use crate::common::RefusalQuota;
use crate::common::group::Group;
use crate::common::hang_watch::PROBE_IDLE_EVERY;
use crate::common::health::Health;
use crate::common::job::{Outcomes, answer_all, unfit};
use crate::common::news::News;
use crate::gauges::Gauges;

/// How often a writer that could not write tries whether the disk has healed, and one whose log is long
/// whether it can be shortened.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A sync is so short that waiting for company brings nothing (docs/performance.md).
const NO_COMPANY: usize = 0;

/// A disk with less room than this counts as full until an event has been stored on it.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// Everything the writer thread owns.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) in_place: InPlace,
    pub(super) conn: Connection,
    pub(super) mark: Arc<Mark>,
    pub(super) keys: KeyIndex,
    pub(super) position: Position,
    /// Commits with work other than recording, ever.
    pub(super) task_commits: u64,
    pub(super) tag: u32,
    pub(super) epoch: u64,
    pub(super) quota: RefusalQuota,
    pub(super) commit_events_max: usize,
    pub(super) log: Log,
    pub(super) health: Arc<Health>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) news: Arc<News>,
}

/// Why a group is not written.
enum Unwritten {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// The task at `index` is refused for what it contains; without it the others can be written.
    Unfit { index: usize, error: rusqlite::Error },
    /// None of it can.
    All(BatchError),
}

/// What a group is written without.
#[derive(Default)]
struct LeftOut {
    events: Vec<(usize, Fault)>,
    tasks: Vec<usize>,
}

impl<E: Into<BatchError>> From<E> for Unwritten {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

/// What to do after a group was answered.
enum After {
    GoOn,
    Stop,
}

impl Writer {
    /// Serves jobs until nobody can send any more, or until the ledger must stop.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Some(first) = self.wait(jobs) {
            if let After::Stop = self.serve_watched(Some(first), jobs) {
                break;
            }
            self.log.after_commit(&self.conn, &self.health);
            self.gauges.log_is(self.log.bytes());
        }
        // Not left to whoever closes the file last, who may be somebody who only looks.
        if self.health.takes_writes() {
            self.leave();
        }
        self.health.stopped();
        for job in jobs.try_iter() {
            job.fail(&Fault::new(FaultKind::Draining, "the ledger has stopped"));
        }
    }

    /// The last commit is made: copies what is left of the log, and clears the mark if all of it is copied.
    fn leave(&self) {
        let noted = match self.log.finish(&self.conn, &self.health) {
            true => self.mark.clear(self.reach()),
            // A reader holds on to the log; the last program that closes the file copies the rest.
            false => self.mark.end(),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, path = %self.mark.path().display(), "the mark could not be written");
        }
    }

    /// The next job; tries meanwhile whether a disk that failed has healed, or one that is idle still works.
    fn wait(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        loop {
            let takes_writes = self.health.takes_writes();
            let is_calm = takes_writes && !self.log.is_long();
            let patience = if is_calm { PROBE_IDLE_EVERY } else { PROBE_EVERY };
            match jobs.recv_timeout(patience) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if takes_writes => {
                    self.health.begins();
                    self.idle();
                    self.health.ends();
                }
                // An empty commit may find room where no event does.
                Err(RecvTimeoutError::Timeout) if !has_room(&self.path) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let After::Stop = self.serve_watched(None, jobs) {
                        return None;
                    }
                }
            }
        }
    }

    /// No event for a while: writes to the disk, and gives back a log that is longer than it needs to be.
    fn idle(&mut self) {
        let reach = self.reach();
        // A mark of a log that another program has emptied would have the ledger refused after a power cut.
        let noted = match self.log.is_emptied(&self.conn, &self.health) {
            true => self.mark.clear(reach),
            false => self.mark.probe(),
        };
        if let Err(error) = noted {
            let message = "the disk of the ledger takes no writes";
            // The next probe is a commit, which finds out what is wrong.
            self.health.failed(&Fault::caused_by(FaultKind::LedgerUnavailable, message, error));
            return;
        }
        let mark = &self.mark;
        self.log.give_back(&self.conn, &self.health, || mark.clear(reach));
        self.gauges.log_is(self.log.bytes());
    }

    fn reach(&self) -> Reach {
        Reach { last_seq: self.position.last_seq.0, tasks: self.task_commits }
    }

    fn serve_watched(&mut self, first: Option<Job>, jobs: &Receiver<Job>) -> After {
        self.health.begins();
        let after = self.serve(first, jobs);
        self.health.ends();
        after
    }

    /// One group: one transaction, then the answers. Without a first call it probes the disk.
    fn serve(&mut self, first: Option<Job>, jobs: &Receiver<Job>) -> After {
        let begun = Instant::now();
        let mut group = Group::new(first, jobs, self.commit_events_max, NO_COMPANY);
        let written = self.write(&mut group);
        let has_tasks = group.tasks().next().is_some();
        let group = group.into_jobs();
        self.gauges.calls_taken(group.len());
        let (outcomes, position) = match written {
            Ok(written) => written,
            Err(error) => return self.failed_before_commit(group, error),
        };
        match self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            Ok(_) => {}
            Err(error) => {
                let severity = fault::severity(&error);
                if severity == Severity::Passing && self.landed(position) {
                    tracing::warn!(%error, "a commit reported an error but is in the ledger");
                } else {
                    return self.failed_commit(group, severity, error);
                }
            }
        }
        if !self.in_place.is_there() {
            let message = "the ledger's file was removed or replaced while the gate was running";
            let gone = Fault::new(FaultKind::OutcomeUnknown, message);
            return self.give_up(group, Severity::Broken, &gone);
        }
        self.keys.committed();
        self.position = position;
        self.task_commits += u64::from(has_tasks);
        // Before anything is answered: what is acknowledged must be missed if it gets lost.
        let marked = self.mark.committed(self.reach());
        self.health.marked(marked.err());
        self.health.wrote();
        if !group.is_empty() {
            self.gauges.committed(outcomes.len(), begun.elapsed());
        }
        answer_all(group, outcomes, self.tag, &self.news);
        After::GoOn
    }

    /// Writes a group into an open transaction, leaving out events that cannot be recorded and tasks
    /// that are refused.
    fn write(
        &mut self,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<(Outcomes, Position), BatchError> {
        let mut without = LeftOut::default();
        loop {
            match self.write_without(&without, group) {
                Err(Unwritten::Poisoned { index, fault }) => {
                    tracing::error!(index, %fault, "an event cannot be recorded, its neighbours go on");
                    without.events.push((index, fault));
                }
                Err(Unwritten::Unfit { index, error }) => {
                    tracing::error!(index, %error, "a write command failed, the rest of its group goes on");
                    if let Some(task) = group.tasks().nth(index) {
                        task.left_out(&unfit(error));
                    }
                    without.tasks.push(index);
                }
                Err(Unwritten::All(error)) => return Err(error),
                Ok(written) => return Ok(written),
            }
            self.keys.rolled_back();
            roll_back(&self.conn)?;
            group.rewind();
        }
    }

    fn write_without(
        &mut self,
        without: &LeftOut,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<(Outcomes, Position), Unwritten> {
        let mut batch = Batch::begin(&self.conn, self.epoch, self.quota, self.position)?;
        let mut outcomes = VecDeque::new();
        let mut tasks = false;
        while let Some(job) = group.next() {
            tasks |= matches!(job, Job::Task(_));
            let issue = job.issue();
            // A lone key is looked for at once; for it this would be the same work twice.
            if job.entries().len() > 1 {
                self.keys.warm(job.entries().iter().filter_map(Entry::key));
            }
            for entry in job.entries() {
                let index = outcomes.len();
                if let Some((_, fault)) = without.events.iter().find(|(at, _)| *at == index) {
                    outcomes.push_back(Err(fault.clone()));
                    continue;
                }
                match batch.record(&self.keys, entry, issue) {
                    Ok(written) => outcomes.push_back(Ok(written)),
                    Err(BatchError::Poisoned(fault)) => {
                        return Err(Unwritten::Poisoned { index, fault });
                    }
                    Err(BatchError::Sqlite(error)) if fault::is_of_a_row(&error) => {
                        let fault = fault::damaged_row(error);
                        return Err(Unwritten::Poisoned { index, fault });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let position = batch.finish(&mut self.keys)?;
        if tasks {
            let mut tx = Tx { conn: &self.conn, keys: &mut self.keys };
            for (index, task) in group.tasks().enumerate() {
                if without.tasks.contains(&index) {
                    continue;
                }
                match task.write(&mut tx) {
                    Ok(()) => {}
                    // Some failures end the transaction, and then it is not only this task's.
                    Err(error) if fault::is_of_content(&error) && !self.conn.is_autocommit() => {
                        return Err(Unwritten::Unfit { index, error });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let mut put = self.conn.prepare_cached(queries::META_PUT)?;
            put.execute((mark_check::TASK_COMMITS, self.task_commits + 1))?;
        }
        Ok((outcomes, position))
    }

    /// Nothing was committed: say so and go on, unless a promise is broken.
    fn failed_before_commit(&mut self, group: Vec<Job>, error: BatchError) -> After {
        self.start_afresh();
        let (severity, fault) = match error {
            BatchError::Sqlite(error) => (fault::severity(&error), fault::unavailable(error)),
            BatchError::Poisoned(fault) => (Severity::Passing, fault),
            BatchError::Broken(error) => {
                let message =
                    "a key was claimed twice, the gate stops; keep a copy of the data folder";
                (Severity::Broken, Fault::caused_by(FaultKind::Internal, message, error))
            }
        };
        self.give_up(group, severity, &fault)
    }

    /// The commit failed and is not to be seen: nobody knows.
    fn failed_commit(
        &mut self,
        group: Vec<Job>,
        severity: Severity,
        error: rusqlite::Error,
    ) -> After {
        self.start_afresh();
        self.give_up(group, severity, &fault::unknown(error))
    }

    fn give_up(&self, group: Vec<Job>, severity: Severity, fault: &Fault) -> After {
        self.gauges.commit_failed();
        // An outage is told when it begins and when it ends; every probe in between would drown it.
        if self.health.takes_writes() {
            let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%fault, source, ?severity, calls = group.len(), "the ledger could not commit");
        }
        for job in group {
            job.fail(fault);
        }
        match severity {
            Severity::Passing => {
                self.health.failed(fault);
                After::GoOn
            }
            Severity::SyncFailed => {
                self.health.must_stop(fault);
                After::Stop
            }
            Severity::Broken => {
                // Producers may come again; for whoever runs the gate it is nothing that passes.
                let passes = fault.kind == FaultKind::LedgerUnavailable;
                let kind = if passes { FaultKind::Internal } else { fault.kind };
                self.health.must_stop(&Fault { kind, ..fault.clone() });
                After::Stop
            }
        }
    }

    /// Whether the transaction that should have led to `position` is in the ledger, asked on a
    /// connection that has no memory of it.
    fn landed(&self, position: Position) -> bool {
        let look = || -> rusqlite::Result<Option<u64>> {
            let fresh = open::reading(&self.path)?;
            fresh.prepare(queries::META_GET)?.query_row(["last_seq"], |row| row.get(0)).optional()
        };
        position != self.position && matches!(look(), Ok(Some(seq)) if seq == position.last_seq.0)
    }

    /// After a failure: forgets what was not committed and takes a new connection. What the old one
    /// has cached is not believed, and one opened while the disk was read-only would stay so.
    fn start_afresh(&mut self) {
        self.keys.rolled_back();
        let afresh = roll_back(&self.conn).and_then(|()| {
            self.conn = open::writing(&self.path)?;
            admit_sqlite_log::mark_generations(&self.conn, &self.mark)?;
            self.log.watch(&mut self.conn)
        });
        if let Err(error) = afresh {
            tracing::debug!(%error, "the ledger could not open a new connection");
        }
    }
}

/// Whether the disk has room for more than an empty commit. Where that cannot be asked, it is tried.
fn has_room(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM_BYTES_MIN)
}

fn roll_back(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() {
        return Ok(());
    }
    conn.execute_batch("ROLLBACK")
}
