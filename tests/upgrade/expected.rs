//! Expected replies: recorded by the version that made a fixture, compared with those of later versions.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::http::{Client, HttpResponse};

/// File name in a fixture.
const FILE: &str = "expected.json";

/// A request that was accepted before; sending it again is a duplicate.
pub(super) struct RecordedRequest {
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl RecordedRequest {
    pub(super) fn new(path: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            path: path.to_owned(),
            headers: headers.iter().map(own).collect(),
            body: body.into(),
        }
    }

    /// Sends the request.
    pub(super) fn send(&self, client: &mut Client) -> HttpResponse {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        client
            .send("POST", &self.path, &headers, self.body.as_bytes())
            .expect("response from the gate")
    }

    /// Sends the request twice and records what both replies have in common.
    pub(super) fn record(&self, client: &mut Client) -> Value {
        let [one, two] = [self.send(client), self.send(client)];
        assert_eq!(one.status, two.status, "{}", String::from_utf8_lossy(&two.body));
        let response = common(&parsed(&one), &parsed(&two)).unwrap_or(Value::Null);
        json!({
            "path": self.path, "headers": self.headers, "body": self.body,
            "status": one.status, "answer": response,
        })
    }

    /// Sends a recorded request; an error if the reply differs from the recorded one.
    pub(super) fn check(recorded: &Value, client: &mut Client) -> Result<(), String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let pair = |pair: &Value| (text(&pair[0]), text(&pair[1]));
        let headers = recorded["headers"].as_array().unwrap().iter().map(pair).collect();
        let copy = Self { path: text(&recorded["path"]), headers, body: text(&recorded["body"]) };
        let response = copy.send(client);
        if recorded["status"] == response.status
            && contains(&parsed(&response), &recorded["answer"])
        {
            return Ok(());
        }
        let now = String::from_utf8_lossy(&response.body).into_owned();
        let before = (&recorded["status"], &recorded["answer"]);
        Err(format!("{} {}: was {before:?}, is {} {now}", copy.path, copy.body, response.status))
    }
}

fn parsed(response: &HttpResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap_or(Value::Null)
}

/// Members with the time of the reply.
const TIMES: [&str; 3] = ["ack_ts", "nack_ts", "received_at"];

/// Returns what two documents have in common, without the time of the reply.
fn common(one: &Value, two: &Value) -> Option<Value> {
    if let (Value::Object(one), Value::Object(two)) = (one, two) {
        let lasting = one.iter().filter(|(name, _)| !TIMES.contains(&name.as_str()));
        let both = lasting
            .filter_map(|(name, value)| Some((name.clone(), common(value, two.get(name)?)?)));
        return Some(Value::Object(both.collect::<Map<_, _>>()));
    }
    (one == two).then(|| one.clone())
}

/// Whether a document contains everything an earlier one had. Additional members are allowed.
pub(super) fn contains(now: &Value, before: &Value) -> bool {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => {
            before.iter().all(|(name, value)| now.get(name).is_some_and(|now| contains(now, value)))
        }
        (Value::Array(now), Value::Array(before)) => {
            now.len() == before.len()
                && now.iter().zip(before).all(|(now, before)| contains(now, before))
        }
        _ => now == before,
    }
}

/// Returns the receipt ids of all admissions, in order.
pub(super) fn receipt_ids(client: &mut Client) -> Vec<String> {
    let mut ids = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/v1/admissions?limit=200{after}"));
        let listed = page["admissions"].as_array().expect("a list");
        ids.extend(listed.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { return ids };
        after = format!("&after={next}");
    }
}

pub(super) fn write(folder: &Path, expected: &Value) {
    fs::write(folder.join(FILE), serde_json::to_string_pretty(expected).unwrap() + "\n").unwrap();
}

pub(super) fn read(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(FILE)).unwrap()).unwrap()
}
