//! Claims on streams: who holds which place, decided by the one writer.
//!
//! Invariant: places are first handed out in ledger order, so everything up to the head was handed
//! out, and a place up to the head is finished exactly when it has no row in `claim`. That is why
//! what is done leaves nothing behind and a claim takes as long as its answer is.

use admit_core::{Door, Fault, Millis, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::inbox::Shown;
use super::task::{Tx, Work};
use super::{SqliteLedger, queries, streams};
use crate::common::claims::{Found, Held, Taken, given_back, unheld};
use crate::common::news::News;
use crate::port::{
    BoxFuture, Change, Claimed, Claims, DONE, Finished, LEASE_LIFE_MAX, Lease, LeaseAnswer,
    LeaseChange, Standing, Wanted,
};

impl Claims for SqliteLedger {
    fn claim(&self, wanted: Wanted) -> BoxFuture<'_, Result<Vec<Claimed>, Fault>> {
        Box::pin(async move {
            // A consumer that asks again and again must not cost a commit each time.
            let (door, now) = (wanted.door.clone(), wanted.now);
            let some = wanted.rows_max > 0
                && self.readers.read(move |conn, _| has_some(conn, &door, now)).await?;
            if !some {
                return Ok(Vec::new());
            }
            let expires_at = wanted.lease.after(wanted.now);
            let taken = self.write(Claim(wanted)).await?;
            // The bodies are read apart: the writer has better things to do.
            self.readers.read(move |conn, _| claimed(conn, taken, expires_at)).await
        })
    }

    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseAnswer>, Fault>> {
        Box::pin(self.write(ChangeLeases { door, changes, now }))
    }

    fn standing(&self, door: Door, now: Millis) -> BoxFuture<'_, Result<Standing, Fault>> {
        Box::pin(self.readers.read(move |conn, _| standing(conn, &door, now)))
    }

    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Finished>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| finished(conn, &door, after, rows_max)))
    }
}

/// One call of `claim`.
struct Claim(Wanted);

impl Work for Claim {
    type Answer = Vec<Taken>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Taken>> {
        let Self(wanted) = self;
        let door = wanted.door.as_str();
        let head = head(tx.conn, door)?;
        let mut found = Found::new(wanted);
        let new = i64::try_from(head.0).unwrap_or(i64::MAX);
        let (now, far) = (wanted.now.0, LEASE_LIFE_MAX.after(wanted.now).0);
        let places =
            [(queries::CLAIM_FREE, now), (queries::CLAIM_STRAY, far), (queries::CLAIM_NEW, new)];
        for (query, from) in places {
            take(&mut found, &mut tx.conn.prepare_cached(query)?, door, from)?;
        }
        let taken = found.hand_out().map_err(|error| {
            rusqlite::Error::ToSqlConversionFailure(format!("no randomness: {error}").into())
        })?;
        let expires_at = wanted.lease.after(wanted.now).0;
        let mut put = tx.conn.prepare_cached(queries::CLAIM_PUT)?;
        let mut shown = Shown::at(tx.conn, &wanted.door, wanted.now)?;
        for Taken { seq, lease, attempt } in &taken {
            let row = params![door, seq.0, lease.as_bytes(), wanted.consumer, attempt, expires_at];
            put.execute(row)?;
            shown.claimed(*seq)?;
        }
        if let Some(last) = taken.last().filter(|last| last.seq > head) {
            tx.conn.prepare_cached(queries::CLAIM_HEAD_PUT)?.execute((door, last.seq.0))?;
        }
        Ok(taken)
    }
}

/// Takes what `statement` finds from `from` on, until a limit is reached.
fn take(
    found: &mut Found,
    statement: &mut CachedStatement<'_>,
    door: &str,
    from: i64,
) -> rusqlite::Result<()> {
    if found.left() == 0 {
        return Ok(());
    }
    let mut rows = statement.query((door, from, found.left()))?;
    while let Some(row) = rows.next()? {
        if !found.take(Seq(row.get(0)?), row.get(1)?, row.get(2)?) {
            break;
        }
    }
    Ok(())
}

/// One call of `change`.
struct ChangeLeases {
    door: Door,
    changes: Vec<LeaseChange>,
    now: Millis,
}

impl Work for ChangeLeases {
    type Answer = Vec<LeaseAnswer>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<LeaseAnswer>> {
        let head = head(tx.conn, self.door.as_str())?;
        let mut get = tx.conn.prepare_cached(queries::CLAIM_GET)?;
        let mut shown = Shown::at(tx.conn, &self.door, self.now)?;
        let mut answers = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            if change.seq > Seq::MAX {
                answers.push(LeaseAnswer::UnknownPlace);
                continue;
            }
            let held = get
                .query_row((self.door.as_str(), change.seq.0), |row| {
                    Ok(Held {
                        lease: row.get::<_, Option<[u8; 16]>>(0)?.map(Lease::from_bytes),
                        consumer: row.get(1)?,
                        expires_at: Millis(row.get(2)?),
                    })
                })
                .optional()?;
            let answer = match held {
                Some(held) if held.is_by(change.lease, self.now) => {
                    self.apply(tx.conn, change, held.consumer)?;
                    shown.changed(change.seq, &change.change)?;
                    LeaseAnswer::Done
                }
                Some(_) => LeaseAnswer::StaleLease,
                None => unheld(change.seq, head, has(tx.conn, &self.door, change.seq)?),
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    fn tell(&self, answers: &Vec<LeaseAnswer>, news: &News) {
        if let Some(seq) = given_back(&self.changes, answers) {
            news.tell(&self.door, seq);
        }
    }
}

impl ChangeLeases {
    /// Changes what the lease holds.
    fn apply(
        &self,
        conn: &Connection,
        change: &LeaseChange,
        consumer: String,
    ) -> rusqlite::Result<()> {
        let (door, seq) = (self.door.as_str(), change.seq.0);
        match &change.change {
            Change::Finish { status } => {
                conn.prepare_cached(queries::CLAIM_REMOVE)?.execute((door, seq))?;
                if status != DONE {
                    let row = (door, seq, status, consumer, self.now.0);
                    conn.prepare_cached(queries::CLAIM_FINISHED_PUT)?.execute(row)?;
                }
            }
            Change::Extend { until } => {
                let row = (door, seq, Some(change.lease.as_bytes()), until.0);
                conn.prepare_cached(queries::CLAIM_UNTIL)?.execute(row)?;
            }
            Change::Release { again_at } => {
                let row = (door, seq, None::<&[u8; 16]>, again_at.0);
                conn.prepare_cached(queries::CLAIM_UNTIL)?.execute(row)?;
            }
        }
        Ok(())
    }
}

fn head(conn: &Connection, door: &str) -> rusqlite::Result<Seq> {
    let head =
        conn.prepare_cached(queries::CLAIM_HEAD)?.query_row([door], |row| row.get(0)).optional()?;
    Ok(Seq(head.unwrap_or(0)))
}

/// Whether `seq` is a place of the stream at `door`.
fn has(conn: &Connection, door: &Door, seq: Seq) -> rusqlite::Result<bool> {
    conn.prepare_cached(queries::STREAM_HAS)?.exists((door.as_str(), seq.0))
}

fn newest(conn: &Connection, door: &Door) -> rusqlite::Result<Seq> {
    let newest = conn
        .prepare_cached(queries::STREAM_NEWEST)?
        .query_row([door.as_str()], |row| row.get(0))
        .optional()?;
    Ok(Seq(newest.unwrap_or(0)))
}

/// Whether there is anything to claim.
fn has_some(conn: &Connection, door: &Door, now: Millis) -> rusqlite::Result<bool> {
    if newest(conn, door)? > head(conn, door.as_str())? {
        return Ok(true);
    }
    let far = LEASE_LIFE_MAX.after(now).0;
    Ok(conn.prepare_cached(queries::CLAIM_FREE)?.exists((door.as_str(), now.0, 1))?
        || conn.prepare_cached(queries::CLAIM_STRAY)?.exists((door.as_str(), far, 1))?)
}

fn claimed(
    conn: &Connection,
    taken: Vec<Taken>,
    expires_at: Millis,
) -> rusqlite::Result<Vec<Claimed>> {
    let mut claimed = Vec::with_capacity(taken.len());
    for Taken { seq, lease, attempt } in taken {
        // Retention may have been quicker; then the claim is gone with the entry.
        if let Some(entry) = streams::entry_at(conn, seq)? {
            claimed.push(Claimed { entry, lease, expires_at, attempt });
        }
    }
    Ok(claimed)
}

fn standing(conn: &Connection, door: &Door, now: Millis) -> rusqlite::Result<Standing> {
    let (head, newest) = (head(conn, door.as_str())?, newest(conn, door)?);
    let asked = (door.as_str(), now.0, LEASE_LIFE_MAX.after(now).0);
    conn.prepare_cached(queries::CLAIM_STANDING)?.query_row(asked, |row| {
        let free_at = row.get::<_, Option<i64>>(2)?.map(Millis);
        Ok(Standing { head, newest, held: row.get(0)?, free: row.get(1)?, free_at })
    })
}

fn finished(
    conn: &Connection,
    door: &Door,
    after: Seq,
    rows_max: usize,
) -> rusqlite::Result<Vec<Finished>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::CLAIM_FINISHED_LIST)?
        .query_map((door.as_str(), after.0, rows_max), |row| {
            Ok(Finished {
                seq: Seq(row.get(0)?),
                status: row.get(1)?,
                consumer: row.get(2)?,
                finished_at: Millis(row.get(3)?),
            })
        })?
        .collect()
}
