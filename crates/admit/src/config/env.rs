//! The environment over the file: `ADMIT_LISTEN`, nested keys with two underscores.
//!
//! `[doors.pixel-control] schema` is `ADMIT_DOORS__PIXEL_CONTROL__SCHEMA`. A variable that names no
//! key is an error, because the other reading of it is a setting that silently does nothing.

use std::ffi::OsString;

use toml::{Table, Value};

use super::load::in_our_words;
use super::{Config, ConfigError};
use crate::cli::KEY;

/// Every variable that starts like this is ours.
const PREFIX: &str = "ADMIT_";

/// Read by the command line, not a key: where the config file is.
pub(crate) const CONFIG_FILE: &str = "ADMIT_CONFIG";

/// The name by which the intents door's users know `doors.intents.execute_actions`.
const EXECUTE_ACTIONS: &str = "EXECUTE_ACTIONS";

/// How the text of a variable becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Boolean,
    /// Written as TOML: `["a", "b"]`, or for principals `[{ name = "a", keys = ["file:k"] }]`.
    List,
}

/// A config key that the environment may set.
#[derive(Debug)]
struct Known {
    path: Vec<String>,
    kind: Kind,
}

impl Known {
    fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.join("__").replace('-', "_").to_ascii_uppercase())
    }
}

/// Lays the environment over `table`, the user's file. `vars` is the environment, in any order.
pub(super) fn apply(
    table: &mut Table,
    vars: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), ConfigError> {
    let known = known();
    let mut ours: Vec<(String, OsString)> = vars
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with(PREFIX) || name == EXECUTE_ACTIONS)
        .filter(|(name, _)| name != CONFIG_FILE && name != KEY)
        .collect();
    // What is called by our own name comes later and wins.
    ours.sort_by_key(|(name, _)| (name != EXECUTE_ACTIONS, name.clone()));
    if let Some((name, value)) = ours.first().filter(|(name, _)| name == EXECUTE_ACTIONS) {
        let executes = truth(value).ok_or_else(|| ConfigError::Variable {
            name: name.clone(),
            message: "wants true or false".to_owned(),
        })?;
        let path = ["doors", "intents", "execute_actions"].map(str::to_owned);
        set(table, &path, Value::Boolean(executes));
        ours.remove(0);
    }
    for (name, value) in ours {
        let Some(key) = known.iter().find(|key| key.variable() == name) else {
            let nearest = nearest(&name, known.iter().map(Known::variable)).unwrap_or_default();
            return Err(ConfigError::UnknownVariable { name, nearest });
        };
        let wrong = |message: String| ConfigError::Variable { name: name.clone(), message };
        let text = value.into_string().map_err(|_| wrong("is not UTF-8".to_owned()))?;
        set(table, &key.path, parse(key.kind, text).map_err(wrong)?);
        // The table was valid before this variable, so it is this variable's doing when it no
        // longer is.
        Config::from_table(table).map_err(|error| wrong(in_our_words(error.message())))?;
    }
    Ok(())
}

/// What a variable of a foreign name means, in the spellings people use for it.
fn truth(value: &OsString) -> Option<bool> {
    match value.to_str()?.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" | "" => Some(false),
        _ => None,
    }
}

/// The keys of the defaults, which name every key there is.
fn known() -> Vec<Known> {
    let defaults = toml::to_string(&Config::default()).expect("the defaults can be written");
    let defaults: Table = defaults.parse().expect("what was written can be read");
    let mut keys = Vec::new();
    collect(&defaults, &mut Vec::new(), &mut keys);
    keys
}

fn collect(table: &Table, path: &mut Vec<String>, keys: &mut Vec<Known>) {
    for (name, value) in table {
        path.push(name.clone());
        let kind = match value {
            Value::Table(inner) => {
                collect(inner, path, keys);
                None
            }
            Value::Array(_) => Some(Kind::List),
            Value::Integer(_) => Some(Kind::Integer),
            Value::Boolean(_) => Some(Kind::Boolean),
            Value::String(_) | Value::Float(_) | Value::Datetime(_) => Some(Kind::Text),
        };
        keys.extend(kind.map(|kind| Known { path: path.clone(), kind }));
        path.pop();
    }
}

/// Never repeats the text in a message: a list may hold keys.
fn parse(kind: Kind, text: String) -> Result<Value, String> {
    match kind {
        Kind::Text => Ok(Value::String(text)),
        Kind::Integer => text
            .replace('_', "")
            .parse()
            .map(Value::Integer)
            .map_err(|_| format!("wants a whole number, not {text:?}")),
        Kind::Boolean => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| format!("wants true or false, not {text:?}")),
        Kind::List => toml::from_str::<Table>(&format!("list = {text}"))
            .ok()
            .and_then(|mut table| table.remove("list"))
            .filter(Value::is_array)
            .ok_or_else(|| "wants a TOML list, such as [\"a\", \"b\"]".to_owned()),
    }
}

fn set(table: &mut Table, path: &[String], value: Value) {
    let (last, parents) = path.split_last().expect("a key has a name");
    let mut inner = table;
    for parent in parents {
        let entry = inner.entry(parent).or_insert_with(|| Value::Table(Table::new()));
        inner = entry.as_table_mut().expect("the file was read as a config before");
    }
    inner.insert(last.clone(), value);
}

/// The candidate that is spelt most like `name`.
pub(super) fn nearest<T: AsRef<str>>(name: &str, candidates: impl Iterator<Item = T>) -> Option<T> {
    candidates.min_by_key(|candidate| distance(name.as_bytes(), candidate.as_ref().as_bytes()))
}

/// How many letters to add, drop or change to get from one to the other.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(file: &str, vars: &[(&str, &str)]) -> Result<Config, String> {
        let mut table = file.parse().expect("a test's file is TOML");
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into()));
        apply(&mut table, vars).map_err(|error| error.to_string())?;
        Config::from_table(&table).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config = with(
            "data = \"from-file\"\n[log]\nlevel = \"warn\"\n",
            &[
                ("ADMIT_DATA", "from-env"),
                ("ADMIT_LISTEN", "127.0.0.1:9999"),
                ("ADMIT_LIMITS__BODY_BYTES_MAX", "65_536"),
                ("ADMIT_DOORS__PIXEL_CONTROL__SCHEMA", "strict"),
                ("ADMIT_DOORS__PIXEL_CONTROL__ENABLED", "false"),
                ("PATH", "/usr/bin"),
                (CONFIG_FILE, "x.toml"),
            ],
        )
        .unwrap();
        assert_eq!(config.data.to_str(), Some("from-env"));
        assert_eq!(config.listen.port(), 9999);
        assert_eq!(config.limits.body_bytes_max, 65_536);
        assert!(!config.doors.pixel_control.enabled);
        assert_eq!(config.log.level, "warn", "what the environment does not name stays");
    }

    #[test]
    fn every_key_can_be_set_by_its_variable() {
        let variables: Vec<String> = known().iter().map(Known::variable).collect();
        for wanted in ["ADMIT_LISTEN", "ADMIT_DATA", "ADMIT_LEDGER__URL", "ADMIT_LOG__FORMAT"] {
            assert!(variables.iter().any(|name| name == wanted), "{wanted} in {variables:?}");
        }
        let mut unique = variables.clone();
        unique.dedup();
        assert_eq!(variables, unique, "no variable means two keys");
    }

    #[test]
    fn execute_actions_works_by_the_name_its_users_know() {
        for (text, executes) in [("true", true), ("1", true), ("False", false), ("", false)] {
            let config = with("", &[("EXECUTE_ACTIONS", text)]).unwrap();
            assert_eq!(config.doors.intents.execute_actions, executes, "{text}");
        }
        let both =
            [("EXECUTE_ACTIONS", "true"), ("ADMIT_DOORS__INTENTS__EXECUTE_ACTIONS", "false")];
        assert!(!with("", &both).unwrap().doors.intents.execute_actions, "our own name wins");
        with("", &[("EXECUTE_ACTIONS", "perhaps")]).unwrap_err();
        with("", &[("ADMIT_KEY", "k")]).expect("a key for the command line is no setting");
        let sure = with("", &[("ADMIT_DOORS__INTENTS__CONFIDENCE_MIN", "0.5")]);
        sure.expect("a number may come as text");
    }

    #[test]
    fn principals_come_as_a_toml_list() {
        let list = r#"[{ name = "arena-1", keys = ["file:arena.key"] }]"#;
        let config = with("", &[("ADMIT_PRINCIPALS", list)]).unwrap();
        assert_eq!(config.principals[0].name, "arena-1");
    }

    #[test]
    fn a_misspelt_variable_is_an_error_that_names_the_nearest() {
        insta::assert_snapshot!(with("", &[("ADMIT_LEDGER_URL", "sqlite:")]).unwrap_err(), @r"
        ADMIT_LEDGER_URL names no config key, the nearest one is ADMIT_LEDGER__URL
          `admit config show` lists all keys
        ");
        insta::assert_snapshot!(with("", &[("ADMIT_LISTN", "x")]).unwrap_err(), @r"
        ADMIT_LISTN names no config key, the nearest one is ADMIT_LISTEN
          `admit config show` lists all keys
        ");
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_the_variable() {
        let limit = "ADMIT_LIMITS__BODY_BYTES_MAX";
        insta::assert_snapshot!(with("", &[(limit, "lots")]).unwrap_err(), @r#"ADMIT_LIMITS__BODY_BYTES_MAX: wants a whole number, not "lots""#);
        insta::assert_snapshot!(with("", &[(limit, "-1")]).unwrap_err(), @"ADMIT_LIMITS__BODY_BYTES_MAX: invalid value: integer `-1`, expected a whole number, 0 or more");
        insta::assert_snapshot!(with("", &[("ADMIT_LOG__FORMAT", "xml")]).unwrap_err(), @"ADMIT_LOG__FORMAT: unknown value `xml`, expected `text` or `json`");
        insta::assert_snapshot!(with("", &[("ADMIT_LISTEN", "8080")]).unwrap_err(), @r#"ADMIT_LISTEN: "8080" is no address to listen on, write IP:PORT such as 127.0.0.1:8080"#);
        let enabled = "ADMIT_DOORS__PIXEL_CONTROL__ENABLED";
        insta::assert_snapshot!(with("", &[(enabled, "yes")]).unwrap_err(), @r#"ADMIT_DOORS__PIXEL_CONTROL__ENABLED: wants true or false, not "yes""#);
    }

    #[test]
    fn a_broken_list_of_keys_is_not_repeated_in_the_error() {
        for secret in
            [r#"[{ name = "a", keys = ["hush" }]"#, r#"[{ name = "a", keys = "hush" }]"#, "hush"]
        {
            let error = with("", &[("ADMIT_PRINCIPALS", secret)]).unwrap_err();
            assert!(error.contains("ADMIT_PRINCIPALS"), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
