//! PostgreSQL server for tests: the distribution's, in its own folder and on its own port.
//!
//! Most tests use [`database`]: a new database on a server shared by the tests of a process.
//! `ADMIT_TEST_POSTGRES=postgres://…` names a running server instead; the user must be allowed to
//! create databases there. Without a server the test is skipped ([`skip`](mod@crate::skip)).

mod commits;
mod server;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::skip::skip;

pub use commits::{CommitFault, CommitProxy};
pub use server::Server;

/// Database of one test. Dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    /// URL: `postgres://…`.
    pub url: String,
    name: String,
    admin: String,
    _server: Option<Arc<Server>>,
}

/// Server shared by the tests of this process, while one of them needs it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// Creates an empty database; `None`, with a message, if there is no server.
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

    /// Address of its server, for proxies.
    ///
    /// # Panics
    /// If the URL has no host and port.
    pub fn address(&self) -> SocketAddr {
        let host = self.url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let host = host.expect("the address names a host");
        let mut found = host.to_socket_addrs().expect("the host can be found");
        found.next().expect("the host has an address")
    }

    /// Runs SQL in the database and returns the output of `psql`: rows, unaligned.
    ///
    /// # Errors
    /// Returns the error output of `psql`.
    pub fn run(&self, sql: &str) -> Result<String, String> {
        psql(&self.url, sql)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // If the server is gone, so is the database.
        psql(&self.admin, &drop).unwrap_or_default();
    }
}

/// Runs SQL with `psql` and returns its output.
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

/// Replaces the database in a URL: the part between the last slash and the parameters.
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

/// Number that is unique across tests.
fn draw() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Reports why a test is skipped.
fn missing<T>(why: &str) -> Option<T> {
    skip(why);
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
