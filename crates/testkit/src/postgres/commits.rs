//! A proxy before a PostgreSQL server that loses commits on purpose.
//!
//! It reads just enough of the protocol to see a COMMIT go by, and then does what networks do at the
//! worst moment: the commit happens and its answer is lost, or the commit itself is, or it arrives
//! long after whoever sent it has given up.

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

/// The message with which a client commits.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What happens to the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It reaches the server, which answers; the answer is lost with the connection.
    AnswerLost,
    /// It is lost with the connection; the server never hears of it.
    Lost,
    /// The sender's connection is cut at once; the COMMIT arrives at the server so much later.
    Late(Duration),
}

#[derive(Debug, Default)]
struct State {
    next: Mutex<Option<Mishap>>,
    is_closed: AtomicBool,
    mishaps: AtomicU64,
    connections: AtomicU64,
}

impl State {
    fn take(&self) -> Option<Mishap> {
        let taken = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if taken.is_some() {
            self.mishaps.fetch_add(1, Ordering::SeqCst);
        }
        taken
    }
}

/// A running proxy. Dropping it ends it, and every connection through it.
#[derive(Debug)]
pub struct CommitProxy {
    address: SocketAddr,
    state: Arc<State>,
    cut: watch::Sender<u64>,
    runtime: Option<Runtime>,
}

impl CommitProxy {
    /// A proxy to `upstream` on a free port.
    ///
    /// # Errors
    /// When the system has no port or no thread to give.
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
        let state = Arc::new(State::default());
        let (cut, cuts) = watch::channel(0);
        runtime.spawn(accept(listener, upstream, Arc::clone(&state), cuts));
        Ok(Self { address, state, cut, runtime: Some(runtime) })
    }

    /// The same database, through the proxy.
    ///
    /// # Panics
    /// When the address has no host and port.
    pub fn url(&self, direct: &str) -> String {
        let from = direct.find('@').expect("the address names a user") + 1;
        let to = from + direct[from..].find('/').expect("the address names a database");
        format!("{}{}{}", &direct[..from], self.address, &direct[to..])
    }

    /// The next COMMIT meets this.
    pub fn spoil_next(&self, mishap: Mishap) {
        *self.state.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(mishap);
    }

    /// From now on no connection comes through, until it is opened again.
    pub fn close(&self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
    }

    /// Connections come through again.
    pub fn open(&self) {
        self.state.is_closed.store(false, Ordering::SeqCst);
    }

    /// Cuts every connection there is.
    pub fn cut_all(&self) {
        self.cut.send_modify(|generation| *generation += 1);
    }

    /// How many commits were spoiled.
    pub fn mishaps(&self) -> u64 {
        self.state.mishaps.load(Ordering::SeqCst)
    }

    /// How many connections came through.
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
    state: Arc<State>,
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
            // Beyond the end of the connection, which its sender has given up.
            if let Some(late) = late {
                late.arrive().await.unwrap_or_default();
            }
        });
    }
}

/// Carries one connection until either end, or a mishap, ends it.
async fn carry(client: TcpStream, upstream: SocketAddr, state: &State) -> io::Result<Option<Late>> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let met = tokio::select! {
        met = forth(from_client, &mut to_server, state) => met?,
        ended = back(&mut from_server, to_client) => return ended.map(|()| None),
    };
    // The client's halves are gone: whoever sent it knows nothing from here on.
    let delay = match met {
        None | Some(Mishap::Lost) => return Ok(None),
        Some(Mishap::AnswerLost) => Duration::ZERO,
        Some(Mishap::Late(delay)) => delay,
    };
    Ok(Some(Late { delay, from_server, to_server }))
}

/// A COMMIT on its way, of which nobody waits for the answer.
struct Late {
    delay: Duration,
    from_server: OwnedReadHalf,
    to_server: OwnedWriteHalf,
}

impl Late {
    async fn arrive(mut self) -> io::Result<()> {
        sleep(self.delay).await;
        self.to_server.write_all(COMMIT).await?;
        // Its answer is the proof that it was done, or that the server would have none of it.
        self.from_server.read_u8().await.map(drop)
    }
}

/// Carries what the client says, up to a COMMIT that meets a mishap.
async fn forth(
    mut from: OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    state: &State,
) -> io::Result<Option<Mishap>> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(None);
        }
        if bytes[..read] == *COMMIT
            && let Some(mishap) = state.take()
        {
            return Ok(Some(mishap));
        }
        to.write_all(&bytes[..read]).await?;
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
