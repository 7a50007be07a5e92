//! Parts of a gate, and the checks that reject an inconsistent set of doors at startup.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Contract;
use admit_core::{Clock, Door};
use admit_ledger::Ledger;
use http::HeaderName;

use crate::gateway::EffectTarget;
use crate::http::is_own_route;
use crate::limits::{Limits, LimitsError};
use crate::principals::Principals;

/// Everything that a gate needs from its caller.
pub struct GateParts {
    /// Durable store of verdicts.
    pub ledger: Arc<dyn Ledger>,
    /// Contracts and their mount points.
    pub doors: Vec<DoorMount>,
    /// Configured principals.
    pub principals: Principals,
    /// Size, rate and time limits.
    pub limits: Limits,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
}

/// A contract mounted at a path.
#[derive(Clone)]
pub struct DoorMount {
    /// The door's name in the ledger and in a principal's `doors`.
    pub door: Door,
    /// Path of the door, such as `/plugin/events`; matched exactly. A contract with subpaths is served
    /// at those instead.
    pub path: String,
    /// Header that may carry the key instead of `Authorization: Bearer`.
    pub api_key_header: HeaderName,
    /// Contract of the door.
    pub contract: Arc<dyn Contract>,
    /// Target of its effects; empty for contracts without effects.
    pub effect_target: EffectTarget,
}

impl DoorMount {
    /// Returns the part of `path` below the door's path.
    pub(crate) fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.path.as_str())?.strip_prefix('/')
    }

    /// Whether the door is served at `path`.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        if self.path == path {
            return self.contract.subpaths().is_empty();
        }
        self.below(path).is_some_and(|name| self.contract.subpaths().contains(&name))
    }

    /// Maximum time to a reply, without its effects.
    pub(crate) fn answer_max(&self, limits: &Limits) -> Duration {
        self.contract.answer_max().max(limits.answer_max())
    }

    /// All paths of the door.
    pub(crate) fn paths(&self) -> Vec<String> {
        match self.contract.subpaths() {
            [] => vec![self.path.clone()],
            names => names.iter().map(|name| format!("{}/{name}", self.path)).collect(),
        }
    }
}

impl fmt::Debug for DoorMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorMount")
            .field("door", &self.door)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Error in the parts of a gate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GateError {
    /// Invalid path of a door.
    #[error(
        "door {door}: the path {path:?} must start with / and have no query, space or end slash"
    )]
    Path {
        /// Door with this path.
        door: Door,
        /// Path as configured.
        path: String,
    },
    /// Two doors at one path, or a door at a path of the gate itself.
    #[error("door {door}: the path {path:?} is already used by {by}")]
    PathTaken {
        /// Door with this path.
        door: Door,
        /// Path as configured.
        path: String,
        /// Door or part that has the path.
        by: String,
    },
    /// Two doors with one name, which would share their keys.
    #[error("door {0} is mounted twice")]
    DoorTwice(Door),
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

/// Mount point of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorPath {
    /// Name of the door.
    pub door: Door,
    /// Path of the door.
    pub path: String,
    /// Whether all paths below it belong to the door too.
    pub is_tree: bool,
}

impl DoorPath {
    /// Whether `path` belongs to the door, even if the door does not serve it yet.
    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || (self.is_tree && rest.starts_with('/')))
    }
}

impl From<&DoorMount> for DoorPath {
    fn from(mount: &DoorMount) -> Self {
        let is_tree = !mount.contract.subpaths().is_empty();
        Self { door: mount.door.clone(), path: mount.path.clone(), is_tree }
    }
}

/// Checks that names and paths of the doors are valid and unique.
///
/// # Errors
/// When two doors share a name or path, or a path can never match.
pub fn check_doors(doors: &[DoorPath]) -> Result<(), GateError> {
    for (number, mount) in doors.iter().enumerate() {
        let DoorPath { door, path, .. } = mount;
        let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#{}".contains(&byte));
        if !plain || !path.starts_with('/') || path.ends_with('/') {
            return Err(GateError::Path { door: door.clone(), path: path.clone() });
        }
        let path_taken =
            |by: String| GateError::PathTaken { door: door.clone(), path: path.clone(), by };
        if is_own_route(path) {
            return Err(path_taken("the gate itself".to_owned()));
        }
        for earlier in &doors[..number] {
            if earlier.door == *door {
                return Err(GateError::DoorTwice(door.clone()));
            }
            if earlier.covers(path) || mount.covers(&earlier.path) {
                return Err(path_taken(format!("door {}", earlier.door)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use admit_contracts::rounds::{Rounds, Settings};

    use super::*;

    fn check(doors: &[(&str, &str)]) -> Result<(), GateError> {
        let doors: Vec<_> = doors.iter().map(|(name, path)| door_path(name, path)).collect();
        check_doors(&doors)
    }

    fn door_path(name: &str, path: &str) -> DoorPath {
        DoorPath { door: Door::new(name), path: path.to_owned(), is_tree: false }
    }

    fn rounds_at(path: &str) -> DoorMount {
        let rounds = Rounds::new(Settings::default()).unwrap();
        DoorMount {
            door: Door::new("rounds"),
            path: path.to_owned(),
            api_key_header: HeaderName::from_static("x-api-key"),
            contract: Arc::new(rounds),
            effect_target: EffectTarget::default(),
        }
    }

    #[test]
    fn a_door_with_subpaths_is_served_only_at_those() {
        let mount = rounds_at("/v1/rounds");
        assert!(mount.is_at("/v1/rounds/stats_ready"));
        for other in ["/v1/rounds", "/v1/rounds/", "/v1/rounds/relink", "/v1/roundsstats_ready"] {
            assert!(!mount.is_at(other), "{other}");
        }
        assert!(mount.paths().contains(&"/v1/rounds/proximity_file".to_owned()));
    }

    #[test]
    fn no_other_door_can_be_mounted_below_a_door_with_subpaths() {
        let tree = DoorPath::from(&rounds_at("/game"));
        for (other, fits) in [
            ("/game/stats_ready", false),
            ("/game/not/a/source", false),
            ("/game", false),
            ("/games", true),
            ("/other/game", true),
        ] {
            let other = door_path("a", other);
            for doors in [[tree.clone(), other.clone()], [other.clone(), tree.clone()]] {
                let checked = check_doors(&doors);
                assert_eq!(checked.is_ok(), fits, "{doors:?}");
                assert!(fits || matches!(checked, Err(GateError::PathTaken { .. })), "{doors:?}");
            }
        }
    }

    #[test]
    fn doors_with_distinct_names_and_paths_are_valid() {
        assert_eq!(check(&[("a", "/a"), ("b", "/v1/b")]), Ok(()));
    }

    #[test]
    fn a_path_that_could_never_match_is_refused() {
        for path in ["", "a", "/a/", "/a b", "/a?b", "/{a}", "/ä"] {
            let refused = check(&[("a", path)]);
            assert!(matches!(refused, Err(GateError::Path { .. })), "{path}");
        }
    }

    #[test]
    fn a_name_or_path_cannot_be_used_twice() {
        let twice = check(&[("a", "/a"), ("a", "/b")]);
        assert_eq!(twice, Err(GateError::DoorTwice(Door::new("a"))));
        for doors in [[("a", "/a"), ("b", "/a")], [("a", "/a"), ("b", "/livez")]] {
            let refused = check(&doors);
            assert!(matches!(refused, Err(GateError::PathTaken { .. })), "{doors:?}");
        }
    }
}
