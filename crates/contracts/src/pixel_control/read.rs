//! Read models: a stored server document as returned to operators and dashboards.

use admit_core::Millis;
use admit_core::json::{Object, Value};

use super::server_state::{
    GameMap, LastContact, Phase, PhaseState, Phases, Players, SequencedValue, ServerState,
};

/// Seconds after the last plugin event during which a server counts as online. The plugin sends one
/// every 15 or 120 seconds, depending on its version.
pub const ONLINE_SECONDS_MAX: i64 = 360;

/// Unreadable stored document: damaged, or written by a newer gate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("server document cannot be read: {message}")]
pub struct DocumentError {
    /// Parse error.
    pub message: String,
}

/// List entry of a server.
///
/// # Errors
/// If the document cannot be parsed.
pub fn list_item(document: &str, now: Millis) -> Result<Object<'static>, DocumentError> {
    let server = parse(document)?;
    let mut item = identity(&server, now);
    item.push("last_event_at", time(server.last_event_at()));
    item.push("last_heartbeat_at", server.heartbeat.map(|field| time(field.value.received_at())));
    item.push("current_map", server.current_map.and_then(|field| field.value).map(current_map));
    item.push("players", server.players.map(|field| players(&field.value)));
    Ok(item)
}

/// Full view of a server.
///
/// # Errors
/// If the document cannot be parsed.
pub fn server(document: &str, now: Millis) -> Result<Object<'static>, DocumentError> {
    let server = parse(document)?;
    let mut one = identity(&server, now);
    one.push("first_seen_at", time(server.first_seen_at()));
    one.push("last_event_at", time(server.last_event_at()));
    one.push("last_registration", server.registration.as_ref().map(contact));
    one.push("last_heartbeat", server.heartbeat.as_ref().map(contact));
    one.push("queue_depth", server.queue_depth.map(|field| field.value));
    one.push("current_map", server.current_map.and_then(|field| field.value).map(current_map));
    one.push("players", server.players.map(|field| players(&field.value)));
    let Phases { r#match, map, round, warmup, pause } = server.phases;
    let phases =
        [("match", r#match), ("map", map), ("round", round), ("warmup", warmup), ("pause", pause)];
    for (name, field) in phases {
        one.push(name, field.map(|field| phase(name, &field)));
    }
    let counts = server.event_counts;
    let counts = [
        ("connectivity", counts.connectivity.into()),
        ("lifecycle", counts.lifecycle.into()),
        ("player", counts.player.into()),
        ("combat", counts.combat.into()),
        ("mode", counts.mode.into()),
    ];
    one.push("event_counts", Object::from_iter(counts));
    Ok(one)
}

fn parse(document: &str) -> Result<ServerState, DocumentError> {
    ServerState::parse(document).map_err(|message| DocumentError { message })
}

/// Identity and liveness. The login is `null` for events that declare none.
fn identity(server: &ServerState, now: Millis) -> Object<'static> {
    let login = (!server.login.is_empty()).then(|| server.login.clone());
    let text = |field: &Option<SequencedValue<String>>| {
        Value::from(field.as_ref().map(|t| t.value.clone()))
    };
    Object::from_iter([
        ("scope", server.scope.clone().into()),
        ("login", login.into()),
        ("online", is_online(server, now).into()),
        ("name", text(&server.name)),
        ("game_mode", text(&server.game_mode)),
        ("title_id", text(&server.title_id)),
        ("plugin_version", text(&server.plugin_version)),
    ])
}

/// Whether the newest connectivity event, by sequence, is recent.
fn is_online(server: &ServerState, now: Millis) -> bool {
    server.registration.as_ref().max(server.heartbeat.as_ref()).is_some_and(|newest| {
        now.0.saturating_sub(happened_at(&newest.value).0) <= ONLINE_SECONDS_MAX * 1000
    })
}

/// Time of a contact: the event's own time if plausible. A late event keeps its own time; one dated
/// in the future, or from a server without a clock, gets its arrival time.
fn happened_at(contact: &LastContact) -> Millis {
    let received_at = contact.received_at();
    let source_time =
        i64::try_from(contact.source_time).ok().and_then(|time| time.checked_mul(1000));
    match source_time {
        Some(source_time) if (1..received_at.0).contains(&source_time) => Millis(source_time),
        _ => received_at,
    }
}

fn contact(field: &SequencedValue<LastContact>) -> Object<'static> {
    Object::from_iter([
        ("received_at", time(field.value.received_at())),
        ("source_time", field.value.source_time.into()),
        ("sequence", field.sequence.into()),
    ])
}

fn current_map(map: GameMap) -> Object<'static> {
    Object::from_iter([
        ("uid", map.uid.into()),
        ("name", map.name.into()),
        ("file", map.file.into()),
        ("environment", map.environment.into()),
    ])
}

fn players(players: &Players) -> Object<'static> {
    Object::from_iter([
        ("active", players.active.into()),
        ("total", players.total.into()),
        ("spectators", players.spectators.into()),
    ])
}

fn phase(name: &str, field: &SequencedValue<Phase>) -> Object<'static> {
    let state = match field.value.state {
        PhaseState::Begin => "begin",
        PhaseState::End => "end",
        PhaseState::Start => "start",
        PhaseState::Status => "status",
    };
    let seconds = i64::try_from(field.value.source_time).unwrap_or(i64::MAX);
    Object::from_iter([
        ("variant", format!("{name}.{state}").into()),
        ("state", state.into()),
        ("since", Millis(seconds.saturating_mul(1000)).to_rfc3339_seconds().into()),
        ("source_time", field.value.source_time.into()),
        ("sequence", field.sequence.into()),
    ])
}

fn time(at: Millis) -> Value<'static> {
    at.to_rfc3339_millis().into()
}
