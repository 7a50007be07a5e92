//! Loads the unmerged claims at start.
//!
//! Their pages are scattered among those of admissions and bodies, so after a reboot each costs a read
//! from the disk. Several readers keep the disk busy, or both cores if the disk is not the bottleneck.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use admit_core::{Key, Seq};

use super::key_log;
use crate::sqlite::{open, queries};

/// Maximum readers.
const READERS_MAX: u64 = 4;

/// Seqs that justify another reader.
const PLACES_MIN: u64 = 50_000;

/// Claims sent at a time, or a run more.
const SLICE: usize = 1_024;

type Slice = rusqlite::Result<Vec<(Key, Seq)>>;

/// Passes the claims of the runs that begin after `from` and up to `to` to `each`, in no particular order.
pub(super) fn read_unmerged(
    path: &Path,
    from: Seq,
    to: Seq,
    mut each: impl FnMut(Key, Seq),
) -> rusqlite::Result<()> {
    let places = to.0.saturating_sub(from.0);
    let readers = (places / PLACES_MIN).clamp(1, READERS_MAX);
    let span = places.div_ceil(readers);
    let (read, slices) = sync_channel::<Slice>(8);
    thread::scope(|scope| {
        for reader in 0..readers {
            let read = read.clone();
            let after = Seq(from.0 + reader * span);
            let last = Seq((after.0 + span).min(to.0));
            thread::Builder::new()
                .name("ledger-start".to_owned())
                .spawn_scoped(scope, move || read_range(path, after, last, &read))
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        }
        drop(read);
        for slice in slices {
            for (key, seq) in slice? {
                each(key, seq);
            }
        }
        Ok(())
    })
}

/// Reads one range. An error is sent like a slice; after one, the receiver is gone.
fn read_range(path: &Path, after: Seq, last: Seq, read: &SyncSender<Slice>) {
    let run = || {
        let conn = open::open_reader(path)?;
        let mut rows = conn.prepare(queries::KEY_LOG_READ)?;
        let mut rows = rows.query((after.0, last.0))?;
        let mut slice = Vec::with_capacity(SLICE);
        while let Some(row) = rows.next()? {
            slice.extend(key_log::claims(row)?);
            if slice.len() >= SLICE
                && read.send(Ok(std::mem::replace(&mut slice, Vec::with_capacity(SLICE)))).is_err()
            {
                return Ok(());
            }
        }
        read.send(Ok(slice)).unwrap_or_default();
        Ok(())
    };
    if let Err(error) = run() {
        read.send(Err(error)).unwrap_or_default();
    }
}
