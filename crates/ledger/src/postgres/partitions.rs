//! Partitions of growing tables, created ahead of need.
//!
//! Invariant: under the head lock there is a partition for every seq that the transaction assigns.

use super::conn::{Columns, Conn, Result, big};
use super::sql;

/// Known extent of the partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    /// Seqs per partition.
    places: u64,
    /// Every table has partitions up to here; zero if unknown.
    end: u64,
}

impl Partitions {
    pub(super) fn new(places: u64) -> Self {
        Self { places: places.max(1), end: 0 }
    }

    /// Creates partitions up to `last`, inside a transaction that holds the head lock.
    pub(super) fn make_room(&mut self, conn: &Conn, last: u64) -> Result<()> {
        if last < self.end {
            return Ok(());
        }
        let mut end = u64::MAX;
        for row in conn.query(sql!("growth_ends"), &[])? {
            let (parent, mut hi) = (row.text("parent")?, row.num("hi")?);
            while hi <= last {
                self.add(conn, &parent, hi)?;
                hi += self.places;
            }
            end = end.min(hi);
        }
        self.end = end;
        Ok(())
    }

    /// Creates the first partition of a table that has none, for seqs from `lo` on.
    pub(super) fn begin_at(&self, conn: &Conn, parent: &str, lo: u64) -> Result<()> {
        for row in conn.query(sql!("growth_ends"), &[])? {
            if row.text("parent")? == parent && row.num("hi")? == 0 {
                self.add(conn, parent, lo)?;
            }
        }
        Ok(())
    }

    /// Creates one partition more than needed, ahead of time.
    pub(super) fn make_room_ahead(&mut self, conn: &Conn, last: u64) -> Result<()> {
        self.make_room(conn, last.saturating_add(self.places))
    }

    /// Forgets the extent, because the creation may have been rolled back.
    pub(super) fn forget(&mut self) {
        self.end = 0;
    }

    /// Attaching an empty table blocks neither readers nor writers, as creating it in place would. Its rows are
    /// append-only, so vacuum freezes them the first time and does not read them again.
    fn add(&self, conn: &Conn, parent: &str, lo: u64) -> Result<()> {
        let (hi, name) = (lo + self.places, format!("{parent}_{lo}"));
        let frozen = match parent {
            "body" => "autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0",
            _ => "autovacuum_freeze_min_age = 0",
        };
        conn.batch(&format!(
            "CREATE TABLE {name} (LIKE {parent} INCLUDING ALL) WITH ({frozen}); \
             ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({lo}) TO ({hi})"
        ))?;
        conn.execute(sql!("growth_put"), &[&parent, &big(lo), &big(hi), &name])?;
        Ok(())
    }
}
