//! `[bus.kinesis]`: settings of Amazon Kinesis.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// `[bus.kinesis]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KinesisConfig {
    /// Endpoint, such as `http://127.0.0.1:4567`. Empty: AWS.
    pub(crate) endpoint: String,
    /// Prefix of stream names; the rest is the topic.
    pub(crate) stream_prefix: String,
    /// Whether missing streams are created.
    pub(crate) create_streams: bool,
    /// Shards of created streams; 0 for on-demand mode.
    pub(crate) shards: u32,
    /// Maximum messages queued or in flight.
    pub(crate) in_flight_max: usize,
    /// Maximum requests in flight per stream.
    pub(crate) requests_max: usize,
    /// Request timeout, in milliseconds; then the publish is ambiguous.
    pub(crate) request_timeout_ms: u64,
    /// Maximum clock skew of Kinesis, in milliseconds; added to the time range of lookups.
    pub(crate) clock_slack_ms: u64,
    /// Timeout of a lookup or read, in milliseconds.
    pub(crate) find_wait_ms: u64,
    /// Maximum records per shard that a lookup reads; beyond that its result is unknown.
    pub(crate) find_messages_max: u64,
    /// Stream names by topic, for streams that are not named after their topic.
    pub(crate) streams: BTreeMap<String, String>,
}

impl Default for KinesisConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            stream_prefix: String::new(),
            create_streams: false,
            shards: 1,
            in_flight_max: 4_096,
            requests_max: 8,
            request_timeout_ms: 5_000,
            clock_slack_ms: 60_000,
            find_wait_ms: 60_000,
            find_messages_max: 2_000_000,
            streams: BTreeMap::new(),
        }
    }
}

impl KinesisConfig {
    /// Cross-field validation.
    pub(super) fn check(&self, url: &str) -> Result<(), ConfigError> {
        let rule = |text: String| Err(ConfigError::Rule(text));
        for (key, is_zero) in [
            ("in_flight_max", self.in_flight_max == 0),
            ("requests_max", self.requests_max == 0),
            ("request_timeout_ms", self.request_timeout_ms == 0),
            ("find_wait_ms", self.find_wait_ms == 0),
        ] {
            if is_zero {
                return rule(format!("bus.kinesis.{key} must be greater than 0"));
            }
        }
        // Shard iterators of Kinesis expire after five minutes.
        if self.find_wait_ms > 240_000 {
            return rule("bus.kinesis.find_wait_ms must be at most 240000".to_owned());
        }
        let host =
            ["http://", "https://"].iter().find_map(|scheme| self.endpoint.strip_prefix(scheme));
        let is_host = host.is_some_and(|host| !host.is_empty() && !host.contains('@'));
        if !(self.endpoint.is_empty() || is_host) {
            return rule(
                "bus.kinesis.endpoint must be http://HOST:PORT or https://HOST:PORT".to_owned(),
            );
        }
        let is_name = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let streams = self.streams.values().chain([&self.stream_prefix]);
        if let Some(bad) = streams.into_iter().find(|name| !is_name(name) || name.len() > 128) {
            return rule(format!("bus.kinesis: {bad:?} is not valid in a stream name"));
        }
        if self.streams.values().any(String::is_empty) {
            return rule("bus.kinesis.streams contains an empty stream name".to_owned());
        }
        match url.strip_prefix("kinesis:") {
            Some(_) => region(url).map(drop),
            None => Ok(()),
        }
    }
}

/// Region of `kinesis://REGION`; `None` for the region of the environment.
pub(crate) fn region(url: &str) -> Result<Option<String>, ConfigError> {
    let named = url.strip_prefix("kinesis://").map(|rest| rest.trim_end_matches('/'));
    let is_region = |region: &&str| {
        region
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    match named.filter(is_region) {
        Some("") => Ok(None),
        Some(region) => Ok(Some(region.to_owned())),
        // The URL is not shown, because it may contain credentials.
        None => Err(ConfigError::Rule(
            "bus.url must be kinesis://REGION, such as kinesis://eu-central-1; credentials come from \
             the environment, and bus.kinesis.endpoint sets another endpoint"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kinesis_url_is_a_region_and_nothing_else() {
        assert_eq!(region("kinesis://eu-central-1").unwrap().as_deref(), Some("eu-central-1"));
        assert_eq!(region("kinesis://").unwrap(), None);
        for url in ["kinesis:eu", "kinesis://me:hush@host", "kinesis://host:4567", "kinesis://a/b"]
        {
            let error = region(url).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn invalid_settings_are_refused() {
        let config = KinesisConfig::default();
        config.check("kinesis://eu-central-1").unwrap();
        config.check("file:").unwrap();
        for bad in [
            KinesisConfig { requests_max: 0, ..config.clone() },
            KinesisConfig { find_wait_ms: 300_000, ..config.clone() },
            KinesisConfig { endpoint: "localhost:4567".to_owned(), ..config.clone() },
            KinesisConfig { endpoint: "http://me:hush@host".to_owned(), ..config.clone() },
            KinesisConfig { stream_prefix: "a/b".to_owned(), ..config.clone() },
            KinesisConfig { streams: [("t".to_owned(), String::new())].into(), ..config.clone() },
        ] {
            let error = bad.check("file:").unwrap_err().to_string();
            assert!(error.contains("bus.kinesis") && !error.contains("hush"), "{error}");
        }
    }
}
