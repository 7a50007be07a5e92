//! Content type of a request: how it carries its events.

use admit_core::Submission;

use super::settings::Accept;

pub(super) const CONTENT_TYPE: &str = "content-type";

pub(super) const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";
const CLOUD_EVENTS: &str = "application/cloudevents";
const LINES: [&str; 4] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// Pseudo header that marks one line of a request. The leading colon makes a clash with an HTTP
/// header impossible.
pub(super) const LINE: &str = ":line";

/// How a submission carries its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransportMode {
    /// Plain body, and whether its content type is JSON.
    Plain { is_json: bool },
    /// One line of a JSON lines request, with its number.
    Line(u64),
    /// JSON lines request.
    Lines,
    /// CloudEvent as one JSON object.
    Structured,
    /// CloudEvent with its attributes in headers, and whether its data is declared as JSON.
    Binary { is_json: bool },
    /// JSON array of CloudEvents.
    Batch,
}

impl TransportMode {
    /// Determines the mode of a submission from its headers.
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

/// Returns whether a stream accepts bodies of this type. Without a content type the body must be
/// empty, which is checked later, once the body is known.
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

/// Content type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    content_type[..end].trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_accepted_by_default() {
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
