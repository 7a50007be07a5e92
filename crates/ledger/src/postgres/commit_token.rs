//! Commit token: resolves the outcome of a COMMIT whose reply was lost.
//!
//! Every transaction inserts its own token into a table before anything else. If COMMIT got no reply, the
//! same token is inserted again, from a new connection. That waits for the old transaction, wherever it is,
//! and then there are two cases: the token exists, so the old transaction is in the ledger; or it was
//! inserted now as a fence, so the old transaction can never commit. Reading without inserting would prove
//! nothing: the commit may arrive a moment later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::conn::{self, Columns, Conn, Error, big};
use super::connect::Connector;
use super::sql;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Random id of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token([u8; 16]);

impl Token {
    pub(super) fn draw() -> conn::Result<Self> {
        let mut bytes = [0; 16];
        let none = |error| Error::Unexpected(format!("no randomness: {error}"));
        getrandom::fill(&mut bytes).map_err(none)?;
        Ok(Self(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    /// Committed.
    Committed,
    /// Not committed, and never will be.
    Never,
}

/// Resolves the outcome of the transaction with `token`, on new connections, for at most `within`. Returns it
/// with a working connection, or the last error.
pub(super) fn resolve(
    connector: &Connector,
    runtime: &Arc<Runtime>,
    token: Token,
    epoch: u64,
    within: Duration,
) -> Result<(CommitOutcome, Conn), Error> {
    let started = Instant::now();
    loop {
        let attempt = connector.own(runtime).and_then(|conn| {
            let resolve = try_resolve(&conn, token, epoch)?;
            Ok((resolve, conn))
        });
        match attempt {
            Ok(known) => return Ok(known),
            Err(error) if started.elapsed() + PAUSE >= within => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "could not resolve the outcome of a commit; retrying");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// One attempt. The fence is a commit of its own; if its reply is lost too, the next attempt finds the fence
/// and recognises it.
fn try_resolve(conn: &Conn, token: Token, epoch: u64) -> conn::Result<CommitOutcome> {
    let bytes = token.as_bytes();
    if conn.execute(sql!("token_put"), &[&bytes, &big(epoch), &true])? > 0 {
        return Ok(CommitOutcome::Never);
    }
    let is_fence: bool = conn.query_one(sql!("token_get"), &[&bytes])?.val("is_fence")?;
    Ok(if is_fence { CommitOutcome::Never } else { CommitOutcome::Committed })
}
