//! Replies of the ingestion-gate door.

use admit_contracts::ingestion_gate::lookup;
use admit_contracts::ingestion_gate::service_token::TokenError;
use admit_contracts::{Contract as _, Reply};
use admit_core::json::write_object;
use admit_core::{Code, Document, Entry, Millis, RecordedEntry, Seq, StoredDocument, Verdict};
use serde_json::{Value, json};

use super::{DocumentStore, done, envelope, event, gate, refused, submission, without};

fn filed(documents: Vec<Document>) -> Vec<StoredDocument> {
    let file = |document| StoredDocument {
        n: 1,
        seq: Seq(1),
        of: None,
        at: Millis(0),
        document,
        superseded_by: None,
        released: None,
    };
    documents.into_iter().map(file).collect()
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn render(entry: Entry, documents: Vec<Document>) -> Reply {
    let verdict = Verdict::Fresh { seq: Seq(1) };
    gate().reply_with_documents(
        &RecordedEntry { entry, verdict, ledger: 7, outcome: None },
        &filed(documents),
    )
}

#[test]
fn a_decision_contains_its_receipt_and_its_path() {
    let event = event(&envelope());
    let documents = DocumentStore::default().settle(&event, &done());
    let (text, path) = (documents[0].text.clone(), documents[0].path.clone());
    let reply = render(Entry::Event(event), documents);
    assert_eq!(reply.status, 200);
    let receipt: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        body(&reply),
        json!({ "decision": "ADMIT", "receipt": receipt, "receipt_ref": path })
    );
}

#[test]
fn a_quarantine_is_a_decision_too() {
    let envelope = without("run_id");
    let reply =
        render(Entry::Refused(refused(&envelope)), DocumentStore::default().refuse(&envelope));
    assert_eq!(reply.status, 200);
    assert_eq!(body(&reply)["decision"], "QUARANTINE");
}

#[test]
fn an_envelope_without_a_run_gets_a_422_with_the_path_of_its_record() {
    let envelope = without("platform_run_id");
    let documents = DocumentStore::default().refuse(&envelope);
    let (id, path) = (documents[0].id.clone(), documents[0].path.clone());
    let reply = render(Entry::Refused(refused(&envelope)), documents);
    assert_eq!(reply.status, 422);
    assert_eq!(
        body(&reply),
        json!({
            "error": "PINS_MISSING",
            "detail": "no receipt can be written for it: platform_run_id is missing",
            "retryable": false,
            "quarantine_id": id,
            "quarantine_ref": path,
        })
    );
}

#[test]
fn a_body_that_is_not_json_gets_a_400() {
    let Entry::Refused(refused) = gate().vet(&super::door(), submission("{")) else {
        panic!("refused")
    };
    let reply = render(Entry::Refused(refused), Vec::new());
    assert_eq!((reply.status, &body(&reply)["error"]), (400, &json!("INVALID_JSON")));
}

#[test]
fn a_closed_run_gets_a_409() {
    let event = event(&envelope());
    let documents =
        DocumentStore::default().issue(admit_core::IssueReason::RunClosed, &event.facts);
    for reply in [gate().reply_closed(&filed(documents)), gate().refuse(Code::RunClosed, "", 1)] {
        assert_eq!((reply.status, &body(&reply)["error"]), (409, &json!("RUN_CLOSED")));
    }
}

#[test]
fn an_event_without_documents_is_never_reported_as_admitted() {
    let reply = gate().reply(&RecordedEntry {
        entry: Entry::Event(event(&envelope())),
        verdict: Verdict::Fresh { seq: Seq(1) },
        ledger: 7,
        outcome: None,
    });
    assert_eq!((reply.status, &body(&reply)["error"]), (500, &json!("INTERNAL_ERROR")));
}

#[test]
fn every_layer_replies_in_the_wire_format_of_this_door() {
    let table: String = Code::ALL
        .iter()
        .map(|code| {
            let reply = gate().refuse(*code, "why", 5);
            let body = body(&reply);
            assert_eq!(body["detail"], "why");
            let hint = if reply.headers.is_empty() { "" } else { " retry-after" };
            assert_eq!(code.is_retryable(), !hint.is_empty(), "{code:?}");
            format!("{} {}{hint}\n", reply.status, body["error"].as_str().unwrap())
        })
        .collect();
    insta::assert_snapshot!(table, @r"
    400 INVALID_JSON
    422 ENVELOPE_INVALID
    422 SCHEMA_VERSION_NOT_ALLOWED
    422 OUTSIDE_HORIZON
    400 IDEMPOTENCY_KEY_MISSING
    422 PAYLOAD_HASH_MISMATCH
    409 EVENT_ID_TAKEN
    503 PUBLISH_IN_FLIGHT retry-after
    409 LEASE_LOST
    415 UNSUPPORTED_MEDIA_TYPE
    413 PAYLOAD_TOO_LARGE
    401 UNAUTHORIZED
    403 FORBIDDEN
    404 NOT_FOUND
    405 METHOD_NOT_ALLOWED
    400 INVALID_REQUEST
    409 IN_WORK retry-after
    409 RUN_CLOSED
    503 RUN_CLOSING retry-after
    409 CLOSURE_REFUSED
    409 NOT_RECONCILABLE
    503 IG_UNHEALTHY retry-after
    409 NOT_REPLAYABLE
    408 REQUEST_TIMEOUT retry-after
    429 RATE_LIMITED retry-after
    503 OVERLOADED retry-after
    503 DRAINING retry-after
    503 IG_UNHEALTHY retry-after
    503 OUTCOME_UNKNOWN retry-after
    500 INTERNAL_ERROR retry-after
    ");
}

#[test]
fn a_lookup_returns_a_receipt_or_an_empty_object() {
    let event = event(&envelope());
    let found = filed(DocumentStore::default().settle(&event, &done()));
    let response = |found: Option<&StoredDocument>| {
        let mut out = Vec::new();
        write_object(&lookup::response(found), &mut out);
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    assert_eq!(
        response(found.first()),
        json!({
            "receipt_id": found[0].document.id,
            "event_id": envelope()["event_id"],
            "event_type": "s3_event_stream_with_fraud_6B",
            "decision": "ADMIT",
            "receipt_ref": found[0].document.path,
        })
    );
    assert_eq!(response(None), json!({}));
    let missing = gate().missing_query();
    assert_eq!((missing.status, &body(&missing)["error"]), (400, &json!("MISSING_QUERY")));
}

#[test]
fn an_invalid_token_gets_a_401() {
    for why in [TokenError::Unauthorized, TokenError::SecretMissing] {
        let reply = gate().reply_token_error(why);
        assert_eq!((reply.status, &body(&reply)["error"]), (401, &json!(why.as_str())));
    }
}

#[test]
fn a_body_is_parsed_as_json_regardless_of_its_content_type() {
    assert!(gate().accepts(None));
    assert!(gate().accepts(Some("text/plain")));
}
