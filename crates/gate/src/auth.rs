//! Who is knocking, and may they: keys in headers, or the checks of an open gate.
//!
//! An open gate trusts whoever is on the same machine, and a browser is, with every page it shows.
//! So there `Host` must be a loopback name (a page that rebinds its own name to 127.0.0.1 sends
//! that name) and `Origin`, which browsers add, must be absent or this very host. Doors want JSON
//! besides, which no plain form can send.

use std::net::{IpAddr, SocketAddr};

use admit_core::{Code, Door, Principal};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};

use crate::parts::DoorMount;
use crate::peer::Peer;
use crate::principals::{Known, Principals, Role};

/// Somebody who may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    /// `unauthorized` or `forbidden`.
    pub(crate) code: Code,
    /// For people; says nothing about which keys exist.
    pub(crate) message: &'static str,
}

const fn unauthorized(message: &'static str) -> Denied {
    Denied { code: Code::Unauthorized, message }
}

const fn forbidden(message: &'static str) -> Denied {
    Denied { code: Code::Forbidden, message }
}

/// What is said to somebody who did not even try.
pub(crate) const NO_KEY: Denied = unauthorized("no key was sent");

/// What is said about a key that nobody has.
pub(crate) const NOT_KNOWN: Denied = unauthorized("the key is not known");

/// What is said to somebody who is known, but not at this door.
pub(crate) const NOT_HERE: Denied = forbidden("this key may not use this door");

/// The principal behind a request, from `Authorization: Bearer` or `api_key_header`. At the socket
/// in the data folder nobody needs a key; whoever shows one is known by it.
pub(crate) fn identify<'a>(
    principals: &'a Principals,
    peer: Peer,
    head: &Parts,
    api_key_header: &HeaderName,
) -> Result<&'a Known, Denied> {
    if let Some(local) = principals.local() {
        // No browser reaches the socket.
        if let Peer::At(address) = peer {
            check_local(address, head)?;
        }
        return Ok(local);
    }
    match (presented_key(&head.headers, api_key_header)?, peer) {
        (Some(key), _) => principals.by_key(key).ok_or(NOT_KNOWN),
        (None, Peer::Owner) if shows_nothing(&head.headers, api_key_header) => {
            Ok(principals.owner())
        }
        (None, Peer::Owner | Peer::At(_)) => Err(NO_KEY),
    }
}

/// Whether a request carries nothing that could be meant as a key.
pub(crate) fn shows_nothing(headers: &HeaderMap, api_key_header: &HeaderName) -> bool {
    !headers.contains_key(header::AUTHORIZATION) && !headers.contains_key(api_key_header)
}

/// Whether a principal has `role` at `door`.
pub(crate) fn permit(known: &Known, role: Role, door: &Door) -> Result<(), Denied> {
    if !known.has(role) {
        return Err(forbidden("this key does not have the role for it"));
    }
    if !known.may_use(door) {
        return Err(forbidden("this key may not use this door"));
    }
    Ok(())
}

/// The answer to one more connection of a principal whose share of them is full.
pub(crate) const TOO_MANY_CONNECTIONS: Denied = Denied {
    code: Code::Overloaded,
    message: "too many connections of this principal (limits.principal_share_percent of \
              limits.connections_max); close some, or send on those that are open",
};

/// Whether a principal may operate every door.
pub(crate) fn permit_operating_everything(known: &Known) -> Result<(), Denied> {
    if !known.has(Role::Operate) {
        return Err(forbidden("this key does not have the role for it"));
    }
    if !known.doors().is_empty() {
        return Err(forbidden("this key may not use every door"));
    }
    Ok(())
}

/// In which a forwarding agent names the principal it speaks for.
const SPEAKS_FOR: HeaderName = HeaderName::from_static("admit-principal");

/// In whose name a principal sends at `door`: its own, or that of another it may speak for.
///
/// Whoever is spoken for needs no key here; where it is known all the same, it may not send by way
/// of an agent what it could not send itself.
pub(crate) fn speaker(
    principals: &Principals,
    known: &Known,
    headers: &HeaderMap,
    door: &DoorMount,
) -> Result<Principal, Denied> {
    // Whoever is at the socket without a key has no name to send under.
    if std::ptr::eq(known, principals.owner()) && !known.has(Role::Produce) {
        return Err(NO_KEY);
    }
    let mut names = headers.get_all(SPEAKS_FOR).iter();
    let name = match (names.next(), names.next()) {
        (None, _) => known.principal.as_str(),
        (Some(name), None) => name.to_str().unwrap_or_default(),
        (Some(_), Some(_)) => return Err(forbidden("an event has one principal, not several")),
    };
    if name == known.principal.as_str() {
        permit(known, Role::Produce, &door.door)?;
        return Ok(known.principal.clone());
    }
    permit(known, Role::Forward, &door.door)?;
    if !door.contract.is_forwardable() {
        return Err(forbidden("events of this door are not forwarded: their answer is made here"));
    }
    if !known.may_speak_for(name) {
        return Err(forbidden("this key may not speak for that principal"));
    }
    match principals.by_name(name) {
        None => Ok(Principal::new(name)),
        Some(named) => {
            permit(named, Role::Produce, &door.door)
                .map_err(|_| forbidden("the principal spoken for may not send at this door"))?;
            Ok(named.principal.clone())
        }
    }
}

/// Whether a principal may read at all; which doors is for the reader to ask.
pub(crate) fn permit_reading(known: &Known) -> Result<(), Denied> {
    permit_one_of(known, &[Role::Read], "this key does not have the role read")
}

/// Whether it may read streams and the inbox, which whoever claims from them must.
pub(crate) fn permit_reading_entries(known: &Known) -> Result<(), Denied> {
    let message = "this key does not have the role read or consume";
    permit_one_of(known, &[Role::Read, Role::Consume], message)
}

/// Whether it may claim and settle the entries of streams and of the inbox.
pub(crate) fn permit_consuming(known: &Known) -> Result<(), Denied> {
    permit_one_of(known, &[Role::Consume], "this key does not have the role consume")
}

/// Whether it may read the metrics.
pub(crate) fn permit_metrics(known: &Known) -> Result<(), Denied> {
    permit_one_of(known, &[Role::Metrics], "this key does not have the role metrics")
}

fn permit_one_of(known: &Known, roles: &[Role], message: &'static str) -> Result<(), Denied> {
    if roles.iter().any(|role| known.has(*role)) { Ok(()) } else { Err(forbidden(message)) }
}

/// The key that a request carries, in either header.
pub(crate) fn presented_key<'a>(
    headers: &'a HeaderMap,
    api_key_header: &HeaderName,
) -> Result<Option<&'a [u8]>, Denied> {
    let bearer = only(headers, &header::AUTHORIZATION)?.and_then(bearer_token);
    match bearer {
        Some(token) => Ok(Some(token)),
        None => only(headers, api_key_header).map(|key| key.map(<[u8]>::trim_ascii)),
    }
}

/// The one value of a header. Two keys in one request could be two principals, so neither counts.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Denied> {
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

/// What a request by another name than this machine's is told to have configured.
const OPEN_TO_LOOPBACK: &str = "this gate has no [[principals]], so it serves loopback names only: \
    address it as localhost or 127.0.0.1, or add [[principals]] with keys to its config \
    (admit keys new) to serve it under this Host";

fn check_local(peer: SocketAddr, head: &Parts) -> Result<(), Denied> {
    if !peer.ip().to_canonical().is_loopback() {
        return Err(forbidden("without principals only this machine is served"));
    }
    let host = host(head).ok_or(forbidden("without principals a request must name its host"))?;
    if !is_loopback_host(host) {
        return Err(forbidden(OPEN_TO_LOOPBACK));
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    if !origins.all(|origin| is_same_host(origin.as_bytes(), host.as_bytes())) {
        return Err(forbidden("without principals pages of other origins are not served"));
    }
    Ok(())
}

/// What the request says it is addressed to. HTTP/2 says it in the URI, and where an HTTP/1 request
/// line names a host too, that one counts and not the header.
fn host(head: &Parts) -> Option<&str> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (head.uri.authority(), hosts.next(), hosts.next()) {
        (_, Some(_), Some(_)) => None,
        (Some(authority), _, _) => Some(authority.as_str()),
        (None, host, _) => host?.to_str().ok(),
    }
}

/// The port is not looked at: a forwarded port is still this machine's business.
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
    fn only_loopback_names_count_as_this_machine() {
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
    fn an_origin_is_this_host_with_this_port_or_it_is_another() {
        assert!(is_same_host(b"http://localhost:8080", b"localhost:8080"));
        for origin in ["http://localhost:3000", "http://localhost", "null", "", "http://evil.test"]
        {
            assert!(!is_same_host(origin.as_bytes(), b"localhost:8080"), "{origin}");
        }
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case_and_nothing_else() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer_token(b"bearer  abc "), Some(b"abc".as_slice()));
        for value in ["Basic abc", "Bearer", "Bearerabc", "abc"] {
            assert_eq!(bearer_token(value.as_bytes()), None, "{value}");
        }
    }
}
