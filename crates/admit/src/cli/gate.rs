//! Asking the running gate: commands that write go through it, over the address it listens on.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

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

/// Reads a JSON document of the gate at `listen`, if it is there.
pub(super) fn find(listen: SocketAddr, path: &str) -> Result<Option<serde_json::Value>, Failure> {
    let answer = ask(listen, "GET", path, None, "")?;
    if answer.status == 404 { Ok(None) } else { said(answer).map(Some) }
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

/// Reads what takes long where a run is large.
pub(super) fn get_account(listen: SocketAddr, path: &str) -> Result<serde_json::Value, Failure> {
    said(ask_for(listen, "GET", path, None, "", ACCOUNT_MAX)?)
}

/// [`post`] of what takes long where a run is large.
pub(super) fn post_account(listen: SocketAddr, path: &str, body: &str) -> Result<Answer, Failure> {
    ask_for(listen, "POST", path, None, body, ACCOUNT_MAX)
}

/// Posts a JSON body to the gate at `listen`.
pub(super) fn post(listen: SocketAddr, path: &str, body: &str) -> Result<Answer, Failure> {
    ask(listen, "POST", path, None, body)
}

/// [`post`] with one more header.
pub(super) fn post_with(
    listen: SocketAddr,
    path: &str,
    header: Option<(&str, &str)>,
    body: &str,
) -> Result<Answer, Failure> {
    ask(listen, "POST", path, header, body)
}

fn ask(
    listen: SocketAddr,
    method: &str,
    path: &str,
    header: Option<(&str, &str)>,
    body: &str,
) -> Result<Answer, Failure> {
    ask_for(listen, method, path, header, body, ANSWER_MAX)
}

fn ask_for(
    listen: SocketAddr,
    method: &str,
    path: &str,
    header: Option<(&str, &str)>,
    body: &str,
    at_most: Duration,
) -> Result<Answer, Failure> {
    let mut asking = Asking::of(listen)?;
    asking.at_most = at_most;
    if let Some((name, value)) = header {
        if value.chars().any(|c| c.is_control() || !c.is_ascii()) {
            return Err(Failure::usage("a header cannot carry that; use plain ascii"));
        }
        asking.headers.push_str(&format!("{name}: {value}\r\n"));
    }
    let asked = asking.connection().ask(method, path, body.as_bytes());
    asked.map_err(|error| asking.cannot(&error))
}

/// A gate to ask.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    address: SocketAddr,
    /// Further header lines; first the one that shows the key, if there is one.
    headers: String,
    /// Longest wait for an answer.
    at_most: Duration,
}

impl Asking {
    /// The gate that listens at `listen`, asked with the key of the environment.
    pub(super) fn of(listen: SocketAddr) -> Result<Self, Failure> {
        let headers = match std::env::var(KEY) {
            Ok(key) if key.chars().all(|c| c.is_ascii_graphic()) && !key.is_empty() => {
                format!("authorization: Bearer {key}\r\n")
            }
            Ok(key) if !key.is_empty() => {
                return Err(Failure::usage(format!("{KEY} holds no key that a header can carry")));
            }
            _ => String::new(),
        };
        Ok(Self { address: reachable(listen), headers, at_most: ANSWER_MAX })
    }

    /// A way to ask one question after the other.
    pub(super) fn connection(&self) -> Connection {
        Connection { asking: self.clone(), stream: None }
    }

    /// What to say when nobody answers.
    pub(super) fn cannot(&self, error: &io::Error) -> Failure {
        Failure::runtime(format!(
            "cannot ask the gate on {}: {error}\n  is it running? name its address with --listen, \
             or its config with --config",
            self.address
        ))
    }
}

/// A connection that is opened when it is needed and kept as long as the gate keeps it.
pub(super) struct Connection {
    asking: Asking,
    stream: Option<TcpStream>,
}

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
        let Asking { address, headers, at_most } = self.asking.clone();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}\
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
        let stream = TcpStream::connect(self.asking.address)?;
        stream.set_read_timeout(Some(at_most))?;
        stream.set_write_timeout(Some(at_most))?;
        stream.set_nodelay(true)?;
        self.exchange(stream, &request)
    }

    fn exchange(&mut self, mut stream: TcpStream, request: &[u8]) -> io::Result<Answer> {
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
