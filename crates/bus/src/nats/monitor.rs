//! Reads `sync_always` from the server's monitoring endpoint.
//!
//! By default a server writes a message, acknowledges it and syncs only every two minutes: a power
//! cut loses acknowledged messages. The setting is not visible over a client connection, only on
//! the monitoring endpoint, if one is configured.

use std::time::Duration;

use admit_core::json::{self, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the response.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;

/// Whether the server syncs before it acknowledges. The error is the reason why this is unknown.
pub(super) async fn syncs_always(monitor: &str) -> Result<bool, String> {
    let host = monitor.strip_prefix("http://").ok_or("only http:// is supported")?;
    let host = host.trim_end_matches('/');
    let exchange = async {
        let mut stream = TcpStream::connect(host).await?;
        // HTTP/1.0 has no chunked responses to reassemble.
        let request = format!("GET /varz HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    match timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(Ok(response)) => parse_varz(&response),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("timeout: no response within {} ms", REQUEST_TIMEOUT.as_millis())),
    }
}

/// Parses a `/varz` response.
fn parse_varz(response: &[u8]) -> Result<bool, String> {
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let is_ok = response.starts_with(b"HTTP/") && response.get(8..12) == Some(b" 200".as_slice());
    let body = end.filter(|_| is_ok).map(|end| &response[end + 4..]);
    let body = body.ok_or("the response status is not 200")?;
    let bytes_max = usize::try_from(RESPONSE_BYTES_MAX).unwrap_or(usize::MAX);
    let limits = json::Limits { bytes_max, ..json::Limits::default() };
    let varz = json::parse(body, &limits).map_err(|error| format!("invalid JSON: {error}"))?;
    let config = varz.get("jetstream").and_then(|jetstream| jetstream.get("config"));
    let config = config.ok_or("jetstream is not enabled on the server")?;
    Ok(config.get("sync_always").is_some_and(|always| matches!(always, Value::Bool(true))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_always_is_read_from_the_varz_response() {
        let response =
            |body: &str| format!("HTTP/1.0 200 OK\r\nDate: x\r\n\r\n{body}").into_bytes();
        let always =
            r#"{"jetstream":{"config":{"sync_interval":120000000000,"sync_always":true}}}"#;
        assert_eq!(parse_varz(&response(always)), Ok(true));
        let later = r#"{"jetstream":{"config":{"sync_interval":120000000000}}}"#;
        assert_eq!(parse_varz(&response(later)), Ok(false));
        for other in ["{}", "", "[1]"] {
            assert!(parse_varz(&response(other)).is_err(), "{other}");
        }
        assert!(parse_varz(b"HTTP/1.0 404 Not Found\r\n\r\n{}").is_err());
        assert!(parse_varz(b"").is_err());
    }
}
