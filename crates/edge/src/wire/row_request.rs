//! HTTP request stored in a row: the headers that identify an event, and its body, as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The request of one event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRequest {
    /// The headers, in order.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestJson {
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl RowRequest {
    /// Encodes the request as a row's payload.
    pub fn to_payload(&self) -> String {
        let (body, body_base64) = match std::str::from_utf8(&self.body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&self.body))),
        };
        let text = RequestJson { headers: self.headers.clone(), body, body_base64 };
        serde_json::to_string(&text).expect("strings are always valid JSON")
    }

    /// Decodes the request of a row; `None` if the payload is not one.
    pub fn from_payload(payload: &str) -> Option<Self> {
        let text: RequestJson = serde_json::from_str(payload).ok()?;
        let body = match (text.body, text.body_base64) {
            (Some(body), None) => body.into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).ok()?,
            _ => return None,
        };
        Some(Self { headers: text.headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_body_survives_a_round_trip() {
        let headers = vec![("idempotency-key".to_owned(), "k\"1".to_owned())];
        for body in [&b"{\"a\": 1.0}"[..], b"", b"\xff\x00", "ä\u{2028}".as_bytes()] {
            let request = RowRequest { headers: headers.clone(), body: body.to_vec() };
            assert_eq!(RowRequest::from_payload(&request.to_payload()), Some(request));
        }
        for wrong in ["", "{}", r#"{"headers":[]}"#, r#"{"headers":[],"body_base64":"?"}"#] {
            assert_eq!(RowRequest::from_payload(wrong), None, "{wrong}");
        }
    }
}
