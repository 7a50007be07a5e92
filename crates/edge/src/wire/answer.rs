//! What the gate's answers mean, in each dialect it speaks.
//!
//! Only an answer that says, in its contract's words, that this very event is stored counts as an
//! acknowledgement. Anything else, a page of a proxy with status 200 not least, does not.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Said;

/// The longest part of an answer that is not understood which is kept as its error.
const EXCERPT_BYTES_MAX: usize = 120;

/// The text at `path`.
fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(value, |value, name| value.get(name))?.as_str()
}

/// An answer of the skyra door: which event it names, and what it says of it. Over HTTP it has a
/// status too.
pub(super) fn skyra(body: &[u8], status: Option<u16>) -> (Option<String>, Said) {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return (None, not_understood(status, body));
    };
    let name = text(&answer, &["event_id"]).map(str::to_owned);
    let is_stored = text(&answer, &["status"]) == Some("stored") && answer.get("error").is_none();
    let said = match is_stored {
        true => Said::Ack,
        false => refused(&answer, body, status),
    };
    (name, said)
}

/// What is read of an envelope before it is sent; the rest is passed over.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
}

/// The event id that a payload of the skyra door names.
pub(super) fn skyra_name(payload: &str) -> Option<String> {
    let envelope: Envelope<'_> = serde_json::from_str(payload).ok()?;
    envelope.event_id.map(Cow::into_owned)
}

/// The session that a payload of the skyra door belongs to.
pub(super) fn skyra_session(payload: &str) -> Option<String> {
    let envelope: Envelope<'_> = serde_json::from_str(payload).ok()?;
    envelope.session_id.map(Cow::into_owned)
}

/// An answer of the pixel-control door to the event in `payload`.
pub(super) fn pixel(status: u16, body: &[u8], payload: &str) -> Said {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return not_understood(Some(status), body);
    };
    let sent: Value = serde_json::from_str(payload).unwrap_or_default();
    let is_about_it = ["event_id", "idempotency_key"].iter().all(|name| {
        text(&answer, &["ack", name]).is_some()
            && text(&answer, &["ack", name]) == text(&sent, &["envelope", name])
    });
    let is_accepted = text(&answer, &["ack", "status"]) == Some("accepted");
    if is_accepted && is_about_it && answer.get("error").is_none() {
        return Said::Ack;
    }
    refused(&answer, body, Some(status))
}

/// An answer of a stream to the event called `key`.
pub(super) fn events(status: u16, body: &[u8], key: &str) -> Said {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return not_understood(Some(status), body);
    };
    let is_in = matches!(status, 200 | 201) && text(&answer, &["key"]) == Some(key);
    if is_in && answer.get("receipt_id").is_some() {
        return Said::Ack;
    }
    refused(&answer, body, Some(status))
}

/// A refusal in one of the typed shapes: `error` or `ack` with a code, a message, and whether to
/// come back.
fn refused(answer: &Value, body: &[u8], status: Option<u16>) -> Said {
    let shapes = [answer.get("error"), answer.get("ack")];
    let typed = shapes.into_iter().flatten().find(|shape| text(shape, &["code"]).is_some());
    let Some(typed) = typed else { return not_understood(status, body) };
    let code = text(typed, &["code"]).unwrap_or_default();
    let message = text(typed, &["message"]).unwrap_or_default();
    let retryable = typed.get("retryable").and_then(Value::as_bool).unwrap_or(false);
    let seconds = typed.get("retry_after_seconds").and_then(Value::as_u64).unwrap_or(0);
    Said::Nack {
        error: format!("{code}: {message}"),
        // The sender's own key or place is wrong: that is no event's fault, so none is tried while
        // it lasts.
        retryable: retryable || matches!(status, Some(401 | 403 | 404)),
        retry_after: Duration::from_secs(seconds),
    }
}

fn not_understood(status: Option<u16>, body: &[u8]) -> Said {
    let text = String::from_utf8_lossy(body);
    let excerpt = &text[..text.floor_char_boundary(EXCERPT_BYTES_MAX)];
    let excerpt: String = excerpt.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let status = status.map(|status| format!(" with status {status}")).unwrap_or_default();
    let error = format!("an answer{status} that is none of the gate's: {excerpt}");
    // A proxy, or something else in the gate's place. It may pass.
    Said::Nack { error, retryable: true, retry_after: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ack(said: &Said) -> bool {
        *said == Said::Ack
    }

    #[test]
    fn only_the_words_for_stored_acknowledge_a_skyra_event() {
        let ack = br#"{"event_id":"evt_1","ack_ts":"2026-02-16T23:10:22Z","status":"stored"}"#;
        assert_eq!(skyra(ack, None), (Some("evt_1".to_owned()), Said::Ack));
        let nack = br#"{"event_id":null,"nack_ts":"x","status":"rejected",
            "error":{"code":"invalid_envelope","message":"invalid envelope: ts","retryable":false}}"#;
        let (name, said) = skyra(nack, None);
        assert_eq!(name, None);
        let Said::Nack { error, retryable, .. } = said else { panic!("{said:?}") };
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
    fn a_key_that_is_not_known_is_no_events_fault_and_may_pass() {
        let nack = br#"{"event_id":null,"nack_ts":"x","status":"rejected",
            "error":{"code":"unauthorized","message":"the key is not known","retryable":false}}"#;
        for (status, wanted) in [(401, true), (403, true), (404, true), (400, false)] {
            let (_, said) = skyra(nack, Some(status));
            let Said::Nack { retryable, .. } = said else { panic!("{said:?}") };
            assert_eq!(retryable, wanted, "{status}");
        }
    }

    #[test]
    fn an_envelope_is_read_as_far_as_needed_and_never_more() {
        let payload =
            r#"{"payload":{"event_id":"inner"},"event_id":"evt_\u00e4","session_id":"s"}"#;
        assert_eq!(skyra_name(payload).as_deref(), Some("evt_ä"));
        assert_eq!(skyra_session(payload).as_deref(), Some("s"));
        for nothing in ["", "[]", "{}", r#"{"event_id":7}"#, r#"{"event_id":"a""#] {
            assert_eq!(skyra_name(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_pixel_ack_must_be_about_the_event_that_was_sent() {
        let payload = r#"{"envelope":{"event_id":"e","idempotency_key":"k"},"transport":{}}"#;
        let ack = |id: &str, status: &str| {
            format!(r#"{{"ack":{{"status":"{status}","event_id":"{id}","idempotency_key":"k"}}}}"#)
        };
        assert!(is_ack(&pixel(200, ack("e", "accepted").as_bytes(), payload)));
        assert!(!is_ack(&pixel(200, ack("f", "accepted").as_bytes(), payload)));
        assert!(!is_ack(&pixel(200, ack("e", "ok").as_bytes(), payload)));
        let rejected = br#"{"ack":{"status":"rejected","code":"invalid_envelope","message":"m","retryable":false}}"#;
        let Said::Nack { error, retryable, .. } = pixel(200, rejected, payload) else { panic!() };
        assert_eq!((error.as_str(), retryable), ("invalid_envelope: m", false));
        for nothing in ["{}", "[]", "", r#"{"ack":{"status":"accepted"}}"#, "<html>ok</html>"] {
            assert!(!is_ack(&pixel(200, nothing.as_bytes(), payload)), "{nothing}");
        }
    }

    #[test]
    fn a_streams_receipt_must_be_of_this_key() {
        let receipt = br#"{"receipt_id":"rcp-1-1","stream":"default","key":"ab"}"#;
        assert!(is_ack(&events(201, receipt, "ab")));
        assert!(!is_ack(&events(201, receipt, "cd")));
        assert!(!is_ack(&events(500, receipt, "ab")));
        let full = br#"{"status":503,"error":{"code":"ledger_unavailable","message":"full",
            "retryable":true,"retry_after_seconds":7}}"#;
        let Said::Nack { retryable, retry_after, .. } = events(503, full, "ab") else { panic!() };
        assert!(retryable && retry_after == Duration::from_secs(7));
    }

    #[test]
    fn what_a_proxy_says_is_no_ack_and_may_pass() {
        let page = "<html>\n<b>502 Bad Gateway</b>".repeat(50);
        let Said::Nack { error, retryable, .. } = events(502, page.as_bytes(), "k") else {
            panic!()
        };
        assert!(retryable && error.contains("status 502") && !error.contains('\n'), "{error}");
        assert!(error.len() < 250, "{error}");
    }
}
