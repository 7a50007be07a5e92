//! Publish call to the bus with a timeout, which still reports a late result.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::{Bus, Message, PublishOutcome};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum wait for a late result, which is stored as evidence.
const LATE_MAX: Duration = Duration::from_secs(120);

/// Parameters of a publish call.
pub(crate) struct BusCall<'a> {
    pub(crate) bus: &'a Arc<dyn Bus>,
    /// Runs the call to its end after the caller's timeout.
    pub(crate) tasks: &'a TaskTracker,
    /// Cancels calls that have no waiting caller, at shutdown.
    pub(crate) stop: &'a CancellationToken,
    /// Timeout of the caller.
    pub(crate) timeout_after: Duration,
}

impl BusCall<'_> {
    /// Publishes messages and returns one outcome for each, in order. `on_end` is called when the bus call
    /// has ended, with the outcomes if they came after the timeout.
    pub(crate) async fn publish<F>(
        self,
        messages: Vec<Message>,
        on_end: impl FnOnce(Option<Vec<PublishOutcome>>) -> F + Send + 'static,
    ) -> Vec<PublishOutcome>
    where
        F: Future<Output = ()> + Send,
    {
        let Self { bus, tasks, stop, timeout_after } = self;
        let count = messages.len();
        let (sender, mut receiver) = oneshot::channel();
        let (bus, stop) = (Arc::clone(bus), stop.clone());
        tasks.spawn(async move {
            let publishing = timeout(bus.delivery_timeout() + LATE_MAX, bus.publish(messages));
            let published = tokio::select! {
                published = publishing => published.unwrap_or_default(),
                // The caller has timed out by then, or is about to.
                () = stop.cancelled() => Vec::new(),
            };
            on_end(sender.send(published).err()).await;
        });
        let mut published = match timeout(timeout_after, &mut receiver).await {
            Ok(Ok(published)) => published,
            Ok(Err(_)) => Vec::new(),
            Err(_) => {
                receiver.close();
                // The result may have arrived just before `close`.
                receiver.try_recv().unwrap_or_default()
            }
        };
        published.resize_with(count, || PublishOutcome::Unknown {
            reason: format!("the bus did not reply within {} ms", timeout_after.as_millis()),
        });
        published
    }
}
