//! One call to the bus, bounded in time, whose late answer is not lost.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::{Bus, Message, PublishOutcome};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long an answer that came too late is still waited for, to be kept as evidence.
const LATE_MAX: Duration = Duration::from_secs(120);

/// What a call needs.
pub(crate) struct BusCall<'a> {
    pub(crate) bus: &'a Arc<dyn Bus>,
    /// The call goes on here after its caller has given up on it.
    pub(crate) tasks: &'a TaskTracker,
    /// Ends a call that nobody waits for.
    pub(crate) stop: &'a CancellationToken,
    /// How long the answer is waited for.
    pub(crate) patience: Duration,
}

impl BusCall<'_> {
    /// Hands messages over: an answer for each, in order. `ended` is called once the bus can no
    /// longer say anything, with what it said too late, if it did.
    pub(crate) async fn hand_over<F>(
        self,
        messages: Vec<Message>,
        ended: impl FnOnce(Option<Vec<PublishOutcome>>) -> F + Send + 'static,
    ) -> Vec<PublishOutcome>
    where
        F: Future<Output = ()> + Send,
    {
        let Self { bus, tasks, stop, patience } = self;
        let count = messages.len();
        let (sender, mut receiver) = oneshot::channel();
        let (bus, stop) = (Arc::clone(bus), stop.clone());
        tasks.spawn(async move {
            let publishing = timeout(bus.delivery_timeout() + LATE_MAX, bus.publish(messages));
            let published = tokio::select! {
                published = publishing => published.unwrap_or_default(),
                // Whoever waits has given up by then, or is about to.
                () = stop.cancelled() => Vec::new(),
            };
            ended(sender.send(published).err()).await;
        });
        let mut published = match timeout(patience, &mut receiver).await {
            Ok(Ok(published)) => published,
            Ok(Err(_)) => Vec::new(),
            Err(_) => {
                receiver.close();
                // It may have come in this very moment.
                receiver.try_recv().unwrap_or_default()
            }
        };
        published.resize_with(count, || PublishOutcome::Unknown {
            reason: format!("the bus did not answer within {} ms", patience.as_millis()),
        });
        published
    }
}
