//! Health of the ledger on PostgreSQL.
//!
//! An unavailable database does not stop a gate: it replies `ledger_unavailable`, is not ready, and
//! continues when the database is back. Only a broken invariant stops the process.

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
