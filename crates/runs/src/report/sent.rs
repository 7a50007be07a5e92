//! What streamers say they have sent, from their records of READY messages.

use admit_core::Fault;
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
    /// Some of them: message id, last status, rows.
    pub told: Vec<(String, String, u64)>,
}

impl Sent {
    /// As a report shows it.
    pub fn to_object(&self) -> Object<'static> {
        let told = self.told.iter().map(|(message_id, status, emitted)| {
            Object::from_iter([
                ("message_id", Value::from(message_id.clone())),
                ("status", status.clone().into()),
                ("emitted", (*emitted).into()),
            ])
        });
        let told: Vec<Object<'static>> = told.collect();
        Object::from_iter([("messages", Value::from(self.messages)), ("sample", told.into())])
    }

    fn add(&mut self, message_id: &str, record: &[u8]) {
        let (status, emitted) = read(record);
        self.messages += 1;
        self.total += emitted;
        if self.told.len() < TOLD_MAX {
            self.told.push((message_id.to_owned(), status, emitted));
        }
    }
}

/// The last status of a record, and the most that one of its STREAMED lines has sent. A line that
/// cannot be read says nothing.
fn read(record: &[u8]) -> (String, u64) {
    let (mut last, mut most) = (String::new(), 0);
    for line in record.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(line) = json::parse(line, &Limits::default()) else { continue };
        let Some(status) = line.get("status").and_then(Value::as_str) else { continue };
        if status == "STREAMED" {
            most = most.max(line.get("emitted").and_then(Value::as_u64).unwrap_or(0));
        }
        status.clone_into(&mut last);
    }
    (last, most)
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
        assert_eq!((sent.total, sent.messages), (8, 3));
        let told: Vec<(&str, u64)> = sent.told.iter().map(|(_, s, n)| (s.as_str(), *n)).collect();
        assert_eq!(told, [("STREAMED", 8), ("FAILED", 0), ("", 0)]);
    }
}
