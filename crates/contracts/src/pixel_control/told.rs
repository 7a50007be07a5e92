//! What one event says about the server it came from.
//!
//! Connectivity and lifecycle events carry a context with the server's identity, its map and its
//! player counts, in their metadata and often again in their payload; metadata is read first. The
//! other categories tell only that something happened, and which plugin version saw it.

use admit_core::Millis;
use admit_core::json::Value;

use super::php;
use super::server::{Contact, GameMap, Phase, Players, Server, State, Told};
use super::shape::Envelope;
use super::words::Category;
use crate::text::bounded;

/// Longest text a document keeps, in characters; a server's name is for people to read.
const TEXT_CHARS_MAX: usize = 256;

/// Longest login, in bytes. Anything longer names no server.
const LOGIN_BYTES_MAX: usize = 256;

/// The server login an event declares.
pub(super) fn login<'v>(
    metadata: Option<&'v Value<'_>>,
    payload: Option<&'v Value<'_>>,
) -> Option<&'v str> {
    [metadata, payload]
        .into_iter()
        .flatten()
        .filter_map(|part| php::find(part, &["context", "server", "login"])?.as_str())
        .find(|login| !login.is_empty() && login.len() <= LOGIN_BYTES_MAX)
}

/// Writes what `envelope` says into `server`, which knows nothing yet.
pub(super) fn read(envelope: &Envelope<'_, '_>, received_at: Millis, server: &mut Server) {
    let event = Reading { envelope };
    server.name = event.text(&["context", "server", "name"]);
    server.game_mode = event.text(&["context", "server", "game_mode"]);
    server.title_id = event.text(&["context", "server", "title_id"]);
    server.plugin_version =
        event.text(&["plugin_version"]).or_else(|| event.text(&["plugin", "version"]));
    server.current_map = event.current_map().map(|map| event.told(map));
    server.players = event.players().map(|players| event.told(players));
    server.queue_depth = event.queue_depth().map(|depth| event.told(depth));

    let source_time = envelope.source_time;
    let contact = event.told(Contact { source_time, received_at_ms: received_at.0 });
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
        *part = Some(event.told(Phase { source_time, state }));
    }
}

/// The lifecycle variants that say something: phase and state.
const VARIANTS: [(&str, &str, State); 12] = [
    ("match.begin", "match", State::Begin),
    ("match.end", "match", State::End),
    ("map.begin", "map", State::Begin),
    ("map.end", "map", State::End),
    ("round.begin", "round", State::Begin),
    ("round.end", "round", State::End),
    ("warmup.start", "warmup", State::Start),
    ("warmup.end", "warmup", State::End),
    ("warmup.status", "warmup", State::Status),
    ("pause.start", "pause", State::Start),
    ("pause.end", "pause", State::End),
    ("pause.status", "pause", State::Status),
];

struct Reading<'e, 'v, 'a> {
    envelope: &'e Envelope<'v, 'a>,
}

impl<'v, 'a> Reading<'_, 'v, 'a> {
    fn told<T>(&self, value: T) -> Told<T> {
        Told { sequence: self.envelope.sequence, value }
    }

    /// The values under `path`, first of the metadata, then of the payload.
    fn found(&self, path: &[&str]) -> impl Iterator<Item = &'v Value<'a>> {
        [self.envelope.metadata, self.envelope.payload]
            .into_iter()
            .filter_map(move |part| php::find(part, path))
    }

    fn text(&self, path: &[&str]) -> Option<Told<String>> {
        let text = self.found(path).filter_map(Value::as_str).find(|text| !text.is_empty())?;
        Some(self.told(bounded(text, TEXT_CHARS_MAX)))
    }

    /// The map, `Some(None)` when the event says that none is loaded, `None` when it says nothing.
    /// A heartbeat that leaves the map out says that none is loaded.
    fn current_map(&self) -> Option<Option<GameMap>> {
        let mut said = false;
        for value in self.found(&["context", "server", "current_map"]) {
            if let Some(map) = game_map(value) {
                return Some(Some(map));
            }
            said |= value.is_null() || php::object(value).is_some();
        }
        let left_out = || {
            self.is_connectivity("plugin_heartbeat")
                && self.found(&["context", "server"]).any(|server| php::object(server).is_some())
        };
        (said || left_out()).then_some(None)
    }

    fn players(&self) -> Option<Players> {
        self.found(&["context", "players"]).find_map(|value| {
            let count = |name| php::find(value, &[name]).and_then(php::whole);
            let players = Players {
                active: count("active"),
                total: count("total"),
                spectators: count("spectators"),
            };
            let counts = [players.active, players.total, players.spectators];
            counts.iter().any(Option::is_some).then_some(players)
        })
    }

    /// How many events wait in the plugin; newer plugins tell more about their queue.
    fn queue_depth(&self) -> Option<u64> {
        [&["queue_depth"][..], &["queue", "depth"][..]]
            .into_iter()
            .find_map(|path| self.found(path).find_map(php::whole))
    }

    /// Whether this is the connectivity event called `kind`, by its payload or else by its name.
    fn is_connectivity(&self, kind: &str) -> bool {
        self.envelope.category == Category::Connectivity
            && match php::find(self.envelope.payload, &["type"]).and_then(Value::as_str) {
                Some(said) => said == kind,
                None => self.envelope.event_name.ends_with(kind),
            }
    }

    fn variant(&self) -> Option<(&'static str, State)> {
        if self.envelope.category != Category::Lifecycle {
            return None;
        }
        let said = php::find(self.envelope.payload, &["variant"])
            .or_else(|| php::find(self.envelope.metadata, &["lifecycle_variant"]))?
            .as_str()?;
        let known = VARIANTS.iter().find(|(variant, _, _)| *variant == said);
        known.map(|(_, phase, state)| (*phase, *state))
    }
}

/// A map with at least one thing known of it.
fn game_map(value: &Value<'_>) -> Option<GameMap> {
    let text = |name| {
        let text = php::find(value, &[name])?.as_str()?;
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
