//! Load generator: concurrent producers that record every reply.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use admit_testkit::rng::Rng;

use super::events::{self, Post};
use super::http::Client;
use super::ledger::StoredReceipts;

/// Number of servers whose events are mixed.
pub(crate) const SERVERS: u64 = 4;

/// Maximum number of events per producer.
const EVENTS_MAX: usize = 20_000;

/// Event number `n` of a load; always the same bytes. Every fourth is large, so that the WAL is
/// checkpointed and restarted under the load.
pub(crate) fn event(n: u64) -> Post {
    let event = events::match_begin(n, &login(n / 4 % SERVERS));
    if n.is_multiple_of(4) { event.padded(60_000) } else { event }
}

/// The login of one of the mixed servers.
pub(crate) fn login(server: u64) -> String {
    format!("server-{server}")
}

/// Replies to the producers, by event number.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadResult {
    /// Accepted for the first time.
    pub(crate) processed: Vec<u64>,
    /// Acknowledged as duplicates, with counts.
    pub(crate) duplicates: BTreeMap<u64, i64>,
    /// Refused with a retry hint.
    pub(crate) unavailable: Vec<u64>,
    /// Sent without a reply.
    pub(crate) unanswered: Vec<u64>,
}

impl LoadResult {
    pub(crate) fn add(&mut self, other: Self) {
        self.processed.extend(other.processed);
        for (n, times) in other.duplicates {
            *self.duplicates.entry(n).or_default() += times;
        }
        self.unavailable.extend(other.unavailable);
        self.unanswered.extend(other.unanswered);
    }

    /// Numbers of all acknowledged events.
    pub(crate) fn acked(&self) -> impl Iterator<Item = u64> {
        self.processed.iter().chain(self.duplicates.keys()).copied()
    }

    /// Asserts that every acknowledged event is stored and every acknowledged copy counted.
    pub(crate) fn assert_stored(&self, stored: &StoredReceipts) {
        let lost: Vec<u64> = self.acked().filter(|n| stored.get(*n).is_none()).collect();
        assert!(lost.is_empty(), "acknowledged but not stored: {lost:?}");
        for (n, times) in &self.duplicates {
            let counted = stored.get(*n).map_or(0, |row| row.duplicate_count);
            assert!(counted >= *times, "{n}: {times} copies acknowledged, {counted} counted");
        }
    }

    /// Resends events without an acknowledgement, and asserts that each is accepted as new only if it was
    /// not stored before.
    pub(crate) fn resend_unacknowledged(&mut self, client: &mut Client, stored: &StoredReceipts) {
        let open = std::mem::take(&mut self.unanswered).into_iter();
        for n in open.chain(std::mem::take(&mut self.unavailable)) {
            let reply = client.submit(&event(n).attempt(2));
            if reply.is_processed() {
                assert!(stored.get(n).is_none(), "{n} was stored and then processed again");
                self.processed.push(n);
            } else {
                reply.duplicate();
                assert!(stored.get(n).is_some(), "{n} was not stored, but reported as a duplicate");
                *self.duplicates.entry(n).or_default() += 1;
            }
        }
    }
}

/// Running producers.
pub(crate) struct Load {
    producers: Vec<JoinHandle<LoadResult>>,
    acked: Arc<AtomicU64>,
}

impl Load {
    /// Starts `producers` producers. Each takes its next event from `numbers`, sometimes sends a copy of
    /// an earlier one, and stops when the connection fails.
    pub(crate) fn start(
        address: SocketAddr,
        producers: usize,
        numbers: &Arc<AtomicU64>,
        rng: &mut Rng,
    ) -> Self {
        let acked = Arc::new(AtomicU64::new(0));
        let start = |_| {
            let producer = Producer {
                client: Client::to(address),
                numbers: Arc::clone(numbers),
                rng: Rng::seeded(rng.next_u64()),
                acked: Arc::clone(&acked),
                result: LoadResult::default(),
            };
            thread::spawn(move || producer.work())
        };
        let producers = (0..producers).map(start).collect();
        Self { producers, acked }
    }

    /// Number of acknowledgements so far.
    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    /// Waits until the producers stop because the gate is down.
    pub(crate) fn join(self) -> LoadResult {
        let mut all = LoadResult::default();
        for producer in self.producers {
            match producer.join() {
                Ok(result) => all.add(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    }
}

struct Producer {
    client: Client,
    numbers: Arc<AtomicU64>,
    rng: Rng,
    acked: Arc<AtomicU64>,
    result: LoadResult,
}

impl Producer {
    fn work(mut self) -> LoadResult {
        for _ in 0..EVENTS_MAX {
            let known = self.result.processed.len() as u64;
            let result = if known > 0 && self.rng.one_in(8) {
                let index = usize::try_from(self.rng.below(known)).expect("an index");
                self.send_copy(self.result.processed[index])
            } else {
                let n = self.numbers.fetch_add(1, Ordering::Relaxed);
                self.send_new(n)
            };
            if !result {
                break;
            }
        }
        self.result
    }

    /// Sends a new event; returns `false` without a reply.
    fn send_new(&mut self, n: u64) -> bool {
        let Ok(reply) = self.client.post(&event(n)) else {
            self.result.unanswered.push(n);
            return false;
        };
        if reply.is_processed() {
            self.result.processed.push(n);
            self.acked.fetch_add(1, Ordering::Relaxed);
        } else {
            reply.unavailable();
            self.result.unavailable.push(n);
        }
        true
    }

    /// Sends a copy of an acknowledged event, which must not be accepted as new.
    fn send_copy(&mut self, n: u64) -> bool {
        let Ok(reply) = self.client.post(&event(n).attempt(2)) else { return false };
        if reply.is_duplicate() {
            *self.result.duplicates.entry(n).or_default() += 1;
            self.acked.fetch_add(1, Ordering::Relaxed);
        } else {
            reply.unavailable();
        }
        true
    }
}

/// Asserts that side effects happened once: the servers' documents count as many events as were admitted.
pub(crate) fn assert_effects_once(client: &mut Client, data: &Path) {
    let counted: u64 = (0..SERVERS)
        .map(|server| {
            let path = format!("/v1/pixel/servers/local/{}", login(server));
            let response = client.send("GET", &path, &[], b"").expect("response from the gate");
            // A server without events has no document.
            response.json()["event_counts"]["lifecycle"].as_u64().unwrap_or_default()
        })
        .sum();
    let admitted = StoredReceipts::read(data).len() as u64;
    assert_eq!(counted, admitted, "number of side effects differs from number of admissions");
}
