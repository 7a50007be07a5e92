//! Read routes and their errors.

use std::sync::atomic::Ordering;

use crate::client::{get, post};
use crate::test_server::TestServer;

async fn server_with_events() -> TestServer {
    let server = TestServer::open().await;
    for body in ["a", "b", "a=other", "refuse", "c"] {
        assert_eq!(server.request(post(body)).await.status, 200);
    }
    server
}

async fn ids(server: &TestServer, path: &str, list: &str) -> Vec<String> {
    let response = server.request(get(path)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let json = response.json();
    let listed = json[list].as_array().unwrap_or_else(|| panic!("{response:?}"));
    listed.iter().map(|receipt| receipt["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_receipt_is_found_by_its_id() {
    let server = server_with_events().await;
    let response = server.request(get("/v1/receipts/rcp-7e570001-4")).await;
    assert_eq!(response.status, 200);
    let receipt = response.json();
    assert_eq!(receipt["verdict"], "refused");
    assert_eq!(receipt["reason"]["code"], "invalid_envelope");
    assert_eq!(receipt["key"], serde_json::Value::Null);
    assert!(
        response.body.contains(r#""facts":{"big":9007199254740993}"#),
        "byte-identical: {}",
        response.body
    );
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn an_unknown_receipt_id_is_not_found() {
    let server = server_with_events().await;
    for id in ["rcp-7e570001-99", "rcp-00000001-1"] {
        let response = server.request(get(&format!("/v1/receipts/{id}"))).await;
        assert_eq!((response.status, response.general_code().as_str()), (404, "not_found"), "{id}");
    }
    let response = server.request(get("/v1/receipts/42")).await;
    assert_eq!((response.status, response.general_code().as_str()), (400, "invalid_request"));
}

#[tokio::test]
async fn lists_are_filtered_and_paged_in_ledger_order() {
    let server = server_with_events().await;
    let id = |seq: u32| format!("rcp-7e570001-{seq}");
    let all = ids(&server, "/v1/admissions", "admissions").await;
    assert_eq!(all, (1..=5).map(id).collect::<Vec<_>>());
    let quarantined = ids(&server, "/v1/quarantine", "quarantine").await;
    assert_eq!(quarantined, [id(3), id(4)]);
    let conflicts = ids(&server, "/v1/quarantine?verdict=conflict", "quarantine").await;
    assert_eq!(conflicts, [id(3)]);
    let elsewhere = ids(&server, "/v1/admissions?door=other", "admissions").await;
    assert!(elsewhere.is_empty());

    let page =
        server.request(get("/v1/admissions?limit=2&after=1&verdict=fresh,refused")).await.json();
    assert_eq!(page["admissions"][0]["id"], id(2));
    assert_eq!(page["next"], id(4));
    let next = page["next"].as_str().unwrap();
    let last = server.request(get(&format!("/v1/admissions?limit=2&after={next}"))).await.json();
    assert_eq!(
        (last["admissions"][0]["id"].as_str(), &last["next"]),
        (Some(id(5).as_str()), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn an_invalid_query_is_refused() {
    let server = TestServer::open().await;
    for query in [
        "doors=test",
        "limit=0",
        "limit=1001",
        "limit=many",
        "verdict=maybe",
        "after=yesterday",
        "after=rcp-00000001-1",
    ] {
        let response = server.request(get(&format!("/v1/admissions?{query}"))).await;
        assert_eq!(
            (response.status, response.general_code().as_str()),
            (400, "invalid_request"),
            "{query}"
        );
    }
    let fresh = server.request(get("/v1/quarantine?verdict=fresh")).await;
    assert_eq!(fresh.general_code(), "invalid_request");
}

#[tokio::test]
async fn readers_limited_to_a_door_see_no_other_door() {
    let reader = r#"{"name":"r","keys":["k"],"role":"read","doors":["test"]}"#;
    let two = r#"{"name":"two","keys":["k2"],"role":"read","doors":["test","other"]}"#;
    let both = r#"{"name":"b","keys":["kb"],"role":"produce"}"#;
    let server = TestServer::with(admit_gate::Limits::default(), &[reader, two, both]).await;
    let keyed = |request: String, key: &str| {
        request.replacen("\r\n", &format!("\r\nauthorization: Bearer {key}\r\n"), 1)
    };
    assert_eq!(server.request(keyed(post("a"), "kb")).await.status, 200);
    assert_eq!(server.request(keyed(post("b").replace("/door", "/other"), "kb")).await.status, 200);
    let request = async |path: &str, key: &str| server.request(keyed(get(path), key)).await;
    let own = request("/v1/admissions", "k").await.json();
    assert_eq!(own["admissions"].as_array().unwrap().len(), 1);
    assert_eq!(own["admissions"][0]["door"], "test");
    assert_eq!(request("/v1/admissions?door=other", "k").await.general_code(), "forbidden");
    assert_eq!(request("/v1/receipts/rcp-7e570001-2", "k").await.general_code(), "not_found");
    assert_eq!(request("/v1/pixel/servers", "k").await.general_code(), "forbidden");
    assert_eq!(request("/v1/admissions", "k2").await.general_code(), "invalid_request");
    assert_eq!(request("/v1/admissions?door=other", "k2").await.status, 200);
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let server = TestServer::open().await;
    for path in ["/nothing", "/door/", "/door/x", "/v1", "/v1/receipts", "//"] {
        let response = server.request(get(path)).await;
        assert_eq!(
            (response.status, response.general_code().as_str()),
            (404, "not_found"),
            "{path}"
        );
    }
    let response = server.request(post("a").replace("/door", "/readyz")).await;
    assert_eq!((response.status, response.general_code().as_str()), (405, "method_not_allowed"));
    assert_eq!(response.header("allow"), Some("GET,HEAD"));
    let posted = server.request(post("a").replace("/door", "/plugin/event")).await;
    assert_eq!((posted.status, posted.general_code().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn a_gate_with_a_broken_ledger_is_alive_but_not_ready() {
    let server = TestServer::open().await;
    assert_eq!(server.request(get("/readyz")).await.json()["ready"], true);
    server.ledger.is_healthy.store(false, Ordering::SeqCst);
    let response = server.request(get("/readyz")).await;
    assert_eq!((response.status, response.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(response.json()["reasons"][0], "the last write to the ledger failed");
    assert_eq!(server.request(get("/livez")).await.status, 200);
}

#[tokio::test]
async fn the_root_path_lists_the_doors() {
    let server = TestServer::open().await;
    let doors = server.request(get("/")).await.json();
    assert_eq!(
        doors["doors"][0],
        serde_json::json!({"door":"test","method":"POST","path":"/door"})
    );
}

#[tokio::test]
async fn game_servers_are_listed_by_scope_and_shown_by_login() {
    let server = TestServer::open().await;
    let document = |scope: &str, login: &str| {
        format!(
            r#"{{"format":1,"scope":"{scope}","login":"{login}","phases":{{}},"event_counts":{{"connectivity":1,"lifecycle":0,"player":0,"combat":0,"mode":0}},"first_seen_at_ms":7000,"last_event_at_ms":9000}}"#
        )
    };
    {
        let mut documents = server.ledger.documents.lock().unwrap();
        for (scope, login) in [("arena", "x"), ("arena", ""), ("arena2", "x")] {
            let id = admit_contracts::pixel_control::server_state::document_id(scope, login);
            documents.insert(id.entity, document(scope, login));
        }
        documents.insert("damaged/x".to_owned(), "{".to_owned());
    }
    let arena = server.request(get("/v1/pixel/servers/arena")).await.json();
    assert_eq!(arena["servers"].as_array().unwrap().len(), 2);
    let first = server.request(get("/v1/pixel/servers?limit=1")).await.json();
    assert_eq!(first["servers"][0]["login"], serde_json::Value::Null);
    let next = first["next"].as_str().unwrap();
    let second =
        server.request(get(&format!("/v1/pixel/servers?limit=1&after={next}"))).await.json();
    assert_eq!(second["servers"][0]["login"], "x");
    let one = server.request(get("/v1/pixel/servers/arena2/x")).await.json();
    assert_eq!(one["scope"], "arena2");
    assert_eq!(server.request(get("/v1/pixel/servers/arena/")).await.json()["scope"], "arena");
    assert_eq!(server.request(get("/v1/pixel/servers/arena/y")).await.general_code(), "not_found");
    let damaged = server.request(get("/v1/pixel/servers/damaged/x")).await;
    assert_eq!((damaged.status, damaged.general_code().as_str()), (500, "internal_error"));
}
