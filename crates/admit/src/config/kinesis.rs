//! `[bus.kinesis]`: how Amazon Kinesis is spoken to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// `[bus.kinesis]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KinesisConfig {
    /// Where the service is, such as `http://127.0.0.1:4567`. Empty: at AWS.
    pub(crate) endpoint: String,
    /// What comes before a topic to make the name of its stream.
    pub(crate) stream_prefix: String,
    /// Whether streams that are not there are made.
    pub(crate) create_streams: bool,
    /// Shards of streams that are made; 0 leaves their number to Kinesis.
    pub(crate) shards: u32,
    /// Messages that wait or are on their way at once.
    pub(crate) in_flight_max: usize,
    /// Requests on their way at once, for one stream.
    pub(crate) requests_max: usize,
    /// How long an answer is waited for, in milliseconds. Then the publish is ambiguous.
    pub(crate) request_timeout_ms: u64,
    /// How far the clock of Kinesis may be from ours, in milliseconds: searches look so much further.
    pub(crate) clock_slack_ms: u64,
    /// How long a search or a read may take, in milliseconds.
    pub(crate) find_wait_ms: u64,
    /// Records of a shard that a search reads before it says that it cannot tell.
    pub(crate) find_messages_max: u64,
    /// Topics whose stream has another name.
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
    /// What no single value can break.
    pub(super) fn check(&self, url: &str) -> Result<(), ConfigError> {
        let rule = |text: String| Err(ConfigError::Rule(text));
        for (key, is_zero) in [
            ("in_flight_max", self.in_flight_max == 0),
            ("requests_max", self.requests_max == 0),
            ("request_timeout_ms", self.request_timeout_ms == 0),
            ("find_wait_ms", self.find_wait_ms == 0),
        ] {
            if is_zero {
                return rule(format!("bus.kinesis.{key} must be more than 0"));
            }
        }
        // An iterator of Kinesis lives for five minutes.
        if self.find_wait_ms > 240_000 {
            return rule("bus.kinesis.find_wait_ms may be 240,000 at most".to_owned());
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
            return rule(format!("bus.kinesis: {bad:?} cannot be in the name of a stream"));
        }
        if self.streams.values().any(String::is_empty) {
            return rule("bus.kinesis.streams names an empty stream".to_owned());
        }
        match url.strip_prefix("kinesis:") {
            Some(_) => region(url).map(drop),
            None => Ok(()),
        }
    }
}

/// The region that `kinesis://REGION` names; empty is that of the environment.
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
        // It may hold credentials by mistake, so it is not shown.
        None => Err(ConfigError::Rule(
            "bus.url must be kinesis://REGION, such as kinesis://eu-central-1; credentials come from \
             the environment, and another service is named by bus.kinesis.endpoint"
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
    fn settings_that_cannot_work_are_errors() {
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
