//! Migrates the schema to the version of this build, once, by the first gate that starts.

use std::time::Duration;

use super::conn::{self, Columns, Conn, Error, big};
use super::connect::identifier;
use super::{OpenError, sql};
use crate::SchemaMigration;

/// Migrations in order; `admit_schema` holds the applied ones.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_ledger.sql"),
    include_str!("migrations/0002_streams.sql"),
    include_str!("migrations/0003_effects.sql"),
    include_str!("migrations/0004_inbox.sql"),
    include_str!("migrations/0005_issued.sql"),
    include_str!("migrations/0006_records.sql"),
    include_str!("migrations/0007_runner.sql"),
    include_str!("migrations/0008_closure.sql"),
    include_str!("migrations/0009_publications.sql"),
    include_str!("migrations/0010_stream.sql"),
    include_str!("migrations/0011_vacuum.sql"),
    include_str!("migrations/0012_receipt.sql"),
    include_str!("migrations/0013_clock.sql"),
    include_str!("migrations/0014_rounds.sql"),
    include_str!("migrations/0015_leases.sql"),
    include_str!("migrations/0016_round_fields.sql"),
];

/// Oldest supported server version.
const SERVER_MIN: i64 = 130_000;

/// Timeout of a migration, including the wait for one by another gate.
const MIGRATE_MAX: Duration = Duration::from_secs(3600);

/// Advisory lock under which gates that start together migrate one after the other (`ADMT`).
const LOCK: i64 = 0x4144_4d54;

/// The schema of the tables.
pub(super) struct Schema<'a> {
    pub(super) place: &'a str,
    pub(super) name: &'a str,
}

impl Schema<'_> {
    fn fail(&self, error: Error) -> OpenError {
        OpenError::Database { place: self.place.to_owned(), source: error.into() }
    }

    /// Migrates the tables to the version of this build.
    pub(super) fn migrate(&self, conn: &Conn) -> Result<SchemaMigration, OpenError> {
        if self.check_server(conn)? {
            let reason = "it is a standby, which is read-only".to_owned();
            return Err(OpenError::Unfit { place: self.place.to_owned(), reason });
        }
        let patient = "BEGIN; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0";
        conn.batch(patient).map_err(|error| self.fail(error))?;
        let migrated = conn.with_timeout(MIGRATE_MAX, || self.migrate_locked(conn));
        let ended = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
        conn.batch(ended).map_err(|error| self.fail(error))?;
        migrated
    }

    fn migrate_locked(&self, conn: &Conn) -> Result<SchemaMigration, OpenError> {
        conn.query("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).map_err(|e| self.fail(e))?;
        let create = format!("CREATE SCHEMA IF NOT EXISTS {}", identifier(self.name));
        let is_there = conn.query_opt(sql!("schema_there"), &[&self.name]);
        if is_there.map_err(|error| self.fail(error))?.is_none() {
            conn.batch(&create).map_err(|error| self.fail(error))?;
        }
        let from = self.version(conn)?;
        if from == 0 {
            self.check_owner(conn)?;
        }
        for (index, migration) in MIGRATIONS.iter().enumerate().skip(from) {
            conn.batch(migration).map_err(|error| self.fail(error))?;
            let version = big(index as u64 + 1);
            conn.execute(sql!("schema_put"), &[&version]).map_err(|error| self.fail(error))?;
        }
        self.draw_tag(conn).map_err(|error| self.fail(error))?;
        Ok(SchemaMigration { from, to: MIGRATIONS.len() })
    }

    /// Checks that the schema has the version this build needs. Changes nothing.
    pub(super) fn check(&self, conn: &Conn) -> Result<(), OpenError> {
        self.check_server(conn)?;
        let found = self.version(conn)?;
        if found < MIGRATIONS.len() {
            let (place, needed) = (self.place.to_owned(), MIGRATIONS.len());
            return Err(OpenError::Older { place, found, needed });
        }
        Ok(())
    }

    /// Returns the number of applied migrations; fails if it is newer than this build.
    fn version(&self, conn: &Conn) -> Result<usize, OpenError> {
        let read = || -> conn::Result<u64> {
            let is_there: bool =
                conn.query_one(sql!("schema_has"), &[&self.name, &"admit_schema"])?.val(0)?;
            if !is_there {
                return Ok(0);
            }
            conn.query_one("SELECT coalesce(max(version), 0) FROM admit_schema", &[])?.num(0)
        };
        let found = read().map_err(|error| self.fail(error))?;
        let (found, known) = (usize::try_from(found).unwrap_or(usize::MAX), MIGRATIONS.len());
        if found > known {
            return Err(OpenError::Newer { place: self.place.to_owned(), found, known });
        }
        Ok(found)
    }

    /// Refuses an unsupported server, and returns whether it is a read-only standby.
    fn check_server(&self, conn: &Conn) -> Result<bool, OpenError> {
        let row = conn.query_one(sql!("server"), &[]).map_err(|error| self.fail(error))?;
        let read = || -> conn::Result<(i64, String, bool)> {
            Ok((row.val("version")?, row.val("encoding")?, row.val("is_standby")?))
        };
        let (version, encoding, is_standby) = read().map_err(|error| self.fail(error))?;
        let reason = if version < SERVER_MIN {
            format!("its version is {version}, at least {SERVER_MIN} is required")
        } else if encoding != "UTF8" {
            format!("its encoding is {encoding}, UTF8 is required")
        } else {
            return Ok(is_standby);
        };
        Err(OpenError::Unfit { place: self.place.to_owned(), reason })
    }

    /// Refuses a schema with foreign tables of our names.
    fn check_owner(&self, conn: &Conn) -> Result<(), OpenError> {
        let taken = conn.query_opt(sql!("schema_taken"), &[&self.name]);
        let Some(row) = taken.map_err(|error| self.fail(error))? else { return Ok(()) };
        let table = row.text(0).map_err(|error| self.fail(error))?;
        let (place, schema) = (self.place.to_owned(), self.name.to_owned());
        Err(OpenError::NotALedger { place, schema, table })
    }

    /// Draws the number that names this ledger, once.
    fn draw_tag(&self, conn: &Conn) -> conn::Result<()> {
        let none = |error| Error::Unexpected(format!("no randomness: {error}"));
        let drawn = i64::from(getrandom::u32().map_err(none)?);
        conn.execute(sql!("head_born"), &[&drawn])?;
        Ok(())
    }
}
