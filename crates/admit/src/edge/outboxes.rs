//! Outboxes of an agent: one file per door and producer, each with its own sender.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use admit_core::{Door, Principal};
use admit_edge::{
    Dialect, Endpoint, GrpcWire, HttpWire, OpenError, Options, Outbox, Sender, SenderIdentity,
    WebSocketWire, Wire,
};
use futures_util::future::select_all;
use tokio::sync::Notify;

use super::doors::EdgeDoor;
use crate::config::{EdgeConfig, EdgeTransport};
use crate::output::Failure;

/// File name of every outbox; its folder identifies door and producer.
pub(crate) const FILE: &str = "listener_outbox.db";

/// The outboxes of an agent.
pub(super) struct Outboxes {
    config: EdgeConfig,
    gate: Endpoint,
    key: Option<String>,
    doors: Vec<EdgeDoor>,
    open: Mutex<HashMap<(Door, Principal), OpenOutbox>>,
    /// Outboxes that could not be opened, with the reason. Each closes only its own door and
    /// producer.
    closed: Mutex<BTreeMap<(Door, Principal), String>>,
    /// Notified when another outbox is opened.
    opened: Notify,
}

struct OpenOutbox {
    outbox: Arc<Outbox>,
    sender: Option<Sender>,
}

impl Outboxes {
    /// Opens the existing outboxes, so that waiting rows are sent even if their producer does not
    /// reconnect. An outbox that cannot be opened closes only its own door and producer, and is
    /// retried with each of their events.
    pub(super) fn open(
        config: &EdgeConfig,
        base: &Path,
        doors: Vec<EdgeDoor>,
    ) -> Result<Self, Failure> {
        let outboxes = Self {
            gate: config.endpoint(base).map_err(Failure::usage)?,
            key: config.key(base).map_err(Failure::usage)?,
            config: config.clone(),
            doors,
            open: Mutex::default(),
            closed: Mutex::default(),
            opened: Notify::new(),
        };
        for door in &outboxes.doors {
            let folder = outboxes.config.data.join(door.mount.door.as_str());
            for producer in producers_in(&folder) {
                match outboxes.get_or_open(&door.mount.door, &producer) {
                    Ok(_) => {}
                    Err(error @ OpenError::InUse { .. }) => return Err(Failure::runtime(error)),
                    Err(error) => tracing::error!(
                        door = %door.mount.door, %producer, %error,
                        "failed to open an outbox; only its producer is refused"
                    ),
                }
            }
        }
        Ok(outboxes)
    }

    /// The doors with their paths.
    pub(super) fn doors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.doors.iter().map(|door| (door.mount.door.as_str(), door.mount.path.as_str()))
    }

    /// The door with this name.
    pub(super) fn door(&self, name: &Door) -> Option<&EdgeDoor> {
        self.doors.iter().find(|door| door.mount.door == *name)
    }

    /// Gets the outbox of a door and producer, opening it on first use.
    pub(super) fn get_or_open(
        &self,
        door: &Door,
        producer: &Principal,
    ) -> Result<Arc<Outbox>, OpenError> {
        let opened = self.open_one(door, producer);
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        match &opened {
            Ok(_) if closed.is_empty() => {}
            Ok(_) => drop(closed.remove(&(door.clone(), producer.clone()))),
            Err(error) => {
                closed.insert((door.clone(), producer.clone()), error.to_string());
            }
        }
        opened
    }

    /// Doors and producers whose outboxes could not be opened.
    pub(super) fn closed(&self) -> Vec<(Door, Principal)> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.keys().cloned().collect()
    }

    fn open_one(&self, door: &Door, producer: &Principal) -> Result<Arc<Outbox>, OpenError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open_outbox) = open.get(&(door.clone(), producer.clone())) {
            return Ok(Arc::clone(&open_outbox.outbox));
        }
        let path = file_of(&self.config.data, door, producer);
        let options = Options {
            bytes_max: self.config.outbox_bytes_max,
            backoff: self.config.backoff(),
            ..Options::default()
        };
        let outbox = Arc::new(Outbox::open(&path, options)?);
        let wire = self.wire(door, producer);
        let sender =
            wire.map(|wire| Sender::start(Arc::clone(&outbox), wire, self.config.sender()));
        let sender = sender.transpose().map_err(OpenError::System)?;
        tracing::info!(door = %door, producer = %producer, path = %path.display(), "outbox opened");
        let open_outbox = OpenOutbox { outbox: Arc::clone(&outbox), sender };
        open.insert((door.clone(), producer.clone()), open_outbox);
        self.opened.notify_one();
        Ok(outbox)
    }

    /// The transport of a door's events.
    fn wire(&self, door: &Door, producer: &Principal) -> Option<Arc<dyn Wire>> {
        let EdgeDoor { mount, dialect } = self.door(door)?;
        let speaks_for = Some(producer.as_str().to_owned());
        let identity = SenderIdentity { key: self.key.clone(), speaks_for };
        let (gate, path) = (self.gate.clone(), mount.path.as_str());
        Some(match (*dialect, self.config.transport) {
            (Dialect::Skyra, EdgeTransport::WebSocket) => {
                Arc::new(WebSocketWire::new(gate, path, identity))
            }
            (Dialect::Skyra, EdgeTransport::Grpc) => Arc::new(GrpcWire::new(gate, identity)),
            (dialect, _) => Arc::new(HttpWire::new(gate, path, identity, dialect)),
        })
    }

    /// Every open outbox with its door and producer.
    pub(super) fn all(&self) -> Vec<(Door, Principal, Arc<Outbox>)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open
            .iter()
            .map(|((door, producer), open_outbox)| {
                (door.clone(), producer.clone(), Arc::clone(&open_outbox.outbox))
            })
            .collect();
        all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        all
    }

    /// Total rows in all outboxes.
    pub(super) fn waiting(&self) -> u64 {
        let depth = |outbox: &Outbox| outbox.counters().depth.load(Ordering::Relaxed);
        self.all().iter().map(|(_, _, outbox)| depth(outbox)).sum()
    }

    /// Resolves with a reason after a disk failure of an outbox.
    pub(super) async fn must_stop(&self) -> String {
        loop {
            let all = self.all();
            let stops = all.iter().map(|(_, _, outbox)| Box::pin(outbox.must_stop()));
            let stops: Vec<_> = stops.collect();
            let first = async {
                if stops.is_empty() {
                    std::future::pending().await
                } else {
                    select_all(stops).await.0
                }
            };
            tokio::select! {
                reason = first => return reason,
                () = self.opened.notified() => {}
            }
        }
    }

    /// Stops all senders, then closes the files.
    pub(super) fn stop(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let senders: Vec<Sender> =
            open.values_mut().filter_map(|open_outbox| open_outbox.sender.take()).collect();
        senders.iter().for_each(Sender::begin_stop);
        drop(senders);
        open.values().for_each(|open_outbox| open_outbox.outbox.close());
    }
}

/// Path of the outbox of a door and producer.
pub(crate) fn file_of(data: &Path, door: &Door, producer: &Principal) -> PathBuf {
    // A producer's name may start with a dot, or be only dots; a folder's must not.
    let name = match producer.as_str().strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => producer.as_str().to_owned(),
    };
    data.join(door.as_str()).join(name).join(FILE)
}

/// Producers with an outbox in the folder of a door.
pub(super) fn producers_in(folder: &Path) -> Vec<Principal> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join(FILE).is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| name.strip_prefix("%2E").map(|rest| format!(".{rest}")).unwrap_or(name))
        .collect();
    names.sort();
    names.iter().map(|name| Principal::new(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producer_names_cannot_escape_the_folder() {
        let data = Path::new("edge");
        let file = |name| file_of(data, &Door::new("events/default"), &Principal::new(name));
        assert_eq!(file("arena-1"), data.join("events/default/arena-1").join(FILE));
        for name in ["..", ".", ".hidden"] {
            let path = file(name);
            assert!(path.components().all(|part| part.as_os_str() != ".."), "{path:?}");
            assert_eq!(path.components().count(), 5, "{path:?}");
        }
        assert_ne!(file("."), file(".."));
    }

    #[test]
    fn outboxes_are_found_by_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let door = Door::new("skyra");
        for name in ["pi-1", "..", "a@b"] {
            let path = file_of(folder.path(), &door, &Principal::new(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let found = producers_in(&folder.path().join("skyra"));
        assert_eq!(found, ["..", "a@b", "pi-1"].map(Principal::new));
        assert!(producers_in(&folder.path().join("none")).is_empty());
    }
}
