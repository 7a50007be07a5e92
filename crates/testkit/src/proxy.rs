//! TCP proxy on loopback with seeded faults.
//!
//! It is protocol-agnostic and simulates network faults: it cuts connections in the middle of a
//! message, delays bytes, and replays whole conversations over a second connection. The upstream
//! address may change at runtime.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::rng::Rng;

/// Timeout for a connection to the upstream.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Fault rates: once in this many; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Chunks of which half arrives before the connection is cut, in either direction.
    pub cut_one_in: u64,
    /// Chunks that are delayed by `stall`.
    pub stall_one_in: u64,
    /// Delay.
    pub stall: Duration,
    /// Connections whose bytes are also sent over a second connection, with its replies discarded.
    pub duplicate_one_in: u64,
    /// Replies of the upstream are dropped, while it still receives everything. Existing
    /// connections are desynchronised and must be closed.
    pub lose_answers: bool,
}

/// Counters of faults so far.
#[derive(Debug, Default)]
pub struct FaultCounts {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Cut connections.
    pub cuts: AtomicU64,
    /// Delayed chunks.
    pub stalls: AtomicU64,
    /// Duplicated connections.
    pub duplicates: AtomicU64,
}

#[derive(Debug)]
struct ProxyState {
    upstream: Mutex<SocketAddr>,
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
    counts: FaultCounts,
}

/// Running proxy. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    cut: watch::Sender<u64>,
    runtime: Option<Runtime>,
}

enum FrameAction {
    Pass,
    Cut,
    Stall(Duration),
}

impl ProxyState {
    fn once_in(&self, n: u64) -> bool {
        n > 0 && self.rng.lock().unwrap_or_else(PoisonError::into_inner).one_in(n)
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self) -> FrameAction {
        let faults = self.faults();
        if self.once_in(faults.cut_one_in) {
            self.counts.cuts.fetch_add(1, Ordering::Relaxed);
            FrameAction::Cut
        } else if self.once_in(faults.stall_one_in) {
            self.counts.stalls.fetch_add(1, Ordering::Relaxed);
            FrameAction::Stall(faults.stall)
        } else {
            FrameAction::Pass
        }
    }
}

impl Proxy {
    /// Starts a proxy to `upstream` on a free port. Equal seeds give equal faults, as far as the
    /// timing of the traffic allows.
    ///
    /// # Errors
    /// If no port or thread is available.
    pub fn to(upstream: SocketAddr, faults: Faults, seed: u64) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // Own thread, so that it also works inside a runtime, where blocking is not allowed.
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        let state = Arc::new(ProxyState {
            upstream: Mutex::new(upstream),
            faults: Mutex::new(faults),
            rng: Mutex::new(Rng::seeded(seed)),
            counts: FaultCounts::default(),
        });
        let (cut, cuts) = watch::channel(0);
        runtime.spawn(accept(listener, Arc::clone(&state), cuts));
        Ok(Self { address, state, cut, runtime: Some(runtime) })
    }

    /// Address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the upstream address. Existing connections keep the old one.
    pub fn move_to(&self, upstream: SocketAddr) {
        *self.state.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Changes the fault rates.
    pub fn set_faults(&self, faults: Faults) {
        *self.state.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        self.cut.send_modify(|generation| *generation += 1);
    }

    /// Counters of faults so far.
    pub fn counts(&self) -> &FaultCounts {
        &self.state.counts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<ProxyState>, cuts: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                state.counts.connections.fetch_add(1, Ordering::Relaxed);
                let (state, mut cut) = (Arc::clone(&state), cuts.clone());
                cut.mark_unchanged();
                connections.spawn(async move {
                    tokio::select! {
                        _ = carry(client, &state) => {}
                        _ = cut.changed() => {}
                    }
                });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Forwards one connection until either end, or a fault, closes it.
async fn carry(client: TcpStream, state: &ProxyState) -> io::Result<()> {
    client.set_nodelay(true)?;
    let upstream = *state.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let server = timeout(CONNECT_MAX, TcpStream::connect(upstream)).await??;
    server.set_nodelay(true)?;
    let copy = match state.once_in(state.faults().duplicate_one_in) {
        true => {
            state.counts.duplicates.fetch_add(1, Ordering::Relaxed);
            Some(TcpStream::connect(upstream).await?)
        }
        false => None,
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (lost, to_copy) = match copy.map(TcpStream::into_split) {
        Some((lost, to_copy)) => (Some(lost), Some(to_copy)),
        None => (None, None),
    };
    let forth = pump(state, from_client, vec![Some(to_server), to_copy], false);
    let back = pump(state, from_server, vec![Some(to_client)], true);
    let swallow = async {
        let mut bytes = [0; 4096];
        if let Some(mut lost) = lost {
            while lost.read(&mut bytes).await? > 0 {}
        }
        std::future::pending::<io::Result<()>>().await
    };
    tokio::select! {
        ended = async { tokio::try_join!(forth, back) } => ended.map(drop),
        ended = swallow => ended,
    }
}

async fn pump<W: tokio::io::AsyncWrite + Unpin>(
    state: &ProxyState,
    mut from: impl AsyncRead + Unpin,
    to: Vec<Option<W>>,
    is_answer: bool,
) -> io::Result<()> {
    let mut to: Vec<W> = to.into_iter().flatten().collect();
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            for end in &mut to {
                end.shutdown().await?;
            }
            return Ok(());
        }
        if is_answer && state.faults().lose_answers {
            continue;
        }
        let sent = match state.fate() {
            FrameAction::Pass => read,
            FrameAction::Stall(stall) => {
                sleep(stall).await;
                read
            }
            FrameAction::Cut => read / 2,
        };
        for (place, end) in to.iter_mut().enumerate() {
            match end.write_all(&bytes[..sent]).await {
                // The duplicate connection may be refused; the original continues.
                Err(_) if place > 0 => {}
                written => written?,
            }
        }
        if sent < read {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}
