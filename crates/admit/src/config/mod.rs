//! The config, which is the manual: every key with its meaning, unit and effect.
//!
//! `admit.toml` beside this crate's manifest is the same in the operator's words. It is compiled
//! in, and a test holds that it parses to exactly these defaults and names every key.

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

pub(crate) use artifacts::{ArtifactsConfig, ArtifactsPlace};
pub(crate) use bus::{BusConfig, Scheme};
pub(crate) use check::{KEY_CHARS_MIN, check, door_names, warnings};
pub(crate) use edge::{EdgeConfig, Transport};
pub(crate) use env::CONFIG_FILE;
pub(crate) use events::{EventsConfig, IdentityWord};
pub(crate) use ingestion::IngestionConfig;
pub(crate) use intents::IntentsConfig;
#[cfg(feature = "kinesis")]
pub(crate) use kinesis::region as kinesis_region;
pub(crate) use ledger::{LedgerConfig, TlsUse};
#[cfg(feature = "postgres")]
pub(crate) use ledger_tls::load as load_ledger_tls;
pub(crate) use load::{ConfigError, Flags, check_file, load};
pub(crate) use principal::PrincipalConfig;
pub(crate) use rounds::RoundsConfig;
pub(crate) use runner::RunnerConfig;
pub(crate) use skyra::SkyraConfig;
pub(crate) use stream::{Speedup, StreamConfig};
pub(crate) use tls::{TlsConfig, load as load_tls};

/// The commented reference config, which is also what the gate does without one.
pub(crate) const REFERENCE: &str = include_str!("../../admit.toml");

/// Everything an operator can decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where the gate listens, `IP:PORT`. Without principals it must be a loopback address.
    #[serde(deserialize_with = "listen")]
    pub(crate) listen: SocketAddr,
    /// The folder that holds everything durable. A relative one is below the working directory.
    pub(crate) data: PathBuf,
    /// Durable truth.
    pub(crate) ledger: LedgerConfig,
    /// Where admitted events are published.
    pub(crate) bus: BusConfig,
    /// Where receipts and quarantine records lie.
    pub(crate) artifacts: ArtifactsConfig,
    /// TLS on the listener.
    pub(crate) tls: TlsConfig,
    /// How much, how deep, how long, how many at once.
    pub(crate) limits: Limits,
    /// What the gate says about itself on standard error.
    pub(crate) log: LogConfig,
    /// The contracts that are mounted.
    pub(crate) doors: DoorsConfig,
    /// How scenario runs are planned, vouched for and announced.
    pub(crate) runner: RunnerConfig,
    /// What `admit stream` does.
    pub(crate) stream: StreamConfig,
    /// Who may come in. Nobody listed: programs on this machine only.
    pub(crate) principals: Vec<PrincipalConfig>,
    /// The agent on the producer's side, `admit edge`.
    pub(crate) edge: EdgeConfig,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,admit_gate=debug`.
    pub(crate) level: String,
    /// Lines for people or for machines.
    pub(crate) format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
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
    /// `[[doors.events]]`, once per stream. None listed: the stream `default`.
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
    /// Whether the door is there.
    pub(crate) enabled: bool,
    /// Where events are posted.
    pub(crate) path: String,
    /// The header that may carry a key; `Authorization: Bearer` always works too.
    pub(crate) api_key_header: String,
    /// How much of the schema is a hard rule.
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
    /// The config that `table` describes, with defaults for what it leaves out. It is read as text
    /// like the file: a second way to read it would be compiled beside the first, key by key.
    fn from_table(table: &toml::Table) -> Result<Self, toml::de::Error> {
        toml::from_str(&table.to_string())
    }

    /// The socket of a gate on this config's data folder, for commands on the same machine.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("admit.sock")
    }
}

/// The address in `text`. `localhost` is what people type, so it is understood.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let spelt = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    spelt.parse().map_err(|_| {
        format!("{text:?} is no address to listen on, write IP:PORT such as 127.0.0.1:8080")
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
    fn the_reference_config_names_every_key() {
        let reference: toml::Table = REFERENCE.parse().unwrap();
        let mut defaults = toml::Table::try_from(Config::default()).unwrap();
        // An empty list is best shown as an example in a comment.
        let principals = defaults.remove("principals").unwrap();
        assert_eq!(principals, toml::Value::Array(Vec::new()));
        assert_eq!(reference, defaults, "a key is missing from admit.toml");
    }

    #[test]
    fn the_example_principal_in_the_reference_config_is_a_real_one() {
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
    fn addresses_are_read_as_people_write_them() {
        for text in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "0.0.0.0:0"] {
            parse_listen(text).unwrap();
        }
        for text in ["", "8080", ":8080", "127.0.0.1", "example.org:80", "127.0.0.1:99999"] {
            parse_listen(text).unwrap_err();
        }
    }
}
