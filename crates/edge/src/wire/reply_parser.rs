//! Parsing of the gate's replies, for each door.
//!
//! Only a reply that states, in the format of its contract, that this very event is stored is an
//! acknowledgement. Anything else is not, including a proxy's page with status 200.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::AckResult;

/// Maximum length of the excerpt of an unknown reply that is stored as its error.
const EXCERPT_BYTES_MAX: usize = 120;

/// The string at `path`.
fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(value, |value, name| value.get(name))?.as_str()
}

/// Parses a reply of the skyra door: the event it names, and the result. Over HTTP it has a status
/// too.
pub(super) fn skyra(body: &[u8], status: Option<u16>) -> (Option<String>, AckResult) {
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        return (None, unknown_reply(status, body));
    };
    let name = text(&reply, &["event_id"]).map(str::to_owned);
    let is_stored = text(&reply, &["status"]) == Some("stored") && reply.get("error").is_none();
    let result = match is_stored {
        true => AckResult::Ack,
        false => refusal(&reply, body, status),
    };
    (name, result)
}

/// The fields of an envelope that are read before it is sent.
#[derive(Deserialize)]
struct EnvelopeFields<'a> {
    #[serde(borrow)]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
}

/// The event id in a payload of the skyra door.
pub(super) fn skyra_event_id(payload: &str) -> Option<String> {
    let envelope: EnvelopeFields<'_> = serde_json::from_str(payload).ok()?;
    envelope.event_id.map(Cow::into_owned)
}

/// The session id in a payload of the skyra door.
pub(super) fn skyra_session(payload: &str) -> Option<String> {
    let envelope: EnvelopeFields<'_> = serde_json::from_str(payload).ok()?;
    envelope.session_id.map(Cow::into_owned)
}

/// Parses a reply of the pixel-control door to the event in `payload`.
pub(super) fn pixel(status: u16, body: &[u8], payload: &str) -> AckResult {
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        return unknown_reply(Some(status), body);
    };
    let sent: Value = serde_json::from_str(payload).unwrap_or_default();
    let matches_event = ["event_id", "idempotency_key"].iter().all(|name| {
        text(&reply, &["ack", name]).is_some()
            && text(&reply, &["ack", name]) == text(&sent, &["envelope", name])
    });
    let is_accepted = text(&reply, &["ack", "status"]) == Some("accepted");
    if is_accepted && matches_event && reply.get("error").is_none() {
        return AckResult::Ack;
    }
    refusal(&reply, body, Some(status))
}

/// Parses a reply of a stream to the event with this key.
pub(super) fn events(status: u16, body: &[u8], key: &str) -> AckResult {
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        return unknown_reply(Some(status), body);
    };
    let is_stored = matches!(status, 200 | 201) && text(&reply, &["key"]) == Some(key);
    if is_stored && reply.get("receipt_id").is_some() {
        return AckResult::Ack;
    }
    refusal(&reply, body, Some(status))
}

/// Parses a typed refusal: `error` or `ack` with a code, a message, and whether to retry.
fn refusal(reply: &Value, body: &[u8], status: Option<u16>) -> AckResult {
    let shapes = [reply.get("error"), reply.get("ack")];
    let typed = shapes.into_iter().flatten().find(|shape| text(shape, &["code"]).is_some());
    let Some(typed) = typed else { return unknown_reply(status, body) };
    let code = text(typed, &["code"]).unwrap_or_default();
    let message = text(typed, &["message"]).unwrap_or_default();
    let retryable = typed.get("retryable").and_then(Value::as_bool).unwrap_or(false);
    let seconds = typed.get("retry_after_seconds").and_then(Value::as_u64).unwrap_or(0);
    AckResult::Nack {
        error: format!("{code}: {message}"),
        // The sender's own key or URL is wrong, which is not the event's fault: pause all rows
        // while it lasts.
        retryable: retryable || matches!(status, Some(401 | 403 | 404)),
        retry_after: Duration::from_secs(seconds),
    }
}

fn unknown_reply(status: Option<u16>, body: &[u8]) -> AckResult {
    let text = String::from_utf8_lossy(body);
    let excerpt = &text[..text.floor_char_boundary(EXCERPT_BYTES_MAX)];
    let excerpt: String = excerpt.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let status = status.map(|status| format!(" with status {status}")).unwrap_or_default();
    let error = format!("unknown reply{status}, not from a gate: {excerpt}");
    // From a proxy or another server. It may be temporary.
    AckResult::Nack { error, retryable: true, retry_after: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ack(result: &AckResult) -> bool {
        *result == AckResult::Ack
    }

    #[test]
    fn only_status_stored_acknowledges_a_skyra_event() {
        let ack = br#"{"event_id":"evt_1","ack_ts":"2026-02-16T23:10:22Z","status":"stored"}"#;
        assert_eq!(skyra(ack, None), (Some("evt_1".to_owned()), AckResult::Ack));
        let nack = br#"{"event_id":null,"nack_ts":"x","status":"rejected",
            "error":{"code":"invalid_envelope","message":"invalid envelope: ts","retryable":false}}"#;
        let (name, result) = skyra(nack, None);
        assert_eq!(name, None);
        let AckResult::Nack { error, retryable, .. } = result else { panic!("{result:?}") };
        assert_eq!(error, "invalid_envelope: invalid envelope: ts");
        assert!(!retryable);
        for other in [
            r#"{"event_id":"evt_1","status":"accepted"}"#,
            r#"{"event_id":"evt_1","status":"stored","error":{"code":"x"}}"#,
            r#"{"event_id":"evt_1"}"#,
            "[]",
            "ok",
            "",
        ] {
            assert!(!is_ack(&skyra(other.as_bytes(), None).1), "{other}");
        }
    }

    #[test]
    fn an_unknown_api_key_is_retryable() {
        let nack = br#"{"event_id":null,"nack_ts":"x","status":"rejected",
            "error":{"code":"unauthorized","message":"the key is not known","retryable":false}}"#;
        for (status, expected) in [(401, true), (403, true), (404, true), (400, false)] {
            let (_, result) = skyra(nack, Some(status));
            let AckResult::Nack { retryable, .. } = result else { panic!("{result:?}") };
            assert_eq!(retryable, expected, "{status}");
        }
    }

    #[test]
    fn only_the_needed_envelope_fields_are_read() {
        let payload =
            r#"{"payload":{"event_id":"inner"},"event_id":"evt_\u00e4","session_id":"s"}"#;
        assert_eq!(skyra_event_id(payload).as_deref(), Some("evt_ä"));
        assert_eq!(skyra_session(payload).as_deref(), Some("s"));
        for nothing in ["", "[]", "{}", r#"{"event_id":7}"#, r#"{"event_id":"a""#] {
            assert_eq!(skyra_event_id(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_pixel_ack_must_name_the_sent_event() {
        let payload = r#"{"envelope":{"event_id":"e","idempotency_key":"k"},"transport":{}}"#;
        let ack = |id: &str, status: &str| {
            format!(r#"{{"ack":{{"status":"{status}","event_id":"{id}","idempotency_key":"k"}}}}"#)
        };
        assert!(is_ack(&pixel(200, ack("e", "accepted").as_bytes(), payload)));
        assert!(!is_ack(&pixel(200, ack("f", "accepted").as_bytes(), payload)));
        assert!(!is_ack(&pixel(200, ack("e", "ok").as_bytes(), payload)));
        let rejected = br#"{"ack":{"status":"rejected","code":"invalid_envelope","message":"m","retryable":false}}"#;
        let AckResult::Nack { error, retryable, .. } = pixel(200, rejected, payload) else {
            panic!()
        };
        assert_eq!((error.as_str(), retryable), ("invalid_envelope: m", false));
        for nothing in ["{}", "[]", "", r#"{"ack":{"status":"accepted"}}"#, "<html>ok</html>"] {
            assert!(!is_ack(&pixel(200, nothing.as_bytes(), payload)), "{nothing}");
        }
    }

    #[test]
    fn a_stream_receipt_must_have_the_sent_key() {
        let receipt = br#"{"receipt_id":"rcp-1-1","stream":"default","key":"ab"}"#;
        assert!(is_ack(&events(201, receipt, "ab")));
        assert!(!is_ack(&events(201, receipt, "cd")));
        assert!(!is_ack(&events(500, receipt, "ab")));
        let full = br#"{"status":503,"error":{"code":"ledger_unavailable","message":"full",
            "retryable":true,"retry_after_seconds":7}}"#;
        let AckResult::Nack { retryable, retry_after, .. } = events(503, full, "ab") else {
            panic!()
        };
        assert!(retryable && retry_after == Duration::from_secs(7));
    }

    #[test]
    fn a_proxy_page_is_not_an_ack_and_is_retryable() {
        let page = "<html>\n<b>502 Bad Gateway</b>".repeat(50);
        let AckResult::Nack { error, retryable, .. } = events(502, page.as_bytes(), "k") else {
            panic!()
        };
        assert!(retryable && error.contains("status 502") && !error.contains('\n'), "{error}");
        assert!(error.len() < 250, "{error}");
    }
}
