//! Disk budget of an outbox: its files as they are on disk, log included.
//!
//! A row is written to the log first and into the file later, so each new row needs room for both. A
//! part of the budget is reserved for the log; rows never use it, so an outbox at its budget can still
//! record what becomes of its rows.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Largest part of a budget that is reserved for the log and its index.
const RESERVE_BYTES_MAX: u64 = 8 << 20;

/// Smallest part, where the budget is at least twice that.
const RESERVE_BYTES_MIN: u64 = 128 << 10;

/// Pages that a commit writes to the log beside those of its rows.
const COMMIT_PAGES: u64 = 8;

/// A row beside its payload: the other columns, the index entries, what a page leaves unused.
const ROW_OVERHEAD: u64 = 256;

/// From this size on a row is counted in whole pages.
const SMALL_ROW_BYTES: u64 = 1_000;

/// Size of a page, for rows that are counted in pages.
const PAGE_BYTES: u64 = 4_096;

/// Bytes of an outbox on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUse {
    pub(crate) file: u64,
    pub(crate) log: u64,
    pub(crate) log_index: u64,
}

impl DiskUse {
    /// Measures the files of the outbox `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            length(&name)
        };
        Self { file: length(path.as_os_str()), log: beside("-wal"), log_index: beside("-shm") }
    }

    pub(crate) fn total(self) -> u64 {
        self.file + self.log + self.log_index
    }
}

fn length(path: &OsStr) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Part of the budget that is reserved for the log and its index.
pub(crate) fn reserve(bytes_max: u64) -> u64 {
    let reserve = (bytes_max / 4).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
    reserve.min(bytes_max / 2)
}

/// Size that the log is cut to when it begins anew.
pub(crate) fn log_max(bytes_max: u64) -> u64 {
    reserve(bytes_max) / 4 * 3
}

/// Whether the log has to be brought into the file and cut off before more is written: it has used up
/// its part, or together with the file it comes near the budget.
pub(crate) fn is_log_due(bytes_max: u64, on_disk: DiskUse) -> bool {
    let is_near = on_disk.total() > bytes_max - reserve(bytes_max) / 2;
    on_disk.log > log_max(bytes_max) || (on_disk.log > 0 && is_near)
}

/// Pages of the file, as the open connection counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) count: u64,
    pub(crate) free: u64,
    pub(crate) bytes: u64,
}

/// Room for rows in one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes that rows may still use of the file.
    rows: u64,
    /// Bytes of free pages in the file, which are used before it grows.
    free: u64,
    /// Bytes that file and log may still grow by.
    disk: u64,
}

impl Room {
    pub(crate) fn of(bytes_max: u64, pages: Pages, on_disk: DiskUse) -> Self {
        let used = pages.count.saturating_sub(pages.free) * pages.bytes;
        // What is in the log only will be in the file too.
        let file = on_disk.file.max(pages.count * pages.bytes);
        let taken = file + on_disk.log + on_disk.log_index + COMMIT_PAGES * pages.bytes;
        Self {
            rows: bytes_max.saturating_sub(reserve(bytes_max)).saturating_sub(used),
            free: pages.free * pages.bytes,
            disk: bytes_max.saturating_sub(taken),
        }
    }

    /// Takes the room of a row of `weight` bytes; `false` where there is none.
    pub(crate) fn take(&mut self, weight: u64) -> bool {
        let growth = weight.saturating_sub(self.free);
        let (Some(rows), Some(disk)) =
            (self.rows.checked_sub(weight), self.disk.checked_sub(growth + weight))
        else {
            return false;
        };
        *self = Self { rows, free: self.free.saturating_sub(weight), disk };
        true
    }
}

/// Bytes that a row takes of the file.
pub(crate) fn weight(id_bytes: usize, payload_bytes: usize) -> u64 {
    let bytes = (id_bytes * 2 + payload_bytes) as u64 + ROW_OVERHEAD;
    if bytes < SMALL_ROW_BYTES { bytes } else { bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(file: u64, free: u64, log: u64) -> Room {
        let pages = Pages { count: file / 4_096, free: free / 4_096, bytes: 4_096 };
        Room::of(4 * MIB, pages, DiskUse { file, log, log_index: 32_768 })
    }

    #[test]
    fn a_row_needs_room_in_the_file_and_in_the_log() {
        assert!(room(MIB, 0, 0).take(500_000));
        assert!(!room(MIB, 0, 2 * MIB + 500_000).take(500_000), "the log is on the disk too");
        assert!(!room(3 * MIB, 0, 0).take(500), "the reserve is not for rows");
        assert!(room(3 * MIB, MIB, 0).take(500_000), "free pages are used again");
    }

    #[test]
    fn a_log_is_cut_when_it_has_used_its_part_or_the_budget_is_near() {
        let due = |file, log| is_log_due(4 * MIB, DiskUse { file, log, log_index: 32_768 });
        assert!(!due(MIB, 500_000));
        assert!(due(MIB, 800_000), "three quarters of the reserve");
        assert!(due(3 * MIB + 400_000, 100_000), "the file leaves little room");
        assert!(!due(4 * MIB, 0), "there is nothing to cut");
    }

    #[test]
    fn room_is_used_up_row_by_row() {
        let mut room = room(2 * MIB, 0, 0);
        let mut rows = 0;
        while room.take(100_000) {
            rows += 1;
        }
        assert!((8..=10).contains(&rows), "{rows} rows of 100 kB in the 1 MiB that is left");
    }
}
