//! Unix socket for producers that should not need a port. Connections are relayed to the agent's
//! own listener, so that there is one entry point.

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

/// Maximum concurrent connections; further ones wait in the accept queue.
const CONNECTIONS_MAX: usize = 1024;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens at `path` until `stop`, and relays connections to `address`. The returned future
/// completes when all connections have ended.
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
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let stop = stop.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        () = relay_connection(stream, address) => {}
                        () = stop.cancelled() => {}
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection on the socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn relay_connection(mut stream: UnixStream, address: SocketAddr) {
    let relayed = async {
        let mut inner = TcpStream::connect(address).await?;
        inner.set_nodelay(true)?;
        copy_bidirectional(&mut stream, &mut inner).await
    };
    if let Err(error) = relayed.await {
        tracing::debug!(%error, "a connection on the socket ended early");
    }
}
