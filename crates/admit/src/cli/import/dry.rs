//! `--dry-run`: how files read and whether the ledger knows them, without sending any.

use std::path::Path;

use admit_contracts::rounds::{DOOR, Rounds};
use admit_contracts::{SUBPATH, Contract as _, QUERY};
use admit_core::json::Value;
use admit_core::{Clock as _, Door, Entry, Principal, Submission};
use admit_gate::SystemClock;
use bytes::Bytes;
use tokio::runtime::Runtime;

use super::files::{Artifact, Found};
use super::report::{Progress, Tally};
use super::send::{Fate, Told, body};
use crate::config::Config;
use crate::ledger::{LedgerReader, open_reader};
use crate::output::Failure;

/// Says what would be sent.
pub(super) fn run(
    (config, base): (&Config, &Path),
    found: Found,
    update_metadata: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let rounds = config.doors.rounds.contract(config.limits.json_depth_max);
    let dry = Dry {
        rounds: rounds.map_err(Failure::usage)?,
        update_metadata,
        // Without a ledger nothing is known yet, and everything is new.
        ledger: match open_reader(config, base) {
            Ok(opened) => Some(opened),
            Err(_) if config.ledger.url.is_sqlite() => None,
            Err(failure) => return Err(failure),
        },
    };
    let mut tally = Tally::new();
    tally.skip(found.skipped, found.outside);
    let mut bar = Progress::of(found.artifacts.len(), as_json);
    for artifact in &found.artifacts {
        tally.add(&artifact.path, dry.one(artifact)?);
        bar.step();
    }
    bar.end();
    tally.end(as_json, true)
}

struct Dry {
    rounds: Rounds,
    update_metadata: bool,
    ledger: Option<(Box<dyn LedgerReader>, Runtime)>,
}

impl Dry {
    fn one(&self, artifact: &Artifact) -> Result<Fate, Failure> {
        let body = match body(artifact) {
            Ok(body) => body,
            Err(error) => return Ok(Fate::Refused(format!("it cannot be read: {error}"))),
        };
        let mut headers = vec![(SUBPATH.to_owned(), artifact.source.to_owned())];
        if self.update_metadata {
            headers.push((QUERY.to_owned(), "update=metadata".to_owned()));
        }
        let submission = Submission {
            principal: Principal::new("local"),
            received_at: SystemClock.now(),
            body: Bytes::from(body),
            headers,
            nonce: [0; 16],
        };
        let event = match self.rounds.vet(&Door::new(DOOR), submission) {
            Entry::Event(event) => event,
            Entry::Refused(refused) => return Ok(Fate::Refused(refused.message)),
        };
        let known = match &self.ledger {
            None => None,
            Some((ledger, runtime)) => runtime
                .block_on(ledger.find(event.key))
                .map_err(|fault| crate::cli::receipts::unreadable(&fault))?,
        };
        let fact = |name: &str| event.facts.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_read = fact("parse_status") != "failed";
        Ok(Fate::Taken(Told {
            differs: known.as_ref().is_some_and(|known| known.digest != event.digest),
            disposition: match known {
                None => "new",
                Some(known) if known.digest == event.digest => "replay",
                Some(_) => "known with other content",
            }
            .to_owned(),
            state: if is_read { "parsed" } else { "parse_failed" }.to_owned(),
            link_status: String::new(),
            reason_code: fact("parse_reason").to_owned(),
        }))
    }
}
