//! Renders verdicts: receipts for admitted events, problem details for the rest.
//!
//! Invariant: the reply to a copy is rendered from the stored first admission by the same function
//! as the first reply, so the two are byte-identical except for one header.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, Event, Millis, ReceiptId, RecordedEntry, Seq, Verdict};

use crate::{Reply, RequestShape};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const PROBLEM: &str = "application/problem+json";

/// Header that marks the reply to a copy.
const REPLAYED: (&str, &str) = ("idempotent-replayed", "true");

/// Retry hint for an internal defect detected in this file.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// See [`Contract::reply`](crate::Contract::reply).
pub(super) fn reply(stream: &str, recorded: &RecordedEntry) -> Reply {
    let receipt = |seq: Seq| ReceiptId { ledger: recorded.ledger, seq };
    let event = match &recorded.entry {
        Entry::Event(event) => event,
        Entry::Refused(refused) => {
            let mut more = Object::new();
            if let Some(id) = recorded.receipt_id() {
                more.push("receipt_id", id.to_string());
            }
            if let Some(violations) = refused.facts.get("violations") {
                more.push("violations", violations.clone());
            }
            return problem_with(refused.code, &refused.message, 0, more);
        }
    };
    match &recorded.verdict {
        // A revision is stored and applied; this contract never requests one.
        Verdict::Fresh { seq } | Verdict::Revision { seq, .. } => {
            admitted_reply(stream, event, receipt(*seq), event.received_at)
        }
        Verdict::Duplicate { first, .. } => {
            let mut reply = admitted_reply(stream, event, receipt(first.seq), first.received_at);
            reply.headers.push((REPLAYED.0, REPLAYED.1.to_owned()));
            reply
        }
        Verdict::Conflict { seq, first } => {
            let first = receipt(first.seq);
            let message = format!("this key was used before for other content, see {first}");
            let more = Object::from_iter([
                ("receipt_id", Value::from(receipt(*seq).to_string())),
                ("first_receipt_id", first.to_string().into()),
            ]);
            problem_with(Code::IdempotencyKeyReused, &message, 0, more)
        }
        // A ledger never refuses a vetted event. If it does, the reply must not claim anything.
        Verdict::Refused { .. } => {
            problem(Code::InternalError, "the event could not be processed", DEFECT_RETRY_SECONDS)
        }
    }
}

/// Receipt of an admitted event: 201, because a receipt was created and is durable.
fn admitted_reply(stream: &str, event: &Event, id: ReceiptId, received_at: Millis) -> Reply {
    let receipt = Object::from_iter([
        ("receipt_id", Value::from(id.to_string())),
        ("stream", stream.into()),
        ("key", event.key.to_string().into()),
        ("received_at", received_at.to_rfc3339_millis().into()),
    ]);
    let mut body = Vec::with_capacity(192);
    json::write_object(&receipt, &mut body);
    let headers = vec![("location", format!("/v1/receipts/{id}"))];
    Reply { status: 201, content_type: JSON, headers, body }
}

/// Renders `code` as problem details (RFC 9457), with the general error object beside them.
pub fn problem(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    problem_with(code, message, retry_after_seconds, Object::new())
}

fn problem_with(code: Code, message: &str, retry_after: u32, more: Object<'_>) -> Reply {
    let message = if message.is_empty() { code.as_str() } else { message };
    let retry_after = if code.is_retryable() { retry_after } else { 0 };
    let status = code.http_status();
    let error = Object::from_iter([
        ("code", Value::from(code.as_str())),
        ("message", message.into()),
        ("retryable", code.is_retryable().into()),
        ("retry_after_seconds", retry_after.into()),
    ]);
    let mut problem = Object::from_iter([
        ("type", Value::from(format!("/problems/{}", code.as_str()))),
        ("title", code.as_str().replace('_', " ").into()),
        ("status", status.into()),
        ("detail", message.into()),
    ]);
    problem.extend(more);
    problem.push("error", error);
    let mut body = Vec::with_capacity(384);
    json::write_object(&problem, &mut body);
    let mut headers = Vec::new();
    if retry_after > 0 {
        headers.push(("retry-after", retry_after.to_string()));
    }
    Reply { status, content_type: PROBLEM, headers, body }
}

/// See [`Contract::join`](crate::Contract::join). Lists the reply to each event, in order; the
/// status is the worst of them, so a sender that checks only the status loses nothing.
pub(super) fn join(shape: &RequestShape, mut replies: Vec<Reply>) -> Reply {
    if *shape == RequestShape::One {
        return replies.pop().unwrap_or_else(|| {
            problem(
                Code::InternalError,
                "no reply was produced for the event",
                DEFECT_RETRY_SECONDS,
            )
        });
    }
    let is_worth_a_retry = |reply: &Reply| reply.status >= 500 || matches!(reply.status, 408 | 429);
    let status = if replies.iter().any(is_worth_a_retry) {
        503
    } else if replies.iter().all(|reply| reply.status < 300) {
        200
    } else {
        207
    };
    let hints = replies.iter().flat_map(|reply| &reply.headers);
    let hint = hints
        .filter(|(name, _)| *name == "retry-after")
        .filter_map(|(_, seconds)| seconds.parse::<u32>().ok())
        .max();
    let headers = hint.map(|seconds| ("retry-after", seconds.to_string())).into_iter().collect();
    let mut body = Vec::with_capacity(replies.len() * 256 + 2);
    let content_type = match shape {
        RequestShape::Lines(numbers) => {
            for (reply, number) in replies.iter().zip(numbers) {
                result("line", *number, reply, &mut body);
                body.push(b'\n');
            }
            LINES
        }
        RequestShape::Array | RequestShape::One => {
            body.push(b'[');
            for (reply, index) in replies.iter().zip(0u64..) {
                if index > 0 {
                    body.push(b',');
                }
                result("index", index, reply, &mut body);
            }
            body.push(b']');
            JSON
        }
    };
    Reply { status, content_type, headers, body }
}

/// Appends one result of a batch: the event, its status, and the members of its own reply.
fn result(name: &str, number: u64, reply: &Reply, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"{name}\":{number},").as_bytes());
    // Problem details have their own status member.
    if reply.content_type != PROBLEM {
        let replayed = reply.headers.iter().any(|(name, _)| *name == REPLAYED.0);
        let status = format!("\"status\":{},\"replayed\":{replayed},", reply.status);
        out.extend_from_slice(status.as_bytes());
    }
    // Every reply of this file is an object with members.
    out.extend_from_slice(reply.body.get(1..).unwrap_or(b"}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_a_problem_with_the_general_error_in_it() {
        for code in Code::ALL {
            let reply = problem(*code, "why", 7);
            let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(reply.content_type, "application/problem+json");
            assert_eq!(body["status"], reply.status);
            assert_eq!(body["error"]["code"], code.as_str());
            assert_eq!(body["type"], format!("/problems/{}", code.as_str()));
            let hint = if code.is_retryable() { 7 } else { 0 };
            assert_eq!(body["error"]["retry_after_seconds"], hint);
            assert_eq!(reply.headers.is_empty(), hint == 0);
        }
        let silent: serde_json::Value =
            serde_json::from_slice(&problem(Code::NotFound, "", 0).body).unwrap();
        assert_eq!(silent["detail"], "not_found");
    }

    fn receipt() -> Reply {
        let body = br#"{"receipt_id":"rcp-1"}"#.to_vec();
        Reply { status: 201, content_type: JSON, headers: Vec::new(), body }
    }

    #[test]
    fn a_batch_reply_has_the_worst_status_of_its_events() {
        let refused = || problem(Code::InvalidJson, "bad", 0);
        let fault = || problem(Code::LedgerUnavailable, "full", 9);
        for (replies, status) in [
            (vec![], 200),
            (vec![receipt(), receipt()], 200),
            (vec![receipt(), refused()], 207),
            (vec![refused(), refused()], 207),
            (vec![receipt(), refused(), fault()], 503),
        ] {
            let joined = join(&RequestShape::Array, replies);
            assert_eq!(joined.status, status);
            let hinted = joined.headers == [("retry-after", "9".to_owned())];
            assert_eq!(hinted, status == 503);
        }
    }

    #[test]
    fn every_line_has_a_result_with_its_number() {
        let joined = join(
            &RequestShape::Lines(vec![1, 3]),
            vec![receipt(), problem(Code::InvalidJson, "bad", 0)],
        );
        insta::assert_snapshot!(String::from_utf8(joined.body).unwrap(), @r#"
        {"line":1,"status":201,"replayed":false,"receipt_id":"rcp-1"}
        {"line":3,"type":"/problems/invalid_json","title":"invalid json","status":400,"detail":"bad","error":{"code":"invalid_json","message":"bad","retryable":false,"retry_after_seconds":0}}
        "#);
    }
}
