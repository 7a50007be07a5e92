//! Several producers at once, each remembering what it was told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use admit_testkit::rng::Rng;

use super::events::{self, Post};
use super::http::Client;
use super::ledger::Stored;

/// Events of so many servers are mixed.
pub(crate) const SERVERS: u64 = 4;

/// So many events one producer sends at most.
const EVENTS_MAX: usize = 20_000;

/// Event number `n` of a load; the same bytes each time it is asked for. Every fourth is large, so
/// that the ledger's log grows enough to be copied and started over under the load.
pub(crate) fn event(n: u64) -> Post {
    let event = events::match_begin(n, &login(n / 4 % SERVERS));
    if n.is_multiple_of(4) { event.padded(60_000) } else { event }
}

/// The login of one of the mixed servers.
pub(crate) fn login(server: u64) -> String {
    format!("server-{server}")
}

/// What producers were told, by the number of the event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Accepted for the first time.
    pub(crate) processed: Vec<u64>,
    /// Accepted again, and how often.
    pub(crate) duplicates: BTreeMap<u64, i64>,
    /// Told to come back later.
    pub(crate) turned_away: Vec<u64>,
    /// Sent, and then silence.
    pub(crate) unanswered: Vec<u64>,
}

impl Told {
    pub(crate) fn add(&mut self, other: Self) {
        self.processed.extend(other.processed);
        for (n, times) in other.duplicates {
            *self.duplicates.entry(n).or_default() += times;
        }
        self.turned_away.extend(other.turned_away);
        self.unanswered.extend(other.unanswered);
    }

    /// Everything a producer was told is in; nothing of it may be missing.
    pub(crate) fn acked(&self) -> impl Iterator<Item = u64> {
        self.processed.iter().chain(self.duplicates.keys()).copied()
    }

    /// Fails if an acknowledged event is not stored, or a copy was acknowledged but not counted.
    pub(crate) fn assert_kept(&self, stored: &Stored) {
        let lost: Vec<u64> = self.acked().filter(|n| stored.get(*n).is_none()).collect();
        assert!(lost.is_empty(), "acknowledged and not stored: {lost:?}");
        for (n, times) in &self.duplicates {
            let counted = stored.get(*n).map_or(0, |row| row.duplicate_count);
            assert!(counted >= *times, "{n}: {times} copies acknowledged, {counted} counted");
        }
    }

    /// Sends again what got no answer. It ends up in, once: as new if it was not stored before.
    pub(crate) fn settle(&mut self, client: &mut Client, stored: &Stored) {
        let open = std::mem::take(&mut self.unanswered).into_iter();
        for n in open.chain(std::mem::take(&mut self.turned_away)) {
            let said = client.say(&event(n).attempt(2));
            if said.is_processed() {
                assert!(stored.get(n).is_none(), "{n} was stored and then processed again");
                self.processed.push(n);
            } else {
                said.duplicate();
                assert!(stored.get(n).is_some(), "{n} was not stored, but called a copy");
                *self.duplicates.entry(n).or_default() += 1;
            }
        }
    }
}

/// Producers at work.
pub(crate) struct Load {
    producers: Vec<JoinHandle<Told>>,
    acked: Arc<AtomicU64>,
}

impl Load {
    /// Starts `producers` of them. Each takes its next event from `numbers`, sends a copy of an old
    /// one now and then, and ends when the gate is gone.
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
                told: Told::default(),
            };
            thread::spawn(move || producer.work())
        };
        let producers = (0..producers).map(start).collect();
        Self { producers, acked }
    }

    /// How many acknowledgements have come so far.
    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    /// Waits for the producers to end by themselves, because the gate is gone.
    pub(crate) fn join(self) -> Told {
        let mut all = Told::default();
        for producer in self.producers {
            match producer.join() {
                Ok(told) => all.add(told),
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
    told: Told,
}

impl Producer {
    fn work(mut self) -> Told {
        for _ in 0..EVENTS_MAX {
            let known = self.told.processed.len() as u64;
            let answered = if known > 0 && self.rng.one_in(8) {
                let place = usize::try_from(self.rng.below(known)).expect("an index");
                self.send_copy(self.told.processed[place])
            } else {
                let n = self.numbers.fetch_add(1, Ordering::Relaxed);
                self.send_new(n)
            };
            if !answered {
                break;
            }
        }
        self.told
    }

    /// Sends a new event; `false` when there was no answer.
    fn send_new(&mut self, n: u64) -> bool {
        let Ok(said) = self.client.post(&event(n)) else {
            self.told.unanswered.push(n);
            return false;
        };
        if said.is_processed() {
            self.told.processed.push(n);
            self.acked.fetch_add(1, Ordering::Relaxed);
        } else {
            said.unavailable();
            self.told.turned_away.push(n);
        }
        true
    }

    /// Sends a copy of an acknowledged event, which nothing may call new.
    fn send_copy(&mut self, n: u64) -> bool {
        let Ok(said) = self.client.post(&event(n).attempt(2)) else { return false };
        if said.is_duplicate() {
            *self.told.duplicates.entry(n).or_default() += 1;
            self.acked.fetch_add(1, Ordering::Relaxed);
        } else {
            said.unavailable();
        }
        true
    }
}

/// Side effects happened once: what the servers' documents count is what was admitted.
pub(crate) fn assert_effects_once(client: &mut Client, data: &Path) {
    let counted: u64 = (0..SERVERS)
        .map(|server| {
            let path = format!("/v1/pixel/servers/local/{}", login(server));
            let answer = client.send("GET", &path, &[], b"").expect("the gate answers");
            // A server nobody sent events of yet has no document.
            answer.json()["event_counts"]["lifecycle"].as_u64().unwrap_or_default()
        })
        .sum();
    let admitted = Stored::read(data).len() as u64;
    assert_eq!(counted, admitted, "one side effect for each admission, no more, no less");
}
