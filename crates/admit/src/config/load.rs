//! Where a config comes from: the file, then the environment, then the flags.
//!
//! The user's file is read alone first, so that a mistake in it is reported with its line and
//! column and not as a mistake of the whole.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::Table;

use super::env::{self, nearest};
use super::{Config, check, warnings};

/// Why there is no usable config. The texts are for the person who wrote it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a config.
    #[error("{}:{line}:{column}: {message}{excerpt}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
        /// The line itself, on lines of its own, unless it might show a key.
        excerpt: String,
    },
    /// A variable has a value that does not fit.
    #[error("{name}: {message}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong with its value.
        message: String,
    },
    /// A variable that starts like ours but names no key.
    #[error(
        "{name} names no config key, the nearest one is {nearest}\n  `admit config show` lists all keys"
    )]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known one that is spelt most like it.
        nearest: String,
    },
    /// Every value can be read, but they make no sense or no safe gate.
    #[error("{0}")]
    Rule(String),
}

/// What the command line decides.
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
    /// The folder of the config file, where relative paths in it start.
    pub(crate) fn base(&self) -> PathBuf {
        let folder = self.config.as_deref().and_then(Path::parent);
        folder.unwrap_or_else(|| Path::new("")).to_owned()
    }
}

/// The config of this process: defaults, file, environment, flags, in that order of rising weight.
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
        .map_err(|error| ConfigError::Rule(in_our_words(error.message())))?;
    if let Some(data) = &flags.data {
        config.data.clone_from(data);
    }
    if let Some(listen) = flags.listen {
        config.listen = listen;
    }
    Ok(config)
}

/// Checks one file alone, as if nothing else were set. Returns what should be changed all the same.
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
        message: in_our_words(error.message()),
        excerpt: excerpt(text, line, column),
    }
}

/// What the parser says, for people who do not know its types.
pub(super) fn in_our_words(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field")
        && let Some(name) = quoted.next()
        && let Some(nearest) = nearest(name, quoted)
    {
        return format!("unknown key `{name}`, the nearest one is `{nearest}`");
    }
    let mut message = message.trim_end().replace('\n', ", ");
    for (theirs, ours) in [
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected u32", "expected a whole number, 0 or more"),
        ("expected a boolean", "expected true or false"),
        ("expected path string", "expected a text"),
        ("expected a string", "expected a text"),
        ("missing field", "missing key"),
        ("unknown variant", "unknown value"),
        ("invalid mantissa, expected digits", "expected a value, a text stands in quotes"),
    ] {
        message = message.replace(theirs, ours);
    }
    message
}

/// The line with a mark under the column, unless a key or a password might stand there: nothing is
/// shown from the first mention of a principal, producer, token or webhook secret on, and no line with a URL or a password.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let secret = text.lines().take(line).any(|line| {
        ["principal", "producer", "token", "webhook_secret"].iter().any(|word| line.contains(word))
    });
    match text.lines().nth(line - 1) {
        // A password stands in its own line, also when its key is misspelt.
        Some(shown) if !secret && !shown.contains("://") && !shown.contains("pas") => {
            format!("\n  | {shown}\n  | {:>column$}", "^")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a person reads when `text` is their config.
    fn complaint(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.toml");
        std::fs::write(&path, text).unwrap();
        let error = check_file(&path).unwrap_err().to_string();
        error.replace(&*folder.path().to_string_lossy(), "DIR")
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_its_place() {
        insta::assert_snapshot!(complaint("lisen = \"127.0.0.1:80\"\n"), @r#"
        DIR/my.toml:1:1: unknown key `lisen`, the nearest one is `listen`
          | lisen = "127.0.0.1:80"
          | ^
        "#);
        insta::assert_snapshot!(complaint("\n[limits]\nbody_bytes = 1\n"), @r"
        DIR/my.toml:3:1: unknown key `body_bytes`, the nearest one is `body_bytes_max`
          | body_bytes = 1
          | ^
        ");
        insta::assert_snapshot!(complaint("[doors.pixel-controll]\nenabled = true\n"), @r"
        DIR/my.toml:1:8: unknown key `pixel-controll`, the nearest one is `pixel-control`
          | [doors.pixel-controll]
          |        ^
        ");
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error_with_its_place() {
        insta::assert_snapshot!(complaint("listen = \"8080\"\n"), @r#"
        DIR/my.toml:1:10: "8080" is no address to listen on, write IP:PORT such as 127.0.0.1:8080
          | listen = "8080"
          |          ^
        "#);
        insta::assert_snapshot!(complaint("[limits]\nbody_bytes_max = \"1 MB\"\n"), @r#"
        DIR/my.toml:2:18: invalid type: string "1 MB", expected a whole number, 0 or more
          | body_bytes_max = "1 MB"
          |                  ^
        "#);
        insta::assert_snapshot!(complaint("[limits]\njson_depth_max = -1\n"), @r"
        DIR/my.toml:2:18: invalid value: integer `-1`, expected a whole number, 0 or more
          | json_depth_max = -1
          |                  ^
        ");
        insta::assert_snapshot!(complaint("data = 5\n"), @r"
        DIR/my.toml:1:8: invalid type: integer `5`, expected a text
          | data = 5
          |        ^
        ");
        insta::assert_snapshot!(complaint("[log]\nformat = \"xml\"\n"), @r#"
        DIR/my.toml:2:10: unknown value `xml`, expected `text` or `json`
          | format = "xml"
          |          ^
        "#);
    }

    #[test]
    fn broken_toml_is_an_error_with_its_place() {
        insta::assert_snapshot!(complaint("data = ./here\n"), @r"
        DIR/my.toml:1:8: expected a value, a text stands in quotes
          | data = ./here
          |        ^
        ");
        insta::assert_snapshot!(complaint("data = \"a\"\ndata = \"b\"\n"), @r#"
        DIR/my.toml:2:1: duplicate key
          | data = "b"
          | ^
        "#);
        insta::assert_snapshot!(complaint("[log\n"), @r"
        DIR/my.toml:1:5: unclosed table, expected `]`
          | [log
          |     ^
        ");
    }

    #[test]
    fn no_key_is_ever_shown_by_an_error() {
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
            let error = complaint(text);
            assert!(!error.contains("hush") && !error.contains("hu sh"), "{error}");
        }
    }

    #[test]
    fn a_ledger_this_build_does_not_have_is_refused() {
        insta::assert_snapshot!(complaint("[ledger]\nurl = \"mysql://me:pw@db/admit\"\n"), @r#"DIR/my.toml: ledger.url: "mysql://…": use "sqlite:" or "postgres://USER@HOST/DATABASE""#);
    }

    #[test]
    fn an_unsafe_or_useless_gate_is_refused_with_what_to_do() {
        let principal = "[[principals]]\nname = \"a\"\nkeys = [\"k\"]\n";
        insta::assert_snapshot!(complaint("listen = \"0.0.0.0:8080\"\n"), @r#"
        DIR/my.toml: listen 0.0.0.0:8080 can be reached from other machines, but no principal is configured
          give each producer a key in the config:
            [[principals]]
            name = "arena-1"
            keys = ["file:arena-1.key"]
          or stay on this machine: --listen 127.0.0.1:8080
        "#);
        insta::assert_snapshot!(complaint(&format!("{principal}{principal}")), @"DIR/my.toml: principal a is configured twice");
        insta::assert_snapshot!(complaint("[[principals]]\nname = \"a:b\"\nkeys = [\"k\"]\n"), @r#"DIR/my.toml: principal "a:b": a name has 1 to 128 characters of A-Z a-z 0-9 . _ - @ +, and is not . or .."#);
        insta::assert_snapshot!(complaint("[[principals]]\nname = \"a\"\nkeys = []\n"), @"DIR/my.toml: principal a has no keys");
        insta::assert_snapshot!(complaint(&format!("{principal}doors = [\"pixel\"]\n")), @r#"DIR/my.toml: principal a: there is no door "pixel"; this gate has: pixel-control, skyra, intents, ingestion-gate, rounds, events/default"#);
        let lost = "[[principals]]\nname = \"a\"\nkeys = [\"file:lost.key\"]\n";
        insta::assert_snapshot!(complaint(lost), @"DIR/my.toml: principal a: the key file DIR/lost.key cannot be read: No such file or directory (os error 2)");
        insta::assert_snapshot!(complaint("[doors.pixel-control]\npath = \"events\"\n"), @r#"DIR/my.toml: doors.pixel-control.path "events" must start with / and have no query, space or end slash"#);
        insta::assert_snapshot!(complaint("[log]\nlevel = \"a=loud\"\n"), @r#"DIR/my.toml: log.level "a=loud" is not a level; use error, warn, info, debug or trace, or directives such as info,admit_gate=debug"#);
        for level in ["inof", "bogus", "", "=info", "info,bogus", "info,admit_gate", "1"] {
            let error = complaint(&format!("[log]\nlevel = \"{level}\"\n"));
            assert!(
                error.contains("is not a level; use error, warn, info, debug or trace"),
                "{error}"
            );
        }
        for level in ["INFO", "trace", "info,admit_gate=debug", "warn,admit_gate::http=off"] {
            let mut config = Config::default();
            level.clone_into(&mut config.log.level);
            check(&config, Path::new("")).unwrap();
        }
    }

    #[test]
    fn doors_that_the_gate_could_not_serve_are_refused() {
        insta::assert_snapshot!(complaint("[doors.pixel-control]\npath = \"/livez\"\n"), @r#"DIR/my.toml: door pixel-control: the path "/livez" is taken by the gate itself"#);
        let same = "[[doors.events]]\nname = \"a\"\npath = \"/in\"\n\
                    [[doors.events]]\nname = \"b\"\npath = \"/in\"\n";
        insta::assert_snapshot!(complaint(same), @r#"DIR/my.toml: door events/b: the path "/in" is taken by door events/a"#);
        let below = "[doors.rounds]\npath = \"/game\"\n\
                     [[doors.events]]\nname = \"a\"\npath = \"/game/stats_ready\"\n";
        insta::assert_snapshot!(complaint(below), @r#"DIR/my.toml: door events/a: the path "/game/stats_ready" is taken by door rounds"#);
        let mut apart: Config = toml::from_str(same).unwrap();
        apart.doors.events[1].enabled = false;
        check(&apart, Path::new("")).unwrap();
    }

    #[test]
    fn a_key_that_can_be_guessed_is_refused() {
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
        insta::assert_snapshot!(complaint("[limits]\nanswer_ms_max = 10\n"), @"DIR/my.toml: limits.body_read_ms_max must be less than limits.answer_ms_max");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = check_file(Path::new("no-such.toml")).unwrap_err().to_string();
        insta::assert_snapshot!(error, @"cannot read the config no-such.toml: No such file or directory (os error 2)");
    }

    #[test]
    fn flags_win_over_everything() {
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
    fn no_config_at_all_is_the_reference_config() {
        assert_eq!(load(&Flags::default(), []).unwrap(), Config::default());
    }
}
