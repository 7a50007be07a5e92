//! Environment variables of config keys: `ADMIT_LISTEN`, nested keys with two underscores.
//!
//! `[doors.pixel-control] schema` is `ADMIT_DOORS__PIXEL_CONTROL__SCHEMA`. A variable without a matching
//! key is an error, because otherwise a typo would be silently ignored.

use std::ffi::OsString;

use toml::{Table, Value};

use super::load::plain_message;
use super::{Config, ConfigError};
use crate::cli::KEY_VARIABLE;

/// Prefix of all variables.
const PREFIX: &str = "ADMIT_";

/// Path of the config file; used by the command line, not a config key.
pub(crate) const CONFIG_FILE: &str = "ADMIT_CONFIG";

/// Alias of `doors.intents.execute_actions`, known to users of the intents door.
const EXECUTE_ACTIONS: &str = "EXECUTE_ACTIONS";

/// Type of a value, which determines how its variable is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Text,
    Integer,
    Boolean,
    /// In TOML: `["a", "b"]`, or for principals `[{ name = "a", keys = ["file:k"] }]`.
    List,
}

/// A config key with its variable.
#[derive(Debug)]
struct ConfigKey {
    path: Vec<String>,
    kind: ValueKind,
}

impl ConfigKey {
    fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.join("__").replace('-', "_").to_ascii_uppercase())
    }
}

/// Applies the environment `vars` to `table`, the config file.
pub(super) fn apply(
    table: &mut Table,
    vars: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), ConfigError> {
    let keys = config_keys();
    let mut ours: Vec<(String, OsString)> = vars
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with(PREFIX) || name == EXECUTE_ACTIONS)
        .filter(|(name, _)| name != CONFIG_FILE && name != KEY_VARIABLE)
        .collect();
    // The alias is applied first, so that the variable with our prefix takes precedence.
    ours.sort_by_key(|(name, _)| (name != EXECUTE_ACTIONS, name.clone()));
    if let Some((name, value)) = ours.first().filter(|(name, _)| name == EXECUTE_ACTIONS) {
        let executes = parse_alias_bool(value).ok_or_else(|| ConfigError::Variable {
            name: name.clone(),
            message: "expected true or false".to_owned(),
        })?;
        let path = ["doors", "intents", "execute_actions"].map(str::to_owned);
        set(table, &path, Value::Boolean(executes));
        ours.remove(0);
    }
    for (name, value) in ours {
        let Some(key) = keys.iter().find(|key| key.variable() == name) else {
            let nearest = nearest(&name, keys.iter().map(ConfigKey::variable)).unwrap_or_default();
            return Err(ConfigError::UnknownVariable { name, nearest });
        };
        let invalid = |message: String| ConfigError::Variable { name: name.clone(), message };
        let text = value.into_string().map_err(|_| invalid("not valid UTF-8".to_owned()))?;
        set(table, &key.path, parse(key.kind, text).map_err(invalid)?);
        // The table was valid before, so an error is caused by this variable.
        Config::from_table(table).map_err(|error| invalid(plain_message(error.message())))?;
    }
    Ok(())
}

/// Parses the value of the alias, which accepts more spellings.
fn parse_alias_bool(value: &OsString) -> Option<bool> {
    match value.to_str()?.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" | "" => Some(false),
        _ => None,
    }
}

/// All config keys, taken from the defaults.
fn config_keys() -> Vec<ConfigKey> {
    let defaults = toml::to_string(&Config::default()).expect("the defaults are serializable");
    let defaults: Table = defaults.parse().expect("serialized TOML is valid");
    let mut keys = Vec::new();
    collect(&defaults, &mut Vec::new(), &mut keys);
    keys
}

fn collect(table: &Table, path: &mut Vec<String>, keys: &mut Vec<ConfigKey>) {
    for (name, value) in table {
        path.push(name.clone());
        let kind = match value {
            Value::Table(inner) => {
                collect(inner, path, keys);
                None
            }
            Value::Array(_) => Some(ValueKind::List),
            Value::Integer(_) => Some(ValueKind::Integer),
            Value::Boolean(_) => Some(ValueKind::Boolean),
            Value::String(_) | Value::Float(_) | Value::Datetime(_) => Some(ValueKind::Text),
        };
        keys.extend(kind.map(|kind| ConfigKey { path: path.clone(), kind }));
        path.pop();
    }
}

/// Parses a value. Messages never contain the text of a list, which may hold keys.
fn parse(kind: ValueKind, text: String) -> Result<Value, String> {
    match kind {
        ValueKind::Text => Ok(Value::String(text)),
        ValueKind::Integer => text
            .replace('_', "")
            .parse()
            .map(Value::Integer)
            .map_err(|_| format!("expected a whole number, got {text:?}")),
        ValueKind::Boolean => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| format!("expected true or false, got {text:?}")),
        ValueKind::List => toml::from_str::<Table>(&format!("list = {text}"))
            .ok()
            .and_then(|mut table| table.remove("list"))
            .filter(Value::is_array)
            .ok_or_else(|| "expected a TOML list, such as [\"a\", \"b\"]".to_owned()),
    }
}

fn set(table: &mut Table, path: &[String], value: Value) {
    let (last, parents) = path.split_last().expect("a key has a name");
    let mut inner = table;
    for parent in parents {
        let entry = inner.entry(parent).or_insert_with(|| Value::Table(Table::new()));
        inner = entry.as_table_mut().expect("the table is a valid config");
    }
    inner.insert(last.clone(), value);
}

/// Candidate with the smallest edit distance to `name`.
pub(super) fn nearest<T: AsRef<str>>(name: &str, candidates: impl Iterator<Item = T>) -> Option<T> {
    candidates.min_by_key(|candidate| distance(name.as_bytes(), candidate.as_ref().as_bytes()))
}

/// Levenshtein distance.
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
    fn the_environment_overrides_the_file() {
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
        assert_eq!(config.log.level, "warn", "other keys are unchanged");
    }

    #[test]
    fn every_key_can_be_set_by_its_variable() {
        let variables: Vec<String> = config_keys().iter().map(ConfigKey::variable).collect();
        for expected in ["ADMIT_LISTEN", "ADMIT_DATA", "ADMIT_LEDGER__URL", "ADMIT_LOG__FORMAT"] {
            assert!(variables.iter().any(|name| name == expected), "{expected} in {variables:?}");
        }
        let mut unique = variables.clone();
        unique.dedup();
        assert_eq!(variables, unique, "variables are unique");
    }

    #[test]
    fn execute_actions_is_an_alias() {
        for (text, executes) in [("true", true), ("1", true), ("False", false), ("", false)] {
            let config = with("", &[("EXECUTE_ACTIONS", text)]).unwrap();
            assert_eq!(config.doors.intents.execute_actions, executes, "{text}");
        }
        let both =
            [("EXECUTE_ACTIONS", "true"), ("ADMIT_DOORS__INTENTS__EXECUTE_ACTIONS", "false")];
        assert!(
            !with("", &both).unwrap().doors.intents.execute_actions,
            "our own variable takes precedence"
        );
        with("", &[("EXECUTE_ACTIONS", "perhaps")]).unwrap_err();
        with("", &[("ADMIT_KEY", "k")]).expect("the command line's key is not a setting");
        let confidence = with("", &[("ADMIT_DOORS__INTENTS__CONFIDENCE_MIN", "0.5")]);
        confidence.expect("numbers are accepted as text");
    }

    #[test]
    fn principals_are_a_toml_list() {
        let list = r#"[{ name = "arena-1", keys = ["file:arena.key"] }]"#;
        let config = with("", &[("ADMIT_PRINCIPALS", list)]).unwrap();
        assert_eq!(config.principals[0].name, "arena-1");
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_a_suggestion() {
        insta::assert_snapshot!(with("", &[("ADMIT_LEDGER_URL", "sqlite:")]).unwrap_err(), @r"
        ADMIT_LEDGER_URL: unknown config key; did you mean ADMIT_LEDGER__URL?
          `admit config show` lists all keys
        ");
        insta::assert_snapshot!(with("", &[("ADMIT_LISTN", "x")]).unwrap_err(), @r"
        ADMIT_LISTN: unknown config key; did you mean ADMIT_LISTEN?
          `admit config show` lists all keys
        ");
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_the_variable() {
        let limit = "ADMIT_LIMITS__BODY_BYTES_MAX";
        insta::assert_snapshot!(with("", &[(limit, "lots")]).unwrap_err(), @r#"ADMIT_LIMITS__BODY_BYTES_MAX: expected a whole number, got "lots""#);
        insta::assert_snapshot!(with("", &[(limit, "-1")]).unwrap_err(), @"ADMIT_LIMITS__BODY_BYTES_MAX: invalid value: integer `-1`, expected a whole number, 0 or more");
        insta::assert_snapshot!(with("", &[("ADMIT_LOG__FORMAT", "xml")]).unwrap_err(), @"ADMIT_LOG__FORMAT: unknown value `xml`, expected `text` or `json`");
        insta::assert_snapshot!(with("", &[("ADMIT_LISTEN", "8080")]).unwrap_err(), @r#"ADMIT_LISTEN: invalid listen address "8080"; use IP:PORT, such as 127.0.0.1:8080"#);
        let enabled = "ADMIT_DOORS__PIXEL_CONTROL__ENABLED";
        insta::assert_snapshot!(with("", &[(enabled, "yes")]).unwrap_err(), @r#"ADMIT_DOORS__PIXEL_CONTROL__ENABLED: expected true or false, got "yes""#);
    }

    #[test]
    fn an_invalid_list_of_keys_is_not_repeated_in_the_error() {
        for secret in
            [r#"[{ name = "a", keys = ["hush" }]"#, r#"[{ name = "a", keys = "hush" }]"#, "hush"]
        {
            let error = with("", &[("ADMIT_PRINCIPALS", secret)]).unwrap_err();
            assert!(error.contains("ADMIT_PRINCIPALS"), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
