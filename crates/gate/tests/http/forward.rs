//! Agents: who may speak for whom, and in whose scope it lands.

use admit_core::Code;
use admit_gate::Limits;

use crate::client::post_with;
use crate::world::World;

const AGENT: &str = r#"{"name":"edge-1","keys":["edge-key"],"doors":["test"],
    "role":"forward","may_speak_for":["arena","unknown-here","reader"]}"#;
const ARENA: &str = r#"{"name":"arena","keys":["arena-key"]}"#;
const READER: &str = r#"{"name":"reader","keys":["read-key"],"role":"read"}"#;
const OTHER: &str = r#"{"name":"other","keys":["other-key"]}"#;

async fn world() -> World {
    World::with(Limits::default(), &[AGENT, ARENA, READER, OTHER]).await
}

fn sent(headers: &str) -> String {
    post_with(&format!("content-type: application/json\r\n{headers}\r\n"), "a")
}

#[tokio::test]
async fn what_an_agent_forwards_is_in_the_scope_of_whom_it_speaks_for() {
    let world = world().await;
    let forwarded = world.ask(sent("x-door-key: edge-key\r\nadmit-principal: arena")).await;
    assert_eq!(forwarded.json()["scope"], "arena");
    assert_eq!(forwarded.json()["verdict"], "fresh");
    let itself = world.ask(sent("x-door-key: arena-key")).await;
    assert_eq!(itself.json()["verdict"], "duplicate", "it is the same producer either way");
    let unknown = sent("x-door-key: edge-key\r\nadmit-principal: unknown-here");
    assert_eq!(world.ask(unknown).await.json()["scope"], "unknown-here", "it needs no key here");
}

#[tokio::test]
async fn speaking_for_somebody_else_is_refused_in_the_words_of_the_door() {
    let world = world().await;
    let refused = [
        // Not in its list, and nobody at all.
        "x-door-key: edge-key\r\nadmit-principal: other",
        "x-door-key: edge-key\r\nadmit-principal:",
        // Two names, of which one is allowed.
        "x-door-key: edge-key\r\nadmit-principal: arena\r\nadmit-principal: other",
        // Whom it speaks for may not produce.
        "x-door-key: edge-key\r\nadmit-principal: reader",
        // An agent is nobody's producer, its own least of all.
        "x-door-key: edge-key",
        "x-door-key: edge-key\r\nadmit-principal: edge-1",
        // A producer speaks for nobody else.
        "x-door-key: arena-key\r\nadmit-principal: other",
    ];
    for headers in refused {
        let answer = world.ask(sent(headers)).await;
        assert_eq!(
            (answer.status, answer.in_its_words().as_str()),
            (403, "forbidden"),
            "{headers}"
        );
    }
    let elsewhere = sent("x-door-key: edge-key\r\nadmit-principal: arena");
    let answer = world.ask(elsewhere.replace("/door", "/other")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (403, "forbidden"));
    assert_eq!(world.refused(Code::Forbidden), refused.len() as u64);
    assert_eq!(world.counted("fresh"), 0);
}

#[tokio::test]
async fn a_producer_may_name_itself_also_at_an_open_gate() {
    let named = world().await.ask(sent("x-door-key: arena-key\r\nadmit-principal: arena")).await;
    assert_eq!(named.json()["scope"], "arena");
    let open = World::open().await;
    assert_eq!(open.ask(sent("admit-principal: local")).await.json()["scope"], "local");
    let other = open.ask(sent("admit-principal: arena")).await;
    assert_eq!((other.status, other.in_its_words().as_str()), (403, "forbidden"));
}
