//! Who gets in, and who is told why not.

use admit_core::Code;
use admit_gate::Limits;

use crate::client::{Answer, get, post, post_with};
use crate::world::World;

const ARENA: &str = r#"{"name":"arena","keys":["old-key","new-key"],"doors":["test"]}"#;
const READER: &str = r#"{"name":"reader","keys":["read-key"],"role":"read"}"#;
const BOTH: &str = r#"{"name":"both","keys":["both-key"],"role":["produce","read"]}"#;

async fn world() -> World {
    World::with(Limits::default(), &[ARENA, READER, BOTH]).await
}

fn with_header(header: &str) -> String {
    post_with(&format!("content-type: application/json\r\n{header}\r\n"), "a")
}

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.in_its_words())
}

#[tokio::test]
async fn a_key_names_its_principal_in_either_header_and_during_rotation() {
    let world = world().await;
    for header in [
        "authorization: Bearer old-key",
        "authorization: bearer new-key",
        "x-door-key: new-key",
        "authorization: Basic Zm9v\r\nx-door-key: old-key",
    ] {
        let answer = world.ask(with_header(header)).await;
        assert_eq!(
            (answer.status, answer.json()["scope"].as_str()),
            (200, Some("arena")),
            "{header}"
        );
    }
}

#[tokio::test]
async fn a_missing_wrong_or_doubtful_key_is_unauthorized_and_leaves_nothing() {
    let world = world().await;
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
        let answer = world.ask(with_header(header)).await;
        assert_eq!(refused(&answer), (401, "unauthorized".to_owned()), "{header}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.json()["words"]["retry_after"], 0);
    }
    assert_eq!(world.refused(Code::Unauthorized), headers.len() as u64);
    assert_eq!(world.counted("fresh"), 0);
}

#[tokio::test]
async fn two_principals_never_share_an_event() {
    let world = world().await;
    let arena = world.ask(with_header("x-door-key: old-key")).await;
    let both = world.ask(with_header("x-door-key: both-key")).await;
    assert_eq!(arena.json()["verdict"], "fresh");
    assert_eq!(both.json()["verdict"], "fresh");
    let again = world.ask(with_header("x-door-key: new-key")).await;
    assert_eq!(again.json()["verdict"], "duplicate", "a rotated key is the same principal");
}

#[tokio::test]
async fn a_key_opens_its_own_doors_with_its_own_role_only() {
    let world = world().await;
    let elsewhere = with_header("x-door-key: old-key").replace("/door", "/other");
    assert_eq!(refused(&world.ask(elsewhere).await), (403, "forbidden".to_owned()));
    let reader = with_header("x-door-key: read-key");
    assert_eq!(refused(&world.ask(reader).await), (403, "forbidden".to_owned()));
    let anywhere = with_header("x-door-key: both-key").replace("/door", "/other");
    assert_eq!(world.ask(anywhere).await.status, 200);
}

#[tokio::test]
async fn reading_wants_the_role_for_it() {
    let world = world().await;
    let list = |header: &str| {
        format!("GET /v1/admissions HTTP/1.1\r\nhost: gate.example\r\n{header}\r\n\r\n")
    };
    let nobody = world.ask(list("x-nothing: 1")).await;
    assert_eq!((nobody.status, nobody.general().as_str()), (401, "unauthorized"));
    assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
    let producer = world.ask(list("authorization: Bearer old-key")).await;
    assert_eq!((producer.status, producer.general().as_str()), (403, "forbidden"));
    assert_eq!(world.ask(list("authorization: Bearer read-key")).await.status, 200);
    assert_eq!(world.ask(list("x-api-key: both-key")).await.status, 200);
}

#[tokio::test]
async fn health_wants_no_key() {
    let world = world().await;
    for path in ["/livez", "/readyz", "/healthz", "/"] {
        assert_eq!(world.ask(get(path)).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn an_open_gate_answers_only_to_its_own_name() {
    let world = World::open().await;
    let port = world.address.port();
    let hosts = ["localhost".to_owned(), format!("127.0.0.1:{port}"), "[::1]:9".to_owned()];
    for host in hosts {
        let request = post("a").replace("host: localhost", &format!("host: {host}"));
        assert_eq!(world.ask(request).await.status, 200, "{host}");
    }
    for header in ["host: evil.example", "host: localhost.evil.example", "host:", "x-no-host: 1"] {
        let answer = world.ask(post("a").replace("host: localhost", header)).await;
        assert_eq!(refused(&answer), (403, "forbidden".to_owned()), "{header}");
        let list = get("/v1/admissions").replace("host: localhost", header);
        assert_eq!(world.ask(list).await.general(), "forbidden", "{header}");
    }
}

#[tokio::test]
async fn an_open_gate_serves_no_page_of_another_origin() {
    let world = World::open().await;
    for origin in ["http://evil.example", "null", "http://localhost:3000", "file://"] {
        let answer = world.ask(with_header(&format!("origin: {origin}"))).await;
        assert_eq!(refused(&answer), (403, "forbidden".to_owned()), "{origin}");
    }
    assert_eq!(world.ask(with_header("origin: http://localhost")).await.status, 200);
}

#[tokio::test]
async fn with_principals_names_and_origins_are_the_operators_business() {
    let world = world().await;
    let request = with_header("x-door-key: old-key\r\norigin: https://app.example")
        .replace("host: localhost", "host: gate.example");
    assert_eq!(world.ask(request).await.status, 200);
}
