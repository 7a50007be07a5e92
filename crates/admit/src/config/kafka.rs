//! `[bus.kafka]`: settings of Kafka.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::bus::SecretSource;

/// `[bus.kafka]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KafkaConfig {
    /// Client id.
    pub(crate) client_id: String,
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub(crate) security: String,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Empty: no SASL.
    pub(crate) sasl_mechanism: String,
    /// SASL user name.
    pub(crate) user: String,
    /// SASL password, or `file:PATH`.
    pub(crate) password: SecretSource,
    /// CA file (PEM) of the brokers' certificates. Empty: the system's root certificates.
    pub(crate) ca: PathBuf,
    /// Prefix of topic names in the cluster.
    pub(crate) topic_prefix: String,
    /// Whether missing topics are created.
    pub(crate) create_topics: bool,
    /// Partitions of created topics.
    pub(crate) partitions: u32,
    /// Replication factor of created topics.
    pub(crate) replication: u32,
    /// Maximum messages in flight.
    pub(crate) in_flight_max: usize,
    /// Linger of the producer, in milliseconds.
    pub(crate) linger_ms: u64,
    /// Request timeout outside of publishing, in milliseconds.
    pub(crate) request_timeout_ms: u64,
    /// Maximum clock skew of brokers, in milliseconds, for topics with broker timestamps; added to the
    /// time range of lookups.
    pub(crate) clock_slack_ms: u64,
    /// Maximum messages that a lookup reads; beyond that its result is unknown.
    pub(crate) find_messages_max: u64,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            client_id: "admit".to_owned(),
            security: "plaintext".to_owned(),
            sasl_mechanism: String::new(),
            user: String::new(),
            password: SecretSource::default(),
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
    /// Cross-field validation.
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
            return rule("topic_prefix", "may contain letters, digits, -, _ and dots only");
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
        let needs_tls_feature =
            self.security.ends_with("ssl") || self.sasl_mechanism.starts_with("SCRAM");
        if needs_tls_feature && !cfg!(feature = "kafka-tls") {
            return rule("security", "TLS and SCRAM require a build with --features kafka-tls");
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
        /// Options of the Kafka bus. Relative files start at `base`.
        pub(crate) fn kafka_options(&self, base: &Path) -> Result<Options, ConfigError> {
            let kafka = &self.bus.kafka;
            let millis = Duration::from_millis;
            let servers = self.bus.url.trim_start_matches("kafka://").trim_end_matches('/');
            let rule = |message: &str| ConfigError::Rule(message.to_owned());
            if servers.is_empty() || servers.contains('@') {
                return Err(rule(
                    "bus.url must be kafka://HOST:PORT, with more servers after commas; set user and \
                     password in bus.kafka",
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
