//! State document of a game server, updated from its events inside the record commit.
//!
//! Invariant: the document does not depend on the order in which events arrive. Requests run in
//! parallel and retries come late, so every field keeps the sequence that set it and only a newer
//! sequence replaces it; for equal sequences the content decides. Counts are added, time ranges
//! widened. Events of a producer whose clock stepped back have older sequences and take effect
//! again once it has caught up.

use std::any::Any;
use std::fmt::Write as _;

use admit_core::projection::ProjectionState;
use admit_core::{EntityId, Millis, Principal, Projection, ProjectionError};
use serde::{Deserialize, Serialize};

use super::enums::Category;
use super::envelope::PixelEnvelope;
use super::extract;

/// Projection name in the ledger.
pub const PROJECTION: &str = "pixel.server";

/// Format version of the document. An older gate must not write back a document it only partly
/// understands.
const FORMAT: u32 = 1;

/// Field value with the sequence that set it. Ordered by sequence first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SequencedValue<T> {
    pub(super) sequence: u64,
    pub(super) value: T,
}

/// Times of a plugin contact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastContact {
    /// By the producer's clock, in seconds since the Unix epoch.
    pub(super) source_time: u64,
    /// By the gate's clock, in milliseconds since the Unix epoch.
    pub(super) received_at_ms: i64,
}

impl LastContact {
    pub(super) fn received_at(&self) -> Millis {
        Millis(self.received_at_ms)
    }
}

/// Loaded map.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GameMap {
    pub(super) uid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) file: Option<String>,
    pub(super) environment: Option<String>,
}

/// Player counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Players {
    pub(super) active: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) spectators: Option<u64>,
}

/// Latest state of a match, map, round, warmup or pause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Phase {
    /// By the producer's clock, in seconds since the Unix epoch.
    pub(super) source_time: u64,
    pub(super) state: PhaseState,
}

/// Second half of a lifecycle variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PhaseState {
    Begin,
    End,
    Start,
    Status,
}

/// Latest state of each phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Phases {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) r#match: Option<SequencedValue<Phase>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) map: Option<SequencedValue<Phase>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round: Option<SequencedValue<Phase>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warmup: Option<SequencedValue<Phase>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<SequencedValue<Phase>>,
}

/// Admitted events by category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CategoryCounts {
    pub(super) connectivity: u64,
    pub(super) lifecycle: u64,
    pub(super) player: u64,
    pub(super) combat: u64,
    pub(super) mode: u64,
}

impl CategoryCounts {
    pub(super) fn of(category: Category) -> Self {
        let mut counts = Self::default();
        match category {
            Category::Connectivity => counts.connectivity = 1,
            Category::Lifecycle => counts.lifecycle = 1,
            Category::Player => counts.player = 1,
            Category::Combat => counts.combat = 1,
            Category::Mode => counts.mode = 1,
        }
        counts
    }
}

/// State document. The contribution of a single event has the same form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerState {
    pub(super) format: u32,
    pub(super) scope: String,
    /// Empty when the events declare none.
    pub(super) login: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<SequencedValue<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) game_mode: Option<SequencedValue<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title_id: Option<SequencedValue<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) plugin_version: Option<SequencedValue<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) registration: Option<SequencedValue<LastContact>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat: Option<SequencedValue<LastContact>>,
    /// `null` inside means that no map is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) current_map: Option<SequencedValue<Option<GameMap>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) players: Option<SequencedValue<Players>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue_depth: Option<SequencedValue<u64>>,
    pub(super) phases: Phases,
    pub(super) event_counts: CategoryCounts,
    pub(super) first_seen_at_ms: i64,
    pub(super) last_event_at_ms: i64,
}

impl ServerState {
    /// Creates an empty document.
    fn new(scope: &str, login: &str, received_at: Millis) -> Self {
        Self {
            format: FORMAT,
            scope: scope.to_owned(),
            login: login.to_owned(),
            name: None,
            game_mode: None,
            title_id: None,
            plugin_version: None,
            registration: None,
            heartbeat: None,
            current_map: None,
            players: None,
            queue_depth: None,
            phases: Phases::default(),
            event_counts: CategoryCounts::default(),
            first_seen_at_ms: received_at.0,
            last_event_at_ms: received_at.0,
        }
    }

    pub(super) fn first_seen_at(&self) -> Millis {
        Millis(self.first_seen_at_ms)
    }

    pub(super) fn last_event_at(&self) -> Millis {
        Millis(self.last_event_at_ms)
    }

    /// Parses a stored document.
    pub(super) fn parse(document: &str) -> Result<Self, String> {
        let server: Self = serde_json::from_str(document).map_err(|error| error.to_string())?;
        if server.format == FORMAT {
            Ok(server)
        } else {
            Err(format!("document has format {}, this gate supports {FORMAT}", server.format))
        }
    }

    /// Merges the contribution of other events for the same server.
    fn join(&mut self, other: &Self) {
        newer(&mut self.name, &other.name);
        newer(&mut self.game_mode, &other.game_mode);
        newer(&mut self.title_id, &other.title_id);
        newer(&mut self.plugin_version, &other.plugin_version);
        newer(&mut self.registration, &other.registration);
        newer(&mut self.heartbeat, &other.heartbeat);
        newer(&mut self.current_map, &other.current_map);
        newer(&mut self.players, &other.players);
        newer(&mut self.queue_depth, &other.queue_depth);
        newer(&mut self.phases.r#match, &other.phases.r#match);
        newer(&mut self.phases.map, &other.phases.map);
        newer(&mut self.phases.round, &other.phases.round);
        newer(&mut self.phases.warmup, &other.phases.warmup);
        newer(&mut self.phases.pause, &other.phases.pause);
        let (counts, added) = (&mut self.event_counts, &other.event_counts);
        counts.connectivity = counts.connectivity.saturating_add(added.connectivity);
        counts.lifecycle = counts.lifecycle.saturating_add(added.lifecycle);
        counts.player = counts.player.saturating_add(added.player);
        counts.combat = counts.combat.saturating_add(added.combat);
        counts.mode = counts.mode.saturating_add(added.mode);
        self.first_seen_at_ms = self.first_seen_at_ms.min(other.first_seen_at_ms);
        self.last_event_at_ms = self.last_event_at_ms.max(other.last_event_at_ms);
    }
}

/// Takes the value with the newer sequence. `None` is older than anything.
fn newer<T: Clone + Ord>(known: &mut Option<T>, new: &Option<T>) {
    if new > known {
        known.clone_from(new);
    }
}

/// Change that one event makes to the document of its server.
#[derive(Debug)]
pub(super) struct ServerChange {
    contribution: ServerState,
}

impl ServerChange {
    /// Builds the change of `envelope` to the server `login`, or to the scope if it declares no
    /// login.
    pub(super) fn of(
        scope: &Principal,
        login: Option<&str>,
        envelope: &PixelEnvelope<'_, '_>,
        received_at: Millis,
    ) -> Self {
        let login = login.unwrap_or_default();
        let mut contribution = ServerState::new(scope.as_str(), login, received_at);
        contribution.event_counts = CategoryCounts::of(envelope.category);
        extract::fill(envelope, received_at, &mut contribution);
        Self { contribution }
    }

    fn error(&self, message: String) -> ProjectionError {
        ProjectionError { projection: PROJECTION, entity: self.entity().entity, message }
    }
}

impl Projection for ServerChange {
    fn entity(&self) -> EntityId {
        document_id(&self.contribution.scope, &self.contribution.login)
    }

    fn load(&self, stored: Option<&str>) -> Result<Box<dyn ProjectionState>, ProjectionError> {
        let server = match stored {
            None => ServerState::new(
                &self.contribution.scope,
                &self.contribution.login,
                self.contribution.first_seen_at(),
            ),
            Some(text) => ServerState::parse(text).map_err(|message| self.error(message))?,
        };
        Ok(Box::new(server))
    }

    fn apply(&self, document: &mut dyn ProjectionState) -> Result<(), ProjectionError> {
        let document: &mut dyn Any = document;
        let server = document
            .downcast_mut::<ServerState>()
            .ok_or_else(|| self.error("the document is of another kind".to_owned()))?;
        server.join(&self.contribution);
        Ok(())
    }
}

impl ProjectionState for ServerState {
    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain fields and string keys always serialise")
    }
}

/// Id of the document of one server. Events without a login share the empty one, so that two
/// servers of one scope are never merged.
pub fn document_id(scope: &str, login: &str) -> EntityId {
    EntityId { projection: PROJECTION, entity: scope_prefix(scope) + &escaped(login) }
}

/// Prefix of the entities of all servers of one scope, and of no others.
pub fn scope_prefix(scope: &str) -> String {
    escaped(scope) + "/"
}

/// Percent-encodes `/`, `%` and control characters: unambiguous between slashes, and storable in
/// every ledger.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '/' | '%') || character.is_ascii_control() {
            write!(out, "%{:02X}", u32::from(character)).expect("writing to a string cannot fail");
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_servers_share_a_document() {
        let pairs =
            [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a", ""), ("", "a"), ("a", "b\0")];
        let mut entities: Vec<_> =
            pairs.iter().map(|(scope, login)| document_id(scope, login).entity).collect();
        assert_eq!(entities[0], "a/b%2Fc");
        assert_eq!(entities[5], "a/b%00");
        entities.sort();
        entities.dedup();
        assert_eq!(entities.len(), pairs.len());
    }

    #[test]
    fn a_document_of_another_format_is_left_alone() {
        let change = ServerChange { contribution: ServerState::new("arena", "login", Millis(5)) };
        let newer = change.contribution.to_text().replace("\"format\":1", "\"format\":2");
        let Err(error) = change.load(Some(&newer)) else { panic!("format 2 must not load") };
        assert_eq!(
            error.to_string(),
            "projection pixel.server of arena/login failed: document has format 2, this gate supports 1"
        );
        assert!(change.load(Some("not json")).is_err());
        assert!(change.load(Some(&change.contribution.to_text())).is_ok());
    }

    /// Documents are stored: changing this text requires a new format.
    #[test]
    fn the_stored_form_is_fixed() {
        let document = r#"{"format":1,"scope":"s","login":"l","name":{"sequence":2,"value":"n"},"registration":{"sequence":1,"value":{"source_time":7,"received_at_ms":7000}},"current_map":{"sequence":2,"value":null},"players":{"sequence":2,"value":{"active":1,"total":null,"spectators":0}},"queue_depth":{"sequence":2,"value":0},"phases":{"match":{"sequence":3,"value":{"source_time":9,"state":"begin"}}},"event_counts":{"connectivity":2,"lifecycle":1,"player":0,"combat":0,"mode":0},"first_seen_at_ms":7000,"last_event_at_ms":9000}"#;
        let server = ServerState::parse(document).unwrap();
        assert_eq!(server.to_text(), document);
    }
}
