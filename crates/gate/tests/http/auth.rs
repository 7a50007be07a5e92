//! Authentication and authorization over HTTP.

use admit_core::Code;
use admit_gate::Limits;

use crate::client::{Response, get, post, post_with};
use crate::test_server::TestServer;

const ARENA: &str = r#"{"name":"arena","keys":["old-key","new-key"],"doors":["test"]}"#;
const READER: &str = r#"{"name":"reader","keys":["read-key"],"role":"read"}"#;
const BOTH: &str = r#"{"name":"both","keys":["both-key"],"role":["produce","read"]}"#;

async fn server() -> TestServer {
    TestServer::with(Limits::default(), &[ARENA, READER, BOTH]).await
}

fn with_header(header: &str) -> String {
    post_with(&format!("content-type: application/json\r\n{header}\r\n"), "a")
}

fn refused(response: &Response) -> (u16, String) {
    (response.status, response.contract_code())
}

#[tokio::test]
async fn a_key_identifies_its_principal_in_either_header_and_during_rotation() {
    let server = server().await;
    for header in [
        "authorization: Bearer old-key",
        "authorization: bearer new-key",
        "x-door-key: new-key",
        "authorization: Basic Zm9v\r\nx-door-key: old-key",
    ] {
        let response = server.request(with_header(header)).await;
        assert_eq!(
            (response.status, response.json()["scope"].as_str()),
            (200, Some("arena")),
            "{header}"
        );
    }
}

#[tokio::test]
async fn a_missing_wrong_or_ambiguous_key_is_unauthorized_and_stores_nothing() {
    let server = server().await;
    let headers = [
        "x-nothing: 1",
        "authorization: Bearer wrong",
        "authorization: Bearer",
        "authorization: old-key",
        "x-door-key: OLD-KEY",
        "x-door-key:",
        "x-api-key: old-key",
        "authorization: Bearer wrong\r\nx-door-key: old-key",
        "x-door-key: old-key\r\nx-door-key: both-key",
    ];
    for header in headers {
        let response = server.request(with_header(header)).await;
        assert_eq!(refused(&response), (401, "unauthorized".to_owned()), "{header}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        assert_eq!(response.json()["refusal"]["retry_after"], 0);
    }
    assert_eq!(server.refused(Code::Unauthorized), headers.len() as u64);
    assert_eq!(server.counted("fresh"), 0);
}

#[tokio::test]
async fn two_principals_never_share_an_event() {
    let server = server().await;
    let arena = server.request(with_header("x-door-key: old-key")).await;
    let both = server.request(with_header("x-door-key: both-key")).await;
    assert_eq!(arena.json()["verdict"], "fresh");
    assert_eq!(both.json()["verdict"], "fresh");
    let again = server.request(with_header("x-door-key: new-key")).await;
    assert_eq!(again.json()["verdict"], "duplicate", "a rotated key is the same principal");
}

#[tokio::test]
async fn a_key_is_limited_to_its_doors_and_role() {
    let server = server().await;
    let elsewhere = with_header("x-door-key: old-key").replace("/door", "/other");
    assert_eq!(refused(&server.request(elsewhere).await), (403, "forbidden".to_owned()));
    let reader = with_header("x-door-key: read-key");
    assert_eq!(refused(&server.request(reader).await), (403, "forbidden".to_owned()));
    let anywhere = with_header("x-door-key: both-key").replace("/door", "/other");
    assert_eq!(server.request(anywhere).await.status, 200);
}

#[tokio::test]
async fn reading_requires_the_role_read() {
    let server = server().await;
    let list = |header: &str| {
        format!("GET /v1/admissions HTTP/1.1\r\nhost: gate.example\r\n{header}\r\n\r\n")
    };
    let anonymous = server.request(list("x-nothing: 1")).await;
    assert_eq!((anonymous.status, anonymous.general_code().as_str()), (401, "unauthorized"));
    assert_eq!(anonymous.header("www-authenticate"), Some("Bearer"));
    let producer = server.request(list("authorization: Bearer old-key")).await;
    assert_eq!((producer.status, producer.general_code().as_str()), (403, "forbidden"));
    assert_eq!(server.request(list("authorization: Bearer read-key")).await.status, 200);
    assert_eq!(server.request(list("x-api-key: both-key")).await.status, 200);
}

#[tokio::test]
async fn health_requires_no_key() {
    let server = server().await;
    for path in ["/livez", "/readyz", "/healthz", "/"] {
        assert_eq!(server.request(get(path)).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_gate_without_principals_accepts_only_loopback_host_names() {
    let server = TestServer::open().await;
    let port = server.address.port();
    let hosts = ["localhost".to_owned(), format!("127.0.0.1:{port}"), "[::1]:9".to_owned()];
    for host in hosts {
        let request = post("a").replace("host: localhost", &format!("host: {host}"));
        assert_eq!(server.request(request).await.status, 200, "{host}");
    }
    for header in ["host: evil.example", "host: localhost.evil.example", "host:", "x-no-host: 1"] {
        let response = server.request(post("a").replace("host: localhost", header)).await;
        assert_eq!(refused(&response), (403, "forbidden".to_owned()), "{header}");
        let list = get("/v1/admissions").replace("host: localhost", header);
        assert_eq!(server.request(list).await.general_code(), "forbidden", "{header}");
    }
}

#[tokio::test]
async fn a_gate_without_principals_refuses_other_origins() {
    let server = TestServer::open().await;
    for origin in ["http://evil.example", "null", "http://localhost:3000", "file://"] {
        let response = server.request(with_header(&format!("origin: {origin}"))).await;
        assert_eq!(refused(&response), (403, "forbidden".to_owned()), "{origin}");
    }
    assert_eq!(server.request(with_header("origin: http://localhost")).await.status, 200);
}

#[tokio::test]
async fn with_principals_host_and_origin_are_not_checked() {
    let server = server().await;
    let request = with_header("x-door-key: old-key\r\norigin: https://app.example")
        .replace("host: localhost", "host: gate.example");
    assert_eq!(server.request(request).await.status, 200);
}
