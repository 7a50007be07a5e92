//! `admit ledger`: status, migration, copy to PostgreSQL, confirmation of the clock, attachment of stores.

use std::net::SocketAddr;

use admit_core::{Clock as _, Horizon, Millis};
use admit_gate::SystemClock;
use admit_ledger::{GateStatus, SchemaMigration, Status};
use clap::Subcommand;
use serde_json::json;

use super::receipts::unreadable;
use super::{ConfigArgs, LedgerArgs, attach, copy};
use crate::config::parse_listen;
use crate::ledger::{migrate_ledger, open_reader};
use crate::output::{Failure, print, print_json, printable, table};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the status of the ledger, also while the gate runs
    #[command(after_help = "\
Examples:
  admit ledger status
  admit ledger status --data /var/lib/admit --json
  admit ledger status --ledger postgres://admit@db.example/admit

For a ledger on PostgreSQL it also lists the gates, each with its last start and the end of its
lease. A gate that stopped, or whose lease has expired, is gone; a running gate that is listed as
gone cannot reach the database.")]
    Status {
        #[command(flatten)]
        args: LedgerArgs,
    },
    /// Create the tables, or migrate them to this version
    #[command(after_help = "\
Examples:
  admit ledger migrate --data /var/lib/admit
  admit ledger migrate --ledger postgres://owner@db.example/admit

A gate migrates when it starts. Migrate separately if the database user of the gates may not change
tables, or to test the migration first. On SQLite the gate must be stopped; on PostgreSQL gates may
run, but read the release notes first.")]
    Migrate {
        #[command(flatten)]
        args: LedgerArgs,
    },
    /// Copy a ledger from SQLite into PostgreSQL, with the gate stopped
    #[command(after_help = "\
Examples:
  admit ledger copy --from sqlite:/var/lib/admit --to postgres://admit@db.example/admit
  ADMIT_LEDGER__PASSWORD=... admit ledger copy --from sqlite:admit-data --to postgres://admit@db/admit
  admit ledger copy --config /etc/admit.toml      from the data folder to ledger.url

The target must be empty. Everything is copied, read back and compared in one transaction, so an
interrupted copy is rolled back and can be started again. Receipt ids, seqs, keys and counters do
not change. Afterwards serve only the copy, and keep the folder as a backup.")]
    Copy(copy::CopyArgs),
    /// Confirm the gate's clock after a jump, so that retention resumes
    #[command(
        name = "confirm-time",
        after_help = "\
Examples:
  date; admit ledger confirm-time --reason 'the machine was off for two weeks'
  ADMIT_KEY=... admit ledger confirm-time --listen 127.0.0.1:9000

Retention stops when the clock is ahead of trusted time: after a jump while the gate runs, or if
more time than ledger.clock_gap_max has passed since the last start. Check the clock first: events
older than ledger.retain by this clock are removed within a minute. Principal, time and reason are
stored in the ledger."
    )]
    ConfirmTime {
        /// Reason, stored in the ledger
        #[arg(long)]
        reason: Option<String>,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Attach the configured bus or artifact store to this ledger, with its gates stopped
    #[command(after_help = "\
Examples:
  admit ledger attach --bus --data /var/lib/admit
  admit ledger attach --bus --artifacts --config /etc/admit.toml

A ledger is bound to the bus and the artifact store that it was first served with, because its
offsets and documents refer to them; a gate with another one does not start. Use this after moving
a store. The content of the old bus and the old store is not copied.")]
    Attach(attach::AttachArgs),
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Status { args } => status(args, json),
        Command::Migrate { args } => migrate(args, json),
        Command::Copy(command) => copy::run(command, json),
        Command::ConfirmTime { reason, listen, args } => {
            confirm_time(args, listen, reason.as_deref(), json)
        }
        Command::Attach(command) => attach::run(command, json),
    }
}

fn status(args: LedgerArgs, json: bool) -> Result<(), Failure> {
    let (config, base) = args.load()?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let status = runtime.block_on(ledger.status()).map_err(|fault| unreadable(&fault))?;
    let tag = format!("{:08x}", ledger.tag());
    // The horizon that contracts enforce, also before anything was removed.
    let horizon = Horizon::new(status.retain, status.forgotten_to).reaches_to(SystemClock.now());
    if json {
        print_json(&to_json(&tag, &status, horizon))
    } else {
        print(&to_text(&tag, &status, horizon))
    }
}

fn migrate(args: LedgerArgs, json: bool) -> Result<(), Failure> {
    let (config, base) = args.load()?;
    let SchemaMigration { from, to } = migrate_ledger(&config, &base)?;
    if json {
        return print_json(&json!({ "from": from, "to": to, "changed": from != to }));
    }
    if from == to {
        return print(&format!("the ledger already has version {to}; nothing was changed\n"));
    }
    if from == 0 {
        return print(&format!("created a new ledger, version {to}\n"));
    }
    print(&format!("migrated the ledger from version {from} to {to}\n"))
}

fn confirm_time(
    args: ConfigArgs,
    listen: Option<SocketAddr>,
    reason: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let body = json!({ "reason": reason }).to_string();
    let reply = args.gate(listen)?.post("/v1/ops/confirm-time", &body)?;
    let body: serde_json::Value = serde_json::from_slice(&reply.body)
        .map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    if reply.status != 200 {
        let message = body["error"]["message"].as_str().unwrap_or("no message");
        let message = printable(message);
        return Err(Failure::runtime(format!("clock not confirmed: {message}")));
    }
    if json {
        return print_json(&body);
    }
    let time = body["time"].as_str().unwrap_or_default();
    if body["confirmed"] == true {
        let before = body["trusted_before"].as_str().unwrap_or_default();
        return print(&format!(
            "confirmed: the time is {time}; trusted time was {before}\nretention resumes\n"
        ));
    }
    print(&format!("nothing to confirm: the gate trusts its clock ({time})\n"))
}

fn time(at: Option<Millis>) -> Option<String> {
    at.map(Millis::to_rfc3339_millis)
}

fn to_json(tag: &str, status: &Status, horizon: Option<Millis>) -> serde_json::Value {
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
        "gates": status.gates.iter().map(gate_to_json).collect::<Vec<_>>(),
    })
}

fn to_text(tag: &str, status: &Status, horizon: Option<Millis>) -> String {
    let never = || "none yet".to_owned();
    let mut lines = vec![
        ("tag", tag.to_owned()),
        ("size", size(status.bytes)),
        ("admissions", status.admissions.to_string()),
        ("duplicates", status.sightings.to_string()),
        ("last seq", status.last_seq.0.to_string()),
        ("oldest", time(status.oldest_at).unwrap_or_else(never)),
        ("retention", status.retain.map_or_else(|| "forever".to_owned(), |age| age.to_string())),
    ];
    if let Some(keys) = status.keys {
        lines.push(("keys", keys.to_string()));
    }
    if let Some(horizon) = time(horizon) {
        lines.push(("horizon", format!("{horizon}; events before it are refused")));
    }
    if let Some(to) = time(status.forgotten_to) {
        lines.push(("removed to", format!("{to}; keys of events up to it are removed")));
    }
    if let Some(trusted) = time(status.trusted_at) {
        lines.push(("trusted time", format!("{trusted}; retention uses it instead of the clock")));
    }
    if status.refusals > 0 {
        let (count, bytes) = (status.refusals, size(status.refusal_bytes));
        lines.push(("refusals", format!("{count} stored, {bytes}")));
    }
    if status.removed_bodies > 0 || status.removed_keys > 0 {
        let (bodies, keys) = (status.removed_bodies, status.removed_keys);
        lines.push(("removed", format!("{bodies} bodies, {keys} keys")));
    }
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:<14}{value}\n")).collect();
    if !status.gates.is_empty() {
        let header = ["gate", "epoch", "started", "lease until", "state"];
        text.push('\n');
        text.push_str(&table(&header, status.gates.iter().map(gate_row)));
    }
    text
}

fn gate_to_json(gate: &GateStatus) -> serde_json::Value {
    json!({
        "id": gate.id,
        "epoch": gate.epoch,
        "since": gate.since.to_rfc3339_millis(),
        "lease_until": gate.lease_until.to_rfc3339_millis(),
        "alive": gate.is_alive,
    })
}

fn gate_row(gate: &GateStatus) -> Vec<String> {
    let state = if gate.is_alive { "alive" } else { "gone" };
    vec![
        gate.id.clone(),
        gate.epoch.to_string(),
        gate.since.to_rfc3339_millis(),
        gate.lease_until.to_rfc3339_millis(),
        state.to_owned(),
    ]
}

/// Size in a binary unit, with the exact number of bytes.
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
