//! Whether the server syncs before it acknowledges, from its monitoring address.
//!
//! By default a server writes a message, acknowledges it and syncs every two minutes: a power cut
//! takes what was acknowledged. No client can ask for that over its own connection, so the
//! monitoring address is asked, where there is one.

use std::time::Duration;

use admit_core::json::{self, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the monitoring address may take.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most bytes of its answer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Whether the server syncs before it acknowledges. The error says why that could not be learnt.
pub(super) async fn syncs_always(monitor: &str) -> Result<bool, String> {
    let host = monitor.strip_prefix("http://").ok_or("only http:// can be asked")?;
    let host = host.trim_end_matches('/');
    let asked = async {
        let mut stream = TcpStream::connect(host).await?;
        // The old version has no chunks to put together.
        let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(WAIT_MAX, asked).await {
        Ok(Ok(answer)) => said(&answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} ms", WAIT_MAX.as_millis())),
    }
}

/// What an answer says.
fn said(answer: &[u8]) -> Result<bool, String> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let is_ok = answer.starts_with(b"HTTP/") && answer.get(8..12) == Some(b" 200".as_slice());
    let body = end.filter(|_| is_ok).map(|end| &answer[end + 4..]);
    let body = body.ok_or("the answer is not 200")?;
    let bytes_max = usize::try_from(ANSWER_BYTES_MAX).unwrap_or(usize::MAX);
    let limits = json::Limits { bytes_max, ..json::Limits::default() };
    let varz = json::parse(body, &limits).map_err(|error| format!("no JSON: {error}"))?;
    let config = varz.get("jetstream").and_then(|jetstream| jetstream.get("config"));
    let config = config.ok_or("the server has no jetstream")?;
    Ok(config.get("sync_always").is_some_and(|always| matches!(always, Value::Bool(true))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_server_says_whether_it_syncs() {
        let answer = |body: &str| format!("HTTP/1.0 200 OK\r\nDate: x\r\n\r\n{body}").into_bytes();
        let always =
            r#"{"jetstream":{"config":{"sync_interval":120000000000,"sync_always":true}}}"#;
        assert_eq!(said(&answer(always)), Ok(true));
        let later = r#"{"jetstream":{"config":{"sync_interval":120000000000}}}"#;
        assert_eq!(said(&answer(later)), Ok(false));
        for other in ["{}", "", "[1]"] {
            assert!(said(&answer(other)).is_err(), "{other}");
        }
        assert!(said(b"HTTP/1.0 404 Not Found\r\n\r\n{}").is_err());
        assert!(said(b"").is_err());
    }
}
