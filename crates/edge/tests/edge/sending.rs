//! Guarantees of the sender for any behaviour of the peer.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use admit_core::Millis;
use admit_edge::{
    Backoff, Dialect, Endpoint, HttpWire, Options, Outbox, OutboxStatus, Sender, SenderIdentity,
    SenderOptions, WebSocketWire,
};
use admit_testkit::proxy::{Faults, Proxy};

use crate::peer::{Peer, PeerAction, ack, nack, serial_http_gate, until};

/// An ack timeout that is never reached, even on a busy machine.
const LONG_ACK_TIMEOUT: u64 = 60_000;

struct World {
    _folder: tempfile::TempDir,
    file: PathBuf,
    outbox: Arc<Outbox>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("listener_outbox.db");
        let backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_millis(200) };
        let options = Options { backoff, ..Options::default() };
        let outbox = Arc::new(Outbox::open(&file, options).unwrap());
        Self { _folder: folder, file, outbox }
    }

    fn enqueue(&self, id: &str, session: &str) {
        let payload = format!(
            "{{\"event_id\":\"{id}\",\"type\":\"proposal.task\",\"ts\":\"2026-02-16T23:10:21Z\",\
             \"session_id\":\"{session}\",\"device_id\":\"pi\",\"payload\":{{}}}}"
        );
        self.outbox.enqueue(id, &payload).unwrap();
    }

    fn send_to(&self, address: std::net::SocketAddr, ack_max: u64) -> Sender {
        let gate = Endpoint::parse(&format!("http://{address}"), None).unwrap();
        let wire = WebSocketWire::new(gate, "/v1/ingress", SenderIdentity::default());
        let ack_max = Duration::from_millis(ack_max);
        let options = SenderOptions { in_flight_max: 16, ack_max, ..SenderOptions::default() };
        Sender::start(Arc::clone(&self.outbox), Arc::new(wire), options).unwrap()
    }

    fn status(&self) -> OutboxStatus {
        OutboxStatus::read(&self.file, Millis(0)).unwrap()
    }

    fn depth(&self) -> u64 {
        self.status().depth
    }
}

#[test]
fn only_an_ack_for_the_event_itself_removes_it() {
    let world = World::new();
    let peer = Peer::with(|id, times| match (id, times) {
        ("evt_1", 1) => ack("evt_2"),
        (id, _) => ack(id),
    });
    world.enqueue("evt_1", "s");
    let sender = world.send_to(peer.address, 100);
    until("it is resent", || (peer.count("evt_1") >= 2).then_some(()));
    until("its own ack removes it", || (world.depth() == 0).then_some(()));
    sender.stop();
}

#[test]
fn the_row_is_in_the_file_before_the_first_byte_is_sent() {
    let world = World::new();
    let file = world.file.clone();
    let peer = Peer::with(move |id, _| {
        let waiting = OutboxStatus::read(&file, Millis(0)).unwrap().depth;
        assert!(waiting >= 1, "{id} was sent and is not in the file");
        ack(id)
    });
    let sender = world.send_to(peer.address, LONG_ACK_TIMEOUT);
    for n in 0..50 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    assert_eq!(peer.received().len(), 50);
    sender.stop();
}

#[test]
fn an_always_refused_event_delays_no_other_and_is_retried_forever() {
    let world = World::new();
    let peer = Peer::with(|id, _| match id {
        "evt_bad" => nack(Some(id), "invalid_envelope", false),
        id => ack(id),
    });
    world.enqueue("evt_bad", "s");
    for n in 0..200 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    // Every row gets a reply, so nothing is sent twice, however busy the machine is.
    let sender = world.send_to(peer.address, LONG_ACK_TIMEOUT);
    until("all good events are delivered", || (world.depth() == 1).then_some(()));
    until("the bad event is retried", || (peer.count("evt_bad") >= 4).then_some(()));
    sender.stop();
    let status = world.status();
    assert_eq!((status.depth, status.retrying), (1, 1));
    let error = status.last_error.expect("an error");
    assert!(error.contains("invalid_envelope"), "{error}");
    for n in 0..200 {
        assert_eq!(peer.count(&format!("evt_{n}")), 1, "evt_{n} was sent once");
    }
}

#[test]
fn an_event_refused_without_its_id_delays_no_other_and_is_retried_forever() {
    let world = World::new();
    let peer = Peer::with(|id, _| match id {
        "evt_mute" => nack(None, "invalid_envelope", false),
        id => ack(id),
    });
    world.enqueue("evt_mute", "s");
    for n in 0..200 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    let sender = world.send_to(peer.address, 50);
    until("all good events are delivered", || (world.depth() == 1).then_some(()));
    until("the mute event is retried", || (peer.count("evt_mute") >= 3).then_some(()));
    sender.stop();
    assert_eq!(world.status().last_error_event_id.as_deref(), Some("evt_mute"));
}

#[test]
fn a_reply_received_in_time_counts_however_late_it_is_processed() {
    const ACK_MAX: u64 = 300;
    let world = World::new();
    let (all_replied, replied) = mpsc::sync_channel::<()>(64);
    let locked = Arc::new(Mutex::new(None::<rusqlite::Connection>));
    let (file, lock) = (world.file.clone(), Arc::clone(&locked));
    let peer = Peer::with(move |id, times| match (id, times) {
        ("evt_bad", 1) => {
            // The refusal cannot be recorded, so the sender waits for its disk.
            let other = rusqlite::Connection::open(&file).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            *lock.lock().unwrap() = Some(other);
            nack(Some(id), "invalid_envelope", false)
        }
        (id, _) => {
            if id == "evt_8" {
                all_replied.send(()).unwrap();
            }
            ack(id)
        }
    });
    world.enqueue("evt_bad", "s");
    for n in 1..9 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    let sender = world.send_to(peer.address, ACK_MAX);
    replied.recv_timeout(Duration::from_secs(30)).unwrap();
    std::thread::sleep(Duration::from_millis(2 * ACK_MAX));
    drop(locked.lock().unwrap().take());
    until("all are delivered", || (world.depth() == 0).then_some(()));
    sender.stop();
    for n in 1..9 {
        assert_eq!(peer.count(&format!("evt_{n}")), 1, "evt_{n} was acknowledged in time");
    }
}

#[test]
fn replies_are_read_while_rows_are_being_written() {
    const ROW_BYTES: usize = 4 << 20;
    let world = World::new();
    // Slow replies, so that the last rows are written long after the first are acknowledged.
    let peer = Peer::with(|id, _| {
        std::thread::sleep(Duration::from_millis(200));
        ack(id)
    });
    for n in 0..10 {
        let filling = "x".repeat(ROW_BYTES);
        let payload = format!("{{\"event_id\":\"evt_{n}\",\"filling\":\"{filling}\"}}");
        world.outbox.enqueue(&format!("evt_{n}"), &payload).unwrap();
    }
    let sender = world.send_to(peer.address, 1_500);
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    sender.stop();
    let connects = world.outbox.counters().connects.load(Ordering::Relaxed);
    assert_eq!(connects, 1, "a link with replies is not dead");
}

#[test]
fn without_an_ack_a_row_is_resent_with_growing_delays() {
    let world = World::new();
    let peer = Peer::with(|_, times| if times > 5 { ack("evt_1") } else { PeerAction::Ignore });
    world.enqueue("evt_1", "s");
    let sender = world.send_to(peer.address, 20);
    until("it is delivered in the end", || (world.depth() == 0).then_some(()));
    sender.stop();
    let times: Vec<_> = peer.received().iter().map(|received| received.at).collect();
    assert!(times.len() >= 6);
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(20), "the ack was waited for");
    }
    assert!(world.outbox.counters().unanswered.load(Ordering::Relaxed) >= 5);
}

#[test]
fn a_session_arrives_in_order_when_nothing_fails() {
    let world = World::new();
    let peer = Peer::with(|id, _| ack(id));
    for n in 0..300 {
        world.enqueue(&format!("evt_{n}"), &format!("sess_{}", n % 3));
    }
    let sender = world.send_to(peer.address, LONG_ACK_TIMEOUT);
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    sender.stop();
    for session in 0..3 {
        let expected: Vec<String> =
            (0..300).filter(|n| n % 3 == session).map(|n| format!("evt_{n}")).collect();
        let name = format!("sess_{session}");
        let received: Vec<String> = peer
            .received()
            .into_iter()
            .filter(|received| received.envelope["session_id"] == name.as_str())
            .map(|received| received.id)
            .collect();
        assert_eq!(received, expected);
    }
}

#[test]
fn a_peer_that_hangs_up_receives_everything_in_the_end() {
    let world = World::new();
    let peer = Peer::with(|id, times| {
        let number: usize = id.trim_start_matches("evt_").parse().unwrap();
        if number % 7 == 3 && times == 1 { PeerAction::HangUp } else { ack(id) }
    });
    for n in 0..100 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    let sender = world.send_to(peer.address, 2_000);
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    assert!(world.outbox.counters().connects.load(Ordering::Relaxed) > 1);
    sender.stop();
}

#[test]
fn a_refused_connection_counts_as_an_attempt_of_due_rows_and_keeps_their_order() {
    let world = World::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // More than the in-flight window.
    let mut ids: Vec<String> = (0..40).map(|n| format!("evt_{n}")).collect();
    for id in &ids {
        world.enqueue(id, "s");
    }
    let proxy = Proxy::to(silent, Faults::default(), 1).unwrap();
    let sender = world.send_to(proxy.address(), 500);
    until("the outage is recorded", || {
        world.status().last_error.is_some_and(|error| error.contains("connect")).then_some(())
    });
    until("every row has been attempted twice", || {
        let query = "SELECT min(attempt_count), count(DISTINCT next_attempt_at) FROM event_outbox
                     WHERE last_error IS NOT NULL";
        let file = rusqlite::Connection::open(&world.file).unwrap();
        let (attempts, times): (Option<u64>, u64) =
            file.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert!(times <= 1, "they wait for the next connection together");
        (attempts >= Some(2) && world.status().retrying == 40).then_some(())
    });
    let status = world.status();
    assert!(status.next_attempt_at > status.oldest_created_at, "with backoff: {status:?}");
    // Rows stored during the outage are sent after the waiting ones.
    world.enqueue("evt_late", "s");
    ids.push("evt_late".to_owned());
    let peer = Peer::with(|id, _| ack(id));
    proxy.move_to(peer.address);
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    let order: Vec<String> = peer.received().into_iter().map(|received| received.id).collect();
    assert_eq!(order, ids);
    sender.stop();
}

#[test]
fn a_gate_that_refuses_everything_pauses_the_sender() {
    let world = World::new();
    let peer = Peer::with(|id, times| match times {
        1 | 2 => nack(Some(id), "storage_unavailable", true),
        _ => ack(id),
    });
    for n in 0..40 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    let sender = world.send_to(peer.address, 2_000);
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    sender.stop();
    assert!(world.outbox.counters().nacked.load(Ordering::Relaxed) >= 80);
}

#[test]
fn a_stop_waits_for_acks_of_rows_in_flight() {
    let world = World::new();
    let peer = Peer::with(|id, _| {
        std::thread::sleep(Duration::from_millis(150));
        ack(id)
    });
    world.enqueue("evt_1", "s");
    let sender = world.send_to(peer.address, LONG_ACK_TIMEOUT);
    until("it is sent", || (peer.count("evt_1") == 1).then_some(()));
    sender.stop();
    assert_eq!(world.depth(), 0);
    assert_eq!(peer.count("evt_1"), 1);
}

#[test]
fn a_network_that_cuts_stalls_and_duplicates_loses_nothing() {
    let seed = 20_261_115;
    let world = World::new();
    let peer = Peer::with(|id, _| ack(id));
    let faults = Faults {
        cut_one_in: 12,
        stall_one_in: 10,
        stall: Duration::from_millis(60),
        duplicate_one_in: 3,
        ..Faults::default()
    };
    let proxy = Proxy::to(peer.address, faults, seed).unwrap();
    let sender = world.send_to(proxy.address(), 300);
    for n in 0..150 {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    sender.stop();
    for n in 0..150 {
        assert!(peer.count(&format!("evt_{n}")) >= 1, "evt_{n} was never received, seed {seed}");
    }
    assert!(proxy.counts().cuts.load(Ordering::Relaxed) > 0, "the network was as bad as meant");
}

#[test]
fn a_session_served_serially_over_http_does_not_time_out() {
    const ROWS: u64 = 400;
    let world = World::new();
    // All rows of a session are sent serially, so many of them take longer than the timeout of one.
    let address = serial_http_gate(Duration::from_millis(10));
    for n in 0..ROWS {
        world.enqueue(&format!("evt_{n}"), "s");
    }
    let gate = Endpoint::parse(&format!("http://{address}"), None).unwrap();
    let wire = HttpWire::new(gate, "/v1/ingress", SenderIdentity::default(), Dialect::Skyra);
    let options =
        SenderOptions { in_flight_max: 256, ack_max: Duration::from_secs(2), ..Default::default() };
    let sender = Sender::start(Arc::clone(&world.outbox), Arc::new(wire), options).unwrap();
    until("all are acknowledged", || (world.depth() == 0).then_some(()));
    sender.stop();
    let counters = world.outbox.counters();
    assert_eq!(counters.unanswered.load(Ordering::Relaxed), 0);
    assert_eq!(counters.sent.load(Ordering::Relaxed), ROWS, "each was sent once");
}
