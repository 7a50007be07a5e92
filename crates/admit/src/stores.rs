//! Whether the bus and the artifact store of a config are the ones that belong to its ledger.
//!
//! A store in a folder carries its id in a small file; a bucket or a bus on the network is identified by
//! its name. The ledger remembers the first of each kind that it is served with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use admit_ledger::port::{Attachments, BusHolder, Store, StoreId};

use crate::config::{ArtifactsPlace, Config, Scheme};
use crate::output::Failure;

/// The file in the folder of a bus. Topics are folders, so none can have its name.
pub(crate) const BUS_FILE: &str = "bus.id";

/// The file in the folder of artifacts. No artifact's name begins with a dot.
pub(crate) const ARTIFACTS_FILE: &str = ".artifacts.id";

/// How often a gate that waits for a bus asks whether it is free.
const HOLD_LOOK_EVERY: Duration = Duration::from_millis(250);

/// A store as the config names it.
#[derive(Debug)]
pub(crate) struct NamedStore {
    store: Store,
    /// How it is called in messages.
    shown: String,
    identity: Identity,
}

/// What identifies a store.
#[derive(Debug)]
enum Identity {
    /// A file in its folder.
    Carried(PathBuf),
    /// Its name.
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
        Ok(Self { store, identity: Identity::Name(StoreId::of_name(&name)), shown: name })
    }

    /// The artifacts of a config.
    pub(crate) fn artifacts(config: &Config) -> Result<Self, Failure> {
        let store = Store::Artifacts;
        match config.artifacts_place().map_err(Failure::usage)? {
            ArtifactsPlace::Folder(root) => Ok(Self::in_folder(store, &root, ARTIFACTS_FILE)),
            #[cfg(feature = "s3")]
            ArtifactsPlace::Bucket(_) => {
                let shown = config.artifacts.url.trim_end_matches('/').to_owned();
                Ok(Self { store, identity: Identity::Name(StoreId::of_name(&shown)), shown })
            }
        }
    }

    fn in_folder(store: Store, root: &Path, file: &str) -> Self {
        let shown = root.display().to_string();
        Self { store, shown, identity: Identity::Carried(root.join(file)) }
    }

    /// Its id, where it has one already.
    fn id(&self) -> Result<Option<StoreId>, Failure> {
        match &self.identity {
            Identity::Name(id) => Ok(Some(*id)),
            Identity::Carried(file) => read(file).map_err(|error| unusable(file, &error)),
        }
    }

    /// Its id, which it is given now where it has none.
    pub(crate) fn id_or_new(&self) -> Result<StoreId, Failure> {
        match (self.id()?, &self.identity) {
            (Some(id), _) => Ok(id),
            (None, Identity::Name(id)) => Ok(*id),
            (None, Identity::Carried(file)) => draw(file).map_err(|error| unusable(file, &error)),
        }
    }

    /// How it is called in messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Which kind of store it is.
    pub(crate) const fn store(&self) -> Store {
        self.store
    }

    /// Refuses a store that is not the one of the ledger, and returns whether the ledger has one. Comes
    /// before the store is opened, which may make things in it.
    pub(crate) async fn check(
        &self,
        ledger: &(impl Attachments + ?Sized),
    ) -> Result<bool, Failure> {
        let unreadable = |fault| Failure::runtime(format!("cannot read the ledger: {fault}"));
        match ledger.attached(self.store).await.map_err(unreadable)? {
            // Of a folder without an id it is not known whose it is, so it is given none.
            Some(known) => self.compare(known, self.id()?).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes a store the one of the ledger, unless it has one. Comes after the store was opened, so that
    /// one that cannot be used is not recorded.
    pub(crate) async fn attach(&self, ledger: &(impl Attachments + ?Sized)) -> Result<(), Failure> {
        let id = self.id_or_new()?;
        let unwritable = |fault| Failure::runtime(format!("cannot write to the ledger: {fault}"));
        let known = ledger.attach(self.store, id).await.map_err(unwritable)?;
        self.compare(known, Some(id))
    }

    /// Takes a bus in a folder for this gate alone, once it is the one of the ledger. A gate that is gone
    /// frees it when its lease ends, at the latest after `lease`.
    pub(crate) async fn hold(
        &self,
        ledger: &(impl Attachments + ?Sized),
        lease: Duration,
    ) -> Result<(), Failure> {
        if self.store != Store::Bus || matches!(self.identity, Identity::Name(_)) {
            return Ok(());
        }
        let id = self.id_or_new()?;
        let unwritable = |fault| Failure::runtime(format!("cannot write to the ledger: {fault}"));
        let (began, mut seen) = (Instant::now(), None);
        while let Some(holder) = ledger.hold_bus(id).await.map_err(unwritable)? {
            let BusHolder { gate, lease_until } = holder;
            if seen.is_none() {
                let bus = &self.shown;
                tracing::info!(%bus, gate, %lease_until, "another gate has this bus, waiting for its lease to end");
            }
            // Only a live gate moves the end of its lease.
            let is_live = *seen.get_or_insert(lease_until) != lease_until;
            if is_live || began.elapsed() > lease + HOLD_LOOK_EVERY {
                return Err(self.held(&gate));
            }
            tokio::time::sleep(HOLD_LOOK_EVERY).await;
        }
        Ok(())
    }

    fn held(&self, gate: &str) -> Failure {
        Failure::runtime(format!(
            "the bus {} is held by another gate of this ledger that is alive: {gate}\n  no door was \
             opened, nothing was changed. Its folder has the id of this one, so one is a copy of the \
             other, and two of them would give one eb_ref to two events. Have all gates of a ledger \
             share one bus (NATS, Kafka or Kinesis in bus.url), close the doors of this gate that \
             publish, or stop the other gate",
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
            "the {store} {shown} is not the one of this ledger, which belongs to {known}; this one \
             {found}\n  no door was opened, nothing was changed. The {what} that the ledger refers to \
             lie in its own {store}: name that one in {key}, move its folder back, or have all gates \
             of a ledger share one. A gate that only serves other doors may close those that publish. \
             To change the {store} on purpose: admit ledger attach {flag}"
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
            "it holds no id of 16 hexadecimal digits; restore it from a backup, or remove it";
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    StoreId::parse(text.trim()).map(Some).ok_or_else(invalid)
}

/// Gives a folder an id, durably. Of several gates that do so at once, one does.
fn draw(file: &Path) -> io::Result<StoreId> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let bits = getrandom::u64().map_err(io::Error::other)?;
    let text = format!("{}\n", StoreId::from_bits(bits));
    let aside = file.with_extension(format!("id.{}", std::process::id()));
    let mut new = File::create(&aside)?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    match fs::hard_link(&aside, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // A file system without links: the name itself decides who was first.
        Err(_) => write_new(file, &text)?,
        Ok(()) => {}
    }
    fs::remove_file(&aside)?;
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
    fn a_folder_keeps_the_first_id_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bus").join(BUS_FILE);
        assert_eq!(read(&file).unwrap(), None);
        let id = draw(&file).unwrap();
        assert_eq!(draw(&file).unwrap(), id);
        assert_eq!(read(&file).unwrap(), Some(id));
        assert_eq!(fs::read_dir(folder.path().join("bus")).unwrap().count(), 1);
        fs::write(&file, "nonsense\n").unwrap();
        read(&file).unwrap_err();
    }
}
