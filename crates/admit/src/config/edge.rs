//! `[edge]`: the agent on the producer's machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_edge::{Backoff, Endpoint, SenderOptions};
use admit_gate::Principals;
use admit_gate::principals::{LOCAL, Role, is_name};
use serde::{Deserialize, Serialize};

use super::{ConfigError, PrincipalEntry};

/// `[edge]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EdgeConfig {
    /// Listen address of the agent; a loopback address.
    #[serde(deserialize_with = "super::listen")]
    pub(crate) listen: SocketAddr,
    /// Unix socket. Empty: `edge.sock` in `data`.
    pub(crate) socket: PathBuf,
    /// Folder of the outboxes.
    pub(crate) data: PathBuf,
    /// URL of the gate.
    pub(crate) gate: String,
    /// CA file (PEM) of the gate's certificate. Empty: the system's root certificates.
    pub(crate) gate_ca: PathBuf,
    /// File with the agent's key. Empty: none.
    pub(crate) key_file: PathBuf,
    /// EdgeTransport of the skyra door's events.
    pub(crate) transport: EdgeTransport,
    /// Doors of the agent.
    pub(crate) doors: Vec<String>,
    /// Principal of all events if no producers are configured.
    pub(crate) speaks_for: String,
    /// Disk budget of each outbox, in bytes.
    pub(crate) outbox_bytes_max: u64,
    /// Maximum unacknowledged events in flight per outbox.
    pub(crate) in_flight_max: usize,
    /// Acknowledgement timeout, in milliseconds.
    pub(crate) ack_ms_max: u64,
    /// Longest backoff after the first failure, in milliseconds; doubles with each failure.
    pub(crate) backoff_ms_base: u64,
    /// Maximum backoff, in milliseconds.
    pub(crate) backoff_ms_max: u64,
    /// Producers of the agent. Without any, every program on this machine may send.
    pub(crate) producers: Vec<PrincipalEntry>,
}

/// `edge.transport`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EdgeTransport {
    /// One connection, one envelope per frame.
    WebSocket,
    /// One stream, one envelope per message.
    Grpc,
    /// One request per envelope.
    Http,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            socket: PathBuf::new(),
            data: PathBuf::from("./admit-edge"),
            gate: "http://127.0.0.1:8080".to_owned(),
            gate_ca: PathBuf::new(),
            key_file: PathBuf::new(),
            transport: EdgeTransport::WebSocket,
            doors: ["skyra", "pixel-control", "events/default"].map(str::to_owned).to_vec(),
            speaks_for: LOCAL.to_owned(),
            outbox_bytes_max: 1 << 30,
            in_flight_max: 256,
            ack_ms_max: 10_000,
            backoff_ms_base: 500,
            backoff_ms_max: 60_000,
            producers: Vec::new(),
        }
    }
}

impl EdgeConfig {
    /// Path of the Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        if self.socket.as_os_str().is_empty() {
            self.data.join("edge.sock")
        } else {
            self.socket.clone()
        }
    }

    /// Backoff between attempts.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff {
            base: Duration::from_millis(self.backoff_ms_base),
            max: Duration::from_millis(self.backoff_ms_max),
        }
    }

    /// Options of the senders.
    pub(crate) fn sender(&self) -> SenderOptions {
        SenderOptions {
            in_flight_max: self.in_flight_max,
            ack_max: Duration::from_millis(self.ack_ms_max),
            ..SenderOptions::default()
        }
    }

    /// Parses the gate's URL and loads its CA file. Relative files start at `base`.
    pub(crate) fn endpoint(&self, base: &Path) -> Result<Endpoint, ConfigError> {
        let ca = (!self.gate_ca.as_os_str().is_empty()).then(|| base.join(&self.gate_ca));
        Endpoint::parse(&self.gate, ca.as_deref())
            .map_err(|error| ConfigError::Rule(format!("edge.gate: {error}")))
    }

    /// Reads the agent's key.
    pub(crate) fn key(&self, base: &Path) -> Result<Option<String>, ConfigError> {
        if self.key_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = base.join(&self.key_file);
        let key = fs::read_to_string(&path).map_err(|error| {
            ConfigError::Rule(format!("edge.key_file {} cannot be read: {error}", path.display()))
        })?;
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let path = path.display();
            return Err(ConfigError::Rule(format!(
                "edge.key_file {path} must contain one key of printable characters"
            )));
        }
        Ok(Some(key.to_owned()))
    }

    /// Principals of the agent.
    pub(crate) fn producers(&self, base: &Path) -> Result<Principals, ConfigError> {
        if self.producers.is_empty() {
            return Ok(Principals::open_as(&self.speaks_for));
        }
        let configs: Vec<_> = self.producers.iter().map(PrincipalEntry::for_gate).collect();
        Principals::load(&configs, base)
            .map_err(|error| ConfigError::Rule(format!("edge.producers: {error}")))
    }

    /// Validates the settings without connecting to the gate.
    pub(super) fn check(&self, base: &Path) -> Result<(), ConfigError> {
        let rule = |message: &str| Err(ConfigError::Rule(message.to_owned()));
        if !self.listen.ip().to_canonical().is_loopback() {
            return rule("edge.listen must be a loopback address: the agent serves one machine");
        }
        self.endpoint(base)?;
        if !is_name(&self.speaks_for) {
            return rule("edge.speaks_for must be a valid principal name");
        }
        let numbers = [self.outbox_bytes_max, self.ack_ms_max, self.backoff_ms_base];
        if numbers.contains(&0) || self.in_flight_max == 0 {
            return rule("edge: limits and timeouts must be greater than 0");
        }
        if self.backoff_ms_max < self.backoff_ms_base {
            return rule("edge.backoff_ms_max must not be less than edge.backoff_ms_base");
        }
        for producer in &self.producers {
            let name = &producer.name;
            if producer.role.contain(Role::Forward) || !producer.may_speak_for.is_empty() {
                return rule(&format!(
                    "edge.producers {name}: role forward and may_speak_for are not allowed for producers"
                ));
            }
            let is_hidden = |key: &str| key.starts_with("sha256:") || key.starts_with("file:");
            if !producer.keys.iter().all(is_hidden) {
                return rule(&format!(
                    "edge.producers {name}: keys must be sha256:HEX (see `admit keys hash`) or file:PATH; \
                     the agent does not accept literal keys"
                ));
            }
            if let Some(door) = producer.doors.iter().find(|door| !self.doors.contains(door)) {
                return rule(&format!(
                    "edge.producers {name}: edge.doors has no {door:?}; it has: {}",
                    self.doors.join(", ")
                ));
            }
        }
        self.producers(base).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        let config: EdgeConfig = toml::from_str(text).expect("a readable config");
        config.check(Path::new("")).expect_err("a config that is refused").to_string()
    }

    #[test]
    fn an_unsafe_or_unusable_config_is_refused() {
        assert!(error_of("listen = \"0.0.0.0:1\"\n").contains("loopback"));
        assert!(error_of("gate = \"ws://gate\"\n").contains("edge.gate"));
        assert!(error_of("speaks_for = \"a:b\"\n").contains("edge.speaks_for"));
        assert!(error_of("in_flight_max = 0\n").contains("greater than 0"));
        assert!(error_of("backoff_ms_max = 1\n").contains("backoff_ms_max"));
        let producer = |more: &str| format!("[[producers]]\nname = \"a\"\n{more}\n");
        let literal = error_of(&producer("keys = [\"hush-hush-hush-hush\"]"));
        assert!(literal.contains("sha256:HEX") && !literal.contains("hush"), "{literal}");
        let hash = format!("keys = [\"sha256:{}\"]", "ab".repeat(32));
        let agent = format!("{hash}\nrole = \"forward\"\nmay_speak_for = [\"b\"]");
        assert!(error_of(&producer(&agent)).contains("not allowed for producers"));
        let elsewhere = format!("{hash}\ndoors = [\"intents\"]");
        assert!(error_of(&producer(&elsewhere)).contains("edge.doors has no \"intents\""));
        let fine: EdgeConfig = toml::from_str(&producer(&hash)).unwrap();
        fine.check(Path::new("")).unwrap();
    }
}
