//! A commit whose answer was lost, found out for certain.
//!
//! Every transaction puts a token of its own into a table before anything else. After COMMIT was sent
//! and no answer came, the same token is put in again, from a new connection. That waits for the old
//! transaction, wherever it is, and then there are two cases and no third: the token is there, so
//! the old transaction is in the ledger; or it was not and is now, so the old one can never land.
//! Looking without putting in would prove nothing: the commit may arrive a moment later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::conn::{self, Columns, Conn, Error, big};
use super::connect::Connector;
use super::sql;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// What a transaction is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token([u8; 16]);

impl Token {
    pub(super) fn draw() -> conn::Result<Self> {
        let mut bytes = [0; 16];
        let none = |error| Error::NotOurs(format!("no randomness: {error}"));
        getrandom::fill(&mut bytes).map_err(none)?;
        Ok(Self(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is in the ledger.
    Landed,
    /// It is not, and never will be.
    Never,
}

/// Finds out what became of the transaction with `token`, on new connections, for at most `within`.
/// With the answer comes a connection that works; without one, the last error.
pub(super) fn fate(
    connector: &Connector,
    runtime: &Arc<Runtime>,
    token: Token,
    epoch: u64,
    within: Duration,
) -> Result<(Fate, Conn), Error> {
    let began = Instant::now();
    loop {
        let asked = connector.own(runtime).and_then(|conn| {
            let fate = ask(&conn, token, epoch)?;
            Ok((fate, conn))
        });
        match asked {
            Ok(known) => return Ok(known),
            Err(error) if began.elapsed() + PAUSE >= within => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "what became of a commit is not known yet");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// One try. The fence is a commit of its own; should its answer be lost too, the next try finds it
/// and knows whose it is.
fn ask(conn: &Conn, token: Token, epoch: u64) -> conn::Result<Fate> {
    let bytes = token.as_bytes();
    if conn.execute(sql!("token_put"), &[&bytes, &big(epoch), &true])? > 0 {
        return Ok(Fate::Never);
    }
    let is_fence: bool = conn.query_one(sql!("token_get"), &[&bytes])?.val("is_fence")?;
    Ok(if is_fence { Fate::Never } else { Fate::Landed })
}
