//! The `pixel-control` door over HTTP, as its contract and the real plugin require.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;

use admit_core::Clock as _;
use admit_gate::SystemClock;
use serde_json::{Value, json};

use crate::support::assert_reply::PixelReply;
use crate::support::events::{self, SEQUENCE, heartbeat, lifecycle, match_begin, sample};
use crate::support::gate::{Gate, Launch};
use crate::support::http::{Client, DOOR};
use crate::support::ledger;
use crate::support::sql;

/// `sha256("local:pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65")`
const SAMPLE_DEDUPE_KEY: &str = "25c96b167b6f930aa4de09bca704dee72727d186ac693ea5b2fb261a7de41d85";

fn gate() -> (tempfile::TempDir, Gate) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    (folder, gate)
}

#[test]
fn the_sample_of_the_contract_is_processed_and_then_a_duplicate() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let first = client.submit(&sample()).processed();
    assert_eq!(first.event_id, sample().text("/envelope/event_id"));
    assert_eq!(first.idempotency_key, sample().text("/envelope/idempotency_key"));
    assert_eq!(first.dedupe_key, SAMPLE_DEDUPE_KEY);
    assert!(is_whole_seconds(&first.received_at), "{}", first.received_at);
    for attempt in 2..=3 {
        let again = client.submit(&sample().attempt(attempt)).duplicate();
        assert_eq!(again.event_id, first.event_id);
        assert_eq!(again.idempotency_key, first.idempotency_key);
        assert_eq!(again.dedupe_key, first.dedupe_key);
        assert!(again.received_at >= first.received_at, "the time of this delivery");
    }
    gate.stop();
}

/// `2026-02-19T18:14:02Z`, digit for digit.
fn is_whole_seconds(time: &str) -> bool {
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00Z"
}

#[test]
fn both_known_schema_versions_are_accepted_and_an_unknown_one_is_rejected_without_retry() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let version = |n, version: &str| {
        match_begin(n, "a")
            .set("/envelope/schema_version", version)
            .set("/envelope/metadata/schema_version", version)
    };
    client.submit(&version(1, "2026-02-19.1")).processed();
    client.submit(&version(2, "2026-02-20.1")).processed();
    let reason = client.submit(&version(3, "2026-02-19.2")).rejected();
    assert_eq!(reason.code, "schema_version_unsupported");
    assert_eq!(reason.message, "schema_version 2026-02-19.2 is not supported");
}

#[test]
fn a_body_that_is_not_json_is_rejected_with_the_error_of_the_contract() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    for body in [&b"{"[..], b"", b"not json", b"{\"envelope\":\xff}", b"{}{}", b"\xef\xbb\xbf{}"] {
        let reason = client.submit_bytes(body).rejected();
        assert_eq!(reason.code, "invalid_json", "{:?}", String::from_utf8_lossy(body));
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert_eq!(client.submit_bytes(&deep).rejected().code, "invalid_json");
    for body in [&b"{}"[..], b"[]", b"null", b"5", b"{\"envelope\":{}}"] {
        client.submit_bytes(body).rejected();
    }
    client.submit(&sample()).processed();
}

#[test]
fn an_empty_php_array_counts_as_an_object() {
    let (_folder, gate) = gate();
    let php = sample().set("/envelope/payload", json!([])).set("/envelope/metadata", json!([]));
    gate.client().submit(&php).processed();
}

#[test]
fn violations_of_category_rules_are_warnings_and_in_strict_mode_rejections() {
    let valid = [
        match_begin(1, "a"),
        heartbeat(2, "a"),
        events::registration(3, "a"),
        lifecycle(4, "a", "map.end", "ManiaPlanet.EndMap"),
    ];
    let noted = |gate: &Gate| {
        let listed = gate.client().get("/v1/admissions?verdict=fresh");
        let count = |receipt: &Value| receipt["facts"]["warning_count"].as_u64().unwrap_or(0);
        listed["admissions"].as_array().unwrap().iter().map(count).collect::<Vec<u64>>()
    };
    let (_folder, gate) = gate();
    for event in &valid {
        gate.client().submit(event).processed();
    }
    gate.client().submit(&sample()).processed();
    let [0, 0, 0, 0, warnings] = noted(&gate)[..] else { panic!("{:?}", noted(&gate)) };
    assert!(warnings > 0, "the contract's own sample breaks the contract's own schema");
    gate.stop();

    let (_folder, gate) = gate_with("[doors.pixel-control]\nschema = \"strict\"\n");
    for event in &valid {
        gate.client().submit(event).processed();
    }
    assert_eq!(gate.client().submit(&sample()).rejected().code, "invalid_envelope");
}

#[test]
fn other_content_under_a_known_key_is_a_duplicate_and_stored_as_evidence() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let first = lifecycle(1, "a", "match.begin", "ManiaPlanet.BeginMatch");
    let other = first.clone().set("/envelope/payload/variant", "match.end").attempt(2);
    let ack = client.submit(&first).processed();
    assert_eq!(client.submit(&other).duplicate().dedupe_key, ack.dedupe_key);

    let quarantine = client.get("/v1/quarantine");
    let [kept] = quarantine["quarantine"].as_array().unwrap().as_slice() else {
        panic!("one conflict is kept: {quarantine}")
    };
    assert_eq!(kept["verdict"], "conflict");
    assert_eq!(kept["facts"]["dedupe_key"], ack.dedupe_key);
    let receipt = client.get(&format!("/v1/receipts/{}", kept["first"].as_str().unwrap()));
    assert_eq!((&receipt["verdict"], &receipt["duplicate_count"]), (&json!("fresh"), &json!(1)));
    let server = client.get("/v1/pixel/servers/local/a");
    assert_eq!(server["match"]["variant"], "match.begin", "what conflicts is not applied");
    assert_eq!(server["event_counts"]["lifecycle"], 1);
    let query = "SELECT bytes FROM body JOIN admission USING (seq) WHERE verdict = 'conflict'";
    let body: Vec<u8> = sql::query_one(gate.data(), query);
    assert_eq!(String::from_utf8(body).unwrap(), other.body(), "byte for byte the first reply");
}

#[test]
fn all_eleven_fields_of_a_receipt_can_be_read_with_sql_and_over_http() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let ack = client.submit(&sample()).processed();
    let copy = client.submit(&sample().attempt(3)).duplicate();

    let rows = ledger::receipts(gate.data());
    let [row] = rows.as_slice() else { panic!("one receipt: {rows:?}") };
    let expected = ledger::ReceiptRow {
        dedupe_key: Some(ack.dedupe_key.clone()),
        dedupe_scope: "local".to_owned(),
        idempotency_key: Some(ack.idempotency_key.clone()),
        event_id: Some(ack.event_id.clone()),
        event_name: Some("pixel_control.lifecycle.maniaplanet_beginmatch".to_owned()),
        schema_version: Some("2026-02-19.1".to_owned()),
        first_seen_at: ack.received_at.clone(),
        last_seen_at: copy.received_at,
        duplicate_count: 1,
        last_transport_attempt: Some(3),
        status: "processed".to_owned(),
    };
    assert_eq!(*row, expected);

    let listed = client.get("/v1/admissions");
    let receipt = &listed["admissions"][0];
    let one = client.get(&format!("/v1/receipts/{}", receipt["id"].as_str().unwrap()));
    assert_eq!(one, *receipt, "one receipt, one form");
    let named = format!("/v1/receipts/{}?door=pixel-control", ack.dedupe_key);
    assert_eq!(client.get(&named), one, "by what the reply says");
    for (wrong, status) in [
        (format!("/v1/receipts/{}", ack.dedupe_key), 400),
        (format!("/v1/receipts/{}?door=skyra", ack.dedupe_key), 404),
        (format!("/v1/receipts/{}?door=skyra", one["id"].as_str().unwrap()), 404),
        (format!("{named}&run=none"), 400),
        (format!("{named}&other=1"), 400),
    ] {
        assert_eq!(client.send("GET", &wrong, &[], b"").unwrap().status, status, "{wrong}");
    }
    assert_eq!(one["principal"], row.dedupe_scope.as_str());
    let facts = &one["facts"];
    assert_eq!(facts["dedupe_key"], json!(row.dedupe_key));
    assert_eq!(facts["idempotency_key"], json!(row.idempotency_key));
    assert_eq!(facts["event_id"], json!(row.event_id));
    assert_eq!(facts["event_name"], json!(row.event_name));
    assert_eq!(facts["schema_version"], json!(row.schema_version));
    assert_eq!(seconds(&one["received_at"]), row.first_seen_at);
    assert_eq!(seconds(&one["last_seen_at"]), row.last_seen_at);
    assert_eq!(one["duplicate_count"], row.duplicate_count);
    assert_eq!(one["last_attempt"], json!(row.last_transport_attempt));
    assert_eq!(one["verdict"], "fresh");
}

/// A time with milliseconds in the format of the contract.
fn seconds(time: &Value) -> String {
    let time = time.as_str().expect("a time");
    let (whole, _) = time.split_once('.').expect("milliseconds");
    format!("{whole}Z")
}

#[test]
fn every_copy_is_counted_before_its_ack() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    for copies in 1..=20_u32 {
        let attempt = 1 + u64::from(copies);
        let ack = client.submit(&match_begin(1, "a").attempt(attempt)).duplicate();
        let [row] = ledger::receipts(gate.data()).try_into().expect("one receipt");
        assert_eq!(row.duplicate_count, i64::from(copies));
        assert_eq!(row.last_transport_attempt, i64::try_from(attempt).ok());
        assert_eq!(row.last_seen_at, ack.received_at);
    }
}

#[test]
fn of_sixty_four_concurrent_copies_one_is_processed() {
    const COPIES: usize = 64;
    let (_folder, gate) = gate();
    let start = Arc::new(Barrier::new(COPIES));
    let copies: Vec<_> = (0..COPIES)
        .map(|_| {
            let (mut client, start) = (gate.client(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                client.submit(&match_begin(1, "a"))
            })
        })
        .collect();
    let reply: Vec<PixelReply> = copies.into_iter().map(|copy| copy.join().unwrap()).collect();
    let processed = reply.iter().filter(|reply| reply.is_processed()).count();
    let duplicates = reply.iter().filter(|reply| reply.is_duplicate()).count();
    assert_eq!((processed, duplicates), (1, COPIES - 1));

    let [row] = ledger::receipts(gate.data()).try_into().expect("one receipt");
    assert_eq!(row.duplicate_count, 63);
    let server = gate.client().get("/v1/pixel/servers/local/a");
    assert_eq!(server["event_counts"]["lifecycle"], 1, "side effects once");
}

#[test]
fn a_rejection_is_stored_and_claims_no_key() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let wrong = match_begin(1, "a").set("/envelope/source_sequence", "soon");
    assert_eq!(client.submit(&wrong).rejected().code, "invalid_envelope");
    let [row] = ledger::receipts(gate.data()).try_into().expect("one receipt");
    assert_eq!(row.status, "rejected");
    assert_eq!(row.idempotency_key, Some(events::idempotency_key(1)));
    let quarantine = client.get("/v1/quarantine?verdict=refused");
    assert_eq!(quarantine["quarantine"][0]["reason"]["code"], "invalid_envelope");
    assert_eq!(quarantine["quarantine"][0]["key"], Value::Null);

    client.submit(&match_begin(1, "a")).processed();
    client.submit(&match_begin(1, "a")).duplicate();
    assert_eq!(client.submit(&wrong).rejected().code, "invalid_envelope");
}

#[test]
fn read_models_follow_the_sequence_and_not_the_arrival() {
    let (_folder, gate) = gate();
    let mut client = gate.client();
    let begin = |n| lifecycle(n, "a", "match.begin", "ManiaPlanet.BeginMatch");
    let end = |n| lifecycle(n, "a", "match.end", "ManiaPlanet.EndMatch");
    let map = |n, uid: &str| {
        let place = "/envelope/metadata/context/server/current_map/uid";
        heartbeat(n, "a").set(place, uid).set(&place.replace("metadata", "payload"), uid)
    };
    let now = SystemClock.now().0 / 1000;
    let newest = map(30, "new").set("/envelope/source_time", now);
    for late in [end(20), newest, begin(10), map(25, "old"), events::registration(1, "a")] {
        client.submit(&late).processed();
    }
    let server = client.get("/v1/pixel/servers/local/a");
    assert_eq!(server["match"]["variant"], "match.end");
    assert_eq!(server["match"]["sequence"], SEQUENCE + 20);
    assert_eq!(server["current_map"]["uid"], "new");
    assert_eq!(server["last_heartbeat"]["sequence"], SEQUENCE + 30);
    assert_eq!(server["last_registration"]["sequence"], SEQUENCE + 1);
    assert_eq!(server["online"], true);
    assert_eq!(server["plugin_version"], "0.1.0-dev");
    assert_eq!(server["players"], json!({ "active": 3, "total": 4, "spectators": 1 }));
    assert_eq!(server["event_counts"]["connectivity"], 3);
    assert_eq!(server["event_counts"]["lifecycle"], 2);
    let stale = heartbeat(40, "late").set("/envelope/source_time", now - 86_400);
    client.submit(&stale).processed();
    let server = client.get("/v1/pixel/servers/local/late");
    assert_eq!(server["online"], false, "a heartbeat of yesterday is not one of now");
}

const TWO_ARENAS: &str = r#"
[[principals]]
name = "arena-1"
keys = ["one-key-long-enough"]

[[principals]]
name = "arena-2"
keys = ["two-key-long-enough"]

[[principals]]
name = "auditor"
keys = ["three-key-long-enough"]
role = "read"
"#;

fn gate_with(config: &str) -> (tempfile::TempDir, Gate) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admit.toml");
    std::fs::write(&file, config).unwrap();
    let launch = Launch::on(&folder.path().join("data"));
    let gate = launch.argument("--config").argument(file).start();
    (folder, gate)
}

#[test]
fn events_of_two_scopes_and_two_logins_are_never_merged() {
    let (_folder, gate) = gate_with(TWO_ARENAS);
    let mut one = gate.client().with("X-Pixel-Control-Api-Key", "one-key-long-enough");
    let mut two = gate.client().with("Authorization", "Bearer two-key-long-enough");
    let mut auditor = gate.client().with("Authorization", "Bearer three-key-long-enough");
    let first = one.submit(&match_begin(1, "same")).processed();
    let second = two.submit(&match_begin(1, "same")).processed();
    assert_ne!(first.dedupe_key, second.dedupe_key, "the same key in another scope is another");
    one.submit(&match_begin(1, "same")).duplicate();
    one.submit(&match_begin(2, "other/login")).processed();

    let logins = |client: &mut Client, path: &str| -> BTreeSet<(String, String)> {
        let page = client.get(path);
        let name = |server: &Value, key: &str| server[key].as_str().unwrap().to_owned();
        let servers = page["servers"].as_array().unwrap().iter();
        servers.map(|server| (name(server, "scope"), name(server, "login"))).collect()
    };
    let pair = |scope: &str, login: &str| (scope.to_owned(), login.to_owned());
    let arena_1 = [pair("arena-1", "same"), pair("arena-1", "other/login")];
    let arena_2 = [pair("arena-2", "same")];
    assert_eq!(logins(&mut auditor, "/v1/pixel/servers/arena-1"), arena_1.clone().into());
    assert_eq!(logins(&mut auditor, "/v1/pixel/servers/arena-2"), arena_2.clone().into());
    let all = arena_1.into_iter().chain(arena_2).collect();
    assert_eq!(logins(&mut auditor, "/v1/pixel/servers"), all);
    let server = auditor.get("/v1/pixel/servers/arena-1/other%2Flogin");
    assert_eq!(server["event_counts"]["lifecycle"], 1);
}

#[test]
fn a_missing_or_wrong_key_gets_the_error_of_the_contract() {
    let (_folder, gate) = gate_with(TWO_ARENAS);
    for mut client in [
        gate.client(),
        gate.client().with("Authorization", "Bearer four"),
        gate.client().with("X-Pixel-Control-Api-Key", "on"),
    ] {
        let reason = client.submit(&match_begin(1, "a")).error(401);
        assert_eq!((reason.code.as_str(), reason.retryable), ("unauthorized", false));
    }
    let mut auditor = gate.client().with("Authorization", "Bearer three-key-long-enough");
    assert_eq!(auditor.submit(&match_begin(1, "a")).error(403).code, "forbidden");
    assert!(ledger::receipts(gate.data()).is_empty(), "strangers leave nothing behind");
}

#[test]
fn a_producer_that_hangs_up_early_is_still_admitted_once() {
    let (_folder, gate) = gate();
    for n in 1..=20 {
        gate.client().send_and_hang_up(DOOR, match_begin(n, "a").body().as_bytes());
    }
    let mut client = gate.client();
    for n in 1..=20 {
        let reply = client.submit(&match_begin(n, "a").attempt(2));
        assert!(reply.is_accepted(), "{reply:?}");
        client.submit(&match_begin(n, "a").attempt(3)).duplicate();
    }
    let server = client.get("/v1/pixel/servers/local/a");
    assert_eq!(server["event_counts"]["lifecycle"], 20);
}
