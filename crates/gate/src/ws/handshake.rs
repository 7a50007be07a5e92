//! Opening handshake of a WebSocket: validation of the request, and response headers.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Length of `sec-websocket-key`: 16 bytes in base64.
const KEY_CHARS: usize = 24;

/// Validates an upgrade request and returns the headers of the response.
pub(crate) fn accept(head: &Parts) -> Result<[(HeaderName, HeaderValue); 3], &'static str> {
    if head.version != Version::HTTP_11 {
        return Err("a websocket is opened over HTTP/1.1");
    }
    if !has_word(&head.headers, &header::UPGRADE, "websocket")
        || !has_word(&head.headers, &header::CONNECTION, "upgrade")
    {
        return Err("a GET at this door opens a websocket; send single events with POST");
    }
    let version = head.headers.get(header::SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version.as_bytes() != b"13") {
        return Err("the version of the websocket must be 13");
    }
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let is_key = |key: &&[u8]| key.len() == KEY_CHARS && key.ends_with(b"==");
    let key = key.filter(is_key).ok_or("the key of the websocket must be 16 bytes in base64")?;
    let accepted = HeaderValue::try_from(derive_accept_key(key))
        .map_err(|_| "the key of the websocket is not valid")?;
    Ok([
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::SEC_WEBSOCKET_ACCEPT, accepted),
    ])
}

/// Whether a header with a list value contains `word`.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn accept_key(headers: &[(&str, &str)]) -> Result<String, &'static str> {
        let mut request = Request::get("/v1/ingress");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        accept(&head).map(|headers| headers[2].1.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_handshake_follows_the_rfc_and_anything_else_is_refused() {
        let good = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert_eq!(accept_key(&good).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for left_out in 0..good.len() {
            let mut headers = good.to_vec();
            headers.remove(left_out);
            accept_key(&headers).unwrap_err();
        }
        for (at, wrong) in [(0, "h2c"), (1, "close"), (2, "8"), (3, "c2hvcnQ=")] {
            let mut headers = good;
            headers[at].1 = wrong;
            accept_key(&headers).unwrap_err();
        }
    }
}
