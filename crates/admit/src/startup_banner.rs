//! Start-up banner of a gate: its address, its doors and an example command.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::json;

use crate::config::{Config, EventsConfig, IdentityKind, LogFormat};
use crate::output::{self, Failure};

/// Example event of an `events` stream without schema.
const EVENT: &str = r#"{"total":5}"#;

/// Example event of the `pixel-control` door.
const PIXEL_CONTROL_EVENT: &str = r#"{"envelope":{"event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","schema_version":"2026-02-19.1","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","event_category":"lifecycle","source_callback":"ManiaPlanet.BeginMatch","source_sequence":1739980000001,"source_time":1739980000,"idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","payload":{},"metadata":{}},"transport":{"attempt":1,"max_attempts":3,"retry_backoff_ms":250,"auth_mode":"none"}}"#;

/// Announces that the gate is open: as text, as one line of JSON, or only in the log.
pub(crate) fn print(config: &Config, address: SocketAddr, json: bool) -> Result<(), Failure> {
    let data = config.data.display();
    if json {
        output::print(&banner_json(config, address))?;
    } else if config.log.format == LogFormat::Text {
        output::print(&banner_text(config, address))?;
    }
    tracing::info!(listen = %address, %data, version = env!("CARGO_PKG_VERSION"), "open");
    Ok(())
}

/// Banner as one line of JSON, for scripts.
fn banner_json(config: &Config, address: SocketAddr) -> String {
    let doors: Vec<_> = doors(config)
        .map(|(door, path)| json!({ "door": door, "method": "POST", "path": path }))
        .collect();
    let open = json!({ "listen": address, "data": config.data, "doors": doors });
    format!("{open}\n")
}

fn banner_text(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.tls.is_on() { "https" } else { "http" };
    let base = format!("{scheme}://{}", reachable(address));
    let version = env!("CARGO_PKG_VERSION");
    let mut text =
        format!("admit {version} is open on {base}, data in {}\n\n", config.data.display());
    for (door, path) in doors(config) {
        text.push_str(&format!("  {door:<14}  POST {base}{path}\n"));
        if door == "skyra" {
            let socket = base.replacen("http", "ws", 1);
            text.push_str(&format!("{:18}WebSocket {socket}{path}, gRPC admit.v1.Ingress\n", ""));
        }
    }
    if doors(config).next().is_none() {
        text.push_str("  no door is enabled, so no event can be sent\n");
    }
    if let Some(line) = curl(config, &base) {
        text.push_str(&format!("\ntry it, twice:\n\n  {line}\n"));
    }
    text.push_str("\nCtrl-C stops the gate; accepted events are finished first\n\n");
    text
}

/// Example `curl` command, for the first door that accepts the example event unchanged.
fn curl(config: &Config, base: &str) -> Option<String> {
    let key = if config.principals.is_empty() { "" } else { " -H \"Authorization: Bearer $KEY\"" };
    let is_simple = |stream: &&EventsConfig| {
        stream.enabled
            && stream.identity == IdentityKind::IdempotencyKey
            && stream.webhook_secrets.is_empty()
            && stream.schemas.is_empty()
            && stream.time_field.is_empty()
    };
    let post = |path: &str| {
        let url = quoted(&format!("{base}{path}"));
        format!("curl -sSi {url} -H 'Content-Type: application/json'{key}")
    };
    if let Some(stream) = config.doors.events.iter().find(is_simple) {
        let post = post(&stream.path());
        return Some(format!("{post} -H 'Idempotency-Key: order-1' -d '{EVENT}'"));
    }
    let pixel_control = &config.doors.pixel_control;
    let post = pixel_control.enabled.then(|| post(&pixel_control.path))?;
    Some(format!("{post} -d '{PIXEL_CONTROL_EVENT}'"))
}

fn doors(config: &Config) -> impl Iterator<Item = (String, String)> {
    let (pixel, intents) = (&config.doors.pixel_control, &config.doors.intents);
    let (skyra, ingestion) = (&config.doors.skyra, &config.doors.ingestion_gate);
    let rounds = &config.doors.rounds;
    let fixed = [
        (pixel.enabled, "pixel-control", pixel.path.clone()),
        (skyra.enabled, "skyra", skyra.path.clone()),
        (intents.enabled, "intents", intents.path.clone()),
        (ingestion.enabled, "ingestion-gate", ingestion.path.clone()),
        (rounds.enabled, "rounds", format!("{}/{{source}}", rounds.path)),
    ];
    let fixed = fixed
        .into_iter()
        .filter(|(enabled, _, _)| *enabled)
        .map(|(_, door, path)| (door.to_owned(), path));
    let streams = config.doors.events.iter().filter(|stream| stream.enabled);
    fixed.chain(streams.map(|stream| (stream.door(), stream.path())))
}

/// Address that a client can connect to: loopback in place of the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Quotes `text` for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 8080))
    }

    #[test]
    fn the_banner_lists_the_doors_and_an_example_command() {
        let text = banner_text(&Config::default(), address());
        let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        insta::assert_snapshot!(text, @r#"
        admit VERSION is open on http://127.0.0.1:8080, data in ./admit-data

          pixel-control   POST http://127.0.0.1:8080/plugin/events
          skyra           POST http://127.0.0.1:8080/v1/ingress
                          WebSocket ws://127.0.0.1:8080/v1/ingress, gRPC admit.v1.Ingress
          intents         POST http://127.0.0.1:8080/v1/intents
          ingestion-gate  POST http://127.0.0.1:8080/v1/ingest/push
          rounds          POST http://127.0.0.1:8080/v1/rounds/{source}
          events/default  POST http://127.0.0.1:8080/v1/events

        try it, twice:

          curl -sSi http://127.0.0.1:8080/v1/events -H 'Content-Type: application/json' -H 'Idempotency-Key: order-1' -d '{"total":5}'

        Ctrl-C stops the gate; accepted events are finished first
        "#);
    }

    #[test]
    fn the_banner_and_the_readme_show_the_same_command() {
        let line = curl(&Config::default(), "http://127.0.0.1:8080").expect("a stream is open");
        assert!(include_str!("../../../README.md").contains(&line), "{line}");
    }

    #[test]
    fn the_first_door_that_accepts_the_example_is_chosen() {
        let curl_for = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            curl(&config, "http://127.0.0.1:8080")
        };
        let by_body = curl_for("[[doors.events]]\nname = \"a\"\nidentity = \"body\"\n");
        assert!(by_body.is_some_and(|line| line.contains("/plugin/events")));
        let second = "[[doors.events]]\nname = \"a\"\naccept = \"any\"\ntime_field = \"at\"\n\
                      [[doors.events]]\nname = \"b\"\n";
        assert!(curl_for(second).is_some_and(|line| line.contains("/v1/events/b ")));
        let none = "[doors.pixel-control]\nenabled = false\n[[doors.events]]\nenabled = false\n";
        assert_eq!(curl_for(none), None);
    }

    #[test]
    fn a_program_reads_one_line_of_json() {
        insta::assert_snapshot!(banner_json(&Config::default(), address()), @r#"{"data":"./admit-data","doors":[{"door":"pixel-control","method":"POST","path":"/plugin/events"},{"door":"skyra","method":"POST","path":"/v1/ingress"},{"door":"intents","method":"POST","path":"/v1/intents"},{"door":"ingestion-gate","method":"POST","path":"/v1/ingest/push"},{"door":"rounds","method":"POST","path":"/v1/rounds/{source}"},{"door":"events/default","method":"POST","path":"/v1/events"}],"listen":"127.0.0.1:8080"}"#);
    }

    #[test]
    fn the_example_of_a_gate_with_principals_has_a_key_placeholder_and_no_secret() {
        let config: Config =
            toml::from_str("[[principals]]\nname = \"a\"\nkeys = [\"hush\"]\n").unwrap();
        let text = banner_text(&config, SocketAddr::from(([0, 0, 0, 0], 8080)));
        assert!(text.contains("Bearer $KEY"), "{text}");
        assert!(text.contains("http://127.0.0.1:8080/"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }

    #[test]
    fn a_path_in_the_curl_command_is_quoted() {
        assert_eq!(
            quoted("http://127.0.0.1:8080/plugin/events"),
            "http://127.0.0.1:8080/plugin/events"
        );
        assert_eq!(quoted("http://[::1]:1/$(x)'y"), r"'http://[::1]:1/$(x)'\''y'");
    }
}
