//! The read models: a stored server document as people and dashboards see it.

use admit_core::Millis;
use admit_core::json::{Object, Value};

use super::server::{Contact, GameMap, Phase, Phases, Players, Server, State, Told};

/// A server counts as online for so many seconds after the plugin last made itself heard. The
/// plugin does so every 15 or 120 seconds, by its version.
pub const ONLINE_SECONDS_MAX: i64 = 360;

/// A stored document that cannot be read: a damaged one, or one of a newer gate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("server document cannot be read: {message}")]
pub struct DocumentError {
    /// What is wrong with it.
    pub message: String,
}

/// A server in a list.
///
/// # Errors
/// When the document cannot be read.
pub fn list_item(document: &str, now: Millis) -> Result<Object<'static>, DocumentError> {
    let server = parse(document)?;
    let mut item = identity(&server, now);
    item.push("last_event_at", time(server.last_event_at()));
    item.push("last_heartbeat_at", server.heartbeat.map(|told| time(told.value.received_at())));
    item.push("current_map", server.current_map.and_then(|told| told.value).map(current_map));
    item.push("players", server.players.map(|told| players(&told.value)));
    Ok(item)
}

/// One server with everything that is known of it.
///
/// # Errors
/// When the document cannot be read.
pub fn server(document: &str, now: Millis) -> Result<Object<'static>, DocumentError> {
    let server = parse(document)?;
    let mut one = identity(&server, now);
    one.push("first_seen_at", time(server.first_seen_at()));
    one.push("last_event_at", time(server.last_event_at()));
    one.push("last_registration", server.registration.as_ref().map(contact));
    one.push("last_heartbeat", server.heartbeat.as_ref().map(contact));
    one.push("queue_depth", server.queue_depth.map(|told| told.value));
    one.push("current_map", server.current_map.and_then(|told| told.value).map(current_map));
    one.push("players", server.players.map(|told| players(&told.value)));
    let Phases { r#match, map, round, warmup, pause } = server.phases;
    let phases =
        [("match", r#match), ("map", map), ("round", round), ("warmup", warmup), ("pause", pause)];
    for (name, told) in phases {
        one.push(name, told.map(|told| phase(name, &told)));
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

fn parse(document: &str) -> Result<Server, DocumentError> {
    Server::parse(document).map_err(|message| DocumentError { message })
}

/// Who it is and whether it lives. The login is `null` for events that declare none.
fn identity(server: &Server, now: Millis) -> Object<'static> {
    let login = (!server.login.is_empty()).then(|| server.login.clone());
    let text = |told: &Option<Told<String>>| Value::from(told.as_ref().map(|t| t.value.clone()));
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

/// Whether the newest connectivity event, by sequence, happened lately.
fn is_online(server: &Server, now: Millis) -> bool {
    server.registration.as_ref().max(server.heartbeat.as_ref()).is_some_and(|newest| {
        now.0.saturating_sub(happened_at(&newest.value).0) <= ONLINE_SECONDS_MAX * 1000
    })
}

/// The time of a contact: the event's own where that is plausible. An event that came late is as old as
/// it says; one of the future, or of a server without a clock, happened when it came.
fn happened_at(contact: &Contact) -> Millis {
    let received_at = contact.received_at();
    let said = i64::try_from(contact.source_time).ok().and_then(|time| time.checked_mul(1000));
    match said {
        Some(said) if (1..received_at.0).contains(&said) => Millis(said),
        _ => received_at,
    }
}

fn contact(told: &Told<Contact>) -> Object<'static> {
    Object::from_iter([
        ("received_at", time(told.value.received_at())),
        ("source_time", told.value.source_time.into()),
        ("sequence", told.sequence.into()),
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

fn phase(name: &str, told: &Told<Phase>) -> Object<'static> {
    let state = match told.value.state {
        State::Begin => "begin",
        State::End => "end",
        State::Start => "start",
        State::Status => "status",
    };
    let seconds = i64::try_from(told.value.source_time).unwrap_or(i64::MAX);
    Object::from_iter([
        ("variant", format!("{name}.{state}").into()),
        ("state", state.into()),
        ("since", Millis(seconds.saturating_mul(1000)).to_rfc3339_seconds().into()),
        ("source_time", told.value.source_time.into()),
        ("sequence", told.sequence.into()),
    ])
}

fn time(at: Millis) -> Value<'static> {
    at.to_rfc3339_millis().into()
}
