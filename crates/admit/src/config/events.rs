//! `[[doors.events]]`: streams and their contracts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use admit_contracts::events::{
    Accept, Canonical, EventIdentity, Events, FieldPath, Settings, WebhookSecret, Webhooks,
    is_stream_name,
};
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::principal::KeyList;

/// Base path of streams.
const PATH: &str = "/v1/events";

/// Name of the stream at the base path itself.
const DEFAULT: &str = "default";

/// One stream. Empty strings are not set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsConfig {
    /// Whether the stream is open.
    pub(crate) enabled: bool,
    /// Name, part of the path and of the keys of its events.
    pub(crate) name: String,
    /// Path of the stream, if not `/v1/events/NAME`.
    pub(crate) path: String,
    /// Header for the API key; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Identity of a plain event.
    pub(crate) identity: IdentityKind,
    /// Identifying fields, for `identity = "fields"`.
    pub(crate) fields: Vec<String>,
    /// Canonical form for digests.
    pub(crate) canonical: Canonical,
    /// Accepted content types.
    pub(crate) accept: Accept,
    /// Field with the schema version of a plain event.
    pub(crate) version_field: String,
    /// Field with the time of a plain event.
    pub(crate) time_field: String,
    /// Secrets of webhook signatures.
    pub(crate) webhook_secrets: KeyList,
    /// Maximum clock skew of signature timestamps, in seconds.
    pub(crate) webhook_tolerance_seconds: u32,
    /// Principal of signed requests without a key.
    pub(crate) webhook_principal: String,
    /// Maximum events per request.
    pub(crate) events_per_request_max: usize,
    /// Maximum bytes of an event.
    pub(crate) event_bytes_max: usize,
    /// JSON Schema files by version.
    pub(crate) schemas: BTreeMap<String, PathBuf>,
}

/// `identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IdentityKind {
    /// The `Idempotency-Key` header.
    IdempotencyKey,
    /// Values of some fields.
    Fields,
    /// The whole body.
    Body,
}

impl Default for EventsConfig {
    fn default() -> Self {
        let settings = Settings::named(DEFAULT);
        Self {
            enabled: true,
            name: settings.name,
            path: String::new(),
            api_key_header: "X-API-Key".to_owned(),
            identity: IdentityKind::IdempotencyKey,
            fields: Vec::new(),
            canonical: settings.canonical,
            accept: settings.accept,
            version_field: String::new(),
            time_field: String::new(),
            webhook_secrets: KeyList::default(),
            webhook_tolerance_seconds: 300,
            webhook_principal: String::new(),
            events_per_request_max: settings.events_per_request_max,
            event_bytes_max: settings.event_bytes_max,
            schemas: BTreeMap::new(),
        }
    }
}

impl EventsConfig {
    /// Door of the stream, as in the ledger and in a principal's `doors`.
    pub(crate) fn door(&self) -> String {
        format!("events/{}", self.name)
    }

    /// Path of the stream.
    pub(crate) fn path(&self) -> String {
        match (self.path.as_str(), self.name.as_str()) {
            ("", DEFAULT) => PATH.to_owned(),
            ("", name) => format!("{PATH}/{name}"),
            (path, _) => path.to_owned(),
        }
    }

    /// Builds the contract. Relative files start at `base`.
    pub(crate) fn contract(
        &self,
        base: &Path,
        json_depth_max: usize,
    ) -> Result<Events, ConfigError> {
        self.settings(base, json_depth_max)
            .and_then(|settings| {
                Events::new(settings).map_err(|error| {
                    let file = self.schemas.get(&error.version).map(|path| base.join(path));
                    let file = file.unwrap_or_default();
                    format!("{}: {error}", file.display())
                })
            })
            .map_err(|message| {
                ConfigError::Rule(format!("doors.events {:?}: {message}", self.name))
            })
    }

    fn settings(&self, base: &Path, json_depth_max: usize) -> Result<Settings, String> {
        if !is_stream_name(&self.name) {
            return Err("name: must have 1 to 64 characters of A-Z a-z 0-9 . _ -, the first a letter or digit"
                .to_owned());
        }
        if self.path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            return Err(format!("path: paths under {PATH} are reserved for stream names"));
        }
        if self.events_per_request_max == 0 || self.event_bytes_max == 0 {
            return Err("events_per_request_max and event_bytes_max must be greater than 0".into());
        }
        let schemas = self.schemas.iter().map(|(version, path)| {
            let path = base.join(path);
            let text = fs::read_to_string(&path).map_err(|error| {
                format!("the schema {} cannot be read: {error}", path.display())
            })?;
            Ok((version.clone(), text))
        });
        Ok(Settings {
            identity: self.identity()?,
            canonical: self.canonical,
            accept: self.accept,
            schemas: schemas.collect::<Result<_, String>>()?,
            version_field: field("version_field", &self.version_field)?,
            time_field: field("time_field", &self.time_field)?,
            webhooks: self.webhooks(base)?,
            json_depth_max,
            events_per_request_max: self.events_per_request_max,
            event_bytes_max: self.event_bytes_max,
            ..Settings::named(&self.name)
        })
    }

    fn identity(&self) -> Result<EventIdentity, String> {
        match (self.identity, self.fields.as_slice()) {
            (IdentityKind::IdempotencyKey, []) => Ok(EventIdentity::IdempotencyKey),
            (IdentityKind::Body, []) => Ok(EventIdentity::Body),
            (IdentityKind::Fields, []) => Err("identity \"fields\" requires fields".to_owned()),
            (IdentityKind::Fields, texts) => {
                let field = |text: &String| {
                    FieldPath::parse(text).ok_or_else(|| not_a_field("fields", text))
                };
                texts.iter().map(field).collect::<Result<_, _>>().map(EventIdentity::Fields)
            }
            (IdentityKind::IdempotencyKey | IdentityKind::Body, _) => {
                Err("fields require identity = \"fields\"".to_owned())
            }
        }
    }

    fn webhooks(&self, base: &Path) -> Result<Option<Webhooks>, String> {
        let principal =
            (!self.webhook_principal.is_empty()).then(|| self.webhook_principal.clone());
        if self.webhook_secrets.is_empty() {
            return match principal {
                None => Ok(None),
                Some(_) => Err("webhook_principal requires webhook_secrets".to_owned()),
            };
        }
        let secret = |spec: &str| {
            let text = match spec.strip_prefix("file:") {
                None => spec.to_owned(),
                Some(path) => {
                    let path = base.join(path);
                    fs::read_to_string(&path).map_err(|error| {
                        format!("the secret file {} cannot be read: {error}", path.display())
                    })?
                }
            };
            WebhookSecret::parse(&text).map_err(|error| error.to_string())
        };
        let secrets = self.webhook_secrets.iter().map(secret).collect::<Result<_, String>>()?;
        let tolerance_seconds = self.webhook_tolerance_seconds;
        Ok(Some(Webhooks { secrets, tolerance_seconds, principal }))
    }
}

fn field(name: &str, text: &str) -> Result<Option<FieldPath>, String> {
    match text {
        "" => Ok(None),
        text => FieldPath::parse(text).map(Some).ok_or_else(|| not_a_field(name, text)),
    }
}

fn not_a_field(name: &str, text: &str) -> String {
    format!("{name}: {text:?} is not a JSON pointer such as /order/id or a path such as order.id")
}

#[cfg(test)]
mod tests {
    use admit_contracts::Contract as _;

    use super::*;

    fn contract(text: &str) -> Result<Events, String> {
        let config: EventsConfig = toml::from_str(text).unwrap();
        config.contract(Path::new("nowhere"), 128).map_err(|error| error.to_string())
    }

    #[test]
    fn the_path_of_a_stream_follows_from_its_name() {
        let named = |text: &str| toml::from_str::<EventsConfig>(text).unwrap();
        assert_eq!(named("").path(), "/v1/events");
        assert_eq!(named("name = \"orders\"").path(), "/v1/events/orders");
        assert_eq!(named("name = \"orders\"\npath = \"/hooks\"").path(), "/hooks");
        assert_eq!(named("name = \"orders\"").door(), "events/orders");
    }

    #[test]
    fn an_invalid_stream_is_refused_with_its_name() {
        for (text, expected) in [
            ("name = \"a/b\"", "must have 1 to 64"),
            ("name = \"a\"\nidentity = \"fields\"", "requires fields"),
            ("fields = [\"id\"]", "require identity"),
            ("identity = \"fields\"\nfields = [\"a..b\"]", "is not a JSON pointer"),
            ("time_field = \".\"", "time_field"),
            ("path = \"/v1/events/other\"", "reserved for stream names"),
            ("webhook_secrets = [\"hush\"]", "whsec_"),
            ("webhook_secrets = [\"file:lost\"]", "lost cannot be read"),
            ("webhook_principal = \"shop\"", "requires webhook_secrets"),
            ("schemas = { 1 = \"lost.json\" }", "lost.json cannot be read"),
            ("event_bytes_max = 0", "greater than 0"),
        ] {
            let error = contract(text).unwrap_err();
            assert!(error.contains(expected) && error.contains("doors.events"), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn the_example_in_the_readme_is_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let file = root.join("docs/examples/orders.toml");
        super::super::check_file(&file).unwrap();
        let example = fs::read_to_string(file).unwrap();
        assert!(example.lines().count() <= 10, "ten lines of config make a stream");
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        assert!(readme.contains(&example), "the README contains the example unchanged");
    }

    #[test]
    fn a_signed_stream_has_the_configured_principal() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let events =
            contract(&format!("webhook_secrets = [\"{secret}\"]\nwebhook_principal = \"shop\"\n"));
        assert_eq!(events.unwrap().signature_principal(), Some("shop"));
        let config: EventsConfig =
            toml::from_str(&format!("webhook_secrets = [\"{secret}\"]")).unwrap();
        for shown in [format!("{config:?}"), toml::to_string(&config).unwrap()] {
            assert!(!shown.contains("MfKQ"), "{shown}");
        }
    }
}
