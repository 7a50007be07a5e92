//! One batch inside its transaction: begun, decided, written and committed. That takes two round trips, unless
//! calls join while the lock is waited for, or the batch has operations, records or documents of effects.

use std::time::Instant;

use admit_core::Fault;
use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::super::WriteCommand;
use super::super::batch::{Batch, BatchError, Delivery, LookedUp, Lookup};
use super::super::commit_token::Token;
use super::super::conn::{self, CommitError, Conn, OwnedQuery};
use super::super::fault;
use super::super::head_lock::{self, Position, TransactionStart};
use super::super::write_op::{ErasedWriteOp, Tx};
use super::{PreparedBatch, WriteError, Writer};
use crate::common::commit_batch::CommitBatch;
use crate::common::write_command::{Outcomes, rejected};
use crate::tables::retention;

/// Why a batch is not written.
enum GroupError {
    /// The event at `index` cannot be recorded; without it the others can.
    Poisoned { index: usize, fault: Fault },
    /// An operation was rejected for its content; with a savepoint each, the others can be written.
    Rejected(conn::Error),
    /// COMMIT was sent and got no reply.
    NoReply(PreparedBatch, conn::Error),
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
    /// Writes and commits a batch, leaving out what cannot be written.
    pub(super) fn write(
        &mut self,
        conn: &Conn,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<PreparedBatch, WriteError> {
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
                Err(GroupError::All(error)) => return Err(WriteError::Before(error)),
                Err(GroupError::NoReply(prepared, error)) => {
                    return Err(WriteError::NoReply(prepared, error));
                }
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
        while group.next().is_some() {}
        let token = Token::draw()?;
        let lookup = Lookup::of(self.quota, deliveries(group.commands()));
        let (epoch, before, results) = self.begin(conn, token, lookup.queries())?;
        let mut looked_up = lookup.load(results)?;
        self.join_waiting(conn, group, &mut looked_up)?;
        let entries: usize = group.commands().iter().map(|command| command.entries().len()).sum();
        self.partitions.make_room(conn, before.last_seq.0 + 2 * entries as u64)?;
        let (outcomes, batch, mut position) = match savepoints.entries {
            true => {
                let (outcomes, position) = self.record_one_by_one(conn, epoch, before, group)?;
                (outcomes, None, position)
            }
            false => {
                let (outcomes, batch) = record(conn, epoch, before, poisoned, group, looked_up)?;
                (outcomes, batch, before)
            }
        };
        let prepared = PreparedBatch { token, outcomes };
        if group.ops().next().is_none() {
            return commit(conn, batch, before, position, prepared);
        }
        // Operations read what the batch has written.
        if let Some(batch) = batch {
            position = batch.flush()?;
        }
        self.write_ops(conn, epoch, &mut position, savepoints, group)?;
        commit(conn, None, before, position, prepared)
    }

    /// Lets calls join that arrived while the lock was waited for, if they are as many as the batch has: then
    /// one more round trip is less than another commit.
    fn join_waiting(
        &self,
        conn: &Conn,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
        looked_up: &mut LookedUp,
    ) -> conn::Result<()> {
        let known = group.commands().len();
        // The calls of the batch count as waiting too, until it is written.
        if known == 0 || self.gauges.waiting() < 2 * known as u64 {
            return Ok(());
        }
        while group.next().is_some() {}
        if group.commands().len() == known {
            return Ok(());
        }
        let late = Lookup::of(self.quota, deliveries(&group.commands()[known..]));
        let results = conn.query_all(&late.queries())?;
        looked_up.absorb(late.load(results)?);
        Ok(())
    }

    /// Executes the write operations of the batch.
    fn write_ops(
        &self,
        conn: &Conn,
        epoch: u64,
        position: &mut Position,
        savepoints: Savepoints,
        group: &mut CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    ) -> Result<(), GroupError> {
        let (own, may_recover_others) = (self.lease.own(), self.lease.may_recover_others(epoch));
        let mut tx = Tx { conn, epoch, own: &own, may_recover_others, position };
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
        Ok(())
    }

    /// Begins the transaction: acquires the head lock, checks the lease, inserts the commit token and runs the
    /// lookups.
    fn begin(
        &mut self,
        conn: &Conn,
        token: Token,
        lookups: Vec<OwnedQuery<'_>>,
    ) -> Result<(u64, Position, Vec<Vec<Row>>), BatchError> {
        let began = Instant::now();
        let (epoch, renew) = (self.lease.epoch(), self.lease.renewal());
        let start = TransactionStart { epoch, token: token.as_bytes(), renew };
        let (locked, results) = head_lock::begin(conn, &start, lookups)?;
        if !locked.is_alive {
            if self.lease.is_taken(conn)? {
                return Err(BatchError::Replaced);
            }
            if self.lease.bus_is_taken(conn)? {
                return Err(BatchError::BusTaken);
            }
            return Ok((self.lease.renew_epoch(conn, began)?, locked.position, results));
        }
        if renew.is_some() {
            self.lease.renews(began);
            self.partitions.make_room_ahead(conn, locked.position.last_seq.0)?;
            if let Some(at) = retention::forgotten_to(conn)? {
                self.horizon.forget_to(at);
            }
        }
        Ok((epoch, locked.position, results))
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
        for delivery in deliveries(group.commands()) {
            let record = || {
                let (entry, issue) = delivery;
                let lookup = Lookup::of(self.quota, std::iter::once(delivery));
                let results = conn.query_all(&lookup.queries())?;
                let looked_up = lookup.load(results)?;
                let mut batch = Batch::new(conn, epoch, position, looked_up, &[delivery])?;
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

/// Records the entries of the batch in memory.
fn record<'c>(
    conn: &'c Conn,
    epoch: u64,
    position: Position,
    poisoned: &[(usize, Fault)],
    group: &CommitBatch<'_, Box<dyn ErasedWriteOp>>,
    looked_up: LookedUp,
) -> Result<(Outcomes, Option<Batch<'c>>), GroupError> {
    let deliveries: Vec<Delivery<'_>> = deliveries(group.commands()).collect();
    if deliveries.is_empty() {
        return Ok((Outcomes::new(), None));
    }
    let mut batch = Batch::new(conn, epoch, position, looked_up, &deliveries)?;
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
    Ok((outcomes, Some(batch)))
}

/// Writes the rest of a transaction and commits it, in one round trip.
fn commit(
    conn: &Conn,
    mut batch: Option<Batch<'_>>,
    before: Position,
    position: Position,
    prepared: PreparedBatch,
) -> Result<PreparedBatch, GroupError> {
    let (mut writes, position) = match &mut batch {
        Some(batch) => batch.writes()?,
        None => (Vec::new(), position),
    };
    if position != before {
        writes.push(head_lock::put(&position));
    }
    match conn.commit(&writes) {
        Ok(()) => Ok(prepared),
        Err(CommitError::Before(error)) => Err(error.into()),
        Err(CommitError::NoReply(error)) => Err(GroupError::NoReply(prepared, error)),
    }
}

fn deliveries(commands: &[WriteCommand]) -> impl Iterator<Item = Delivery<'_>> + Clone {
    commands
        .iter()
        .flat_map(|command| command.entries().iter().map(|entry| (entry, command.issue())))
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
