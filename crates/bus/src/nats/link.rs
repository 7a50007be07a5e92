//! The connection, which never sends anything by itself.
//!
//! The client library keeps what it could not send and sends it whenever it is connected again,
//! however late that is. Nobody could then say of a message that it is absent. So a connection
//! lives in a runtime of its own and is not mended: when it breaks, or when a publish is not
//! answered in time, its runtime is dropped and with it everything that was not sent. Then another
//! one is made.

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

/// Pauses between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often the server is asked whether it is still there, while it says nothing.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The library would connect again after this; the runtime is dropped at once instead.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A connection that stands.
#[derive(Clone, Debug)]
pub(super) struct Session {
    id: u64,
    pub(super) client: Client,
    pub(super) context: Context,
}

/// How the connection is.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// Nobody has tried yet.
    New,
    /// It stands.
    Up(Box<Session>),
    /// It does not, and why.
    Down(String),
}

/// Keeps a connection, on a thread of its own.
#[derive(Debug)]
pub(super) struct Link {
    line: watch::Receiver<Line>,
    /// The newest session that somebody gave up. Closing it ends the thread.
    given_up: Mutex<Option<watch::Sender<u64>>>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Link {
    /// Starts to connect.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub(super) fn start(options: Options, servers: Vec<ServerAddr>) -> std::io::Result<Self> {
        let (say, line) = watch::channel(Line::New);
        let (give_up, given_up) = watch::channel(0);
        let keeper = thread::Builder::new()
            .name("bus-nats".to_owned())
            .spawn(move || keep(&options, &servers, &say, given_up))?;
        let keeper = Mutex::new(Some(keeper));
        Ok(Self { line, given_up: Mutex::new(Some(give_up)), keeper })
    }

    /// The connection, if it stands.
    pub(super) fn session(&self) -> Result<Session, String> {
        match &*self.line.borrow() {
            Line::Up(session) => Ok((**session).clone()),
            Line::Down(reason) => Err(reason.clone()),
            Line::New => Err("not connected yet".to_owned()),
        }
    }

    /// What the first attempt to connect came to.
    pub(super) async fn first(&self) -> Result<Session, String> {
        let mut line = self.line.clone();
        match line.wait_for(|line| !matches!(line, Line::New)).await {
            Ok(_) => self.session(),
            Err(_) => Err("the keeper of the connection ended".to_owned()),
        }
    }

    /// Breaks this connection, so that nothing of it can be sent any more.
    pub(super) fn give_up(&self, session: &Session) {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given_up) = &*given_up {
            given_up.send_if_modified(|id| {
                let is_newer = session.id > *id;
                *id = session.id.max(*id);
                is_newer
            });
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner).take();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if keeper.is_some_and(|keeper| keeper.join().is_err()) {
            tracing::error!("the keeper of the connection to nats ended by a panic");
        }
    }
}

/// Makes one connection after the other until the bus is closed.
fn keep(
    options: &Options,
    servers: &[ServerAddr],
    say: &watch::Sender<Line>,
    mut given_up: watch::Receiver<u64>,
) {
    let mut pause = Duration::ZERO;
    for id in 1.. {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                say.send_replace(Line::Down(format!("no runtime for a connection: {error}")));
                return;
            }
        };
        let ended = runtime.block_on(live(id, pause, options, servers, say, &mut given_up));
        // What the connection had not sent dies here.
        drop(runtime);
        match ended {
            Ended::Closed => return,
            Ended::Broken(reason) => {
                say.send_replace(Line::Down(reason));
                pause = PAUSE_MIN;
            }
            Ended::NotMade(reason) => {
                tracing::warn!(reason, "nats cannot be reached, trying again");
                say.send_replace(Line::Down(reason));
                pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            }
        }
    }
}

/// How a connection ended.
enum Ended {
    /// The bus was closed.
    Closed,
    /// It broke, or was given up.
    Broken(String),
    /// It was never made.
    NotMade(String),
}

/// Makes a connection after a pause, and has it used until it ends.
async fn live(
    id: u64,
    pause: Duration,
    options: &Options,
    servers: &[ServerAddr],
    say: &watch::Sender<Line>,
    given_up: &mut watch::Receiver<u64>,
) -> Ended {
    let lost = Arc::new(Notify::new());
    let made = async {
        sleep(pause).await;
        let connect = connect_options(options, Arc::clone(&lost)).await?;
        let patience = options.connect_timeout * u32::try_from(servers.len()).unwrap_or(1);
        match timeout(patience, connect.connect(servers)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(with_causes(&error)),
            Err(_) => Err(format!("no answer within {} ms", patience.as_millis())),
        }
    };
    let client = tokio::select! {
        made = made => match made {
            Ok(client) => client,
            Err(reason) => return Ended::NotMade(reason),
        },
        () = closed(given_up) => return Ended::Closed,
    };
    let context = ContextBuilder::new()
        .timeout(options.ack_timeout)
        .ack_timeout(options.ack_timeout)
        .max_ack_inflight(options.in_flight_max.max(1))
        .build(client.clone());
    say.send_replace(Line::Up(Box::new(Session { id, client, context })));
    if id > 1 {
        tracing::info!("connected to nats again");
    }
    tokio::select! {
        () = lost.notified() => {
            tracing::warn!("the connection to nats was lost; what was on the way is ambiguous");
            Ended::Broken("the connection to nats was lost".to_owned())
        }
        wanted = given_up.wait_for(|given_up| *given_up >= id) => match wanted {
            Err(_) => Ended::Closed,
            Ok(_) => {
                tracing::warn!("a publish was not answered in time, a new connection is made");
                Ended::Broken("the connection to nats was given up: no answer in time".to_owned())
            }
        },
    }
}

async fn closed(given_up: &mut watch::Receiver<u64>) {
    while given_up.changed().await.is_ok() {}
}

async fn connect_options(options: &Options, lost: Arc<Notify>) -> Result<ConnectOptions, String> {
    let mut connect = match &options.auth {
        Auth::Nobody => ConnectOptions::new(),
        Auth::User { user, password } => {
            ConnectOptions::with_user_and_password(user.clone(), password.clone())
        }
        Auth::Token(token) => ConnectOptions::with_token(token.clone()),
        // Read for every connection, so that it can be renewed.
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
        // One round over the servers, without a pause; after that the connection is never mended.
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
