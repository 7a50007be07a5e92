//! Unix socket in the data folder: the owner of the folder needs no key.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::{get, post, post_with};
use crate::test_server::TestServer;

const ARENA: &str = r#"{"name":"arena","keys":["arena-key"],"doors":["test"]}"#;

/// Sends one request on a new connection and returns the whole response.
async fn request(socket: &Path, request: impl AsRef<[u8]>) -> String {
    let mut stream = UnixStream::connect(socket).await.expect("the gate listens");
    stream.write_all(request.as_ref()).await.expect("the gate reads");
    stream.shutdown().await.expect("the gate is running");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("the gate responds");
    response
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).expect("a status line")
}

#[tokio::test]
async fn the_owner_reads_and_operates_without_a_key_but_produces_only_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let server = TestServer::with_socket(&[ARENA], &socket).await;

    assert_eq!(status(&request(&socket, get("/metrics")).await), "200");
    let unsigned = request(&socket, post("a")).await;
    assert_eq!(status(&unsigned), "401", "an event needs a producer's scope: {unsigned}");
    let signed = post_with("content-type: application/json\r\nx-door-key: arena-key\r\n", "a");
    let signed = request(&socket, signed).await;
    assert!(status(&signed) == "200" && signed.contains("arena"), "{signed}");
    let wrong = post_with("content-type: application/json\r\nx-door-key: wrong\r\n", "b");
    assert_eq!(status(&request(&socket, wrong).await), "401", "a presented key is checked");
    let odd = get("/metrics").replace("\r\n\r\n", "\r\nauthorization: Basic eDp5\r\n\r\n");
    assert_eq!(status(&request(&socket, odd).await), "401", "also if it is not a key");

    assert_eq!(server.request(get("/metrics")).await.status, 401, "the port still requires keys");
}

#[tokio::test]
async fn without_principals_the_owner_is_local_for_every_host_header() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let _world = TestServer::with_socket(&[], &socket).await;
    let elsewhere = post("a").replace("host: localhost", "host: gate.example");
    let response = request(&socket, elsewhere).await;
    assert!(status(&response) == "200" && response.contains("local"), "{response}");
}

#[tokio::test]
async fn the_owner_can_connect_when_the_port_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admit.sock");
    let server =
        TestServer::with_socket_and(|limits| limits.connections_max = 1, &[ARENA], &socket).await;
    let mut client = server.client().await;
    // Without a key the connection could be evicted.
    let signed = post_with("content-type: application/json\r\nx-door-key: arena-key\r\n", "a");
    assert_eq!(client.request(signed).await.status, 200);
    assert_eq!(server.request(get("/metrics")).await.status, 503, "the port is full");
    assert_eq!(status(&request(&socket, get("/metrics")).await), "200");
}
