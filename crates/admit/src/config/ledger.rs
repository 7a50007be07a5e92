//! `[ledger]`: which ledger it is, and how a gate gets along with one that several gates share.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use admit_core::Age;
use admit_core::horizon::InvalidAge;
use admit_ledger::RefusalQuota;
use serde::{Deserialize, Serialize, Serializer};

use super::ConfigError;
use super::intents::Secret;

/// `[ledger]`. From `password` on everything is for PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LedgerConfig {
    /// `sqlite:` keeps the ledger in `ledger.db` in the data folder; `postgres://USER@HOST/DATABASE`
    /// in a database that any number of gates may share.
    pub(crate) url: LedgerUrl,
    /// `forever`, or an age such as `90d`. Then older bodies are removed, and of events that carry
    /// the producer's own time also their keys and facts; an event older than that which comes
    /// again is answered `outside_horizon`.
    pub(crate) retain: String,
    /// The longest gap between the newest trusted time and a start that is taken for downtime. After a
    /// longer one retention stops until a person has confirmed the clock.
    pub(crate) clock_gap_max: String,
    /// Most refused submissions that are kept, for each producer at each door.
    pub(crate) refusal_rows_max: u64,
    /// The same in bytes: bodies, messages, facts, and 320 for the rows of each.
    pub(crate) refusal_bytes_max: u64,
    /// Free bytes below which the disk of the data folder takes nothing but copies of what is known;
    /// 0 for no such reserve.
    pub(crate) free_bytes_min: u64,
    /// The password of the database's user; never shown. `password_file` is the better place.
    pub(crate) password: Secret,
    /// A file that holds it; a relative path starts at the config file's folder.
    pub(crate) password_file: PathBuf,
    /// Whether the connection is encrypted, and the server checked.
    pub(crate) tls: TlsUse,
    /// PEM file of who signs the server's certificate. Empty: whom this machine trusts.
    pub(crate) tls_ca: PathBuf,
    /// Our own certificate, where the server wants one.
    pub(crate) tls_cert: PathBuf,
    /// Its private key.
    pub(crate) tls_key: PathBuf,
    /// The schema that holds the tables; it is made if it is missing.
    pub(crate) schema: String,
    /// What this gate alone is called in the ledger, so that a restart takes over from the process
    /// before at once. Empty: its machine and process.
    pub(crate) gate_id: String,
    /// Most connections for questions, beside the one that writes.
    pub(crate) connections_max: usize,
    /// Longest wait for a free one of them, in milliseconds; then `overloaded`.
    pub(crate) connection_wait_ms_max: u64,
    /// Longest wait for a new connection, in milliseconds.
    pub(crate) connect_ms_max: u64,
    /// Longest a statement may take, in milliseconds; then `ledger_unavailable`.
    pub(crate) statement_ms_max: u64,
    /// Longest wait for a lock, in milliseconds: how long other gates may be busy before us.
    pub(crate) lock_ms_max: u64,
    /// How long a gate may be silent before the others take it for dead.
    pub(crate) lease_seconds: u64,
    /// Places in one partition of bodies and sightings; retention drops whole ones.
    pub(crate) partition_places: u64,
}

/// Whether the connection to the database is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TlsUse {
    /// Verified, except to this very machine.
    Auto,
    /// Encrypted, and the server proves its name.
    Verify,
    /// In plain.
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

    /// Without what might be a password: of the user only the name, and no parameters.
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

    /// Whether every host it names is this machine.
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
            password: Secret::default(),
            password_file: PathBuf::new(),
            tls: TlsUse::Auto,
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
    /// How long things are kept; `None` is for ever.
    pub(crate) fn retain(&self) -> Result<Option<Age>, InvalidAge> {
        if self.retain == "forever" { Ok(None) } else { self.retain.parse().map(Some) }
    }

    /// How much of refusals is kept.
    pub(crate) fn refusal_quota(&self) -> RefusalQuota {
        RefusalQuota { rows_max: self.refusal_rows_max, bytes_max: self.refusal_bytes_max }
    }

    /// The longest gap before a start that is downtime.
    pub(crate) fn clock_gap_max(&self) -> Result<Age, InvalidAge> {
        self.clock_gap_max.parse()
    }

    /// Retention that one wrong clock at a start can empty: the gap is taken for downtime, and
    /// everything is older than it may be.
    pub(crate) fn warning(&self) -> Option<String> {
        let (retain, gap_max) = (self.retain().ok()??, self.clock_gap_max().ok()?);
        (retain <= gap_max).then(|| {
            format!(
                "ledger.retain = \"{}\" is not longer than ledger.clock_gap_max = \"{}\", so a clock \
                 that is ahead by less than that at a start removes everything at once; set \
                 ledger.clock_gap_max to the longest downtime that is expected, and less than retain",
                self.retain, self.clock_gap_max
            )
        })
    }

    /// Checks everything but whether the ledger is there. Relative files start at `base`.
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
            return rule("url", "this build has no PostgreSQL; use \"sqlite:\"".to_owned());
        }
        self.password(base)?;
        self.numbers()?;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.schema.is_empty() || self.schema.len() > 63 || !self.schema.chars().all(is_plain) {
            let message = format!("{:?}: a schema has 1 to 63 of a-z 0-9 _", self.schema);
            return rule("schema", message);
        }
        if self.gate_id.len() > 128 || self.gate_id.chars().any(char::is_control) {
            return rule("gate_id", "a gate id has at most 128 printable characters".to_owned());
        }
        super::ledger_tls::load(self, base).map(drop)
    }

    fn numbers(&self) -> Result<(), ConfigError> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            rule(key, format!("{value}: must be from {least} to {most}"))
        };
        within("connections_max", self.connections_max as u64, 1, 1_000)?;
        within("connection_wait_ms_max", self.connection_wait_ms_max, 1, 600_000)?;
        within("connect_ms_max", self.connect_ms_max, 1, 600_000)?;
        within("statement_ms_max", self.statement_ms_max, 1, 3_600_000)?;
        within("lock_ms_max", self.lock_ms_max, 1, 3_600_000)?;
        within("lease_seconds", self.lease_seconds, 1, 3_600)?;
        within("partition_places", self.partition_places, 1_000, 1_000_000_000)
    }

    /// The password, from wherever it is. Only the URL may hold one that is not asked for here.
    pub(crate) fn password(&self, base: &Path) -> Result<Option<String>, ConfigError> {
        let in_file = !self.password_file.as_os_str().is_empty();
        let places = [in_file, !self.password.is_empty(), self.url.has_password()];
        if places.into_iter().filter(|is_there| *is_there).count() > 1 {
            let message =
                "give the password in password_file, in password or in the url, not twice";
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

    /// Whether the connection is to be encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        match self.tls {
            TlsUse::Verify => true,
            TlsUse::Off => false,
            TlsUse::Auto => !self.url.is_local(),
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
    fn a_password_is_never_shown_wherever_it_stands() {
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
    fn one_password_from_one_place() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pw"), "from a file \n").unwrap();
        std::fs::write(folder.path().join("none"), "\n").unwrap();
        let found = |text: &str| config(text).password(folder.path()).map_err(|e| e.to_string());
        assert_eq!(found("password_file = \"pw\""), Ok(Some("from a file ".to_owned())));
        assert_eq!(found("password = \"plain\""), Ok(Some("plain".to_owned())));
        assert_eq!(found("url = \"postgres://me:pw@db/x\""), Ok(None), "it is in the url");
        assert_eq!(found(""), Ok(None));
        assert!(found("password_file = \"none\"").unwrap_err().contains("is empty"));
        assert!(found("password_file = \"lost\"").unwrap_err().contains("cannot be read"));
        let twice = "url = \"postgres://me:pw@db/x\"\npassword = \"other\"";
        assert!(found(twice).unwrap_err().contains("not twice"));
    }

    #[test]
    fn only_the_way_to_this_very_machine_is_plain_by_itself() {
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
    fn retention_that_one_wrong_clock_at_a_start_empties_is_warned_of() {
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
    fn settings_that_make_no_ledger_say_so() {
        let url = "url = \"postgres://me@localhost/x\"";
        for (text, expected) in [
            ("url = \"mysql://me:hush@db/x\"", "ledger.url: \"mysql://…\": use \"sqlite:\" or"),
            ("retain = \"never\"", "ledger.retain"),
            ("clock_gap_max = \"soon\"", "ledger.clock_gap_max: \"soon\": invalid age"),
            ("connections_max = 0", "from 1 to 1000"),
            ("lease_seconds = 0", "from 1 to 3600"),
            ("schema = \"a;b\"", "1 to 63 of a-z"),
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
