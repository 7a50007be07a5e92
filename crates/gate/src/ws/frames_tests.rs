//! Frame parser tests: all kinds of frames, in reads of different sizes.

use tokio::io::AsyncWriteExt as _;

use super::*;

const SIZES: MessageLimits = MessageLimits { message_max: 100, excess_max: 1_000 };

/// A masked client frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Reads all messages in `bytes`, `step` bytes at a time. Returns them and the final error.
async fn read(bytes: &[u8], step: usize) -> (Vec<WsMessage>, FrameError) {
    let (mut client, server) = tokio::io::duplex(step);
    let send = async move {
        // The reader may have stopped before.
        client.write_all(bytes).await.unwrap_or_default();
    };
    let receive = async move {
        let mut frames = FrameReader::new(server, SIZES);
        let mut messages = Vec::new();
        loop {
            match frames.next().await {
                Ok(message) => messages.extend(message),
                Err(error) => return (messages, error),
            }
        }
    };
    futures_util::future::join(send, receive).await.1
}

fn text(text: &str) -> WsMessage {
    WsMessage::Text(Bytes::copy_from_slice(text.as_bytes()))
}

#[tokio::test]
async fn messages_are_complete_however_their_bytes_arrive() {
    let bytes = [
        frame(0x81, b"one"),
        frame(0x01, b"two, in "),
        frame(0x89, b"ping"),
        frame(0x00, b"three "),
        frame(0x80, b"pieces"),
        frame(0x81, b""),
        frame(0x82, b"binary"),
        frame(0x81, &[0xff, 0xfe]),
        frame(0x8a, b""),
        frame(0x88, &1000_u16.to_be_bytes()),
    ]
    .concat();
    for step in [1, 2, 3, 7, 1000] {
        let (messages, error) = read(&bytes, step).await;
        assert_eq!(
            messages,
            [
                text("one"),
                WsMessage::Ping(Bytes::from_static(b"ping")),
                text("two, in three pieces"),
                text(""),
                WsMessage::Binary,
                WsMessage::Text(Bytes::from_static(&[0xff, 0xfe])),
                WsMessage::Pong,
                WsMessage::Close(Some(1000)),
            ]
        );
        assert!(matches!(error, FrameError::Disconnected(_)));
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_discarded_and_the_next_one_is_read() {
    let bytes = [
        frame(0x81, &[b'x'; 100]),
        frame(0x81, &[b'x'; 101]),
        frame(0x81, b"after"),
        frame(0x01, &[b'x'; 60]),
        frame(0x80, &[b'x'; 60]),
        frame(0x81, b"last"),
    ]
    .concat();
    for step in [1, 33, 1000] {
        let (messages, _) = read(&bytes, step).await;
        let large = text(&"x".repeat(100));
        let expected =
            [large, WsMessage::TooLarge, text("after"), WsMessage::TooLarge, text("last")];
        assert_eq!(messages, expected);
    }
    let (messages, error) = read(&frame(0x81, &[b'x'; 1_101]), 10).await;
    assert!(messages.is_empty() && matches!(error, FrameError::ExcessTooLarge));
}

#[tokio::test]
async fn protocol_violations_are_errors() {
    let unmasked = vec![0x81, 0x01, b'x'];
    let long_ping = frame(0x89, &[0; 126]);
    for bytes in [
        unmasked,
        long_ping,
        frame(0x09, b""),
        frame(0xc1, b"x"),
        frame(0x83, b"x"),
        frame(0x80, b"continues nothing"),
        [frame(0x01, b"a"), frame(0x81, b"b")].concat(),
    ] {
        let (messages, error) = read(&bytes, 5).await;
        assert!(messages.is_empty() && matches!(error, FrameError::Protocol(_)), "{bytes:?}");
    }
}

#[test]
fn written_frames_have_the_right_length() {
    for length in [0, 125, 126, 65_535, 65_536] {
        let mut out = BytesMut::new();
        write_frame(&mut out, OpCode::Data(Data::Text), &vec![b'x'; length]);
        let mut cursor = Cursor::new(&out[..]);
        let (head, payload_len) = FrameHeader::parse(&mut cursor).unwrap().unwrap();
        assert_eq!((payload_len, head.is_final, head.mask), (length as u64, true, None));
        assert_eq!(out.len() as u64, cursor.position() + payload_len);
    }
}

#[tokio::test]
async fn a_ping_between_two_frames_does_not_extend_the_message_timeout() {
    let (mut client, server) = tokio::io::duplex(1_000);
    let mut frames = FrameReader::new(server, SIZES);
    client.write_all(&frame(0x01, b"half")).await.unwrap();
    assert_eq!(frames.next().await.unwrap(), None);
    let started_at = frames.started_at().expect("a message has started");
    client.write_all(&frame(0x89, b"p")).await.unwrap();
    assert!(matches!(frames.next().await.unwrap(), Some(WsMessage::Ping(_))));
    assert_eq!(frames.started_at(), Some(started_at));
    client.write_all(&frame(0x80, b"")).await.unwrap();
    assert!(matches!(frames.next().await.unwrap(), Some(WsMessage::Text(_))));
    assert_eq!(frames.started_at(), None);
}
