//! Sending artifacts: several connections, each file until it is answered or there is no hope.
//!
//! Nothing here remembers what was sent. A file that was taken before is answered `replay` and
//! changes nothing, so a run that was killed is resumed by running it again.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::files::Artifact;
use crate::cli::gate::{Answer, Asking, Connection};

/// Enough that files share the ledger's commits.
const CONNECTIONS: usize = 16;

/// How often a file is sent before it is given up, and how long the pauses between grow.
const TRIES_MAX: u32 = 8;
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A larger file is no artifact.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The gate holds it.
    Taken(Told),
    /// The gate does not take it, and will not unless it changes.
    Refused(String),
    /// It could not be sent, this time.
    Failed(String),
    /// No file can be sent so.
    Hopeless(String),
    /// It was not tried, because others had failed in a way that would be the same for all.
    Untried,
}

/// What the gate said of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) disposition: String,
    /// Whether other content was known under the name.
    pub(super) differs: bool,
    pub(super) state: String,
    pub(super) link_status: String,
    pub(super) reason_code: String,
}

/// How files are sent.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) asking: Asking,
    /// The door's path.
    pub(super) path: String,
    pub(super) update_metadata: bool,
}

/// Sends all of `artifacts`; `each` hears what became of them, in no particular order.
pub(super) fn send_all(
    sending: &Sending,
    artifacts: &[Artifact],
    mut each: impl FnMut(&Artifact, Fate),
) {
    let (next, is_hopeless) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (told, fates) = sync_channel(CONNECTIONS);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS.min(artifacts.len()) {
            let told = told.clone();
            let (next, is_hopeless) = (&next, &is_hopeless);
            scope.spawn(move || {
                let mut connection = sending.asking.connection();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(artifact) = artifacts.get(place) else { return };
                    let fate = if is_hopeless.load(Ordering::Relaxed) {
                        Fate::Untried
                    } else {
                        sending.one(&mut connection, artifact, is_hopeless)
                    };
                    if told.send((place, fate)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        for (place, fate) in fates {
            each(&artifacts[place], fate);
        }
    });
}

/// What one try led to.
enum Tried {
    Done(Fate),
    /// Another try may help, after the pause the gate asked for.
    Again(String, Option<Duration>),
    /// No file can be sent so.
    Hopeless(String),
}

/// How the events of the gate stand, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) events: u64,
    pub(super) not_linked: u64,
    pub(super) unread: u64,
}

impl Sending {
    /// How everything stands now. What was answered `unlinked` may have been linked by a file that
    /// came later. Nothing for a key that may send and not read.
    pub(super) fn standing(&self) -> Option<Standing> {
        let path = format!("{}/diagnostics", self.path);
        let answer = self.asking.connection().get(&path).ok()?;
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        let count = |name: &str| body["counts"][name].as_u64();
        Some(Standing {
            events: count("total")?,
            not_linked: count("unlinked_total")?,
            unread: count("parse_failed")?,
        })
    }

    fn one(
        &self,
        connection: &mut Connection,
        artifact: &Artifact,
        is_hopeless: &AtomicBool,
    ) -> Fate {
        let body = match body(artifact) {
            Ok(body) => body,
            Err(error) => return Fate::Refused(format!("it cannot be read: {error}")),
        };
        let update = if self.update_metadata { "?update=metadata" } else { "" };
        let path = format!("{}/{}{update}", self.path, artifact.source);
        let mut pause = PAUSE_FIRST;
        for attempt in 1..=TRIES_MAX {
            let (message, hint) = match tried(connection.post(&path, &body)) {
                Tried::Done(fate) => return fate,
                Tried::Hopeless(message) => {
                    is_hopeless.store(true, Ordering::Relaxed);
                    return Fate::Hopeless(message);
                }
                Tried::Again(message, hint) => (message, hint),
            };
            if attempt == TRIES_MAX {
                is_hopeless.store(true, Ordering::Relaxed);
                return Fate::Failed(message);
            }
            if is_hopeless.load(Ordering::Relaxed) {
                return Fate::Untried;
            }
            thread::sleep(hint.unwrap_or(pause).min(PAUSE_MAX));
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
        Fate::Untried
    }
}

fn tried(answered: io::Result<Answer>) -> Tried {
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) => return Tried::Again(format!("no answer: {error}"), None),
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    if answer.status == 200 {
        return Tried::Done(Fate::Taken(Told {
            disposition: text("disposition"),
            differs: body["content_differs"] == true,
            state: text("state"),
            link_status: text("link_status"),
            reason_code: text("reason_code"),
        }));
    }
    let error = &body["error"];
    let code = error["code"].as_str().unwrap_or("unknown");
    let message = format!("{code}: {}", error["message"].as_str().unwrap_or("no reason was given"));
    match answer.status {
        401 | 403 | 404 | 405 => Tried::Hopeless(message),
        408 | 429 | 500 | 503 => {
            let seconds = error["retry_after_seconds"].as_u64().filter(|seconds| *seconds > 0);
            Tried::Again(message, seconds.map(Duration::from_secs))
        }
        _ => Tried::Done(Fate::Refused(message)),
    }
}

/// What is sent for a file: its name and all it holds. What a message holds is sent as it is.
pub(super) fn body(artifact: &Artifact) -> io::Result<Vec<u8>> {
    if artifact.stamp.bytes > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than any artifact"));
    }
    // A link that has taken the file's place may lead anywhere.
    if fs::canonicalize(&artifact.real)? != artifact.real {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a link has taken its place"));
    }
    let bytes = fs::read(&artifact.real)?;
    if artifact.source == "stats_ready" {
        return Ok(bytes);
    }
    // Old game servers write names in the code page of their players. Each byte becomes the letter
    // with its number, so that none is lost.
    let content = String::from_utf8(bytes)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect());
    Ok(json!({ "filename": artifact.name, "content": content }).to_string().into_bytes())
}
