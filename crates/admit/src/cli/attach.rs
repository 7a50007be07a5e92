//! `admit ledger attach`: another bus or artifact store becomes the one of a ledger, on purpose.

use admit_ledger::port::{Store, StoreId};
use clap::Args;
use serde_json::json;

use super::LedgerPlace;
use super::copy::refuse_unverified;
use super::receipts::unreadable;
use crate::ledger::{open_reader, reattach};
use crate::output::{Failure, print, print_json};
use crate::stores::NamedStore;

/// Which stores, of which ledger.
#[derive(Debug, Args)]
pub(super) struct Attach {
    /// The bus that the config names
    #[arg(long)]
    bus: bool,
    /// The artifact store that the config names
    #[arg(long)]
    artifacts: bool,
    /// Also while gates run: each goes on with its own store until it is restarted
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: LedgerPlace,
}

pub(super) fn run(command: Attach, as_json: bool) -> Result<(), Failure> {
    let Attach { bus, artifacts, force, place } = command;
    if !bus && !artifacts {
        return Err(Failure::usage("name what to attach: --bus, --artifacts or both"));
    }
    let (config, base) = place.load()?;
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
            "gates that use this ledger are running: {}\n  nothing was changed; stop them first, or \
             add --force: each then goes on with its own store until it is restarted",
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
        return print_json(&changes.iter().map(for_programs).collect::<Vec<_>>());
    }
    changes.iter().try_for_each(|change| print(&for_people(change)))
}

type Change<'a> = (&'a NamedStore, Option<StoreId>, StoreId);

fn for_programs((named, before, id): &Change<'_>) -> serde_json::Value {
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

fn for_people((named, before, id): &Change<'_>) -> String {
    let (store, shown) = (named.store(), named.shown());
    match before {
        Some(before) if before == id => {
            format!("the {store} {shown} ({id}) belongs to this ledger already\n")
        }
        Some(before) => {
            format!(
                "the {store} {shown} ({id}) belongs to this ledger now; before it was {before}\n"
            )
        }
        None => format!("the {store} {shown} ({id}) belongs to this ledger now\n"),
    }
}
