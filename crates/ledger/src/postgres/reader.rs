//! Bounded pool of read-only connections.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use admit_core::{Fault, FaultKind};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime as PoolRuntime};
use tokio::runtime::{Handle, Runtime};

use super::conn::{Conn, Result};
use super::connect::Connector;
use super::fault::{no_reader, unreadable};
use super::{OpenError, Options};
use crate::common::query_result::{QueryResult, downcast};

/// A query that can be retried.
type Read = Arc<dyn Fn(&Conn, u32) -> Result<QueryResult> + Send + Sync>;

/// Handle of the pool.
#[derive(Clone)]
pub(super) struct ReadPool {
    pool: Pool,
    tag: u32,
    answer_max: Duration,
    handle: Handle,
}

/// The pool with its runtime.
pub(super) struct Readers {
    pool_handle: ReadPool,
    runtime: Option<Runtime>,
}

impl Readers {
    pub(super) fn new(
        options: &Options,
        connector: &Connector,
        tag: u32,
    ) -> Result<Self, OpenError> {
        let thread = |source| OpenError::Thread { source };
        // A runtime of its own: the caller's runtime may end before the ledger does.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(options.readers_max + 1)
            .thread_name("ledger-reader")
            .enable_all()
            .build()
            .map_err(thread)?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(connector.config(), connector.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(options.readers_max)
            .runtime(PoolRuntime::Tokio1)
            .wait_timeout(Some(options.reader_wait))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .build()
            .map_err(|error| thread(std::io::Error::other(error)))?;
        let handle = runtime.handle().clone();
        let pool_handle = ReadPool { pool, tag, answer_max: connector.answer_max(), handle };
        Ok(Self { pool_handle, runtime: Some(runtime) })
    }

    pub(super) fn tag(&self) -> u32 {
        self.pool_handle.tag
    }

    /// Spawns a background task that runs for as long as the ledger is open.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.pool_handle.handle.spawn(work);
    }

    /// Returns a handle of the pool.
    pub(super) fn pool_handle(&self) -> ReadPool {
        self.pool_handle.clone()
    }

    /// Runs `read` on a connection; see [`ReadPool::read`].
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&Conn, u32) -> Result<T> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send + '_ {
        self.pool_handle.read(read)
    }
}

impl ReadPool {
    /// Runs `read` on a connection, off the async threads. Retries once on another connection if the first is
    /// dead: reading has no side effects.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&Conn, u32) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T, Fault> {
        let read: Read = Arc::new(move |conn, tag| Ok(Box::new(read(conn, tag)?)));
        let task = self.handle.spawn(self.clone().run(read));
        downcast(task.await.map_err(|_| gone())??).ok_or_else(gone)
    }

    async fn run(self, read: Read) -> Result<QueryResult, Fault> {
        let mut is_second = false;
        loop {
            let object = self.pool.get().await.map_err(no_reader)?;
            let (pool_handle, read) = (self.clone(), Arc::clone(&read));
            let task = tokio::task::spawn_blocking(move || {
                let conn = Conn::pooled(object, pool_handle.handle, pool_handle.answer_max);
                let result = read(&conn, pool_handle.tag);
                let is_lost = conn.is_lost();
                conn.give_back();
                (result, is_lost)
            });
            match task.await.map_err(|_| gone())? {
                (Err(_), true) if !is_second => is_second = true,
                (result, _) => return result.map_err(unreadable),
            }
        }
    }
}

fn gone() -> Fault {
    Fault::new(FaultKind::Internal, "the ledger's readers are gone")
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.pool_handle.pool.close();
        if let Some(runtime) = self.runtime.take() {
            // Waiting here would block a runtime in which the ledger is dropped.
            runtime.shutdown_background();
        }
    }
}
