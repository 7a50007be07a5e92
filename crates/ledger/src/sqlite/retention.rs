//! Retention in the embedded ledger: reads outside the writer, removes through the writer.

use admit_core::{Fault, Horizon, Key, Millis, Seq};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{SqliteLedger, clock, queries};
use crate::common::clock::{ConfirmTime, NoteTime};
use crate::common::retention::{
    BODIES, DeferredAdmission, FORGOTTEN_TO, ForgetKeys, ForgetResult, ROWS, RemoveSlice,
    RemovedCounts, RetainedAdmission, RetainedBody, SweepStore, Sweeper,
};
use crate::port::{BoxFuture, ClockConfirmation, KnownTime, Retention, SweepResult};

impl SweepStore for SqliteLedger {
    fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    async fn bodies(&self, after: Seq, rows_max: usize) -> Result<Vec<RetainedBody>, Fault> {
        self.readers.read(move |conn, _| bodies(conn, after, rows_max)).await
    }

    async fn admissions(
        &self,
        after: Seq,
        end: Seq,
        rows_max: usize,
    ) -> Result<Vec<RetainedAdmission>, Fault> {
        self.readers.read(move |conn, _| admissions(conn, after, end, rows_max)).await
    }

    async fn deferred(
        &self,
        now: Millis,
        rows_max: usize,
    ) -> Result<Vec<DeferredAdmission>, Fault> {
        self.readers.read(move |conn, _| deferred(conn, now, rows_max)).await
    }

    async fn remove(&self, remove: RemoveSlice) -> Result<RemovedCounts, Fault> {
        self.write(remove).await
    }

    async fn forget(&self, forget: ForgetKeys) -> Result<ForgetResult, Fault> {
        self.write(forget).await
    }
}

impl Retention for SqliteLedger {
    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<SweepResult, Fault>> {
        Box::pin(async move {
            if self.horizon.age().is_none() {
                return Ok(SweepResult::default());
            }
            self.sweeper.lock().await.sweep(self, now).await
        })
    }

    fn known_time(&self) -> BoxFuture<'_, Result<KnownTime, Fault>> {
        Box::pin(self.readers.read(|conn, _| clock::known(conn)))
    }

    fn note_time(&self, at: Millis) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(NoteTime(at)))
    }

    fn confirm_time(&self, confirmation: ClockConfirmation) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(ConfirmTime(confirmation)))
    }
}

/// A sweeper that continues where the last one stopped.
pub(super) fn load_sweeper(conn: &Connection) -> rusqlite::Result<Sweeper> {
    let place = |name| Ok::<_, rusqlite::Error>(Seq(meta(conn, name)?.unwrap_or(0)));
    Ok(Sweeper::at(place(BODIES)?, place(ROWS)?))
}

/// The horizon of a ledger opened with `retain`, including what was forgotten before. The age is stored for
/// readers beside the gate.
pub(super) fn load_horizon(
    conn: &Connection,
    retain: Option<admit_core::Age>,
) -> rusqlite::Result<Horizon> {
    match retain {
        Some(age) => conn.execute(queries::META_PUT, ("retain_ms", age.as_millis()))?,
        None => conn.execute(queries::META_REMOVE, ["retain_ms"])?,
    };
    clock::settle_known(conn, retain)?;
    Ok(Horizon::new(retain, meta(conn, FORGOTTEN_TO)?.map(Millis)))
}

fn meta<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> rusqlite::Result<Option<T>> {
    conn.query_row(queries::META_GET, [name], |row| row.get(0)).optional()
}

fn kept(row: &Row<'_>) -> rusqlite::Result<RetainedAdmission> {
    let verdict = row.get_ref("verdict")?.as_str()?;
    let (refused, fresh) = (verdict == "refused", verdict == "fresh");
    let key: Option<[u8; 32]> = row.get("key")?;
    Ok(RetainedAdmission {
        seq: Seq(row.get("seq")?),
        refused,
        key: key.filter(|_| fresh).map(Key::from_bytes),
        received_at: Millis(row.get("received_at")?),
        happened_at: row.get::<_, Option<i64>>("happened_at")?.map(Millis),
    })
}

fn bodies(conn: &Connection, after: Seq, rows_max: usize) -> rusqlite::Result<Vec<RetainedBody>> {
    conn.prepare_cached(queries::RETAIN_BODIES)?
        .query_map((after.0, rows_max), |row| {
            Ok(RetainedBody {
                seq: Seq(row.get(0)?),
                bytes: row.get(1)?,
                received_at: row.get::<_, Option<i64>>(2)?.map(Millis),
                refused: row.get_ref(3)?.as_str_or_null()? == Some("refused"),
            })
        })?
        .collect()
}

fn deferred(
    conn: &Connection,
    now: Millis,
    rows_max: usize,
) -> rusqlite::Result<Vec<DeferredAdmission>> {
    conn.prepare_cached(queries::RETAIN_DUE)?
        .query_map((now.0, rows_max), |row| {
            let (due, seq) = (Millis(row.get("due_at")?), Seq(row.get("later_seq")?));
            let is_there = row.get::<_, Option<u64>>("seq")?.is_some();
            Ok((due, seq, if is_there { Some(kept(row)?) } else { None }))
        })?
        .collect()
}

fn admissions(
    conn: &Connection,
    after: Seq,
    end: Seq,
    rows_max: usize,
) -> rusqlite::Result<Vec<RetainedAdmission>> {
    conn.prepare_cached(queries::RETAIN_ROWS)?
        .query_map((after.0, end.0, rows_max), kept)?
        .collect()
}
