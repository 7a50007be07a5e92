//! The Unix socket: for producers that should not need a port. What comes in is carried to the
//! agent's own listener, so that there is one way in.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::output::Failure;
use crate::socket::listen;

/// Connections at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 1024;

/// The pause after the system could not give us a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens at `path` until `stop`, and carries what comes to `address`. The future that is returned
/// ends when all connections have.
pub(super) fn relay(
    path: &Path,
    address: SocketAddr,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let (listener, file) = listen(path).map_err(|error| {
        Failure::runtime(format!("cannot listen on the socket {}: {error}", path.display()))
    })?;
    let tasks = TaskTracker::new();
    tasks.spawn(accept(listener, address, stop, tasks.clone()));
    Ok(async move {
        tasks.close();
        tasks.wait().await;
        file.remove();
    })
}

async fn accept(
    listener: UnixListener,
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("nobody closes this semaphore");
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let stop = stop.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        () = carry(stream, address) => {}
                        () = stop.cancelled() => {}
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections on the socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn carry(mut stream: UnixStream, address: SocketAddr) {
    let carried = async {
        let mut inner = TcpStream::connect(address).await?;
        inner.set_nodelay(true)?;
        copy_bidirectional(&mut stream, &mut inner).await
    };
    if let Err(error) = carried.await {
        tracing::debug!(%error, "a connection on the socket ended early");
    }
}
