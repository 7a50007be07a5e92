//! A small client: HTTP/1.1 with keep-alive over a blocking socket, and nothing hidden.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::events::Post;
use super::said::Said;

/// Where pixel events are sent.
pub(crate) const DOOR: &str = "/plugin/events";

/// No answer may take longer; the gate promises 4 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection, opened when needed and kept as long as the peer keeps it.
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
    stream: Option<BufReader<TcpStream>>,
}

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON, which every body of a gate is.
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

    /// Over a connection that is open already.
    pub(crate) fn over(address: SocketAddr, stream: TcpStream) -> Self {
        Self { stream: Some(BufReader::new(stream)), ..Self::to(address) }
    }

    /// Adds a header to every request of this client.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends an event and reads what the contract says to it; an error means no answer came.
    pub(crate) fn post(&mut self, event: &Post) -> io::Result<Said> {
        let answer = self.send("POST", DOOR, &[], event.body().as_bytes())?;
        Ok(Said::read(&answer))
    }

    /// Sends an event that must be answered.
    pub(crate) fn say(&mut self, event: &Post) -> Said {
        self.post(event).expect("the gate answers")
    }

    /// Sends any bytes to the door; they must be answered.
    pub(crate) fn say_bytes(&mut self, body: &[u8]) -> Said {
        Said::read(&self.send("POST", DOOR, &[], body).expect("the gate answers"))
    }

    /// Reads a document that must be there.
    pub(crate) fn get(&mut self, path: &str) -> Value {
        let answer = self.send("GET", path, &[], b"").expect("the gate answers");
        let body = answer.json();
        assert_eq!(answer.status, 200, "GET {path}: {body}");
        body
    }

    /// One request, one answer. Headers given here win over this client's own.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let host = self.address.to_string();
        let length = body.len().to_string();
        let usual =
            [("Host", &*host), ("Content-Type", "application/json"), ("Content-Length", &*length)];
        let mut said: Vec<&str> = Vec::new();
        for (name, value) in headers.iter().copied().chain(own).chain(usual) {
            if !said.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                said.push(name);
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        request.push_str("\r\n");
        let bytes = [request.as_bytes(), body].concat();
        let answered = self.exchange(&bytes);
        let closes = |answer: &Answer| answer.header("connection") == Some("close");
        if answered.as_ref().map_or(true, closes) {
            self.stream = None;
        }
        answered
    }

    /// Sends only the head of a post and waits to be asked for its body of so many bytes.
    pub(crate) fn knock(&mut self, length: usize) {
        let head = format!(
            "POST {DOOR} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n",
            self.address
        );
        let mut stream = connect(self.address).expect("the gate accepts");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let asked = read_line(&mut stream).expect("the gate asks for the body");
        assert_eq!(asked, "HTTP/1.1 100 Continue");
        assert_eq!(read_line(&mut stream).unwrap(), "");
        self.stream = Some(stream);
    }

    /// Sends the body that was asked for.
    pub(crate) fn enter(&mut self, body: &[u8]) -> Said {
        Said::read(&self.exchange(body).expect("the gate answers"))
    }

    /// Sends a whole post and goes away without reading.
    pub(crate) fn send_and_hang_up(&mut self, path: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut stream = connect(self.address).expect("the gate accepts");
        stream.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
    }

    /// Waits, without asking for anything, until the gate has closed the connection.
    pub(crate) fn wait_for_end(self) {
        let Some(mut stream) = self.stream else { return };
        let read = stream.read(&mut [0]);
        let ended = read.as_ref().map_or_else(
            |error| error.kind() == io::ErrorKind::ConnectionReset,
            |count| *count == 0,
        );
        assert!(ended, "the connection ends: {read:?}");
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(connect(self.address)?),
        };
        stream.get_mut().write_all(request)?;
        read_answer(stream)
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let head = read_line(stream)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| broken(&head))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken(&line))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    let length = answer.header("content-length").and_then(|length| length.parse().ok());
    let length: usize = length.ok_or_else(|| broken("an answer without a length"))?;
    answer.body.resize(length, 0);
    stream.read_exact(&mut answer.body)?;
    Ok(answer)
}

fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
