//! Connections by age, to close the oldest idle one over a limit, and the connection limit of each
//! principal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::shares::Shares;

/// Eviction handle of a connection.
#[derive(Debug, Default)]
pub(crate) struct EvictionHandle {
    /// Number of requests in progress.
    pub(crate) running: AtomicU32,
    /// Cancelled to close the connection in favour of another.
    pub(crate) evicted: CancellationToken,
}

impl EvictionHandle {
    fn is_idle(&self) -> bool {
        self.running.load(Relaxed) == 0
    }
}

/// Connections of one kind, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ConnectionsByAge {
    next: u64,
    listed: BTreeMap<u64, Arc<EvictionHandle>>,
}

impl ConnectionsByAge {
    /// Adds a connection. Returns its number.
    pub(crate) fn add(&mut self, eviction: &Arc<EvictionHandle>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.listed.insert(number, Arc::clone(eviction));
        number
    }

    /// Removes a connection. Returns whether it was listed.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.listed.remove(&number).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    /// Closes and removes the oldest idle connection other than `except`; false if all are busy.
    pub(crate) fn evict_idle(&mut self, except: Option<u64>) -> bool {
        let idle = self
            .listed
            .iter()
            .find(|(number, eviction)| Some(**number) != except && eviction.is_idle());
        let number = idle.map(|(number, _)| *number);
        self.evict(number)
    }

    /// Closes and removes the oldest connection, idle or busy; false if there is no other than `except`.
    pub(crate) fn evict_oldest(&mut self, except: Option<u64>) -> bool {
        let number = self.listed.keys().copied().find(|number| Some(*number) != except);
        self.evict(number)
    }

    fn evict(&mut self, number: Option<u64>) -> bool {
        let evicted = number.and_then(|number| self.listed.remove(&number));
        if let Some(eviction) = &evicted {
            eviction.evicted.cancel();
        }
        evicted.is_some()
    }
}

/// Authenticated connections of each principal.
#[derive(Debug)]
pub(crate) struct PrincipalConnections {
    shares: Shares,
    by_place: Vec<Mutex<ConnectionsByAge>>,
}

impl PrincipalConnections {
    /// Lists for `principals` principals. If they are not shared, a principal may have all connections.
    pub(crate) fn new(limits: &Limits, principals: usize, is_shared: bool) -> Arc<Self> {
        let shares = match is_shared {
            true => Shares::divided(
                // The rest is reserved for new connections, which have not sent a key yet.
                limits.connections_max - limits.new_connections_min(),
                principals,
                limits.principal_connections_max(),
                1,
            ),
            false => Shares::undivided(usize::MAX, principals),
        };
        Arc::new(Self { shares, by_place: (0..principals).map(|_| Mutex::default()).collect() })
    }

    /// Adds a connection of the principal at `index`; at the limit it replaces the oldest idle one. `None`
    /// if all are busy.
    pub(crate) fn add(
        self: &Arc<Self>,
        index: usize,
        eviction: &Arc<EvictionHandle>,
    ) -> Option<PrincipalPermit> {
        let mut listed = self.locked(index)?;
        // An evicted connection passes its part of the share to the new one.
        if !self.shares.try_add(index, 1) && !listed.evict_idle(None) {
            return None;
        }
        let number = listed.add(eviction);
        drop(listed);
        Some(PrincipalPermit { connections: Arc::clone(self), index, number })
    }

    fn locked(&self, index: usize) -> Option<MutexGuard<'_, ConnectionsByAge>> {
        let listed = self.by_place.get(index)?;
        Some(listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One connection of a principal, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct PrincipalPermit {
    connections: Arc<PrincipalConnections>,
    index: usize,
    number: u64,
}

impl Drop for PrincipalPermit {
    fn drop(&mut self) {
        let Some(mut listed) = self.connections.locked(self.index) else { return };
        if listed.remove(self.number) {
            self.connections.shares.remove(self.index, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Arc<EvictionHandle> {
        let eviction = Arc::new(EvictionHandle::default());
        eviction.running.store(1, Relaxed);
        eviction
    }

    fn shares() -> Arc<PrincipalConnections> {
        let limits = Limits { connections_max: 4, ..Limits::default() };
        PrincipalConnections::new(&limits, 2, true)
    }

    #[test]
    fn beyond_its_share_a_principal_loses_its_oldest_idle_connection() {
        let shares = shares();
        let (first, second, third) = (busy(), Arc::new(EvictionHandle::default()), busy());
        let _first = shares.add(0, &first).unwrap();
        let _second = shares.add(0, &second).unwrap();
        let _third = shares.add(0, &third).unwrap();
        assert!(second.evicted.is_cancelled() && !first.evicted.is_cancelled());
    }

    #[test]
    fn busy_connections_of_two_principals_leave_a_third_the_guaranteed_part() {
        let limits = Limits { connections_max: 16, ..Limits::default() };
        let shares = PrincipalConnections::new(&limits, 3, true);
        let fill = |index| (0..99).map_while(|_| shares.add(index, &busy())).collect::<Vec<_>>();
        let permits = [fill(0), fill(1)];
        assert_eq!(permits.each_ref().map(Vec::len), [8, 4]);
        assert_eq!(fill(2).len(), 2, "and two connections are left for new peers");
        drop(permits);
        assert_eq!(shares.shares.held(), 0);
    }

    #[test]
    fn an_evicted_connection_is_counted_once() {
        let shares = shares();
        let idle = shares.add(0, &Arc::default());
        let busy_ones = [shares.add(0, &busy()).unwrap(), shares.add(0, &busy()).unwrap()];
        drop(idle);
        assert!(shares.add(0, &busy()).is_none(), "two are busy");
        drop(busy_ones);
        assert_eq!(shares.shares.held(), 0);
    }

    #[test]
    fn a_full_share_of_busy_connections_does_not_affect_others() {
        let shares = shares();
        let first = shares.add(0, &busy());
        let _second = shares.add(0, &busy()).unwrap();
        assert!(shares.add(0, &busy()).is_none());
        assert!(shares.add(1, &busy()).is_some());
        drop(first);
        assert!(shares.add(0, &busy()).is_some());
    }
}
