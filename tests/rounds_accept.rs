//! A later stats file of a round, accepted by an operator.

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::intents::admit;
use crate::support::ledger::assert_intact;
use crate::support::rounds::{
    ROUNDS, Round, file, number, post_source_ok, round, rounds, row_counts,
};

/// A stats file with one player, and one with all players.
fn files() -> (Value, Value) {
    let reference = Round::reference();
    let cut_off = reference.stats_with(1, &[("AAAA1111", "alpha", 4)]);
    let whole = reference.stats_with(2, &[("AAAA1111", "alpha", 10), ("BBBB2222", "bravo", 7)]);
    (file(cut_off), file(whole))
}

const PLAYERS: &str = "SELECT count(*) FROM player_comprehensive_stats";

#[test]
fn a_more_complete_stats_file_counts_after_an_operator_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let (cut_off, whole) = files();
    let first = post_source_ok(&mut client, "filename_trigger", &cut_off);
    assert_eq!(first["content_differs"], false);
    let later = post_source_ok(&mut client, "filename_trigger", &whole);
    assert_eq!(
        (&later["disposition"], &later["content_differs"]),
        (&json!("replay"), &json!(true))
    );
    let copy = post_source_ok(&mut client, "filename_trigger", &whole);
    assert_eq!((&copy["disposition"], &copy["content_differs"]), (&json!("replay"), &json!(true)));
    let same = post_source_ok(&mut client, "filename_trigger", &cut_off);
    assert_eq!((&same["disposition"], &same["content_differs"]), (&json!("replay"), &json!(false)));
    assert_eq!(number(data, PLAYERS), 1);

    let receipt = later["receipt_id"].as_str().unwrap();
    let listen = gate.address().to_string();
    let place = ["--listen", &listen, "--data", data.to_str().unwrap()];
    let accept = |reason: &str| {
        admit(&[&["rounds", "accept", receipt, "--reason", reason][..], &place].concat())
    };
    let (went_well, printed) = accept(" ");
    assert!(!went_well && printed.contains("not accepted"), "{printed}");
    assert_eq!(number(data, PLAYERS), 1);
    let (went_well, printed) = accept("the first was cut off");
    assert!(went_well && printed.contains("accepted for"), "{printed}");
    let id = first["round_id"].as_str().unwrap();
    let found = round(&mut client, id);
    let players = &found["fields"]["players"];
    assert_eq!(
        (&players["event"], players["value"].as_array().unwrap().len()),
        (&later["receipt_id"], 2)
    );
    assert_eq!(found["fields"]["winner_team"]["value"], 2);
    assert_eq!(number(data, PLAYERS), 2);
    let sources = found["sources"].as_array().unwrap();
    let event = sources.iter().find(|event| event["event"] == later["receipt_id"]).unwrap();
    assert_eq!(event["accepted"]["reason"], "the first was cut off");
    assert!(event["accepted"]["by"].is_string() && event["accepted"]["at"].is_string(), "{event}");
    assert_eq!(event["revision_of"], first["receipt_id"]);
    let is_step =
        |step: &&Value| step["event"] == later["receipt_id"] && step["reason_code"] == "accepted";
    assert_eq!(found["history"].as_array().unwrap().iter().filter(is_step).count(), 2, "{found}");

    let before = row_counts(data);
    let (went_well, printed) = accept("again");
    assert!(went_well && printed.contains("was already accepted"), "{printed}");
    post_source_ok(&mut client, "filename_trigger", &cut_off);
    let copy = post_source_ok(&mut client, "filename_trigger", &whole);
    assert_eq!(copy["content_differs"], false, "it is what counts");
    assert_eq!(row_counts(data), before, "nothing is done twice");
    assert_eq!(rounds(&mut client).len(), 1);
    // The script is still trusted for the winner.
    post_source_ok(&mut client, "stats_ready", &Round::reference().ready_with(1, 1));
    let found = round(&mut client, id);
    assert_eq!(found["fields"]["winner_team"]["source"], "stats_ready");
    assert_eq!(found["fields"]["players"]["event"], later["receipt_id"]);
    gate.stop();
    let (went_well, verified) = admit(&["verify", "--data", data.to_str().unwrap()]);
    assert!(went_well, "{verified}");
    assert_intact(data);
}

#[test]
fn only_an_operator_accepts_and_only_acceptable_files() {
    let folder = tempfile::tempdir().unwrap();
    let principals = r#"[{ name = "server", keys = ["server-key-long-enough"], doors = ["rounds"] },
        { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;
    let gate = Launch::on(folder.path()).variable("ADMIT_PRINCIPALS", principals).start();
    let mut server = gate.client().with("X-API-Key", "server-key-long-enough");
    let mut ops = gate.client().with("X-API-Key", "ops-key-long-enough");
    let (cut_off, whole) = files();
    let script = post_source_ok(&mut server, "stats_ready", &Round::reference().ready());
    let unread = post_source_ok(&mut server, "filename_trigger", &json!({ "filename": "no name" }));
    post_source_ok(&mut server, "filename_trigger", &cut_off);
    let later = post_source_ok(&mut server, "filename_trigger", &whole);
    let path = |receipt: &Value| format!("{ROUNDS}/accept/{}", receipt.as_str().unwrap());
    let because = br#"{"reason":"because"}"#;
    let path_of_later = path(&later["receipt_id"]);
    assert_eq!(server.send("POST", &path_of_later, &[], because).unwrap().status, 403);
    for body in [&b""[..], b"{}", br#"{"reason":" "}"#, br#"{"reason":"x","by":"y"}"#] {
        assert_eq!(ops.send("POST", &path_of_later, &[], body).unwrap().status, 400);
    }
    for (receipt, status) in [
        (&script["receipt_id"], 409),
        (&unread["receipt_id"], 409),
        (&json!("rcp-00000000-1"), 404),
        (&json!("nonsense"), 404),
    ] {
        assert_eq!(
            ops.send("POST", &path(receipt), &[], because).unwrap().status,
            status,
            "{receipt}"
        );
    }
    let answer = ops.send("POST", &path_of_later, &[], because).unwrap();
    let reply = answer.json();
    assert_eq!((answer.status, &reply["accepted_before"]), (200, &json!(false)), "{reply}");
    let data = folder.path();
    let kept = "SELECT count(*) FROM record_event WHERE head LIKE '%\"by\":\"ops\"%'";
    assert_eq!(number(data, kept), 1, "who did it is kept");
    gate.stop();
}
