//! Forwarding agents: which principals an agent may send for, and the scope of forwarded events.

use admit_core::Code;
use admit_gate::Limits;

use crate::client::post_with;
use crate::test_server::TestServer;

const AGENT: &str = r#"{"name":"edge-1","keys":["edge-key"],"doors":["test"],
    "role":"forward","may_speak_for":["arena","unknown-here","reader"]}"#;
const ARENA: &str = r#"{"name":"arena","keys":["arena-key"]}"#;
const READER: &str = r#"{"name":"reader","keys":["read-key"],"role":"read"}"#;
const OTHER: &str = r#"{"name":"other","keys":["other-key"]}"#;

async fn server() -> TestServer {
    TestServer::with(Limits::default(), &[AGENT, ARENA, READER, OTHER]).await
}

fn sent(headers: &str) -> String {
    post_with(&format!("content-type: application/json\r\n{headers}\r\n"), "a")
}

#[tokio::test]
async fn a_forwarded_event_is_in_the_scope_of_its_producer() {
    let server = server().await;
    let forwarded = server.request(sent("x-door-key: edge-key\r\nadmit-principal: arena")).await;
    assert_eq!(forwarded.json()["scope"], "arena");
    assert_eq!(forwarded.json()["verdict"], "fresh");
    let itself = server.request(sent("x-door-key: arena-key")).await;
    assert_eq!(itself.json()["verdict"], "duplicate", "the producer is the same on both paths");
    let unknown = sent("x-door-key: edge-key\r\nadmit-principal: unknown-here");
    assert_eq!(
        server.request(unknown).await.json()["scope"],
        "unknown-here",
        "the producer needs no key at the gate"
    );
}

#[tokio::test]
async fn forwarding_for_a_principal_that_is_not_allowed_is_refused_in_the_format_of_the_door() {
    let server = server().await;
    let refused = [
        // Not in its list, and an empty name.
        "x-door-key: edge-key\r\nadmit-principal: other",
        "x-door-key: edge-key\r\nadmit-principal:",
        // Two names, of which one is allowed.
        "x-door-key: edge-key\r\nadmit-principal: arena\r\nadmit-principal: other",
        // The named principal may not produce.
        "x-door-key: edge-key\r\nadmit-principal: reader",
        // An agent may not send events of its own.
        "x-door-key: edge-key",
        "x-door-key: edge-key\r\nadmit-principal: edge-1",
        // A producer may not forward.
        "x-door-key: arena-key\r\nadmit-principal: other",
    ];
    for headers in refused {
        let response = server.request(sent(headers)).await;
        assert_eq!(
            (response.status, response.contract_code().as_str()),
            (403, "forbidden"),
            "{headers}"
        );
    }
    let elsewhere = sent("x-door-key: edge-key\r\nadmit-principal: arena");
    let response = server.request(elsewhere.replace("/door", "/other")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (403, "forbidden"));
    assert_eq!(server.refused(Code::Forbidden), refused.len() as u64);
    assert_eq!(server.counted("fresh"), 0);
}

#[tokio::test]
async fn a_producer_may_name_itself_also_without_principals() {
    let named =
        server().await.request(sent("x-door-key: arena-key\r\nadmit-principal: arena")).await;
    assert_eq!(named.json()["scope"], "arena");
    let open = TestServer::open().await;
    assert_eq!(open.request(sent("admit-principal: local")).await.json()["scope"], "local");
    let other = open.request(sent("admit-principal: arena")).await;
    assert_eq!((other.status, other.contract_code().as_str()), (403, "forbidden"));
}
