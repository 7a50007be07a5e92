//! HTTP/2 on the same port, spoken by hand in as few frames as it takes.

use crate::client::Client;
use crate::world::World;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header as a literal with a new name, not indexed, not compressed.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        field.push(u8::try_from(text.len()).expect("a short text"));
        field.extend_from_slice(text.as_bytes());
    }
    field
}

fn post(stream: u32, body: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/door"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ];
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    let mut request = frame(HEADERS, END_HEADERS, stream, &block);
    request.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    request
}

/// The body of the next answer, whichever stream it is on.
async fn answer(client: &mut Client) -> (u32, String) {
    let mut body = Vec::new();
    loop {
        let head = client.take(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = client.take(usize::try_from(length).expect("it fits")).await;
        if head[3] == DATA {
            body.extend_from_slice(&payload);
            if head[4] & END_STREAM != 0 {
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                return (stream, String::from_utf8(body).expect("text"));
            }
        }
    }
}

#[tokio::test]
async fn the_same_door_answers_over_http_2() {
    let world = World::open().await;
    let mut client = world.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    client.send(post(1, "a")).await;
    let (stream, body) = answer(&mut client).await;
    assert_eq!((stream, body.contains(r#""verdict":"fresh""#)), (1, true), "{body}");
    client.send(post(3, "a")).await;
    let (stream, body) = answer(&mut client).await;
    assert_eq!((stream, body.contains(r#""verdict":"duplicate""#)), (3, true), "{body}");
    client.send(post(5, "panic")).await;
    let (_, body) = answer(&mut client).await;
    assert!(body.contains(r#""code":"internal_error""#), "{body}");
}

#[tokio::test]
async fn an_idle_http_2_connection_outlives_the_time_for_a_head_but_not_the_idle_time() {
    let world = World::limited(|limits| {
        limits.header_read_ms_max = 20;
        limits.idle_ms_max = 150;
    })
    .await;
    let begun = std::time::Instant::now();
    let mut client = world.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    world.ask(crate::client::post("a")).await;
    crate::world::until(|| world.gate.metrics().connections_open() == 0).await;
    assert!(begun.elapsed().as_millis() >= 150, "{:?}", begun.elapsed());
}
