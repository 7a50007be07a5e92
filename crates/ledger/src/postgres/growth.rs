//! Partitions of what grows with time, made before anybody needs them.
//!
//! Invariant: under the lock on the head there is a partition for every place that the transaction
//! gives out.

use super::conn::{Columns, Conn, Result, big};
use super::sql;

/// How far there is room, as far as this gate knows.
#[derive(Debug)]
pub(super) struct Growth {
    /// Places in a partition.
    places: u64,
    /// Every table has partitions up to here; zero when nobody has looked.
    end: u64,
}

impl Growth {
    pub(super) fn new(places: u64) -> Self {
        Self { places: places.max(1), end: 0 }
    }

    /// Makes room for every place up to `last`, inside a transaction that has the lock.
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

    /// Makes the first partition of a table, where it has none, for places from `lo` on.
    pub(super) fn begin_at(&self, conn: &Conn, parent: &str, lo: u64) -> Result<()> {
        for row in conn.query(sql!("growth_ends"), &[])? {
            if row.text("parent")? == parent && row.num("hi")? == 0 {
                self.add(conn, parent, lo)?;
            }
        }
        Ok(())
    }

    /// The same ahead of time, when nobody waits: a whole partition more than is needed.
    pub(super) fn make_room_ahead(&mut self, conn: &Conn, last: u64) -> Result<()> {
        self.make_room(conn, last.saturating_add(self.places))
    }

    /// What was made may have been rolled back.
    pub(super) fn forget(&mut self) {
        self.end = 0;
    }

    /// Attaching an empty table holds up neither readers nor writers, as creating it in place would.
    /// Its rows are only added, so they are frozen when vacuum first sees them, and not read again.
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
