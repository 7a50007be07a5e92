//! Proxy in front of a PostgreSQL server that loses commits.
//!
//! It parses just enough of the protocol to detect a COMMIT and simulates the worst network faults:
//! the commit succeeds and its reply is lost, the commit itself is lost, or it arrives long after
//! the sender has given up.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// COMMIT message of a client.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// Replies to a COMMIT of a transaction that is intact, or that has failed.
const ENDS: [&[u8]; 2] = [b"C\0\0\0\x0bCOMMIT\0", b"C\0\0\0\x0dROLLBACK\0"];

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Fault of the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// It reaches the server; the reply is lost with the connection.
    AnswerLost,
    /// It is lost with the connection and never reaches the server.
    Lost,
    /// The sender's connection is cut at once; the COMMIT reaches the server after this delay.
    Late(Duration),
}

#[derive(Debug, Default)]
struct CommitsState {
    next: Mutex<Option<CommitFault>>,
    is_closed: AtomicBool,
    mishaps: AtomicU64,
    connections: AtomicU64,
}

impl CommitsState {
    fn take(&self) -> Option<CommitFault> {
        let taken = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if taken.is_some() {
            self.mishaps.fetch_add(1, Ordering::SeqCst);
        }
        taken
    }
}

/// Running proxy. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct CommitProxy {
    address: SocketAddr,
    state: Arc<CommitsState>,
    cut: watch::Sender<u64>,
    runtime: Option<Runtime>,
}

impl CommitProxy {
    /// Starts a proxy to `upstream` on a free port.
    ///
    /// # Errors
    /// If no port or thread is available.
    pub fn to(upstream: SocketAddr) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let state = Arc::new(CommitsState::default());
        let (cut, cuts) = watch::channel(0);
        runtime.spawn(accept(listener, upstream, Arc::clone(&state), cuts));
        Ok(Self { address, state, cut, runtime: Some(runtime) })
    }

    /// URL of the same database through the proxy.
    ///
    /// # Panics
    /// If the URL has no host and port.
    pub fn url(&self, direct: &str) -> String {
        let from = direct.find('@').expect("the address names a user") + 1;
        let to = from + direct[from..].find('/').expect("the address names a database");
        format!("{}{}{}", &direct[..from], self.address, &direct[to..])
    }

    /// Sets the fault of the next COMMIT.
    pub fn spoil_next(&self, mishap: CommitFault) {
        *self.state.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(mishap);
    }

    /// Blocks all connections until [`Self::open`].
    pub fn close(&self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
    }

    /// Unblocks connections.
    pub fn open(&self) {
        self.state.is_closed.store(false, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        self.cut.send_modify(|generation| *generation += 1);
    }

    /// Number of faulty commits.
    pub fn mishaps(&self) -> u64 {
        self.state.mishaps.load(Ordering::SeqCst)
    }

    /// Number of forwarded connections.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for CommitProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    state: Arc<CommitsState>,
    cuts: watch::Receiver<u64>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        if state.is_closed.load(Ordering::SeqCst) {
            continue;
        }
        state.connections.fetch_add(1, Ordering::SeqCst);
        let (state, mut cut) = (Arc::clone(&state), cuts.clone());
        cut.mark_unchanged();
        connections.spawn(async move {
            let late = tokio::select! {
                ended = carry(client, upstream, &state) => ended.unwrap_or_default(),
                _ = cut.changed() => None,
            };
            // Outlives the connection, which its sender has given up.
            if let Some(late) = late {
                late.arrive().await.unwrap_or_default();
            }
        });
    }
}

/// Forwards one connection until either end, or a fault, closes it.
async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    state: &CommitsState,
) -> io::Result<Option<DelayedCommit>> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let met = tokio::select! {
        met = forth(from_client, &mut to_server, state) => met?,
        ended = back(&mut from_server, to_client) => return ended.map(|()| None),
    };
    // The client side is closed: the sender gets no reply.
    let delay = match met {
        None | Some(CommitFault::Lost) => return Ok(None),
        Some(CommitFault::AnswerLost) => Duration::ZERO,
        Some(CommitFault::Late(delay)) => delay,
    };
    Ok(Some(DelayedCommit { delay, from_server, to_server }))
}

/// Delayed COMMIT whose reply is discarded.
struct DelayedCommit {
    delay: Duration,
    from_server: OwnedReadHalf,
    to_server: OwnedWriteHalf,
}

impl DelayedCommit {
    async fn arrive(mut self) -> io::Result<()> {
        sleep(self.delay).await;
        self.to_server.write_all(COMMIT).await?;
        // The reply proves that it was executed or rejected by the server. Those to earlier statements come first.
        let mut replies = Vec::new();
        let is_done = |replies: &[u8]| ENDS.iter().any(|end| contains(replies, end));
        while !is_done(&replies) && self.from_server.read_buf(&mut replies).await? > 0 {}
        Ok(())
    }
}

/// Forwards client messages up to a COMMIT with a fault.
async fn forth(
    mut from: OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    state: &CommitsState,
) -> io::Result<Option<CommitFault>> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(None);
        }
        let Some(before) = bytes[..read].strip_suffix(COMMIT) else {
            to.write_all(&bytes[..read]).await?;
            continue;
        };
        // Statements of the transaction may be sent together with its COMMIT.
        to.write_all(before).await?;
        if let Some(mishap) = state.take() {
            return Ok(Some(mishap));
        }
        to.write_all(COMMIT).await?;
    }
}

async fn back(from: &mut OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..read]).await?;
    }
}
