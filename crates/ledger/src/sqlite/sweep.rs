//! The removals of retention, as tasks of the writer: each a bounded slice, each safe to repeat.
//!
//! Invariant: a key goes before the admission that claimed it, never after: a look-up that finds a
//! key always finds the admission too. Between the two commits there is an admission without a key,
//! which no copy can meet any more, because every copy is outside the horizon by then.

use admit_core::{Door, Horizon, Key, Millis, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::queries;
use super::task::{Tx, Work};

/// The names of the single values that say how far retention is.
pub(super) const BODIES: &str = "retained_bodies";
pub(super) const ROWS: &str = "retained_rows";
pub(super) const FORGOTTEN_TO: &str = "forgotten_to";

/// At most so many sightings go in one slice.
const SIGHTINGS_MAX: usize = 1_024;

/// One place with what is to be done about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) seq: Seq,
    /// A refusal, whose body counts for a quota.
    pub(super) refused: bool,
    /// Its body goes.
    pub(super) body: bool,
    /// Everything else goes too; its key is gone already.
    pub(super) all: bool,
    /// It must be looked at again after this time.
    pub(super) later: Option<Millis>,
    /// Under which time it was put off before.
    pub(super) put_off: Option<Millis>,
}

/// Does what the items say, in ledger order, and moves the named place to where it got.
#[derive(Debug)]
pub(super) struct Remove {
    pub(super) items: Vec<Item>,
    /// Which place moves, and how far once all items are done.
    pub(super) place: Option<(&'static str, Seq)>,
}

/// What a slice removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Removed {
    /// How many items are done.
    pub(super) items: usize,
    pub(super) bodies: usize,
    pub(super) admissions: usize,
    pub(super) sightings: usize,
}

impl Work for Remove {
    type Answer = Removed;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Removed> {
        let conn = tx.conn;
        let mut removed = Removed::default();
        for item in &self.items {
            if !removed.item(conn, item)? {
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

impl Removed {
    /// Does one item; `false` when the slice is full before it is done.
    fn item(&mut self, conn: &Connection, item: &Item) -> rusqlite::Result<bool> {
        if item.all {
            let left = SIGHTINGS_MAX - self.sightings;
            let mut remove = conn.prepare_cached(queries::SIGHTINGS_REMOVE)?;
            let gone = remove.execute((item.seq.0, left))?;
            self.sightings += gone;
            if gone == left {
                return Ok(false);
            }
        }
        if item.body {
            self.body(conn, item)?;
        }
        if item.all {
            self.admission(conn, item.seq)?;
        }
        if let Some(due) = item.put_off {
            conn.prepare_cached(queries::RETAIN_LATER_REMOVE)?.execute((due.0, item.seq.0))?;
        }
        if let Some(due) = item.later {
            conn.prepare_cached(queries::RETAIN_LATER_PUT)?.execute((due.0, item.seq.0))?;
        }
        Ok(true)
    }

    fn body(&mut self, conn: &Connection, item: &Item) -> rusqlite::Result<()> {
        if item.refused {
            let bytes: Option<u64> = conn
                .prepare_cached(queries::BODY_BYTES)?
                .query_row([item.seq.0], |row| row.get(0))
                .optional()?;
            let row = (item.seq.0, bytes.unwrap_or(0));
            conn.prepare_cached(queries::QUOTA_GIVE_BACK)?.execute(row)?;
        }
        conn.prepare_cached(queries::INBOX_REMOVE)?.execute([item.seq.0])?;
        self.bodies += conn.prepare_cached(queries::BODY_REMOVE)?.execute([item.seq.0])?;
        Ok(())
    }

    fn admission(&mut self, conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
        let door = conn
            .prepare_cached(queries::ADMISSION_REMOVE)?
            .query_row([seq.0], |row| Ok(Door::new(row.get_ref(0)?.as_str()?)))
            .optional()?;
        let Some(door) = door else { return Ok(()) };
        self.admissions += 1;
        if door.is_stream() {
            for query in [queries::CLAIM_REMOVE, queries::CLAIM_FINISHED_REMOVE] {
                conn.prepare_cached(query)?.execute((door.as_str(), seq.0))?;
            }
        }
        Ok(())
    }
}

/// A key that is due, with the place that claimed it and when its event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DueKey {
    pub(super) key: Key,
    pub(super) seq: Seq,
    pub(super) happened_at: Millis,
}

/// Forgets keys, except those under which something newer was admitted.
#[derive(Debug)]
pub(super) struct Forget {
    pub(super) keys: Vec<DueKey>,
    pub(super) horizon: Horizon,
    /// Whatever is not older than this holds its key.
    pub(super) cut: Millis,
}

/// What became of a slice of keys.
#[derive(Debug, Default)]
pub(super) struct Forgot {
    pub(super) keys: usize,
    /// Places whose key stays, with when to look again (`None`: never).
    pub(super) kept: Vec<(Seq, Option<Millis>)>,
}

impl Work for Forget {
    type Answer = Forgot;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Forgot> {
        let mut forgot = Forgot::default();
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
