//! Connections that have not authenticated yet: how many there are of each address.
//!
//! A key comes with a request, so nothing is known of a connection before its first one. Until then
//! it has a short idle time and counts against its address; from the first authenticated request on
//! it has neither limit and counts for its principal. All of them together may have half of the places;
//! beyond that the oldest idle one is closed for a new one, which may have a key. Connections at the socket in the data folder and at a gate without
//! principals, where there is no key, count as authenticated from the start.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::{Activity, ByAge, PrincipalConnections, PrincipalPermit};

/// The connections of all addresses that have not authenticated yet.
#[derive(Debug)]
pub(crate) struct UnauthenticatedConnections {
    connections_max: usize,
    per_address_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_address: HashMap<IpAddr, usize>,
    by_age: ByAge,
}

impl UnauthenticatedConnections {
    pub(crate) fn new(connections_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { connections_max, per_address_max, open: Mutex::default() })
    }

    /// Counts one more connection of `address`; none when the address has too many.
    pub(crate) fn add(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let network = network(address);
        let mut open = self.locked();
        let count = open.by_address.entry(network).or_insert(0);
        // An entry is only left behind with a count, so a full address has one already.
        if *count >= self.per_address_max {
            return None;
        }
        *count += 1;
        let activity = Arc::new(Activity::default());
        let number = open.by_age.add(&activity);
        drop(open);
        Some(AddressPermit { connections: Arc::clone(self), network, activity, number })
    }

    /// Closes the oldest connection beside that of `newest`, an idle one if there is any, where there
    /// are too many or the listener `is_full`. Whether one was closed.
    pub(crate) fn make_room(&self, newest: &AddressPermit, is_full: bool) -> bool {
        let by_age = &mut self.locked().by_age;
        let except = Some(newest.number);
        (is_full || by_age.len() > self.connections_max)
            && (by_age.evict_idle(except) || by_age.evict_oldest(except))
    }

    /// A connection without a place, which is only told so, is not to be closed for another.
    pub(crate) fn unlist(&self, number: u64) {
        self.locked().by_age.remove(number);
    }

    /// How many there are now.
    pub(crate) fn count(&self) -> usize {
        self.locked().by_address.values().sum()
    }

    fn locked(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One machine usually has a whole /64 of IPv6 addresses, which therefore count as one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// One connection of an address. It is no longer counted when this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    connections: Arc<UnauthenticatedConnections>,
    network: IpAddr,
    activity: Arc<Activity>,
    number: u64,
}

impl AddressPermit {
    /// Under which it is listed.
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

/// Where a connection counts. The permits are only held.
#[derive(Debug)]
enum Counted {
    Nowhere,
    OfAddress { _permit: AddressPermit },
    OfPrincipal { _permit: PrincipalPermit },
}

/// Whether a connection has authenticated.
#[derive(Debug)]
pub(crate) struct Standing {
    is_authenticated: AtomicBool,
    activity: Arc<Activity>,
    counted: Mutex<Counted>,
}

impl Standing {
    /// Of a connection without a key to show.
    pub(crate) fn trusted() -> Arc<Self> {
        Arc::new(Self {
            is_authenticated: AtomicBool::new(true),
            activity: Arc::default(),
            counted: Mutex::new(Counted::Nowhere),
        })
    }

    /// Of a connection that is counted until it authenticates or ends; not counted where it is
    /// closed after its first answer anyway.
    pub(crate) fn unauthenticated(permit: Option<AddressPermit>) -> Arc<Self> {
        let activity = permit.as_ref().map(|permit| Arc::clone(&permit.activity));
        let counted = permit.map_or(Counted::Nowhere, |_permit| Counted::OfAddress { _permit });
        Arc::new(Self {
            is_authenticated: AtomicBool::new(false),
            activity: activity.unwrap_or_default(),
            counted: Mutex::new(counted),
        })
    }

    /// A request of this connection was authenticated as of the principal at `place`. False if that
    /// has too many connections.
    pub(crate) fn authenticate(&self, of: &Arc<PrincipalConnections>, place: usize) -> bool {
        if self.is_authenticated() {
            return true;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests of one HTTP/2 connection authenticate at the same time.
        if self.is_authenticated() {
            return true;
        }
        let Some(_permit) = of.add(place, &self.activity) else { return false };
        *counted = Counted::OfPrincipal { _permit };
        self.is_authenticated.store(true, Relaxed);
        true
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
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
    fn an_address_has_so_many_connections_and_another_has_its_own() {
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
            "an address without connections is forgotten"
        );
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let connections = UnauthenticatedConnections::new(100, 1);
        let _held = connections.add(address("2001:db8:0:1::1")).unwrap();
        assert!(connections.add(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(connections.add(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn a_connection_counts_until_it_authenticates() {
        let connections = UnauthenticatedConnections::new(100, 1);
        let standing = Standing::unauthenticated(connections.add(address("192.0.2.1")));
        assert_eq!((standing.is_authenticated(), connections.count()), (false, 1));
        let principals = PrincipalConnections::new(&crate::limits::Limits::default(), 1, false);
        assert!(standing.authenticate(&principals, 0) && standing.authenticate(&principals, 0));
        assert_eq!((standing.is_authenticated(), connections.count()), (true, 0));
        let standing = Standing::unauthenticated(connections.add(address("192.0.2.1")));
        drop(standing);
        assert_eq!(connections.count(), 0);
        assert!(Standing::trusted().is_authenticated());
    }

    #[test]
    fn the_oldest_idle_connection_makes_room_for_a_new_one() {
        let connections = UnauthenticatedConnections::new(2, 100);
        let add = || connections.add(address("192.0.2.1")).unwrap();
        let is_closed = |permit: &AddressPermit| permit.activity.evicted.is_cancelled();
        let (busy, idle) = (add(), add());
        busy.activity.running.store(1, Relaxed);
        assert!(!connections.make_room(&idle, false), "two may be open");
        let third = add();
        assert!(connections.make_room(&third, false));
        assert!(is_closed(&idle) && !is_closed(&busy) && !is_closed(&third));
        third.activity.running.store(1, Relaxed);
        let fourth = add();
        assert!(connections.make_room(&fourth, false), "where all are busy, the oldest goes");
        assert!(is_closed(&busy) && !is_closed(&fourth));
        drop(third);
        assert!(!connections.make_room(&fourth, true), "there is no other");
    }
}
