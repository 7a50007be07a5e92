//! Indexes, looked into by the database's own checker, the extension `amcheck`.
//!
//! Where it is installed and this user may call it, it is called. Where it is not, it is created for
//! the time of one transaction, if this user may do that, and nothing of it stays. Every index is a
//! transaction of its own, so that nothing old is held for long.

use std::time::Duration;

use super::super::conn::{Columns, Conn, Error, Result};
use super::super::connect::identifier;
use super::super::sql;
use crate::verify::Structure;

/// How long one index may take.
const INDEX_MAX: Duration = Duration::from_secs(24 * 3600);

/// Begins a transaction that may take as long.
const PATIENT: &str = "BEGIN; SET LOCAL statement_timeout = 0; \
                       SET LOCAL idle_in_transaction_session_timeout = 0";

/// Where the checker is.
enum Checker {
    /// In this schema.
    In(String),
    /// Nowhere; whoever wants it makes it.
    Missing,
}

/// What became of one index.
enum Checked {
    Whole,
    /// It is gone: retention drops old partitions.
    Gone,
    Broken(String),
    /// Nobody knows, and of the others neither.
    Not(String),
}

/// Has every b-tree of the schema checked, as far as that can be done.
pub(super) fn check(conn: &Conn, complain: &mut dyn FnMut(&str, &str)) -> Result<Structure> {
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
            Checked::Whole => structure.indexes += 1,
            Checked::Gone => {}
            Checked::Broken(said) => {
                structure.indexes += 1;
                complain(&name, &said);
            }
            Checked::Not(why) => {
                structure.unchecked = Some(why);
                break;
            }
        }
    }
    Ok(structure)
}

/// Checks one index in a transaction that leaves nothing.
fn one(conn: &Conn, checker: &Checker, id: i64) -> Result<Checked> {
    conn.batch(PATIENT)?;
    let checked = conn.patiently(INDEX_MAX, || match checker {
        Checker::In(schema) => look(conn, &format!("{}.", identifier(schema)), id),
        // Nobody else sees it before it is gone again.
        Checker::Missing => match conn.batch("CREATE EXTENSION amcheck") {
            Ok(()) => look(conn, "", id),
            Err(error) => missing(error),
        },
    });
    conn.batch("ROLLBACK")?;
    checked
}

/// What the checker says of an index: its order, and that it leads to every row of its table.
fn look(conn: &Conn, place: &str, id: i64) -> Result<Checked> {
    let check = format!("SELECT {place}bt_index_check({id}::bigint::oid::regclass, true)");
    match conn.query_once(&check) {
        Ok(_) => Ok(Checked::Whole),
        Err(Error::Server(error)) => match error.as_db_error().map(|said| said.code().code()) {
            Some(code) if code.starts_with("XX") => {
                Ok(Checked::Broken(Error::Server(error).to_string()))
            }
            Some("42704" | "42P01") => Ok(Checked::Gone),
            Some("42501") => Ok(Checked::Not(format!("amcheck: {}", Error::Server(error)))),
            _ => Err(Error::Server(error)),
        },
        Err(error) => Err(error),
    }
}

/// Why the checker could not be made: it is not on the server, this user may not, or it is a standby.
fn missing(error: Error) -> Result<Checked> {
    let Error::Server(error) = error else { return Err(error) };
    if error.as_db_error().is_none() {
        return Err(Error::Server(error));
    }
    let why = format!(
        "amcheck is not installed and could not be for the time of this check ({}); have an \
         administrator run: CREATE EXTENSION amcheck",
        Error::Server(error)
    );
    Ok(Checked::Not(why))
}
