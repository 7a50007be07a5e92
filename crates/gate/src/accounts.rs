//! What a gate needs of whoever keeps the books of runs, to answer for them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Fault;
use admit_core::closure::{Manifest, Objection};
use admit_core::effect::Attribution;
use admit_core::json::Object;

/// Work that may outlive whoever asked for it.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Gives account of runs, and closes them.
pub trait Accounts: Send + Sync {
    /// Before the doors open: puts in order what an earlier process was closing.
    fn recover(self: Arc<Self>) -> Work<Result<(), Fault>>;

    /// The report of a run; `None` when nobody has named such a run.
    fn report(self: Arc<Self>, run: String) -> Work<Result<Option<Object<'static>>, Fault>>;

    /// Closes a run. Once begun it is to be finished.
    fn close(
        self: Arc<Self>,
        run: String,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> Work<Result<Object<'static>, NotClosed>>;

    /// The longest either of them takes; large runs take long.
    fn patience(&self) -> Duration;
}

/// Why a run was not closed.
#[derive(Clone, Debug)]
pub enum NotClosed {
    /// Nobody has named such a run.
    Unknown,
    /// Somebody else is closing it.
    InWork,
    /// This speaks against it.
    Refused {
        /// How the run stands: `open`, or `closed` where it was closed before.
        state: &'static str,
        /// Everything that does.
        objections: Vec<Objection>,
    },
    /// Our side failed.
    Fault(Fault),
}
