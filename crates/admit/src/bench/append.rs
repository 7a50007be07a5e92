//! Baseline of durability: a file that is appended to and synced before each reply.
//!
//! Uses group commit as the ledger does: all queued bodies are written with one call and synced once.
//! There are no keys, no receipts and no database. The difference to `ceiling` is the cost of disk and
//! machine; the difference between the gate and this baseline is the cost of the ledger.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;

/// Size of the file. Writes wrap around, so that a sync never has to update the file length.
const FILE_BYTES: u64 = 32 << 20;

/// Chunk that preallocates the file.
static CHUNK: [u8; 64 << 10] = [0; 64 << 10];

/// Capacity of the queue, above the requests that a door may have in flight.
const QUEUED_MAX: usize = 4_096;

/// Queued write.
struct AppendRequest {
    bodies: Vec<Bytes>,
    done: oneshot::Sender<io::Result<()>>,
}

/// Appends to a file on a dedicated thread, which ends when this is dropped.
pub(super) struct AppendFile {
    queue: SyncSender<AppendRequest>,
}

impl AppendFile {
    /// Creates the file, preallocated and synced.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        for offset in (0..FILE_BYTES).step_by(CHUNK.len()) {
            file.write_all_at(&CHUNK, offset)?;
        }
        file.sync_all()?;
        let (queue, requests) = sync_channel(QUEUED_MAX);
        let run = move || write_all(&file, &requests);
        thread::Builder::new().name("append".to_owned()).spawn(run)?;
        Ok(Self { queue })
    }

    /// Returns once the bodies are synced.
    pub(super) async fn append(&self, bodies: Vec<Bytes>) -> io::Result<()> {
        let (done, result) = oneshot::channel();
        self.queue.try_send(AppendRequest { bodies, done }).map_err(io::Error::other)?;
        result.await.map_err(io::Error::other)?
    }
}

fn write_all(file: &File, requests: &Receiver<AppendRequest>) {
    let (mut offset, mut bytes) = (0, Vec::new());
    while let Ok(first) = requests.recv() {
        let batch: Vec<AppendRequest> = std::iter::once(first).chain(requests.try_iter()).collect();
        bytes.clear();
        for body in batch.iter().flat_map(|request| &request.bodies) {
            bytes.extend_from_slice(body);
        }
        if offset + bytes.len() as u64 > FILE_BYTES {
            offset = 0;
        }
        let written = file.write_all_at(&bytes, offset).and_then(|()| file.sync_data());
        offset += bytes.len() as u64;
        for request in batch {
            let result = written.as_ref().map_err(|error| error.kind().into()).copied();
            // The receiver may be dropped.
            request.done.send(result).unwrap_or_default();
        }
    }
}
