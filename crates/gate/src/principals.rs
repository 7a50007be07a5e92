//! Principals: names, hashed keys, doors and roles.
//!
//! Keys are stored only as SHA-256 and compared in constant time against all configured ones, so neither
//! a memory dump nor response times reveal a key. A principal's name is the scope of its events, so a key
//! belongs to exactly one principal.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use admit_core::hash::unhex32;
use admit_core::{Digest, Door, Principal};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

/// The principal of a gate without principals.
pub const LOCAL: &str = "local";

/// One `[[principals]]` table.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrincipalConfig {
    /// Name, the scope of all events of this principal: 1 to 128 characters of `A-Z a-z 0-9 . _ - @ +`. It
    /// is stored in the ledger, so a new name is a new scope.
    pub name: String,
    /// Keys, each one of: the key itself; `sha256:` and the hex SHA-256 of the key; `file:` and a path whose
    /// content is either. Several keys allow rotation: add the new one before removing the old one.
    pub keys: Vec<String>,
    /// Names of the doors that it may use. Empty: all doors.
    #[serde(default)]
    pub doors: Vec<String>,
    /// Role or list of roles at these doors.
    #[serde(default)]
    pub role: Roles,
    /// Principals in whose names it may send, with the role `forward`. They need no keys and no
    /// configuration of their own.
    #[serde(default)]
    pub may_speak_for: Vec<String>,
}

impl fmt::Debug for PrincipalConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalConfig")
            .field("name", &self.name)
            .field("keys", &format_args!("{} hidden", self.keys.len()))
            .field("doors", &self.doors)
            .field("role", &self.role)
            .field("may_speak_for", &self.may_speak_for)
            .finish()
    }
}

/// Role of a principal at its doors. `operate` contains `read`, `consume` and `metrics`; `read` contains
/// `metrics`. No other role contains another, so list all that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Send events.
    Produce,
    /// Read receipts, lists, streams and read models of all producers at its doors.
    Read,
    /// Read, and change stored state: reconcile, replay, close.
    Operate,
    /// Send events in the names of the principals in `may_speak_for`, as edge agents do.
    Forward,
    /// Read, claim and settle the entries of streams and of the inbox.
    Consume,
    /// Read `/metrics`, and nothing else.
    Metrics,
}

impl Role {
    const ALL: [Self; 6] =
        [Self::Produce, Self::Read, Self::Operate, Self::Forward, Self::Consume, Self::Metrics];

    /// Name of the role in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Forward => "forward",
            Self::Consume => "consume",
            Self::Metrics => "metrics",
        }
    }

    /// Roles that contain this one.
    const fn contained_in(self) -> &'static [Self] {
        match self {
            Self::Produce | Self::Forward => &[],
            Self::Read | Self::Consume => &[Self::Operate],
            Self::Metrics => &[Self::Operate, Self::Read],
            Self::Operate => &[],
        }
    }
}

/// Set of roles; `produce` by default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// The set of `roles`.
    pub fn of(roles: &[Role]) -> Self {
        let bit = |role: Role| 1 << role as u8;
        let bits = roles.iter().fold(0, |bits, role| bits | bit(*role));
        Self(if bits & bit(Role::Operate) == 0 { bits } else { bits | bit(Role::Read) })
    }

    /// Whether the set grants `role`, directly or through another role.
    pub fn contain(self, role: Role) -> bool {
        self.list(role) || role.contained_in().iter().any(|other| self.list(*other))
    }

    /// Whether the set contains `role` directly.
    pub fn list(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// Returns the set with `role` added.
    #[must_use]
    fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }
}

impl Default for Roles {
    fn default() -> Self {
        Self::of(&[Role::Produce])
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Role::ALL.iter().filter(|role| self.list(**role))).finish()
    }
}

impl Serialize for Roles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let listed = Role::ALL.into_iter().filter(|role| self.list(*role));
        serializer.collect_seq(listed.map(Role::as_str))
    }
}

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        const WORDS: [&str; 6] = ["produce", "read", "consume", "metrics", "operate", "forward"];

        fn role<E: de::Error>(word: &str) -> Result<Role, E> {
            let known = Role::ALL.into_iter().find(|role| role.as_str() == word);
            known.ok_or_else(|| E::unknown_variant(word, &WORDS))
        }

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Roles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a role or a list of roles: {}", WORDS.join(", "))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Roles, E> {
                Ok(Roles::of(&[role(word)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Roles, A::Error> {
                let mut roles = Vec::new();
                while let Some(word) = words.next_element::<String>()? {
                    roles.push(role(&word)?);
                }
                if roles.is_empty() {
                    return Err(de::Error::invalid_length(0, &self));
                }
                Ok(Roles::of(&roles))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

/// Invalid configuration of principals. No message contains a key.
#[derive(Debug, thiserror::Error)]
pub enum PrincipalsError {
    /// The name has invalid characters, or too many.
    #[error(
        "principal {0:?}: a name has 1 to 128 characters of A-Z a-z 0-9 . _ - @ +, and is not . or .."
    )]
    Name(String),
    /// Two tables with one name.
    #[error("principal {0} is configured twice")]
    NameTwice(String),
    /// The role `forward` without `may_speak_for`, or the reverse.
    #[error("principal {0}: role forward and may_speak_for require each other")]
    Forward(String),
    /// No key, so no request could authenticate as it.
    #[error("principal {0} has no keys")]
    NoKeys(String),
    /// A key that is not a valid header value.
    #[error(
        "principal {0}: a key is empty, or has a space or a character that is not allowed in a header"
    )]
    Key(String),
    /// `sha256:` without 64 hex digits.
    #[error("principal {0}: sha256: must be followed by 64 hex digits")]
    Sha256(String),
    /// One key for two principals, which makes the scope ambiguous.
    #[error("principals {0} and {1} have a key in common")]
    KeyTwice(String, String),
    /// A key file that cannot be read.
    #[error("principal {name}: the key file {path} cannot be read")]
    KeyFile {
        /// Name of the principal.
        name: String,
        /// Path of the key file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

/// A configured principal.
#[derive(Debug)]
pub(crate) struct KnownPrincipal {
    /// Name of the principal.
    pub(crate) principal: Principal,
    /// Index of the principal, for per-principal state.
    pub(crate) index: usize,
    roles: Roles,
    /// Whether it may claim only because no principal has the role `consume`.
    is_consumer_by_read: bool,
    doors: Vec<String>,
    may_forward_for: Vec<String>,
}

impl KnownPrincipal {
    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contain(role)
    }

    pub(crate) fn may_use(&self, door: &Door) -> bool {
        self.doors.is_empty() || self.doors.iter().any(|name| name == door.as_str())
    }

    pub(crate) fn may_speak_for(&self, name: &str) -> bool {
        self.may_forward_for.iter().any(|other| other == name)
    }

    /// Doors that it is limited to; empty means all doors.
    pub(crate) fn doors(&self) -> &[String] {
        &self.doors
    }
}

/// All configured principals.
pub struct Principals {
    known: Vec<KnownPrincipal>,
    /// Peer on the Unix socket in the data folder of a gate with principals.
    owner: KnownPrincipal,
    keys: Vec<(Digest, u32)>,
    open: bool,
}

impl fmt::Debug for Principals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principals").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Principals {
    /// Open gate without principals: loopback peers are `local` and may produce, read and operate.
    pub fn open() -> Self {
        Self::open_as(LOCAL)
    }

    /// Open gate whose loopback peers are called `name`.
    pub fn open_as(name: &str) -> Self {
        let local = || KnownPrincipal {
            principal: Principal::new(name),
            index: 0,
            roles: Roles::of(&[Role::Produce, Role::Read, Role::Operate]),
            is_consumer_by_read: false,
            doors: Vec::new(),
            may_forward_for: Vec::new(),
        };
        Self { known: vec![local()], owner: local(), keys: Vec::new(), open: true }
    }

    /// Loads the configured principals; without any, the gate is [open](Principals::open). Paths of key
    /// files are relative to `base`, the folder of the configuration.
    pub fn load(configs: &[PrincipalConfig], base: &Path) -> Result<Self, PrincipalsError> {
        Self::load_with_tokens(configs, base, None)
    }

    /// Loads the configured principals of a gate whose door `token_door` accepts tokens: a principal that
    /// may use that door needs no key.
    pub fn load_with_tokens(
        configs: &[PrincipalConfig],
        base: &Path,
        token_door: Option<&str>,
    ) -> Result<Self, PrincipalsError> {
        if configs.is_empty() {
            return Ok(Self::open());
        }
        // Events have a producer's scope, so sending needs a key on the Unix socket too.
        let owner = KnownPrincipal {
            principal: Principal::new(LOCAL),
            index: configs.len(),
            roles: Roles::of(&[Role::Operate]),
            is_consumer_by_read: false,
            doors: Vec::new(),
            may_forward_for: Vec::new(),
        };
        let mut loaded = Self { known: Vec::new(), owner, keys: Vec::new(), open: false };
        for config in configs {
            let uses = |door: &str| {
                config.doors.is_empty() || config.doors.iter().any(|name| name == door)
            };
            loaded.add(config, base, token_door.is_some_and(uses))?;
        }
        // Configs from before the role `consume` continue to work.
        if !loaded.known.iter().any(|known| known.roles.list(Role::Consume)) {
            for known in loaded.known.iter_mut().filter(|known| known.roles.list(Role::Read)) {
                known.is_consumer_by_read = !known.roles.contain(Role::Consume);
                known.roles = known.roles.with(Role::Consume);
            }
        }
        Ok(loaded)
    }

    /// Principals that may claim only because no principal has the role `consume`, and that have a door
    /// with entries to claim.
    pub fn consumers_by_read(&self) -> impl Iterator<Item = &str> {
        let has_entries = |name: &String| {
            let door = Door::new(name);
            door.is_stream() || door.has_inbox()
        };
        let claims = move |known: &&KnownPrincipal| {
            known.is_consumer_by_read
                && (known.doors.is_empty() || known.doors.iter().any(has_entries))
        };
        self.known.iter().filter(claims).map(|known| known.principal.as_str())
    }

    fn add(
        &mut self,
        config: &PrincipalConfig,
        base: &Path,
        has_token: bool,
    ) -> Result<(), PrincipalsError> {
        let name = config.name.clone();
        if let Some(invalid) =
            std::iter::once(&name).chain(&config.may_speak_for).find(|name| !is_name(name))
        {
            return Err(PrincipalsError::Name(invalid.clone()));
        }
        if self.known.iter().any(|known| known.principal.as_str() == name) {
            return Err(PrincipalsError::NameTwice(name));
        }
        if config.keys.is_empty() && !has_token {
            return Err(PrincipalsError::NoKeys(name));
        }
        if config.role.contain(Role::Forward) == config.may_speak_for.is_empty() {
            return Err(PrincipalsError::Forward(name));
        }
        let index = self.known.len();
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        for spec in &config.keys {
            let key = resolve_key(&name, spec, base)?;
            if let Some((_, owner)) = self.keys.iter().find(|(known, _)| *known == key)
                && *owner != number
            {
                let owner = self.known[*owner as usize].principal.to_string();
                return Err(PrincipalsError::KeyTwice(owner, name));
            }
            self.keys.push((key, number));
        }
        self.known.push(KnownPrincipal {
            principal: Principal::new(&name),
            index,
            roles: config.role,
            is_consumer_by_read: false,
            doors: config.doors.clone(),
            may_forward_for: config.may_speak_for.clone(),
        });
        Ok(())
    }

    /// Whether no principal is configured, so that the gate must stay on loopback.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Pairs of principal and configured door, to check for unknown door names.
    pub fn doors_named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.iter().flat_map(|known| {
            known.doors.iter().map(|door| (known.principal.as_str(), door.as_str()))
        })
    }

    /// Number of indexes for per-principal state.
    pub(crate) fn index_count(&self) -> usize {
        self.known.len().max(self.owner.index + 1)
    }

    /// Whether several principals are configured, with any roles.
    pub(crate) fn has_several(&self) -> bool {
        self.known.len() > 1
    }

    /// Whether several principals can send and must share the limits. Principals in `signing` send with a
    /// signature, whatever their roles.
    pub(crate) fn has_several_senders(&self, signing: &[&str]) -> bool {
        let can_send = |known: &&KnownPrincipal| {
            known.roles.contain(Role::Produce)
                || known.roles.contain(Role::Forward)
                || signing.contains(&known.principal.as_str())
        };
        self.known.iter().filter(can_send).count() > 1
    }

    /// Principal of the Unix socket in the data folder: may read and operate everywhere, and produce at an
    /// open gate.
    pub(crate) fn owner(&self) -> &KnownPrincipal {
        &self.owner
    }

    /// Principal of an open gate.
    pub(crate) fn local(&self) -> Option<&KnownPrincipal> {
        self.known.first().filter(|_| self.open)
    }

    /// Returns the principal called `name`.
    pub(crate) fn by_name(&self, name: &str) -> Option<&KnownPrincipal> {
        self.known.iter().find(|known| known.principal.as_str() == name)
    }

    /// Whether there is a principal called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.by_name(name).is_some()
    }

    /// Finds the principal with this key. Compares all keys, to take constant time.
    pub(crate) fn by_key(&self, key: &[u8]) -> Option<&KnownPrincipal> {
        let presented = Digest::of(key);
        let mut is_found = Choice::from(0);
        let mut index = 0_u32;
        for (known, owner) in &self.keys {
            let same = known.as_bytes().ct_eq(presented.as_bytes());
            index.conditional_assign(owner, same);
            is_found |= same;
        }
        if bool::from(is_found) { self.known.get(index as usize) } else { None }
    }
}

/// Whether `name` is a valid name of a principal.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
    // Names become segments of URLs and paths, where these two have a special meaning.
    let is_dot_segment = matches!(name, "." | "..");
    (1..=128).contains(&name.len()) && name.bytes().all(plain) && !is_dot_segment
}

/// Reads the key in `spec` and returns its hash: literal, `sha256:<hex>`, or `file:<path>` with either.
pub fn resolve_key(name: &str, spec: &str, base: &Path) -> Result<Digest, PrincipalsError> {
    let Some(path) = spec.strip_prefix("file:") else {
        return hash_key(name, spec);
    };
    let path = base.join(path);
    match fs::read_to_string(&path) {
        Ok(content) => hash_key(name, content.trim()),
        Err(source) => Err(PrincipalsError::KeyFile { name: name.to_owned(), path, source }),
    }
}

fn hash_key(name: &str, spec: &str) -> Result<Digest, PrincipalsError> {
    if let Some(hex) = spec.strip_prefix("sha256:") {
        let hash = unhex32(hex).ok_or_else(|| PrincipalsError::Sha256(name.to_owned()))?;
        return Ok(Digest::from_bytes(hash));
    }
    if spec.is_empty() || !spec.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(PrincipalsError::Key(name.to_owned()));
    }
    Ok(Digest::of(spec.as_bytes()))
}

#[cfg(test)]
#[path = "principals_tests.rs"]
mod tests;
