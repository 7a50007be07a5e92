//! The least that durability costs: a file that is written and synced before each answer, and nothing else.
//!
//! It commits in groups as the ledger does: whatever waits is written with one call and synced once. There
//! are no keys, no receipts and no database. What its door takes longer than the ceiling is the disk's and
//! the machine's; what the gate takes longer than it is the ledger's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;

/// The file is written round and round, so that its length is no part of what is synced.
const ROUND_BYTES: u64 = 32 << 20;

/// As much as is written at a time when it is made.
static STEP: [u8; 64 << 10] = [0; 64 << 10];

/// More than may be in flight at a door.
const WAITING_MAX: usize = 4_096;

/// What waits, and who for.
struct Job {
    bodies: Vec<Bytes>,
    done: oneshot::Sender<io::Result<()>>,
}

/// A file that a thread of its own writes to until this is dropped.
pub(super) struct Append {
    jobs: SyncSender<Job>,
}

impl Append {
    /// Makes the file, and all of it is on disk.
    pub(super) fn to(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        for at in (0..ROUND_BYTES).step_by(STEP.len()) {
            file.write_all_at(&STEP, at)?;
        }
        file.sync_all()?;
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let run = move || write_all(&file, &waiting);
        thread::Builder::new().name("append".to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Returns once the bodies are synced.
    pub(super) async fn keep(&self, bodies: Vec<Bytes>) -> io::Result<()> {
        let (done, kept) = oneshot::channel();
        self.jobs.try_send(Job { bodies, done }).map_err(io::Error::other)?;
        kept.await.map_err(io::Error::other)?
    }
}

fn write_all(file: &File, waiting: &Receiver<Job>) {
    let (mut at, mut bytes) = (0, Vec::new());
    while let Ok(first) = waiting.recv() {
        let group: Vec<Job> = std::iter::once(first).chain(waiting.try_iter()).collect();
        bytes.clear();
        for body in group.iter().flat_map(|job| &job.bodies) {
            bytes.extend_from_slice(body);
        }
        if at + bytes.len() as u64 > ROUND_BYTES {
            at = 0;
        }
        let written = file.write_all_at(&bytes, at).and_then(|()| file.sync_data());
        at += bytes.len() as u64;
        for job in group {
            let result = written.as_ref().map_err(|error| error.kind().into()).copied();
            // Whoever asked may have gone.
            job.done.send(result).unwrap_or_default();
        }
    }
}
