//! Splits a request into its events, each with its unmodified bytes of the body.
//!
//! Whenever the request can be stored it is not refused here: a malformed batch continues as one
//! submission, which vetting refuses and the ledger stores.

use admit_core::json::{self, Limits, Value};
use admit_core::{Code, Submission};
use bytes::Bytes;

use super::identity::IDEMPOTENCY_KEY;
use super::media::{self, TransportMode};
use super::settings::{Accept, Settings};
use super::webhooks;
use crate::{RequestRejection, RequestShape, SplitRequest};

/// See [`Contract::split`](crate::Contract::split).
pub(super) fn split(
    settings: &Settings,
    submission: Submission,
) -> Result<SplitRequest, RequestRejection> {
    if let Some(webhooks) = &settings.webhooks {
        webhooks.verify(&submission)?;
    }
    match TransportMode::of(&submission) {
        TransportMode::Lines => lines(settings, submission),
        TransportMode::Batch => batch(settings, submission),
        mode @ (TransportMode::Plain { .. }
        | TransportMode::Binary { .. }
        | TransportMode::Structured
        | TransportMode::Line(_)) => {
            let has_type = submission.header(media::CONTENT_TYPE).is_some();
            let needs_none =
                matches!(mode, TransportMode::Binary { .. }) && submission.body.is_empty();
            if !has_type && !needs_none && settings.accept == Accept::Json {
                let message = "the content type must be application/json".to_owned();
                return Err(RequestRejection { code: Code::UnsupportedMediaType, message });
            }
            Ok(SplitRequest::one(submission))
        }
    }
}

/// See [`Contract::split_reads_body`](crate::Contract::split_reads_body).
pub(super) fn reads_body(settings: &Settings, submission: &Submission) -> bool {
    settings.webhooks.is_some()
        || matches!(TransportMode::of(submission), TransportMode::Lines | TransportMode::Batch)
}

fn lines(settings: &Settings, submission: Submission) -> Result<SplitRequest, RequestRejection> {
    let lines = submission.body.split(|byte| *byte == b'\n').zip(1u64..);
    let lines: Vec<(&[u8], u64)> = lines
        .map(|(line, number)| (line.trim_ascii(), number))
        .filter(|(line, _)| !line.is_empty())
        .take(settings.events_per_request_max.saturating_add(1))
        .collect();
    if lines.is_empty() {
        return Ok(SplitRequest::one(submission));
    }
    check_count(settings, lines.len())?;
    let is_key_header = |name: &str| matches!(name, IDEMPOTENCY_KEY | webhooks::ID);
    let named: Vec<_> = submission.headers.iter().filter(|(name, _)| is_key_header(name)).collect();
    let piece = |(line, number): &(&[u8], u64)| {
        let mut headers: Vec<_> = named.iter().map(|&header| header.clone()).collect();
        headers.push((media::LINE.to_owned(), number.to_string()));
        of(&submission, submission.body.slice_ref(line), headers)
    };
    let submissions = lines.iter().map(piece).collect();
    let numbers = lines.iter().map(|(_, number)| *number).collect();
    Ok(SplitRequest { submissions, shape: RequestShape::Lines(numbers) })
}

fn batch(settings: &Settings, submission: Submission) -> Result<SplitRequest, RequestRejection> {
    let limits =
        Limits { depth_max: settings.json_depth_max.saturating_add(1), bytes_max: usize::MAX };
    let count = match json::parse(&submission.body, &limits) {
        Ok(Value::Array(elements)) => elements.len(),
        // Vetting refuses it with a reason, and it is stored.
        Ok(_) | Err(_) => return Ok(SplitRequest::one(submission)),
    };
    check_count(settings, count)?;
    let piece = |element: &[u8]| {
        let headers = vec![(media::CONTENT_TYPE.to_owned(), media::STRUCTURED.to_owned())];
        of(&submission, submission.body.slice_ref(element), headers)
    };
    let submissions: Vec<_> = elements(&submission.body).map(piece).collect();
    debug_assert_eq!(submissions.len(), count, "both read the same array");
    Ok(SplitRequest { submissions, shape: RequestShape::Array })
}

fn check_count(settings: &Settings, count: usize) -> Result<(), RequestRejection> {
    let most = settings.events_per_request_max;
    if count <= most {
        return Ok(());
    }
    let message = format!("one request takes at most {most} events, this one has more");
    Err(RequestRejection { code: Code::BodyTooLarge, message })
}

fn of(whole: &Submission, body: Bytes, headers: Vec<(String, String)>) -> Submission {
    let Submission { principal, received_at, nonce, .. } = whole;
    let (principal, received_at, nonce) = (principal.clone(), *received_at, *nonce);
    Submission { principal, received_at, body, headers, nonce }
}

/// Returns the raw elements of a valid JSON array.
fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let inner = array.trim_ascii();
    let inner = inner.get(1..inner.len().saturating_sub(1)).unwrap_or_default();
    let mut rest = (!inner.trim_ascii().is_empty()).then_some(inner);
    std::iter::from_fn(move || {
        let all = rest?;
        let end = comma(all);
        rest = end.map(|end| &all[end + 1..]);
        Some(all[..end.unwrap_or(all.len())].trim_ascii())
    })
}

/// Finds the first comma outside of strings and brackets.
fn comma(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    text.iter().position(|byte| {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            return false;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => return depth == 0,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(array: &str) -> Vec<&str> {
        elements(array.as_bytes()).map(|text| std::str::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn array_elements_keep_their_bytes() {
        assert!(texts("[]").is_empty() && texts(" [ \n ] ").is_empty());
        assert_eq!(texts("[1]"), ["1"]);
        assert_eq!(
            texts(r#" [ {"a":",]}\"," , "b":[1,2]} , "\\" ,[],"x,\\\"y" ] "#),
            [r#"{"a":",]}\"," , "b":[1,2]}"#, r#""\\""#, "[]", r#""x,\\\"y""#]
        );
    }

    proptest! {
        #[test]
        fn every_element_reads_back(
            values in prop::collection::vec(
                prop_oneof![
                    "[\\[\\]{},:\"\\\\ a]{0,8}".prop_map(serde_json::Value::from),
                    any::<i32>().prop_map(serde_json::Value::from),
                    prop::collection::vec("[,\"\\\\]{0,3}", 0..3).prop_map(|v| serde_json::json!(v)),
                    prop::collection::btree_map("[,\"}]{0,2}", "[\\]{]{0,2}", 0..3)
                        .prop_map(|v| serde_json::json!(v)),
                ],
                0..6,
            )
        ) {
            let array = serde_json::to_string_pretty(&values).unwrap();
            let read: Vec<serde_json::Value> =
                texts(&array).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
            prop_assert_eq!(read, values);
        }
    }
}
