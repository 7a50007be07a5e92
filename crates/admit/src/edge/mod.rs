//! `admit edge`: the agent on the producer's machine.
//!
//! A gate whose ledger is a set of outboxes: the same server, contracts and wire formats, but
//! "accepted" means "durable here, and sent until the gate has it".

mod doors;
mod ledger;
mod metrics;
mod outboxes;
mod row;
mod socket;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use admit_core::{Clock as _, Entry, Principal, Submission};
use admit_gate::{Gate, GateParts, SystemClock};
use admit_ledger::Ledger as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, LogFormat, check};
use crate::output::{self, Failure, print};
use crate::serve::{
    BACKLOG, COMMIT, ServeOutcome, StopSignals, address_of, bind, ignore_hangups, until_stopped,
};
use crate::{logs, runtime, serve};

pub(crate) use outboxes::{FILE, file_of};

use ledger::OutboxLedger;
use outboxes::Outboxes;

/// Vets an envelope, and returns the id and payload of its row.
///
/// # Errors
/// When the envelope is still invalid, or the config is.
pub(crate) fn vet(
    config: &Config,
    base: &Path,
    door: &str,
    producer: &str,
    envelope: Vec<u8>,
) -> Result<(String, String), Failure> {
    let opened = doors::open(config, base)?;
    let Some(door) = opened.iter().find(|opened_door| opened_door.mount.door.as_str() == door)
    else {
        return Err(Failure::usage(format!("edge.doors has no {door:?}")));
    };
    let submission = Submission {
        principal: Principal::new(producer),
        received_at: SystemClock.now(),
        body: envelope.into(),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    match door.mount.contract.vet(&door.mount.door, submission) {
        Entry::Event(event) => Ok(row::encode(door.dialect, &event)),
        Entry::Refused(refused) => Err(Failure::runtime(format!(
            "the envelope is still invalid: {}\n  nothing was changed",
            refused.message
        ))),
    }
}

/// Runs an agent until a stop signal.
pub(crate) fn run(config: &Config, base: &Path, json: bool) -> Result<(), Failure> {
    // Before the outboxes: opening them may take long.
    let runtime = runtime::start()?;
    ignore_hangups(&runtime)?;
    check(config, base).map_err(Failure::usage)?;
    let edge = &config.edge;
    let producers = edge.producers(base).map_err(Failure::usage)?;
    let doors = doors::open(config, base)?;
    logs::start(&config.log)?;
    let socket = bind(edge.listen)?;
    make_folder(&edge.data)?;
    let mounts = doors.iter().map(|door| door.mount.clone()).collect();
    let outboxes = Arc::new(Outboxes::open(edge, base, doors)?);
    let ledger = Arc::new(OutboxLedger::new(Arc::clone(&outboxes)));
    let parts = GateParts {
        ledger: ledger.clone(),
        doors: mounts,
        principals: producers,
        limits: config.limits.clone(),
        clock: Arc::new(SystemClock),
    };
    let gate = Arc::new(Gate::new(parts).map_err(Failure::usage)?.built_from(COMMIT));
    // Dropped before the outboxes, with every task that holds a reference to them.
    let runtime = runtime;
    let ended = runtime.block_on(async {
        let stop = StopSignals::new()?;
        let listener =
            socket.listen(BACKLOG).map_err(|error| serve::cannot_listen(edge.listen, &error))?;
        let address = address_of(&listener)?;
        let relaying = CancellationToken::new();
        let relay = socket::relay(&edge.socket(), address, relaying.clone())?;
        announce(config, address, &outboxes, json)?;
        let ended = until_stopped(listener, gate, ledger.must_stop(), stop).await;
        relaying.cancel();
        relay.await;
        ended
    })?;
    match ended {
        ServeOutcome::Drained(drained) => {
            outboxes.stop();
            let waiting = outboxes.waiting();
            tracing::info!(
                waiting,
                unfinished = drained.unfinished,
                "stopped; waiting rows stay in the outboxes"
            );
            // Closing would wait for requests that hang. Acknowledged events are durable without
            // it.
            if drained.unfinished > 0 {
                output::exit_without_cleanup();
            }
            drop(runtime);
            Ok(())
        }
        ServeOutcome::LedgerStopped(fault) => {
            let cause =
                fault.source.as_ref().map_or_else(|| fault.to_string(), ToString::to_string);
            output::exit_at_once(&Failure::ledger_stopped(format!(
                "an outbox has stopped the agent: {cause}\n  the state of the disk is unknown until \
                                  a restart: check the disk, then start the agent again"
            )))
        }
    }
}

/// Creates the folder with mode 0700, which also protects the socket in it.
fn make_folder(path: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        Failure::runtime(format!("cannot create the folder {}: {error}", path.display()))
    })
}

/// Announces that the agent is open: as text, as JSON, or only in the log.
fn announce(
    config: &Config,
    address: std::net::SocketAddr,
    outboxes: &Outboxes,
    json: bool,
) -> Result<(), Failure> {
    let edge = &config.edge;
    let (socket, data) = (edge.socket(), edge.data.display());
    if json {
        let doors: Vec<_> = outboxes
            .doors()
            .map(|(door, path)| json!({ "door": door, "method": "POST", "path": path }))
            .collect();
        let open = json!({ "listen": address, "socket": socket, "data": edge.data,
            "gate": edge.gate, "doors": doors });
        print(&format!("{open}\n"))?;
    } else if config.log.format == LogFormat::Text {
        let mut text = format!(
            "admit edge {} is open on http://{address} and {}, outboxes in {data}, gate {}\n\n",
            env!("CARGO_PKG_VERSION"),
            socket.display(),
            edge.gate
        );
        for (door, path) in outboxes.doors() {
            text.push_str(&format!("  {door:<14}  POST http://{address}{path}\n"));
        }
        text.push_str("\nCtrl-C stops the agent; unsent events stay in the outboxes\n\n");
        print(&text)?;
    }
    let waiting = outboxes.waiting();
    tracing::info!(listen = %address, %data, gate = edge.gate, waiting, "open");
    Ok(())
}
