//! Linking again what is not linked: the same rule, on events that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::record::{Link, LinkStatus, Policy, State, Told, Transition};
use admit_core::{Millis, Seq};
use rusqlite::Connection;

use super::near::{self, Near};
use super::{RecordError, publications, relinked, rows, settle, step, stored_drift};
use crate::port::Relinked;
use crate::sqlite::queries;
use crate::sqlite::task::{Tx, Work};

/// So many events are looked at in one commit.
const SLICE: i64 = 64;

/// One slice of the work.
pub(in crate::sqlite) struct Relink {
    pub(in crate::sqlite) door: String,
    pub(in crate::sqlite) policy: Arc<Policy>,
    pub(in crate::sqlite) at: Millis,
    pub(in crate::sqlite) is_dry: bool,
    /// Only events after this place.
    pub(in crate::sqlite) after: Seq,
}

impl Work for Relink {
    /// What this slice came to, and where the next one begins.
    type Answer = (Relinked, Option<Seq>);

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let open: Vec<Seq> = tx
            .conn
            .prepare_cached(queries::RECORD_OPEN)?
            .query_map((&self.door, self.after.0, SLICE), |row| row.get(0).map(Seq))?
            .collect::<rusqlite::Result<_>>()?;
        tx.conn.prepare_cached("SAVEPOINT relink")?.execute([])?;
        let mut relinked = Relinked::default();
        for seq in &open {
            relinked.scanned += 1;
            match self.again(tx.conn, *seq) {
                Ok(true) => relinked.updated += 1,
                Ok(false) => {}
                Err(RecordError::Sqlite(error)) => return Err(error),
                Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided)) => {
                    tracing::error!(seq = seq.0, %error, "an event of a record cannot be read");
                }
            }
        }
        if self.is_dry {
            tx.conn.prepare_cached("ROLLBACK TO relink")?.execute([])?;
        }
        tx.conn.prepare_cached("RELEASE relink")?.execute([])?;
        Ok((relinked, open.last().copied()))
    }
}

impl Relink {
    /// Looks at one event again; whether anything has changed for it.
    fn again(&self, conn: &Connection, seq: Seq) -> Result<bool, RecordError> {
        let Some((event, before)) = near::one(conn, seq)? else { return Ok(false) };
        let had_drifted = stored_drift(conn, seq)?.is_some();
        let rule = Told { policy: Arc::clone(&self.policy), event: event.clone() };
        let mut near = Near::load(conn, &self.door, &rule, &event)?;
        let resolution = near.resolve(conn, &rule, self.at)?;
        settle(conn, &self.door, &self.policy, &mut near, &resolution, self.at)?;
        let after = resolution.link(seq).cloned().unwrap_or_else(|| before.clone());
        if had_drifted {
            self.rows_again(conn, &mut near, seq, &after)?;
        }
        let is_mended = had_drifted && stored_drift(conn, seq)?.is_none();
        let is_other = after.status != before.status || after.record_id != before.record_id;
        Ok(is_other || is_mended)
    }

    /// Tries whether the rows of an event can be kept now.
    fn rows_again(
        &self,
        conn: &Connection,
        near: &mut Near,
        seq: Seq,
        link: &Link,
    ) -> Result<(), RecordError> {
        let changed = BTreeSet::from([seq]);
        let drifted = rows::write(conn, &self.policy, near, &BTreeMap::new(), &changed)?;
        if drifted.get(&seq).is_some_and(Option::is_some) {
            return Ok(());
        }
        relinked(conn, seq, link, None)?;
        if link.status == LinkStatus::Linked && link.state == State::Enriched {
            let source = near.events.iter().find(|event| event.seq == seq);
            let enriched = Transition {
                seq,
                attempt: link.attempt,
                from: State::Linked,
                to: State::Enriched,
                at: self.at,
                source: source.map(|event| event.source.clone()).unwrap_or_default(),
                fingerprint: link.fingerprint().cloned(),
                link_status: link.status,
                confidence: link.confidence,
                reason: Some(link.reason.clone()),
                record_id: link.record_id.clone(),
            };
            step(conn, &enriched, None)?;
        }
        if let Some(record_id) = &link.record_id {
            publications::catch_up(conn, record_id, self.at)?;
        }
        Ok(())
    }
}
