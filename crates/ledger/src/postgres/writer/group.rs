//! One batch inside its transaction: begun, decided, written; everything but the commit.

use std::time::Instant;

use admit_core::Fault;
use tokio::sync::oneshot;

use super::super::WriteCommand;
use super::super::batch::{Batch, BatchError, Delivery};
use super::super::commit_token::Token;
use super::super::conn::{self, Conn};
use super::super::fault;
use super::super::head_lock::{self, Position, TransactionStart};
use super::super::write_op::{ErasedWriteOp, Tx};
use super::{PreparedBatch, Writer};
use crate::common::commit_batch::CommitBatch;
use crate::common::write_command::{Outcomes, rejected};
use crate::tables::retention;

/// Why a batch is not written.
enum GroupError {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// An operation was rejected for its content; with a savepoint each, the others can be written.
    Rejected(conn::Error),
    /// The whole batch failed.
    All(BatchError),
}

impl<E: Into<BatchError>> From<E> for GroupError {
    fn from(error: E) -> Self {
        Self::All(error.into())
    }
}

/// Which parts of a batch get a savepoint each, so that failures stay separate.
#[derive(Clone, Copy)]
struct Savepoints {
    entries: bool,
    ops: bool,
}

/// Maximum poisoned events that are left out one after the other; with more of them the batch is written
/// entry by entry.
const POISONED_MAX: usize = 8;

impl Writer {
    /// Writes a batch into a transaction, leaving out what cannot be written.
    pub(super) fn write(
        &mut self,
        conn: &Conn,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<PreparedBatch, BatchError> {
        let mut poisoned: Vec<(usize, Fault)> = Vec::new();
        let (mut one_by_one, mut ops_alone) = (false, false);
        loop {
            let savepoints = Savepoints { entries: one_by_one, ops: one_by_one || ops_alone };
            match self.write_without(conn, &poisoned, savepoints, group) {
                Err(GroupError::Rejected(error)) => {
                    // The next attempt finds out which one, and logs it.
                    tracing::debug!(%error, "a write operation failed; retrying with a savepoint for each");
                    ops_alone = true;
                }
                Err(GroupError::Poisoned { index, fault }) => {
                    tracing::error!(index, %fault, "skipped an event that cannot be recorded; rest of the batch continues");
                    poisoned.push((index, fault));
                    one_by_one = poisoned.len() > POISONED_MAX;
                }
                Err(GroupError::All(BatchError::Server(error)))
                    if !one_by_one && !conn.is_lost() && fault::is_of_content(&error) =>
                {
                    tracing::error!(%error, "the database rejected a batch; retrying entry by entry");
                    one_by_one = true;
                }
                Err(GroupError::All(error)) => return Err(error),
                Ok(prepared) => return Ok(prepared),
            }
            self.lease.rolled_back();
            self.partitions.forget();
            conn.batch("ROLLBACK")?;
            group.rewind();
        }
    }

    fn write_without(
        &mut self,
        conn: &Conn,
        poisoned: &[(usize, Fault)],
        savepoints: Savepoints,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<PreparedBatch, GroupError> {
        // Includes all waiting calls, and those that arrive while the lock is waited for.
        while group.next().is_some() {}
        let token = Token::draw()?;
        let (epoch, before) = self.begin(conn, token)?;
        while group.next().is_some() {}
        let entries: usize = group.commands().iter().map(|command| command.entries().len()).sum();
        self.partitions.make_room(conn, before.last_seq.0 + 2 * entries as u64)?;
        let recorded = match savepoints.entries {
            false => self.record(conn, epoch, before, poisoned, group)?,
            true => self.record_one_by_one(conn, epoch, before, group)?,
        };
        let (outcomes, mut position) = recorded;
        let (own, may_recover_others) = (self.lease.own(), self.lease.may_recover_others(epoch));
        let mut tx = Tx { conn, epoch, own: &own, may_recover_others, position: &mut position };
        for op in group.ops() {
            if savepoints.ops {
                write_in_savepoint(&mut **op, &mut tx)?;
                continue;
            }
            match op.write(&mut tx) {
                Ok(()) => {}
                Err(error) if !conn.is_lost() && fault::is_of_content(&error) => {
                    return Err(GroupError::Rejected(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if position != before {
            head_lock::put(conn, &position)?;
        }
        Ok(PreparedBatch { token, outcomes })
    }

    /// Begins the transaction: acquires the head lock, checks the lease and inserts the commit token.
    fn begin(&mut self, conn: &Conn, token: Token) -> Result<(u64, Position), BatchError> {
        let began = Instant::now();
        let (epoch, renew) = (self.lease.epoch(), self.lease.renewal());
        let start = TransactionStart { epoch, token: token.as_bytes(), renew };
        let locked = head_lock::begin(conn, &start)?;
        if !locked.is_alive {
            if self.lease.is_taken(conn)? {
                return Err(BatchError::Replaced);
            }
            if self.lease.bus_is_taken(conn)? {
                return Err(BatchError::BusTaken);
            }
            return Ok((self.lease.renew_epoch(conn, began)?, locked.position));
        }
        if renew.is_some() {
            self.lease.renews(began);
            self.partitions.make_room_ahead(conn, locked.position.last_seq.0)?;
            if let Some(at) = retention::forgotten_to(conn)? {
                self.horizon.forget_to(at);
            }
        }
        Ok((epoch, locked.position))
    }

    /// Records the entries of the batch.
    fn record(
        &self,
        conn: &Conn,
        epoch: u64,
        position: Position,
        poisoned: &[(usize, Fault)],
        group: &CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<(Outcomes, Position), GroupError> {
        let deliveries = deliveries(group);
        if deliveries.is_empty() {
            return Ok((Outcomes::new(), position));
        }
        let mut batch = Batch::prefetch(conn, epoch, self.quota, position, &deliveries)?;
        let mut outcomes = Outcomes::with_capacity(deliveries.len());
        for (index, (entry, issue)) in deliveries.into_iter().enumerate() {
            if let Some((_, fault)) = poisoned.iter().find(|(at, _)| *at == index) {
                outcomes.push_back(Err(fault.clone()));
                continue;
            }
            match batch.record(entry, issue) {
                Ok(written) => outcomes.push_back(Ok(written)),
                Err(BatchError::Poisoned(fault)) => {
                    return Err(GroupError::Poisoned { index, fault });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((outcomes, batch.flush()?))
    }

    /// Records entry by entry, slowly: what the database rejects fails alone.
    fn record_one_by_one(
        &self,
        conn: &Conn,
        epoch: u64,
        mut position: Position,
        group: &CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<(Outcomes, Position), GroupError> {
        let mut outcomes = Outcomes::new();
        for delivery in deliveries(group) {
            let record = || {
                let (entry, issue) = delivery;
                let mut batch = Batch::prefetch(conn, epoch, self.quota, position, &[delivery])?;
                let written = batch.record(entry, issue)?;
                Ok((written, batch.flush()?))
            };
            outcomes.push_back(match in_savepoint(conn, record)? {
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

fn deliveries<'g>(group: &'g CommitBatch<'_, Box<dyn ErasedWriteOp>>) -> Vec<Delivery<'g>> {
    let of =
        |command: &'g WriteCommand| command.entries().iter().map(|entry| (entry, command.issue()));
    group.commands().iter().flat_map(of).collect()
}

/// Runs `work` in a savepoint. The inner error is its own, the outer one fails the batch.
fn in_savepoint<T>(
    conn: &Conn,
    op: impl FnOnce() -> Result<T, BatchError>,
) -> Result<Result<T, Fault>, BatchError> {
    conn.batch("SAVEPOINT alone")?;
    let fault = match op() {
        Ok(done) => {
            conn.batch("RELEASE SAVEPOINT alone")?;
            return Ok(Ok(done));
        }
        Err(BatchError::Poisoned(fault)) => fault,
        Err(BatchError::Server(error)) if !conn.is_lost() && fault::is_of_content(&error) => {
            rejected(error)
        }
        Err(error) => return Err(error),
    };
    conn.batch("ROLLBACK TO SAVEPOINT alone; RELEASE SAVEPOINT alone")?;
    let source = fault.source.as_deref().map(ToString::to_string).unwrap_or_default();
    tracing::error!(%fault, source, "skipped an unwritable item; rest of the batch continues");
    Ok(Err(fault))
}

/// Runs an operation in a savepoint: if it fails its caller gets the fault at once, and the commit goes on.
fn write_in_savepoint(op: &mut dyn ErasedWriteOp, tx: &mut Tx<'_>) -> Result<(), BatchError> {
    let (conn, before) = (tx.conn, *tx.position);
    if let Err(fault) = in_savepoint(conn, || Ok(op.write(tx)?))? {
        *tx.position = before;
        op.unknown(&fault);
    }
    Ok(())
}

/// Replies outcome_unknown to the callers of a command, which is kept until its outcome is resolved.
pub(super) fn reply_unknown(command: &mut WriteCommand, fault: &Fault) {
    match command {
        WriteCommand::Record { batch, reply } => {
            let (dropped, _) = oneshot::channel();
            let faults = batch.iter().map(|_| Err(fault.clone())).collect();
            std::mem::replace(reply, dropped).send(faults).unwrap_or_default();
        }
        WriteCommand::RecordIssuing { batch, reply, .. } => {
            let (dropped, _) = oneshot::channel();
            let faults = batch.iter().map(|_| Err(fault.clone())).collect();
            std::mem::replace(reply, dropped).send(faults).unwrap_or_default();
        }
        WriteCommand::Op(op) => op.unknown(fault),
    }
}
