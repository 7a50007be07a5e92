//! A TCP proxy on loopback that misbehaves on purpose, by a seed.
//!
//! It knows no protocol, so what it does is what networks do: it cuts connections in the middle of
//! a message, holds bytes back until others have overtaken them, and sends whole conversations a
//! second time over a connection of their own. The other end may move while it runs.

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

/// Longest wait for a connection to the other end.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What goes wrong, each once in so many; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A piece of bytes, in either direction, of which half arrives before the connection is cut.
    pub cut_one_in: u64,
    /// A piece of bytes that is held back for `stall`.
    pub stall_one_in: u64,
    /// How long.
    pub stall: Duration,
    /// A connection whose bytes all arrive twice: also over a second one, whose answers are lost.
    pub duplicate_one_in: u64,
    /// Whatever the other end says is lost, while it still hears everything. What is connected then
    /// can only be cut: it has lost the thread.
    pub lose_answers: bool,
}

/// What went wrong so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections cut.
    pub cuts: AtomicU64,
    /// Pieces held back.
    pub stalls: AtomicU64,
    /// Connections sent twice.
    pub duplicates: AtomicU64,
}

#[derive(Debug)]
struct State {
    upstream: Mutex<SocketAddr>,
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
    counts: Counts,
}

/// A running proxy. Dropping it ends it, and every connection through it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    cut: watch::Sender<u64>,
    runtime: Option<Runtime>,
}

enum Fate {
    Pass,
    Cut,
    Stall(Duration),
}

impl State {
    fn once_in(&self, n: u64) -> bool {
        n > 0 && self.rng.lock().unwrap_or_else(PoisonError::into_inner).one_in(n)
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self) -> Fate {
        let faults = self.faults();
        if self.once_in(faults.cut_one_in) {
            self.counts.cuts.fetch_add(1, Ordering::Relaxed);
            Fate::Cut
        } else if self.once_in(faults.stall_one_in) {
            self.counts.stalls.fetch_add(1, Ordering::Relaxed);
            Fate::Stall(faults.stall)
        } else {
            Fate::Pass
        }
    }
}

impl Proxy {
    /// A proxy to `upstream` on a free port. Equal seeds draw equal faults, as far as the timing of
    /// what goes through allows.
    ///
    /// # Errors
    /// When the system has no port or no thread to give.
    pub fn to(upstream: SocketAddr, faults: Faults, seed: u64) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // Also where a runtime runs already, which nobody may wait in.
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        let state = Arc::new(State {
            upstream: Mutex::new(upstream),
            faults: Mutex::new(faults),
            rng: Mutex::new(Rng::seeded(seed)),
            counts: Counts::default(),
        });
        let (cut, cuts) = watch::channel(0);
        runtime.spawn(accept(listener, Arc::clone(&state), cuts));
        Ok(Self { address, state, cut, runtime: Some(runtime) })
    }

    /// Where to connect instead.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The other end has moved. What is connected stays connected to where it was.
    pub fn move_to(&self, upstream: SocketAddr) {
        *self.state.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// From now on other things go wrong.
    pub fn set_faults(&self, faults: Faults) {
        *self.state.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Cuts every connection there is.
    pub fn cut_all(&self) {
        self.cut.send_modify(|generation| *generation += 1);
    }

    /// What went wrong so far.
    pub fn counts(&self) -> &Counts {
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

async fn accept(listener: TcpListener, state: Arc<State>, cuts: watch::Receiver<u64>) {
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

/// Carries one connection until either end, or a fault, ends it.
async fn carry(client: TcpStream, state: &State) -> io::Result<()> {
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
    state: &State,
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
            Fate::Pass => read,
            Fate::Stall(stall) => {
                sleep(stall).await;
                read
            }
            Fate::Cut => read / 2,
        };
        for (place, end) in to.iter_mut().enumerate() {
            match end.write_all(&bytes[..sent]).await {
                // The copy of a conversation may be refused; the conversation goes on.
                Err(_) if place > 0 => {}
                written => written?,
            }
        }
        if sent < read {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}
