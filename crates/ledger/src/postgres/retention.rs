//! Retention on PostgreSQL: reads outside the writer, removes through the writer, and drops whole
//! partitions that have expired.

use admit_core::{Age, Fault, Horizon, Key, Millis, Seq};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Result, big, rows};
use super::sweep::DropPartition;
use super::{PostgresLedger, clock, sql};
use crate::common::clock::{ConfirmTime, NoteTime};
use crate::common::retention::{
    BODIES, DeferredAdmission, FORGOTTEN_TO, ForgetKeys, ForgetResult, ROWS, RemoveSlice,
    RemovedCounts, RetainedAdmission, RetainedBody, SweepStore, Sweeper,
};
use crate::port::{BoxFuture, ClockConfirmation, KnownTime, Retention, SweepResult};

impl SweepStore for PostgresLedger {
    fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    async fn bodies(
        &self,
        after: Seq,
        rows_max: usize,
    ) -> std::result::Result<Vec<RetainedBody>, Fault> {
        self.readers.read(move |conn, _| bodies(conn, after, rows_max)).await
    }

    async fn admissions(
        &self,
        after: Seq,
        end: Seq,
        rows_max: usize,
    ) -> std::result::Result<Vec<RetainedAdmission>, Fault> {
        self.readers.read(move |conn, _| admissions(conn, after, end, rows_max)).await
    }

    async fn deferred(
        &self,
        now: Millis,
        rows_max: usize,
    ) -> std::result::Result<Vec<DeferredAdmission>, Fault> {
        self.readers.read(move |conn, _| deferred(conn, now, rows_max)).await
    }

    async fn remove(&self, remove: RemoveSlice) -> std::result::Result<RemovedCounts, Fault> {
        self.write(remove).await
    }

    async fn forget(&self, forget: ForgetKeys) -> std::result::Result<ForgetResult, Fault> {
        self.write(forget).await
    }
}

impl Retention for PostgresLedger {
    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    fn sweep(&self, now: Millis) -> BoxFuture<'_, std::result::Result<SweepResult, Fault>> {
        Box::pin(async move {
            let Some(age) = self.horizon.age() else { return Ok(SweepResult::default()) };
            let mut sweeper = self.sweeper.lock().await;
            let dropped = self.drop_oldest(age, now).await?;
            // Other gates sweep too; what they have done is skipped.
            let (bodies, rows) = self.readers.read(|conn, _| places(conn)).await?;
            sweeper.skip_to(bodies, rows);
            let mut swept = sweeper.sweep(self, now).await?;
            swept.bodies += dropped.unwrap_or(0);
            swept.more |= dropped.is_some();
            Ok(swept)
        })
    }

    fn known_time(&self) -> BoxFuture<'_, std::result::Result<KnownTime, Fault>> {
        Box::pin(self.readers.read(|conn, _| clock::known(conn)))
    }

    fn note_time(&self, at: Millis) -> BoxFuture<'_, std::result::Result<(), Fault>> {
        Box::pin(self.write(NoteTime(at)))
    }

    fn confirm_time(
        &self,
        confirmation: ClockConfirmation,
    ) -> BoxFuture<'_, std::result::Result<(), Fault>> {
        Box::pin(self.write(ConfirmTime(confirmation)))
    }
}

impl PostgresLedger {
    /// Drops the oldest partition of bodies if all of it has expired, and the oldest one of sightings if it is
    /// empty. Returns the number of removed bodies, if a partition was dropped.
    async fn drop_oldest(&self, age: Age, now: Millis) -> std::result::Result<Option<u64>, Fault> {
        let cut = Millis(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
        let find = move |conn: &Conn, _| droppable(conn, cut);
        let Some(partition) = self.readers.read(find).await? else { return Ok(None) };
        self.write(partition).await
    }
}

/// A sweeper that continues where the last one stopped.
pub(super) fn load_sweeper(conn: &Conn) -> Result<Sweeper> {
    let (bodies, rows) = places(conn)?;
    Ok(Sweeper::at(bodies, rows))
}

fn places(conn: &Conn) -> Result<(Seq, Seq)> {
    let place =
        |name| Ok::<_, super::conn::Error>(Seq(meta(conn, name)?.map_or(0, i64::unsigned_abs)));
    Ok((place(BODIES)?, place(ROWS)?))
}

/// The horizon of a ledger opened with `retain`, including what was forgotten before. The age is stored for
/// readers beside the gate.
pub(super) fn load_horizon(conn: &Conn, retain: Option<Age>) -> Result<Horizon> {
    match retain {
        Some(age) => conn.execute(sql!("meta_put"), &[&"retain_ms", &big(age.as_millis())])?,
        None => conn.execute(sql!("meta_remove"), &[&"retain_ms"])?,
    };
    clock::settle_known(conn, retain)?;
    Ok(Horizon::new(retain, forgotten_to(conn)?))
}

/// Keys of events up to this wall time of their producer may have been removed, by any gate.
pub(super) fn forgotten_to(conn: &Conn) -> Result<Option<Millis>> {
    Ok(meta(conn, FORGOTTEN_TO)?.map(Millis))
}

fn meta(conn: &Conn, name: &str) -> Result<Option<i64>> {
    conn.query_opt(sql!("meta_get"), &[&name])?.map(|row| row.val("value")).transpose()
}

fn kept(row: &Row) -> Result<RetainedAdmission> {
    let verdict: String = row.val("verdict")?;
    let is_fresh = verdict == "fresh";
    Ok(RetainedAdmission {
        seq: row.seq("seq")?,
        refused: verdict == "refused",
        key: row.bytes32_opt("key")?.filter(|_| is_fresh).map(Key::from_bytes),
        received_at: row.millis("received_at")?,
        happened_at: row.millis_opt("happened_at")?,
    })
}

fn bodies(conn: &Conn, after: Seq, rows_max: usize) -> Result<Vec<RetainedBody>> {
    conn.query(sql!("retain_bodies"), &[&big(after.0), &rows(rows_max)])?
        .iter()
        .map(|row| {
            Ok(RetainedBody {
                seq: row.seq("seq")?,
                bytes: row.num("bytes")?,
                received_at: row.millis_opt("received_at")?,
                refused: row.val::<Option<String>>("verdict")?.as_deref() == Some("refused"),
            })
        })
        .collect()
}

fn admissions(
    conn: &Conn,
    after: Seq,
    end: Seq,
    rows_max: usize,
) -> Result<Vec<RetainedAdmission>> {
    conn.query(sql!("retain_rows"), &[&big(after.0), &big(end.0), &rows(rows_max)])?
        .iter()
        .map(kept)
        .collect()
}

fn deferred(conn: &Conn, now: Millis, rows_max: usize) -> Result<Vec<DeferredAdmission>> {
    conn.query(sql!("retain_due"), &[&now.0, &rows(rows_max)])?
        .iter()
        .map(|row| {
            let is_there = row.seq_opt("seq")?.is_some();
            let kept = if is_there { Some(kept(row)?) } else { None };
            Ok((row.millis("due_at")?, row.seq("later_seq")?, kept))
        })
        .collect()
}

/// A partition that has expired.
fn droppable(conn: &Conn, cut: Millis) -> Result<Option<DropPartition>> {
    for (sql, parent) in
        [(sql!("growth_old_bodies"), "body"), (sql!("growth_empty_sightings"), "sighting")]
    {
        let found = match parent {
            "body" => conn.query_opt(sql, &[&cut.0])?,
            _ => conn.query_opt(sql, &[])?,
        };
        if let Some(row) = found {
            let (lo, hi) = (row.num("lo")?, row.num("hi")?);
            return Ok(Some(DropPartition { parent, lo, hi, cut }));
        }
    }
    Ok(None)
}
