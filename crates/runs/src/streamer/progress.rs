//! Progress of streaming, for display.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use admit_contracts::ingestion_gate::ReceiptDecision;

/// Decisions of the gate, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted.
    pub admitted: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Quarantined.
    pub quarantined: u64,
}

impl Counts {
    /// Counts a decision.
    pub fn add(&mut self, decision: ReceiptDecision) {
        match decision {
            ReceiptDecision::Admit => self.admitted += 1,
            ReceiptDecision::Duplicate => self.duplicates += 1,
            ReceiptDecision::Quarantine => self.quarantined += 1,
        }
    }

    /// Sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            duplicates: self.duplicates + other.duplicates,
            quarantined: self.quarantined + other.quarantined,
        }
    }
}

/// Progress of one output.
#[derive(Debug)]
pub struct OutputProgress {
    /// The output.
    pub output_id: String,
    /// Total rows to stream, including earlier sessions.
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

    pub(super) fn add_decision(&self, decision: ReceiptDecision) {
        self.done.fetch_add(1, Relaxed);
        self.quarantined.fetch_add(u64::from(decision == ReceiptDecision::Quarantine), Relaxed);
    }

    pub(super) fn add_retry(&self) {
        self.repeats.fetch_add(1, Relaxed);
    }

    /// Rows the gate has decided on, including earlier sessions.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Rows of earlier sessions.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Retried pushes.
    pub fn repeats(&self) -> u64 {
        self.repeats.load(Relaxed)
    }

    /// Rows quarantined in this session.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Relaxed)
    }
}

/// Progress of the current run.
#[derive(Clone, Debug, Default)]
pub struct StreamProgress {
    outputs: Arc<Mutex<Vec<Arc<OutputProgress>>>>,
}

impl StreamProgress {
    /// The outputs of the current run; empty between runs.
    pub fn outputs(&self) -> Vec<Arc<OutputProgress>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn begin(&self, outputs: Vec<Arc<OutputProgress>>) {
        *self.outputs.lock().unwrap_or_else(PoisonError::into_inner) = outputs;
    }
}
