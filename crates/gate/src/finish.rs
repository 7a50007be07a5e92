//! Work that is finished once it is begun, whoever stops waiting for it.
//!
//! A producer may hang up, or be answered "unknown" because time is up; hyper and a timeout then
//! drop the future they were polling. Dropping [`Finishing`] instead hands the work to the task
//! set, where it runs to its end and is waited for at shutdown.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A future that outlives its caller.
pub(crate) struct Finishing<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    tasks: TaskTracker,
}

impl<T> Finishing<T> {
    pub(crate) fn new(tasks: TaskTracker, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), tasks }
    }
}

impl<T> Future for Finishing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: work that panics, or is done, must not be run again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for Finishing<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime nothing can be finished; that is the end of the process.
        let Ok(runtime) = Handle::try_current() else { return };
        let work = AssertUnwindSafe(work).catch_unwind();
        self.tasks.spawn_on(
            async move {
                if work.await.is_err() {
                    tracing::error!("a request nobody waits for any more panicked");
                }
            },
            &runtime,
        );
    }
}
