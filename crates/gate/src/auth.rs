//! Authentication and authorization: keys in headers, or the loopback checks of an open gate.
//!
//! An open gate trusts all clients on its machine, which includes a browser with any page it shows. To
//! stop DNS rebinding, `Host` must be a loopback name; to stop cross-origin requests, `Origin` must be
//! absent or equal to `Host`. In addition, doors require JSON, which an HTML form cannot send.

use std::net::{IpAddr, SocketAddr};

use admit_core::{Code, Door, Principal};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};

use crate::builder::DoorMount;
use crate::peer::Peer;
use crate::principals::{KnownPrincipal, Principals, Role};

/// Rejection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessDenied {
    /// `unauthorized` or `forbidden`.
    pub(crate) code: Code,
    /// Human-readable reason. Never reveals which keys exist.
    pub(crate) message: &'static str,
}

const fn unauthorized(message: &'static str) -> AccessDenied {
    AccessDenied { code: Code::Unauthorized, message }
}

const fn forbidden(message: &'static str) -> AccessDenied {
    AccessDenied { code: Code::Forbidden, message }
}

/// No key was sent.
pub(crate) const MISSING_KEY: AccessDenied = unauthorized("no key was sent");

/// The key belongs to no principal.
pub(crate) const UNKNOWN_KEY: AccessDenied = unauthorized("the key is not known");

/// The principal may not use this door.
pub(crate) const DOOR_FORBIDDEN: AccessDenied = forbidden("this key may not use this door");

/// Authenticates a request by `Authorization: Bearer` or `api_key_header`. On the Unix socket in the data
/// folder no key is needed; if one is sent, it identifies the principal.
pub(crate) fn identify<'a>(
    principals: &'a Principals,
    peer: Peer,
    head: &Parts,
    api_key_header: &HeaderName,
) -> Result<&'a KnownPrincipal, AccessDenied> {
    if let Some(local) = principals.local() {
        // A browser cannot connect to the Unix socket.
        if let Peer::At(address) = peer {
            check_local(address, head)?;
        }
        return Ok(local);
    }
    match (presented_key(&head.headers, api_key_header)?, peer) {
        (Some(key), _) => principals.by_key(key).ok_or(UNKNOWN_KEY),
        (None, Peer::Owner) if has_no_credentials(&head.headers, api_key_header) => {
            Ok(principals.owner())
        }
        (None, Peer::Owner | Peer::At(_)) => Err(MISSING_KEY),
    }
}

/// Whether a request has none of the headers that carry a key.
pub(crate) fn has_no_credentials(headers: &HeaderMap, api_key_header: &HeaderName) -> bool {
    !headers.contains_key(header::AUTHORIZATION) && !headers.contains_key(api_key_header)
}

/// Checks that a principal has `role` at `door`.
pub(crate) fn permit(known: &KnownPrincipal, role: Role, door: &Door) -> Result<(), AccessDenied> {
    if !known.has(role) {
        return Err(forbidden("this key does not have the role for it"));
    }
    if !known.may_use(door) {
        return Err(forbidden("this key may not use this door"));
    }
    Ok(())
}

/// The principal has reached its share of connections.
pub(crate) const TOO_MANY_CONNECTIONS: AccessDenied = AccessDenied {
    code: Code::Overloaded,
    message: "too many connections of this principal (limits.principal_share_percent of \
              limits.connections_max); close some, or send on those that are open",
};

/// Checks that a principal may operate all doors.
pub(crate) fn permit_operating_everything(known: &KnownPrincipal) -> Result<(), AccessDenied> {
    if !known.has(Role::Operate) {
        return Err(forbidden("this key does not have the role for it"));
    }
    if !known.doors().is_empty() {
        return Err(forbidden("this key may not use every door"));
    }
    Ok(())
}

/// Header in which a forwarding agent names the original principal.
const FORWARDED_PRINCIPAL: HeaderName = HeaderName::from_static("admit-principal");

/// Returns the principal in whose name a request is sent at `door`: the authenticated one, or another
/// that it may forward for (`may_speak_for`).
///
/// The other principal needs no key here. If it is configured, it must itself be allowed to send at the
/// door.
pub(crate) fn resolve_sender(
    principals: &Principals,
    known: &KnownPrincipal,
    headers: &HeaderMap,
    door: &DoorMount,
) -> Result<Principal, AccessDenied> {
    // A peer on the Unix socket without a key has no producer name.
    if std::ptr::eq(known, principals.owner()) && !known.has(Role::Produce) {
        return Err(MISSING_KEY);
    }
    let mut names = headers.get_all(FORWARDED_PRINCIPAL).iter();
    let name = match (names.next(), names.next()) {
        (None, _) => known.principal.as_str(),
        (Some(name), None) => name.to_str().unwrap_or_default(),
        (Some(_), Some(_)) => {
            return Err(forbidden("more than one Admit-Principal header was sent"));
        }
    };
    if name == known.principal.as_str() {
        permit(known, Role::Produce, &door.door)?;
        return Ok(known.principal.clone());
    }
    permit(known, Role::Forward, &door.door)?;
    if !door.contract.is_forwardable() {
        return Err(forbidden(
            "events of this door cannot be forwarded: their reply depends on this gate",
        ));
    }
    if !known.may_speak_for(name) {
        return Err(forbidden("this key may not speak for that principal"));
    }
    match principals.by_name(name) {
        None => Ok(Principal::new(name)),
        Some(original) => {
            permit(original, Role::Produce, &door.door)
                .map_err(|_| forbidden("the principal spoken for may not send at this door"))?;
            Ok(original.principal.clone())
        }
    }
}

/// Checks that a principal may read. The caller filters by door.
pub(crate) fn permit_reading(known: &KnownPrincipal) -> Result<(), AccessDenied> {
    permit_one_of(known, &[Role::Read], "this key does not have the role read")
}

/// Checks that a principal may read streams and the inbox, which consumers need too.
pub(crate) fn permit_reading_entries(known: &KnownPrincipal) -> Result<(), AccessDenied> {
    let message = "this key does not have the role read or consume";
    permit_one_of(known, &[Role::Read, Role::Consume], message)
}

/// Checks that a principal may claim and settle the entries of streams and of the inbox.
pub(crate) fn permit_consuming(known: &KnownPrincipal) -> Result<(), AccessDenied> {
    permit_one_of(known, &[Role::Consume], "this key does not have the role consume")
}

/// Checks that a principal may read the metrics.
pub(crate) fn permit_metrics(known: &KnownPrincipal) -> Result<(), AccessDenied> {
    permit_one_of(known, &[Role::Metrics], "this key does not have the role metrics")
}

fn permit_one_of(
    known: &KnownPrincipal,
    roles: &[Role],
    message: &'static str,
) -> Result<(), AccessDenied> {
    if roles.iter().any(|role| known.has(*role)) { Ok(()) } else { Err(forbidden(message)) }
}

/// Returns the key of a request, from either header.
pub(crate) fn presented_key<'a>(
    headers: &'a HeaderMap,
    api_key_header: &HeaderName,
) -> Result<Option<&'a [u8]>, AccessDenied> {
    let bearer = single_value(headers, &header::AUTHORIZATION)?.and_then(bearer_token);
    match bearer {
        Some(token) => Ok(Some(token)),
        None => single_value(headers, api_key_header).map(|key| key.map(<[u8]>::trim_ascii)),
    }
}

/// Returns the single value of a header. Two values could be two principals, so they are rejected.
fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, AccessDenied> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(unauthorized("more than one key was sent in one header"));
    }
    Ok(first.map(|value| value.as_bytes()))
}

fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Message for a non-loopback `Host` at an open gate.
const LOOPBACK_ONLY: &str = "this gate has no [[principals]], so it serves loopback names only: \
    use localhost or 127.0.0.1 as the host, or add [[principals]] with keys to its config \
    (admit keys new) to serve it under this Host";

fn check_local(peer: SocketAddr, head: &Parts) -> Result<(), AccessDenied> {
    if !peer.ip().to_canonical().is_loopback() {
        return Err(forbidden("without principals only this machine is served"));
    }
    let host = host(head).ok_or(forbidden("without principals a request must name its host"))?;
    if !is_loopback_host(host) {
        return Err(forbidden(LOOPBACK_ONLY));
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    if !origins.all(|origin| is_same_host(origin.as_bytes(), host.as_bytes())) {
        return Err(forbidden("without principals pages of other origins are not served"));
    }
    Ok(())
}

/// Returns the target host of a request. The authority of the URI (HTTP/2, or an absolute-form HTTP/1
/// request line) takes precedence over the `Host` header.
fn host(head: &Parts) -> Option<&str> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (head.uri.authority(), hosts.next(), hosts.next()) {
        (_, Some(_), Some(_)) => None,
        (Some(authority), _, _) => Some(authority.as_str()),
        (None, host, _) => host?.to_str().ok(),
    }
}

/// Whether the host is a loopback name. The port is ignored: a forwarded port is still local.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
        Some(_) => return false,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_same_host(origin: &[u8], host: &[u8]) -> bool {
    let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    rest.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_local() {
        for host in
            ["localhost", "LocalHost:8080", "127.0.0.1", "127.8.8.8:1", "[::1]:8080", "[::1]"]
        {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in [
            "",
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]",
            "[::1]evil",
            "user@localhost",
            "127.1",
            "2130706433",
            "::1",
        ] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn an_origin_must_have_the_same_host_and_port() {
        assert!(is_same_host(b"http://localhost:8080", b"localhost:8080"));
        for origin in ["http://localhost:3000", "http://localhost", "null", "", "http://evil.test"]
        {
            assert!(!is_same_host(origin.as_bytes(), b"localhost:8080"), "{origin}");
        }
    }

    #[test]
    fn only_the_bearer_scheme_is_accepted_in_any_case() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer_token(b"bearer  abc "), Some(b"abc".as_slice()));
        for value in ["Basic abc", "Bearer", "Bearerabc", "abc"] {
            assert_eq!(bearer_token(value.as_bytes()), None, "{value}");
        }
    }
}
