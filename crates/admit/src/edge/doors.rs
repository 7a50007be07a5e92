//! Doors of an agent: those that may reply "accepted" before the gate has decided.

use std::path::Path;
use std::sync::Arc;

use admit_contracts::Contract;
use admit_contracts::events::Accept;
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_contracts::skyra;
use admit_core::Door;
use admit_edge::Dialect;
use admit_gate::DoorMount;
use admit_gate::gateway::EffectTarget;

use crate::config::Config;
use crate::output::Failure;

/// A door of the agent.
#[derive(Clone, Debug)]
pub(super) struct EdgeDoor {
    pub(super) mount: DoorMount,
    pub(super) dialect: Dialect,
}

/// Opens the doors listed in the config.
pub(super) fn open(config: &Config, base: &Path) -> Result<Vec<EdgeDoor>, Failure> {
    config.edge.doors.iter().map(|name| open_door(config, base, name)).collect()
}

fn open_door(config: &Config, base: &Path, name: &str) -> Result<EdgeDoor, Failure> {
    let json_depth_max = config.limits.json_depth_max;
    match name {
        "pixel-control" => {
            let door = &config.doors.pixel_control;
            let contract = PixelControl::new(Settings { schema: door.schema, json_depth_max });
            mount(name, &door.path, &door.api_key_header, Arc::new(contract), Dialect::PixelControl)
        }
        skyra::DOOR => {
            let door = &config.doors.skyra;
            // The gate checks who owns an id; an outbox has one producer.
            let contract = door.contract(json_depth_max, false);
            mount(name, &door.path, &door.api_key_header, Arc::new(contract), Dialect::Skyra)
        }
        stream => {
            let configured =
                config.doors.events.iter().find(|configured| configured.door() == stream);
            let Some(door) = configured else {
                return config_error(
                    name,
                    "cannot be forwarded: list skyra, pixel-control \
                     or a stream of this config, events/NAME",
                );
            };
            if !door.webhook_secrets.is_empty() {
                return config_error(
                    name,
                    "accepts signed webhooks, whose signatures expire during an \
                     outage; send them to the gate directly",
                );
            }
            if door.accept == Accept::Any {
                return config_error(name, "accepts any body; only JSON streams can be forwarded");
            }
            let contract = door.contract(base, json_depth_max).map_err(Failure::usage)?;
            let (path, header) = (door.path(), &door.api_key_header);
            mount(name, &path, header, Arc::new(contract), Dialect::Events)
        }
    }
}

fn config_error(name: &str, reason: &str) -> Result<EdgeDoor, Failure> {
    Err(Failure::usage(format!("edge.doors: {name:?} {reason}")))
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
        effect_target: EffectTarget::default(),
    };
    Ok(EdgeDoor { mount, dialect })
}
