//! The calls that share a commit: who is in it, and when it is time to commit.
//!
//! Calls are written as they come, so that the writer works while others are still being vetted.
//! When nobody waits any more it is time to commit. Whoever comes later is in the next commit, together
//! with everybody who comes while this one is synced; nobody waits for company.

use std::sync::mpsc::Receiver;

use super::job::Job;

/// A commit in the making.
pub(crate) struct Group<'q, T> {
    jobs: Vec<Job<T>>,
    queue: &'q Receiver<Job<T>>,
    next: usize,
    weight: usize,
    weight_max: usize,
}

impl<'q, T> Group<'q, T> {
    /// A group around `first`; without one it is empty and stays so, to probe the disk.
    pub(crate) fn new(
        first: Option<Job<T>>,
        queue: &'q Receiver<Job<T>>,
        weight_max: usize,
    ) -> Self {
        let weight = first.as_ref().map_or(0, Job::weight);
        let jobs = first.into_iter().collect();
        Self { jobs, queue, next: 0, weight, weight_max }
    }

    /// The next call to write, or `None` when it is time to commit.
    pub(crate) fn next(&mut self) -> Option<&mut Job<T>> {
        if self.next == self.jobs.len() {
            let job = self.arrived()?;
            self.weight += job.weight();
            self.jobs.push(job);
        }
        self.next += 1;
        self.jobs.get_mut(self.next - 1)
    }

    fn arrived(&mut self) -> Option<Job<T>> {
        if self.jobs.is_empty() || self.weight >= self.weight_max {
            return None;
        }
        self.queue.try_recv().ok()
    }

    /// The work other than recording that is in it.
    pub(crate) fn tasks(&mut self) -> impl Iterator<Item = &mut T> {
        self.jobs
            .iter_mut()
            .filter_map(|job| if let Job::Task(task) = job { Some(task) } else { None })
    }

    /// The calls that are in it so far.
    #[cfg(feature = "postgres")]
    pub(crate) fn jobs(&self) -> &[Job<T>] {
        &self.jobs
    }

    /// Starts over with the calls that are in it, after a rollback.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// The calls, to be answered.
    pub(crate) fn into_jobs(self) -> Vec<Job<T>> {
        self.jobs
    }
}
