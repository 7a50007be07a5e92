//! Disks for fault injection: small ones, ones that can be frozen or made read-only, and ones that
//! lose their cache in a power cut.
//!
//! Dropping a disk cleans up, also when a test fails: file systems are unmounted, loop devices
//! detached, helper processes killed by id.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use super::machine::{command, has, is_root, run, skip, text};
use super::{TIMEOUT, wait_for};

/// A mounted file system.
struct MountedDisk {
    at: PathBuf,
}

impl MountedDisk {
    fn tmpfs(at: &Path, options: &str) -> Result<Self, String> {
        run("mount", ["-t", "tmpfs", "-o", options, "tmpfs", text(at)])?;
        Ok(Self { at: at.to_owned() })
    }

    fn device(device: &str, at: &Path) -> Result<Self, String> {
        run("mount", ["-t", "ext4", device, text(at)])?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        // Lazy unmount: files of a killed gate may be busy for a moment.
        if let Err(error) = run("umount", ["-l", text(&self.at)]) {
            eprintln!("{error}");
        }
    }
}

/// A loop device over a file.
struct LoopDevice {
    device: String,
}

impl LoopDevice {
    fn over(file: &Path) -> Result<Self, String> {
        let device = run("losetup", ["--find", "--show", text(file)])?;
        Ok(Self { device: device.trim().to_owned() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", ["--detach", &self.device]) {
            eprintln!("{error}");
        }
    }
}

/// A helper process; killed when dropped.
struct HelperProcess(Child);

impl HelperProcess {
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

    /// Waits until `path` exists; an exit of the process before that is an error.
    fn wait_for_path(&mut self, path: &Path) -> Result<(), String> {
        let exited =
            |status| format!("the process that creates {} exited: {status}", path.display());
        wait_for("file of a helper process", TIMEOUT, || match self.0.try_wait() {
            _ if path.exists() => Some(Ok(())),
            Ok(None) => None,
            Ok(Some(status)) => Some(Err(exited(status.to_string()))),
            Err(error) => Some(Err(exited(error.to_string()))),
        })
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// A tmpfs small enough for a test to fill.
pub(crate) struct SmallDisk {
    _mounted: MountedDisk,
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts a disk of `bytes` bytes; `None` (reported as skipped) if that is not possible.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        if super::sql::skip_on_postgres() {
            return None;
        }
        if !is_root() {
            skip("only root can mount a small disk");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        match MountedDisk::tmpfs(folder.path(), &format!("size={bytes},mode=0700")) {
            Ok(mounted) => Some(Self { _mounted: mounted, folder }),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills the free space with a file and returns its path; remove the file to free the space.
    pub(crate) fn fill(&self) -> PathBuf {
        let ballast = self.path().join("ballast");
        let mut file = File::create(&ballast).unwrap();
        let block = [0_u8; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        ballast
    }
}

/// An ext4 file system in an image file.
pub(crate) struct ImageDisk {
    mounted: Option<MountedDisk>,
    loop_device: Option<LoopDevice>,
    folder: TempDir,
}

/// Size of an image: an ext4 with a journal, and a ledger of a few thousand events.
const IMAGE_BYTES: u64 = 96 * 1024 * 1024;

impl ImageDisk {
    /// Mounts an empty ext4; `None` (reported as skipped) if that is not possible.
    pub(crate) fn new() -> Option<Self> {
        if super::sql::skip_on_postgres() {
            return None;
        }
        if let Some(why) = missing(&["losetup", "mkfs.ext4", "chattr", "fsfreeze"]) {
            skip(&why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(MOUNT)).unwrap();
        let mut disk = Self { mounted: None, loop_device: None, folder };
        let made = make_image(&disk.folder.path().join(IMAGE)).and_then(|()| disk.mount());
        match made {
            Ok(()) => Some(disk),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }

    fn mount(&mut self) -> Result<(), String> {
        let loop_device = LoopDevice::over(&self.folder.path().join(IMAGE))?;
        let mounted = MountedDisk::device(&loop_device.device, &self.path());
        // Stored before the result is checked, so that the device is detached if mounting failed.
        self.loop_device = Some(loop_device);
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

/// Returns why images cannot be mounted on this machine, if so.
fn missing(programs: &[&str]) -> Option<String> {
    if !is_root() {
        return Some("only root can mount a disk".to_owned());
    }
    let missing = programs.iter().find(|program| !has(program));
    missing.map(|program| format!("{program} is not installed"))
}

/// Fault of a [`FaultyDisk`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskFault {
    /// A power cut loses unsynced writes, as on every disk.
    LoseUnsynced,
    /// A power cut loses synced writes too: the disk ignores syncs.
    LoseSynced,
    /// Every read and write fails once [`FaultyDisk::fail`] is called.
    FailAll,
}

/// An ext4 on a block device with an injected fault.
pub(crate) struct FaultyDisk {
    // Dropped from top to bottom: each layer before the one below it.
    mounted: Option<MountedDisk>,
    loop_device: Option<LoopDevice>,
    fuse: Option<MountedDisk>,
    nbdfuse: Option<HelperProcess>,
    nbdkit: Option<HelperProcess>,
    folder: TempDir,
}

impl FaultyDisk {
    /// Sets up a disk with this fault; `None` (reported as skipped) if that is not possible.
    pub(crate) fn new(fault: DiskFault) -> Option<Self> {
        if super::sql::skip_on_postgres() {
            return None;
        }
        let why = missing(&["nbdkit", "nbdfuse", "losetup", "mkfs.ext4"]).or_else(|| {
            let fuse = Path::new("/dev/fuse").exists();
            (!fuse).then(|| "/dev/fuse does not exist".to_owned())
        });
        if let Some(why) = why {
            skip(&why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Self {
            mounted: None,
            loop_device: None,
            fuse: None,
            nbdfuse: None,
            nbdkit: None,
            folder,
        };
        match disk.power_on(fault) {
            Ok(()) => Some(disk),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Mount point of the file system.
    pub(crate) fn path(&self) -> PathBuf {
        self.at(MOUNT)
    }

    fn power_on(&mut self, fault: DiskFault) -> Result<(), String> {
        let (image, socket, fuse) = (self.at(IMAGE), self.at("socket"), self.at("fuse"));
        make_image(&image)?;
        for folder in [&fuse, &self.path()] {
            fs::create_dir(folder).map_err(|error| error.to_string())?;
        }
        let (backing, trigger) = (format!("file={}", text(&image)), self.at(TRIGGER));
        let trigger = format!("error-file={}", text(&trigger));
        let filter: &[&str] = match fault {
            DiskFault::LoseUnsynced => &["--filter=cache", "file", &backing, "cache=writeback"],
            DiskFault::LoseSynced => &["--filter=cache", "file", &backing, "cache=unsafe"],
            DiskFault::FailAll => {
                &["--filter=error", "file", &backing, "error=EIO", "error-rate=100%", &trigger]
            }
        };
        let served = [&["--foreground", "--unix", text(&socket)], filter].concat();
        let nbdkit = HelperProcess::start("nbdkit", &served, &self.at("nbdkit.log"))?;
        self.nbdkit.insert(nbdkit).wait_for_path(&socket)?;
        let shown = [text(&fuse), "--unix", text(&socket)];
        let nbdfuse = HelperProcess::start("nbdfuse", &shown, &self.at("nbdfuse.log"))?;
        let device = fuse.join("nbd");
        self.nbdfuse.insert(nbdfuse).wait_for_path(&device)?;
        self.fuse = Some(MountedDisk { at: fuse });
        self.loop_device = Some(LoopDevice::over(&device)?);
        self.mount_loop_device()
    }

    fn mount_loop_device(&mut self) -> Result<(), String> {
        let loop_device = self.loop_device.as_ref().ok_or("there is no block device")?;
        self.mounted = Some(MountedDisk::device(&loop_device.device, &self.path())?);
        Ok(())
    }

    /// Makes every later read and write of the disk fail.
    pub(crate) fn fail(&self) {
        File::create(self.at(TRIGGER)).unwrap();
    }

    /// Cuts the power: the cache of the disk is lost, and later writes do not reach it.
    pub(crate) fn cut(&mut self) {
        self.nbdkit = None;
    }

    /// Cuts the power if not done yet, and mounts the image as after a reboot.
    pub(crate) fn remount(&mut self) -> Result<(), String> {
        self.cut();
        self.mounted = None;
        self.loop_device = None;
        self.nbdfuse = None;
        self.fuse = None;
        self.loop_device = Some(LoopDevice::over(&self.at(IMAGE))?);
        self.mount_loop_device()
    }
}
