//! Minimal HTTP/1.1 client with keep-alive over a blocking socket. It never retries.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::assert_reply::PixelReply;
use super::events::Post;

/// Path of the pixel-control door.
pub(crate) const DOOR: &str = "/plugin/events";

/// Read timeout; the gate guarantees a reply within 4 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Client with one connection, opened on demand and kept as long as the server keeps it.
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
    stream: Option<BufReader<TcpStream>>,
}

/// A response as received.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON; panics if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.header("content-type"), Some("application/json"), "{text}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new(), stream: None }
    }

    /// A client on an open connection.
    pub(crate) fn over(address: SocketAddr, stream: TcpStream) -> Self {
        Self { stream: Some(BufReader::new(stream)), ..Self::to(address) }
    }

    /// Adds a header to every request of this client.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Posts an event and parses the reply; an error means that no reply arrived.
    pub(crate) fn post(&mut self, event: &Post) -> io::Result<PixelReply> {
        let response = self.send("POST", DOOR, &[], event.body().as_bytes())?;
        Ok(PixelReply::read(&response))
    }

    /// Posts an event and parses the reply; panics without a reply.
    pub(crate) fn submit(&mut self, event: &Post) -> PixelReply {
        self.post(event).expect("response from the gate")
    }

    /// Posts any bytes to the pixel-control door and parses the reply.
    pub(crate) fn submit_bytes(&mut self, body: &[u8]) -> PixelReply {
        PixelReply::read(&self.send("POST", DOOR, &[], body).expect("response from the gate"))
    }

    /// Returns the JSON at `path`; panics unless the status is 200.
    pub(crate) fn get(&mut self, path: &str) -> Value {
        let response = self.send("GET", path, &[], b"").expect("response from the gate");
        let body = response.json();
        assert_eq!(response.status, 200, "GET {path}: {body}");
        body
    }

    /// Sends a request and reads the response. `headers` override this client's own.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<HttpResponse> {
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let host = self.address.to_string();
        let length = body.len().to_string();
        let usual =
            [("Host", &*host), ("Content-Type", "application/json"), ("Content-Length", &*length)];
        let mut written_names: Vec<&str> = Vec::new();
        for (name, value) in headers.iter().copied().chain(own).chain(usual) {
            if !written_names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                written_names.push(name);
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        request.push_str("\r\n");
        let bytes = [request.as_bytes(), body].concat();
        let result = self.exchange(&bytes);
        let closes = |response: &HttpResponse| response.header("connection") == Some("close");
        if result.as_ref().map_or(true, closes) {
            self.stream = None;
        }
        result
    }

    /// Sends the head of a POST with `Expect: 100-continue` and waits for the 100 response.
    pub(crate) fn start_post(&mut self, length: usize) {
        let head = format!(
            "POST {DOOR} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n",
            self.address
        );
        let mut stream = connect(self.address).expect("the gate accepts the connection");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let interim = read_line(&mut stream).expect("an interim response");
        assert_eq!(interim, "HTTP/1.1 100 Continue");
        assert_eq!(read_line(&mut stream).unwrap(), "");
        self.stream = Some(stream);
    }

    /// Sends the body of a POST begun with [`Self::start_post`].
    pub(crate) fn finish_post(&mut self, body: &[u8]) -> PixelReply {
        PixelReply::read(&self.exchange(body).expect("response from the gate"))
    }

    /// Sends a whole POST and closes the connection without reading the response.
    pub(crate) fn send_and_hang_up(&mut self, path: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut stream = connect(self.address).expect("the gate accepts the connection");
        stream.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
    }

    /// Waits until the gate closes the connection.
    pub(crate) fn wait_for_end(self) {
        let Some(mut stream) = self.stream else { return };
        let read = stream.read(&mut [0]);
        let ended = read.as_ref().map_or_else(
            |error| error.kind() == io::ErrorKind::ConnectionReset,
            |count| *count == 0,
        );
        assert!(ended, "the connection was not closed: {read:?}");
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<HttpResponse> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(connect(self.address)?),
        };
        stream.get_mut().write_all(request)?;
        read_response(stream)
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    Ok(BufReader::new(stream))
}

fn read_response(stream: &mut BufReader<TcpStream>) -> io::Result<HttpResponse> {
    let head = read_line(stream)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| malformed(&head))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed(&line))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut response = HttpResponse { status, headers, body: Vec::new() };
    let length = response.header("content-length").and_then(|length| length.parse().ok());
    let length: usize = length.ok_or_else(|| malformed("no content-length"))?;
    response.body.resize(length, 0);
    stream.read_exact(&mut response.body)?;
    Ok(response)
}

fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
