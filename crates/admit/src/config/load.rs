//! Loading of the config: defaults, file, environment, flags.
//!
//! The file is parsed separately first, so that an error in it is reported with line and column.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::Table;

use super::env::{self, nearest};
use super::{Config, check, warnings};

/// Error in the config.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not valid.
    #[error("{}:{line}:{column}: {message}{excerpt}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// Message.
        message: String,
        /// The line itself, unless it might contain a secret.
        excerpt: String,
    },
    /// An environment variable has an invalid value.
    #[error("{name}: {message}")]
    Variable {
        /// The variable.
        name: String,
        /// Message.
        message: String,
    },
    /// An environment variable with our prefix does not match any config key.
    #[error(
        "{name}: unknown config key; did you mean {nearest}?\n  `admit config show` lists all keys"
    )]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable with the most similar name.
        nearest: String,
    },
    /// A value is out of range, or values contradict each other or are unsafe.
    #[error("{0}")]
    Rule(String),
}

/// Config flags of the command line.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// `--config`
    pub(crate) config: Option<PathBuf>,
    /// `--data`
    pub(crate) data: Option<PathBuf>,
    /// `--listen`
    pub(crate) listen: Option<SocketAddr>,
}

impl Flags {
    /// Folder of the config file, where its relative paths start.
    pub(crate) fn base(&self) -> PathBuf {
        let folder = self.config.as_deref().and_then(Path::parent);
        folder.unwrap_or_else(|| Path::new("")).to_owned()
    }
}

/// Loads the config. Precedence, lowest first: defaults, file, environment, flags.
pub(crate) fn load(
    flags: &Flags,
    vars: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    let mut table = match &flags.config {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    env::apply(&mut table, vars)?;
    let mut config = Config::from_table(&table)
        .map_err(|error| ConfigError::Rule(plain_message(error.message())))?;
    if let Some(data) = &flags.data {
        config.data.clone_from(data);
    }
    if let Some(listen) = flags.listen {
        config.listen = listen;
    }
    Ok(config)
}

/// Validates one file, without environment and flags. Returns warnings.
pub(crate) fn check_file(path: &Path) -> Result<Vec<String>, ConfigError> {
    let flags = Flags { config: Some(path.to_owned()), ..Flags::default() };
    let config = load(&flags, [])?;
    match check(&config, &flags.base()) {
        Err(ConfigError::Rule(message)) => {
            Err(ConfigError::Rule(format!("{}: {message}", path.display())))
        }
        checked => checked.map(|principals| warnings(&config, &principals)),
    }
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let invalid = |error| invalid(path, &text, &error);
    toml::from_str::<Config>(&text).map_err(invalid)?;
    toml::from_str(&text).map_err(invalid)
}

fn invalid(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text[..text.floor_char_boundary(start)];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    ConfigError::Invalid {
        path: path.to_owned(),
        line,
        column,
        message: plain_message(error.message()),
        excerpt: excerpt(text, line, column),
    }
}

/// Rewrites a parser message without Rust types.
pub(super) fn plain_message(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field")
        && let Some(name) = quoted.next()
        && let Some(nearest) = nearest(name, quoted)
    {
        return format!("unknown key `{name}`; did you mean `{nearest}`?");
    }
    let mut message = message.trim_end().replace('\n', ", ");
    for (theirs, ours) in [
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected u32", "expected a whole number, 0 or more"),
        ("expected a boolean", "expected true or false"),
        ("expected path string", "expected a string"),
        ("missing field", "missing key"),
        ("unknown variant", "unknown value"),
        ("invalid mantissa, expected digits", "expected a value; strings need quotes"),
    ] {
        message = message.replace(theirs, ours);
    }
    message
}

/// Returns the line with a mark under the column, unless it might contain a secret: nothing from the first
/// principal, producer, token or webhook secret on, and no line with a URL or a password.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let secret = text.lines().take(line).any(|line| {
        ["principal", "producer", "token", "webhook_secret"].iter().any(|key| line.contains(key))
    });
    match text.lines().nth(line - 1) {
        // `pas` also matches a misspelt `password`.
        Some(shown) if !secret && !shown.contains("://") && !shown.contains("pas") => {
            format!("\n  | {shown}\n  | {:>column$}", "^")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error message for a config file.
    fn error_of(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.toml");
        std::fs::write(&path, text).unwrap();
        let error = check_file(&path).unwrap_err().to_string();
        error.replace(&*folder.path().to_string_lossy(), "DIR")
    }

    #[test]
    fn an_unknown_key_is_reported_with_line_and_column() {
        insta::assert_snapshot!(error_of("lisen = \"127.0.0.1:80\"\n"), @r#"
        DIR/my.toml:1:1: unknown key `lisen`; did you mean `listen`?
          | lisen = "127.0.0.1:80"
          | ^
        "#);
        insta::assert_snapshot!(error_of("\n[limits]\nbody_bytes = 1\n"), @r"
        DIR/my.toml:3:1: unknown key `body_bytes`; did you mean `body_bytes_max`?
          | body_bytes = 1
          | ^
        ");
        insta::assert_snapshot!(error_of("[doors.pixel-controll]\nenabled = true\n"), @r"
        DIR/my.toml:1:8: unknown key `pixel-controll`; did you mean `pixel-control`?
          | [doors.pixel-controll]
          |        ^
        ");
    }

    #[test]
    fn an_invalid_value_is_reported_with_line_and_column() {
        insta::assert_snapshot!(error_of("listen = \"8080\"\n"), @r#"
        DIR/my.toml:1:10: invalid listen address "8080"; use IP:PORT, such as 127.0.0.1:8080
          | listen = "8080"
          |          ^
        "#);
        insta::assert_snapshot!(error_of("[limits]\nbody_bytes_max = \"1 MB\"\n"), @r#"
        DIR/my.toml:2:18: invalid type: string "1 MB", expected a whole number, 0 or more
          | body_bytes_max = "1 MB"
          |                  ^
        "#);
        insta::assert_snapshot!(error_of("[limits]\njson_depth_max = -1\n"), @r"
        DIR/my.toml:2:18: invalid value: integer `-1`, expected a whole number, 0 or more
          | json_depth_max = -1
          |                  ^
        ");
        insta::assert_snapshot!(error_of("data = 5\n"), @r"
        DIR/my.toml:1:8: invalid type: integer `5`, expected a string
          | data = 5
          |        ^
        ");
        insta::assert_snapshot!(error_of("[log]\nformat = \"xml\"\n"), @r#"
        DIR/my.toml:2:10: unknown value `xml`, expected `text` or `json`
          | format = "xml"
          |          ^
        "#);
    }

    #[test]
    fn invalid_toml_is_reported_with_line_and_column() {
        insta::assert_snapshot!(error_of("data = ./here\n"), @r"
        DIR/my.toml:1:8: expected a value; strings need quotes
          | data = ./here
          |        ^
        ");
        insta::assert_snapshot!(error_of("data = \"a\"\ndata = \"b\"\n"), @r#"
        DIR/my.toml:2:1: duplicate key
          | data = "b"
          | ^
        "#);
        insta::assert_snapshot!(error_of("[log\n"), @r"
        DIR/my.toml:1:5: unclosed table, expected `]`
          | [log
          |     ^
        ");
    }

    #[test]
    fn no_error_message_contains_a_secret() {
        for text in [
            "[[principals]]\nname = \"a\"\nkeys = [\"hush\n",
            "[[principals]]\nname = \"a\"\nkeys = \"hush\"\n",
            "[[principals]]\nname = \"a\"\nkeys = [\"hush\", 5]\n",
            "[[principals]]\nname = \"a\"\nkey = [\"hush\"]\n",
            "[[principals]]\nname = \"a\"\nkeys = [\"sha256:hush\"]\n",
            "[[principals]]\nname = \"a\"\nkeys = [\"hu sh\"]\n",
            "principals = [{ name = \"a\", keys = [\"hush\"] }, { name = \"b\", keys = [\"hush\"] }]\n",
            "principals = [\n  { name = \"a\",\n  keys = [\"hush\"], door = 1 }]\n",
            "principals = [\n  { name = \"a\", keys =\n  \"hush\" }]\n",
            "[[principal]]\nname = \"a\"\nkeys = [\"hush\"]\n",
            "[ledger]\nurl = \"postgres://me:hush@db/admit\"\nlease_seconds = 0\n",
            "[ledger]\nurl = \"postgres://me:hush@db/admit\"\npassword = \"hush\"\n",
            "[ledger]\npassword = [\"hush\"]\n",
            "[ledger]\npassword = \"hush\"\nlease = 5\n",
            "[ledger]\npasword = \"hush\"\n",
            "[ledger]\nurl = \"postgres://me:hush@db/admit\n",
            "[[doors.events]]\nwebhook_secrets = \"hush\"\n",
            "[[doors.events]]\nwebhook_secrets = [\"hush\"]\n",
            "[[doors.events]]\nwebhook_secret = [\"hush\"]\n",
            "[ledger]\nuri = \"postgres://me:hush@db/admit\"\n",
        ] {
            let error = error_of(text);
            assert!(!error.contains("hush") && !error.contains("hu sh"), "{error}");
        }
    }

    #[test]
    fn an_unknown_kind_of_ledger_is_refused() {
        insta::assert_snapshot!(error_of("[ledger]\nurl = \"mysql://me:pw@db/admit\"\n"), @r#"DIR/my.toml: ledger.url: "mysql://…": use "sqlite:" or "postgres://USER@HOST/DATABASE""#);
    }

    #[test]
    fn an_unsafe_or_unusable_config_is_refused_with_advice() {
        let principal = "[[principals]]\nname = \"a\"\nkeys = [\"k\"]\n";
        insta::assert_snapshot!(error_of("listen = \"0.0.0.0:8080\"\n"), @r#"
        DIR/my.toml: listen 0.0.0.0:8080 can be reached from other machines, but no principal is configured
          give each producer a key in the config:
            [[principals]]
            name = "arena-1"
            keys = ["file:arena-1.key"]
          or stay on this machine: --listen 127.0.0.1:8080
        "#);
        insta::assert_snapshot!(error_of(&format!("{principal}{principal}")), @"DIR/my.toml: principal a is configured twice");
        insta::assert_snapshot!(error_of("[[principals]]\nname = \"a:b\"\nkeys = [\"k\"]\n"), @r#"DIR/my.toml: principal "a:b": a name has 1 to 128 characters of A-Z a-z 0-9 . _ - @ +, and is not . or .."#);
        insta::assert_snapshot!(error_of("[[principals]]\nname = \"a\"\nkeys = []\n"), @"DIR/my.toml: principal a has no keys");
        insta::assert_snapshot!(error_of(&format!("{principal}doors = [\"pixel\"]\n")), @r#"DIR/my.toml: principal a: unknown door "pixel"; this gate has: pixel-control, skyra, intents, ingestion-gate, rounds, events/default"#);
        let lost = "[[principals]]\nname = \"a\"\nkeys = [\"file:lost.key\"]\n";
        insta::assert_snapshot!(error_of(lost), @"DIR/my.toml: principal a: the key file DIR/lost.key cannot be read: No such file or directory (os error 2)");
        insta::assert_snapshot!(error_of("[doors.pixel-control]\npath = \"events\"\n"), @r#"DIR/my.toml: doors.pixel-control.path "events" must start with /, not end with /, and contain no query or space"#);
        insta::assert_snapshot!(error_of("[log]\nlevel = \"a=loud\"\n"), @r#"DIR/my.toml: log.level "a=loud" is invalid; use error, warn, info, debug or trace, or directives such as info,admit_gate=debug"#);
        for level in ["inof", "bogus", "", "=info", "info,bogus", "info,admit_gate", "1"] {
            let error = error_of(&format!("[log]\nlevel = \"{level}\"\n"));
            assert!(error.contains("is invalid; use error, warn, info, debug or trace"), "{error}");
        }
        for level in ["INFO", "trace", "info,admit_gate=debug", "warn,admit_gate::http=off"] {
            let mut config = Config::default();
            level.clone_into(&mut config.log.level);
            check(&config, Path::new("")).unwrap();
        }
    }

    #[test]
    fn doors_with_overlapping_paths_are_refused() {
        insta::assert_snapshot!(error_of("[doors.pixel-control]\npath = \"/livez\"\n"), @r#"DIR/my.toml: door pixel-control: the path "/livez" is already used by the gate itself"#);
        let same = "[[doors.events]]\nname = \"a\"\npath = \"/in\"\n\
                    [[doors.events]]\nname = \"b\"\npath = \"/in\"\n";
        insta::assert_snapshot!(error_of(same), @r#"DIR/my.toml: door events/b: the path "/in" is already used by door events/a"#);
        let below = "[doors.rounds]\npath = \"/game\"\n\
                     [[doors.events]]\nname = \"a\"\npath = \"/game/stats_ready\"\n";
        insta::assert_snapshot!(error_of(below), @r#"DIR/my.toml: door events/a: the path "/game/stats_ready" is already used by door rounds"#);
        let mut apart: Config = toml::from_str(same).unwrap();
        apart.doors.events[1].enabled = false;
        check(&apart, Path::new("")).unwrap();
    }

    #[test]
    fn a_short_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("short.key"), "fifteen-letters\n").unwrap();
        let load = |key: &str| {
            let text = format!("[[principals]]\nname = \"a\"\nkeys = [\"{key}\"]\n");
            let path = folder.path().join("my.toml");
            std::fs::write(&path, text).unwrap();
            check_file(&path).map(drop).map_err(|error| error.to_string())
        };
        for short in ["k", "fifteen-letters", "file:short.key"] {
            let error = load(short).unwrap_err();
            assert!(error.contains("principal a: a key has fewer than 16 characters"), "{error}");
            assert!(!error.contains("fifteen"), "{error}");
        }
        load("sixteen-letters!").unwrap();
        load(&format!("sha256:{}", "ab".repeat(32))).unwrap();
        insta::assert_snapshot!(error_of("[limits]\nanswer_ms_max = 10\n"), @"DIR/my.toml: limits.body_read_ms_max must be less than limits.answer_ms_max");
    }

    #[test]
    fn a_missing_config_file_is_named() {
        let error = check_file(Path::new("no-such.toml")).unwrap_err().to_string();
        insta::assert_snapshot!(error, @"cannot read the config no-such.toml: No such file or directory (os error 2)");
    }

    #[test]
    fn flags_override_environment_and_file() {
        let flags = Flags {
            data: Some("from-flag".into()),
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 1))),
            ..Flags::default()
        };
        let vars = [("ADMIT_DATA", "from-env"), ("ADMIT_LISTEN", "127.0.0.1:2")];
        let config = load(&flags, vars.map(|(name, value)| (name.into(), value.into()))).unwrap();
        assert_eq!(config.data, PathBuf::from("from-flag"));
        assert_eq!(config.listen.port(), 1);
    }

    #[test]
    fn without_a_config_the_defaults_apply() {
        assert_eq!(load(&Flags::default(), []).unwrap(), Config::default());
    }
}
