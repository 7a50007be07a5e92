//! Syncs the log beside the writer: while one commit is on its way to the disk, the next is written.
//!
//! ```text
//! writer   write, COMMIT ─▶ write ........ COMMIT ─▶ write ........ COMMIT ─▶
//! syncer                 └▶ sync, answers        └▶ sync, answers         └▶
//! ```
//!
//! SQLite is told to append commits to the log without syncing them. It keeps their order, and syncs
//! the log itself before it copies pages of it into the file. The promise is kept here: nobody is
//! answered, and no question is, before the log has been synced up to the commit in question.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use admit_core::Fault;
use tokio::sync::watch;

use super::Job;
use super::fault;
use crate::common::health::Health;
use crate::common::job::{Outcomes, answer_all};
use crate::common::news::News;
use crate::gauges::Gauges;

/// So many commits may wait for a sync; the writer waits with one more. It seldom has more than one,
/// because it goes on with a commit as long as the one before is being synced.
const WAITING_MAX: usize = 4;

/// A commit that is in the log and waits for its sync.
pub(super) struct Committed {
    /// The log it is in.
    pub(super) log: Arc<File>,
    /// The calls it holds, with what became of their entries.
    pub(super) group: Vec<Job>,
    pub(super) outcomes: Outcomes,
    /// When it was begun.
    pub(super) begun: Instant,
    /// How many had failed before it.
    pub(super) failures: u64,
}

/// How far the log is written, and how far it is synced; in commits since the start.
#[derive(Debug)]
pub(super) struct Progress {
    written: AtomicU64,
    synced: watch::Sender<Result<u64, Fault>>,
}

impl Progress {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { written: AtomicU64::new(0), synced: watch::Sender::new(Ok(0)) })
    }

    /// A commit is about to be visible. Told before it is, so that whoever sees it knows.
    pub(super) fn committing(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// The commit failed: nobody will sync it.
    pub(super) fn failed(&self) {
        self.synced_to(1);
    }

    fn broken(&self, fault: &Fault) {
        self.synced.send_modify(|synced| *synced = Err(fault.clone()));
    }

    fn synced_to(&self, more: u64) {
        self.synced.send_modify(|synced| {
            if let Ok(synced) = synced {
                *synced += more;
            }
        });
    }

    /// Whether a commit is being synced.
    pub(super) fn is_behind(&self) -> bool {
        let written = self.written.load(Ordering::SeqCst);
        matches!(&*self.synced.borrow(), Ok(synced) if *synced < written)
    }

    /// Waits until everything that can be seen now is on disk.
    pub(super) async fn until_synced(&self) -> Result<(), Fault> {
        let seen = self.written.load(Ordering::SeqCst);
        let mut synced = self.synced.subscribe();
        let reached =
            synced.wait_for(|synced| synced.as_ref().map_or(true, |synced| *synced >= seen));
        // The sender is a field of self, so it outlives this borrow of self.
        reached.await.map_or(Ok(()), |reached| reached.clone().map(|_| ()))
    }
}

/// What answers need.
pub(super) struct Answering {
    pub(super) tag: u32,
    pub(super) health: Arc<Health>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) news: Arc<News>,
}

/// The writer's hand on the syncing thread.
pub(super) struct Syncer {
    waiting: SyncSender<Committed>,
}

impl Syncer {
    /// Starts the thread. It ends when the returned value is dropped, after everybody was answered.
    pub(super) fn start(
        progress: &Arc<Progress>,
        answering: Answering,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (waiting, committed) = sync_channel(WAITING_MAX);
        let thread = {
            let progress = progress.clone();
            thread::Builder::new()
                .name("ledger-sync".to_owned())
                .spawn(move || sync_when_committed(&committed, &progress, &answering))?
        };
        Ok((Self { waiting }, thread))
    }

    /// Hands over a commit, or gives it back because no sync will come any more.
    pub(super) fn hand_over(&self, committed: Committed) -> Result<(), Box<Committed>> {
        self.waiting.send(committed).map_err(|error| Box::new(error.0))
    }
}

/// The log beside a ledger's file.
pub(super) fn log_of(path: &Path) -> io::Result<Arc<File>> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    File::open(name).map(Arc::new)
}

fn sync_when_committed(
    committed: &Receiver<Committed>,
    progress: &Progress,
    answering: &Answering,
) {
    while let Ok(first) = committed.recv() {
        let mut waiting = vec![first];
        waiting.extend(committed.try_iter());
        if let Err(error) = sync(&waiting) {
            let fault = fault::unsynced(error);
            tracing::error!(%fault, commits = waiting.len(), "the ledger's log could not be synced");
            answering.gauges.commit_failed();
            progress.broken(&fault);
            answering.health.must_stop(&fault);
            for job in waiting.into_iter().flat_map(|committed| committed.group) {
                job.fail(&fault);
            }
            return;
        }
        progress.synced_to(waiting.len() as u64);
        for Committed { group, outcomes, begun, failures, .. } in waiting {
            answering.health.wrote(failures);
            if !group.is_empty() {
                answering.gauges.committed(outcomes.len(), begun.elapsed());
            }
            answer_all(group, outcomes, answering.tag, &answering.news);
        }
    }
}

/// Syncs the logs of these commits; that is one, unless the writer has opened another since.
fn sync(waiting: &[Committed]) -> io::Result<()> {
    let mut before: Option<&Arc<File>> = None;
    for Committed { log, .. } in waiting {
        if !before.is_some_and(|before| Arc::ptr_eq(before, log)) {
            log.sync_data()?;
        }
        before = Some(log);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use admit_core::FaultKind;

    use super::*;

    /// Whether the answer to a question may go out now, and how.
    fn now(progress: &Progress) -> Poll<Result<(), Fault>> {
        let waiting = std::pin::pin!(progress.until_synced());
        waiting.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_seen_is_not_told_before_its_sync() {
        let progress = Progress::new();
        assert!(matches!(now(&progress), Poll::Ready(Ok(()))));
        progress.committing();
        progress.committing();
        assert!(progress.is_behind());
        progress.synced_to(1);
        assert!(now(&progress).is_pending());
        progress.synced_to(1);
        assert!(!progress.is_behind());
        assert!(matches!(now(&progress), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_commit_that_failed_holds_up_nobody() {
        let progress = Progress::new();
        progress.committing();
        progress.failed();
        assert!(matches!(now(&progress), Poll::Ready(Ok(()))));
    }

    #[test]
    fn after_a_failed_sync_nothing_that_was_read_is_told() {
        let progress = Progress::new();
        progress.committing();
        progress.broken(&fault::unsynced(io::Error::other("gone")));
        let Poll::Ready(Err(fault)) = now(&progress) else { panic!("it was told") };
        assert_eq!(fault.kind, FaultKind::OutcomeUnknown);
    }
}
