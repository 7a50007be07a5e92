//! Asking the running gate: commands that write go through it, over the address it listens on.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::output::Failure;

/// Read by commands that talk to a gate with principals: the key they show.
pub(crate) const KEY: &str = "ADMIT_KEY";

/// Longest wait for an answer; a gate answers sooner.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Most of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// An answer of the gate.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Reads a JSON document of the gate at `listen`.
pub(super) fn get(listen: SocketAddr, path: &str) -> Result<serde_json::Value, Failure> {
    let answer = ask(listen, "GET", path, "")?;
    let said: serde_json::Value = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if answer.status == 200 {
        return Ok(said);
    }
    let message = said["error"]["message"].as_str().unwrap_or("no reason was given").to_owned();
    Err(Failure::runtime(format!("the gate refused: {message}")))
}

/// Posts a JSON body to the gate at `listen`.
pub(super) fn post(listen: SocketAddr, path: &str, body: &str) -> Result<Answer, Failure> {
    ask(listen, "POST", path, body)
}

fn ask(listen: SocketAddr, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
    let address = reachable(listen);
    let cannot = |error: std::io::Error| {
        Failure::runtime(format!(
            "cannot ask the gate on {address}: {error}\n  is it running? name its address with \
             --listen, or its config with --config"
        ))
    };
    let mut stream = TcpStream::connect(address).map_err(cannot)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(cannot)?;
    let key = match std::env::var(KEY) {
        Ok(key) if key.chars().all(|c| c.is_ascii_graphic()) && !key.is_empty() => {
            format!("authorization: Bearer {key}\r\n")
        }
        Ok(key) if !key.is_empty() => {
            return Err(Failure::usage(format!("{KEY} holds no key that a header can carry")));
        }
        _ => String::new(),
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{key}\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(cannot)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(cannot)?;
    parse(&answer).ok_or_else(|| Failure::runtime(format!("{address} does not answer like a gate")))
}

/// The status and the body of an answer that ends with its connection and says how long it is.
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
    Some(Answer { status, body: body.to_vec() })
}

/// Nobody can connect to "all addresses".
fn reachable(listen: SocketAddr) -> SocketAddr {
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
