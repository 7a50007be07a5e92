//! Which doors an agent opens: those whose "accepted" may be said before the gate has decided.

use std::path::Path;
use std::sync::Arc;

use admit_contracts::Contract;
use admit_contracts::events::Accept;
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_contracts::skyra;
use admit_core::Door;
use admit_edge::Dialect;
use admit_gate::DoorMount;
use admit_gate::gateway::Outward;

use crate::config::Config;
use crate::output::Failure;

/// A door of the agent.
#[derive(Clone, Debug)]
pub(super) struct EdgeDoor {
    pub(super) mount: DoorMount,
    pub(super) dialect: Dialect,
}

/// The doors that are listed.
pub(super) fn open(config: &Config, base: &Path) -> Result<Vec<EdgeDoor>, Failure> {
    config.edge.doors.iter().map(|name| one(config, base, name)).collect()
}

fn one(config: &Config, base: &Path, name: &str) -> Result<EdgeDoor, Failure> {
    let json_depth_max = config.limits.json_depth_max;
    match name {
        "pixel-control" => {
            let door = &config.doors.pixel_control;
            let contract = PixelControl::new(Settings { schema: door.schema, json_depth_max });
            mount(name, &door.path, &door.api_key_header, Arc::new(contract), Dialect::PixelControl)
        }
        skyra::DOOR => {
            let door = &config.doors.skyra;
            // Who owns an id is for the gate to decide; an outbox has one producer.
            let contract = door.contract(json_depth_max, false);
            mount(name, &door.path, &door.api_key_header, Arc::new(contract), Dialect::Skyra)
        }
        stream => {
            let known = config.doors.events.iter().find(|known| known.door() == stream);
            let Some(door) = known else {
                return refuse(
                    name,
                    "is no door that can be forwarded: name skyra, pixel-control \
                     or a stream of this config, events/NAME",
                );
            };
            if !door.webhook_secrets.is_empty() {
                return refuse(
                    name,
                    "takes signed webhooks, and a signature is too old when an \
                     outage is over; let them come to the gate",
                );
            }
            if door.accept == Accept::Any {
                return refuse(name, "takes any body; only streams of JSON are forwarded");
            }
            let contract = door.contract(base, json_depth_max).map_err(Failure::usage)?;
            let (path, header) = (door.path(), &door.api_key_header);
            mount(name, &path, header, Arc::new(contract), Dialect::Events)
        }
    }
}

fn refuse(name: &str, why: &str) -> Result<EdgeDoor, Failure> {
    Err(Failure::usage(format!("edge.doors: {name:?} {why}")))
}

fn mount(
    name: &str,
    path: &str,
    header: &str,
    contract: Arc<dyn Contract>,
    dialect: Dialect,
) -> Result<EdgeDoor, Failure> {
    let mount = DoorMount {
        door: Door::new(name),
        path: path.to_owned(),
        api_key_header: header.parse().map_err(|error| Failure::usage(format!("{error}")))?,
        contract,
        outward: Outward::default(),
    };
    Ok(EdgeDoor { mount, dialect })
}
