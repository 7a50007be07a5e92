//! What the gate says about itself, on standard error: lines for people, or JSON for machines.

use std::fmt;
use std::io::{self, IsTerminal as _};

use admit_core::Clock as _;
use admit_gate::SystemClock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::config::{LogConfig, LogFormat};
use crate::output::Failure;

/// Times in logs are written as times in receipts are, so that the two can be laid side by side.
struct ReceiptTime;

impl FormatTime for ReceiptTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", SystemClock.now())
    }
}

/// Starts logging for the whole process. Called once.
pub(crate) fn start(config: &LogConfig) -> Result<(), Failure> {
    // What the client library of a bus or of a database says of itself is for whoever asks for it.
    let quiet =
        "async_nats=warn,tokio_postgres=warn,deadpool_postgres=error,deadpool.postgres=error";
    let filter = EnvFilter::builder()
        .parse(format!("{quiet},{}", config.level))
        .map_err(|error| Failure::usage(format!("log.level: {error}")))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_timer(ReceiptTime);
    let started = match config.format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(Failure::runtime)
}
