//! Disk budget of an outbox: the actual size of its files, WAL included.
//!
//! A row is written to the WAL first and into the file later, so each new row needs space for both.
//! A part of the budget is reserved for the WAL; rows never use it, so an outbox at its budget can
//! still settle its rows.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Maximum reserve for the WAL and its index.
const RESERVE_BYTES_MAX: u64 = 8 << 20;

/// Minimum reserve, if the budget is at least twice that.
const RESERVE_BYTES_MIN: u64 = 128 << 10;

/// WAL pages per commit in addition to those of its rows.
const COMMIT_PAGES: u64 = 8;

/// Bytes of a row in addition to its payload: other columns, index entries, unused page space.
const ROW_OVERHEAD: u64 = 256;

/// Rows of at least this size are counted in whole pages.
const SMALL_ROW_BYTES: u64 = 1_000;

/// Page size for rows counted in pages.
const PAGE_BYTES: u64 = 4_096;

/// Bytes of an outbox on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUse {
    pub(crate) file: u64,
    pub(crate) wal: u64,
    pub(crate) shm: u64,
}

impl DiskUse {
    /// Measures the files of the outbox `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let with_suffix = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            length(&name)
        };
        Self { file: length(path.as_os_str()), wal: with_suffix("-wal"), shm: with_suffix("-shm") }
    }

    pub(crate) fn total(self) -> u64 {
        self.file + self.wal + self.shm
    }
}

fn length(path: &OsStr) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Part of the budget reserved for the WAL and its index.
pub(crate) fn reserve(bytes_max: u64) -> u64 {
    let reserve = (bytes_max / 4).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
    reserve.min(bytes_max / 2)
}

/// Maximum size of the WAL after a reset.
pub(crate) fn wal_bytes_max(bytes_max: u64) -> u64 {
    reserve(bytes_max) / 4 * 3
}

/// Whether a truncating WAL checkpoint is due before more is written: the WAL has used its part, or
/// together with the file approaches the budget.
pub(crate) fn is_checkpoint_due(bytes_max: u64, on_disk: DiskUse) -> bool {
    let is_near = on_disk.total() > bytes_max - reserve(bytes_max) / 2;
    on_disk.wal > wal_bytes_max(bytes_max) || (on_disk.wal > 0 && is_near)
}

/// Page counts of the file, from the open connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageCounts {
    pub(crate) count: u64,
    pub(crate) free: u64,
    pub(crate) bytes: u64,
}

/// Space for rows in one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvailableSpace {
    /// Bytes left for rows in the file.
    rows: u64,
    /// Bytes of free pages in the file, used before it grows.
    free: u64,
    /// Bytes by which file and WAL may still grow.
    disk: u64,
}

impl AvailableSpace {
    pub(crate) fn of(bytes_max: u64, pages: PageCounts, on_disk: DiskUse) -> Self {
        let used = pages.count.saturating_sub(pages.free) * pages.bytes;
        // Pages only in the WAL will be in the file too.
        let file = on_disk.file.max(pages.count * pages.bytes);
        let taken = file + on_disk.wal + on_disk.shm + COMMIT_PAGES * pages.bytes;
        Self {
            rows: bytes_max.saturating_sub(reserve(bytes_max)).saturating_sub(used),
            free: pages.free * pages.bytes,
            disk: bytes_max.saturating_sub(taken),
        }
    }

    /// Takes the space of a row of `weight` bytes; `false` if there is not enough.
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

/// Bytes that a row uses in the file.
pub(crate) fn weight(id_bytes: usize, payload_bytes: usize) -> u64 {
    let bytes = (id_bytes * 2 + payload_bytes) as u64 + ROW_OVERHEAD;
    if bytes < SMALL_ROW_BYTES { bytes } else { bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(file: u64, free: u64, wal: u64) -> AvailableSpace {
        let pages = PageCounts { count: file / 4_096, free: free / 4_096, bytes: 4_096 };
        AvailableSpace::of(4 * MIB, pages, DiskUse { file, wal, shm: 32_768 })
    }

    #[test]
    fn a_row_needs_space_in_the_file_and_in_the_wal() {
        assert!(space(MIB, 0, 0).take(500_000));
        assert!(!space(MIB, 0, 2 * MIB + 500_000).take(500_000), "the WAL is on the disk too");
        assert!(!space(3 * MIB, 0, 0).take(500), "the reserve is not for rows");
        assert!(space(3 * MIB, MIB, 0).take(500_000), "free pages are used again");
    }

    #[test]
    fn a_checkpoint_is_due_when_the_wal_has_used_its_part_or_the_budget_is_near() {
        let due = |file, wal| is_checkpoint_due(4 * MIB, DiskUse { file, wal, shm: 32_768 });
        assert!(!due(MIB, 500_000));
        assert!(due(MIB, 800_000), "three quarters of the reserve");
        assert!(due(3 * MIB + 400_000, 100_000), "the file leaves little room");
        assert!(!due(4 * MIB, 0), "there is nothing to cut");
    }

    #[test]
    fn space_is_used_up_row_by_row() {
        let mut space = space(2 * MIB, 0, 0);
        let mut rows = 0;
        while space.take(100_000) {
            rows += 1;
        }
        assert!((8..=10).contains(&rows), "{rows} rows of 100 kB in the 1 MiB that is left");
    }
}
