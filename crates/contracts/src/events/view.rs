//! Consumer view of an admitted event, independent of its transport mode.

use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::media;

/// Content: `attributes` of a CloudEvent, and `data` if it is JSON or else `data_base64`.
///
/// `facts` and `body` come from the ledger. A body removed by the operator is reported as
/// `data_removed`.
pub fn content(facts: &[u8], body: Option<&[u8]>) -> Object<'static> {
    let mut facts = parsed(facts).unwrap_or_default();
    let mode = facts.get("mode").and_then(Value::as_str).unwrap_or_default().to_owned();
    let fact = |name: &str| facts.get(name).cloned();
    let mut content = Object::new();
    for name in ["idempotency_key", "webhook_id", "content_type"] {
        if let Some(value) = fact(name) {
            content.push(name, value);
        }
    }
    let Some(body) = body else {
        content.push("data_removed", true);
        return content;
    };
    let value = parsed(body);
    match (mode.as_str(), value) {
        ("structured", Some(Value::Object(mut members))) => {
            let data = members.remove("data");
            let encoded = members.remove("data_base64");
            content.push("attributes", members);
            content.extend(data.map(|data| ("data", data)));
            content.extend(encoded.filter(|e| !e.is_null()).map(|e| ("data_base64", e)));
        }
        (mode, value) => {
            if mode == "binary"
                && let Value::Object(facts) = &mut facts
            {
                content.push("attributes", facts.remove("attributes").unwrap_or_default());
            }
            let is_json = content
                .get("content_type")
                .and_then(Value::as_str)
                .is_none_or(|kind| media::is_json(&media::essence(kind)));
            match value.filter(|_| is_json) {
                Some(value) => content.push("data", value),
                None if body.is_empty() => {}
                None => content.push("data_base64", BASE64_STANDARD.encode(body)),
            }
        }
    }
    content
}

fn parsed(bytes: &[u8]) -> Option<Value<'static>> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    json::parse(bytes, &limits).ok().map(Value::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(facts: &str, body: &[u8]) -> String {
        let mut out = Vec::new();
        json::write_object(&content(facts.as_bytes(), Some(body)), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn consumers_see_the_same_event_for_every_transport_mode() {
        let structured =
            br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}"#;
        let attributes = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#;
        assert_eq!(
            seen(r#"{"mode":"structured"}"#, structured),
            format!(r#"{{"attributes":{attributes},"data":{{"a":1}}}}"#)
        );
        let facts = format!(r#"{{"mode":"binary","attributes":{attributes}}}"#);
        assert_eq!(
            seen(&facts, br#"{"a":1}"#),
            format!(r#"{{"attributes":{attributes},"data":{{"a":1}}}}"#)
        );
        assert_eq!(seen(&facts, b""), format!(r#"{{"attributes":{attributes}}}"#));
    }

    #[test]
    fn plain_events_are_their_body() {
        assert_eq!(seen("{}", b" [1, 2.50]"), r#"{"data":[1,2.5]}"#);
        assert_eq!(
            seen(r#"{"idempotency_key":"k","content_type":"text/plain"}"#, b"{}"),
            r#"{"idempotency_key":"k","content_type":"text/plain","data_base64":"e30="}"#
        );
        let removed = content(b"{}", None);
        assert_eq!(removed.get("data_removed"), Some(&Value::from(true)));
    }
}
