//! What a content type says about how a request carries its events.

use admit_core::Submission;

use super::settings::Accept;

pub(super) const CONTENT_TYPE: &str = "content-type";

pub(super) const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";
const CLOUD_EVENTS: &str = "application/cloudevents";
const LINES: [&str; 4] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// Stands in for a content type on one line of a request. No header of HTTP has such a name.
pub(super) const LINE: &str = ":line";

/// How one submission carries its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A body of the sender's own; whether it says that it is JSON.
    Plain { is_json: bool },
    /// The line with this number of a request of JSON lines.
    Line(u64),
    /// A whole request of JSON lines.
    Lines,
    /// A CloudEvent as one JSON object.
    Structured,
    /// A CloudEvent whose attributes are headers; whether its data says that it is JSON.
    Binary { is_json: bool },
    /// A JSON array of CloudEvents.
    Batch,
}

impl Mode {
    /// The mode of a submission, by its headers alone.
    pub(super) fn of(submission: &Submission) -> Self {
        if let Some(line) = submission.header(LINE) {
            return Self::Line(line.parse().unwrap_or_default());
        }
        let media_type = submission.header(CONTENT_TYPE).map(essence).unwrap_or_default();
        if LINES.contains(&media_type.as_str()) {
            return Self::Lines;
        }
        match media_type.as_str() {
            BATCH => Self::Batch,
            STRUCTURED => Self::Structured,
            other => {
                let is_json = is_json(other);
                let is_cloud = submission.headers.iter().any(|(name, _)| name.starts_with("ce-"));
                if is_cloud { Self::Binary { is_json } } else { Self::Plain { is_json } }
            }
        }
    }
}

/// Whether a stream takes bodies of this type. Without a type there must be no body; that is for
/// whoever sees the body to say.
pub(super) fn accepts(accept: Accept, content_type: Option<&str>) -> bool {
    let Some(media_type) = content_type.map(essence) else { return true };
    if media_type.starts_with(CLOUD_EVENTS) {
        return matches!(media_type.as_str(), STRUCTURED | BATCH);
    }
    accept == Accept::Any || is_json(&media_type) || LINES.contains(&media_type.as_str())
}

/// Whether an essence (see [`essence`]) is JSON.
pub(super) fn is_json(essence: &str) -> bool {
    crate::is_json(essence)
}

/// The type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    content_type[..end].trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_taken_unless_the_stream_says_otherwise() {
        for json in [
            "application/json",
            "application/problem+json",
            "Application/CloudEvents+JSON; charset=UTF-8",
            "application/cloudevents-batch+json",
            "application/x-ndjson",
            "application/jsonl",
        ] {
            assert!(accepts(Accept::Json, Some(json)), "{json}");
        }
        for other in ["text/plain", "application/octet-stream", "text/xml", ""] {
            assert!(!accepts(Accept::Json, Some(other)), "{other}");
            assert!(accepts(Accept::Any, Some(other)), "{other}");
        }
        for unknown in ["application/cloudevents+xml", "application/cloudevents"] {
            assert!(!accepts(Accept::Any, Some(unknown)), "{unknown}");
        }
    }
}
