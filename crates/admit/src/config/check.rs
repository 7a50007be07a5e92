//! Cross-field validation of the config.

use std::error::Error;
use std::fs;
use std::path::Path;

use admit_core::Door;
use admit_gate::{DoorPath, Principals, check_doors};
use tracing_subscriber::EnvFilter;

use super::{Config, ConfigError, EventsConfig, PrincipalEntry, load_tls};

/// Minimum length of a key, in characters.
pub(crate) const KEY_CHARS_MIN: usize = 16;

/// Names of the doors in this config.
pub(crate) fn door_names(config: &Config) -> Vec<String> {
    let streams = config.doors.events.iter().map(EventsConfig::door);
    ["pixel-control", "skyra", "intents", "ingestion-gate", "rounds"]
        .map(str::to_owned)
        .into_iter()
        .chain(streams)
        .collect()
}

/// Validates the config and loads the keys of its principals. Relative key files start at `base`.
///
/// Error messages contain advice, and never a secret.
pub(crate) fn check(config: &Config, base: &Path) -> Result<Principals, ConfigError> {
    if config.data.as_os_str().is_empty() {
        return Err(ConfigError::Rule("data must name a folder".to_owned()));
    }
    config.ledger.check(base)?;
    check_log_level(&config.log.level)?;
    let (pixel, intents) = (&config.doors.pixel_control, &config.doors.intents);
    let ingestion = &config.doors.ingestion_gate;
    check_door("pixel-control", &pixel.path, &pixel.api_key_header)?;
    check_door("intents", &intents.path, &intents.api_key_header)?;
    check_door("ingestion-gate", &ingestion.path, &ingestion.api_key_header)?;
    intents.check(base)?;
    let skyra = &config.doors.skyra;
    check_door("skyra", &skyra.path, &skyra.api_key_header)?;
    config.bus.check()?;
    config.check_artifacts()?;
    ingestion.check(base, config.principals.is_empty())?;
    let rounds = &config.doors.rounds;
    check_door("rounds", &rounds.path, &rounds.api_key_header)?;
    rounds.check()?;
    config.stream.settings(base)?;
    config.runner_settings(base)?;
    check_streams(config, base)?;
    check_door_paths(config)?;
    config.limits.check().map_err(|error| ConfigError::Rule(error.to_string()))?;
    load_tls(&config.tls, base)?;
    config.edge.check(base)?;
    let principals = load_principals(config, base)?;
    check_webhook_principals(config, &principals)?;
    check_listen_address(config, &principals)?;
    Ok(principals)
}

/// Warnings about settings that should be changed, for the log and for `admit config check`.
pub(crate) fn warnings(config: &Config, principals: &Principals) -> Vec<String> {
    let names: Vec<&str> = principals.consumers_by_read().collect();
    let consumers = (!names.is_empty()).then(|| {
        format!(
            "no principal has the role \"consume\", so principals with the role \"read\" may still claim \
             and settle entries ({}); give consumers the role \"consume\"",
            names.join(", ")
        )
    });
    consumers.into_iter().chain(config.ledger.warning()).collect()
}

fn rule(message: String) -> Result<(), ConfigError> {
    Err(ConfigError::Rule(message))
}

/// Checks that every directive is a level or `TARGET=LEVEL`. The filter itself takes any other word for a
/// target and then logs nothing.
fn check_log_level(level: &str) -> Result<(), ConfigError> {
    const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|known| known.eq_ignore_ascii_case(word));
    let is_directive = |directive: &str| match directive.rsplit_once('=') {
        Some((target, word)) => {
            !target.is_empty() && (is_level(word) || word.eq_ignore_ascii_case("off"))
        }
        None => is_level(directive),
    };
    let is_known = level.split(',').all(is_directive);
    match EnvFilter::builder().parse(level) {
        Ok(_) if is_known => Ok(()),
        Ok(_) | Err(_) => rule(format!(
            "log.level {level:?} is invalid; use error, warn, info, debug or trace, or \
             directives such as info,admit_gate=debug"
        )),
    }
}

fn check_door(name: &str, path: &str, header: &str) -> Result<(), ConfigError> {
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#{}".contains(&byte));
    if !plain || !path.starts_with('/') || path.ends_with('/') {
        return rule(format!(
            "doors.{name}.path {path:?} must start with /, not end with /, and contain no query or space"
        ));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if header.is_empty() || !header.bytes().all(is_token) {
        return rule(format!("doors.{name}.api_key_header {header:?} is not a header name"));
    }
    Ok(())
}

/// Checks every stream, including disabled ones.
fn check_streams(config: &Config, base: &Path) -> Result<(), ConfigError> {
    let streams = &config.doors.events;
    for (index, stream) in streams.iter().enumerate() {
        stream.contract(base, config.limits.json_depth_max)?;
        check_door("events", &stream.path(), &stream.api_key_header)?;
        if streams[..index].iter().any(|earlier| earlier.name == stream.name) {
            return rule(format!("doors.events {:?} is configured twice", stream.name));
        }
    }
    Ok(())
}

/// Checks that the paths of enabled doors overlap neither each other nor the gate's own routes.
fn check_door_paths(config: &Config) -> Result<(), ConfigError> {
    let doors = &config.doors;
    let (pixel, skyra, intents) = (&doors.pixel_control, &doors.skyra, &doors.intents);
    let (ingestion, rounds) = (&doors.ingestion_gate, &doors.rounds);
    let fixed = [
        (pixel.enabled, "pixel-control", &pixel.path, false),
        (skyra.enabled, "skyra", &skyra.path, false),
        (intents.enabled, "intents", &intents.path, false),
        (ingestion.enabled, "ingestion-gate", &ingestion.path, false),
        // Sources post to paths below this one.
        (rounds.enabled, "rounds", &rounds.path, true),
    ];
    let fixed = fixed.into_iter().filter(|(is_enabled, ..)| *is_enabled);
    let fixed = fixed.map(|(_, name, path, is_tree)| DoorPath {
        door: Door::new(name),
        path: path.clone(),
        is_tree,
    });
    let streams = doors.events.iter().filter(|stream| stream.enabled);
    let streams = streams.map(|stream| DoorPath {
        door: Door::new(&stream.door()),
        path: stream.path(),
        is_tree: false,
    });
    let doors: Vec<DoorPath> = fixed.chain(streams).collect();
    check_doors(&doors).map_err(|error| ConfigError::Rule(error.to_string()))
}

/// Checks that every `webhook_principal` is a principal.
fn check_webhook_principals(config: &Config, principals: &Principals) -> Result<(), ConfigError> {
    let named = |stream: &&EventsConfig| !stream.webhook_principal.is_empty();
    match config.doors.events.iter().filter(named).find(|s| !principals.has(&s.webhook_principal)) {
        None => Ok(()),
        Some(stream) => rule(format!(
            "doors.events {:?}: webhook_principal {:?} is not one of the principals",
            stream.name, stream.webhook_principal
        )),
    }
}

fn load_principals(config: &Config, base: &Path) -> Result<Principals, ConfigError> {
    let configs: Vec<_> = config.principals.iter().map(PrincipalEntry::for_gate).collect();
    let ingestion = &config.doors.ingestion_gate;
    let token_door = (ingestion.enabled && ingestion.takes_tokens()).then_some("ingestion-gate");
    let principals = Principals::load_with_tokens(&configs, base, token_door).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        ConfigError::Rule(format!("{error}{cause}"))
    })?;
    let doors = door_names(config);
    let is_unknown = |door: &str| !doors.iter().any(|known| known == door);
    if let Some((name, door)) = principals.doors_named().find(|(_, door)| is_unknown(door)) {
        let known = doors.join(", ");
        rule(format!("principal {name}: unknown door {door:?}; this gate has: {known}"))?;
    }
    let mut all = config.principals.iter().chain(&config.edge.producers);
    all.try_for_each(|principal| check_key_length(principal, base))?;
    Ok(principals)
}

/// Checks the length of keys, against guessing. The length of a hashed key is unknown.
fn check_key_length(principal: &PrincipalEntry, base: &Path) -> Result<(), ConfigError> {
    let is_short = |spec: &str| {
        let key = match spec.strip_prefix("file:") {
            // Unreadable files were already reported by `load_principals`.
            Some(path) => fs::read_to_string(base.join(path)).unwrap_or_default(),
            None => spec.to_owned(),
        };
        let key = key.trim();
        !key.starts_with("sha256:") && key.len() < KEY_CHARS_MIN
    };
    if principal.keys.iter().any(is_short) {
        return rule(format!(
            "principal {}: a key has fewer than {KEY_CHARS_MIN} characters, so it could be guessed; \
             make one with `admit keys new`",
            principal.name
        ));
    }
    Ok(())
}

/// Checks that a gate without principals listens on loopback only.
fn check_listen_address(config: &Config, principals: &Principals) -> Result<(), ConfigError> {
    if !principals.is_open() || config.listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    rule(format!(
        "listen {} can be reached from other machines, but no principal is configured\n  \
         give each producer a key in the config:\n    \
         [[principals]]\n    \
         name = \"arena-1\"\n    \
         keys = [\"file:arena-1.key\"]\n  \
         or stay on this machine: --listen 127.0.0.1:{}",
        config.listen,
        config.listen.port()
    ))
}
