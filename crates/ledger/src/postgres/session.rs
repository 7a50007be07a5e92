//! A session of somebody beside the gates, for tables in the ledger's database that no gate writes.
//!
//! It blocks, and so belongs on a thread that may. A connection that broke is made again by the next
//! statement, so every statement must be one that may be said twice.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::conn::{self, Conn};
use super::connect::Connector;
use super::{OpenError, Options, Schema, aside, connect_once};

/// Why a statement gave nothing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SessionError(#[from] conn::Error);

/// One connection, made again when it breaks.
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
        let conn = aside(|| {
            let (conn, place) = connect_once(&connector)?;
            Schema { place: &place, name: &options.schema }.migrate(&conn)?;
            Ok(conn)
        })?;
        Ok(Self { connector, conn: Some(conn) })
    }

    /// A further one to the same database; it connects with its first statement.
    pub fn another(&self) -> Self {
        Self { connector: self.connector.clone(), conn: None }
    }

    /// The rows that a statement gives. It is said once more when the connection broke meanwhile.
    ///
    /// # Errors
    /// When the database says no, or cannot be reached.
    pub fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SessionError> {
        let is_fresh = self.conn.is_none();
        let asked = self.conn()?.query(sql, params);
        match asked {
            Err(_) if self.forget_if_lost() && !is_fresh => {
                tracing::debug!("the connection was lost, connecting again");
                let asked = self.conn()?.query(sql, params);
                self.forget_if_lost();
                Ok(asked?)
            }
            asked => Ok(asked?),
        }
    }

    fn conn(&mut self) -> conn::Result<&Conn> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let no_runtime = |error| conn::Error::NotOurs(format!("cannot connect: {error}"));
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
            // Without a thread it ends here; then nothing else runs here either.
            drop(std::thread::Builder::new().spawn(move || drop(conn)));
        }
    }
}
