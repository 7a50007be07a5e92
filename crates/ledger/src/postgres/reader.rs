//! Questions: a bounded pool of connections that only read.

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
use crate::common::answer::{Answer, opened};

/// A question, which may be asked a second time.
type Read = Arc<dyn Fn(&Conn, u32) -> Result<Answer> + Send + Sync>;

/// A pool of read connections.
#[derive(Clone)]
pub(super) struct Asking {
    pool: Pool,
    tag: u32,
    answer_max: Duration,
    handle: Handle,
}

/// The same with the threads that carry it.
pub(super) struct Readers {
    asking: Asking,
    runtime: Option<Runtime>,
}

impl Readers {
    pub(super) fn new(
        options: &Options,
        connector: &Connector,
        tag: u32,
    ) -> std::result::Result<Self, OpenError> {
        let thread = |source| OpenError::Thread { source };
        // A runtime of its own: whoever asks may live in one that is ended before the ledger is.
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
        let asking = Asking { pool, tag, answer_max: connector.answer_max(), handle };
        Ok(Self { asking, runtime: Some(runtime) })
    }

    pub(super) fn tag(&self) -> u32 {
        self.asking.tag
    }

    /// Has `work` done beside everything else, for as long as the ledger is open.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.asking.handle.spawn(work);
    }

    /// For whoever asks on its own account.
    pub(super) fn asking(&self) -> Asking {
        self.asking.clone()
    }

    /// Runs `read` on a connection; see [`Asking::read`].
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&Conn, u32) -> Result<T> + Send + Sync + 'static,
    ) -> impl Future<Output = std::result::Result<T, Fault>> + Send + '_ {
        self.asking.read(read)
    }
}

impl Asking {
    /// Runs `read` on a connection, away from the async threads. Where the connection turns out to
    /// be dead, on another one once more: reading changes nothing.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&Conn, u32) -> Result<T> + Send + Sync + 'static,
    ) -> std::result::Result<T, Fault> {
        let read: Read = Arc::new(move |conn, tag| Ok(Box::new(read(conn, tag)?)));
        let asked = self.handle.spawn(self.clone().ask(read));
        opened(asked.await.map_err(|_| gone())??).ok_or_else(gone)
    }

    async fn ask(self, read: Read) -> std::result::Result<Answer, Fault> {
        let mut is_second = false;
        loop {
            let object = self.pool.get().await.map_err(no_reader)?;
            let (asking, read) = (self.clone(), Arc::clone(&read));
            let asked = tokio::task::spawn_blocking(move || {
                let conn = Conn::lent(object, asking.handle, asking.answer_max);
                let answer = read(&conn, asking.tag);
                let is_lost = conn.is_lost();
                conn.give_back();
                (answer, is_lost)
            });
            match asked.await.map_err(|_| gone())? {
                (Err(_), true) if !is_second => is_second = true,
                (answer, _) => return answer.map_err(unreadable),
            }
        }
    }
}

fn gone() -> Fault {
    Fault::new(FaultKind::Internal, "the ledger's readers are gone")
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.asking.pool.close();
        if let Some(runtime) = self.runtime.take() {
            // Waiting here would block whoever drops the ledger inside a runtime.
            runtime.shutdown_background();
        }
    }
}
