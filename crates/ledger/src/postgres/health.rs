//! The ledger as a whole: how it is doing, and whether the process must stop.
//!
//! A database that is away is not the end of a gate: it answers that it cannot store, says so to
//! whoever asks whether it is ready, and goes on when the database is back. Only a broken promise
//! stops the process.

use std::time::Duration;

use admit_core::Fault;

use super::PostgresLedger;
use crate::gauges::Gauges;
use crate::port::{BoxFuture, Ledger};

impl Ledger for PostgresLedger {
    fn is_healthy(&self) -> bool {
        self.health.is_healthy()
    }

    fn trouble(&self) -> Option<&'static str> {
        self.health.trouble()
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(self.health.until_must_stop())
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    fn gauges(&self) -> Option<&Gauges> {
        Some(&self.gauges)
    }
}
