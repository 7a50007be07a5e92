//! NATS connection that never resends by itself.
//!
//! The client library buffers unsent messages and sends them after any reconnect, however late. A
//! message could then never be proven absent. So each connection runs in its own runtime and is
//! never reconnected: when it breaks, or a publish times out, its runtime is dropped together with
//! everything unsent, and a new connection is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use admit_core::with_causes;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::{Auth, Options};

/// Backoff between two attempts to connect.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Ping interval on an idle connection.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Reconnect delay of the library, effectively infinite: this module reconnects by itself.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An established connection.
#[derive(Clone, Debug)]
pub(super) struct NatsSession {
    id: u64,
    pub(super) client: Client,
    pub(super) context: Context,
}

/// State of the connection.
#[derive(Clone, Debug)]
pub(super) enum LinkState {
    /// Not tried yet.
    New,
    /// Connected.
    Up(Box<NatsSession>),
    /// Not connected, with the reason.
    Down(String),
}

/// Maintains a connection on a dedicated thread.
#[derive(Debug)]
pub(super) struct NatsLink {
    state: watch::Receiver<LinkState>,
    /// Newest session to close. Dropping the sender ends the thread.
    closed_session: Mutex<Option<watch::Sender<u64>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl NatsLink {
    /// Starts connecting.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn start(options: Options, servers: Vec<ServerAddr>) -> std::io::Result<Self> {
        let (state_sender, state) = watch::channel(LinkState::New);
        let (close_sender, closed_session) = watch::channel(0);
        let thread = thread::Builder::new()
            .name("bus-nats".to_owned())
            .spawn(move || maintain(&options, &servers, &state_sender, closed_session))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { state, closed_session: Mutex::new(Some(close_sender)), thread })
    }

    /// The connection, if it is up.
    pub(super) fn session(&self) -> Result<NatsSession, String> {
        match &*self.state.borrow() {
            LinkState::Up(session) => Ok((**session).clone()),
            LinkState::Down(reason) => Err(reason.clone()),
            LinkState::New => Err("not connected yet".to_owned()),
        }
    }

    /// Waits for the result of the first attempt to connect.
    pub(super) async fn first(&self) -> Result<NatsSession, String> {
        let mut state = self.state.clone();
        match state.wait_for(|state| !matches!(state, LinkState::New)).await {
            Ok(_) => self.session(),
            Err(_) => Err("the connection thread ended".to_owned()),
        }
    }

    /// Closes this connection, so that nothing pending on it can be sent any more.
    pub(super) fn close_session(&self, session: &NatsSession) {
        let closed_session = self.closed_session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closed_session) = &*closed_session {
            closed_session.send_if_modified(|id| {
                let is_newer = session.id > *id;
                *id = session.id.max(*id);
                is_newer
            });
        }
    }
}

impl Drop for NatsLink {
    fn drop(&mut self) {
        self.closed_session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the connection thread of nats ended by a panic");
        }
    }
}

/// Makes one connection after another until the bus is closed.
fn maintain(
    options: &Options,
    servers: &[ServerAddr],
    state_sender: &watch::Sender<LinkState>,
    mut closed_session: watch::Receiver<u64>,
) {
    let mut pause = Duration::ZERO;
    for id in 1.. {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                state_sender.send_replace(LinkState::Down(format!(
                    "failed to create a runtime for the connection: {error}"
                )));
                return;
            }
        };
        let end = runtime.block_on(run_connection(
            id,
            pause,
            options,
            servers,
            state_sender,
            &mut closed_session,
        ));
        // Drops everything that the connection had not sent.
        drop(runtime);
        match end {
            ConnectionEnd::Closed => return,
            ConnectionEnd::Broken(reason) => {
                state_sender.send_replace(LinkState::Down(reason));
                pause = BACKOFF_MIN;
            }
            ConnectionEnd::NotConnected(reason) => {
                tracing::warn!(reason, "nats is not reachable; retrying");
                state_sender.send_replace(LinkState::Down(reason));
                pause = (pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
            }
        }
    }
}

/// Reason why a connection ended.
enum ConnectionEnd {
    /// The bus was closed.
    Closed,
    /// It broke, or was closed after a timeout.
    Broken(String),
    /// It could not be established.
    NotConnected(String),
}

/// Connects after a pause, and serves the connection until it ends.
async fn run_connection(
    id: u64,
    pause: Duration,
    options: &Options,
    servers: &[ServerAddr],
    state_sender: &watch::Sender<LinkState>,
    closed_session: &mut watch::Receiver<u64>,
) -> ConnectionEnd {
    let lost = Arc::new(Notify::new());
    let connected = async {
        sleep(pause).await;
        let connect = connect_options(options, Arc::clone(&lost)).await?;
        let connect_timeout = options.connect_timeout * u32::try_from(servers.len()).unwrap_or(1);
        match timeout(connect_timeout, connect.connect(servers)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(with_causes(&error)),
            Err(_) => {
                Err(format!("timeout: no response within {} ms", connect_timeout.as_millis()))
            }
        }
    };
    let client = tokio::select! {
        connected = connected => match connected {
            Ok(client) => client,
            Err(reason) => return ConnectionEnd::NotConnected(reason),
        },
        () = closed(closed_session) => return ConnectionEnd::Closed,
    };
    let context = ContextBuilder::new()
        .timeout(options.ack_timeout)
        .ack_timeout(options.ack_timeout)
        .max_ack_inflight(options.in_flight_max.max(1))
        .build(client.clone());
    state_sender.send_replace(LinkState::Up(Box::new(NatsSession { id, client, context })));
    if id > 1 {
        tracing::info!("reconnected to nats");
    }
    tokio::select! {
        () = lost.notified() => {
            tracing::warn!("the connection to nats was lost; unacknowledged messages are ambiguous");
            ConnectionEnd::Broken("the connection to nats was lost".to_owned())
        }
        closed = closed_session.wait_for(|closed_session| *closed_session >= id) => match closed {
            Err(_) => ConnectionEnd::Closed,
            Ok(_) => {
                tracing::warn!("publish timeout: closing the nats connection and reconnecting");
                ConnectionEnd::Broken("the nats connection was closed after a publish timeout".to_owned())
            }
        },
    }
}

async fn closed(closed_session: &mut watch::Receiver<u64>) {
    while closed_session.changed().await.is_ok() {}
}

async fn connect_options(options: &Options, lost: Arc<Notify>) -> Result<ConnectOptions, String> {
    let mut connect = match &options.auth {
        Auth::None => ConnectOptions::new(),
        Auth::User { user, password } => {
            ConnectOptions::with_user_and_password(user.clone(), password.clone())
        }
        Auth::Token(token) => ConnectOptions::with_token(token.clone()),
        // Read for every connection, so that credentials can be rotated.
        Auth::Credentials(path) => ConnectOptions::with_credentials_file(path)
            .await
            .map_err(|error| format!("{} cannot be used: {error}", path.display()))?,
    };
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((cert, key)) = &options.client_certificate {
        connect = connect.add_client_certificate(cert.clone(), key.clone());
    }
    let was_made = AtomicBool::new(false);
    Ok(connect
        .name("admit")
        .require_tls(options.tls_required)
        .connection_timeout(options.connect_timeout)
        .request_timeout(Some(options.ack_timeout))
        .ping_interval(PING_EVERY)
        .client_capacity(options.in_flight_max.clamp(16, 65_536))
        // One round over the servers without a pause; after that there is no reconnect.
        .reconnect_delay_callback(move |attempts| match attempts {
            1 if was_made.swap(true, Ordering::Relaxed) => NEVER,
            _ => Duration::ZERO,
        })
        .event_callback(move |event| {
            if matches!(event, Event::Disconnected | Event::Closed) {
                lost.notify_one();
            } else {
                tracing::debug!(%event, "nats");
            }
            std::future::ready(())
        }))
}
