//! Connecting: address, TLS, authentication, and session settings.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect};
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::conn::{self, Conn, Error};
use super::{OpenError, Options};

/// Keepalive of idle connections: probes after this time, and their interval.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;

/// Added to the server's own statement timeout for the client's timeout.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// The writer always selects by key. A table that was empty when a statement was planned grows by
/// millions before its statistics are updated, so sequential scans must never be planned.
const WRITER: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// Readers only read, and get a plan for the actual parameters.
const READER: &str =
    "SET default_transaction_read_only = on; SET plan_cache_mode = force_custom_plan";

/// Opens connections.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    settings: String,
    connect_max: Duration,
    answer_max: Duration,
}

impl Connector {
    pub(super) fn new(options: &Options) -> Result<Self, OpenError> {
        let mut config: Config =
            options.url.parse().map_err(|source| OpenError::Address { source })?;
        if let Some(password) = &options.password {
            config.password(password);
        }
        if options.tls.is_none() {
            if config.get_ssl_mode() == SslMode::Require {
                return Err(OpenError::WithoutTls);
            }
            config.ssl_mode(SslMode::Disable);
        } else if config.get_ssl_mode() == SslMode::Prefer {
            // With trusted certificates configured, an unverified server is not accepted.
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name(format!("admit {}", options.owner));
        }
        if config.get_hosts().len() > 1
            && config.get_target_session_attrs() == TargetSessionAttrs::Any
        {
            // After a failover another host is the writable one.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let answer_max = options.statement_timeout + ANSWER_MARGIN;
        config
            .connect_timeout(options.connect_timeout)
            .tcp_user_timeout(answer_max)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_EVERY)
            .keepalives_retries(KEEPALIVE_PROBES);
        Ok(Self {
            config,
            tls: options.tls.as_ref().map(|tls| MakeRustlsConnect::new((**tls).clone())),
            settings: settings(options),
            connect_max: options.connect_timeout + ANSWER_MARGIN,
            answer_max,
        })
    }

    /// Maximum wait for any reply.
    pub(super) fn answer_max(&self) -> Duration {
        self.answer_max
    }

    /// Display name of the database: name and hosts, never the password.
    pub(super) fn place(&self) -> String {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                tokio_postgres::config::Host::Tcp(name) => name.clone(),
                tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let dbname = self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres");
        format!("{dbname} at {}", hosts.join(", "))
    }

    /// Opens a writable connection driven by `runtime`.
    pub(super) fn own(&self, runtime: &Arc<Runtime>) -> conn::Result<Conn> {
        let connected = runtime.block_on(async {
            tokio::time::timeout(self.connect_max, self.open(&self.config, WRITER)).await
        });
        let (client, task) = connected.map_err(|_| Error::Timeout(self.connect_max))??;
        let client = ClientWrapper::new(client, task);
        Ok(Conn::dedicated(client, Arc::clone(runtime), self.answer_max))
    }

    async fn open(
        &self,
        config: &Config,
        more: &str,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, task) = match &self.tls {
            Some(tls) => {
                let (client, carrying) = config.connect(tls.clone()).await?;
                (client, carry(carrying))
            }
            None => {
                let (client, carrying) = config.connect(NoTls).await?;
                (client, carry(carrying))
            }
        };
        client.batch_execute(&format!("{}{more}", self.settings)).await?;
        Ok((client, task))
    }
}

impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> Pin<
        Box<
            dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>>
                + Send
                + '_,
        >,
    > {
        let config = config.clone();
        Box::pin(async move { self.open(&config, READER).await })
    }
}

impl Connector {
    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }
}

/// Drives a connection for as long as its client exists. Pending queries get its error when it ends.
fn carry(
    carrying: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
) -> JoinHandle<()> {
    Handle::current().spawn(async {
        if let Err(error) = carrying.await {
            tracing::debug!(%error, "a connection to the database ended");
        }
    })
}

/// Settings of every connection. A commit that returned is on disk; every wait has a timeout; a gate that
/// freezes inside a transaction does not block the others for long.
fn settings(options: &Options) -> String {
    let mut settings = "SET synchronous_commit = on; SET client_min_messages = warning; \
                        SET TimeZone = 'UTC'; SET standard_conforming_strings = on; SET jit = off; \
                        SET max_parallel_workers_per_gather = 0;"
        .to_owned();
    for (name, limit) in [
        ("statement_timeout", options.statement_timeout),
        ("lock_timeout", options.lock_timeout),
        // Shorter than the lock timeout: other gates outlast one that froze.
        ("idle_in_transaction_session_timeout", options.lock_timeout / 2),
    ] {
        // Zero would mean no limit at all.
        let limit = limit.as_millis().max(1);
        write!(settings, " SET {name} = {limit};").expect("writing to a string cannot fail");
    }
    let schema = identifier(&options.schema);
    write!(settings, " SET search_path = {schema};").expect("writing to a string cannot fail");
    settings
}

/// Quotes an identifier.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
