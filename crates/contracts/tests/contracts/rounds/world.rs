//! Minimal in-memory ledger for records, so that the merge rule can be tested without a real one.

use std::collections::BTreeMap;

use admit_contracts::rounds::{Rounds, Settings, recompute};
use admit_contracts::{Contract as _, QUERY, SUBPATH};
use admit_core::entity::{
    CandidateSet, DistantEvent, Entity, KnownLink, Link, Policy, Resolution, SourceEvent,
    Transition, resolve,
};
use admit_core::{
    Digest, Door, Entry, Event, Millis, Principal, PriorAdmission, RecordedEntry, Seq, Submission,
    Verdict,
};
use bytes::Bytes;
use serde_json::{Value, json};

/// Reads an artifact from the test fixtures.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../fixtures/rounds/", $name))
    };
}
pub(crate) use fixture;

pub(crate) const STATS_NAME: &str = "2026-02-11-220205-supply-round-2.txt";
pub(crate) const STATS: &str = fixture!("2026-02-11-220205-supply-round-2.txt");
pub(crate) const READY: &str = fixture!("stats_ready-supply-R2.json");
pub(crate) const GAMETIME_NAME: &str = "gametime-supply-R2-1770843722.json";
pub(crate) const GAMETIME: &str = fixture!("gametime-supply-R2-1770843722.json");
pub(crate) const PROXIMITY_NAME: &str = "2026-02-11-220202-supply-round-1_engagements.txt";
pub(crate) const PROXIMITY: &str = fixture!("2026-02-11-220202-supply-round-1_engagements.txt");
pub(crate) const SPAWNS: &str = fixture!("lua_spawn_stats-supply-R2.json");

/// Start and end of the reference round.
pub(crate) const START: i64 = 1_770_843_143;
pub(crate) const END: i64 = 1_770_843_722;

/// Request body of a file.
pub(crate) fn file(name: &str, content: &str) -> String {
    json!({ "filename": name, "content": content }).to_string()
}

/// The five artifacts of the reference round, with their sources.
pub(crate) fn reference() -> Vec<(&'static str, String)> {
    vec![
        ("filename_trigger", file(STATS_NAME, STATS)),
        ("stats_ready", READY.to_owned()),
        ("gametime_fallback", file(GAMETIME_NAME, GAMETIME)),
        ("proximity_file", file(PROXIMITY_NAME, PROXIMITY)),
        ("lua_spawn_stats", SPAWNS.to_owned()),
    ]
}

pub(crate) fn submission(source: &str, query: &str, body: &str, at: i64) -> Submission {
    let mut headers = vec![(SUBPATH.to_owned(), source.to_owned())];
    if !query.is_empty() {
        headers.push((QUERY.to_owned(), query.to_owned()));
    }
    Submission {
        principal: Principal::new("local"),
        received_at: Millis(at),
        body: Bytes::copy_from_slice(body.as_bytes()),
        headers,
        nonce: [0; 16],
    }
}

/// Source event of a vetted body.
pub(crate) fn vetted(source: &str, body: &[u8]) -> SourceEvent {
    let rounds = Rounds::new(Settings::default()).unwrap();
    let mut submission = submission(source, "", "", 1);
    submission.body = Bytes::copy_from_slice(body);
    let Entry::Event(event) = rounds.vet(&Door::new("rounds"), submission) else {
        panic!("refused")
    };
    let again = recompute("rounds", &event.facts, body);
    assert_eq!(again, Some((event.key, event.digest)), "what is kept can be recomputed");
    event.record.unwrap().event().clone()
}

/// Result of a post.
#[derive(Debug)]
pub(crate) struct PostResult {
    pub(crate) seq: Seq,
    pub(crate) body: Value,
}

impl PostResult {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }
}

/// Events, links, records and history, as a ledger would store them.
pub(crate) struct RoundsLedger {
    pub(crate) rounds: Rounds,
    pub(crate) events: Vec<SourceEvent>,
    digests: Vec<Digest>,
    pub(crate) links: BTreeMap<Seq, Link>,
    pub(crate) entities: BTreeMap<String, Entity>,
    pub(crate) history: Vec<Transition>,
    pub(crate) now: i64,
}

impl RoundsLedger {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self {
            rounds: Rounds::new(settings).unwrap(),
            events: Vec::new(),
            digests: Vec::new(),
            links: BTreeMap::new(),
            entities: BTreeMap::new(),
            history: Vec::new(),
            now: 1_771_000_000_000,
        }
    }

    pub(crate) fn policy(&self) -> &Policy {
        self.rounds.policy()
    }

    /// Posts a body as a source at the current time.
    pub(crate) fn post(&mut self, source: &str, body: &str) -> PostResult {
        self.now += 1000;
        self.post_at(source, "", body, self.now)
    }

    pub(crate) fn deliver(&mut self, source: &str, body: &Value) -> PostResult {
        self.post(source, &body.to_string())
    }

    pub(crate) fn post_at(&mut self, source: &str, query: &str, body: &str, at: i64) -> PostResult {
        let door = Door::new("rounds");
        let Entry::Event(event) = self.rounds.vet(&door, submission(source, query, body, at))
        else {
            panic!("refused: {body}")
        };
        let (verdict, seq) = self.record(&event);
        let outcome = self.links.get(&seq).map(Link::outcome);
        let entry = Entry::Event(event);
        let reply = self.rounds.reply(&RecordedEntry { entry, verdict, ledger: 7, outcome });
        assert_eq!(reply.status, 200);
        PostResult { seq, body: serde_json::from_slice(&reply.body).unwrap() }
    }

    /// Returns the verdict and the seq of the event it is about.
    fn record(&mut self, event: &Event) -> (Verdict, Seq) {
        let source_event = event.record.as_ref().unwrap().event();
        let place = |at: usize| Seq(at as u64 + 1);
        let first = (0..self.events.len()).find(|at| self.events[*at].key == source_event.key);
        let known = (0..self.events.len()).find(|at| {
            self.events[*at].key == source_event.key && self.digests[*at] == event.digest
        });
        let first_of = |at: usize| PriorAdmission {
            seq: place(at),
            digest: self.digests[at],
            received_at: self.events[at].received_at,
            principal: admit_core::Principal::new("local"),
            facts: Bytes::new(),
        };
        let seq = place(self.events.len());
        if let (Some(known), Some(first)) = (known, first) {
            return (Verdict::Duplicate { seq, first: first_of(first) }, place(known));
        }
        let tolerance = self.policy().tolerance_seconds;
        let earlier = first.map(|first| &self.events[first]);
        let admitted = source_event.clone().admitted(seq, earlier, tolerance);
        let verdict = match first {
            Some(first) => Verdict::Revision { seq, first: first_of(first) },
            None => Verdict::Fresh { seq },
        };
        // A ledger stores the event as text; reading it back must give the same event.
        let stored = SourceEvent::from_text(&admitted.to_text(), admitted.fields.clone()).unwrap();
        assert_eq!(stored, admitted);
        self.events.push(stored);
        self.digests.push(event.digest);
        let at = self.events.len() - 1;
        self.resolve(at);
        (verdict, seq)
    }

    /// Resolves the candidate set of an event, like a ledger on arrival.
    fn resolve(&mut self, at: usize) -> Resolution {
        let event = self.events[at].clone();
        let mut range = self.policy().range(&event);
        if let Some(hard_key) = &range.hard_key {
            let owner = self
                .events
                .iter()
                .find(|other| !other.group.is_empty() && other.hard_key.as_ref() == Some(hard_key));
            range.group = owner.map(|owner| owner.group.clone()).unwrap_or_default();
        }
        let is_near = |other: &SourceEvent| {
            other.event_time.is_some_and(|time| (range.from..=range.to).contains(&time))
        };
        let is_in = |other: &&SourceEvent| {
            other.seq == event.seq
                || (other.group == range.group && (is_near(other) || other.event_time.is_none()))
                || (other.group.is_empty() && other.hard_key.is_some() && is_near(other))
        };
        let events: Vec<SourceEvent> = self.events.iter().filter(is_in).cloned().collect();
        let far: Vec<DistantEvent> = self
            .events
            .iter()
            .filter(|other| {
                self.policy().opens(&other.source) && other.group == range.group && !is_near(other)
            })
            .filter_map(|other| {
                let (number, time) = other.number.zip(other.event_time)?;
                Some(DistantEvent { number, time, date: other.date.clone() })
            })
            .collect();
        let known = self.known(&events);
        let resolution = resolve(
            self.policy(),
            CandidateSet {
                group: &range.group,
                around: range.around,
                covered: None,
                now: Millis(self.now),
                events: &events,
                known: &known,
                far: &far,
            },
        );
        self.keep(resolution.clone());
        resolution
    }

    fn known(&self, events: &[SourceEvent]) -> Vec<KnownLink> {
        let known = |event: &SourceEvent| {
            let link = self.links.get(&event.seq)?.clone();
            Some(KnownLink { seq: event.seq, link })
        };
        events.iter().filter_map(known).collect()
    }

    fn keep(&mut self, resolution: Resolution) {
        for (seq, link) in resolution.links {
            assert_eq!(Link::from_text(&link.to_text()), Ok(link.clone()));
            self.links.insert(seq, link);
        }
        for id in resolution.retired {
            self.entities.remove(&id);
        }
        for record in resolution.entities {
            self.entities.insert(record.record_id.clone(), record);
        }
        self.history.extend(resolution.transitions);
    }

    /// Resolves unlinked events again; returns how many were tried and how many changed.
    pub(crate) fn relink(&mut self) -> (usize, usize) {
        let open: Vec<usize> = (0..self.events.len())
            .filter(|at| self.links[&self.events[*at].seq].record_id.is_none())
            .collect();
        let updated = open.iter().filter(|at| {
            let seq = self.events[**at].seq;
            self.resolve(**at).link(seq).is_some()
        });
        let updated = updated.count();
        (open.len(), updated)
    }

    pub(crate) fn link(&self, result: &PostResult) -> &Link {
        &self.links[&result.seq]
    }

    /// The only record.
    pub(crate) fn record_of_all(&self) -> &Entity {
        assert_eq!(self.entities.len(), 1, "{:?}", self.entities.keys());
        self.entities.values().next().unwrap()
    }

    /// Field of the only record, with its source.
    pub(crate) fn field(&self, name: &str) -> (Value, String) {
        let field = self.record_of_all().field(name);
        let field = field.unwrap_or_else(|| panic!("there is no {name}"));
        (read(&field.value), field.source.clone())
    }

    /// Everything that must not depend on the order of arrival.
    pub(crate) fn summary(&self) -> Value {
        let name = |seq: Seq| self.digests[usize::try_from(seq.0).unwrap() - 1].to_string();
        let links: BTreeMap<String, Value> = self
            .links
            .iter()
            .map(|(seq, link)| {
                let fingerprints: Vec<&str> =
                    link.fingerprints.iter().map(|one| one.value.as_str()).collect();
                let summary = json!({
                    "status": link.status.word(),
                    "state": link.state.word(),
                    "reason": link.reason,
                    "confidence": link.confidence.word(),
                    "matched": link.matched.map(|matched| matched.word()),
                    "record": link.record_id,
                    "number": link.number,
                    "number_from": link.number_from,
                    "fingerprints": fingerprints,
                    "diff": link.diagnostics.best_diff_seconds,
                });
                (name(*seq), summary)
            })
            .collect();
        let records: BTreeMap<&String, Value> = self
            .entities
            .iter()
            .map(|(id, record)| {
                let fields: BTreeMap<&str, Value> = record
                    .fields
                    .iter()
                    .map(|field| {
                        let merged =
                            [read(&field.value), json!(field.source), json!(name(field.event))];
                        (field.name.as_str(), json!(merged))
                    })
                    .collect();
                let mut sources: Vec<String> =
                    record.sources.iter().map(|(seq, _)| name(*seq)).collect();
                sources.sort();
                let summary = json!({
                    "fields": fields,
                    "sources": sources,
                    "state": record.state.word(),
                    "fingerprints": record.fingerprints_text(),
                    "group": record.group,
                    "number": record.number,
                    "clock": [record.date.clone(), record.time.clone()],
                });
                (id, summary)
            })
            .collect();
        json!({ "links": links, "records": records })
    }
}

/// Converts one of our values to a serde value for comparison.
pub(crate) fn read(value: &admit_core::json::Value<'_>) -> Value {
    let mut text = Vec::new();
    admit_core::json::write(value, &mut text);
    serde_json::from_slice(&text).unwrap()
}
