//! Sessions of other components, for tables in the ledger's database that no gate writes.
//!
//! A session blocks, so it belongs on a thread that may. A broken connection is replaced with the next
//! statement, so every statement must be safe to execute twice.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::conn::{self, Conn};
use super::connect::Connector;
use super::{OpenError, Options, Schema, connect_once, on_blocking_thread};

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SessionError(#[from] conn::Error);

/// One connection, replaced when it breaks.
pub struct Session {
    connector: Connector,
    conn: Option<Conn>,
}

impl Session {
    /// Connects, and brings the tables to the version of this build.
    ///
    /// # Errors
    /// When the database cannot be reached or is not for us.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let connector = Connector::new(options)?;
        let conn = on_blocking_thread(|| {
            let (conn, place) = connect_once(&connector)?;
            Schema { place: &place, name: &options.schema }.migrate(&conn)?;
            Ok(conn)
        })?;
        Ok(Self { connector, conn: Some(conn) })
    }

    /// Another session of the same database; it connects with its first statement.
    pub fn another(&self) -> Self {
        Self { connector: self.connector.clone(), conn: None }
    }

    /// Returns the rows of a statement. Retried once if the connection broke.
    ///
    /// # Errors
    /// When the statement fails, or the database cannot be reached.
    pub fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SessionError> {
        let is_fresh = self.conn.is_none();
        let result = self.conn()?.query(sql, params);
        match result {
            Err(_) if self.forget_if_lost() && !is_fresh => {
                tracing::debug!("the connection was lost, connecting again");
                let result = self.conn()?.query(sql, params);
                self.forget_if_lost();
                Ok(result?)
            }
            result => Ok(result?),
        }
    }

    fn conn(&mut self) -> conn::Result<&Conn> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let no_runtime =
                    |error| conn::Error::Unexpected(format!("cannot connect: {error}"));
                self.connector.own(&std::sync::Arc::new(runtime.map_err(no_runtime)?))?
            }
        };
        Ok(self.conn.insert(conn))
    }

    fn forget_if_lost(&mut self) -> bool {
        let is_lost = self.conn.as_ref().is_none_or(Conn::is_lost);
        if is_lost {
            self.conn = None;
        }
        is_lost
    }
}

impl Drop for Session {
    /// The connection has a runtime of its own, which must not end on a thread of another one.
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // If no thread can be started it ends here; then nothing else runs here either.
            drop(std::thread::Builder::new().spawn(move || drop(conn)));
        }
    }
}
