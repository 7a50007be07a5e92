//! Asking the running gate: commands that write go through it, by the socket in its data folder or at
//! the port it listens on.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::output::Failure;

/// Read by commands that talk to a gate with principals: the key they show.
pub(crate) const KEY: &str = "ADMIT_KEY";

/// Longest wait for an answer; a gate answers sooner.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The same where everything of a run is read first.
const ACCOUNT_MAX: Duration = Duration::from_secs(900);

/// Most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An answer of the gate.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// Whether the gate ends the connection with it.
    closes: bool,
}

fn said(answer: Answer) -> Result<serde_json::Value, Failure> {
    let said: serde_json::Value = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if answer.status == 200 {
        return Ok(said);
    }
    let message = said["error"]["message"].as_str().unwrap_or("no reason was given").to_owned();
    Err(Failure::runtime(format!("the gate refused: {message}")))
}

/// Where a gate is asked.
#[derive(Clone, Debug)]
enum Way {
    /// At a port that was named.
    Port(SocketAddr),
    /// At the socket in its data folder, where whoever may open that folder needs no key; where nobody
    /// listens there, at the port, if that may be tried.
    Folder { socket: PathBuf, port: Option<SocketAddr> },
}

/// A gate to ask.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    way: Way,
    /// Further header lines; first the one that shows the key, if there is one.
    headers: String,
    /// Longest wait for an answer.
    at_most: Duration,
}

impl Asking {
    /// The gate that listens at the address that was `named`; without one, the gate of the config's
    /// data folder. Where that folder was not named either, also whoever is at the config's address.
    /// The gate is shown the key of the environment.
    pub(super) fn of(
        config: &Config,
        named: Option<SocketAddr>,
        is_folder_named: bool,
    ) -> Result<Self, Failure> {
        let headers = match std::env::var(KEY) {
            Ok(key) if key.chars().all(|c| c.is_ascii_graphic()) && !key.is_empty() => {
                format!("authorization: Bearer {key}\r\n")
            }
            Ok(key) if !key.is_empty() => {
                return Err(Failure::usage(format!("{KEY} holds no key that a header can carry")));
            }
            _ => String::new(),
        };
        // At a port with TLS no command can ask.
        let is_port_tried = !is_folder_named && !config.tls.is_on();
        let way = match named {
            Some(address) => Way::Port(reachable(address)),
            None => Way::Folder {
                socket: config.socket(),
                port: is_port_tried.then(|| reachable(config.listen)),
            },
        };
        Ok(Self { way, headers, at_most: ANSWER_MAX })
    }

    /// Reads a JSON document, if it is there.
    pub(super) fn find(&self, path: &str) -> Result<Option<serde_json::Value>, Failure> {
        let answer = self.ask("GET", path, "")?;
        if answer.status == 404 { Ok(None) } else { said(answer).map(Some) }
    }

    /// Posts a JSON body.
    pub(super) fn post(&self, path: &str, body: &str) -> Result<Answer, Failure> {
        self.ask("POST", path, body)
    }

    /// [`Self::post`] with one more header.
    pub(super) fn post_with(
        mut self,
        path: &str,
        header: Option<(&str, &str)>,
        body: &str,
    ) -> Result<Answer, Failure> {
        if let Some((name, value)) = header {
            if value.chars().any(|c| c.is_control() || !c.is_ascii()) {
                return Err(Failure::usage("a header cannot carry that; use plain ascii"));
            }
            self.headers.push_str(&format!("{name}: {value}\r\n"));
        }
        self.ask("POST", path, body)
    }

    /// Reads what takes long where a run is large.
    pub(super) fn get_account(self, path: &str) -> Result<serde_json::Value, Failure> {
        said(self.patiently().ask("GET", path, "")?)
    }

    /// [`Self::post`] of what takes long where a run is large.
    pub(super) fn post_account(self, path: &str, body: &str) -> Result<Answer, Failure> {
        self.patiently().ask("POST", path, body)
    }

    fn patiently(self) -> Self {
        Self { at_most: ACCOUNT_MAX, ..self }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        let asked = self.connection().ask(method, path, body.as_bytes());
        asked.map_err(|error| self.cannot(&error))
    }

    /// A way to ask one question after the other.
    pub(super) fn connection(&self) -> Connection {
        Connection { asking: self.clone(), stream: None }
    }

    /// Decided anew for each connection: a gate may have come since the last one.
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (socket, port) = match &self.way {
            Way::Port(port) => return self.connect_to(*port),
            Way::Folder { socket, port } => (socket, *port),
        };
        let not_there = match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(self.at_most))?;
                stream.set_write_timeout(Some(self.at_most))?;
                return Ok(Box::new(stream));
            }
            Err(error) => error,
        };
        let socket = socket.display();
        let Some(port) = port else {
            return Err(io::Error::new(not_there.kind(), format!("{socket}: {not_there}")));
        };
        self.connect_to(port).map_err(|error| {
            io::Error::new(error.kind(), format!("{socket}: {not_there}; {port}: {error}"))
        })
    }

    fn connect_to(&self, port: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(port)?;
        stream.set_read_timeout(Some(self.at_most))?;
        stream.set_write_timeout(Some(self.at_most))?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    /// What to say when nobody answers.
    pub(super) fn cannot(&self, error: &io::Error) -> Failure {
        let place = match &self.way {
            Way::Port(port) => format!(" on {port}"),
            Way::Folder { .. } => String::new(),
        };
        Failure::runtime(format!(
            "cannot ask the gate{place}: {error}\n  is it running? name its data folder with \
             --data, its address with --listen, or its config with --config"
        ))
    }
}

/// A connection that is opened when it is needed and kept as long as the gate keeps it.
pub(super) struct Connection {
    asking: Asking,
    stream: Option<Box<dyn Stream>>,
}

/// What bytes can be sent to and read from.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Connection {
    /// Posts a JSON body and waits for the whole answer.
    pub(super) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.ask("POST", path, body)
    }

    /// Reads what is at a path.
    pub(super) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask("GET", path, b"")
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let headers = &self.asking.headers;
        let host = match self.asking.way {
            Way::Port(port) | Way::Folder { port: Some(port), .. } => port.to_string(),
            Way::Folder { port: None, .. } => "localhost".to_owned(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        // A gate may close a connection that was idle; on a new one the same request is safe.
        if let Some(stream) = self.stream.take()
            && let Ok(answer) = self.exchange(stream, &request)
        {
            return Ok(answer);
        }
        self.exchange(self.asking.connect()?, &request)
    }

    fn exchange(&mut self, mut stream: Box<dyn Stream>, request: &[u8]) -> io::Result<Answer> {
        // A gate that refuses a body answers before it has taken all of it.
        let sent = stream.write_all(request);
        let mut answer = Vec::with_capacity(1024);
        let mut part = [0; 16 * 1024];
        loop {
            let read = stream.read(&mut part)?;
            answer.extend_from_slice(&part[..read]);
            if let Some(whole) = parse(&answer) {
                if sent.is_ok() && !whole.closes {
                    self.stream = Some(stream);
                }
                return Ok(whole);
            }
            if read == 0 || answer.len() > ANSWER_BYTES_MAX {
                sent?;
                let message = "it does not answer like a gate";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
        }
    }
}

/// The status and the body of a whole answer that says how long it is.
fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length: usize = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())?;
    let body = answer.get(end + 4..end + 4 + length)?;
    let closes = head.lines().any(|line| line.eq_ignore_ascii_case("connection: close"));
    Some(Answer { status, body: body.to_vec(), closes })
}

/// Nobody can connect to "all addresses".
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_length() {
        let answer = parse(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (409, &b"{}"[..]));
        assert!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").is_none(), "cut off");
        assert!(parse(b"SSH-2.0").is_none());
    }
}
