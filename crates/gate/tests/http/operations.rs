//! Routes for operators: health, metrics, trace ids, the OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Code, FaultKind};
use admit_gate::Limits;

use crate::client::{get, post, post_with};
use crate::test_server::TestServer;

/// Parses a metrics page strictly: every sample belongs to the family announced last, with help and type
/// first, and no name or label set occurs twice.
fn parsed(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind, mut helped) = (String::new(), String::new(), false);
    assert!(page.ends_with('\n'), "the last line has a line end");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help has a text");
            assert!(!text.is_empty() && families.insert(name.to_owned()), "{name} comes twice");
            family = name.to_owned();
            (kind, helped) = (String::new(), true);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, word) = typed.split_once(' ').expect("a type has a word");
            assert!(helped && name == family && kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&word), "{line}");
            assert_eq!(word == "counter", name.ends_with("_total"), "{line}");
            word.clone_into(&mut kind);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let name = series.split('{').next().expect("a name");
            let own = name.strip_prefix(family.as_str()).expect("a sample of this family");
            let suffixes: &[&str] =
                if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(!kind.is_empty() && suffixes.contains(&own), "{line}");
            assert!(name.starts_with("admit_"), "{line}");
            let labels = &series[name.len()..];
            assert!(labels.is_empty() || (labels.starts_with('{') && labels.ends_with("\"}")));
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
        }
    }
    samples
}

#[tokio::test]
async fn metrics_count_events_in_valid_prometheus_text_format() {
    let server = TestServer::open().await;
    for body in ["a", "a", "a=other", "refuse", "b"] {
        server.request(post(body)).await;
    }
    server.request(post_with("content-type: text/plain\r\n", "a")).await;
    *server.ledger.fault.lock().unwrap() = Some(FaultKind::LedgerUnavailable);
    server.request(post("c")).await;
    server.request(get("/nowhere")).await;
    let response = server.request(get("/metrics")).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = parsed(&response.body);
    let admissions = |verdict| {
        samples[&format!("admit_admissions_total{{door=\"test\",verdict=\"{verdict}\"}}")]
    };
    assert_eq!(admissions("fresh"), 2.0);
    assert_eq!(admissions("duplicate"), 1.0);
    assert_eq!(admissions("conflict"), 1.0);
    assert_eq!(admissions("refused"), 1.0);
    let coded = |name: &str, door: &str, code: Code| {
        samples[&format!("{name}{{door=\"{door}\",code=\"{}\"}}", code.as_str())]
    };
    assert_eq!(coded("admit_refusals_total", "test", Code::UnsupportedMediaType), 1.0);
    assert_eq!(coded("admit_refusals_total", "", Code::NotFound), 1.0);
    assert_eq!(coded("admit_faults_total", "test", Code::LedgerUnavailable), 1.0);
    assert_eq!(coded("admit_faults_total", "other", Code::LedgerUnavailable), 0.0);
    assert_eq!(samples["admit_ledger_healthy"], 1.0);
    assert_eq!(samples["admit_events_in_flight"], 0.0);
    assert!(samples.keys().any(|series| series.starts_with("admit_build_info{version=")));
}

#[tokio::test]
async fn metrics_require_a_reading_role_and_show_only_its_doors() {
    let server = TestServer::with(
        Limits::default(),
        &[
            r#"{"name":"p","keys":["p-key"],"role":"produce"}"#,
            r#"{"name":"r","keys":["r-key"],"role":"read","doors":["other"]}"#,
        ],
    )
    .await;
    let with_key = |key: &str| {
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n")
    };
    assert_eq!(server.request(get("/metrics")).await.general_code(), "unauthorized");
    assert_eq!(server.request(with_key("p-key")).await.general_code(), "forbidden");
    let page = server.request(with_key("r-key")).await.body;
    parsed(&page);
    assert!(page.contains("door=\"other\"") && !page.contains("door=\"test\""), "{page}");
}

#[tokio::test]
async fn health_lists_its_checks_and_with_verbose_the_load() {
    let server = TestServer::open().await;
    let plain = server.request(get("/healthz")).await;
    assert_eq!((plain.status, &plain.json()["ready"]), (200, &true.into()));
    assert_eq!(
        plain.json()["checks"],
        serde_json::json!({ "ledger": "ok", "doors": "ok", "retention": "ok" })
    );
    assert!(plain.json().get("load").is_none(), "{plain:?}");
    let verbose = server.request(get("/healthz?verbose")).await.json();
    assert_eq!(verbose["load"]["events_in_flight"], 0);
    server.ledger.is_healthy.store(false, std::sync::atomic::Ordering::SeqCst);
    let failing = server.request(get("/healthz?verbose=1")).await;
    assert_eq!((failing.status, &failing.json()["ready"]), (503, &false.into()));
    assert_eq!(failing.json()["checks"]["ledger"], "failing");
    assert!(failing.header("retry-after").is_some());
}

#[tokio::test]
async fn responses_have_the_callers_trace_id_and_errors_always_have_one() {
    let server = TestServer::open().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!(
        "content-type: application/json\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n"
    );
    let response = server.request(post_with(&parent, "a")).await;
    assert_eq!((response.status, response.header("x-trace-id")), (200, Some(trace)));
    assert_eq!(
        server.request(post("b")).await.header("x-trace-id"),
        None,
        "the request had no traceparent"
    );
    let broken = "content-type: application/json\r\ntraceparent: 00-zz-1-01\r\n";
    assert_eq!(server.request(post_with(broken, "c")).await.header("x-trace-id"), None);
    *server.ledger.fault.lock().unwrap() = Some(FaultKind::LedgerUnavailable);
    let failed = server.request(post("d")).await;
    let id = failed.header("x-trace-id").expect("an error has a trace id");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(
        server.request(post("d")).await.header("x-trace-id"),
        Some(id),
        "each request has its own id"
    );
}

#[tokio::test]
async fn the_openapi_document_has_the_doors_at_their_paths_and_needs_no_key() {
    let server =
        TestServer::with(Limits::default(), &[r#"{"name":"p","keys":["k"],"role":"produce"}"#])
            .await;
    let document = server.request(get("/openapi.json")).await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for path in ["/door", "/other", "/panicking"] {
        let operation = &document["paths"][path]["post"];
        assert!(operation["responses"]["503"].is_object(), "{path}");
        assert_eq!(operation["security"][1], serde_json::json!({ "x-door-key": ["produce"] }));
    }
    assert_eq!(document["components"]["securitySchemes"]["x-door-key"]["in"], "header");
}

#[tokio::test]
async fn a_path_that_is_not_utf8_is_refused() {
    let server = TestServer::open().await;
    for path in ["/v1/receipts/%ff", "/v1/pixel/servers/%ff", "/v1/pixel/servers/a/%ff"] {
        let response = server.request(get(path)).await;
        assert_eq!(
            (response.status, response.general_code().as_str()),
            (400, "invalid_request"),
            "{path}"
        );
    }
}
