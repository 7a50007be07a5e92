//! Rows sent by streamers, from their records of READY messages.

use admit_core::Fault;
use admit_core::closure::CountedSample;
use admit_core::json::{self, Limits, Object, Value};

use super::{RunReporter, unreadable};

/// Paths per page.
const PAGE: usize = 1_000;

/// Maximum READY messages listed individually.
const SAMPLE_MAX: usize = 50;

/// Totals of the streamers' records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentTotals {
    /// Rows with a decision: per READY the maximum of its STREAMED lines.
    pub total: u64,
    /// READY messages with a record.
    pub messages: u64,
    /// Sample of them.
    pub sample: Vec<SentReady>,
    /// READY messages that were never streamed completely and whose last status is a failure.
    pub failed: CountedSample,
}

/// The record of one READY message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentReady {
    /// The message.
    pub message_id: String,
    /// The last status.
    pub status: String,
    /// Rows with a decision.
    pub emitted: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Settings of the last recorded attempt, if recorded.
    pub knobs: Option<Object<'static>>,
}

impl SentTotals {
    /// As shown in a report.
    pub fn to_object(&self) -> Object<'static> {
        let sample = self.sample.iter().map(|ready| {
            Object::from_iter([
                ("message_id", Value::from(ready.message_id.clone())),
                ("status", ready.status.clone().into()),
                ("emitted", ready.emitted.into()),
                ("failures", ready.failures.into()),
                ("knobs", ready.knobs.clone().into()),
            ])
        });
        let sample: Vec<Object<'static>> = sample.collect();
        Object::from_iter([("messages", Value::from(self.messages)), ("sample", sample.into())])
    }

    fn add(&mut self, message_id: &str, record: &[u8]) {
        let ReadyRecord { status, emitted, is_terminal, reason, failures, knobs } = parse(record);
        if status == "FAILED" && !is_terminal {
            self.failed.add(format!("{message_id} {reason}").trim_end());
        }
        self.messages += 1;
        self.total += emitted;
        if self.sample.len() < SAMPLE_MAX {
            let message_id = message_id.to_owned();
            self.sample.push(SentReady { message_id, status, emitted, failures, knobs });
        }
    }
}

/// Parsed record of a READY message. Unreadable lines are skipped.
#[derive(Default)]
struct ReadyRecord {
    /// The last status.
    status: String,
    /// Its reason, if any.
    reason: String,
    /// Maximum of its STREAMED lines.
    emitted: u64,
    /// Whether any line has a final status.
    is_terminal: bool,
    failures: u64,
    knobs: Option<Object<'static>>,
}

fn parse(record: &[u8]) -> ReadyRecord {
    let mut parsed = ReadyRecord::default();
    for line in record.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(line) = json::parse(line, &Limits::default()) else { continue };
        let Some(status) = line.get("status").and_then(Value::as_str) else { continue };
        if status == "STREAMED" {
            let emitted = line.get("emitted").and_then(Value::as_u64).unwrap_or(0);
            parsed.emitted = parsed.emitted.max(emitted);
        }
        parsed.failures += u64::from(status == "FAILED");
        if let Some(knobs) = line.get("knobs").and_then(Value::as_object) {
            parsed.knobs = Some(knobs.clone().into_owned());
        }
        parsed.is_terminal |= matches!(status, "STREAMED" | "SKIPPED_OUT_OF_SCOPE");
        status.clone_into(&mut parsed.status);
        line.get("reason")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .clone_into(&mut parsed.reason);
    }
    parsed
}

impl RunReporter {
    /// Rows sent by streamers for a run.
    pub(crate) async fn sent(&self, run: &str) -> Result<SentTotals, Fault> {
        let folder = self.paths.of_run(run, "wsp/ready_runs/");
        let (mut sent, mut after) = (SentTotals::default(), None);
        loop {
            let page = self.artifacts_list(&folder, after.take(), PAGE).await?;
            for path in &page {
                // Markers of the records are in a subfolder.
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
    fn the_maximum_of_each_ready_counts() {
        let mut sent = SentTotals::default();
        sent.add("a", b"{\"status\":\"FAILED\",\"emitted\":9}\n{\"status\":\"STREAMED\",\"emitted\":5}\n\
                       {\"status\":\"STREAMED\",\"emitted\":8}\nnot json\n{\"status\":\"STREAMED\",\"emitted\":2}\n");
        sent.add("b", b"{\"status\":\"FAILED\",\"emitted\":0}\n");
        sent.add("c", b"");
        sent.add("d", b"{\"status\":\"STREAMED\",\"emitted\":0}\n{\"status\":\"FAILED\"}\n");
        assert_eq!((sent.total, sent.messages), (8, 4));
        assert_eq!(sent.failed, ["b"].into_iter().collect(), "a streamed message is not failed");
        let sample: Vec<(&str, u64)> =
            sent.sample.iter().map(|one| (one.status.as_str(), one.emitted)).collect();
        assert_eq!(sent.sample[0].failures, 1);
        assert_eq!(sample, [("STREAMED", 8), ("FAILED", 0), ("", 0), ("FAILED", 0)]);
    }
}
