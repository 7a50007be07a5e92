//! Rules that no single value can break: what makes a config a safe gate.

use std::error::Error;
use std::fs;
use std::path::Path;

use admit_core::Door;
use admit_gate::{Place, Principals, check_doors};
use tracing_subscriber::EnvFilter;

use super::{Config, ConfigError, EventsConfig, PrincipalConfig, load_tls};

/// The shortest key, in characters.
pub(crate) const KEY_CHARS_MIN: usize = 16;

/// The doors this gate has, by their names in the ledger.
pub(crate) fn door_names(config: &Config) -> Vec<String> {
    let streams = config.doors.events.iter().map(EventsConfig::door);
    ["pixel-control", "skyra", "intents", "ingestion-gate", "rounds"]
        .map(str::to_owned)
        .into_iter()
        .chain(streams)
        .collect()
}

/// Checks that `config` makes a safe gate, and reads its keys. Relative key files start at `base`.
///
/// What is wrong is said with what to do about it, and never with a secret.
pub(crate) fn check(config: &Config, base: &Path) -> Result<Principals, ConfigError> {
    if config.data.as_os_str().is_empty() {
        return Err(ConfigError::Rule("data must name a folder".to_owned()));
    }
    config.ledger.check(base)?;
    log_level(&config.log.level)?;
    let (pixel, intents) = (&config.doors.pixel_control, &config.doors.intents);
    let ingestion = &config.doors.ingestion_gate;
    door("pixel-control", &pixel.path, &pixel.api_key_header)?;
    door("intents", &intents.path, &intents.api_key_header)?;
    door("ingestion-gate", &ingestion.path, &ingestion.api_key_header)?;
    intents.check(base)?;
    let skyra = &config.doors.skyra;
    door("skyra", &skyra.path, &skyra.api_key_header)?;
    config.bus.check()?;
    config.check_artifacts()?;
    ingestion.check(base, config.principals.is_empty())?;
    let rounds = &config.doors.rounds;
    door("rounds", &rounds.path, &rounds.api_key_header)?;
    rounds.check()?;
    config.stream.settings(base)?;
    config.runner_settings(base)?;
    streams(config, base)?;
    places(config)?;
    config.limits.check().map_err(|error| ConfigError::Rule(error.to_string()))?;
    load_tls(&config.tls, base)?;
    config.edge.check(base)?;
    let principals = principals(config, base)?;
    vouched(config, &principals)?;
    reach(config, &principals)?;
    Ok(principals)
}

/// What works today and should be changed, for the log of a start and for `admit config check`.
pub(crate) fn warnings(config: &Config, principals: &Principals) -> Vec<String> {
    let names: Vec<&str> = principals.consumers_by_read().collect();
    let consumers = (!names.is_empty()).then(|| {
        format!(
            "no principal has the role \"consume\", so the role \"read\" still claims and settles \
             entries ({}); give the role \"consume\" to those that claim",
            names.join(", ")
        )
    });
    consumers.into_iter().chain(config.ledger.warning()).collect()
}

fn rule(message: String) -> Result<(), ConfigError> {
    Err(ConfigError::Rule(message))
}

/// Checks that every directive is a level, or a target with one. The filter itself would take any
/// other word for a target, and then say nothing at all.
fn log_level(level: &str) -> Result<(), ConfigError> {
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
            "log.level {level:?} is not a level; use error, warn, info, debug or trace, or \
             directives such as info,admit_gate=debug"
        )),
    }
}

fn door(name: &str, path: &str, header: &str) -> Result<(), ConfigError> {
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#{}".contains(&byte));
    if !plain || !path.starts_with('/') || path.ends_with('/') {
        return rule(format!(
            "doors.{name}.path {path:?} must start with / and have no query, space or end slash"
        ));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if header.is_empty() || !header.bytes().all(is_token) {
        return rule(format!("doors.{name}.api_key_header {header:?} is not a header name"));
    }
    Ok(())
}

/// Checks every stream, also those that are not enabled.
fn streams(config: &Config, base: &Path) -> Result<(), ConfigError> {
    let streams = &config.doors.events;
    for (place, stream) in streams.iter().enumerate() {
        stream.contract(base, config.limits.json_depth_max)?;
        door("events", &stream.path(), &stream.api_key_header)?;
        if streams[..place].iter().any(|earlier| earlier.name == stream.name) {
            return rule(format!("doors.events {:?} is configured twice", stream.name));
        }
    }
    Ok(())
}

/// Checks that the doors which are there fit beside each other and beside the gate's own routes.
fn places(config: &Config) -> Result<(), ConfigError> {
    let doors = &config.doors;
    let (pixel, skyra, intents) = (&doors.pixel_control, &doors.skyra, &doors.intents);
    let (ingestion, rounds) = (&doors.ingestion_gate, &doors.rounds);
    let fixed = [
        (pixel.enabled, "pixel-control", &pixel.path, false),
        (skyra.enabled, "skyra", &skyra.path, false),
        (intents.enabled, "intents", &intents.path, false),
        (ingestion.enabled, "ingestion-gate", &ingestion.path, false),
        // Each source posts below the path.
        (rounds.enabled, "rounds", &rounds.path, true),
    ];
    let fixed = fixed.into_iter().filter(|(is_there, ..)| *is_there);
    let fixed = fixed.map(|(_, name, path, is_tree)| Place {
        door: Door::new(name),
        path: path.clone(),
        is_tree,
    });
    let streams = doors.events.iter().filter(|stream| stream.enabled);
    let streams = streams.map(|stream| Place {
        door: Door::new(&stream.door()),
        path: stream.path(),
        is_tree: false,
    });
    let doors: Vec<Place> = fixed.chain(streams).collect();
    check_doors(&doors).map_err(|error| ConfigError::Rule(error.to_string()))
}

/// Whom a signature stands for must be somebody.
fn vouched(config: &Config, principals: &Principals) -> Result<(), ConfigError> {
    let named = |stream: &&EventsConfig| !stream.webhook_principal.is_empty();
    match config.doors.events.iter().filter(named).find(|s| !principals.has(&s.webhook_principal)) {
        None => Ok(()),
        Some(stream) => rule(format!(
            "doors.events {:?}: webhook_principal {:?} is not one of the principals",
            stream.name, stream.webhook_principal
        )),
    }
}

fn principals(config: &Config, base: &Path) -> Result<Principals, ConfigError> {
    let configs: Vec<_> = config.principals.iter().map(PrincipalConfig::for_gate).collect();
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
        rule(format!("principal {name}: there is no door {door:?}; this gate has: {known}"))?;
    }
    let mut all = config.principals.iter().chain(&config.edge.producers);
    all.try_for_each(|principal| long_keys(principal, base))?;
    Ok(principals)
}

/// Checks that no key can be found by trying. Of a hash nobody can tell how long its key is.
fn long_keys(principal: &PrincipalConfig, base: &Path) -> Result<(), ConfigError> {
    let is_short = |spec: &str| {
        let key = match spec.strip_prefix("file:") {
            // It has just been read, so this is not where a lost file is noticed.
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

/// Without principals everybody who can connect is let in, so only this machine may connect.
fn reach(config: &Config, principals: &Principals) -> Result<(), ConfigError> {
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
