//! Removals of retention as write operations: each a bounded slice, each safe to repeat.

use admit_core::{Door, Millis, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::queries;
use super::write_op::{Tx, WriteOp};
use crate::common::retention::{
    FORGOTTEN_TO, ForgetKeys, ForgetResult, RemoveSlice, RemovedCounts, SIGHTINGS_MAX, SweepItem,
};

impl WriteOp for RemoveSlice {
    type Output = RemovedCounts;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<RemovedCounts> {
        let conn = tx.conn;
        let mut removed = RemovedCounts::default();
        for item in &self.items {
            if !remove_item(&mut removed, conn, item)? {
                break;
            }
            removed.items += 1;
        }
        if let Some((name, all)) = self.place {
            let done = self.items[..removed.items].last().map(|item| item.seq);
            let place = if removed.items == self.items.len() { Some(all) } else { done };
            if let Some(place) = place {
                conn.prepare_cached(queries::META_MAX)?.execute((name, place.0))?;
            }
        }
        let mut add = conn.prepare_cached(queries::META_ADD)?;
        for (name, count) in [
            ("removed_bodies", removed.bodies),
            ("removed_admissions", removed.admissions),
            ("removed_sightings", removed.sightings),
        ] {
            if count > 0 {
                add.execute((name, count))?;
            }
        }
        Ok(removed)
    }
}

/// Applies one item; returns `false` if the slice is full before it is done.
fn remove_item(
    removed: &mut RemovedCounts,
    conn: &Connection,
    item: &SweepItem,
) -> rusqlite::Result<bool> {
    if item.all {
        let left = SIGHTINGS_MAX - removed.sightings;
        let mut remove = conn.prepare_cached(queries::SIGHTINGS_REMOVE)?;
        let gone = remove.execute((item.seq.0, left))?;
        removed.sightings += gone;
        if gone == left {
            return Ok(false);
        }
    }
    if item.body {
        remove_body(removed, conn, item)?;
    }
    if item.all {
        remove_admission(removed, conn, item.seq)?;
    }
    if let Some(due) = item.deferred {
        conn.prepare_cached(queries::RETAIN_LATER_REMOVE)?.execute((due.0, item.seq.0))?;
    }
    if let Some(due) = item.defer_to {
        conn.prepare_cached(queries::RETAIN_LATER_PUT)?.execute((due.0, item.seq.0))?;
    }
    Ok(true)
}

fn remove_body(
    removed: &mut RemovedCounts,
    conn: &Connection,
    item: &SweepItem,
) -> rusqlite::Result<()> {
    if item.refused {
        let bytes: Option<u64> = conn
            .prepare_cached(queries::BODY_BYTES)?
            .query_row([item.seq.0], |row| row.get(0))
            .optional()?;
        let row = (item.seq.0, bytes.unwrap_or(0));
        conn.prepare_cached(queries::QUOTA_GIVE_BACK)?.execute(row)?;
    }
    conn.prepare_cached(queries::INBOX_REMOVE)?.execute([item.seq.0])?;
    removed.bodies += conn.prepare_cached(queries::BODY_REMOVE)?.execute([item.seq.0])?;
    Ok(())
}

fn remove_admission(
    removed: &mut RemovedCounts,
    conn: &Connection,
    seq: Seq,
) -> rusqlite::Result<()> {
    let door = conn
        .prepare_cached(queries::ADMISSION_REMOVE)?
        .query_row([seq.0], |row| Ok(Door::new(row.get_ref(0)?.as_str()?)))
        .optional()?;
    let Some(door) = door else { return Ok(()) };
    removed.admissions += 1;
    if door.is_stream() {
        for query in [queries::CLAIM_REMOVE, queries::CLAIM_FINISHED_REMOVE] {
            conn.prepare_cached(query)?.execute((door.as_str(), seq.0))?;
        }
    }
    Ok(())
}

impl WriteOp for ForgetKeys {
    type Output = ForgetResult;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<ForgetResult> {
        let mut forgot = ForgetResult::default();
        let Some(newest) = self.keys.iter().map(|due| due.happened_at).max() else {
            return Ok(forgot);
        };
        let mut holds = tx.conn.prepare_cached(queries::KEY_HOLDS)?;
        for due in &self.keys {
            let held = holds
                .query_row((due.key.as_bytes(), self.cut.0), |row| {
                    Ok((Millis(row.get(0)?), row.get::<_, Option<i64>>(1)?.map(Millis)))
                })
                .optional()?;
            if let Some((received_at, happened_at)) = held {
                forgot.kept.push((due.seq, self.horizon.key_due(received_at, happened_at)));
                continue;
            }
            forgot.keys += usize::from(tx.keys.forget(tx.conn, &due.key, due.seq)?);
        }
        tx.conn.prepare_cached(queries::META_MAX)?.execute((FORGOTTEN_TO, newest.0))?;
        tx.conn.prepare_cached(queries::META_ADD)?.execute(("removed_keys", forgot.keys))?;
        Ok(forgot)
    }
}
