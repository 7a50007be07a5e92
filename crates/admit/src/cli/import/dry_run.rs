//! `--dry-run`: validates files and looks them up in the ledger, without sending any.

use std::path::Path;

use admit_contracts::rounds::{DOOR, Rounds};
use admit_contracts::{Contract as _, QUERY, SUBPATH};
use admit_core::json::Value;
use admit_core::{Clock as _, Door, Entry, Principal, Submission};
use admit_gate::SystemClock;
use bytes::Bytes;
use tokio::runtime::Runtime;

use super::files::{FolderScan, RoundFile};
use super::sender::{FileOutcome, FileReply, request_body};
use super::summary::{ImportProgress, ImportSummary};
use crate::config::Config;
use crate::ledger::{LedgerReader, open_reader};
use crate::output::Failure;

/// Prints what would be sent.
pub(super) fn run(
    (config, base): (&Config, &Path),
    found: FolderScan,
    update_metadata: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let rounds = config.doors.rounds.contract(config.limits.json_depth_max);
    let dry_run = DryRun {
        rounds: rounds.map_err(Failure::usage)?,
        update_metadata,
        // Without a ledger every file is new.
        ledger: match open_reader(config, base) {
            Ok(opened) => Some(opened),
            Err(_) if config.ledger.url.is_sqlite() => None,
            Err(failure) => return Err(failure),
        },
    };
    let mut summary = ImportSummary::new();
    summary.skip(found.skipped, found.outside);
    let mut bar = ImportProgress::new(found.files.len(), as_json);
    for file in &found.files {
        summary.add(&file.path, dry_run.outcome(file)?);
        bar.step();
    }
    bar.finish();
    summary.finish(as_json, true)
}

struct DryRun {
    rounds: Rounds,
    update_metadata: bool,
    ledger: Option<(Box<dyn LedgerReader>, Runtime)>,
}

impl DryRun {
    fn outcome(&self, file: &RoundFile) -> Result<FileOutcome, Failure> {
        let body = match request_body(file) {
            Ok(body) => body,
            Err(error) => {
                return Ok(FileOutcome::Refused(format!("cannot read the file: {error}")));
            }
        };
        let mut headers = vec![(SUBPATH.to_owned(), file.source.to_owned())];
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
            Entry::Refused(refused) => return Ok(FileOutcome::Refused(refused.message)),
        };
        let stored = match &self.ledger {
            None => None,
            Some((ledger, runtime)) => runtime
                .block_on(ledger.find(event.key))
                .map_err(|fault| crate::cli::receipts::unreadable(&fault))?,
        };
        let fact = |name: &str| event.facts.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_read = fact("parse_status") != "failed";
        Ok(FileOutcome::Accepted(FileReply {
            differs: stored.as_ref().is_some_and(|stored| stored.digest != event.digest),
            disposition: match stored {
                None => "new",
                Some(stored) if stored.digest == event.digest => "replay",
                Some(_) => "known with other content",
            }
            .to_owned(),
            state: if is_read { "parsed" } else { "parse_failed" }.to_owned(),
            link_status: String::new(),
            reason_code: fact("parse_reason").to_owned(),
        }))
    }
}
