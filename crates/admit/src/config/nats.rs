//! `[bus.nats]`: settings of NATS JetStream.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::bus::SecretSource;

/// `[bus.nats]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NatsConfig {
    /// A `.creds` file of a NATS account. Empty: none.
    pub(crate) credentials: PathBuf,
    /// User name.
    pub(crate) user: String,
    /// Password, or `file:PATH`.
    pub(crate) password: SecretSource,
    /// Token, or `file:PATH`.
    pub(crate) token: SecretSource,
    /// Whether TLS is required.
    pub(crate) tls_required: bool,
    /// CA file (PEM) of the server's certificate. Empty: the system's root certificates.
    pub(crate) ca: PathBuf,
    /// Client certificate (PEM). Empty: none.
    pub(crate) cert: PathBuf,
    /// Private key of the client certificate.
    pub(crate) key: PathBuf,
    /// Prefix of subject names.
    pub(crate) subject_prefix: String,
    /// Prefix of stream names; the rest is the topic with `_` for dots.
    pub(crate) stream_prefix: String,
    /// Whether missing streams are created.
    pub(crate) create_streams: bool,
    /// Replicas of created streams.
    pub(crate) replicas: usize,
    /// Deduplication window of created streams, in milliseconds.
    pub(crate) duplicate_window_ms: u64,
    /// Retention of created streams, in seconds; 0 is forever.
    pub(crate) keep_seconds: u64,
    /// Maximum bytes of created streams; 0 is no limit. A full stream rejects new messages.
    pub(crate) stream_bytes_max: u64,
    /// Maximum messages in flight.
    pub(crate) in_flight_max: usize,
    /// Acknowledgement timeout, in milliseconds; then the publish is ambiguous.
    pub(crate) ack_timeout_ms: u64,
    /// Connect timeout, in milliseconds.
    pub(crate) connect_timeout_ms: u64,
    /// Maximum clock skew of the server, in milliseconds; added to the time range of lookups.
    pub(crate) clock_slack_ms: u64,
    /// Maximum messages that a lookup reads; beyond that its result is unknown.
    pub(crate) find_messages_max: u64,
    /// The server's monitoring address, such as `http://127.0.0.1:8222`, to check whether it syncs before
    /// it acknowledges. Empty: no check.
    pub(crate) monitor: String,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            credentials: PathBuf::new(),
            user: String::new(),
            password: SecretSource::default(),
            token: SecretSource::default(),
            tls_required: false,
            ca: PathBuf::new(),
            cert: PathBuf::new(),
            key: PathBuf::new(),
            subject_prefix: String::new(),
            stream_prefix: String::new(),
            create_streams: true,
            replicas: 1,
            duplicate_window_ms: 120_000,
            keep_seconds: 0,
            stream_bytes_max: 0,
            in_flight_max: 1_024,
            ack_timeout_ms: 5_000,
            connect_timeout_ms: 5_000,
            clock_slack_ms: 60_000,
            find_messages_max: 2_000_000,
            monitor: String::new(),
        }
    }
}

impl NatsConfig {
    /// Cross-field validation.
    pub(super) fn check(&self, delivery_timeout_ms: u64) -> Result<(), ConfigError> {
        let rule =
            |key: &str, message: &str| Err(ConfigError::Rule(format!("bus.nats.{key}: {message}")));
        for (key, value, max) in [
            ("replicas", self.replicas as u64, 5),
            ("in_flight_max", self.in_flight_max as u64, 65_536),
            ("ack_timeout_ms", self.ack_timeout_ms, 3_600_000),
            ("connect_timeout_ms", self.connect_timeout_ms, 3_600_000),
            ("find_messages_max", self.find_messages_max, u64::MAX),
        ] {
            if value == 0 || value > max {
                return rule(key, &format!("must be from 1 to {max}"));
            }
        }
        let is_subject = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_subject(&self.subject_prefix) {
            return rule("subject_prefix", "may contain letters, digits, -, _ and dots only");
        }
        if !is_subject(&self.stream_prefix) || self.stream_prefix.contains('.') {
            return rule("stream_prefix", "may contain letters, digits, - and _ only");
        }
        if self.duplicate_window_ms < delivery_timeout_ms {
            return rule("duplicate_window_ms", "must not be less than bus.delivery_timeout_ms");
        }
        if self.keep_seconds > 0
            && self.keep_seconds.saturating_mul(1_000) < self.duplicate_window_ms
        {
            return rule("keep_seconds", "must not be less than bus.nats.duplicate_window_ms");
        }
        if self.cert.as_os_str().is_empty() != self.key.as_os_str().is_empty() {
            return rule("cert", "cert and key must be set together");
        }
        if !self.monitor.is_empty() && !self.monitor.starts_with("http://") {
            return rule("monitor", "must be an address such as http://127.0.0.1:8222");
        }
        Ok(())
    }
}

#[cfg(feature = "nats")]
mod options {
    use std::path::Path;
    use std::time::Duration;

    use admit_bus::nats::{Auth, Options};

    use super::super::{Config, ConfigError, bus::file};
    use super::NatsConfig;

    impl NatsConfig {
        fn auth(&self, base: &Path) -> Result<Auth, ConfigError> {
            let password = self.password.read("bus.nats.password", base)?;
            let token = self.token.read("bus.nats.token", base)?;
            let user = Some(self.user.clone()).filter(|user| !user.is_empty());
            match (file(base, &self.credentials), user, password, token) {
                (None, None, None, None) => Ok(Auth::None),
                (Some(path), None, None, None) => Ok(Auth::Credentials(path)),
                (None, Some(user), Some(password), None) => Ok(Auth::User { user, password }),
                (None, None, None, Some(token)) => Ok(Auth::Token(token)),
                _ => Err(ConfigError::Rule(
                    "bus.nats: set one of credentials, user with password, and token".to_owned(),
                )),
            }
        }
    }

    impl Config {
        /// Options of the NATS bus. Relative files start at `base`.
        pub(crate) fn nats_options(&self, base: &Path) -> Result<Options, ConfigError> {
            let nats = &self.bus.nats;
            let millis = Duration::from_millis;
            let above_zero = |number: u64| Some(number).filter(|number| *number > 0);
            Ok(Options {
                auth: nats.auth(base)?,
                tls_required: nats.tls_required,
                ca: file(base, &nats.ca),
                client_certificate: file(base, &nats.cert).zip(file(base, &nats.key)),
                subject_prefix: nats.subject_prefix.clone(),
                stream_prefix: nats.stream_prefix.clone(),
                create_streams: nats.create_streams,
                replicas: nats.replicas,
                duplicate_window: millis(nats.duplicate_window_ms),
                keep: above_zero(nats.keep_seconds).map(Duration::from_secs),
                stream_bytes_max: above_zero(nats.stream_bytes_max),
                in_flight_max: nats.in_flight_max,
                ack_timeout: millis(nats.ack_timeout_ms),
                connect_timeout: millis(nats.connect_timeout_ms),
                clock_slack: millis(nats.clock_slack_ms),
                find_messages_max: nats.find_messages_max,
                delivery_timeout: millis(self.bus.delivery_timeout_ms),
                message_bytes_max: self.limits.body_bytes_max,
                monitor: Some(nats.monitor.clone()).filter(|monitor| !monitor.is_empty()),
                ..Options::new(&self.bus.url)
            })
        }
    }
}
