//! Config of gate, agent and commands.
//!
//! `admit.toml` in this crate's folder is the reference config, compiled in. Tests check that it contains
//! every key and parses to exactly these defaults.

mod artifacts;
mod bus;
mod check;
mod edge;
mod env;
mod events;
mod ingestion;
mod intents;
mod kafka;
mod kinesis;
mod ledger;
mod ledger_tls;
mod load;
mod nats;
mod principal;
mod rounds;
mod runner;
mod skyra;
mod stream;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use admit_contracts::pixel_control::SchemaMode;
use admit_gate::Limits;
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use artifacts::{ArtifactsConfig, ArtifactsLocation};
pub(crate) use bus::{BusConfig, Scheme};
pub(crate) use check::{KEY_CHARS_MIN, check, door_names, warnings};
pub(crate) use edge::{EdgeConfig, EdgeTransport};
pub(crate) use env::CONFIG_FILE;
pub(crate) use events::{EventsConfig, IdentityKind};
pub(crate) use ingestion::IngestionConfig;
pub(crate) use intents::IntentsConfig;
#[cfg(feature = "kinesis")]
pub(crate) use kinesis::region as kinesis_region;
pub(crate) use ledger::{LedgerConfig, TlsMode};
#[cfg(feature = "postgres")]
pub(crate) use ledger_tls::load as load_ledger_tls;
pub(crate) use load::{ConfigError, Flags, check_file, load};
pub(crate) use principal::PrincipalEntry;
pub(crate) use rounds::RoundsConfig;
pub(crate) use runner::RunnerConfig;
pub(crate) use skyra::SkyraConfig;
pub(crate) use stream::{Speedup, StreamConfig};
pub(crate) use tls::{TlsConfig, load as load_tls};

/// Reference config with comments; its values are the defaults.
pub(crate) const REFERENCE: &str = include_str!("../../admit.toml");

/// Complete config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Listen address, `IP:PORT`. Must be a loopback address without principals.
    #[serde(deserialize_with = "listen")]
    pub(crate) listen: SocketAddr,
    /// Data folder. A relative path starts at the working directory.
    pub(crate) data: PathBuf,
    /// `[ledger]`
    pub(crate) ledger: LedgerConfig,
    /// `[bus]`
    pub(crate) bus: BusConfig,
    /// `[artifacts]`
    pub(crate) artifacts: ArtifactsConfig,
    /// `[tls]`
    pub(crate) tls: TlsConfig,
    /// `[limits]`
    pub(crate) limits: Limits,
    /// `[log]`
    pub(crate) log: LogConfig,
    /// `[doors]`
    pub(crate) doors: DoorsConfig,
    /// `[runner]`
    pub(crate) runner: RunnerConfig,
    /// `[stream]`
    pub(crate) stream: StreamConfig,
    /// `[[principals]]`. Without any, only programs on this machine can connect.
    pub(crate) principals: Vec<PrincipalEntry>,
    /// `[edge]`
    pub(crate) edge: EdgeConfig,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,admit_gate=debug`.
    pub(crate) level: String,
    /// Text or JSON.
    pub(crate) format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// `[doors]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DoorsConfig {
    /// `[doors.pixel-control]`
    #[serde(rename = "pixel-control")]
    pub(crate) pixel_control: PixelControlConfig,
    /// `[doors.skyra]`
    pub(crate) skyra: SkyraConfig,
    /// `[doors.intents]`
    pub(crate) intents: IntentsConfig,
    /// `[doors.ingestion-gate]`
    #[serde(rename = "ingestion-gate")]
    pub(crate) ingestion_gate: IngestionConfig,
    /// `[doors.rounds]`
    pub(crate) rounds: RoundsConfig,
    /// `[[doors.events]]`, one table per stream. Without any, the stream `default` exists.
    pub(crate) events: Vec<EventsConfig>,
}

impl Default for DoorsConfig {
    fn default() -> Self {
        Self {
            pixel_control: PixelControlConfig::default(),
            skyra: SkyraConfig::default(),
            intents: IntentsConfig::default(),
            ingestion_gate: IngestionConfig::default(),
            rounds: RoundsConfig::default(),
            events: vec![EventsConfig::default()],
        }
    }
}

/// `[doors.pixel-control]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PixelControlConfig {
    /// Whether the door is open.
    pub(crate) enabled: bool,
    /// Path of the door.
    pub(crate) path: String,
    /// Header for the API key; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Schema validation mode.
    pub(crate) schema: SchemaMode,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            data: PathBuf::from("./admit-data"),
            ledger: LedgerConfig::default(),
            bus: BusConfig::default(),
            artifacts: ArtifactsConfig::default(),
            tls: TlsConfig::default(),
            limits: Limits::default(),
            log: LogConfig::default(),
            doors: DoorsConfig::default(),
            runner: RunnerConfig::default(),
            stream: StreamConfig::default(),
            principals: Vec::new(),
            edge: EdgeConfig::default(),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl Default for PixelControlConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/plugin/events".to_owned(),
            api_key_header: "X-Pixel-Control-Api-Key".to_owned(),
            schema: SchemaMode::Envelope,
        }
    }
}

impl Config {
    /// Deserializes a config; missing keys get their defaults. Goes through text, so that only one
    /// deserializer is compiled.
    fn from_table(table: &toml::Table) -> Result<Self, toml::de::Error> {
        toml::from_str(&table.to_string())
    }

    /// Unix socket of the gate, for commands on the same machine.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("admit.sock")
    }
}

/// Parses a listen address. Accepts `localhost`.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    address.parse().map_err(|_| {
        format!("invalid listen address {text:?}; use IP:PORT, such as 127.0.0.1:8080")
    })
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_listen(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_config_is_exactly_the_defaults() {
        let reference: Config = toml::from_str(REFERENCE).unwrap();
        assert_eq!(reference, Config::default());
    }

    #[test]
    fn the_reference_config_contains_every_key() {
        let reference: toml::Table = REFERENCE.parse().unwrap();
        let mut defaults = toml::Table::try_from(Config::default()).unwrap();
        // Shown as an example in a comment, because the default is empty.
        let principals = defaults.remove("principals").unwrap();
        assert_eq!(principals, toml::Value::Array(Vec::new()));
        assert_eq!(reference, defaults, "a key is missing from admit.toml");
    }

    #[test]
    fn the_example_principal_in_the_reference_config_is_valid() {
        let start = REFERENCE.find("# [[principals]]").expect("an example of a principal");
        let example: String = REFERENCE[start..]
            .lines()
            .map_while(|line| line.strip_prefix("# "))
            .flat_map(|line| [line, "\n"])
            .collect();
        let config: Config = toml::from_str(&example).unwrap();
        let [principal] = config.principals.as_slice() else { panic!("one example: {example}") };
        let keys = toml::Table::try_from(principal).unwrap();
        for key in keys.keys() {
            assert!(example.contains(&format!("\n{key} = ")), "{key} is not in: {example}");
        }
    }

    #[test]
    fn listen_addresses_are_ip_and_port_or_localhost() {
        for text in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "0.0.0.0:0"] {
            parse_listen(text).unwrap();
        }
        for text in ["", "8080", ":8080", "127.0.0.1", "example.org:80", "127.0.0.1:99999"] {
            parse_listen(text).unwrap_err();
        }
    }
}
