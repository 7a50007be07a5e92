//! Store identity check: bus and artifact store of a config must be the ones attached to its ledger.
//!
//! A store in a folder has its id in a small file; a bucket or a network bus is identified by its name.
//! The ledger records the first store of each kind that a gate uses with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use admit_ledger::port::{Attachments, BusHolder, Store, StoreId};

use crate::config::{ArtifactsLocation, Config, Scheme};
use crate::output::Failure;

/// Id file in the folder of a bus. Topics are folders, so none can have this name.
pub(crate) const BUS_FILE: &str = "bus.id";

/// Id file in the artifacts folder. Names of artifacts never begin with a dot.
pub(crate) const ARTIFACTS_FILE: &str = ".artifacts.id";

/// Poll interval while waiting for a bus that another gate holds.
const HOLD_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A store named by the config.
#[derive(Debug)]
pub(crate) struct NamedStore {
    store: Store,
    /// Name in messages.
    shown: String,
    identity: StoreIdentity,
}

/// StoreIdentity of a store.
#[derive(Debug)]
enum StoreIdentity {
    /// The id is in a file in its folder.
    IdFile(PathBuf),
    /// The id is derived from its name.
    Name(StoreId),
}

impl NamedStore {
    /// The bus of a config.
    pub(crate) fn bus(config: &Config) -> Result<Self, Failure> {
        let store = Store::Bus;
        if config.bus.scheme().map_err(Failure::usage)? == Scheme::File {
            let root = config.bus_root().map_err(Failure::usage)?;
            return Ok(Self::in_folder(store, &root, BUS_FILE));
        }
        let name = config.bus.network_name();
        Ok(Self { store, identity: StoreIdentity::Name(StoreId::of_name(&name)), shown: name })
    }

    /// The artifacts of a config.
    pub(crate) fn artifacts(config: &Config) -> Result<Self, Failure> {
        let store = Store::Artifacts;
        match config.artifacts_location().map_err(Failure::usage)? {
            ArtifactsLocation::Folder(root) => Ok(Self::in_folder(store, &root, ARTIFACTS_FILE)),
            #[cfg(feature = "s3")]
            ArtifactsLocation::Bucket(_) => {
                let shown = config.artifacts.url.trim_end_matches('/').to_owned();
                Ok(Self { store, identity: StoreIdentity::Name(StoreId::of_name(&shown)), shown })
            }
        }
    }

    fn in_folder(store: Store, root: &Path, file: &str) -> Self {
        let shown = root.display().to_string();
        Self { store, shown, identity: StoreIdentity::IdFile(root.join(file)) }
    }

    /// Returns the id, or `None` for a folder without an id file.
    fn id(&self) -> Result<Option<StoreId>, Failure> {
        match &self.identity {
            StoreIdentity::Name(id) => Ok(Some(*id)),
            StoreIdentity::IdFile(file) => read(file).map_err(|error| unusable(file, &error)),
        }
    }

    /// Returns the id; a folder without an id gets a new one.
    pub(crate) fn id_or_new(&self) -> Result<StoreId, Failure> {
        match (self.id()?, &self.identity) {
            (Some(id), _) => Ok(id),
            (None, StoreIdentity::Name(id)) => Ok(*id),
            (None, StoreIdentity::IdFile(file)) => {
                create_id(file).map_err(|error| unusable(file, &error))
            }
        }
    }

    /// Name in messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Kind of the store.
    pub(crate) const fn store(&self) -> Store {
        self.store
    }

    /// Fails if the ledger is attached to another store; returns whether it is attached to one at all.
    /// Must run before the store is opened, because opening may write to it.
    pub(crate) async fn check(
        &self,
        ledger: &(impl Attachments + ?Sized),
    ) -> Result<bool, Failure> {
        let unreadable = |fault| Failure::runtime(format!("cannot read the ledger: {fault}"));
        match ledger.attached(self.store).await.map_err(unreadable)? {
            // A folder without an id may belong to another ledger, so it does not get an id here.
            Some(known) => self.compare(known, self.id()?).map(|()| true),
            None => Ok(false),
        }
    }

    /// Attaches the store to the ledger, if none is attached. Must run after the store was opened, so
    /// that an unusable store is not recorded.
    pub(crate) async fn attach(&self, ledger: &(impl Attachments + ?Sized)) -> Result<(), Failure> {
        let id = self.id_or_new()?;
        let unwritable = |fault| Failure::runtime(format!("cannot write to the ledger: {fault}"));
        let known = ledger.attach(self.store, id).await.map_err(unwritable)?;
        self.compare(known, Some(id))
    }

    /// Acquires the exclusive hold on a file bus, which must be attached. The hold of a dead gate expires
    /// with its lease, at the latest after `lease`.
    pub(crate) async fn hold(
        &self,
        ledger: &(impl Attachments + ?Sized),
        lease: Duration,
    ) -> Result<(), Failure> {
        if self.store != Store::Bus || matches!(self.identity, StoreIdentity::Name(_)) {
            return Ok(());
        }
        let id = self.id_or_new()?;
        let unwritable = |fault| Failure::runtime(format!("cannot write to the ledger: {fault}"));
        let (began, mut seen) = (Instant::now(), None);
        while let Some(holder) = ledger.hold_bus(id).await.map_err(unwritable)? {
            let BusHolder { gate, lease_until } = holder;
            if seen.is_none() {
                let bus = &self.shown;
                tracing::info!(%bus, gate, %lease_until, "bus is held by another gate; waiting for its lease to expire");
            }
            // Only a live gate renews its lease.
            let is_live = *seen.get_or_insert(lease_until) != lease_until;
            if is_live || began.elapsed() > lease + HOLD_POLL_INTERVAL {
                return Err(self.held_by(&gate));
            }
            tokio::time::sleep(HOLD_POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn held_by(&self, gate: &str) -> Failure {
        Failure::runtime(format!(
            "the bus {} is held by another gate of this ledger that is alive: {gate}\n  no door was \
             opened, nothing was changed. The two bus folders have the same id, so one is a copy of the \
             other; with both in use, one eb_ref to two events would be possible. Use one bus for \
             all gates of a ledger (NATS, Kafka or Kinesis in bus.url), disable the doors of this \
             gate that publish, or stop the other gate",
            self.shown
        ))
    }

    fn compare(&self, known: StoreId, found: Option<StoreId>) -> Result<(), Failure> {
        if found == Some(known) {
            return Ok(());
        }
        let (store, shown) = (self.store, &self.shown);
        let found = found.map_or_else(|| "carries no id".to_owned(), |id| format!("is {id}"));
        let (what, key, flag) = match store {
            Store::Bus => ("messages", "bus.url", "--bus"),
            Store::Artifacts => ("documents", "artifacts.url", "--artifacts"),
        };
        Err(Failure::runtime(format!(
            "the {store} {shown} is not the one of this ledger, which is attached to {known}; this one \
             {found}\n  no door was opened, nothing was changed. The {what} that the ledger refers to \
             are in its own {store}: set {key} to that one, move its folder back, or use one {store} \
             for all gates of a ledger. A gate that only serves other doors may disable those that \
             publish. To change the {store} on purpose: admit ledger attach {flag}"
        )))
    }
}

fn unusable(file: &Path, error: &io::Error) -> Failure {
    Failure::runtime(format!("cannot use {}: {error}", file.display()))
}

fn read(file: &Path) -> io::Result<Option<StoreId>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let invalid = || {
        let what =
            "expected an id of 16 hexadecimal digits; restore the file from a backup, or remove it";
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    StoreId::parse(text.trim()).map(Some).ok_or_else(invalid)
}

/// Creates a random id for a folder, durably. If several gates do so at once, one id wins.
fn create_id(file: &Path) -> io::Result<StoreId> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let bits = getrandom::u64().map_err(io::Error::other)?;
    let text = format!("{}\n", StoreId::from_bits(bits));
    let temporary = file.with_extension(format!("id.{}", std::process::id()));
    let mut new = File::create(&temporary)?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    match fs::hard_link(&temporary, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // No hard links on this file system: `create_new` decides which gate was first.
        Err(_) => write_new(file, &text)?,
        Ok(()) => {}
    }
    fs::remove_file(&temporary)?;
    File::open(folder)?.sync_all()?;
    read(file)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn write_new(file: &Path, text: &str) -> io::Result<()> {
    let mut new = match OpenOptions::new().write(true).create_new(true).open(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        new => new?,
    };
    new.write_all(text.as_bytes())?;
    new.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_first_id() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bus").join(BUS_FILE);
        assert_eq!(read(&file).unwrap(), None);
        let id = create_id(&file).unwrap();
        assert_eq!(create_id(&file).unwrap(), id);
        assert_eq!(read(&file).unwrap(), Some(id));
        assert_eq!(fs::read_dir(folder.path().join("bus")).unwrap().count(), 1);
        fs::write(&file, "nonsense\n").unwrap();
        read(&file).unwrap_err();
    }
}
