//! HTTP/1.1 client without abstractions: sends given bytes and returns raw responses.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of every wait, longer than any test needs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the code of a refusal in the format of the fake contract.
    pub(crate) fn contract_code(&self) -> String {
        let json = self.json();
        let code = json["refusal"]["code"].as_str();
        code.unwrap_or_else(|| panic!("not in the format of the contract: {self:?}")).to_owned()
    }

    /// Returns the code of a refusal in the general format.
    pub(crate) fn general_code(&self) -> String {
        let json = self.json();
        let error = &json["error"];
        assert!(error["message"].is_string() && error["retryable"].is_boolean(), "{self:?}");
        assert!(error["retry_after_seconds"].is_u64(), "{self:?}");
        error["code"].as_str().expect("a code").to_owned()
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gate listens");
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the gate reads");
    }

    /// Sends the bytes; returns false if the gate closed the connection.
    pub(crate) async fn send_until_closed(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Shuts down the sending half of the connection.
    pub(crate) async fn finish_sending(&mut self) {
        self.stream.shutdown().await.expect("the gate is there");
    }

    /// Sends a request and reads its response.
    pub(crate) async fn request(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request).await;
        self.read_response().await
    }

    /// Reads the next response.
    pub(crate) async fn read_response(&mut self) -> Response {
        timeout(TIMEOUT, self.parse_response()).await.expect("a response in time")
    }

    async fn parse_response(&mut self) -> Response {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            assert!(self.read_more().await, "closed before a response: {:?}", self.shown());
        };
        let head = String::from_utf8(self.read.drain(..end + 4).collect()).expect("a head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        while self.read.len() < length {
            assert!(self.read_more().await, "closed inside a body: {:?}", self.shown());
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).expect("text");
        Response { status: status.parse().expect("a number"), headers, body }
    }

    /// Waits until the gate closes the connection; fails if it sends more bytes.
    pub(crate) async fn closed(&mut self) {
        let more = timeout(TIMEOUT, self.read_more()).await.expect("closed in time");
        assert!(!more && self.read.is_empty(), "unexpected bytes: {:?}", self.shown());
    }

    /// Reads `count` bytes, for protocols other than HTTP/1.1.
    pub(crate) async fn read_exact(&mut self, count: usize) -> Vec<u8> {
        let reading = async {
            while self.read.len() < count {
                assert!(self.read_more().await, "closed early: {:?}", self.shown());
            }
        };
        timeout(TIMEOUT, reading).await.expect("bytes in time");
        self.read.drain(..count).collect()
    }

    async fn read_more(&mut self) -> bool {
        let mut piece = [0; 4096];
        let count = self.stream.read(&mut piece).await.unwrap_or(0);
        self.read.extend_from_slice(&piece[..count]);
        count > 0
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// Returns a valid request to the test door.
pub(crate) fn post(body: &str) -> String {
    post_with("content-type: application/json\r\n", body)
}

/// Same with other header lines, each with its line end.
pub(crate) fn post_with(headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /door HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}
