//! Disks to be hurt: small ones, ones that can be locked, and ones whose cache is lost when the
//! power goes.
//!
//! Everything here is undone when it is dropped, also when a test fails: file systems are
//! unmounted, loop devices detached, other programs killed by their ids.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use super::machine::{Need, command, has, is_root, run, skip, text};
use super::{SOON, until};

/// A mounted file system.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Result<Self, String> {
        run("mount", ["-t", "tmpfs", "-o", options, "tmpfs", text(at)])?;
        Ok(Self { at: at.to_owned() })
    }

    fn device(device: &str, at: &Path) -> Result<Self, String> {
        run("mount", ["-t", "ext4", device, text(at)])?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: what a killed gate leaves behind may be busy for a moment.
        if let Err(error) = run("umount", ["-l", text(&self.at)]) {
            eprintln!("{error}");
        }
    }
}

/// A block device over a file.
struct Loop {
    device: String,
}

impl Loop {
    fn over(file: &Path) -> Result<Self, String> {
        let device = run("losetup", ["--find", "--show", text(file)])?;
        Ok(Self { device: device.trim().to_owned() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", ["--detach", &self.device]) {
            eprintln!("{error}");
        }
    }
}

/// Another program that ends with us.
struct Program(Child);

impl Program {
    fn start(program: &str, arguments: &[&str], log: &Path) -> Result<Self, String> {
        let fail = |error| format!("{program} could not start: {error}");
        let log = File::create(log).map_err(fail)?;
        let child = command(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(fail)?;
        Ok(Self(child))
    }

    /// Waits until `path` is there, or says that the program ended instead.
    fn until_it_shows(&mut self, path: &Path) -> Result<(), String> {
        let ended = |status| format!("the program that makes {} ended: {status}", path.display());
        until("a program shows what it makes", SOON, || match self.0.try_wait() {
            _ if path.exists() => Some(Ok(())),
            Ok(None) => None,
            Ok(Some(status)) => Some(Err(ended(status.to_string()))),
            Err(error) => Some(Err(ended(error.to_string()))),
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// A disk in memory, so small that a test can fill it.
pub(crate) struct SmallDisk {
    _mounted: Mounted,
    folder: TempDir,
}

impl SmallDisk {
    /// A disk of so many bytes, or `None` after saying why not.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        if super::sql::is_about_sqlite() {
            return None;
        }
        if !is_root() {
            skip(Need::Mount, "only root can mount a small disk");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        match Mounted::tmpfs(folder.path(), &format!("size={bytes},mode=0700")) {
            Ok(mounted) => Some(Self { _mounted: mounted, folder }),
            Err(why) => {
                skip(Need::Mount, &why);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills what is left; removing the file it returns frees it again.
    pub(crate) fn fill(&self) -> PathBuf {
        let ballast = self.path().join("ballast");
        let mut file = File::create(&ballast).unwrap();
        let piece = [0_u8; 4096];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
        ballast
    }
}

/// A disk of its own, in a file.
pub(crate) struct ImageDisk {
    mounted: Option<Mounted>,
    looped: Option<Loop>,
    folder: TempDir,
}

/// Large enough for an ext4 with a journal and a ledger of a few thousand events.
const IMAGE_BYTES: u64 = 96 * 1024 * 1024;

impl ImageDisk {
    /// An empty ext4, or `None` after saying why not.
    pub(crate) fn new() -> Option<Self> {
        if super::sql::is_about_sqlite() {
            return None;
        }
        if let Some(why) = missing(&["losetup", "mkfs.ext4", "chattr", "fsfreeze"]) {
            skip(Need::Mount, &why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(MOUNT)).unwrap();
        let mut disk = Self { mounted: None, looped: None, folder };
        let made = make_image(&disk.folder.path().join(IMAGE)).and_then(|()| disk.mount());
        match made {
            Ok(()) => Some(disk),
            Err(why) => {
                skip(Need::Mount, &why);
                None
            }
        }
    }

    fn mount(&mut self) -> Result<(), String> {
        let looped = Loop::over(&self.folder.path().join(IMAGE))?;
        let mounted = Mounted::device(&looped.device, &self.path());
        // Kept also when mounting failed, so that it is detached with the rest.
        self.looped = Some(looped);
        self.mounted = Some(mounted?);
        Ok(())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(MOUNT)
    }
}

const IMAGE: &str = "image";
const MOUNT: &str = "mount";
const TRIGGER: &str = "trigger";

fn make_image(image: &Path) -> Result<(), String> {
    let file = File::create(image).map_err(|error| error.to_string())?;
    file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
    run("mkfs.ext4", ["-q", "-F", text(image)]).map(drop)
}

/// Why disks in files cannot be mounted here.
fn missing(programs: &[&str]) -> Option<String> {
    if !is_root() {
        return Some("only root can mount a disk".to_owned());
    }
    let missing = programs.iter().find(|program| !has(program));
    missing.map(|program| format!("there is no {program} on this machine"))
}

/// What a disk does that a good one does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It forgets what it has not been told to sync when the power goes, as every disk may.
    ForgetsUnsynced,
    /// It forgets everything when the power goes: it lies about its syncs.
    ForgetsSynced,
    /// It answers everything with an error once [`FaultyDisk::fail`] is called.
    Fails,
}

/// An ext4 on a disk that can be hurt.
pub(crate) struct FaultyDisk {
    // Dropped from top to bottom: what is mounted goes before what it stands on.
    mounted: Option<Mounted>,
    looped: Option<Loop>,
    fuse: Option<Mounted>,
    nbdfuse: Option<Program>,
    nbdkit: Option<Program>,
    folder: TempDir,
}

impl FaultyDisk {
    /// A disk with such a fault, or `None` after saying why not.
    pub(crate) fn new(fault: Fault) -> Option<Self> {
        if super::sql::is_about_sqlite() {
            return None;
        }
        let why = missing(&["nbdkit", "nbdfuse", "losetup", "mkfs.ext4"]).or_else(|| {
            let fuse = Path::new("/dev/fuse").exists();
            (!fuse).then(|| "there is no /dev/fuse on this machine".to_owned())
        });
        if let Some(why) = why {
            skip(Need::PowerCut, &why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut disk =
            Self { mounted: None, looped: None, fuse: None, nbdfuse: None, nbdkit: None, folder };
        match disk.power_on(fault) {
            Ok(()) => Some(disk),
            Err(why) => {
                skip(Need::PowerCut, &why);
                None
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the file system is.
    pub(crate) fn path(&self) -> PathBuf {
        self.at(MOUNT)
    }

    fn power_on(&mut self, fault: Fault) -> Result<(), String> {
        let (image, socket, fuse) = (self.at(IMAGE), self.at("socket"), self.at("fuse"));
        make_image(&image)?;
        for folder in [&fuse, &self.path()] {
            fs::create_dir(folder).map_err(|error| error.to_string())?;
        }
        let (backing, trigger) = (format!("file={}", text(&image)), self.at(TRIGGER));
        let trigger = format!("error-file={}", text(&trigger));
        let filter: &[&str] = match fault {
            Fault::ForgetsUnsynced => &["--filter=cache", "file", &backing, "cache=writeback"],
            Fault::ForgetsSynced => &["--filter=cache", "file", &backing, "cache=unsafe"],
            Fault::Fails => {
                &["--filter=error", "file", &backing, "error=EIO", "error-rate=100%", &trigger]
            }
        };
        let served = [&["--foreground", "--unix", text(&socket)], filter].concat();
        let nbdkit = Program::start("nbdkit", &served, &self.at("nbdkit.log"))?;
        self.nbdkit.insert(nbdkit).until_it_shows(&socket)?;
        let shown = [text(&fuse), "--unix", text(&socket)];
        let nbdfuse = Program::start("nbdfuse", &shown, &self.at("nbdfuse.log"))?;
        let device = fuse.join("nbd");
        self.nbdfuse.insert(nbdfuse).until_it_shows(&device)?;
        self.fuse = Some(Mounted { at: fuse });
        self.looped = Some(Loop::over(&device)?);
        self.mount_looped()
    }

    fn mount_looped(&mut self) -> Result<(), String> {
        let looped = self.looped.as_ref().ok_or("there is no block device")?;
        self.mounted = Some(Mounted::device(&looped.device, &self.path())?);
        Ok(())
    }

    /// From now on every read and write of the disk is an error.
    pub(crate) fn fail(&self) {
        File::create(self.at(TRIGGER)).unwrap();
    }

    /// Cuts the power: whatever the disk held in its cache is gone. Nothing reaches it any more.
    pub(crate) fn cut(&mut self) {
        self.nbdkit = None;
    }

    /// Cuts the power if it is still there, and mounts the bare disk as the machine would find it.
    pub(crate) fn remount(&mut self) -> Result<(), String> {
        self.cut();
        self.mounted = None;
        self.looped = None;
        self.nbdfuse = None;
        self.fuse = None;
        self.looped = Some(Loop::over(&self.at(IMAGE))?);
        self.mount_looped()
    }
}
