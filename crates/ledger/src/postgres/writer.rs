//! The writer: one thread, one connection, group commit.
//!
//! Everything in the queue is one transaction; nothing waits for more calls. Gates take turns: a transaction
//! first locks the head of the ledger, and while it waits for the lock, more calls join it. A reply is sent only after COMMIT has returned, and never claims more than is known:
//!
//! ```text
//! connection lost before COMMIT -> nothing stored, retried on a new one -> verdicts, or
//! any other error before COMMIT -> rolled back, nothing stored          -> ledger_unavailable
//! no reply to COMMIT            -> resolved by its commit token         -> verdicts, or a retry, or
//!                                  … not in time                        -> outcome_unknown, keep trying
//! a key claimed twice           -> an invariant is broken               -> outcome_unknown, stop
//! ```

mod group;
mod lease;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind, Horizon};
use tokio::runtime::Runtime;

use super::WriteCommand;
use super::batch::BatchError;
use super::commit_token::{self, CommitOutcome, Token};
use super::conn::{self, Conn};
use super::connect::Connector;
use super::fault;
use super::partitions::Partitions;
use super::write_op::ErasedWriteOp;
use crate::common::RefusalQuota;
use crate::common::commit_batch::CommitBatch;
use crate::common::hang_watch::PROBE_IDLE_EVERY;
use crate::common::health::Health;
use crate::common::notifier::Notifier;
use crate::common::write_command::{Outcomes, reply_all};
use crate::gauges::Gauges;
pub(super) use lease::{Epochs, GateLease};

/// How often a writer that could not write probes the database.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// State of the writer thread.
pub(super) struct Writer {
    pub(super) connector: Connector,
    pub(super) runtime: Arc<Runtime>,
    /// `None` after a failure, until the next connection is made.
    pub(super) conn: Option<Conn>,
    pub(super) tag: u32,
    pub(super) lease: GateLease,
    pub(super) partitions: Partitions,
    pub(super) quota: RefusalQuota,
    pub(super) commit_events_max: usize,
    /// Retention horizon; other gates may advance it too.
    pub(super) horizon: Horizon,
    /// How long callers wait while the outcome of a commit is unknown.
    pub(super) resolve_max: Duration,
    pub(super) health: Arc<Health>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) notifier: Arc<Notifier>,
    /// A commit with an unknown outcome. Nothing else is written before it is resolved.
    pub(super) unresolved: Option<UnresolvedCommit>,
}

/// A batch whose COMMIT got no reply.
pub(super) struct UnresolvedCommit {
    token: Token,
    commands: Vec<WriteCommand>,
    outcomes: Outcomes,
}

impl UnresolvedCommit {
    /// Drops what is to be performed: others may have treated this gate as dead meanwhile, and an operator
    /// may have found the effects absent. They are ambiguous like all effects of dead gates.
    fn without_effects(self) -> Self {
        let Self { token, mut commands, mut outcomes } = self;
        let mut kept = Outcomes::new();
        commands.retain(|command| {
            let mut own: Outcomes = outcomes.drain(..command.entries().len()).collect();
            let is_performed = matches!(command, WriteCommand::RecordIssuing { .. });
            if !is_performed {
                kept.append(&mut own);
            }
            !is_performed
        });
        Self { token, commands, outcomes: kept }
    }
}

/// A transaction before its COMMIT.
struct PreparedBatch {
    token: Token,
    outcomes: Outcomes,
}

/// Why a batch is not in the ledger, or may not be.
enum WriteError {
    /// Nothing of it was stored.
    Before(BatchError),
    /// COMMIT was sent and got no reply.
    NoReply(PreparedBatch, conn::Error),
}

impl<E: Into<BatchError>> From<E> for WriteError {
    fn from(error: E) -> Self {
        Self::Before(error.into())
    }
}

/// What to do after a batch was replied to.
#[derive(PartialEq, Eq)]
enum AfterGroup {
    Continue,
    Stop,
}

impl Writer {
    /// Serves commands until all senders are gone, or until the ledger must stop.
    pub(super) fn run(mut self, commands: &Receiver<WriteCommand>) {
        while let Some(first) = self.wait(commands) {
            self.health.begins();
            let after = self.serve(first, commands);
            self.health.ends();
            if after == AfterGroup::Stop {
                break;
            }
        }
        self.health.stopped();
        for command in commands.try_iter() {
            command.fail(&Fault::new(FaultKind::Draining, "the ledger has stopped"));
        }
        self.stop();
    }

    /// Returns the next command, or no command when the lease has to be renewed or the database probed. `None`
    /// when all senders are gone.
    fn wait(&mut self, commands: &Receiver<WriteCommand>) -> Option<Option<WriteCommand>> {
        let patience = match self.health.takes_writes() {
            true => self.lease.until_due().min(PROBE_IDLE_EVERY),
            false => PROBE_EVERY,
        };
        match commands.recv_timeout(patience) {
            Ok(command) => Some(Some(command)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Serves one batch: one transaction, then the replies. Without a first command it renews the lease and
    /// probes the database.
    fn serve(
        &mut self,
        first: Option<WriteCommand>,
        commands: &Receiver<WriteCommand>,
    ) -> AfterGroup {
        let begun = Instant::now();
        let mut group = CommitBatch::new(first, commands, self.commit_events_max);
        if let Err(error) = self.settle_unresolved(Duration::ZERO) {
            let fault = fault::unavailable(error);
            let commands = group.into_commands();
            self.gauges.calls_taken(commands.len());
            return self.give_up(commands, &fault);
        }
        let written = self.write_twice(&mut group);
        let commands = group.into_commands();
        self.gauges.calls_taken(commands.len());
        match written {
            Ok(prepared) => {
                self.health.wrote();
                if !commands.is_empty() {
                    self.gauges.committed(prepared.outcomes.len(), begun.elapsed());
                }
                reply_all(commands, prepared.outcomes, self.tag, &self.notifier);
                AfterGroup::Continue
            }
            Err(WriteError::Before(error)) => self.failed_before_commit(commands, error),
            Err(WriteError::NoReply(prepared, error)) => {
                self.keep_unresolved(commands, prepared, error);
                AfterGroup::Continue
            }
        }
    }

    /// Writes and commits a batch. If its connection was lost and it is certainly not in the ledger, it is
    /// retried once, so that a restart of the database loses no event.
    fn write_twice(
        &mut self,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<PreparedBatch, WriteError> {
        let was_connected = self.conn.is_some();
        let failed = match self.write_and_commit(group) {
            Ok(prepared) => return Ok(prepared),
            Err(failed) => failed,
        };
        match failed {
            WriteError::Before(BatchError::Server(error))
                if was_connected && self.conn.is_none() =>
            {
                tracing::debug!(%error, "the connection to the database was lost before a commit");
            }
            WriteError::Before(error) => return Err(WriteError::Before(error)),
            WriteError::NoReply(prepared, error) => {
                tracing::warn!(%error, "no reply to a commit; resolving it by its token");
                match self.resolve(prepared.token, self.resolve_max) {
                    Ok(CommitOutcome::Committed) => return Ok(prepared),
                    Ok(CommitOutcome::Never) => {}
                    Err(_) => return Err(WriteError::NoReply(prepared, error)),
                }
            }
        }
        group.rewind();
        match self.write_and_commit(group) {
            Err(WriteError::NoReply(prepared, error)) => {
                match self.resolve(prepared.token, self.resolve_max) {
                    Ok(CommitOutcome::Committed) => Ok(prepared),
                    Ok(CommitOutcome::Never) => Err(WriteError::Before(error.into())),
                    Err(_) => Err(WriteError::NoReply(prepared, error)),
                }
            }
            written => written,
        }
    }

    fn write_and_commit(
        &mut self,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<PreparedBatch, WriteError> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connector.own(&self.runtime)?,
        };
        let committed = self.write(&conn, group);
        match &committed {
            Ok(_) => self.lease.committed(),
            Err(WriteError::Before(_)) => {
                self.lease.rolled_back();
                self.partitions.forget();
            }
            Err(WriteError::NoReply(..)) => {}
        }
        match &committed {
            Ok(_) => self.conn = Some(conn),
            Err(WriteError::Before(error)) if is_of_use(&conn, error) => self.conn = Some(conn),
            Err(_) => {}
        }
        committed
    }

    /// Resolves the outcome of a transaction. The writer keeps the connection used for that.
    fn resolve(&mut self, token: Token, within: Duration) -> conn::Result<CommitOutcome> {
        let epoch = self.lease.epoch();
        let (resolve, conn) =
            commit_token::resolve(&self.connector, &self.runtime, token, epoch, within)?;
        if resolve == CommitOutcome::Committed {
            self.lease.committed();
            tracing::info!("the commit without a reply is in the ledger");
        } else {
            self.lease.rolled_back();
            self.partitions.forget();
        }
        self.conn = Some(conn);
        Ok(resolve)
    }

    /// Resolves the outcome of an open commit, before anything else is written.
    fn settle_unresolved(&mut self, within: Duration) -> conn::Result<()> {
        let Some(unresolved) = self.unresolved.take() else { return Ok(()) };
        match self.resolve(unresolved.token, within) {
            Ok(CommitOutcome::Committed) => {
                // The callers got outcome_unknown already; the effects to perform were not handed over yet.
                let unresolved = if self.lease.has_expired() {
                    unresolved.without_effects()
                } else {
                    unresolved
                };
                reply_all(unresolved.commands, unresolved.outcomes, self.tag, &self.notifier);
                Ok(())
            }
            Ok(CommitOutcome::Never) => Ok(()),
            Err(error) => {
                self.unresolved = Some(unresolved);
                Err(error)
            }
        }
    }

    /// Nothing was committed: replies so and continues, unless an invariant is broken.
    fn failed_before_commit(
        &mut self,
        commands: Vec<WriteCommand>,
        error: BatchError,
    ) -> AfterGroup {
        let fault = match error {
            BatchError::Server(error) => fault::unavailable(error),
            BatchError::Poisoned(fault) => fault,
            BatchError::ClaimedTwice(error) => {
                let message =
                    "a key was claimed twice, the gate stops; keep a copy of the database";
                let fault = Fault::caused_by(FaultKind::Internal, message, error);
                self.give_up(commands, &fault);
                self.health.must_stop(&fault);
                return AfterGroup::Stop;
            }
            BatchError::Replaced => {
                let message = "another gate has started under this gate's id, so this one stops; give each \
                     its own ledger.gate_id";
                return self.stop_replaced(commands, message);
            }
            BatchError::BusTaken => {
                let message = "the lease of this gate ran out and another gate has taken its bus, a copy of \
                     the folder, so this one stops; keep one of the folders, and have all gates share one \
                     bus or close the doors that publish";
                return self.stop_replaced(commands, message);
            }
        };
        self.give_up(commands, &fault)
    }

    /// Another gate has replaced this one, which stops.
    fn stop_replaced(&self, commands: Vec<WriteCommand>, message: &'static str) -> AfterGroup {
        let fault = Fault::new(FaultKind::LedgerUnavailable, message);
        self.give_up(commands, &fault);
        self.health.must_stop(&fault);
        AfterGroup::Stop
    }

    /// The commit got no reply and its outcome could not be resolved: replies outcome_unknown, and keeps the
    /// outcomes until it can be.
    fn keep_unresolved(
        &mut self,
        mut commands: Vec<WriteCommand>,
        prepared: PreparedBatch,
        error: conn::Error,
    ) {
        let fault = fault::unknown(error);
        self.gauges.commit_failed();
        self.log_failure(&fault, commands.len());
        self.health.failed(&fault);
        for command in &mut commands {
            group::reply_unknown(command, &fault);
        }
        let PreparedBatch { token, outcomes } = prepared;
        self.unresolved = Some(UnresolvedCommit { token, commands, outcomes });
    }

    fn give_up(&self, commands: Vec<WriteCommand>, fault: &Fault) -> AfterGroup {
        self.gauges.commit_failed();
        self.log_failure(fault, commands.len());
        // Readiness first, then the replies: a caller may check readiness when it gets the failure.
        self.health.failed(fault);
        for command in commands {
            command.fail(fault);
        }
        AfterGroup::Continue
    }

    /// Logs the start of an outage, not every probe in between.
    fn log_failure(&self, fault: &Fault, calls: usize) {
        if self.health.takes_writes() {
            let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%fault, source, calls, "the ledger could not commit");
        }
    }

    /// Shutdown: ends the lease, so that other gates recover its effects at once.
    fn stop(mut self) {
        let conn = match self.conn.take() {
            Some(conn) => Ok(conn),
            None => self.connector.own(&self.runtime),
        };
        if let Err(error) = conn.and_then(|conn| self.lease.release(&conn)) {
            tracing::warn!(%error, "failed to release the lease on shutdown; it will expire");
        }
    }
}

/// Whether a connection can be used again after an error: it is open, has rolled back, and its server is
/// not read-only.
fn is_of_use(conn: &Conn, error: &BatchError) -> bool {
    let is_read_only = matches!(error, BatchError::Server(error) if fault::is_read_only(error));
    !is_read_only && !conn.is_lost() && conn.batch("ROLLBACK").is_ok()
}
