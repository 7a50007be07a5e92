//! `[bus.kafka]`: how Kafka is spoken to.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::bus::Secret;

/// `[bus.kafka]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KafkaConfig {
    /// How we call ourselves to the brokers.
    pub(crate) client_id: String,
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub(crate) security: String,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Empty: no SASL.
    pub(crate) sasl_mechanism: String,
    /// The user.
    pub(crate) user: String,
    /// Its password, or `file:PATH`.
    pub(crate) password: Secret,
    /// Who vouches for the brokers, a PEM file. Empty: whom the system trusts.
    pub(crate) ca: PathBuf,
    /// What comes before a topic to make the topic of the cluster.
    pub(crate) topic_prefix: String,
    /// Whether topics that are not there are made.
    pub(crate) create_topics: bool,
    /// Partitions of topics that are made.
    pub(crate) partitions: u32,
    /// Replicas of topics that are made.
    pub(crate) replication: u32,
    /// Messages on the way at once.
    pub(crate) in_flight_max: usize,
    /// How long the broker gathers messages before it sends them, in milliseconds.
    pub(crate) linger_ms: u64,
    /// How long brokers are waited for outside of publishing, in milliseconds.
    pub(crate) request_timeout_ms: u64,
    /// How far the clock of a broker may be from ours, in milliseconds, where topics are stamped by
    /// it: searches look so much further.
    pub(crate) clock_slack_ms: u64,
    /// Messages a search reads before it says that it cannot tell.
    pub(crate) find_messages_max: u64,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            client_id: "admit".to_owned(),
            security: "plaintext".to_owned(),
            sasl_mechanism: String::new(),
            user: String::new(),
            password: Secret::default(),
            ca: PathBuf::new(),
            topic_prefix: String::new(),
            create_topics: false,
            partitions: 6,
            replication: 3,
            in_flight_max: 10_000,
            linger_ms: 2,
            request_timeout_ms: 5_000,
            clock_slack_ms: 60_000,
            find_messages_max: 2_000_000,
        }
    }
}

impl KafkaConfig {
    /// What no single value can break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let rule = |key: &str, message: &str| {
            Err(ConfigError::Rule(format!("bus.kafka.{key}: {message}")))
        };
        for (key, value, max) in [
            ("partitions", u64::from(self.partitions), 10_000),
            ("replication", u64::from(self.replication), 100),
            ("in_flight_max", self.in_flight_max as u64, 1_000_000),
            ("request_timeout_ms", self.request_timeout_ms, 3_600_000),
            ("find_messages_max", self.find_messages_max, u64::MAX),
        ] {
            if value == 0 || value > max {
                return rule(key, &format!("must be from 1 to {max}"));
            }
        }
        if self.linger_ms > 60_000 {
            return rule("linger_ms", "must be from 0 to 60000");
        }
        let is_prefix = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !self.topic_prefix.bytes().all(is_prefix) {
            return rule("topic_prefix", "must be letters, digits, -, _ and dots");
        }
        if !["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"].contains(&self.security.as_str()) {
            return rule("security", "must be plaintext, ssl, sasl_plaintext or sasl_ssl");
        }
        if self.security.starts_with("sasl_") == self.sasl_mechanism.is_empty() {
            return rule("sasl_mechanism", "must be set with sasl_plaintext and sasl_ssl only");
        }
        let mechanisms = ["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
        if !mechanisms.contains(&self.sasl_mechanism.as_str()) {
            return rule("sasl_mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
        }
        let wants_tls = self.security.ends_with("ssl") || self.sasl_mechanism.starts_with("SCRAM");
        if wants_tls && !cfg!(feature = "kafka-tls") {
            return rule("security", "TLS and SCRAM need admit built with --features kafka-tls");
        }
        Ok(())
    }
}

#[cfg(feature = "kafka")]
mod options {
    use std::path::Path;
    use std::time::Duration;

    use admit_bus::kafka::{Options, Sasl};

    use super::super::{Config, ConfigError, bus::file};

    impl Config {
        /// How the bus on Kafka is opened. Relative files are below `base`.
        pub(crate) fn kafka_options(&self, base: &Path) -> Result<Options, ConfigError> {
            let kafka = &self.bus.kafka;
            let millis = Duration::from_millis;
            let servers = self.bus.url.trim_start_matches("kafka://").trim_end_matches('/');
            let rule = |message: &str| ConfigError::Rule(message.to_owned());
            if servers.is_empty() || servers.contains('@') {
                return Err(rule(
                    "bus.url must be kafka://HOST:PORT, with more servers after commas; user and \
                     password stand in bus.kafka",
                ));
            }
            let sasl = match kafka.sasl_mechanism.as_str() {
                "" => None,
                mechanism => Some(Sasl {
                    mechanism: mechanism.to_owned(),
                    user: kafka.user.clone(),
                    password: kafka
                        .password
                        .read("bus.kafka.password", base)?
                        .ok_or_else(|| rule("bus.kafka.password is missing"))?,
                }),
            };
            Ok(Options {
                client_id: kafka.client_id.clone(),
                security: kafka.security.clone(),
                sasl,
                ca: file(base, &kafka.ca),
                topic_prefix: kafka.topic_prefix.clone(),
                create_topics: kafka.create_topics,
                partitions: kafka.partitions,
                replication: kafka.replication,
                in_flight_max: kafka.in_flight_max,
                linger: millis(kafka.linger_ms),
                request_timeout: millis(kafka.request_timeout_ms),
                clock_slack: millis(kafka.clock_slack_ms),
                find_messages_max: kafka.find_messages_max,
                delivery_timeout: millis(self.bus.delivery_timeout_ms),
                message_bytes_max: self.limits.body_bytes_max,
                ..Options::new(servers)
            })
        }
    }
}
