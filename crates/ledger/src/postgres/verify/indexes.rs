//! Checks indexes with the extension `amcheck`.
//!
//! If it is installed and this user may call it, it is used. If not, it is created for the duration of one
//! transaction, if this user may do that, and rolled back. Every index is checked in its own transaction, so
//! that no old snapshot is held for long.

use std::time::Duration;

use super::super::conn::{Columns, Conn, Error, Result};
use super::super::connect::identifier;
use super::super::sql;
use crate::verify::Structure;

/// Timeout of one index.
const INDEX_MAX: Duration = Duration::from_secs(24 * 3600);

/// Begins a transaction without server timeouts.
const BEGIN_UNLIMITED: &str = "BEGIN; SET LOCAL statement_timeout = 0; \
                       SET LOCAL idle_in_transaction_session_timeout = 0";

/// Location of the extension.
enum Checker {
    /// Installed in this schema.
    In(String),
    /// Not installed; created for the check.
    Missing,
}

/// Result of one index.
enum IndexResult {
    Whole,
    /// Dropped meanwhile: retention drops old partitions.
    Gone,
    Broken(String),
    /// Cannot be checked, and neither can the others.
    Not(String),
}

/// Checks every b-tree of the schema, if possible.
pub(super) fn check(conn: &Conn, report: &mut dyn FnMut(&str, &str)) -> Result<Structure> {
    let checker = conn.query_one(sql!("verify_checker"), &[])?;
    let checker = match checker.val::<Option<String>>("schema")? {
        Some(_) if !checker.val::<bool>("is_allowed")? => {
            let why =
                "this user may not call amcheck; grant it execute on bt_index_check".to_owned();
            return Ok(Structure { indexes: 0, unchecked: Some(why) });
        }
        Some(schema) => Checker::In(schema),
        None => Checker::Missing,
    };
    let mut structure = Structure::default();
    for row in conn.query(sql!("verify_btrees"), &[])? {
        let (id, name) = (row.val::<i64>("id")?, row.text("name")?);
        match one(conn, &checker, id)? {
            IndexResult::Whole => structure.indexes += 1,
            IndexResult::Gone => {}
            IndexResult::Broken(problem) => {
                structure.indexes += 1;
                report(&name, &problem);
            }
            IndexResult::Not(why) => {
                structure.unchecked = Some(why);
                break;
            }
        }
    }
    Ok(structure)
}

/// Checks one index in a transaction that leaves nothing.
fn one(conn: &Conn, checker: &Checker, id: i64) -> Result<IndexResult> {
    conn.batch(BEGIN_UNLIMITED)?;
    let checked = conn.with_timeout(INDEX_MAX, || match checker {
        Checker::In(schema) => run_check(conn, &format!("{}.", identifier(schema)), id),
        // Invisible to other sessions until it is rolled back.
        Checker::Missing => match conn.batch("CREATE EXTENSION amcheck") {
            Ok(()) => run_check(conn, "", id),
            Err(error) => missing(error),
        },
    });
    conn.batch("ROLLBACK")?;
    checked
}

/// Checks the order of an index, and that it has an entry for every row of its table.
fn run_check(conn: &Conn, place: &str, id: i64) -> Result<IndexResult> {
    let check = format!("SELECT {place}bt_index_check({id}::bigint::oid::regclass, true)");
    match conn.query_once(&check) {
        Ok(_) => Ok(IndexResult::Whole),
        Err(Error::Server(error)) => match error.as_db_error().map(|problem| problem.code().code())
        {
            Some(code) if code.starts_with("XX") => {
                Ok(IndexResult::Broken(Error::Server(error).to_string()))
            }
            Some("42704" | "42P01") => Ok(IndexResult::Gone),
            Some("42501") => Ok(IndexResult::Not(format!("amcheck: {}", Error::Server(error)))),
            _ => Err(Error::Server(error)),
        },
        Err(error) => Err(error),
    }
}

/// Why the extension could not be created: it is not on the server, this user may not, or it is a standby.
fn missing(error: Error) -> Result<IndexResult> {
    let Error::Server(error) = error else { return Err(error) };
    if error.as_db_error().is_none() {
        return Err(Error::Server(error));
    }
    let why = format!(
        "amcheck is not installed and could not be for the time of this check ({}); have an \
         administrator run: CREATE EXTENSION amcheck",
        Error::Server(error)
    );
    Ok(IndexResult::Not(why))
}
