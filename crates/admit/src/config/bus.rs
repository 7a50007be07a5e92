//! `[bus]`: the bus that admitted events are published to, with the settings of each kind.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::ingestion::folder;
use super::kafka::KafkaConfig;
use super::kinesis::KinesisConfig;
use super::nats::NatsConfig;
use super::{Config, ConfigError};

/// `[bus]`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BusConfig {
    /// `file:` for `bus` in the data folder, `file:PATH` for another folder; else
    /// `nats://HOST:PORT`, `kafka://HOST:PORT` or `kinesis://REGION`. See `docs/bus`.
    #[serde(serialize_with = "without_password")]
    pub(crate) url: String,
    /// Delivery timeout, in milliseconds: a publish that timed out may still be stored until then, and
    /// can be resolved as absent only afterwards.
    pub(crate) delivery_timeout_ms: u64,
    /// `[bus.nats]`
    pub(crate) nats: NatsConfig,
    /// `[bus.kafka]`
    pub(crate) kafka: KafkaConfig,
    /// `[bus.kinesis]`
    pub(crate) kinesis: KinesisConfig,
}

impl Default for BusConfig {
    fn default() -> Self {
        Self {
            url: "file:".to_owned(),
            delivery_timeout_ms: 30_000,
            nats: NatsConfig::default(),
            kafka: KafkaConfig::default(),
            kinesis: KinesisConfig::default(),
        }
    }
}

impl fmt::Debug for BusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusConfig")
            .field("url", &hidden(&self.url))
            .field("delivery_timeout_ms", &self.delivery_timeout_ms)
            .field("nats", &self.nats)
            .field("kafka", &self.kafka)
            .field("kinesis", &self.kinesis)
            .finish()
    }
}

/// Path of an optional file.
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(super) fn file(base: &Path, path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| base.join(path))
}

/// A secret in the config: literal, or `file:PATH`. The literal is hidden in its debug and serialised
/// form.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretSource(String);

impl SecretSource {
    fn shown(&self) -> &str {
        match self.0.as_str() {
            text if text.is_empty() || text.starts_with("file:") => text,
            _ => "(hidden)",
        }
    }

    /// Reads the secret; `None` if it is not set. A relative file starts at `base`.
    pub(crate) fn read(&self, key: &str, base: &Path) -> Result<Option<String>, ConfigError> {
        let Some(path) = self.0.strip_prefix("file:") else {
            return Ok(Some(self.0.clone()).filter(|text| !text.is_empty()));
        };
        let path = base.join(path);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            ConfigError::Rule(format!("{key}: {} cannot be read: {error}", path.display()))
        })?;
        match text.trim() {
            "" => Err(ConfigError::Rule(format!("{key}: {} is empty", path.display()))),
            secret => Ok(Some(secret.to_owned())),
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

impl Serialize for SecretSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// Hides the part of a URL before `@`, which may be a password.
pub(crate) fn hidden(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://(hidden)@{host}"),
        _ => url.to_owned(),
    }
}

fn without_password<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hidden(url))
}

/// Kind of a bus that this build supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// A folder.
    File,
    /// NATS JetStream.
    #[cfg(feature = "nats")]
    Nats,
    /// Kafka.
    #[cfg(feature = "kafka")]
    Kafka,
    /// Amazon Kinesis.
    #[cfg(feature = "kinesis")]
    Kinesis,
}

/// Schemes of optional adapters, with their features.
const FEATURES: [(&str, &str); 4] =
    [("nats", "nats"), ("tls", "nats"), ("kafka", "kafka"), ("kinesis", "kinesis")];

impl BusConfig {
    /// Kind of the bus in the URL. Error messages contain the scheme only, because the URL may contain a
    /// password.
    pub(crate) fn scheme(&self) -> Result<Scheme, ConfigError> {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "file" => return Ok(Scheme::File),
            #[cfg(feature = "nats")]
            "nats" | "tls" => return Ok(Scheme::Nats),
            #[cfg(feature = "kafka")]
            "kafka" => return Ok(Scheme::Kafka),
            #[cfg(feature = "kinesis")]
            "kinesis" => return Ok(Scheme::Kinesis),
            _ => {}
        }
        Err(ConfigError::Rule(match FEATURES.iter().find(|(known, _)| *known == scheme) {
            Some((_, feature)) => format!(
                "bus.url \"{scheme}:…\" is not supported by this build; build admit with --features \
                 {feature}, or with --features full for every bus"
            ),
            None => format!(
                "bus.url \"{scheme}:…\" is not supported; use \"file:\", \"file:PATH\", \
                 \"nats://HOST:PORT\", \"kafka://HOST:PORT\" or \"kinesis://REGION\""
            ),
        }))
    }

    /// Identity of a network bus: its kind and the names of its streams or topics. Server addresses are
    /// not part of it, because they change.
    pub(crate) fn network_name(&self) -> String {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "nats" | "tls" => format!("nats streams \"{}*\"", self.nats.stream_prefix),
            "kafka" => format!("kafka topics \"{}*\"", self.kafka.topic_prefix),
            _ => {
                let region = self.url.trim_start_matches("kinesis://");
                format!("kinesis streams \"{}*\" in {region:?}", self.kinesis.stream_prefix)
            }
        }
    }

    /// Cross-field validation of all kinds of bus.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.delivery_timeout_ms == 0 {
            return Err(ConfigError::Rule(
                "bus.delivery_timeout_ms must be greater than 0".to_owned(),
            ));
        }
        self.nats.check(self.delivery_timeout_ms)?;
        self.kafka.check()?;
        self.kinesis.check(&self.url)?;
        self.scheme().map(drop)
    }
}

impl Config {
    /// Folder of the file bus.
    pub(crate) fn bus_root(&self) -> Result<PathBuf, ConfigError> {
        folder("bus", &self.bus.url, &self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_about_an_unsupported_bus_names_its_feature() {
        let scheme = |url: &str| {
            let config = BusConfig { url: url.to_owned(), ..BusConfig::default() };
            config.scheme().map_err(|error| error.to_string())
        };
        assert_eq!(scheme("file:"), Ok(Scheme::File));
        for (url, is_built) in [
            ("nats://me:hush@bus", cfg!(feature = "nats")),
            ("kafka://me:hush@bus", cfg!(feature = "kafka")),
            ("kinesis://me:hush@bus", cfg!(feature = "kinesis")),
        ] {
            match scheme(url) {
                Ok(_) => assert!(is_built, "{url}"),
                Err(error) => {
                    assert!(!is_built && error.contains("--features"), "{error}");
                    assert!(!error.contains("hush"), "{error}");
                }
            }
        }
        let error = scheme("amqp://me:hush@bus").unwrap_err();
        assert!(error.contains("amqp:…") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn secrets_of_a_bus_are_never_shown() {
        let text = "url = \"nats://me:hush@bus:4222\"\n[nats]\npassword = \"hush\"\ntoken = \"file:token\"\n";
        let config: BusConfig = toml::from_str(text).unwrap();
        for shown in [format!("{config:?}"), toml::to_string(&config).unwrap()] {
            assert!(!shown.contains("hush"), "{shown}");
            assert!(shown.contains("nats://(hidden)@bus:4222"), "{shown}");
            assert!(shown.contains("file:token"), "{shown}");
        }
        let read = config.nats.password.read("bus.nats.password", Path::new("")).unwrap();
        assert_eq!(read.as_deref(), Some("hush"));
        assert_eq!(SecretSource::default().read("bus.nats.token", Path::new("")).unwrap(), None);
        let missing = config.nats.token.read("bus.nats.token", Path::new("/nowhere")).unwrap_err();
        assert!(missing.to_string().starts_with("bus.nats.token: /nowhere/token"), "{missing}");
    }
}
