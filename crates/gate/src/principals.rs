//! Who may knock: names, hashed keys, doors and roles.
//!
//! Keys are kept only as SHA-256 and compared in constant time against every known one, so neither
//! a memory dump nor the time of an answer tells a key. A principal's name is the scope of all it
//! sends; that is why a key belongs to exactly one.

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
    /// The name, which is the scope of everything this principal sends: 1 to 128 characters of
    /// `A-Z a-z 0-9 . _ - @ +`. It is written into the ledger, so renaming makes a new scope.
    pub name: String,
    /// The keys that prove it, each one of: the key itself; `sha256:` and the hex SHA-256 of the
    /// key; `file:` and a path whose content is either. Several at once, so that a new key can be
    /// handed out before the old one is taken away.
    pub keys: Vec<String>,
    /// The doors it may use, by name. None named: all of them.
    #[serde(default)]
    pub doors: Vec<String>,
    /// What it may do at these doors: one role or a list of them.
    #[serde(default)]
    pub role: Roles,
    /// The principals in whose names it may send, with the role `forward`. They are scopes; they
    /// need not be principals with keys of their own.
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

/// What a principal may do at its doors. `operate` contains `read`, `consume` and `metrics`, since
/// nobody should act on what they cannot see; `read` contains `metrics`, which shows less. No other
/// role contains another, so list several where several are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Send events.
    Produce,
    /// Read receipts, lists, streams and read models, of every producer at its doors. Changes nothing.
    Read,
    /// Read, and act on what is kept: reconcile, replay, close.
    Operate,
    /// Send events in the names of others, as edge agents do: only those it may speak for.
    Forward,
    /// Read, claim and settle the entries of streams and of the inbox.
    Consume,
    /// Read `/metrics`, and nothing else.
    Metrics,
}

impl Role {
    const ALL: [Self; 6] =
        [Self::Produce, Self::Read, Self::Operate, Self::Forward, Self::Consume, Self::Metrics];

    /// The word for it in the configuration.
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

    /// The roles that contain this one.
    const fn contained_in(self) -> &'static [Self] {
        match self {
            Self::Produce | Self::Forward => &[],
            Self::Read | Self::Consume => &[Self::Operate],
            Self::Metrics => &[Self::Operate, Self::Read],
            Self::Operate => &[],
        }
    }
}

/// A set of roles; just `produce` where nothing is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// The set of `roles`.
    pub fn of(roles: &[Role]) -> Self {
        let bit = |role: Role| 1 << role as u8;
        let bits = roles.iter().fold(0, |bits, role| bits | bit(*role));
        Self(if bits & bit(Role::Operate) == 0 { bits } else { bits | bit(Role::Read) })
    }

    /// Whether a principal with this set has `role`, by its own name or in another one.
    pub fn contain(self, role: Role) -> bool {
        self.list(role) || role.contained_in().iter().any(|other| self.list(*other))
    }

    /// Whether `role` is in it by its own name.
    pub fn list(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// The same set with `role` in it.
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
        let held = Role::ALL.into_iter().filter(|role| self.list(*role));
        serializer.collect_seq(held.map(Role::as_str))
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

/// Principals that cannot be used. No message contains a key.
#[derive(Debug, thiserror::Error)]
pub enum PrincipalsError {
    /// The name has other characters, or too many.
    #[error(
        "principal {0:?}: a name has 1 to 128 characters of A-Z a-z 0-9 . _ - @ +, and is not . or .."
    )]
    Name(String),
    /// One name, two tables.
    #[error("principal {0} is configured twice")]
    NameTwice(String),
    /// The role and the names belong together.
    #[error("principal {0}: role forward and may_speak_for want each other")]
    Forward(String),
    /// Nobody could ever be it.
    #[error("principal {0} has no keys")]
    NoKeys(String),
    /// A key that no header can carry.
    #[error(
        "principal {0}: a key is empty, or has a space or a character that no header can carry"
    )]
    Key(String),
    /// `sha256:` without 64 hex digits.
    #[error("principal {0}: sha256: must be followed by 64 hex digits")]
    Sha256(String),
    /// One key, two names: the scope would be a matter of luck.
    #[error("principals {0} and {1} have a key in common")]
    KeyTwice(String, String),
    /// A key file that cannot be read.
    #[error("principal {name}: the key file {path} cannot be read")]
    KeyFile {
        /// Whose key.
        name: String,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A principal as the gate knows it.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name.
    pub(crate) principal: Principal,
    /// Its place among the principals, for whatever is kept per principal.
    pub(crate) place: usize,
    roles: Roles,
    /// Whether it may claim only because no principal has the role `consume`.
    is_consumer_by_read: bool,
    doors: Vec<String>,
    speaks_for: Vec<String>,
}

impl Known {
    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contain(role)
    }

    pub(crate) fn may_use(&self, door: &Door) -> bool {
        self.doors.is_empty() || self.doors.iter().any(|name| name == door.as_str())
    }

    pub(crate) fn may_speak_for(&self, name: &str) -> bool {
        self.speaks_for.iter().any(|known| known == name)
    }

    /// The doors it is limited to; none at all means that it is not.
    pub(crate) fn doors(&self) -> &[String] {
        &self.doors
    }
}

/// Everybody who may knock.
pub struct Principals {
    known: Vec<Known>,
    /// Whoever is at the socket in the data folder of a gate with principals.
    owner: Known,
    keys: Vec<(Digest, u32)>,
    open: bool,
}

impl fmt::Debug for Principals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principals").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Principals {
    /// Nobody is configured: loopback peers are `local` and may produce, read and operate.
    pub fn open() -> Self {
        Self::open_as(LOCAL)
    }

    /// The same, but loopback peers are called `name`.
    pub fn open_as(name: &str) -> Self {
        let local = || Known {
            principal: Principal::new(name),
            place: 0,
            roles: Roles::of(&[Role::Produce, Role::Read, Role::Operate]),
            is_consumer_by_read: false,
            doors: Vec::new(),
            speaks_for: Vec::new(),
        };
        Self { known: vec![local()], owner: local(), keys: Vec::new(), open: true }
    }

    /// The configured principals; none at all means [`Principals::open`]. Relative paths of key
    /// files start at `base`, the folder of the configuration.
    pub fn load(configs: &[PrincipalConfig], base: &Path) -> Result<Self, PrincipalsError> {
        Self::load_with_tokens(configs, base, None)
    }

    /// The same where the door called `token_door` believes tokens: a principal that may use it can
    /// do without a key.
    pub fn load_with_tokens(
        configs: &[PrincipalConfig],
        base: &Path,
        token_door: Option<&str>,
    ) -> Result<Self, PrincipalsError> {
        if configs.is_empty() {
            return Ok(Self::open());
        }
        // Events have a producer's scope, so whoever sends shows a key also at the socket.
        let owner = Known {
            principal: Principal::new(LOCAL),
            place: configs.len(),
            roles: Roles::of(&[Role::Operate]),
            is_consumer_by_read: false,
            doors: Vec::new(),
            speaks_for: Vec::new(),
        };
        let mut loaded = Self { known: Vec::new(), owner, keys: Vec::new(), open: false };
        for config in configs {
            let uses = |door: &str| {
                config.doors.is_empty() || config.doors.iter().any(|name| name == door)
            };
            loaded.add(config, base, token_door.is_some_and(uses))?;
        }
        // Configs of gates that knew no `consume` go on as they were.
        if !loaded.known.iter().any(|known| known.roles.list(Role::Consume)) {
            for known in loaded.known.iter_mut().filter(|known| known.roles.list(Role::Read)) {
                known.is_consumer_by_read = !known.roles.contain(Role::Consume);
                known.roles = known.roles.with(Role::Consume);
            }
        }
        Ok(loaded)
    }

    /// The principals that may claim only because no principal has the role `consume`, where they have
    /// a door with anything to claim.
    pub fn consumers_by_read(&self) -> impl Iterator<Item = &str> {
        let has_entries = |name: &String| {
            let door = Door::new(name);
            door.is_stream() || door.has_inbox()
        };
        let claims = move |known: &&Known| {
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
        if let Some(wrong) =
            std::iter::once(&name).chain(&config.may_speak_for).find(|name| !is_name(name))
        {
            return Err(PrincipalsError::Name(wrong.clone()));
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
        let place = self.known.len();
        let number = u32::try_from(place).unwrap_or(u32::MAX);
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
        self.known.push(Known {
            principal: Principal::new(&name),
            place,
            roles: config.role,
            is_consumer_by_read: false,
            doors: config.doors.clone(),
            speaks_for: config.may_speak_for.clone(),
        });
        Ok(())
    }

    /// Whether nobody is configured, so that the gate must stay on loopback.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Who is limited to which doors, so that whoever knows all doors can find misspelt ones.
    pub fn doors_named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known.iter().flat_map(|known| {
            known.doors.iter().map(|door| (known.principal.as_str(), door.as_str()))
        })
    }

    /// How many places there are for whatever is kept per principal.
    pub(crate) fn places(&self) -> usize {
        self.known.len().max(self.owner.place + 1)
    }

    /// Whether there are several principals, whatever they may do.
    pub(crate) fn are_many(&self) -> bool {
        self.known.len() > 1
    }

    /// Whether several principals can send, who must not use up each other's room. Signatures stand for
    /// those `vouched` for, whatever their roles.
    pub(crate) fn are_several(&self, vouched: &[&str]) -> bool {
        let can_send = |known: &&Known| {
            known.roles.contain(Role::Produce)
                || known.roles.contain(Role::Forward)
                || vouched.contains(&known.principal.as_str())
        };
        self.known.iter().filter(can_send).count() > 1
    }

    /// Whoever is at the socket in the data folder: may read and operate everywhere, and at an open
    /// gate also produce.
    pub(crate) fn owner(&self) -> &Known {
        &self.owner
    }

    /// The principal of an open gate.
    pub(crate) fn local(&self) -> Option<&Known> {
        self.known.first().filter(|_| self.open)
    }

    /// The principal called `name`.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Known> {
        self.known.iter().find(|known| known.principal.as_str() == name)
    }

    /// Whether there is a principal called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.by_name(name).is_some()
    }

    /// Whose key this is. Looks at every known key, whichever matches.
    pub(crate) fn by_key(&self, key: &[u8]) -> Option<&Known> {
        let presented = Digest::of(key);
        let mut found = Choice::from(0);
        let mut place = 0_u32;
        for (known, owner) in &self.keys {
            let same = known.as_bytes().ct_eq(presented.as_bytes());
            place.conditional_assign(owner, same);
            found |= same;
        }
        if bool::from(found) { self.known.get(place as usize) } else { None }
    }
}

/// Whether `name` can be a principal's.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
    // Names become segments of URLs and of paths, where these two lead elsewhere.
    let leads_elsewhere = matches!(name, "." | "..");
    (1..=128).contains(&name.len()) && name.bytes().all(plain) && !leads_elsewhere
}

/// The hash of the key that `spec` gives: literal, `sha256:<hex>`, or `file:<path>` with either.
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
