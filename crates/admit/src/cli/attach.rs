//! `admit ledger attach`: binds another bus or artifact store to a ledger.

use admit_ledger::port::{Store, StoreId};
use clap::Args;
use serde_json::json;

use super::LedgerArgs;
use super::copy::refuse_unverified;
use super::receipts::unreadable;
use crate::ledger::{open_reader, reattach};
use crate::output::{Failure, print, print_json};
use crate::stores::NamedStore;

/// Stores to attach, and their ledger.
#[derive(Debug, Args)]
pub(super) struct AttachArgs {
    /// Attach the configured bus
    #[arg(long)]
    bus: bool,
    /// Attach the configured artifact store
    #[arg(long)]
    artifacts: bool,
    /// Attach while gates run; each keeps using its current store until it restarts
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    args: LedgerArgs,
}

pub(super) fn run(command: AttachArgs, as_json: bool) -> Result<(), Failure> {
    let AttachArgs { bus, artifacts, force, args } = command;
    if !bus && !artifacts {
        return Err(Failure::usage("nothing to attach: give --bus, --artifacts or both"));
    }
    let (config, base) = args.load()?;
    if !config.ledger.url.is_postgres() {
        refuse_unverified(&config.data)?;
    }
    let (reader, runtime) = open_reader(&config, &base)?;
    let status = runtime.block_on(reader.status()).map_err(|fault| unreadable(&fault))?;
    drop(reader);
    let alive: Vec<String> =
        status.gates.into_iter().filter(|gate| gate.is_alive).map(|gate| gate.id).collect();
    if !alive.is_empty() && !force {
        return Err(Failure::runtime(format!(
            "gates of this ledger are running: {}\n  nothing was changed; stop them first, or add \
             --force: each then keeps using its current store until it restarts",
            alive.join(", ")
        )));
    }
    let mut stores = Vec::new();
    if bus {
        stores.push(NamedStore::bus(&config)?);
    }
    if artifacts {
        stores.push(NamedStore::artifacts(&config)?);
    }
    let mut changes = Vec::new();
    for named in &stores {
        let id = named.id_or_new()?;
        let before = reattach(&config, &base, named.store(), id)?;
        changes.push((named, before, id));
    }
    if as_json {
        return print_json(&changes.iter().map(to_json).collect::<Vec<_>>());
    }
    changes.iter().try_for_each(|change| print(&to_text(change)))
}

type StoreChange<'a> = (&'a NamedStore, Option<StoreId>, StoreId);

fn to_json((named, before, id): &StoreChange<'_>) -> serde_json::Value {
    let store = match named.store() {
        Store::Bus => "bus",
        Store::Artifacts => "artifacts",
    };
    json!({
        "store": store,
        "place": named.shown(),
        "before": before.map(|id| id.to_string()),
        "id": id.to_string(),
        "changed": *before != Some(*id),
    })
}

fn to_text((named, before, id): &StoreChange<'_>) -> String {
    let (store, shown) = (named.store(), named.shown());
    match before {
        Some(before) if before == id => {
            format!("the {store} {shown} ({id}) is already attached to this ledger\n")
        }
        Some(before) => {
            format!(
                "the {store} {shown} ({id}) is now attached to this ledger; before it was {before}\n"
            )
        }
        None => format!("the {store} {shown} ({id}) is now attached to this ledger\n"),
    }
}
