//! Unauthenticated connections, and the authentication state of a connection.
//!
//! A key comes with a request, so a connection is unauthenticated until its first one. Until then it has
//! a short idle timeout and counts against its address; from the first authenticated request on it
//! counts for its principal instead. Unauthenticated connections may use half of `connections_max`;
//! beyond that the oldest idle one is closed in favour of a new one, which may have a key. Connections on
//! the Unix socket in the data folder, and all connections of a gate without principals, count as
//! authenticated from the start.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::{ConnectionsByAge, EvictionHandle, PrincipalConnections, PrincipalPermit};

/// Unauthenticated connections of all addresses.
#[derive(Debug)]
pub(crate) struct UnauthenticatedConnections {
    connections_max: usize,
    per_address_max: usize,
    open: Mutex<OpenByAddress>,
}

#[derive(Debug, Default)]
struct OpenByAddress {
    by_address: HashMap<IpAddr, usize>,
    by_age: ConnectionsByAge,
}

impl UnauthenticatedConnections {
    pub(crate) fn new(connections_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { connections_max, per_address_max, open: Mutex::default() })
    }

    /// Adds a connection of `address`; `None` if the address has reached its limit.
    pub(crate) fn add(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let network = network(address);
        let mut open = self.locked();
        let count = open.by_address.entry(network).or_insert(0);
        // An entry always has a count above 0, so a full address has one already.
        if *count >= self.per_address_max {
            return None;
        }
        *count += 1;
        let eviction = Arc::new(EvictionHandle::default());
        let number = open.by_age.add(&eviction);
        drop(open);
        Some(AddressPermit { connections: Arc::clone(self), network, eviction, number })
    }

    /// Closes the oldest connection other than `newest`, preferably an idle one, if there are too many or
    /// the listener `is_full`. Returns whether one was closed.
    pub(crate) fn evict_for(&self, newest: &AddressPermit, is_full: bool) -> bool {
        let by_age = &mut self.locked().by_age;
        let except = Some(newest.number);
        (is_full || by_age.len() > self.connections_max)
            && (by_age.evict_idle(except) || by_age.evict_oldest(except))
    }

    /// Excludes a connection from eviction: one over the limit, which only gets a refusal.
    pub(crate) fn unlist(&self, number: u64) {
        self.locked().by_age.remove(number);
    }

    /// Number of unauthenticated connections.
    pub(crate) fn count(&self) -> usize {
        self.locked().by_address.values().sum()
    }

    fn locked(&self) -> MutexGuard<'_, OpenByAddress> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Groups IPv6 addresses by /64 network, because one machine usually has a whole one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// One connection of an address, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    connections: Arc<UnauthenticatedConnections>,
    network: IpAddr,
    eviction: Arc<EvictionHandle>,
    number: u64,
}

impl AddressPermit {
    /// Number of the connection in the list.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.connections.locked();
        open.by_age.remove(self.number);
        if let Some(count) = open.by_address.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.network);
            }
        }
    }
}

/// Counter that a connection belongs to. The permits are only held until they are dropped.
#[derive(Debug)]
enum CountedAs {
    Uncounted,
    OfAddress { _permit: AddressPermit },
    OfPrincipal { _permit: PrincipalPermit },
}

/// Authentication state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionAuth {
    is_authenticated: AtomicBool,
    eviction: Arc<EvictionHandle>,
    counted: Mutex<CountedAs>,
}

impl ConnectionAuth {
    /// State of a connection that needs no key.
    pub(crate) fn trusted() -> Arc<Self> {
        Arc::new(Self {
            is_authenticated: AtomicBool::new(true),
            eviction: Arc::default(),
            counted: Mutex::new(CountedAs::Uncounted),
        })
    }

    /// State of a connection that is counted until it authenticates or ends. Without a permit it is not
    /// counted, because it is closed after its first reply anyway.
    pub(crate) fn unauthenticated(permit: Option<AddressPermit>) -> Arc<Self> {
        let eviction = permit.as_ref().map(|permit| Arc::clone(&permit.eviction));
        let counted =
            permit.map_or(CountedAs::Uncounted, |_permit| CountedAs::OfAddress { _permit });
        Arc::new(Self {
            is_authenticated: AtomicBool::new(false),
            eviction: eviction.unwrap_or_default(),
            counted: Mutex::new(counted),
        })
    }

    /// Marks the connection as authenticated by the principal at `index`. False if that principal has too
    /// many connections.
    pub(crate) fn authenticate(&self, of: &Arc<PrincipalConnections>, index: usize) -> bool {
        if self.is_authenticated() {
            return true;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests of one HTTP/2 connection authenticate concurrently.
        if self.is_authenticated() {
            return true;
        }
        let Some(_permit) = of.add(index, &self.eviction) else { return false };
        *counted = CountedAs::OfPrincipal { _permit };
        self.is_authenticated.store(true, Relaxed);
        true
    }

    pub(crate) fn eviction(&self) -> &EvictionHandle {
        &self.eviction
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_its_own_limit() {
        let connections = UnauthenticatedConnections::new(100, 2);
        let first = connections.add(address("192.0.2.1")).unwrap();
        let second = connections.add(address("::ffff:192.0.2.1")).unwrap();
        assert!(connections.add(address("192.0.2.1")).is_none());
        assert!(connections.add(address("192.0.2.2")).is_some());
        drop(first);
        assert!(connections.add(address("192.0.2.1")).is_some());
        drop(second);
        assert_eq!(connections.count(), 0);
        assert!(
            connections.locked().by_address.is_empty(),
            "an address without connections is removed"
        );
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let connections = UnauthenticatedConnections::new(100, 1);
        let _permit = connections.add(address("2001:db8:0:1::1")).unwrap();
        assert!(connections.add(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(connections.add(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn a_connection_counts_until_it_authenticates() {
        let connections = UnauthenticatedConnections::new(100, 1);
        let auth = ConnectionAuth::unauthenticated(connections.add(address("192.0.2.1")));
        assert_eq!((auth.is_authenticated(), connections.count()), (false, 1));
        let principals = PrincipalConnections::new(&crate::limits::Limits::default(), 1, false);
        assert!(auth.authenticate(&principals, 0) && auth.authenticate(&principals, 0));
        assert_eq!((auth.is_authenticated(), connections.count()), (true, 0));
        let auth = ConnectionAuth::unauthenticated(connections.add(address("192.0.2.1")));
        drop(auth);
        assert_eq!(connections.count(), 0);
        assert!(ConnectionAuth::trusted().is_authenticated());
    }

    #[test]
    fn the_oldest_idle_connection_is_closed_for_a_new_one() {
        let connections = UnauthenticatedConnections::new(2, 100);
        let add = || connections.add(address("192.0.2.1")).unwrap();
        let is_closed = |permit: &AddressPermit| permit.eviction.evicted.is_cancelled();
        let (busy, idle) = (add(), add());
        busy.eviction.running.store(1, Relaxed);
        assert!(!connections.evict_for(&idle, false), "two may be open");
        let third = add();
        assert!(connections.evict_for(&third, false));
        assert!(is_closed(&idle) && !is_closed(&busy) && !is_closed(&third));
        third.eviction.running.store(1, Relaxed);
        let fourth = add();
        assert!(connections.evict_for(&fourth, false), "if all are busy, the oldest is closed");
        assert!(is_closed(&busy) && !is_closed(&fourth));
        drop(third);
        assert!(!connections.evict_for(&fourth, true), "there is no other");
    }
}
