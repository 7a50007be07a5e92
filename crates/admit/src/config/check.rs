//! Rules that no single value can break: what makes a config a safe gate.

use std::error::Error;
use std::path::Path;

use admit_gate::Principals;
use tracing_subscriber::EnvFilter;

use super::{Config, ConfigError, PrincipalConfig};

/// The doors this build has, by their config names.
const DOORS: &[&str] = &["pixel-control", "intents"];

/// Checks that `config` makes a safe gate, and reads its keys. Relative key files start at `base`.
///
/// What is wrong is said with what to do about it, and never with a secret.
pub(crate) fn check(config: &Config, base: &Path) -> Result<Principals, ConfigError> {
    ledger(config)?;
    log_level(&config.log.level)?;
    let (pixel, intents) = (&config.doors.pixel_control, &config.doors.intents);
    door("pixel-control", &pixel.path, &pixel.api_key_header)?;
    door("intents", &intents.path, &intents.api_key_header)?;
    intents.check(base)?;
    config.limits.check().map_err(|error| ConfigError::Rule(error.to_string()))?;
    let principals = principals(&config.principals, base)?;
    reach(config, &principals)?;
    Ok(principals)
}

/// Checks that this build has the ledger. Its URL may hold a password, so only the scheme is shown.
pub(crate) fn ledger(config: &Config) -> Result<(), ConfigError> {
    let url = config.ledger.url.as_str();
    if url == "sqlite:" {
        return Ok(());
    }
    let shown = match url.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://…"),
        None => url.to_owned(),
    };
    rule(format!("ledger.url {shown:?} is not supported by this build; use \"sqlite:\""))
}

fn rule(message: String) -> Result<(), ConfigError> {
    Err(ConfigError::Rule(message))
}

fn log_level(level: &str) -> Result<(), ConfigError> {
    match EnvFilter::builder().parse(level) {
        Ok(_) => Ok(()),
        Err(_) => rule(format!(
            "log.level {level:?} is not a level; use error, warn, info, debug or trace"
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

fn principals(configs: &[PrincipalConfig], base: &Path) -> Result<Principals, ConfigError> {
    let configs: Vec<_> = configs.iter().map(PrincipalConfig::for_gate).collect();
    let principals = Principals::load(&configs, base).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        ConfigError::Rule(format!("{error}{cause}"))
    })?;
    if let Some((name, door)) = principals.doors_named().find(|(_, door)| !DOORS.contains(door)) {
        let known = DOORS.join(", ");
        rule(format!("principal {name}: there is no door {door:?}; this build has: {known}"))?;
    }
    Ok(principals)
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
