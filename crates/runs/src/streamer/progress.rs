//! How far streaming has come, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use admit_contracts::ingestion_gate::Decision;

/// What the gate decided, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Let in now.
    pub admitted: u64,
    /// Known already.
    pub duplicates: u64,
    /// Kept, but not let in.
    pub quarantined: u64,
}

impl Counts {
    /// One more.
    pub fn add(&mut self, decision: Decision) {
        match decision {
            Decision::Admit => self.admitted += 1,
            Decision::Duplicate => self.duplicates += 1,
            Decision::Quarantine => self.quarantined += 1,
        }
    }

    /// All of these and those.
    pub fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            duplicates: self.duplicates + other.duplicates,
            quarantined: self.quarantined + other.quarantined,
        }
    }
}

/// One output on its way.
#[derive(Debug)]
pub struct OutputProgress {
    /// The output.
    pub output_id: String,
    /// Rows there are to stream, those of earlier sessions included.
    pub total: u64,
    done: AtomicU64,
    resumed: AtomicU64,
    repeats: AtomicU64,
    quarantined: AtomicU64,
}

impl OutputProgress {
    pub(super) fn new(output_id: &str, total: u64) -> Self {
        Self {
            output_id: output_id.to_owned(),
            total,
            done: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
        }
    }

    pub(super) fn resume(&self, rows: u64) {
        self.resumed.store(rows, Relaxed);
        self.done.store(rows, Relaxed);
    }

    pub(super) fn decided(&self, decision: Decision) {
        self.done.fetch_add(1, Relaxed);
        self.quarantined.fetch_add(u64::from(decision == Decision::Quarantine), Relaxed);
    }

    pub(super) fn repeated(&self) {
        self.repeats.fetch_add(1, Relaxed);
    }

    /// Rows the gate has answered for, those of earlier sessions included.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Rows of earlier sessions.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Pushes that had to be repeated.
    pub fn repeats(&self) -> u64 {
        self.repeats.load(Relaxed)
    }

    /// Rows that the gate put into quarantine in this session.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }
}

/// What is being streamed now.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    outputs: Arc<Mutex<Vec<Arc<OutputProgress>>>>,
}

impl Progress {
    /// The outputs of the run that is being streamed; empty between runs.
    pub fn outputs(&self) -> Vec<Arc<OutputProgress>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn begin(&self, outputs: Vec<Arc<OutputProgress>>) {
        *self.outputs.lock().unwrap_or_else(PoisonError::into_inner) = outputs;
    }
}
