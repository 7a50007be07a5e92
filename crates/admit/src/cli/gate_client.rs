//! HTTP client of the running gate, over the socket in its data folder or over TCP. Commands that write use
//! it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::output::Failure;

/// Environment variable with the key for a gate with principals.
pub(crate) const KEY_VARIABLE: &str = "ADMIT_KEY";

/// Timeout of a request; longer than any timeout of the gate.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of requests that read a whole run.
const REPORT_TIMEOUT: Duration = Duration::from_secs(900);

/// Maximum size of a reply.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reply of the gate.
pub(super) struct GateReply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// Whether the gate closes the connection after this reply.
    closes: bool,
}

fn reply_json(reply: GateReply) -> Result<serde_json::Value, Failure> {
    let reply_json: serde_json::Value = serde_json::from_slice(&reply.body)
        .map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    if reply.status == 200 {
        return Ok(reply_json);
    }
    let message = reply_json["error"]["message"].as_str().unwrap_or("no message").to_owned();
    Err(Failure::runtime(format!("the gate refused the request: {message}")))
}

/// Address of a gate.
#[derive(Clone, Debug)]
enum GateAddress {
    /// TCP address from the command line.
    Port(SocketAddr),
    /// Socket in the data folder, where file permissions replace the key. If it does not accept connections,
    /// `port` is tried.
    Folder { socket: PathBuf, port: Option<SocketAddr> },
}

/// Client of a gate.
#[derive(Clone, Debug)]
pub(super) struct GateClient {
    address: GateAddress,
    /// Additional header lines; the first holds the key, if there is one.
    headers: String,
    /// Timeout of a request.
    timeout: Duration,
}

impl GateClient {
    /// Client of the gate at `listen`. Without it: the socket in the data folder and, unless the data
    /// folder was given on the command line, the config's listen address. Uses the key from the
    /// environment.
    pub(super) fn new(
        config: &Config,
        listen: Option<SocketAddr>,
        is_folder_named: bool,
    ) -> Result<Self, Failure> {
        let headers = match std::env::var(KEY_VARIABLE) {
            Ok(key) if key.chars().all(|c| c.is_ascii_graphic()) && !key.is_empty() => {
                format!("authorization: Bearer {key}\r\n")
            }
            Ok(key) if !key.is_empty() => {
                return Err(Failure::usage(format!(
                    "the value of {KEY_VARIABLE} contains characters that a header cannot carry"
                )));
            }
            _ => String::new(),
        };
        // This client has no TLS.
        let may_use_port = !is_folder_named && !config.tls.is_on();
        let address = match listen {
            Some(address) => GateAddress::Port(connect_addr(address)),
            None => GateAddress::Folder {
                socket: config.socket(),
                port: may_use_port.then(|| connect_addr(config.listen)),
            },
        };
        Ok(Self { address, headers, timeout: REQUEST_TIMEOUT })
    }

    /// GETs a JSON document; `None` for 404.
    pub(super) fn get_if_found(&self, path: &str) -> Result<Option<serde_json::Value>, Failure> {
        let reply = self.request("GET", path, "")?;
        if reply.status == 404 { Ok(None) } else { reply_json(reply).map(Some) }
    }

    /// POSTs a JSON body.
    pub(super) fn post(&self, path: &str, body: &str) -> Result<GateReply, Failure> {
        self.request("POST", path, body)
    }

    /// [`Self::post`] with an additional header.
    pub(super) fn post_with(
        mut self,
        path: &str,
        header: Option<(&str, &str)>,
        body: &str,
    ) -> Result<GateReply, Failure> {
        if let Some((name, value)) = header {
            if value.chars().any(|c| c.is_control() || !c.is_ascii()) {
                return Err(Failure::usage(format!(
                    "invalid value for the header {name}: use printable ASCII"
                )));
            }
            self.headers.push_str(&format!("{name}: {value}\r\n"));
        }
        self.request("POST", path, body)
    }

    /// GETs a report of a run, with the longer timeout.
    pub(super) fn get_report(self, path: &str) -> Result<serde_json::Value, Failure> {
        reply_json(self.with_report_timeout().request("GET", path, "")?)
    }

    /// POSTs the close of a run, with the longer timeout.
    pub(super) fn post_close(self, path: &str, body: &str) -> Result<GateReply, Failure> {
        self.with_report_timeout().request("POST", path, body)
    }

    fn with_report_timeout(self) -> Self {
        Self { timeout: REPORT_TIMEOUT, ..self }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<GateReply, Failure> {
        let result = self.connection().request(method, path, body.as_bytes());
        result.map_err(|error| self.connect_failure(&error))
    }

    /// Creates a connection for several requests.
    pub(super) fn connection(&self) -> GateConnection {
        GateConnection { client: self.clone(), stream: None }
    }

    /// Connects to the socket or the port, chosen for each connection, because a gate may have started since.
    fn connect(&self) -> io::Result<Box<dyn GateStream>> {
        let (socket, port) = match &self.address {
            GateAddress::Port(port) => return self.connect_to(*port),
            GateAddress::Folder { socket, port } => (socket, *port),
        };
        let socket_error = match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(self.timeout))?;
                stream.set_write_timeout(Some(self.timeout))?;
                return Ok(Box::new(stream));
            }
            Err(error) => error,
        };
        let socket = socket.display();
        let Some(port) = port else {
            return Err(io::Error::new(socket_error.kind(), format!("{socket}: {socket_error}")));
        };
        self.connect_to(port).map_err(|error| {
            io::Error::new(error.kind(), format!("{socket}: {socket_error}; {port}: {error}"))
        })
    }

    fn connect_to(&self, port: SocketAddr) -> io::Result<Box<dyn GateStream>> {
        let stream = TcpStream::connect(port)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    /// Error for a gate that is not reachable.
    pub(super) fn connect_failure(&self, error: &io::Error) -> Failure {
        let port = match &self.address {
            GateAddress::Port(port) => format!(" on {port}"),
            GateAddress::Folder { .. } => String::new(),
        };
        Failure::runtime(format!(
            "cannot reach the gate{port}: {error}\n  is it running? give its data folder with \
             --data, its address with --listen, or its config with --config"
        ))
    }
}

/// Keep-alive connection, opened on first use and reopened after the gate closed it.
pub(super) struct GateConnection {
    client: GateClient,
    stream: Option<Box<dyn GateStream>>,
}

/// Unix or TCP stream.
trait GateStream: Read + Write {}

impl<S: Read + Write> GateStream for S {}

impl GateConnection {
    /// POSTs a JSON body and waits for the whole reply.
    pub(super) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<GateReply> {
        self.request("POST", path, body)
    }

    /// GETs a path.
    pub(super) fn get(&mut self, path: &str) -> io::Result<GateReply> {
        self.request("GET", path, b"")
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<GateReply> {
        let headers = &self.client.headers;
        let host = match self.client.address {
            GateAddress::Port(port) | GateAddress::Folder { port: Some(port), .. } => {
                port.to_string()
            }
            GateAddress::Folder { port: None, .. } => "localhost".to_owned(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        // The gate may have closed an idle connection; repeating the request on a new one is safe.
        if let Some(stream) = self.stream.take()
            && let Ok(reply) = self.exchange(stream, &request)
        {
            return Ok(reply);
        }
        self.exchange(self.client.connect()?, &request)
    }

    fn exchange(
        &mut self,
        mut stream: Box<dyn GateStream>,
        request: &[u8],
    ) -> io::Result<GateReply> {
        // A gate that refuses a body replies before it has read all of it.
        let sent = stream.write_all(request);
        let mut reply = Vec::with_capacity(1024);
        let mut part = [0; 16 * 1024];
        loop {
            let read = stream.read(&mut part)?;
            reply.extend_from_slice(&part[..read]);
            if let Some(whole) = parse(&reply) {
                if sent.is_ok() && !whole.closes {
                    self.stream = Some(stream);
                }
                return Ok(whole);
            }
            if read == 0 || reply.len() > REPLY_BYTES_MAX {
                sent?;
                let message = "the reply is not that of a gate";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
        }
    }
}

/// Parses a complete reply with a content-length; `None` while it is incomplete.
fn parse(reply: &[u8]) -> Option<GateReply> {
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&reply[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length: usize = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())?;
    let body = reply.get(end + 4..end + 4 + length)?;
    let closes = head.lines().any(|line| line.eq_ignore_ascii_case("connection: close"));
    Some(GateReply { status, body: body.to_vec(), closes })
}

/// Address to connect to: an unspecified listen address becomes loopback.
pub(crate) fn connect_addr(listen: SocketAddr) -> SocketAddr {
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
    fn a_reply_is_read_by_its_length() {
        let reply = parse(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((reply.status, reply.body.as_slice()), (409, &b"{}"[..]));
        assert!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").is_none(), "cut off");
        assert!(parse(b"SSH-2.0").is_none());
    }
}
