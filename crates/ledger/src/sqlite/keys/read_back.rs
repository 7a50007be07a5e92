//! Reads the claims that are not merged yet, at a start.
//!
//! Their pages lie scattered among those of admissions and bodies, so after a reboot each costs a
//! read from the disk. Several readers at once keep the disk busy, and both cores where it is not
//! the disk.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use admit_core::{Key, Seq};

use super::noted;
use crate::sqlite::{open, queries};

/// At most so many readers.
const READERS_MAX: u64 = 4;

/// Fewer places than this are not worth one more.
const PLACES_MIN: u64 = 50_000;

/// Claims handed over at a time, or a run more.
const SLICE: usize = 1_024;

type Slice = rusqlite::Result<Vec<(Key, Seq)>>;

/// Hands the claims of the runs that begin after `from` and up to `to` to `each`, in no particular order.
pub(super) fn read_back(
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

/// Reads one range. An error is handed over like a slice; after one, nobody listens any more.
fn read_range(path: &Path, after: Seq, last: Seq, read: &SyncSender<Slice>) {
    let run = || {
        let conn = open::reading(path)?;
        let mut rows = conn.prepare(queries::KEY_LOG_READ)?;
        let mut rows = rows.query((after.0, last.0))?;
        let mut slice = Vec::with_capacity(SLICE);
        while let Some(row) = rows.next()? {
            slice.extend(noted::claims(row)?);
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
