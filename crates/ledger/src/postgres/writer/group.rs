//! A group inside its transaction: begun, decided, written; everything but the commit.

use std::time::Instant;

use admit_core::Fault;
use tokio::sync::oneshot;

use super::super::Job;
use super::super::batch::{Batch, BatchError, Delivery};
use super::super::conn::{self, Conn};
use super::super::fault;
use super::super::head::{self, Beginner, Position};
use super::super::retention;
use super::super::task::{Task, Tx};
use super::super::token::Token;
use super::{Prepared, Writer};
use crate::common::group::Group;
use crate::common::job::{Outcomes, unfit};

/// Why a group is not written.
enum Unwritten {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// A task is refused for what it contains; each in a savepoint of its own, the others can be written.
    Unfit(conn::Error),
    /// None of it can.
    All(BatchError),
}

impl<E: Into<BatchError>> From<E> for Unwritten {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

/// What of a group is written in savepoints of its own, so that each failure is its own.
#[derive(Clone, Copy)]
struct Savepoints {
    entries: bool,
    tasks: bool,
}

/// So many events that cannot be recorded are left out one after the other; with more of them the
/// group is written one by one.
const POISONED_MAX: usize = 8;

impl Writer {
    /// Writes a group into a transaction, leaving out what cannot be written.
    pub(super) fn write(
        &mut self,
        conn: &Conn,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<Prepared, BatchError> {
        let mut poisoned: Vec<(usize, Fault)> = Vec::new();
        let (mut one_by_one, mut tasks_alone) = (false, false);
        loop {
            let savepoints = Savepoints { entries: one_by_one, tasks: one_by_one || tasks_alone };
            match self.write_without(conn, &poisoned, savepoints, group) {
                Err(Unwritten::Unfit(error)) => {
                    // The next attempt finds out which, and logs it.
                    tracing::debug!(%error, "a write command failed, each gets a savepoint");
                    tasks_alone = true;
                }
                Err(Unwritten::Poisoned { index, fault }) => {
                    tracing::error!(index, %fault, "an event cannot be recorded, its neighbours go on");
                    poisoned.push((index, fault));
                    one_by_one = poisoned.len() > POISONED_MAX;
                }
                Err(Unwritten::All(BatchError::Server(error)))
                    if !one_by_one && !conn.is_lost() && fault::is_of_content(&error) =>
                {
                    tracing::error!(%error, "a group cannot be written as it is, going on one by one");
                    one_by_one = true;
                }
                Err(Unwritten::All(error)) => return Err(error),
                Ok(prepared) => return Ok(prepared),
            }
            self.lease.rolled_back();
            self.growth.forget();
            conn.batch("ROLLBACK")?;
            group.rewind();
        }
    }

    fn write_without(
        &mut self,
        conn: &Conn,
        poisoned: &[(usize, Fault)],
        savepoints: Savepoints,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<Prepared, Unwritten> {
        // Whoever waits already is in it; whoever comes while the lock is waited for, too.
        while group.next().is_some() {}
        let token = Token::draw()?;
        let (epoch, before) = self.begin(conn, token)?;
        while group.next().is_some() {}
        let entries: usize = group.jobs().iter().map(|job| job.entries().len()).sum();
        self.growth.make_room(conn, before.last_seq.0 + 2 * entries as u64)?;
        let recorded = match savepoints.entries {
            false => self.record(conn, epoch, before, poisoned, group)?,
            true => self.record_one_by_one(conn, epoch, before, group)?,
        };
        let (outcomes, mut position) = recorded;
        let (own, may_judge) = (self.lease.own(), self.lease.may_judge(epoch));
        let mut tx = Tx { conn, epoch, own: &own, may_judge, position: &mut position };
        for task in group.tasks() {
            if savepoints.tasks {
                write_alone(&mut **task, &mut tx)?;
                continue;
            }
            match task.write(&mut tx) {
                Ok(()) => {}
                Err(error) if !conn.is_lost() && fault::is_of_content(&error) => {
                    return Err(Unwritten::Unfit(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if position != before {
            head::put(conn, &position)?;
        }
        Ok(Prepared { token, outcomes })
    }

    /// Begins the transaction: alone, alive, and known by its token.
    fn begin(&mut self, conn: &Conn, token: Token) -> Result<(u64, Position), BatchError> {
        let began = Instant::now();
        let (epoch, renew) = (self.lease.epoch(), self.lease.renewal());
        let beginner = Beginner { epoch, token: token.as_bytes(), renew };
        let begun = head::begin(conn, &beginner)?;
        if !begun.is_alive {
            if self.lease.is_taken(conn)? {
                return Err(BatchError::Replaced);
            }
            if self.lease.bus_is_taken(conn)? {
                return Err(BatchError::BusTaken);
            }
            return Ok((self.lease.start_over(conn, began)?, begun.position));
        }
        if renew.is_some() {
            self.lease.renews(began);
            self.growth.make_room_ahead(conn, begun.position.last_seq.0)?;
            if let Some(at) = retention::forgotten_to(conn)? {
                self.horizon.forget_to(at);
            }
        }
        Ok((epoch, begun.position))
    }

    /// Records the entries of the group.
    fn record(
        &self,
        conn: &Conn,
        epoch: u64,
        position: Position,
        poisoned: &[(usize, Fault)],
        group: &Group<'_, Box<dyn Task>>,
    ) -> Result<(Outcomes, Position), Unwritten> {
        let deliveries = deliveries(group);
        if deliveries.is_empty() {
            return Ok((Outcomes::new(), position));
        }
        let mut batch = Batch::fetch(conn, epoch, self.quota, position, &deliveries)?;
        let mut outcomes = Outcomes::with_capacity(deliveries.len());
        for (index, (entry, issue)) in deliveries.into_iter().enumerate() {
            if let Some((_, fault)) = poisoned.iter().find(|(at, _)| *at == index) {
                outcomes.push_back(Err(fault.clone()));
                continue;
            }
            match batch.record(entry, issue) {
                Ok(written) => outcomes.push_back(Ok(written)),
                Err(BatchError::Poisoned(fault)) => {
                    return Err(Unwritten::Poisoned { index, fault });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((outcomes, batch.flush()?))
    }

    /// The same entry by entry, slowly: what the database refuses is refused alone.
    fn record_one_by_one(
        &self,
        conn: &Conn,
        epoch: u64,
        mut position: Position,
        group: &Group<'_, Box<dyn Task>>,
    ) -> Result<(Outcomes, Position), Unwritten> {
        let mut outcomes = Outcomes::new();
        for delivery in deliveries(group) {
            let record = || {
                let (entry, issue) = delivery;
                let mut batch = Batch::fetch(conn, epoch, self.quota, position, &[delivery])?;
                let written = batch.record(entry, issue)?;
                Ok((written, batch.flush()?))
            };
            outcomes.push_back(match alone(conn, record)? {
                Ok((written, reached)) => {
                    position = reached;
                    Ok(written)
                }
                Err(fault) => Err(fault),
            });
        }
        Ok((outcomes, position))
    }
}

fn deliveries<'g>(group: &'g Group<'_, Box<dyn Task>>) -> Vec<Delivery<'g>> {
    let of = |job: &'g Job| job.entries().iter().map(|entry| (entry, job.issue()));
    group.jobs().iter().flat_map(of).collect()
}

/// Does a piece of work so that its failure is its own. The outer error is everybody's.
fn alone<T>(
    conn: &Conn,
    work: impl FnOnce() -> Result<T, BatchError>,
) -> Result<Result<T, Fault>, BatchError> {
    conn.batch("SAVEPOINT alone")?;
    let fault = match work() {
        Ok(done) => {
            conn.batch("RELEASE SAVEPOINT alone")?;
            return Ok(Ok(done));
        }
        Err(BatchError::Poisoned(fault)) => fault,
        Err(BatchError::Server(error)) if !conn.is_lost() && fault::is_of_content(&error) => {
            unfit(error)
        }
        Err(error) => return Err(error),
    };
    conn.batch("ROLLBACK TO SAVEPOINT alone; RELEASE SAVEPOINT alone")?;
    let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
    tracing::error!(%fault, source, "something cannot be written, its neighbours go on");
    Ok(Err(fault))
}

/// A task whose failure is its own: it is told at once, and has no part in the commit.
fn write_alone(task: &mut dyn Task, tx: &mut Tx<'_>) -> Result<(), BatchError> {
    let (conn, before) = (tx.conn, *tx.position);
    if let Err(fault) = alone(conn, || Ok(task.write(tx)?))? {
        *tx.position = before;
        task.unknown(&fault);
    }
    Ok(())
}

/// Tells whoever waits for a call that nobody knows yet; the call is kept for when somebody does.
pub(super) fn unknown(job: &mut Job, fault: &Fault) {
    match job {
        Job::Record { batch, reply } => {
            let (nobody, _) = oneshot::channel();
            let faults = batch.iter().map(|_| Err(fault.clone())).collect();
            std::mem::replace(reply, nobody).send(faults).unwrap_or_default();
        }
        Job::RecordIssuing { batch, reply, .. } => {
            let (nobody, _) = oneshot::channel();
            let faults = batch.iter().map(|_| Err(fault.clone())).collect();
            std::mem::replace(reply, nobody).send(faults).unwrap_or_default();
        }
        Job::Task(task) => task.unknown(fault),
    }
}
