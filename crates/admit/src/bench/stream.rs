//! Stream load generator: few connections, many events in flight on each.
//!
//! Acks of a connection arrive in send order, so the next ack belongs to the oldest event in flight.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use admit_proto::v1;
use admit_proto::v1::ingress_client::IngressClient;
use bytes::{Buf as _, BytesMut};
use futures_util::stream;
use hdrhistogram::Histogram;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};
use tonic::body::Body;
use tower::service_fn;

use super::client::histogram;
use super::gate::SKYRA_PATH;
use super::report::Figure;
use super::sample::{self, Samples};
use crate::output::Failure;

/// Connections, and events in flight on each.
const CONNECTIONS: usize = 8;
const WINDOW: usize = 256;

/// Transport of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamTransport {
    WebSocket,
    Grpc,
}

/// Runs the load on one thread. Every event must be acked.
pub(super) fn run(
    address: SocketAddr,
    transport: StreamTransport,
    samples: &Samples,
    seconds: Duration,
) -> Result<Figure, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::runtime)?;
    let measured = async {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (samples, until) = (samples.clone(), started + seconds);
            match transport {
                StreamTransport::WebSocket => tasks.spawn(websocket(address, samples, until)),
                StreamTransport::Grpc => tasks.spawn(grpc(address, samples, until)),
            };
        }
        let mut all = histogram();
        while let Some(done) = tasks.join_next().await {
            let latencies = done.map_err(|error| error.to_string())??;
            all.add(latencies).map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(Figure::timed(started.elapsed(), all))
    };
    runtime.block_on(measured).map_err(Failure::runtime)
}

/// Send times of the events in flight.
#[derive(Default)]
struct SendTimes(VecDeque<Instant>);

impl SendTimes {
    /// Records the latency of the oldest event in flight.
    fn acked(&mut self, latencies: &mut Histogram<u64>) -> Result<(), String> {
        let sent_at = self.0.pop_front().ok_or("unexpected ack: no event is in flight")?;
        let micros = u64::try_from(sent_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros.max(1)).map_err(|error| error.to_string())
    }
}

/// Opens a WebSocket.
async fn open(address: SocketAddr) -> Result<TcpStream, std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET {SKYRA_PATH} HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    match head.starts_with(b"HTTP/1.1 101") {
        true => Ok(stream),
        false => Err(std::io::Error::other(String::from_utf8_lossy(&head).into_owned())),
    }
}

async fn websocket(
    address: SocketAddr,
    samples: Samples,
    until: Instant,
) -> Result<Histogram<u64>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = open(address).await.map_err(failed)?;
    let (mut latencies, mut times) = (histogram(), SendTimes::default());
    let (mut out, mut read) = (Vec::new(), BytesMut::with_capacity(64 * 1024));
    loop {
        let is_sending = Instant::now() < until;
        while is_sending && times.0.len() < WINDOW {
            let Some(number) = samples.next() else { break };
            frame(sample::device_envelope(number).as_bytes(), &mut out);
            times.0.push_back(Instant::now());
        }
        stream.write_all(&out).await.map_err(failed)?;
        out.clear();
        if times.0.is_empty() {
            return Ok(latencies);
        }
        if stream.read_buf(&mut read).await.map_err(failed)? == 0 {
            return Err("the gate closed the connection".to_owned());
        }
        // Acks are shorter than 126 bytes, so the second byte of a frame is its length.
        while read.len() >= 2 && read.len() >= 2 + usize::from(read[1]) {
            let length = usize::from(read[1]);
            read.advance(2);
            let ack = read.split_to(length);
            if !ack.ends_with(b"\"stored\"}") {
                return Err(format!("unexpected response: {}", String::from_utf8_lossy(&ack)));
            }
            times.acked(&mut latencies)?;
        }
    }
}

/// Appends a text frame. Its mask is zero, which saves the client the masking.
fn frame(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x81, 0x80 | 126]);
    out.extend_from_slice(&u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

async fn grpc(
    address: SocketAddr,
    samples: Samples,
    until: Instant,
) -> Result<Histogram<u64>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let handshake = http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    let send = service_fn(move |request| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    let origin = format!("http://{address}").parse();
    let origin = origin.map_err(|_| "invalid address".to_owned())?;
    let mut client = IngressClient::with_origin(send, origin);
    let window = Arc::new(Semaphore::new(WINDOW));
    let sent = Arc::new(std::sync::Mutex::new(SendTimes::default()));
    let envelopes = stream::unfold((), {
        let (window, sent) = (Arc::clone(&window), Arc::clone(&sent));
        move |()| {
            let (window, sent, samples) = (Arc::clone(&window), Arc::clone(&sent), samples.clone());
            async move {
                window.acquire().await.ok()?.forget();
                if Instant::now() >= until {
                    return None;
                }
                let json = sample::device_envelope(samples.next()?).into_bytes().into();
                sent.lock().ok()?.0.push_back(Instant::now());
                Some((v1::Envelope { json }, ()))
            }
        }
    });
    let called = async {
        let failed = |status: tonic::Status| format!("gRPC call failed: {status}");
        let mut answers = client.stream(envelopes).await.map_err(failed)?.into_inner();
        let mut latencies = histogram();
        while let Some(answer) = answers.message().await.map_err(failed)? {
            if !matches!(answer.answer, Some(v1::answer::Answer::Ack(_))) {
                return Err(format!("unexpected response: {answer:?}"));
            }
            sent.lock().map_err(|_| "a sender panicked")?.acked(&mut latencies)?;
            window.add_permits(1);
        }
        Ok(latencies)
    };
    tokio::select! {
        latencies = called => latencies,
        ended = connection => Err(format!("the connection was closed: {ended:?}")),
    }
}
