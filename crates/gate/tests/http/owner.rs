//! The socket in the data folder: whoever can open it owns the gate's data, and needs no key.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::{get, post, post_with};
use crate::world::World;

const ARENA: &str = r#"{"name":"arena","keys":["arena-key"],"doors":["test"]}"#;

/// The whole answer to one request on a connection of its own.
async fn ask(socket: &Path, request: impl AsRef<[u8]>) -> String {
    let mut stream = UnixStream::connect(socket).await.expect("the gate listens");
    stream.write_all(request.as_ref()).await.expect("it reads");
    stream.shutdown().await.expect("it hears the end");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).expect("a status line")
}

#[tokio::test]
async fn the_owner_reads_and_operates_without_a_key_and_produces_only_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let world = World::with_socket(&[ARENA], &socket).await;

    assert_eq!(status(&ask(&socket, get("/metrics")).await), "200");
    let unsigned = ask(&socket, post("a")).await;
    assert_eq!(status(&unsigned), "401", "an event needs a producer's scope: {unsigned}");
    let signed = post_with("content-type: application/json\r\nx-door-key: arena-key\r\n", "a");
    let signed = ask(&socket, signed).await;
    assert!(status(&signed) == "200" && signed.contains("arena"), "{signed}");
    let wrong = post_with("content-type: application/json\r\nx-door-key: wrong\r\n", "b");
    assert_eq!(status(&ask(&socket, wrong).await), "401", "whoever shows a key is judged by it");
    let odd = get("/metrics").replace("\r\n\r\n", "\r\nauthorization: Basic eDp5\r\n\r\n");
    assert_eq!(status(&ask(&socket, odd).await), "401", "also by one that is none");

    assert_eq!(world.ask(get("/metrics")).await.status, 401, "the port wants keys as before");
}

#[tokio::test]
async fn at_an_open_gate_the_owner_is_local_whatever_host_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let _world = World::with_socket(&[], &socket).await;
    let elsewhere = post("a").replace("host: localhost", "host: gate.example");
    let answer = ask(&socket, elsewhere).await;
    assert!(status(&answer) == "200" && answer.contains("local"), "{answer}");
}

#[tokio::test]
async fn the_owner_gets_in_when_the_port_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let world =
        World::with_socket_and(|limits| limits.connections_max = 1, &[ARENA], &socket).await;
    let mut kept = world.client().await;
    // A connection without a key would make room.
    let signed = post_with("content-type: application/json\r\nx-door-key: arena-key\r\n", "a");
    assert_eq!(kept.ask(signed).await.status, 200);
    assert_eq!(world.ask(get("/metrics")).await.status, 503, "the port is full");
    assert_eq!(status(&ask(&socket, get("/metrics")).await), "200");
}
