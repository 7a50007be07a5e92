//! `[ledger]`: location, retention, connection and lease settings of the ledger.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use admit_core::Age;
use admit_core::horizon::InvalidAge;
use admit_ledger::RefusalQuota;
use admit_ledger::sqlite::WalWrites;
use serde::{Deserialize, Serialize, Serializer};

use super::ConfigError;
use super::intents::HiddenText;

/// `[ledger]`. Keys from `password` on are for PostgreSQL only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LedgerConfig {
    /// `sqlite:` for `ledger.db` in the data folder; `postgres://USER@HOST/DATABASE` for a database that
    /// several gates may share.
    pub(crate) url: LedgerUrl,
    /// Retention: `forever`, or an age such as `90d`. Older bodies are removed; for events with a
    /// producer's time, keys and facts too. A copy of such an event gets `outside_horizon`.
    pub(crate) retain: String,
    /// Longest gap between the newest trusted time and a start that counts as downtime. After a longer
    /// gap retention stops until an operator confirms the clock.
    pub(crate) clock_gap_max: String,
    /// Maximum stored refusals per producer and door.
    pub(crate) refusal_rows_max: u64,
    /// Maximum bytes of stored refusals: bodies, messages, facts, and 320 per refusal for its rows.
    pub(crate) refusal_bytes_max: u64,
    /// Disk reserve of the data folder in bytes; with less free space only duplicates are accepted.
    /// 0: no reserve.
    pub(crate) free_bytes_min: u64,
    /// Whether the WAL of the SQLite ledger is written once per commit, by a layer in SQLite's file access.
    /// `false`: by SQLite alone.
    pub(crate) wal_buffer: bool,
    /// Password of the database user; never shown. Prefer `password_file`.
    pub(crate) password: HiddenText,
    /// File with the password; a relative path starts at the config file's folder.
    pub(crate) password_file: PathBuf,
    /// Encryption and server verification.
    pub(crate) tls: TlsMode,
    /// CA file (PEM) of the server's certificate. Empty: the system's root certificates.
    pub(crate) tls_ca: PathBuf,
    /// Client certificate, if the server requires one.
    pub(crate) tls_cert: PathBuf,
    /// Private key of the client certificate.
    pub(crate) tls_key: PathBuf,
    /// Schema of the tables; created if missing.
    pub(crate) schema: String,
    /// Unique id of this gate in the ledger, so that a restart takes over immediately from the previous
    /// process. Empty: host name and process id.
    pub(crate) gate_id: String,
    /// Size of the pool of read connections, in addition to the writer's connection.
    pub(crate) connections_max: usize,
    /// Timeout for a free read connection, in milliseconds; then `overloaded`.
    pub(crate) connection_wait_ms_max: u64,
    /// Connect timeout, in milliseconds.
    pub(crate) connect_ms_max: u64,
    /// Statement timeout, in milliseconds; then `ledger_unavailable`.
    pub(crate) statement_ms_max: u64,
    /// Lock timeout, in milliseconds: longest wait for commits of other gates.
    pub(crate) lock_ms_max: u64,
    /// Lease of a gate, in seconds; after that the others consider it dead.
    pub(crate) lease_seconds: u64,
    /// Places per partition of bodies and sightings; retention drops whole partitions.
    pub(crate) partition_places: u64,
}

/// TLS mode of the database connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TlsMode {
    /// `Verify`, except for connections to this machine.
    Auto,
    /// Encrypted, with verification of the server's certificate and name.
    Verify,
    /// Unencrypted.
    Off,
}

/// A URL whose password is not shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct LedgerUrl(String);

impl LedgerUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL without password and parameters.
    pub(crate) fn shown(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else { return self.0.clone() };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let hidden = if password.is_empty() { "" } else { ":(hidden)" };
                format!("{scheme}://{name}{hidden}@{place}")
            }
            None => format!("{scheme}://{rest}"),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.0 == "sqlite:"
    }

    pub(crate) fn is_postgres(&self) -> bool {
        ["postgres://", "postgresql://"].iter().any(|scheme| self.0.starts_with(scheme))
    }

    fn has_password(&self) -> bool {
        self.0.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).is_some_and(
            |(user, _)| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()),
        )
    }

    /// Whether all hosts of the URL are this machine.
    fn is_local(&self) -> bool {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts = place.rsplit('@').next().and_then(|place| place.split('/').next());
        let hosts = match hosts {
            Some(hosts) if !hosts.is_empty() => hosts,
            _ => query.split('&').find_map(|pair| pair.strip_prefix("host=")).unwrap_or(""),
        };
        !hosts.is_empty() && hosts.split(',').all(is_local_host)
    }
}

fn is_local_host(host: &str) -> bool {
    if host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f") {
        return true;
    }
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl From<&str> for LedgerUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for LedgerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            url: LedgerUrl::from("sqlite:"),
            retain: "forever".to_owned(),
            clock_gap_max: "7d".to_owned(),
            refusal_rows_max: 100_000,
            refusal_bytes_max: 256 * 1024 * 1024,
            free_bytes_min: 0,
            wal_buffer: true,
            password: HiddenText::default(),
            password_file: PathBuf::new(),
            tls: TlsMode::Auto,
            tls_ca: PathBuf::new(),
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            schema: "public".to_owned(),
            gate_id: String::new(),
            connections_max: 8,
            connection_wait_ms_max: 2_000,
            connect_ms_max: 3_000,
            statement_ms_max: 10_000,
            lock_ms_max: 5_000,
            lease_seconds: 15,
            partition_places: 1_000_000,
        }
    }
}

impl LedgerConfig {
    /// Retention; `None` for forever.
    pub(crate) fn retain(&self) -> Result<Option<Age>, InvalidAge> {
        if self.retain == "forever" { Ok(None) } else { self.retain.parse().map(Some) }
    }

    /// Quota of stored refusals.
    pub(crate) fn refusal_quota(&self) -> RefusalQuota {
        RefusalQuota { rows_max: self.refusal_rows_max, bytes_max: self.refusal_bytes_max }
    }

    /// How the WAL of the SQLite ledger is written.
    pub(crate) fn wal_writes(&self) -> WalWrites {
        if self.wal_buffer { WalWrites::Buffered } else { WalWrites::Direct }
    }

    /// Longest gap before a start that counts as downtime.
    pub(crate) fn clock_gap_max(&self) -> Result<Age, InvalidAge> {
        self.clock_gap_max.parse()
    }

    /// Warning if `retain` is not longer than `clock_gap_max`: a clock that is ahead at a start could then
    /// make retention remove everything.
    pub(crate) fn warning(&self) -> Option<String> {
        let (retain, gap_max) = (self.retain().ok()??, self.clock_gap_max().ok()?);
        (retain <= gap_max).then(|| {
            format!(
                "ledger.retain = \"{}\" is not longer than ledger.clock_gap_max = \"{}\": if the clock \
                 is ahead by less than that at a start, retention removes everything; set \
                 ledger.clock_gap_max to the longest expected downtime, below ledger.retain",
                self.retain, self.clock_gap_max
            )
        })
    }

    /// Validates the settings without connecting. Relative files start at `base`.
    pub(crate) fn check(&self, base: &Path) -> Result<(), ConfigError> {
        if let Err(error) = self.retain() {
            let retain = &self.retain;
            return rule("retain", format!("{retain:?}: use \"forever\" or an age; {error}"));
        }
        if let Err(error) = self.clock_gap_max() {
            return rule("clock_gap_max", format!("{:?}: {error}", self.clock_gap_max));
        }
        if self.url.is_sqlite() {
            return Ok(());
        }
        if !self.url.is_postgres() {
            let shown = match self.url.as_str().split_once("://") {
                Some((scheme, _)) => format!("{scheme}://…"),
                None => self.url.shown(),
            };
            let message =
                format!("{shown:?}: use \"sqlite:\" or \"postgres://USER@HOST/DATABASE\"");
            return rule("url", message);
        }
        if !cfg!(feature = "postgres") {
            return rule(
                "url",
                "this build does not support PostgreSQL; use \"sqlite:\"".to_owned(),
            );
        }
        self.password(base)?;
        self.check_ranges()?;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.schema.is_empty() || self.schema.len() > 63 || !self.schema.chars().all(is_plain) {
            let message = format!("{:?}: must have 1 to 63 characters of a-z 0-9 _", self.schema);
            return rule("schema", message);
        }
        if self.gate_id.len() > 128 || self.gate_id.chars().any(char::is_control) {
            return rule("gate_id", "must have at most 128 printable characters".to_owned());
        }
        super::ledger_tls::load(self, base).map(drop)
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let within = |key: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            rule(key, format!("{value}: must be from {min} to {max}"))
        };
        within("connections_max", self.connections_max as u64, 1, 1_000)?;
        within("connection_wait_ms_max", self.connection_wait_ms_max, 1, 600_000)?;
        within("connect_ms_max", self.connect_ms_max, 1, 600_000)?;
        within("statement_ms_max", self.statement_ms_max, 1, 3_600_000)?;
        within("lock_ms_max", self.lock_ms_max, 1, 3_600_000)?;
        within("lease_seconds", self.lease_seconds, 1, 3_600)?;
        within("partition_places", self.partition_places, 1_000, 1_000_000_000)
    }

    /// The password from the config or its file; `None` if there is none, or if it is in the URL.
    pub(crate) fn password(&self, base: &Path) -> Result<Option<String>, ConfigError> {
        let in_file = !self.password_file.as_os_str().is_empty();
        let sources = [in_file, !self.password.is_empty(), self.url.has_password()];
        if sources.into_iter().filter(|is_set| *is_set).count() > 1 {
            let message = "set the password in only one of password_file, password and url";
            return rule("password", message.to_owned());
        }
        if !in_file {
            return Ok(Some(self.password.reveal().to_owned()).filter(|text| !text.is_empty()));
        }
        let path = base.join(&self.password_file);
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim_end_matches(['\r', '\n']).is_empty() => {
                rule("password_file", format!("{} is empty", path.display()))
            }
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(error) => {
                rule("password_file", format!("{} cannot be read: {error}", path.display()))
            }
        }
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        match self.tls {
            TlsMode::Verify => true,
            TlsMode::Off => false,
            TlsMode::Auto => !self.url.is_local(),
        }
    }
}

fn rule<T>(key: &str, message: String) -> Result<T, ConfigError> {
    Err(ConfigError::Rule(format!("ledger.{key}: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> LedgerConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "url = \"postgres://me:hush@db/admit\"",
            "url = \"postgres://me@db/admit?password=hush\"",
            "url = \"postgres://me:a@hush@db/admit\"",
            "password = \"hush\"",
        ] {
            let config = config(text);
            let shown = format!("{config:?}{}", toml::to_string(&config).unwrap());
            assert!(!shown.contains("hush"), "{shown}");
        }
        let config = config("url = \"postgres://me:hush@db:5433/admit\"");
        assert_eq!(config.url.shown(), "postgres://me:(hidden)@db:5433/admit");
    }

    #[test]
    fn a_password_has_one_source() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pw"), "from a file \n").unwrap();
        std::fs::write(folder.path().join("none"), "\n").unwrap();
        let found = |text: &str| config(text).password(folder.path()).map_err(|e| e.to_string());
        assert_eq!(found("password_file = \"pw\""), Ok(Some("from a file ".to_owned())));
        assert_eq!(found("password = \"plain\""), Ok(Some("plain".to_owned())));
        assert_eq!(
            found("url = \"postgres://me:pw@db/x\""),
            Ok(None),
            "the password is in the url"
        );
        assert_eq!(found(""), Ok(None));
        assert!(found("password_file = \"none\"").unwrap_err().contains("is empty"));
        assert!(found("password_file = \"lost\"").unwrap_err().contains("cannot be read"));
        let twice = "url = \"postgres://me:pw@db/x\"\npassword = \"other\"";
        assert!(found(twice).unwrap_err().contains("only one of"));
    }

    #[test]
    fn only_connections_to_this_machine_are_unencrypted_by_default() {
        for (url, is_encrypted) in [
            ("postgres://me@127.0.0.1:5432/x", false),
            ("postgres://me@localhost/x", false),
            ("postgres://me@[::1]:5432/x", false),
            ("postgres:///x?host=/var/run/postgresql", false),
            ("postgres://me@%2Fvar%2Frun%2Fpostgresql/x", false),
            ("postgres://me@db.example:5432/x", true),
            ("postgres://me@localhost,db.example/x", true),
            ("postgres://me@10.0.0.1/x", true),
            ("postgres://127.0.0.1:x@db.example/x", true),
            ("postgres:///x", true),
        ] {
            let config = config(&format!("url = \"{url}\""));
            assert_eq!(config.is_encrypted(), is_encrypted, "{url}");
        }
        assert!(config("url = \"postgres://localhost/x\"\ntls = \"verify\"").is_encrypted());
        assert!(!config("url = \"postgres://db.example/x\"\ntls = \"off\"").is_encrypted());
    }

    #[test]
    fn retention_not_longer_than_the_clock_gap_is_warned_about() {
        for (text, is_warned) in [
            ("", false),
            ("retain = \"30d\"", false),
            ("retain = \"7d\"", true),
            ("retain = \"2d\"", true),
            ("retain = \"2d\"\nclock_gap_max = \"1d\"", false),
            ("clock_gap_max = \"900d\"", false),
        ] {
            assert_eq!(config(text).warning().is_some(), is_warned, "{text}");
        }
    }

    #[test]
    #[cfg(feature = "postgres")]
    fn invalid_settings_are_refused() {
        let url = "url = \"postgres://me@localhost/x\"";
        for (text, expected) in [
            ("url = \"mysql://me:hush@db/x\"", "ledger.url: \"mysql://…\": use \"sqlite:\" or"),
            ("retain = \"never\"", "ledger.retain"),
            ("clock_gap_max = \"soon\"", "ledger.clock_gap_max: \"soon\": invalid age"),
            ("connections_max = 0", "from 1 to 1000"),
            ("lease_seconds = 0", "from 1 to 3600"),
            ("schema = \"a;b\"", "1 to 63 characters of a-z"),
            ("tls_ca = \"lost.pem\"\ntls = \"verify\"", "lost.pem"),
            ("tls_cert = \"cert.pem\"\ntls = \"verify\"", "tls_key"),
            ("tls = \"off\"\ntls_ca = \"ca.pem\"", "tls is off"),
        ] {
            let text =
                if text.starts_with("url") { text.to_owned() } else { format!("{url}\n{text}") };
            let found = config(&text).check(Path::new("nowhere")).unwrap_err().to_string();
            assert!(found.contains(expected) && !found.contains("hush"), "{text}: {found}");
        }
        config(url).check(Path::new("")).unwrap();
    }
}
