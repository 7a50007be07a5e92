//! A group inside its transaction: begun, decided, written; everything but the commit.

use std::time::Instant;

use admit_core::Fault;
use tokio::sync::oneshot;

use super::super::Job;
use super::super::batch::{Batch, BatchError, Delivery};
use super::super::conn::Conn;
use super::super::head::{self, Beginner, Position};
use super::super::retention;
use super::super::task::{Task, Tx};
use super::super::token::Token;
use super::{Prepared, Writer};
use crate::common::group::Group;
use crate::common::job::Outcomes;

/// Why a group is not written.
enum Unwritten {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// None of it can.
    All(BatchError),
}

impl<E: Into<BatchError>> From<E> for Unwritten {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

impl Writer {
    /// Writes a group into a transaction, leaving out events that cannot be recorded.
    pub(super) fn write(
        &mut self,
        conn: &Conn,
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<Prepared, BatchError> {
        let mut poisoned: Vec<(usize, Fault)> = Vec::new();
        loop {
            match self.write_without(conn, &poisoned, group) {
                Err(Unwritten::Poisoned { index, fault }) => {
                    tracing::error!(index, %fault, "an event cannot be recorded, its neighbours go on");
                    self.lease.rolled_back();
                    self.growth.forget();
                    conn.batch("ROLLBACK")?;
                    poisoned.push((index, fault));
                    group.rewind();
                }
                Err(Unwritten::All(error)) => return Err(error),
                Ok(prepared) => return Ok(prepared),
            }
        }
    }

    fn write_without(
        &mut self,
        conn: &Conn,
        poisoned: &[(usize, Fault)],
        group: &mut Group<'_, Box<dyn Task>>,
    ) -> Result<Prepared, Unwritten> {
        // Whoever waits already is in it; whoever comes while the lock is waited for, too.
        while group.next().is_some() {}
        let token = Token::draw()?;
        let (epoch, before) = self.begin(conn, token)?;
        while group.next().is_some() {}
        let entries: usize = group.jobs().iter().map(|job| job.entries().len()).sum();
        self.growth.make_room(conn, before.last_seq.0 + 2 * entries as u64)?;
        let (outcomes, mut position) = self.record(conn, epoch, before, poisoned, group)?;
        let (own, may_judge) = (self.lease.own(), self.lease.may_judge(epoch));
        let mut tx = Tx { conn, epoch, own: &own, may_judge, position: &mut position };
        for task in group.tasks() {
            task.write(&mut tx)?;
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
        let deliveries: Vec<Delivery<'_>> = group
            .jobs()
            .iter()
            .flat_map(|job| job.entries().iter().map(|entry| (entry, job.issue())))
            .collect();
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
