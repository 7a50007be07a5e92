//! Group commit: collects the calls that share a commit.
//!
//! Calls are written as they arrive, so the writer works while others are still being vetted. The commit
//! starts when the queue is empty: while it is under way, the calls of the next one arrive.

use std::sync::mpsc::Receiver;

use super::write_command::WriteCommand;

/// A commit in progress.
pub(crate) struct CommitBatch<'q, T> {
    commands: Vec<WriteCommand<T>>,
    queue: &'q Receiver<WriteCommand<T>>,
    next: usize,
    weight: usize,
    weight_max: usize,
}

impl<'q, T> CommitBatch<'q, T> {
    /// A batch that starts with `first`; without it the batch stays empty and only probes the disk.
    pub(crate) fn new(
        first: Option<WriteCommand<T>>,
        queue: &'q Receiver<WriteCommand<T>>,
        weight_max: usize,
    ) -> Self {
        let weight = first.as_ref().map_or(0, WriteCommand::weight);
        let commands = first.into_iter().collect();
        Self { commands, queue, next: 0, weight, weight_max }
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
        self.queue.try_recv().ok()
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
