//! `[bus]`: where admitted events are published, and how each kind of bus is spoken to.

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
    /// `file:` keeps the bus under `bus` in the data folder, `file:PATH` elsewhere; else
    /// `nats://HOST:PORT`, `kafka://HOST:PORT` or `kinesis://REGION`. See `docs/bus`.
    #[serde(serialize_with = "without_password")]
    pub(crate) url: String,
    /// How long after it was given up a publish may still land, in milliseconds. Nobody can say
    /// "absent" before.
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

/// A file that may be configured.
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(super) fn file(base: &Path, path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| base.join(path))
}

/// A secret as configured: a text, or `file:PATH`. Neither its debug form nor its serialised form
/// shows the text.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    fn shown(&self) -> &str {
        match self.0.as_str() {
            text if text.is_empty() || text.starts_with("file:") => text,
            _ => "(hidden)",
        }
    }

    /// The secret itself; `None` when nothing is configured. A file is below `base`.
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

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// A URL without what stands before `@`, which may be a password.
pub(crate) fn hidden(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://(hidden)@{host}"),
        _ => url.to_owned(),
    }
}

fn without_password<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hidden(url))
}

/// The kinds of bus that this build has.
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

/// The schemes of every build, and the feature each needs.
const FEATURES: [(&str, &str); 4] =
    [("nats", "nats"), ("tls", "nats"), ("kafka", "kafka"), ("kinesis", "kinesis")];

impl BusConfig {
    /// The kind of bus that the URL names, if this build has it. The URL may hold a password, so
    /// only its scheme is ever shown.
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
                "bus.url \"{scheme}:…\" is not in this build; build admit with --features \
                 {feature}, or with --features full for every bus"
            ),
            None => format!(
                "bus.url \"{scheme}:…\" is no bus; use \"file:\", \"file:PATH\", \
                 \"nats://HOST:PORT\", \"kafka://HOST:PORT\" or \"kinesis://REGION\""
            ),
        }))
    }

    /// The name of a bus on the network: its kind, and what its streams or topics are called. Server
    /// addresses are not part of it, because one cluster has several and they change.
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

    /// What no single value can break, whichever bus is in use.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.delivery_timeout_ms == 0 {
            return Err(ConfigError::Rule(
                "bus.delivery_timeout_ms must be more than 0".to_owned(),
            ));
        }
        self.nats.check(self.delivery_timeout_ms)?;
        self.kafka.check()?;
        self.kinesis.check(&self.url)?;
        self.scheme().map(drop)
    }
}

impl Config {
    /// The folder of the file bus.
    pub(crate) fn bus_root(&self) -> Result<PathBuf, ConfigError> {
        folder("bus", &self.bus.url, &self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_that_is_not_in_this_build_says_which_feature_it_needs() {
        let said = |url: &str| {
            let config = BusConfig { url: url.to_owned(), ..BusConfig::default() };
            config.scheme().map_err(|error| error.to_string())
        };
        assert_eq!(said("file:"), Ok(Scheme::File));
        for (url, is_built) in [
            ("nats://me:hush@bus", cfg!(feature = "nats")),
            ("kafka://me:hush@bus", cfg!(feature = "kafka")),
            ("kinesis://me:hush@bus", cfg!(feature = "kinesis")),
        ] {
            match said(url) {
                Ok(_) => assert!(is_built, "{url}"),
                Err(error) => {
                    assert!(!is_built && error.contains("--features"), "{error}");
                    assert!(!error.contains("hush"), "{error}");
                }
            }
        }
        let error = said("amqp://me:hush@bus").unwrap_err();
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
        assert_eq!(Secret::default().read("bus.nats.token", Path::new("")).unwrap(), None);
        let missing = config.nats.token.read("bus.nats.token", Path::new("/nowhere")).unwrap_err();
        assert!(missing.to_string().starts_with("bus.nats.token: /nowhere/token"), "{missing}");
    }
}
