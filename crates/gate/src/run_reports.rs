//! Port to run reports and run closing, for the run routes of the gate.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Fault;
use admit_core::closure::{Manifest, Objection};
use admit_core::effect::Attribution;
use admit_core::json::Object;

/// A report or close in progress. It may complete after the client has disconnected.
pub type ReportFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Reports on runs, and closes them.
pub trait RunReports: Send + Sync {
    /// Completes or reverts closes that an earlier process left unfinished. Runs before the doors open.
    fn recover(self: Arc<Self>) -> ReportFuture<Result<(), Fault>>;

    /// Returns the report of a run; `None` for an unknown run.
    fn report(self: Arc<Self>, run: String)
    -> ReportFuture<Result<Option<Object<'static>>, Fault>>;

    /// Closes a run. The future must be polled to completion.
    fn close(
        self: Arc<Self>,
        run: String,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> ReportFuture<Result<Object<'static>, RunCloseError>>;

    /// Maximum duration of a report or close; large runs take long.
    fn duration_max(&self) -> Duration;
}

/// Why a run was not closed.
#[derive(Clone, Debug)]
pub enum RunCloseError {
    /// The run is unknown.
    Unknown,
    /// Another close of the run is in progress.
    InWork,
    /// There are objections to the close.
    Refused {
        /// State of the run: `open`, or `closed` if it was closed before.
        state: &'static str,
        /// All objections.
        objections: Vec<Objection>,
    },
    /// The gate failed.
    Fault(Fault),
}
