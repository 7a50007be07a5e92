//! Expensive requests: they are split and vetted outside of the async threads, and costly events do not
//! delay large ones that are cheap.

use std::num::NonZero;
use std::sync::{Condvar, Mutex};
use std::thread::available_parallelism;
use std::time::Duration;

use admit_contracts::{Budget, Contract, Reply, RequestRejection, SplitRequest};
use admit_core::{Code, Door, Entry, RecordedEntry, Submission};

use crate::client::Client;
use crate::fakes::FakeContract;
use crate::test_server::{TestServer, wait_until};

/// Maximum wait of a blocked call: if it blocks the only async thread, nothing can release it.
const BLOCKED_MAX: Duration = Duration::from_secs(10);

/// Like [`FakeContract`], but `split` of a body that starts with `split`, and vetting of one that starts with
/// `costly`, block until [`BlockingContract::release`].
#[derive(Default)]
pub(crate) struct BlockingContract {
    state: Mutex<BlockingState>,
    changed: Condvar,
}

#[derive(Default)]
struct BlockingState {
    is_released: bool,
    blocked: usize,
}

impl BlockingContract {
    fn block(&self) {
        let mut state = self.state.lock().expect("no panic while locked");
        state.blocked += 1;
        let released = self.changed.wait_timeout_while(state, BLOCKED_MAX, |s| !s.is_released);
        assert!(
            !released.expect("no panic while locked").1.timed_out(),
            "nothing released the blocked call"
        );
    }

    fn release(&self) {
        self.state.lock().expect("no panic while locked").is_released = true;
        self.changed.notify_all();
    }

    fn blocked(&self) -> usize {
        self.state.lock().expect("no panic while locked").blocked
    }
}

impl Contract for BlockingContract {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        if submission.body.starts_with(b"costly") {
            self.block();
        }
        FakeContract.vet(door, submission)
    }

    fn vet_within(
        &self,
        door: &Door,
        submission: Submission,
        _budget: &mut Budget,
    ) -> Result<Entry, Submission> {
        match submission.body.starts_with(b"costly") {
            true => Err(submission),
            false => Ok(self.vet(door, submission)),
        }
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        FakeContract.reply(recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        FakeContract.refuse(code, message, retry_after_seconds)
    }

    fn split(&self, submission: Submission) -> Result<SplitRequest, RequestRejection> {
        if submission.body.starts_with(b"split") {
            self.block();
        }
        Ok(SplitRequest::one(submission))
    }

    fn split_reads_body(&self, _: &Submission) -> bool {
        true
    }
}

/// A body of 100 KB, which is large.
fn large(name: &str) -> String {
    format!("{name}={}", "x".repeat(100_000))
}

async fn send(server: &TestServer, body: &str) -> Client {
    let mut client = server.client().await;
    let length = body.len();
    let head = "POST /blocking HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    client.send(format!("{head}content-length: {length}\r\n\r\n{body}")).await;
    client
}

#[tokio::test]
async fn a_large_request_is_split_without_delaying_others() {
    let server = TestServer::open().await;
    let mut large = send(&server, &large("split")).await;
    wait_until(|| server.blocking.blocked() == 1).await;
    let small = send(&server, "small").await.read_response().await;
    assert_eq!(small.json()["verdict"], "fresh");
    server.blocking.release();
    assert_eq!(large.read_response().await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn costly_events_do_not_delay_large_events_that_are_cheap() {
    let server = TestServer::open().await;
    // Enough for every thread.
    let threads = available_parallelism().map_or(1, NonZero::get).max(2);
    let mut costly = Vec::new();
    for number in 0..threads {
        costly.push(send(&server, &large(&format!("costly-{number}"))).await);
    }
    wait_until(|| server.blocking.blocked() == threads).await;
    let cheap = send(&server, &large("cheap")).await.read_response().await;
    assert_eq!(cheap.json()["verdict"], "fresh");
    server.blocking.release();
    for client in &mut costly {
        assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    }
}
