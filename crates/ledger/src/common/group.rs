//! The calls that share a commit: who is in it, and when it is time to commit.
//!
//! Calls are written as they come, so that the writer works while others are still being vetted.
//! When nobody waits any more it is time to commit, with one exception. Under load, producers
//! answer a commit with their next event a moment later; committing on the first of them would
//! leave the others a whole commit behind. So in a database, where that is milliseconds, a commit
//! whose last one had company waits a moment for its own. A lone event never waits.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::job::Job;

/// A commit of at least so many calls had company.
const COMPANY_MIN: usize = 8;

/// How long one look for company asks to wait, and how many there are: half a millisecond in all, because a
/// thread sleeps about twice as long as it asks for.
const COMPANY_WAIT: Duration = Duration::from_micros(50);
const COMPANY_LOOKS: u32 = 4;

/// A commit in the making.
pub(crate) struct Group<'q, T> {
    jobs: Vec<Job<T>>,
    queue: &'q Receiver<Job<T>>,
    next: usize,
    weight: usize,
    weight_max: usize,
    company: usize,
    looks: u32,
}

impl<'q, T> Group<'q, T> {
    /// A group around `first`; without one it is empty and stays so, to probe the disk.
    /// `last_company` is how many calls shared the last commit, or zero where nobody is to wait.
    pub(crate) fn new(
        first: Option<Job<T>>,
        queue: &'q Receiver<Job<T>>,
        weight_max: usize,
        last_company: usize,
    ) -> Self {
        let company = if last_company < COMPANY_MIN { 0 } else { last_company / 2 };
        let weight = first.as_ref().map_or(0, Job::weight);
        let jobs = first.into_iter().collect();
        Self { jobs, queue, next: 0, weight, weight_max, company, looks: COMPANY_LOOKS }
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
        loop {
            if let Ok(job) = self.queue.try_recv() {
                return Some(job);
            }
            if self.jobs.len() >= self.company || self.looks == 0 {
                return None;
            }
            self.looks -= 1;
            thread::sleep(COMPANY_WAIT);
        }
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
