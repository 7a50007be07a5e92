//! A PostgreSQL server for tests: Debian's own, in a folder and on a port of its own.
//!
//! [`database`] is what most tests want: a new database on a server that the tests of a process
//! share. `ADMIT_TEST_POSTGRES=postgres://…` names a server that runs already; the user must be
//! allowed to create databases there. Where there is no server the test says so and is left out,
//! unless `ADMIT_TESTS_STRICT=1` makes that a failure.

mod commits;
mod server;

use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use commits::{CommitProxy, Mishap};
pub use server::Server;

/// A database of one test. Dropping it drops the database.
#[derive(Debug)]
pub struct TestDatabase {
    /// Where it is: `postgres://…`.
    pub url: String,
    name: String,
    admin: String,
    _server: Option<Arc<Server>>,
}

/// The server that the tests of this process share, for as long as one of them needs it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// A new, empty database; `None` where there is no server, which has been said.
pub fn database() -> Option<TestDatabase> {
    if let Ok(admin) = std::env::var("ADMIT_TEST_POSTGRES") {
        return TestDatabase::create(&admin, None);
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = match shared.upgrade() {
        Some(server) => server,
        None => Arc::new(Server::start()?),
    };
    *shared = Arc::downgrade(&server);
    drop(shared);
    let admin = server.url("postgres");
    TestDatabase::create(&admin, Some(server))
}

impl TestDatabase {
    fn create(admin: &str, server: Option<Arc<Server>>) -> Option<Self> {
        let name = format!("admit_{:016x}", draw());
        let made = psql(admin, &format!("CREATE DATABASE {name}"));
        if let Err(error) = made {
            return missing(&format!("no database on the server: {error}"));
        }
        let url = with_database(admin, &name);
        Some(Self { url, name, admin: admin.to_owned(), _server: server })
    }

    /// Where its server listens, for whoever stands before it.
    ///
    /// # Panics
    /// When the address names no host and port.
    pub fn address(&self) -> SocketAddr {
        let host = self.url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let host = host.expect("the address names a host");
        let mut found = host.to_socket_addrs().expect("the host can be found");
        found.next().expect("the host has an address")
    }

    /// Runs SQL in it beside the ledger, and returns what `psql` prints: rows, unaligned.
    ///
    /// # Errors
    /// What `psql` says.
    pub fn run(&self, sql: &str) -> Result<String, String> {
        psql(&self.url, sql)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A server that is gone has no database either.
        psql(&self.admin, &drop).unwrap_or_default();
    }
}

/// Runs SQL with `psql` and returns what it prints.
fn psql(url: &str, sql: &str) -> Result<String, String> {
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]);
    let output = command.output().map_err(|error| format!("psql: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }
}

/// The same address with another database: what stands between the last slash and the parameters.
fn with_database(url: &str, name: &str) -> String {
    let (path, parameters) = match url.split_once('?') {
        Some((path, parameters)) => (path, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let after_host = path.find("://").map_or(0, |at| at + 3);
    let host = match path[after_host..].find('/') {
        Some(at) => &path[..after_host + at],
        None => path,
    };
    format!("{host}/{name}{parameters}")
}

/// A number that no other test draws.
fn draw() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Says why a test is left out, or fails it where nothing may be left out.
fn missing<T>(why: &str) -> Option<T> {
    assert!(std::env::var("ADMIT_TESTS_STRICT").is_err(), "{why}");
    writeln!(std::io::stderr(), "skipped: {why}").unwrap_or_default();
    None
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn an_address_keeps_all_but_its_database() {
        for (url, expected) in [
            ("postgres://u@h:1/postgres", "postgres://u@h:1/x"),
            ("postgres://u@h:1", "postgres://u@h:1/x"),
            ("postgres://u@h/a?sslmode=disable", "postgres://u@h/x?sslmode=disable"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
        }
    }
}
