//! What PostgreSQL verifies in its own way: its structure, and the claims of keys in an index.

mod indexes;

use std::time::Duration;

use admit_core::{Key, Seq};

use super::conn::{Conn, Error, Result};
use super::connect::Connector;
use super::migrate::Schema;
use super::{OpenError, Options, connect_once, sql};
use crate::db::Columns;
use crate::tables::verify::{SqlRows, VerifyDb};
use crate::verify::{
    Disagreement, DisagreementSink, EachKey, KeyRow, SLICE_ROWS, Structure, Verifier,
    VerifyCounters,
};

/// Timeout of one consistency query.
const LAW_MAX: Duration = Duration::from_secs(3_600);

/// Opens the ledger for verification. `forgets` is whether retention has removed anything from it.
pub fn verifier(options: &Options, forgets: bool) -> std::result::Result<Verifier, OpenError> {
    let (conn, place) = connect_once(&Connector::new(options)?)?;
    Schema { place: &place, name: &options.schema }.check(&conn)?;
    let counters = || -> Result<VerifyCounters> {
        let row = conn.query_one(sql!("verify_counters"), &[])?;
        Ok(VerifyCounters {
            last: row.seq("last_seq")?,
            admissions: row.num("admissions")?,
            sightings: row.num("sightings")?,
        })
    };
    let fail = |error: Error| OpenError::Database { place: place.clone(), source: error.into() };
    let counters = counters().map_err(fail)?;
    Ok(Verifier::new(Box::new(SqlRows { db: conn }), counters, forgets))
}

impl VerifyDb for Conn {
    /// Reports invalid indexes and constraints, and checks every index if the extension `amcheck` can be
    /// used.
    fn structure(&self, found: &mut DisagreementSink<'_>) -> Result<Structure> {
        let mut report = |name: &str, problem: &str| {
            let message = format!("{name}: {problem}");
            found(Disagreement { at: None, check: "structure", message });
        };
        for row in self.query(sql!("verify_indexes"), &[])? {
            report(&row.text("name")?, &row.text("problem")?);
        }
        indexes::check(self, &mut report)
    }

    fn keys(&self, after: &[u8], each: &mut EachKey<'_>) -> Result<Option<Vec<u8>>> {
        let found = self.query(sql!("verify_keys"), &[&after, &SLICE_ROWS])?;
        for row in &found {
            let verdict = row.text_opt("verdict")?;
            let named = row.bytes_opt("admission_key")?.unwrap_or_default();
            let is_its_key = row.bytes("key")? == named;
            let (seq, verdict) = (row.seq("seq")?, verdict.as_deref());
            each(KeyRow { seq, is_its_key, is_in_place: true, verdict });
        }
        let last = found.last().filter(|_| found.len() as i64 == SLICE_ROWS);
        last.map(|row| row.bytes("key")).transpose()
    }

    fn claim_of(
        &self,
        row: &dyn Columns<Error = Error>,
        _: Option<&Key>,
    ) -> Result<(Option<Seq>, Option<Key>)> {
        Ok((row.seq_opt("claimed_by")?, None))
    }

    fn unhurried<T>(&self, query: impl FnOnce() -> Result<T>) -> Result<T> {
        self.batch("BEGIN READ ONLY; SET LOCAL statement_timeout = 0")?;
        let found = self.with_timeout(LAW_MAX, query);
        self.batch("ROLLBACK")?;
        found
    }
}
