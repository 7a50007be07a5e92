//! Who may come in, with keys that never come out again.

use std::fmt;

use admit_gate::principals::{self, Roles};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `[[principals]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrincipalConfig {
    /// The producer's name. It is the scope of everything it sends, so it must never change.
    pub(crate) name: String,
    /// Its keys; several while they are rotated. None for one that shows service tokens only.
    #[serde(default)]
    pub(crate) keys: Keys,
    /// The doors it may use; none named means every door.
    #[serde(default)]
    pub(crate) doors: Vec<String>,
    /// What it may do: one role, or a list of them.
    #[serde(default)]
    pub(crate) role: Roles,
    /// Whom it may speak for, with the role `forward`.
    #[serde(default)]
    pub(crate) may_speak_for: Vec<String>,
}

impl PrincipalConfig {
    /// The same in the gate's own type.
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

/// The keys of one principal, as configured. Neither its debug form nor its serialised form shows
/// a literal key, and a mistake in the config is reported without repeating what stands there.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Keys(Vec<String>);

impl Keys {
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

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hidden()).finish()
    }
}

impl Serialize for Keys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.hidden())
    }
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeysVisitor)
    }
}

const A_LIST: &str = "this is a list of texts, such as [\"file:arena-1.key\"]";

/// Serde's own visitors repeat the value that does not fit; for keys that must not happen.
struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of keys")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some(value) = list.next_element::<toml::Value>()? {
            match value {
                toml::Value::String(key) => keys.push(key),
                toml::Value::Integer(_)
                | toml::Value::Float(_)
                | toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_)
                | toml::Value::Table(_) => return Err(Error::custom(A_LIST)),
            }
        }
        Ok(Keys(keys))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Keys, E> {
        Err(E::custom(A_LIST))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Keys, E> {
        Err(E::custom(A_LIST))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Keys, E> {
        Err(E::custom(A_LIST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<PrincipalConfig, toml::de::Error> {
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
    fn a_key_in_the_wrong_place_is_not_repeated() {
        for keys in ["\"771177\"", "771177", "[771177]", "[[\"771177\"]]", "771177.5", "{ a = 1 }"]
        {
            let error = read(keys).unwrap_err();
            assert!(!error.message().contains("771177"), "{keys}: {}", error.message());
        }
    }
}
