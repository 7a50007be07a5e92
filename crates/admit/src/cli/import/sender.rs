//! Sends files over several connections, with retries and backoff.
//!
//! Stateless: the gate replies `replay` to a known file and changes nothing, so a killed import is resumed by
//! running it again.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::files::RoundFile;
use crate::cli::gate_client::{GateClient, GateConnection, GateReply};

/// Concurrent connections, so that files share a commit of the ledger.
const CONNECTIONS: usize = 16;

/// Attempts per file, and the range of the backoff between them.
const ATTEMPTS_MAX: u32 = 8;
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Outcome of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileOutcome {
    /// Accepted by the gate.
    Accepted(FileReply),
    /// Refused permanently, unless the file changes.
    Refused(String),
    /// Not sent after all attempts; a later import may succeed.
    Failed(String),
    /// Refused for a reason that affects every file, such as a wrong key.
    Fatal(String),
    /// Not tried, because another file failed for a reason that affects every file.
    NotSent,
}

/// Reply of the gate to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileReply {
    pub(super) disposition: String,
    /// Whether the name is known with different content.
    pub(super) differs: bool,
    pub(super) state: String,
    pub(super) link_status: String,
    pub(super) reason_code: String,
}

/// Sender of files to a gate.
#[derive(Clone, Debug)]
pub(super) struct FileSender {
    pub(super) client: GateClient,
    /// Path of the door.
    pub(super) path: String,
    pub(super) update_metadata: bool,
}

/// Sends all files and calls `each` with every outcome, in no particular order.
pub(super) fn send_all(
    sender: &FileSender,
    files: &[RoundFile],
    mut each: impl FnMut(&RoundFile, FileOutcome),
) {
    let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (outcome_sender, outcomes) = sync_channel(CONNECTIONS);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS.min(files.len()) {
            let outcome_sender = outcome_sender.clone();
            let (next, is_stopped) = (&next, &is_stopped);
            scope.spawn(move || {
                let mut connection = sender.client.connection();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(index) else { return };
                    let outcome = if is_stopped.load(Ordering::Relaxed) {
                        FileOutcome::NotSent
                    } else {
                        sender.send_file(&mut connection, file, is_stopped)
                    };
                    if outcome_sender.send((index, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(outcome_sender);
        for (index, outcome) in outcomes {
            each(&files[index], outcome);
        }
    });
}

/// Result of an attempt.
enum AttemptResult {
    Done(FileOutcome),
    /// Retry, after the delay in the reply if there is one.
    Retry(String, Option<Duration>),
    /// Refused for a reason that affects every file.
    Fatal(String),
}

/// Link counts of all events of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkCounts {
    pub(super) events: u64,
    pub(super) not_linked: u64,
    pub(super) unread: u64,
}

impl FileSender {
    /// Reads the current link counts: an event whose reply was `unlinked` may have been linked by a later
    /// file. `None` if the key may not read.
    pub(super) fn link_counts(&self) -> Option<LinkCounts> {
        let path = format!("{}/diagnostics", self.path);
        let reply = self.client.connection().get(&path).ok()?;
        let body: Value = serde_json::from_slice(&reply.body).ok()?;
        let count = |name: &str| body["counts"][name].as_u64();
        Some(LinkCounts {
            events: count("total")?,
            not_linked: count("unlinked_total")?,
            unread: count("parse_failed")?,
        })
    }

    fn send_file(
        &self,
        connection: &mut GateConnection,
        file: &RoundFile,
        is_stopped: &AtomicBool,
    ) -> FileOutcome {
        let body = match request_body(file) {
            Ok(body) => body,
            Err(error) => return FileOutcome::Refused(format!("cannot read the file: {error}")),
        };
        let update = if self.update_metadata { "?update=metadata" } else { "" };
        let path = format!("{}/{}{update}", self.path, file.source);
        let mut backoff = BACKOFF_FIRST;
        for attempt in 1..=ATTEMPTS_MAX {
            let (message, retry_after) = match attempt_result(connection.post(&path, &body)) {
                AttemptResult::Done(outcome) => return outcome,
                AttemptResult::Fatal(message) => {
                    is_stopped.store(true, Ordering::Relaxed);
                    return FileOutcome::Fatal(message);
                }
                AttemptResult::Retry(message, retry_after) => (message, retry_after),
            };
            if attempt == ATTEMPTS_MAX {
                is_stopped.store(true, Ordering::Relaxed);
                return FileOutcome::Failed(message);
            }
            if is_stopped.load(Ordering::Relaxed) {
                return FileOutcome::NotSent;
            }
            thread::sleep(retry_after.unwrap_or(backoff).min(BACKOFF_MAX));
            backoff = backoff.saturating_mul(2).min(BACKOFF_MAX);
        }
        FileOutcome::NotSent
    }
}

fn attempt_result(reply_result: io::Result<GateReply>) -> AttemptResult {
    let reply = match reply_result {
        Ok(reply) => reply,
        Err(error) => return AttemptResult::Retry(format!("no reply: {error}"), None),
    };
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    if reply.status == 200 {
        return AttemptResult::Done(FileOutcome::Accepted(FileReply {
            disposition: text("disposition"),
            differs: body["content_differs"] == true,
            state: text("state"),
            link_status: text("link_status"),
            reason_code: text("reason_code"),
        }));
    }
    let error = &body["error"];
    let code = error["code"].as_str().unwrap_or("unknown");
    let message = format!("{code}: {}", error["message"].as_str().unwrap_or("no message"));
    match reply.status {
        401 | 403 | 404 | 405 => AttemptResult::Fatal(message),
        408 | 429 | 500 | 503 => {
            let seconds = error["retry_after_seconds"].as_u64().filter(|seconds| *seconds > 0);
            AttemptResult::Retry(message, seconds.map(Duration::from_secs))
        }
        _ => AttemptResult::Done(FileOutcome::Refused(message)),
    }
}

/// Request body of a file: its name and content. A `stats_ready` message is sent unchanged.
pub(super) fn request_body(file: &RoundFile) -> io::Result<Vec<u8>> {
    if file.stamp.bytes > FILE_BYTES_MAX {
        let message = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // A link that has replaced the file may lead outside the folder.
    if fs::canonicalize(&file.real)? != file.real {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a link has replaced the file"));
    }
    let bytes = fs::read(&file.real)?;
    if file.source == "stats_ready" {
        return Ok(bytes);
    }
    // Old game servers write player names in other code pages. Invalid UTF-8 is decoded as Latin-1, which is
    // lossless.
    let content = String::from_utf8(bytes)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect());
    Ok(json!({ "filename": file.name, "content": content }).to_string().into_bytes())
}
