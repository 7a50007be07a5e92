//! What the gate says about itself, on standard error: lines for people, or JSON for machines.

mod lines;

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
use lines::Lines;

/// Where lines go, once logging has started.
static LINES: OnceLock<Lines> = OnceLock::new();

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
    let lines = Lines::start(io::stderr(), note_for(config.format)).map_err(Failure::runtime)?;
    LINES.set(lines.clone()).map_err(|_| Failure::runtime("logging was started twice"))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines)
        .with_timer(ReceiptTime);
    let started = match config.format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(Failure::runtime)
}

/// Waits a moment for what is still to be written. Called before the process ends.
pub(crate) fn flush() {
    LINES.get().into_iter().for_each(Lines::flush);
}

/// Says that lines are missing, in the form of the others.
fn note_for(format: LogFormat) -> impl Fn(u64) -> String {
    move |missing| {
        let message = "log lines were left out: standard error could not take them";
        let now = SystemClock.now();
        match format {
            LogFormat::Text => format!("{now}  WARN {message} lines={missing}\n"),
            LogFormat::Json => format!(
                "{}\n",
                serde_json::json!({
                    "timestamp": now.to_string(), "level": "WARN", "message": message, "lines": missing
                })
            ),
        }
    }
}
