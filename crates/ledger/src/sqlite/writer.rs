//! The writer: one thread, one connection, group commit.
//!
//! Everything in the queue is one transaction (see `commit_batch`); a lone event does not wait. A reply is
//! sent only after COMMIT has returned, and never claims more than is known:
//!
//! ```text
//! error before COMMIT  -> rolled back, nothing stored       -> ledger_unavailable, continue
//! … of one event or op -> the batch is written without it   -> internal_error for it alone, continue
//! COMMIT fails         -> checked on a new connection       -> verdicts, or outcome_unknown; continue
//! a sync fails         -> outcome unknown                   -> outcome_unknown, stop the process
//! a damaged file       -> rolled back, nothing stored       -> ledger_unavailable, stop the process
//! a key claimed twice  -> an invariant is broken            -> internal_error, stop the process
//! the file is gone     -> the commit is lost                -> outcome_unknown, stop the process
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use admit_core::{Entry, Fault, FaultKind};
use admit_sqlite_log::mark::CommitPosition;
use admit_sqlite_log::{Mark, WalConnection, WalWrites};
use rusqlite::{Connection, OptionalExtension};

use super::batch::{Batch, BatchError, Position};
use super::checkpoint::WalHandle;
use super::fault::{self, Severity};
use super::identity::OpenedFile;
use super::keys::KeyIndex;
use super::write_op::{ErasedWriteOp, Tx};
use super::{WriteCommand, mark_check, open, queries};
use crate::common::RefusalQuota;
use crate::common::commit_batch::CommitBatch;
use crate::common::hang_watch::PROBE_IDLE_EVERY;
use crate::common::health::Health;
use crate::common::notifier::Notifier;
use crate::common::write_command::{Outcomes, rejected, reply_all};
use crate::gauges::Gauges;

/// How often a writer whose last write failed probes the disk, and one with a long WAL tries to shorten
/// it.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A disk with less free space counts as full until an event has been stored on it.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// State of the writer thread.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) opened_file: OpenedFile,
    pub(super) conn: WalConnection,
    pub(super) wal_writes: WalWrites,
    pub(super) mark: Arc<Mark>,
    pub(super) keys: KeyIndex,
    pub(super) position: Position,
    /// Number of commits with write operations, ever.
    pub(super) task_commits: u64,
    pub(super) tag: u32,
    pub(super) epoch: u64,
    pub(super) quota: RefusalQuota,
    pub(super) commit_events_max: usize,
    pub(super) log: WalHandle,
    pub(super) health: Arc<Health>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) notifier: Arc<Notifier>,
}

/// Why a batch is not written.
enum GroupError {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// The operation at `index` was rejected for its content; without it the others can be written.
    Rejected { index: usize, error: rusqlite::Error },
    /// The whole batch failed.
    All(BatchError),
}

/// Events and operations that a batch is written without.
#[derive(Default)]
struct SkippedItems {
    events: Vec<(usize, Fault)>,
    ops: Vec<usize>,
}

impl<E: Into<BatchError>> From<E> for GroupError {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

/// What to do after a batch was replied to.
enum AfterGroup {
    Continue,
    Stop,
}

impl Writer {
    /// Serves commands until all senders are gone, or until the ledger must stop.
    pub(super) fn run(mut self, commands: &Receiver<WriteCommand>) {
        while let Some(first) = self.wait(commands) {
            if let AfterGroup::Stop = self.serve_watched(Some(first), commands) {
                break;
            }
            self.log.after_commit(&self.conn, &self.health);
            self.gauges.log_is(self.log.bytes());
        }
        // Checkpoint here; otherwise the last closer, possibly a read-only CLI, would have to.
        if self.health.takes_writes() {
            self.shut_down();
        }
        self.health.stopped();
        for command in commands.try_iter() {
            command.fail(&Fault::new(FaultKind::Draining, "the ledger has stopped"));
        }
    }

    /// Final checkpoint: copies the rest of the WAL, and clears the mark if all of it was copied.
    fn shut_down(&self) {
        let noted = match self.log.finish(&self.conn, &self.health) {
            true => self.mark.clear(self.reach()),
            // A reader holds the WAL; the last program that closes the file copies the rest.
            false => self.mark.finish(),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, path = %self.mark.path().display(), "the mark could not be written");
        }
    }

    /// Returns the next command; meanwhile probes a failed or idle disk.
    fn wait(&mut self, commands: &Receiver<WriteCommand>) -> Option<WriteCommand> {
        loop {
            let takes_writes = self.health.takes_writes();
            let is_calm = takes_writes && !self.log.is_long();
            let patience = if is_calm { PROBE_IDLE_EVERY } else { PROBE_EVERY };
            match commands.recv_timeout(patience) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if takes_writes => {
                    self.health.begins();
                    self.idle();
                    self.health.ends();
                }
                // An empty commit may find space where no event does.
                Err(RecvTimeoutError::Timeout) if !has_room(&self.path) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let AfterGroup::Stop = self.serve_watched(None, commands) {
                        return None;
                    }
                }
            }
        }
    }

    /// Idle: probes the disk, and shortens a WAL that is longer than needed.
    fn idle(&mut self) {
        let reach = self.reach();
        // A mark of a WAL that another program has emptied would have the ledger refused after a power cut.
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
        self.log.shrink(&self.conn, &self.health, || mark.clear(reach));
        self.gauges.log_is(self.log.bytes());
    }

    fn reach(&self) -> CommitPosition {
        CommitPosition { last_seq: self.position.last_seq.0, tasks: self.task_commits }
    }

    fn serve_watched(
        &mut self,
        first: Option<WriteCommand>,
        commands: &Receiver<WriteCommand>,
    ) -> AfterGroup {
        self.health.begins();
        let after = self.serve(first, commands);
        self.health.ends();
        after
    }

    /// Serves one batch: one transaction, then the replies. Without a first command it probes the disk.
    fn serve(
        &mut self,
        first: Option<WriteCommand>,
        commands: &Receiver<WriteCommand>,
    ) -> AfterGroup {
        let begun = Instant::now();
        let mut group = CommitBatch::new(first, commands, self.commit_events_max);
        let written = self.write(&mut group);
        let has_tasks = group.ops().next().is_some();
        let group = group.into_commands();
        self.gauges.calls_taken(group.len());
        let (outcomes, position) = match written {
            Ok(written) => written,
            Err(error) => return self.failed_before_commit(group, error),
        };
        match self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            Ok(_) => {}
            Err(error) => {
                let severity = fault::severity(&error);
                if severity == Severity::Passing && self.is_committed(position) {
                    tracing::warn!(%error, "a commit reported an error but is in the ledger");
                } else {
                    return self.failed_commit(group, severity, error);
                }
            }
        }
        if !self.opened_file.is_there() {
            let message = "the ledger's file was removed or replaced while the gate was running";
            let gone = Fault::new(FaultKind::OutcomeUnknown, message);
            return self.give_up(group, Severity::Broken, &gone);
        }
        self.keys.committed();
        self.position = position;
        self.task_commits += u64::from(has_tasks);
        // Before the replies: the loss of what was acknowledged must be detected.
        let marked = self.mark.committed(self.reach());
        self.health.marked(marked.err());
        self.health.wrote();
        if !group.is_empty() {
            self.gauges.committed(outcomes.len(), begun.elapsed());
        }
        reply_all(group, outcomes, self.tag, &self.notifier);
        AfterGroup::Continue
    }

    /// Writes a batch into an open transaction, leaving out events that cannot be recorded and rejected
    /// operations.
    fn write(
        &mut self,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<(Outcomes, Position), BatchError> {
        let mut skipped = SkippedItems::default();
        loop {
            match self.write_without(&skipped, group) {
                Err(GroupError::Poisoned { index, fault }) => {
                    tracing::error!(index, %fault, "skipped an event that cannot be recorded; rest of the batch continues");
                    skipped.events.push((index, fault));
                }
                Err(GroupError::Rejected { index, error }) => {
                    tracing::error!(index, %error, "skipped a write operation that the database rejected; rest of the batch continues");
                    if let Some(op) = group.ops().nth(index) {
                        op.left_out(&rejected(error));
                    }
                    skipped.ops.push(index);
                }
                Err(GroupError::All(error)) => return Err(error),
                Ok(written) => return Ok(written),
            }
            self.keys.rolled_back();
            roll_back(&self.conn)?;
            group.rewind();
        }
    }

    fn write_without(
        &mut self,
        skipped: &SkippedItems,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<(Outcomes, Position), GroupError> {
        let mut batch = Batch::begin(&self.conn, self.epoch, self.quota, self.position)?;
        let mut outcomes = VecDeque::new();
        let mut ops = false;
        while let Some(command) = group.next() {
            ops |= matches!(command, WriteCommand::Op(_));
            let issue = command.issue();
            // A single key is looked up right away; prefetching it would do the same work twice.
            if command.entries().len() > 1 {
                self.keys.prefetch(command.entries().iter().filter_map(Entry::key));
            }
            for entry in command.entries() {
                let index = outcomes.len();
                if let Some((_, fault)) = skipped.events.iter().find(|(at, _)| *at == index) {
                    outcomes.push_back(Err(fault.clone()));
                    continue;
                }
                match batch.record(&self.keys, entry, issue) {
                    Ok(written) => outcomes.push_back(Ok(written)),
                    Err(BatchError::Poisoned(fault)) => {
                        return Err(GroupError::Poisoned { index, fault });
                    }
                    Err(BatchError::Sqlite(error)) if fault::is_of_a_row(&error) => {
                        let fault = fault::damaged_row(error);
                        return Err(GroupError::Poisoned { index, fault });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let position = batch.finish(&mut self.keys)?;
        if ops {
            let mut tx = Tx { conn: &self.conn, keys: &mut self.keys };
            for (index, op) in group.ops().enumerate() {
                if skipped.ops.contains(&index) {
                    continue;
                }
                match op.write(&mut tx) {
                    Ok(()) => {}
                    // Some failures end the transaction and so concern the whole batch.
                    Err(error) if fault::is_of_content(&error) && !self.conn.is_autocommit() => {
                        return Err(GroupError::Rejected { index, error });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let mut put = self.conn.prepare_cached(queries::META_PUT)?;
            put.execute((mark_check::TASK_COMMITS, self.task_commits + 1))?;
        }
        Ok((outcomes, position))
    }

    /// Nothing was committed: replies so and continues, unless an invariant is broken.
    fn failed_before_commit(&mut self, group: Vec<WriteCommand>, error: BatchError) -> AfterGroup {
        self.reset_connection();
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

    /// The commit failed and was not found in the ledger: its outcome is unknown.
    fn failed_commit(
        &mut self,
        group: Vec<WriteCommand>,
        severity: Severity,
        error: rusqlite::Error,
    ) -> AfterGroup {
        self.reset_connection();
        self.give_up(group, severity, &fault::unknown(error))
    }

    fn give_up(&self, group: Vec<WriteCommand>, severity: Severity, fault: &Fault) -> AfterGroup {
        self.gauges.commit_failed();
        // Logged at the start and the end of an outage, not at every probe in between.
        if self.health.takes_writes() {
            let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%fault, source, ?severity, calls = group.len(), "the ledger could not commit");
        }
        for command in group {
            command.fail(fault);
        }
        match severity {
            Severity::Passing => {
                self.health.failed(fault);
                AfterGroup::Continue
            }
            Severity::SyncFailed => {
                self.health.must_stop(fault);
                AfterGroup::Stop
            }
            Severity::Broken => {
                // Producers may retry; for the operator the failure is permanent.
                let passes = fault.kind == FaultKind::LedgerUnavailable;
                let kind = if passes { FaultKind::Internal } else { fault.kind };
                self.health.must_stop(&Fault { kind, ..fault.clone() });
                AfterGroup::Stop
            }
        }
    }

    /// Whether the transaction that should have led to `position` is in the ledger, checked on a
    /// connection without cached state.
    fn is_committed(&self, position: Position) -> bool {
        let look = || -> rusqlite::Result<Option<u64>> {
            let fresh = open::open_reader(&self.path)?;
            fresh.prepare(queries::META_GET)?.query_row(["last_seq"], |row| row.get(0)).optional()
        };
        position != self.position && matches!(look(), Ok(Some(seq)) if seq == position.last_seq.0)
    }

    /// After a failure: discards uncommitted state and opens a new connection. The cache of the old one is
    /// not trusted, and one opened while the disk was read-only would stay read-only.
    fn reset_connection(&mut self) {
        self.keys.rolled_back();
        let afresh = roll_back(&self.conn).and_then(|()| {
            self.conn = open::open_writer(&self.path, self.wal_writes)?;
            open::mark_generations(&self.conn, self.wal_writes, &self.mark)?;
            self.log.watch(&mut self.conn)
        });
        if let Err(error) = afresh {
            tracing::debug!(%error, "could not open a new connection to the ledger");
        }
    }
}

/// Whether the disk has space for more than an empty commit. Assumes so if that cannot be queried.
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
