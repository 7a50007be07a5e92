//! Extracts the state of a game server from one of its events.
//!
//! Connectivity and lifecycle events carry a context with the server's identity, its map and its
//! player counts, in their metadata and often again in their payload; metadata takes precedence.
//! Events of other categories contribute only their count and the plugin version.

use admit_core::Millis;
use admit_core::json::Value;

use super::enums::Category;
use super::envelope::PixelEnvelope;
use super::php;
use super::server_state::{
    GameMap, LastContact, Phase, PhaseState, Players, SequencedValue, ServerState,
};
use crate::text::bounded;

/// Longest text stored in a document, in characters; a server's name is for display only.
const TEXT_CHARS_MAX: usize = 256;

/// Longest login, in bytes. A longer one counts as none.
const LOGIN_BYTES_MAX: usize = 256;

/// Returns the server login that an event declares.
pub(super) fn login<'v>(
    metadata: Option<&'v Value<'_>>,
    payload: Option<&'v Value<'_>>,
) -> Option<&'v str> {
    [metadata, payload]
        .into_iter()
        .flatten()
        .filter_map(|part| php::value_at(part, &["context", "server", "login"])?.as_str())
        .find(|login| !login.is_empty() && login.len() <= LOGIN_BYTES_MAX)
}

/// Writes the contribution of `envelope` into the empty document `server`.
pub(super) fn fill(
    envelope: &PixelEnvelope<'_, '_>,
    received_at: Millis,
    server: &mut ServerState,
) {
    let event = EventReader { envelope };
    server.name = event.text(&["context", "server", "name"]);
    server.game_mode = event.text(&["context", "server", "game_mode"]);
    server.title_id = event.text(&["context", "server", "title_id"]);
    server.plugin_version =
        event.text(&["plugin_version"]).or_else(|| event.text(&["plugin", "version"]));
    server.current_map = event.current_map().map(|map| event.sequenced(map));
    server.players = event.players().map(|players| event.sequenced(players));
    server.queue_depth = event.queue_depth().map(|depth| event.sequenced(depth));

    let source_time = envelope.source_time;
    let contact = event.sequenced(LastContact { source_time, received_at_ms: received_at.0 });
    if event.is_connectivity("plugin_registration") {
        server.registration = Some(contact);
    } else if event.is_connectivity("plugin_heartbeat") {
        server.heartbeat = Some(contact);
    }

    if let Some((phase, state)) = event.variant() {
        let part = match phase {
            "match" => &mut server.phases.r#match,
            "map" => &mut server.phases.map,
            "round" => &mut server.phases.round,
            "warmup" => &mut server.phases.warmup,
            _ => &mut server.phases.pause,
        };
        *part = Some(event.sequenced(Phase { source_time, state }));
    }
}

/// Known lifecycle variants: phase and state.
const VARIANTS: [(&str, &str, PhaseState); 12] = [
    ("match.begin", "match", PhaseState::Begin),
    ("match.end", "match", PhaseState::End),
    ("map.begin", "map", PhaseState::Begin),
    ("map.end", "map", PhaseState::End),
    ("round.begin", "round", PhaseState::Begin),
    ("round.end", "round", PhaseState::End),
    ("warmup.start", "warmup", PhaseState::Start),
    ("warmup.end", "warmup", PhaseState::End),
    ("warmup.status", "warmup", PhaseState::Status),
    ("pause.start", "pause", PhaseState::Start),
    ("pause.end", "pause", PhaseState::End),
    ("pause.status", "pause", PhaseState::Status),
];

struct EventReader<'e, 'v, 'a> {
    envelope: &'e PixelEnvelope<'v, 'a>,
}

impl<'v, 'a> EventReader<'_, 'v, 'a> {
    fn sequenced<T>(&self, value: T) -> SequencedValue<T> {
        SequencedValue { sequence: self.envelope.sequence, value }
    }

    /// Values at `path`, first in the metadata, then in the payload.
    fn values_at(&self, path: &[&str]) -> impl Iterator<Item = &'v Value<'a>> {
        [self.envelope.metadata, self.envelope.payload]
            .into_iter()
            .filter_map(move |part| php::value_at(part, path))
    }

    fn text(&self, path: &[&str]) -> Option<SequencedValue<String>> {
        let text = self.values_at(path).filter_map(Value::as_str).find(|text| !text.is_empty())?;
        Some(self.sequenced(bounded(text, TEXT_CHARS_MAX)))
    }

    /// Map: `Some(None)` if the event reports that none is loaded, `None` if it does not report a
    /// map. A heartbeat without a map reports that none is loaded.
    fn current_map(&self) -> Option<Option<GameMap>> {
        let mut is_reported = false;
        for value in self.values_at(&["context", "server", "current_map"]) {
            if let Some(map) = game_map(value) {
                return Some(Some(map));
            }
            is_reported |= value.is_null() || php::object(value).is_some();
        }
        let left_out = || {
            self.is_connectivity("plugin_heartbeat")
                && self
                    .values_at(&["context", "server"])
                    .any(|server| php::object(server).is_some())
        };
        (is_reported || left_out()).then_some(None)
    }

    fn players(&self) -> Option<Players> {
        self.values_at(&["context", "players"]).find_map(|value| {
            let count = |name| php::value_at(value, &[name]).and_then(php::whole);
            let players = Players {
                active: count("active"),
                total: count("total"),
                spectators: count("spectators"),
            };
            let counts = [players.active, players.total, players.spectators];
            counts.iter().any(Option::is_some).then_some(players)
        })
    }

    /// Length of the plugin's queue; newer plugins send an object with more details.
    fn queue_depth(&self) -> Option<u64> {
        [&["queue_depth"][..], &["queue", "depth"][..]]
            .into_iter()
            .find_map(|path| self.values_at(path).find_map(php::whole))
    }

    /// Whether this is the connectivity event `kind`, by its payload or else by its name.
    fn is_connectivity(&self, kind: &str) -> bool {
        self.envelope.category == Category::Connectivity
            && match php::value_at(self.envelope.payload, &["type"]).and_then(Value::as_str) {
                Some(given) => given == kind,
                None => self.envelope.event_name.ends_with(kind),
            }
    }

    fn variant(&self) -> Option<(&'static str, PhaseState)> {
        if self.envelope.category != Category::Lifecycle {
            return None;
        }
        let variant_name = php::value_at(self.envelope.payload, &["variant"])
            .or_else(|| php::value_at(self.envelope.metadata, &["lifecycle_variant"]))?
            .as_str()?;
        let known = VARIANTS.iter().find(|(variant, _, _)| *variant == variant_name);
        known.map(|(_, phase, state)| (*phase, *state))
    }
}

/// Parses a map; `None` if all its fields are missing.
fn game_map(value: &Value<'_>) -> Option<GameMap> {
    let text = |name| {
        let text = php::value_at(value, &[name])?.as_str()?;
        (!text.is_empty()).then(|| bounded(text, TEXT_CHARS_MAX))
    };
    let map = GameMap {
        uid: text("uid"),
        name: text("name"),
        file: text("file"),
        environment: text("environment"),
    };
    (map != GameMap::default()).then_some(map)
}
