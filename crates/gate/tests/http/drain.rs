//! A gate that shuts down goes on answering until it has kept its word.

use tokio::net::TcpStream;

use crate::client::{get, post};
use crate::world::{World, until};

#[tokio::test]
async fn a_draining_gate_keeps_listening_and_finishes_what_it_took() {
    let world = World::open().await;
    world.ledger.hold();
    let mut inside = world.client().await;
    inside.send(post("a")).await;
    world.ledger.holds(1).await;
    let mut idle = world.client().await;
    assert_eq!(idle.ask(get("/readyz")).await.status, 200);

    world.shutdown.cancel();
    until(|| world.gate.is_draining()).await;
    let mut late = world.client().await;
    for client in [&mut late, &mut idle] {
        let answer = client.ask(post("b")).await;
        assert_eq!((answer.status, answer.in_its_words().as_str()), (503, "draining"));
        assert!(answer.header("retry-after").is_some());
        assert_eq!(answer.header("connection"), Some("close"));
        client.closed().await;
    }
    let ready = world.ask(get("/readyz")).await;
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(ready.json()["reasons"][0], "the gate is shutting down");
    assert!(ready.header("retry-after").is_some());

    world.ledger.release();
    assert_eq!(inside.answer().await.json()["verdict"], "fresh");
    inside.closed().await;
    let address = world.address;
    assert_eq!(world.ended().await.unfinished, 0);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_idle_gate_stops_at_once_and_closes_idle_connections() {
    let world = World::open().await;
    let mut idle = world.client().await;
    assert_eq!(idle.ask(post("a")).await.status, 200);
    let _silent = world.client().await;
    world.shutdown.cancel();
    idle.closed().await;
    assert_eq!(world.ended().await.unfinished, 0);
}

#[tokio::test]
async fn a_ledger_that_never_answers_does_not_hold_a_shutdown_for_ever() {
    let world = World::limited(|limits| limits.drain_ms_max = 50).await;
    world.ledger.hold();
    let mut client = world.client().await;
    client.send(post("a")).await;
    world.ledger.holds(1).await;
    world.shutdown.cancel();
    assert!(world.ended().await.unfinished > 0);
}

#[tokio::test]
async fn a_late_answer_is_waited_for_even_when_its_producer_has_been_told() {
    let world = World::limited(|limits| {
        limits.answer_ms_max = 40;
        limits.body_read_ms_max = 30;
    })
    .await;
    world.ledger.hold();
    let answer = world.ask(post("a")).await;
    assert_eq!(answer.in_its_words(), "outcome_unknown");
    world.shutdown.cancel();
    until(|| world.gate.is_draining()).await;
    assert_eq!(world.ask(post("b")).await.in_its_words(), "draining", "not gone yet");
    world.ledger.release();
    let gate = std::sync::Arc::clone(&world.gate);
    assert_eq!(world.ended().await.unfinished, 0);
    assert_eq!(gate.events_in_flight(), 0);
}
