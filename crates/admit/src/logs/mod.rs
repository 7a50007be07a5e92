//! Logging to standard error, as text or as JSON.

mod queue;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use admit_core::Clock as _;
use admit_gate::SystemClock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::config::{LogConfig, LogFormat};
use crate::output::Failure;
use queue::LogQueue;

/// Queue of the logger, once logging has started.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Timestamps in the format of receipts, so that logs and receipts can be compared.
struct ReceiptTime;

impl FormatTime for ReceiptTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", SystemClock.now())
    }
}

/// Starts logging for the process. Must be called once.
pub(crate) fn start(config: &LogConfig) -> Result<(), Failure> {
    // Client libraries log warnings and errors only, unless `log.level` names them.
    let quiet =
        "async_nats=warn,tokio_postgres=warn,deadpool_postgres=error,deadpool.postgres=error";
    let filter = EnvFilter::builder()
        .parse(format!("{quiet},{}", config.level))
        .map_err(|error| Failure::usage(format!("log.level: {error}")))?;
    let queue = LogQueue::start(io::stderr(), dropped_lines_warning(config.format))
        .map_err(Failure::runtime)?;
    QUEUE.set(queue.clone()).map_err(|_| Failure::runtime("logging is already started"))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue)
        .with_timer(ReceiptTime);
    let started = match config.format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(Failure::runtime)
}

/// Waits briefly for queued lines. Called before the process exits.
pub(crate) fn flush() {
    QUEUE.get().into_iter().for_each(LogQueue::flush);
}

/// Formats the warning about dropped lines, as text or JSON.
fn dropped_lines_warning(format: LogFormat) -> impl Fn(u64) -> String {
    move |dropped| {
        let message = "log lines dropped: standard error is not being read or is not writable";
        let now = SystemClock.now();
        match format {
            LogFormat::Text => format!("{now}  WARN {message} lines={dropped}\n"),
            LogFormat::Json => format!(
                "{}\n",
                serde_json::json!({
                    "timestamp": now.to_string(), "level": "WARN", "message": message, "lines": dropped
                })
            ),
        }
    }
}
