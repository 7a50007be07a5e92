//! `admit ledger`: how large the ledger is, how much is in it and how far back it goes; bringing it up
//! to date, and copying it elsewhere.

use std::net::SocketAddr;

use admit_core::{Clock as _, Horizon, Millis};
use admit_gate::SystemClock;
use admit_ledger::{GateStatus, Migrated, Status};
use clap::Subcommand;
use serde_json::json;

use super::receipts::unreadable;
use super::{LedgerPlace, Place, attach, copy};
use crate::config::parse_listen;
use crate::ledger::{migrate_ledger, open_reader};
use crate::output::{Failure, print, print_json, printable, table};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print how the ledger is doing, also while the gate runs
    #[command(after_help = "\
Examples:
  admit ledger status
  admit ledger status --data /var/lib/admit --json
  admit ledger status --ledger postgres://admit@db.example/admit

Of a ledger on PostgreSQL its gates are listed too, each with its newest start: since when it runs and
until when its lease reaches. A gate that stopped, or whose lease has run out, is gone; a gate that
runs and is listed as gone cannot reach the database.")]
    Status {
        #[command(flatten)]
        place: LedgerPlace,
    },
    /// Bring the tables to what this version needs; make them if there are none
    #[command(after_help = "\
Examples:
  admit ledger migrate --data /var/lib/admit
  admit ledger migrate --ledger postgres://owner@db.example/admit

A gate does the same when it starts. Do it apart where the gates' user may not change tables, or to
see first that it works. On SQLite no gate may run; on PostgreSQL gates may, and read the release
notes first.")]
    Migrate {
        #[command(flatten)]
        place: LedgerPlace,
    },
    /// Copy a ledger from SQLite into PostgreSQL, with the gate stopped
    #[command(after_help = "\
Examples:
  admit ledger copy --from sqlite:/var/lib/admit --to postgres://admit@db.example/admit
  ADMIT_LEDGER__PASSWORD=... admit ledger copy --from sqlite:admit-data --to postgres://admit@db/admit
  admit ledger copy --config /etc/admit.toml      from its data folder to its ledger.url

The target must be empty. Everything is copied, read back and compared in one transaction, so a copy
that is interrupted leaves nothing behind and is started again. Receipt ids, places, keys and counters
stay as they are. Afterwards serve from the copy only, and keep the folder as a backup.")]
    Copy(copy::Copy),
    /// Confirm that the gate's clock is right after a jump, so that retention goes on
    #[command(
        name = "confirm-time",
        after_help = "\
Examples:
  date; admit ledger confirm-time --reason 'the machine was off for two weeks'
  ADMIT_KEY=... admit ledger confirm-time --listen 127.0.0.1:9000

Retention stops when the clock is ahead of trusted time: after a jump while the gate runs, or where more
time than ledger.clock_gap_max has passed since the last start. Look at the clock first: whatever is older
than ledger.retain by it is removed within a minute. Who confirmed, when and why is kept in the ledger."
    )]
    ConfirmTime {
        /// Why the clock is right; kept in the ledger
        #[arg(long)]
        reason: Option<String>,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
    /// Make the configured bus or artifact store the one of this ledger, with its gates stopped
    #[command(after_help = "\
Examples:
  admit ledger attach --bus --data /var/lib/admit
  admit ledger attach --bus --artifacts --config /etc/admit.toml

A ledger remembers the bus and the artifact store that it was first served with, and a gate that brings
another one does not start: offsets and documents in the ledger are in its own. Use this after a move on
purpose. What the old bus and the old store hold is not moved.")]
    Attach(attach::Attach),
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Status { place } => status(place, json),
        Command::Migrate { place } => migrate(place, json),
        Command::Copy(command) => copy::run(command, json),
        Command::ConfirmTime { reason, listen, place } => {
            confirm_time(place, listen, reason.as_deref(), json)
        }
        Command::Attach(command) => attach::run(command, json),
    }
}

fn status(place: LedgerPlace, json: bool) -> Result<(), Failure> {
    let (config, base) = place.load()?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let status = runtime.block_on(ledger.status()).map_err(|fault| unreadable(&fault))?;
    let tag = format!("{:08x}", ledger.tag());
    // What the contracts refuse by, also while nothing is old enough to be removed.
    let horizon = Horizon::new(status.retain, status.forgotten_to).reaches_to(SystemClock.now());
    if json {
        print_json(&for_programs(&tag, &status, horizon))
    } else {
        print(&for_people(&tag, &status, horizon))
    }
}

fn migrate(place: LedgerPlace, json: bool) -> Result<(), Failure> {
    let (config, base) = place.load()?;
    let Migrated { from, to } = migrate_ledger(&config, &base)?;
    if json {
        return print_json(&json!({ "from": from, "to": to, "changed": from != to }));
    }
    if from == to {
        return print(&format!("the ledger has version {to} already, nothing was changed\n"));
    }
    if from == 0 {
        return print(&format!("a new ledger was made, version {to}\n"));
    }
    print(&format!("the ledger was brought from version {from} to {to}\n"))
}

fn confirm_time(
    place: Place,
    listen: Option<SocketAddr>,
    reason: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let body = json!({ "reason": reason }).to_string();
    let answer = place.gate(listen)?.post("/v1/ops/confirm-time", &body)?;
    let reply: serde_json::Value = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if answer.status != 200 {
        let message = reply["error"]["message"].as_str().unwrap_or("no reason was given");
        let message = printable(message);
        return Err(Failure::runtime(format!("the clock was not confirmed: {message}")));
    }
    if json {
        return print_json(&reply);
    }
    let time = reply["time"].as_str().unwrap_or_default();
    if reply["confirmed"] == true {
        let before = reply["trusted_before"].as_str().unwrap_or_default();
        return print(&format!(
            "confirmed: it is {time}; trusted before was {before}\nretention goes on\n"
        ));
    }
    print(&format!("nothing to confirm: the gate trusts its clock, which shows {time}\n"))
}

fn time(at: Option<Millis>) -> Option<String> {
    at.map(Millis::to_rfc3339_millis)
}

fn for_programs(tag: &str, status: &Status, horizon: Option<Millis>) -> serde_json::Value {
    json!({
        "tag": tag,
        "bytes": status.bytes,
        "admissions": status.admissions,
        "sightings": status.sightings,
        "last_seq": status.last_seq.0,
        "oldest_at": time(status.oldest_at),
        "free_bytes": status.free_bytes,
        "keys": status.keys,
        "oldest_body_at": time(status.oldest_body_at),
        "retain": status.retain.map_or_else(|| "forever".to_owned(), |age| age.to_string()),
        "horizon": time(horizon),
        "forgotten_to": time(status.forgotten_to),
        "trusted_time": time(status.trusted_at),
        "kept_refusals": { "count": status.refusals, "bytes": status.refusal_bytes },
        "removed_bodies": status.removed_bodies,
        "removed_keys": status.removed_keys,
        "gates": status.gates.iter().map(gate_for_programs).collect::<Vec<_>>(),
    })
}

fn for_people(tag: &str, status: &Status, horizon: Option<Millis>) -> String {
    let never = || "none yet".to_owned();
    let mut lines = vec![
        ("tag", tag.to_owned()),
        ("size", size(status.bytes)),
        ("admissions", status.admissions.to_string()),
        ("copies seen", status.sightings.to_string()),
        ("last place", status.last_seq.0.to_string()),
        ("oldest", time(status.oldest_at).unwrap_or_else(never)),
        ("kept", status.retain.map_or_else(|| "for ever".to_owned(), |age| format!("for {age}"))),
    ];
    if let Some(keys) = status.keys {
        lines.push(("keys", keys.to_string()));
    }
    if let Some(horizon) = time(horizon) {
        lines.push(("horizon", format!("{horizon}; events that happened before are refused")));
    }
    if let Some(to) = time(status.forgotten_to) {
        lines.push(("forgotten", format!("keys of events up to {to}")));
    }
    if let Some(trusted) = time(status.trusted_at) {
        lines.push(("trusted time", format!("{trusted}; retention goes by it, not by the clock")));
    }
    if status.refusals > 0 {
        let (count, bytes) = (status.refusals, size(status.refusal_bytes));
        lines.push(("refusals", format!("{count} kept, {bytes}")));
    }
    if status.removed_bodies > 0 || status.removed_keys > 0 {
        let (bodies, keys) = (status.removed_bodies, status.removed_keys);
        lines.push(("removed", format!("{bodies} bodies, {keys} keys")));
    }
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:<14}{value}\n")).collect();
    if !status.gates.is_empty() {
        let header = ["GATE", "EPOCH", "SINCE", "LEASE UNTIL", "STATE"];
        text.push('\n');
        text.push_str(&table(&header, status.gates.iter().map(gate_for_people)));
    }
    text
}

fn gate_for_programs(gate: &GateStatus) -> serde_json::Value {
    json!({
        "id": gate.id,
        "epoch": gate.epoch,
        "since": gate.since.to_rfc3339_millis(),
        "lease_until": gate.lease_until.to_rfc3339_millis(),
        "alive": gate.is_alive,
    })
}

fn gate_for_people(gate: &GateStatus) -> Vec<String> {
    let state = if gate.is_alive { "alive" } else { "gone" };
    vec![
        gate.id.clone(),
        gate.epoch.to_string(),
        gate.since.to_rfc3339_millis(),
        gate.lease_until.to_rfc3339_millis(),
        state.to_owned(),
    ]
}

/// Bytes as people read them, with the exact number beside.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name} ({bytes} bytes)", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_exact() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1536), "1.5 KiB (1536 bytes)");
        assert_eq!(size(3 << 30), "3.0 GiB (3221225472 bytes)");
    }
}
