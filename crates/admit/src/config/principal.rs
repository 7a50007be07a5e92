//! `[[principals]]`: producers and consumers, with keys that are never shown.

use std::fmt;

use admit_gate::principals::{self, Roles};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `[[principals]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrincipalEntry {
    /// Name. It is the scope of everything the principal sends, so it must never change.
    pub(crate) name: String,
    /// Keys; several during rotation. Empty for service tokens only.
    #[serde(default)]
    pub(crate) keys: KeyList,
    /// Allowed doors. Empty: all doors.
    #[serde(default)]
    pub(crate) doors: Vec<String>,
    /// One role, or a list of roles.
    #[serde(default)]
    pub(crate) role: Roles,
    /// Principals that it may send for, with the role `forward`.
    #[serde(default)]
    pub(crate) may_speak_for: Vec<String>,
}

impl PrincipalEntry {
    /// Converts to the gate's type.
    pub(super) fn for_gate(&self) -> principals::PrincipalConfig {
        principals::PrincipalConfig {
            name: self.name.clone(),
            keys: self.keys.0.clone(),
            doors: self.doors.clone(),
            role: self.role,
            may_speak_for: self.may_speak_for.clone(),
        }
    }
}

/// Keys of a principal as configured. Its debug and serialised forms hide literal keys, and so do errors
/// about an invalid value.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyList(Vec<String>);

impl KeyList {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn hidden(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|key| match key {
            key if key.starts_with("file:") => key.clone(),
            key if key.starts_with("sha256:") => "sha256:(hidden)".to_owned(),
            _ => "(hidden)".to_owned(),
        })
    }
}

impl fmt::Debug for KeyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hidden()).finish()
    }
}

impl Serialize for KeyList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.hidden())
    }
}

impl<'de> Deserialize<'de> for KeyList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyListVisitor)
    }
}

const EXPECTED_LIST: &str = "expected a list of strings, such as [\"file:arena-1.key\"]";

/// Visitor whose errors do not contain the invalid value, unlike serde's own.
struct KeyListVisitor;

impl<'de> Visitor<'de> for KeyListVisitor {
    type Value = KeyList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of keys")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KeyList, A::Error> {
        let mut keys = Vec::new();
        while let Some(value) = list.next_element::<toml::Value>()? {
            match value {
                toml::Value::String(key) => keys.push(key),
                toml::Value::Integer(_)
                | toml::Value::Float(_)
                | toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_)
                | toml::Value::Table(_) => return Err(Error::custom(EXPECTED_LIST)),
            }
        }
        Ok(KeyList(keys))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<KeyList, E> {
        Err(E::custom(EXPECTED_LIST))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<KeyList, E> {
        Err(E::custom(EXPECTED_LIST))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<KeyList, E> {
        Err(E::custom(EXPECTED_LIST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<PrincipalEntry, toml::de::Error> {
        toml::from_str(&format!("name = \"a\"\nkeys = {keys}\n"))
    }

    #[test]
    fn keys_never_show_in_debug_or_serialised_form() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let principal = read(&format!("[\"hush-hush\", \"{hash}\", \"file:arena.key\"]")).unwrap();
        assert_eq!(principal.keys.0, ["hush-hush", &hash, "file:arena.key"]);
        for shown in [format!("{principal:?}"), toml::to_string(&principal).unwrap()] {
            assert!(!shown.contains("hush"), "{shown}");
            assert!(!shown.contains("abab"), "{shown}");
            assert!(shown.contains("file:arena.key"), "{shown}");
        }
    }

    #[test]
    fn an_invalid_key_is_not_in_the_error() {
        for keys in ["\"771177\"", "771177", "[771177]", "[[\"771177\"]]", "771177.5", "{ a = 1 }"]
        {
            let error = read(keys).unwrap_err();
            assert!(!error.message().contains("771177"), "{keys}: {}", error.message());
        }
    }
}
