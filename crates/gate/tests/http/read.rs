//! What can be read, and how a wrong question is answered.

use std::sync::atomic::Ordering;

use crate::client::{get, post};
use crate::world::World;

async fn world_with_events() -> World {
    let world = World::open().await;
    for body in ["a", "b", "a=other", "refuse", "c"] {
        assert_eq!(world.ask(post(body)).await.status, 200);
    }
    world
}

async fn ids(world: &World, path: &str, list: &str) -> Vec<String> {
    let answer = world.ask(get(path)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let listed = json[list].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    listed.iter().map(|receipt| receipt["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_receipt_is_found_by_its_id() {
    let world = world_with_events().await;
    let answer = world.ask(get("/v1/receipts/rcp-7e570001-4")).await;
    assert_eq!(answer.status, 200);
    let receipt = answer.json();
    assert_eq!(receipt["verdict"], "refused");
    assert_eq!(receipt["reason"]["code"], "invalid_envelope");
    assert_eq!(receipt["key"], serde_json::Value::Null);
    assert!(answer.body.contains(r#""facts":{"big":9007199254740993}"#), "exact: {}", answer.body);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn an_id_of_nothing_here_is_not_found() {
    let world = world_with_events().await;
    for id in ["rcp-7e570001-99", "rcp-00000001-1"] {
        let answer = world.ask(get(&format!("/v1/receipts/{id}"))).await;
        assert_eq!((answer.status, answer.general().as_str()), (404, "not_found"), "{id}");
    }
    let answer = world.ask(get("/v1/receipts/42")).await;
    assert_eq!((answer.status, answer.general().as_str()), (400, "invalid_request"));
}

#[tokio::test]
async fn lists_are_filtered_and_paged_in_ledger_order() {
    let world = world_with_events().await;
    let id = |seq: u32| format!("rcp-7e570001-{seq}");
    let all = ids(&world, "/v1/admissions", "admissions").await;
    assert_eq!(all, (1..=5).map(id).collect::<Vec<_>>());
    let kept = ids(&world, "/v1/quarantine", "quarantine").await;
    assert_eq!(kept, [id(3), id(4)]);
    let conflicts = ids(&world, "/v1/quarantine?verdict=conflict", "quarantine").await;
    assert_eq!(conflicts, [id(3)]);
    let elsewhere = ids(&world, "/v1/admissions?door=other", "admissions").await;
    assert!(elsewhere.is_empty());

    let page = world.ask(get("/v1/admissions?limit=2&after=1&verdict=fresh,refused")).await.json();
    assert_eq!(page["admissions"][0]["id"], id(2));
    assert_eq!(page["next"], id(4));
    let next = page["next"].as_str().unwrap();
    let last = world.ask(get(&format!("/v1/admissions?limit=2&after={next}"))).await.json();
    assert_eq!(
        (last["admissions"][0]["id"].as_str(), &last["next"]),
        (Some(id(5).as_str()), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn a_question_that_cannot_be_read_is_refused_rather_than_guessed() {
    let world = World::open().await;
    for query in [
        "doors=test",
        "limit=0",
        "limit=1001",
        "limit=many",
        "verdict=maybe",
        "after=yesterday",
        "after=rcp-00000001-1",
    ] {
        let answer = world.ask(get(&format!("/v1/admissions?{query}"))).await;
        assert_eq!((answer.status, answer.general().as_str()), (400, "invalid_request"), "{query}");
    }
    let fresh = world.ask(get("/v1/quarantine?verdict=fresh")).await;
    assert_eq!(fresh.general(), "invalid_request");
}

#[tokio::test]
async fn readers_limited_to_a_door_see_no_other() {
    let reader = r#"{"name":"r","keys":["k"],"role":"read","doors":["test"]}"#;
    let two = r#"{"name":"two","keys":["k2"],"role":"read","doors":["test","other"]}"#;
    let both = r#"{"name":"b","keys":["kb"],"role":"produce"}"#;
    let world = World::with(admit_gate::Limits::default(), &[reader, two, both]).await;
    let keyed = |request: String, key: &str| {
        request.replacen("\r\n", &format!("\r\nauthorization: Bearer {key}\r\n"), 1)
    };
    assert_eq!(world.ask(keyed(post("a"), "kb")).await.status, 200);
    assert_eq!(world.ask(keyed(post("b").replace("/door", "/other"), "kb")).await.status, 200);
    let ask = async |path: &str, key: &str| world.ask(keyed(get(path), key)).await;
    let own = ask("/v1/admissions", "k").await.json();
    assert_eq!(own["admissions"].as_array().unwrap().len(), 1);
    assert_eq!(own["admissions"][0]["door"], "test");
    assert_eq!(ask("/v1/admissions?door=other", "k").await.general(), "forbidden");
    assert_eq!(ask("/v1/receipts/rcp-7e570001-2", "k").await.general(), "not_found");
    assert_eq!(ask("/v1/pixel/servers", "k").await.general(), "forbidden");
    assert_eq!(ask("/v1/admissions", "k2").await.general(), "invalid_request");
    assert_eq!(ask("/v1/admissions?door=other", "k2").await.status, 200);
}

#[tokio::test]
async fn nothing_is_anywhere_else() {
    let world = World::open().await;
    for path in ["/nothing", "/door/", "/door/x", "/v1", "/v1/receipts", "//"] {
        let answer = world.ask(get(path)).await;
        assert_eq!((answer.status, answer.general().as_str()), (404, "not_found"), "{path}");
    }
    let answer = world.ask(post("a").replace("/door", "/readyz")).await;
    assert_eq!((answer.status, answer.general().as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    let posted = world.ask(post("a").replace("/door", "/plugin/event")).await;
    assert_eq!((posted.status, posted.general().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn a_gate_with_a_broken_ledger_is_alive_but_not_ready() {
    let world = World::open().await;
    assert_eq!(world.ask(get("/readyz")).await.json()["ready"], true);
    world.ledger.is_healthy.store(false, Ordering::SeqCst);
    let answer = world.ask(get("/readyz")).await;
    assert_eq!((answer.status, answer.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(answer.json()["reasons"][0], "the last write to the ledger failed");
    assert_eq!(world.ask(get("/livez")).await.status, 200);
}

#[tokio::test]
async fn the_front_page_lists_the_doors() {
    let world = World::open().await;
    let doors = world.ask(get("/")).await.json();
    assert_eq!(
        doors["doors"][0],
        serde_json::json!({"door":"test","method":"POST","path":"/door"})
    );
}

#[tokio::test]
async fn game_servers_are_listed_by_scope_and_shown_by_login() {
    let world = World::open().await;
    let document = |scope: &str, login: &str| {
        format!(
            r#"{{"format":1,"scope":"{scope}","login":"{login}","phases":{{}},"event_counts":{{"connectivity":1,"lifecycle":0,"player":0,"combat":0,"mode":0}},"first_seen_at_ms":7000,"last_event_at_ms":9000}}"#
        )
    };
    {
        let mut documents = world.ledger.documents.lock().unwrap();
        for (scope, login) in [("arena", "x"), ("arena", ""), ("arena2", "x")] {
            let id = admit_contracts::pixel_control::server_state::document_id(scope, login);
            documents.insert(id.entity, document(scope, login));
        }
        documents.insert("damaged/x".to_owned(), "{".to_owned());
    }
    let arena = world.ask(get("/v1/pixel/servers/arena")).await.json();
    assert_eq!(arena["servers"].as_array().unwrap().len(), 2);
    let first = world.ask(get("/v1/pixel/servers?limit=1")).await.json();
    assert_eq!(first["servers"][0]["login"], serde_json::Value::Null);
    let next = first["next"].as_str().unwrap();
    let second = world.ask(get(&format!("/v1/pixel/servers?limit=1&after={next}"))).await.json();
    assert_eq!(second["servers"][0]["login"], "x");
    let one = world.ask(get("/v1/pixel/servers/arena2/x")).await.json();
    assert_eq!(one["scope"], "arena2");
    assert_eq!(world.ask(get("/v1/pixel/servers/arena/")).await.json()["scope"], "arena");
    assert_eq!(world.ask(get("/v1/pixel/servers/arena/y")).await.general(), "not_found");
    let damaged = world.ask(get("/v1/pixel/servers/damaged/x")).await;
    assert_eq!((damaged.status, damaged.general().as_str()), (500, "internal_error"));
}
