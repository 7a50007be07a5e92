//! The writer: one thread, one connection, group commit.
//!
//! Whatever waits is one transaction (see `group`); a lone event does not wait. Gates take turns: a
//! transaction first locks the head of the ledger, and while it waits for that, more calls join it.
//! An answer goes out only after the commit that holds it has returned, and never claims more than
//! is known:
//!
//! ```text
//! connection lost before COMMIT -> nothing kept, once more on a new one -> verdicts, or
//! any other error before COMMIT -> rolled back, nothing kept            -> ledger_unavailable
//! COMMIT unanswered             -> the token tells (see `token`)        -> verdicts, or once more, or
//!                                  … not in time                        -> outcome_unknown, go on asking
//! a key claimed twice           -> a promise is broken                  -> outcome_unknown, stop
//! ```

mod group;
mod lease;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind, Horizon};
use tokio::runtime::Runtime;

use super::Job;
use super::batch::BatchError;
use super::conn::{self, Conn};
use super::connect::Connector;
use super::fault;
use super::growth::Growth;
use super::task::Task;
use super::token::{self, Fate, Token};
use crate::common::RefusalQuota;
use crate::common::group::Group;
use crate::common::hang_watch::PROBE_IDLE_EVERY;
use crate::common::health::Health;
use crate::common::job::{Outcomes, answer_all};
use crate::common::news::News;
use crate::gauges::Gauges;
pub(super) use lease::{Epochs, Lease};

/// How often a writer that could not write tries whether the database is back.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// Everything the writer thread owns.
pub(super) struct Writer {
    pub(super) connector: Connector,
    pub(super) runtime: Arc<Runtime>,
    /// None after a failure, until the next one is made.
    pub(super) conn: Option<Conn>,
    pub(super) tag: u32,
    pub(super) lease: Lease,
    pub(super) growth: Growth,
    pub(super) quota: RefusalQuota,
    pub(super) commit_events_max: usize,
    /// How far back this ledger remembers; other gates may forget too.
    pub(super) horizon: Horizon,
    /// How long whoever waits is kept waiting while the fate of a commit is not known.
    pub(super) fate_max: Duration,
    pub(super) health: Arc<Health>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) news: Arc<News>,
    /// How many calls shared the last commit.
    pub(super) last_company: usize,
    /// A commit of which nobody knows yet what became of it. Nothing else is written before.
    pub(super) unknown: Option<Unknown>,
}

/// A group whose COMMIT was not answered.
pub(super) struct Unknown {
    token: Token,
    jobs: Vec<Job>,
    outcomes: Outcomes,
}

impl Unknown {
    /// The same without what is to be performed: others may have taken this gate for dead meanwhile,
    /// and a person may have found that nothing was done. It is ambiguous like all that the dead leave.
    fn unperformed(self) -> Self {
        let Self { token, mut jobs, mut outcomes } = self;
        let mut kept = Outcomes::new();
        jobs.retain(|job| {
            let mut own: Outcomes = outcomes.drain(..job.entries().len()).collect();
            let is_performed = matches!(job, Job::RecordIssuing { .. });
            if !is_performed {
                kept.append(&mut own);
            }
            !is_performed
        });
        Self { token, jobs, outcomes: kept }
    }
}

/// What a transaction was about to commit.
struct Prepared {
    token: Token,
    outcomes: Outcomes,
}

/// Why a group is not in the ledger, or may not be.
enum Failed {
    /// Nothing of it was kept.
    Before(BatchError),
    /// COMMIT was sent and not answered.
    Unanswered(Prepared, conn::Error),
}

impl<E: Into<BatchError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Before(error.into())
    }
}

/// What to do after a group was answered.
#[derive(PartialEq, Eq)]
enum After {
    GoOn,
    Stop,
}

impl Writer {
    /// Serves jobs until nobody can send any more, or until the ledger must stop.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Some(first) = self.wait(jobs) {
            self.health.begins();
            let after = self.serve(first, jobs);
            self.health.ends();
            if after == After::Stop {
                break;
            }
        }
        self.health.stopped();
        for job in jobs.try_iter() {
            job.fail(&Fault::new(FaultKind::Draining, "the ledger has stopped"));
        }
        self.stop();
    }

    /// The next job; or none, when it is time to say that the gate is alive, or to try whether the
    /// database takes commits. Ends when nobody can send any more.
    fn wait(&mut self, jobs: &Receiver<Job>) -> Option<Option<Job>> {
        let patience = match self.health.takes_writes() {
            true => self.lease.until_due().min(PROBE_IDLE_EVERY),
            false => PROBE_EVERY,
        };
        match jobs.recv_timeout(patience) {
            Ok(job) => Some(Some(job)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// One group: one transaction, then the answers. Without a first call it renews the lease and
    /// shows whether the database can be written to.
    fn serve(&mut self, first: Option<Job>, jobs: &Receiver<Job>) -> After {
        let begun = Instant::now();
        let mut group = Group::new(first, jobs, self.commit_events_max, self.last_company);
        if let Err(error) = self.settle_unknown(Duration::ZERO) {
            let fault = fault::unavailable(error);
            let jobs = group.into_jobs();
            self.gauges.calls_taken(jobs.len());
            return self.give_up(jobs, &fault);
        }
        let written = self.write_twice(&mut group);
        let jobs = group.into_jobs();
        self.last_company = jobs.len();
        self.gauges.calls_taken(jobs.len());
        match written {
            Ok(prepared) => {
                self.health.wrote();
                if !jobs.is_empty() {
                    self.gauges.committed(prepared.outcomes.len(), begun.elapsed());
                }
                answer_all(jobs, prepared.outcomes, self.tag, &self.news);
                After::GoOn
            }
            Err(Failed::Before(error)) => self.failed_before_commit(jobs, error),
            Err(Failed::Unanswered(prepared, error)) => {
                self.not_known_yet(jobs, prepared, error);
                After::GoOn
            }
        }
    }

    /// Writes and commits a group. What was lost with its connection and is certainly not in the
    /// ledger is done a second time, so that a restart of the database costs nobody an event.
    fn write_twice(&mut self, group: &mut Group<'_, Box<dyn Task>>) -> Result<Prepared, Failed> {
        let was_connected = self.conn.is_some();
        let failed = match self.write_and_commit(group) {
            Ok(prepared) => return Ok(prepared),
            Err(failed) => failed,
        };
        match failed {
            Failed::Before(BatchError::Server(error)) if was_connected && self.conn.is_none() => {
                tracing::debug!(%error, "the connection to the database was lost before a commit");
            }
            Failed::Before(error) => return Err(Failed::Before(error)),
            Failed::Unanswered(prepared, error) => {
                tracing::warn!(%error, "a commit was not answered, asking what became of it");
                match self.fate(prepared.token, self.fate_max) {
                    Ok(Fate::Landed) => return Ok(prepared),
                    Ok(Fate::Never) => {}
                    Err(_) => return Err(Failed::Unanswered(prepared, error)),
                }
            }
        }
        group.rewind();
        match self.write_and_commit(group) {
            Err(Failed::Unanswered(prepared, error)) => {
                match self.fate(prepared.token, self.fate_max) {
                    Ok(Fate::Landed) => Ok(prepared),
                    Ok(Fate::Never) => Err(Failed::Before(error.into())),
                    Err(_) => Err(Failed::Unanswered(prepared, error)),
                }
            }
            written => written,
        }
    }

    fn write_and_commit(
        &mut self,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<Prepared, Failed> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connector.own(&self.runtime)?,
        };
        let written = self.write(&conn, group);
        let committed = match written {
            Ok(prepared) => match conn.batch("COMMIT") {
                Ok(()) => {
                    self.lease.committed();
                    Ok(prepared)
                }
                Err(error) => Err(Failed::Unanswered(prepared, error)),
            },
            Err(error) => {
                self.lease.rolled_back();
                self.growth.forget();
                Err(Failed::Before(error))
            }
        };
        match &committed {
            Ok(_) => self.conn = Some(conn),
            Err(Failed::Before(error)) if is_of_use(&conn, error) => self.conn = Some(conn),
            Err(_) => {}
        }
        committed
    }

    /// What became of a transaction. The connection that could tell is the writer's from here on.
    fn fate(&mut self, token: Token, within: Duration) -> conn::Result<Fate> {
        let epoch = self.lease.epoch();
        let (fate, conn) = token::fate(&self.connector, &self.runtime, token, epoch, within)?;
        if fate == Fate::Landed {
            self.lease.committed();
            tracing::info!("a commit that was not answered is in the ledger");
        } else {
            self.lease.rolled_back();
            self.growth.forget();
        }
        self.conn = Some(conn);
        Ok(fate)
    }

    /// Finds out what became of the commit that was left open, before anything else is written.
    fn settle_unknown(&mut self, within: Duration) -> conn::Result<()> {
        let Some(unknown) = self.unknown.take() else { return Ok(()) };
        match self.fate(unknown.token, within) {
            Ok(Fate::Landed) => {
                // Whoever waited has been told that nobody knows; whoever performs has not.
                let unknown =
                    if self.lease.has_run_out() { unknown.unperformed() } else { unknown };
                answer_all(unknown.jobs, unknown.outcomes, self.tag, &self.news);
                Ok(())
            }
            Ok(Fate::Never) => Ok(()),
            Err(error) => {
                self.unknown = Some(unknown);
                Err(error)
            }
        }
    }

    /// Nothing was committed: say so and go on, unless a promise is broken.
    fn failed_before_commit(&mut self, jobs: Vec<Job>, error: BatchError) -> After {
        let fault = match error {
            BatchError::Server(error) => fault::unavailable(error),
            BatchError::Poisoned(fault) => fault,
            BatchError::Broken(error) => {
                let message =
                    "a key was claimed twice, the gate stops; keep a copy of the database";
                let fault = Fault::caused_by(FaultKind::Internal, message, error);
                self.give_up(jobs, &fault);
                self.health.must_stop(&fault);
                return After::Stop;
            }
            BatchError::Replaced => {
                let message = "another gate has started under this gate's id, so this one stops; give each \
                     its own ledger.gate_id";
                return self.displaced(jobs, message);
            }
            BatchError::BusTaken => {
                let message = "the lease of this gate ran out and another gate has taken its bus, a copy of \
                     the folder, so this one stops; keep one of the folders, and have all gates share one \
                     bus or close the doors that publish";
                return self.displaced(jobs, message);
            }
        };
        self.give_up(jobs, &fault)
    }

    /// Another gate is in the place of this one, which stops.
    fn displaced(&self, jobs: Vec<Job>, message: &'static str) -> After {
        let fault = Fault::new(FaultKind::LedgerUnavailable, message);
        self.give_up(jobs, &fault);
        self.health.must_stop(&fault);
        After::Stop
    }

    /// The commit was not answered and nobody could find out: say so, and keep what would have been
    /// said for when somebody can.
    fn not_known_yet(&mut self, mut jobs: Vec<Job>, prepared: Prepared, error: conn::Error) {
        let fault = fault::unknown(error);
        self.gauges.commit_failed();
        self.tell_failure(&fault, jobs.len());
        self.health.failed(&fault);
        for job in &mut jobs {
            group::unknown(job, &fault);
        }
        let Prepared { token, outcomes } = prepared;
        self.unknown = Some(Unknown { token, jobs, outcomes });
    }

    fn give_up(&self, jobs: Vec<Job>, fault: &Fault) -> After {
        self.gauges.commit_failed();
        self.tell_failure(fault, jobs.len());
        // First readiness, then the answers: whoever hears of the failure may ask.
        self.health.failed(fault);
        for job in jobs {
            job.fail(fault);
        }
        After::GoOn
    }

    /// An outage is told when it begins and when it ends; every probe in between would drown it.
    fn tell_failure(&self, fault: &Fault, calls: usize) {
        if self.health.takes_writes() {
            let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%fault, source, calls, "the ledger could not commit");
        }
    }

    /// The gate ends: what it leaves may be taken over at once.
    fn stop(mut self) {
        let conn = match self.conn.take() {
            Some(conn) => Ok(conn),
            None => self.connector.own(&self.runtime),
        };
        if let Err(error) = conn.and_then(|conn| self.lease.give_up(&conn)) {
            tracing::warn!(%error, "the gate could not say that it stops, its lease runs out");
        }
    }
}

/// Whether a connection can be written to again after an error: it is there, it has rolled back, and
/// its server has not become one that is only read.
fn is_of_use(conn: &Conn, error: &BatchError) -> bool {
    let is_read_only = matches!(error, BatchError::Server(error) if fault::is_read_only(error));
    !is_read_only && !conn.is_lost() && conn.batch("ROLLBACK").is_ok()
}
