//! What a gate is put together from, and the checks that catch a wrong assembly at the start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Contract;
use admit_core::{Clock, Door};
use admit_ledger::Ledger;
use http::HeaderName;

use crate::gateway::Outward;
use crate::http::is_own_route;
use crate::limits::{Limits, LimitsError};
use crate::principals::Principals;

/// Everything a gate needs from outside.
pub struct Parts {
    /// Where verdicts become durable.
    pub ledger: Arc<dyn Ledger>,
    /// The contracts and where they are mounted.
    pub doors: Vec<DoorMount>,
    /// Who may knock.
    pub principals: Principals,
    /// How much may be taken, and how long anything may last.
    pub limits: Limits,
    /// Where the time of day comes from.
    pub clock: Arc<dyn Clock>,
}

/// A contract mounted at a path.
#[derive(Clone)]
pub struct DoorMount {
    /// The door's name, as it stands in the ledger and in a principal's `doors`.
    pub door: Door,
    /// The path it answers at, such as `/plugin/events`; matched exactly. A contract with names
    /// below its path answers at those instead.
    pub path: String,
    /// The header that may carry the key instead of `Authorization: Bearer`.
    pub api_key_header: HeaderName,
    /// What it speaks.
    pub contract: Arc<dyn Contract>,
    /// Where its effects go; nothing for contracts without effects.
    pub outward: Outward,
}

impl DoorMount {
    /// The name below the door's path that `path` asks for, if it is one.
    pub(crate) fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.path.as_str())?.strip_prefix('/')
    }

    /// Whether the door answers at `path`.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        if self.path == path {
            return self.contract.subpaths().is_empty();
        }
        self.below(path).is_some_and(|name| self.contract.subpaths().contains(&name))
    }

    /// Longest wait for an answer, apart from what its effects may take.
    pub(crate) fn answer_max(&self, limits: &Limits) -> Duration {
        self.contract.answer_max().max(limits.answer_max())
    }

    /// Every path it answers at.
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

/// Parts that do not make a gate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GateError {
    /// A door's path is not one.
    #[error(
        "door {door}: the path {path:?} must start with / and have no query, space or end slash"
    )]
    Path {
        /// Whose path.
        door: Door,
        /// What it says.
        path: String,
    },
    /// Two doors at one path, or a door at a path the gate itself answers.
    #[error("door {door}: the path {path:?} is taken by {by}")]
    PathTaken {
        /// Whose path.
        door: Door,
        /// What it says.
        path: String,
        /// Who has it.
        by: String,
    },
    /// Two doors of one name would share their keys.
    #[error("door {0} is mounted twice")]
    DoorTwice(Door),
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

/// Where a door is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub door: Door,
    /// Its path.
    pub path: String,
    /// Whether everything below the path is the door's too.
    pub is_tree: bool,
}

impl Place {
    /// Whether the door answers at `path`, or may one day.
    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || (self.is_tree && rest.starts_with('/')))
    }
}

impl From<&DoorMount> for Place {
    fn from(mount: &DoorMount) -> Self {
        let is_tree = !mount.contract.subpaths().is_empty();
        Self { door: mount.door.clone(), path: mount.path.clone(), is_tree }
    }
}

/// Checks that every door has a name and a path of its own.
///
/// # Errors
/// When two doors would be one, or nobody could ever reach one.
pub fn check_doors(doors: &[Place]) -> Result<(), GateError> {
    for (number, place) in doors.iter().enumerate() {
        let Place { door, path, .. } = place;
        let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#{}".contains(&byte));
        if !plain || !path.starts_with('/') || path.ends_with('/') {
            return Err(GateError::Path { door: door.clone(), path: path.clone() });
        }
        let taken =
            |by: String| GateError::PathTaken { door: door.clone(), path: path.clone(), by };
        if is_own_route(path) {
            return Err(taken("the gate itself".to_owned()));
        }
        for earlier in &doors[..number] {
            if earlier.door == *door {
                return Err(GateError::DoorTwice(door.clone()));
            }
            if earlier.covers(path) || place.covers(&earlier.path) {
                return Err(taken(format!("door {}", earlier.door)));
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
        let doors: Vec<_> = doors.iter().map(|(name, path)| place(name, path)).collect();
        check_doors(&doors)
    }

    fn place(name: &str, path: &str) -> Place {
        Place { door: Door::new(name), path: path.to_owned(), is_tree: false }
    }

    fn rounds_at(path: &str) -> DoorMount {
        let rounds = Rounds::new(Settings::default()).unwrap();
        DoorMount {
            door: Door::new("rounds"),
            path: path.to_owned(),
            api_key_header: HeaderName::from_static("x-api-key"),
            contract: Arc::new(rounds),
            outward: Outward::default(),
        }
    }

    #[test]
    fn a_door_with_names_below_its_path_answers_there_and_nowhere_else() {
        let mount = rounds_at("/v1/rounds");
        assert!(mount.is_at("/v1/rounds/stats_ready"));
        for other in ["/v1/rounds", "/v1/rounds/", "/v1/rounds/relink", "/v1/roundsstats_ready"] {
            assert!(!mount.is_at(other), "{other}");
        }
        assert!(mount.paths().contains(&"/v1/rounds/proximity_file".to_owned()));
    }

    #[test]
    fn nobody_moves_in_below_a_door_with_names_below_its_path() {
        let tree = Place::from(&rounds_at("/game"));
        for (other, fits) in [
            ("/game/stats_ready", false),
            ("/game/not/a/source", false),
            ("/game", false),
            ("/games", true),
            ("/other/game", true),
        ] {
            let other = place("a", other);
            for doors in [[tree.clone(), other.clone()], [other.clone(), tree.clone()]] {
                let checked = check_doors(&doors);
                assert_eq!(checked.is_ok(), fits, "{doors:?}");
                assert!(fits || matches!(checked, Err(GateError::PathTaken { .. })), "{doors:?}");
            }
        }
    }

    #[test]
    fn doors_with_names_and_paths_of_their_own_fit() {
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
    fn nobody_takes_a_name_or_path_twice() {
        let twice = check(&[("a", "/a"), ("a", "/b")]);
        assert_eq!(twice, Err(GateError::DoorTwice(Door::new("a"))));
        for doors in [[("a", "/a"), ("b", "/a")], [("a", "/a"), ("b", "/livez")]] {
            let refused = check(&doors);
            assert!(matches!(refused, Err(GateError::PathTaken { .. })), "{doors:?}");
        }
    }
}
