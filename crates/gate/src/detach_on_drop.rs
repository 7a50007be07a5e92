//! Future that runs to completion as a background task when its caller drops it.
//!
//! A producer may disconnect, or its request may time out; hyper or the timeout then drops the future
//! being polled. Dropping [`RunToCompletion`] moves the work to the task tracker, which the shutdown
//! waits for.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A future that outlives its caller.
pub(crate) struct RunToCompletion<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    tasks: TaskTracker,
}

impl<T> RunToCompletion<T> {
    pub(crate) fn new(tasks: TaskTracker, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), tasks }
    }
}

impl<T> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while polled: work that panicked or completed must not be polled again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime the process is ending, and nothing can be completed.
        let Ok(runtime) = Handle::try_current() else { return };
        let work = AssertUnwindSafe(work).catch_unwind();
        self.tasks.spawn_on(
            async move {
                if work.await.is_err() {
                    tracing::error!("a detached request panicked");
                }
            },
            &runtime,
        );
    }
}
