//! What streamers say they have sent, from their records of READY messages.

use admit_core::Fault;
use admit_core::closure::Listed;
use admit_core::json::{self, Limits, Object, Value};

use super::{Books, unreadable};

/// Paths that are listed at a time.
const PAGE: usize = 1_000;

/// Records that are told one by one.
const TOLD_MAX: usize = 50;

/// What streamers say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// Rows they have had answers for: of each READY the most that one of its STREAMED lines says.
    pub total: u64,
    /// READY messages there are records of.
    pub messages: u64,
    /// Some of them.
    pub told: Vec<SentReady>,
    /// READY messages that were never streamed to their end, and whose last record is a failure.
    pub failed: Listed,
}

/// What a streamer says of one READY message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentReady {
    /// The message.
    pub message_id: String,
    /// The last status.
    pub status: String,
    /// Rows it has had answers for.
    pub emitted: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// The knobs that the last recorded attempt ran with, where it says so.
    pub knobs: Option<Object<'static>>,
}

impl Sent {
    /// As a report shows it.
    pub fn to_object(&self) -> Object<'static> {
        let told = self.told.iter().map(|ready| {
            Object::from_iter([
                ("message_id", Value::from(ready.message_id.clone())),
                ("status", ready.status.clone().into()),
                ("emitted", ready.emitted.into()),
                ("failures", ready.failures.into()),
                ("knobs", ready.knobs.clone().into()),
            ])
        });
        let told: Vec<Object<'static>> = told.collect();
        Object::from_iter([("messages", Value::from(self.messages)), ("sample", told.into())])
    }

    fn add(&mut self, message_id: &str, record: &[u8]) {
        let Record { status, emitted, is_terminal, reason, failures, knobs } = read(record);
        if status == "FAILED" && !is_terminal {
            self.failed.add(format!("{message_id} {reason}").trim_end());
        }
        self.messages += 1;
        self.total += emitted;
        if self.told.len() < TOLD_MAX {
            let message_id = message_id.to_owned();
            self.told.push(SentReady { message_id, status, emitted, failures, knobs });
        }
    }
}

/// What the record of a READY message says. A line that cannot be read says nothing.
#[derive(Default)]
struct Record {
    /// The last status.
    status: String,
    /// Its reason, where it has one.
    reason: String,
    /// The most that one of its STREAMED lines has sent.
    emitted: u64,
    /// Whether any line ends the work on the message for good.
    is_terminal: bool,
    failures: u64,
    knobs: Option<Object<'static>>,
}

fn read(record: &[u8]) -> Record {
    let mut read = Record::default();
    for line in record.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(line) = json::parse(line, &Limits::default()) else { continue };
        let Some(status) = line.get("status").and_then(Value::as_str) else { continue };
        if status == "STREAMED" {
            let emitted = line.get("emitted").and_then(Value::as_u64).unwrap_or(0);
            read.emitted = read.emitted.max(emitted);
        }
        read.failures += u64::from(status == "FAILED");
        if let Some(knobs) = line.get("knobs").and_then(Value::as_object) {
            read.knobs = Some(knobs.clone().into_owned());
        }
        read.is_terminal |= matches!(status, "STREAMED" | "SKIPPED_OUT_OF_SCOPE");
        status.clone_into(&mut read.status);
        line.get("reason").and_then(Value::as_str).unwrap_or_default().clone_into(&mut read.reason);
    }
    read
}

impl Books {
    /// What streamers say they have sent for a run.
    pub(crate) async fn sent(&self, run: &str) -> Result<Sent, Fault> {
        let folder = self.paths.of_run(run, "wsp/ready_runs/");
        let (mut sent, mut after) = (Sent::default(), None);
        loop {
            let page = self.artifacts_list(&folder, after.take(), PAGE).await?;
            for path in &page {
                // Beside the records lie their markers, in a folder of their own.
                let name = path.strip_prefix(&folder).filter(|name| !name.contains('/'));
                let Some(message_id) = name.and_then(|name| name.strip_suffix(".jsonl")) else {
                    continue;
                };
                let record = self.artifacts_get(path).await?;
                sent.add(message_id, &record.unwrap_or_default());
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.clone()),
                _ => return Ok(sent),
            }
        }
    }

    pub(crate) async fn artifacts_list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> Result<Vec<String>, Fault> {
        use admit_artifacts::Artifacts as _;
        self.artifacts.list(prefix, after, rows_max).await.map_err(unreadable)
    }

    pub(crate) async fn artifacts_get(&self, path: &str) -> Result<Option<bytes::Bytes>, Fault> {
        use admit_artifacts::Artifacts as _;
        self.artifacts.get(path).await.map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_ready_the_most_that_was_streamed_counts() {
        let mut sent = Sent::default();
        sent.add("a", b"{\"status\":\"FAILED\",\"emitted\":9}\n{\"status\":\"STREAMED\",\"emitted\":5}\n\
                       {\"status\":\"STREAMED\",\"emitted\":8}\nnot json\n{\"status\":\"STREAMED\",\"emitted\":2}\n");
        sent.add("b", b"{\"status\":\"FAILED\",\"emitted\":0}\n");
        sent.add("c", b"");
        sent.add("d", b"{\"status\":\"STREAMED\",\"emitted\":0}\n{\"status\":\"FAILED\"}\n");
        assert_eq!((sent.total, sent.messages), (8, 4));
        assert_eq!(sent.failed, ["b"].into_iter().collect(), "what was streamed once is over");
        let told: Vec<(&str, u64)> =
            sent.told.iter().map(|one| (one.status.as_str(), one.emitted)).collect();
        assert_eq!(sent.told[0].failures, 1);
        assert_eq!(told, [("STREAMED", 8), ("FAILED", 0), ("", 0), ("FAILED", 0)]);
    }
}
