//! Group commit: collects the calls that share a commit and decides when to commit.
//!
//! Calls are written as they arrive, so the writer works while others are still being vetted. The commit
//! starts when the queue is empty, with one exception. Under load, producers reply to a commit with
//! their next event a moment later; committing on the first of them would delay the rest by a whole
//! commit. In a database, where that is milliseconds, a batch that follows a large one therefore waits
//! briefly for more calls. A lone event never waits.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::write_command::WriteCommand;

/// A batch of at least this many calls makes the next one wait for more.
const BATCH_WAIT_MIN: usize = 8;

/// Duration and number of the polls for more calls: half a millisecond in all, because a thread sleeps
/// about twice as long as requested.
const BATCH_WAIT: Duration = Duration::from_micros(50);
const BATCH_POLLS: u32 = 4;

/// A commit in progress.
pub(crate) struct CommitBatch<'q, T> {
    commands: Vec<WriteCommand<T>>,
    queue: &'q Receiver<WriteCommand<T>>,
    next: usize,
    weight: usize,
    weight_max: usize,
    batch_target: usize,
    polls_left: u32,
}

impl<'q, T> CommitBatch<'q, T> {
    /// A batch that starts with `first`; without it the batch stays empty and only probes the disk.
    /// `last_batch_len` is the number of calls in the last commit, zero to never wait.
    pub(crate) fn new(
        first: Option<WriteCommand<T>>,
        queue: &'q Receiver<WriteCommand<T>>,
        weight_max: usize,
        last_batch_len: usize,
    ) -> Self {
        let batch_target = if last_batch_len < BATCH_WAIT_MIN { 0 } else { last_batch_len / 2 };
        let weight = first.as_ref().map_or(0, WriteCommand::weight);
        let commands = first.into_iter().collect();
        Self { commands, queue, next: 0, weight, weight_max, batch_target, polls_left: BATCH_POLLS }
    }

    /// Returns the next call to write, or `None` when it is time to commit.
    pub(crate) fn next(&mut self) -> Option<&mut WriteCommand<T>> {
        if self.next == self.commands.len() {
            let command = self.next_arrived()?;
            self.weight += command.weight();
            self.commands.push(command);
        }
        self.next += 1;
        self.commands.get_mut(self.next - 1)
    }

    fn next_arrived(&mut self) -> Option<WriteCommand<T>> {
        if self.commands.is_empty() || self.weight >= self.weight_max {
            return None;
        }
        loop {
            if let Ok(command) = self.queue.try_recv() {
                return Some(command);
            }
            if self.commands.len() >= self.batch_target || self.polls_left == 0 {
                return None;
            }
            self.polls_left -= 1;
            thread::sleep(BATCH_WAIT);
        }
    }

    /// The write operations other than recording in this batch.
    pub(crate) fn ops(&mut self) -> impl Iterator<Item = &mut T> {
        self.commands
            .iter_mut()
            .filter_map(|command| if let WriteCommand::Op(op) = command { Some(op) } else { None })
    }

    /// The calls in this batch so far.
    #[cfg(feature = "postgres")]
    pub(crate) fn commands(&self) -> &[WriteCommand<T>] {
        &self.commands
    }

    /// Starts over with the same calls, after a rollback.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Returns the calls, to be replied to.
    pub(crate) fn into_commands(self) -> Vec<WriteCommand<T>> {
        self.commands
    }
}
