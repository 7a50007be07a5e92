//! Lists of connections in the order in which they came, to close the oldest idle one where too many
//! are open, and the share of the connections that one principal may have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::shares::Shares;

/// What a list has to know of a connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests being answered.
    pub(crate) running: AtomicU32,
    /// Cancelled when the connection is to make room for another.
    pub(crate) evicted: CancellationToken,
}

impl Activity {
    fn is_idle(&self) -> bool {
        self.running.load(Relaxed) == 0
    }
}

/// Connections of one kind, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ByAge {
    next: u64,
    listed: BTreeMap<u64, Arc<Activity>>,
}

impl ByAge {
    /// Lists a connection under the number that is returned.
    pub(crate) fn add(&mut self, activity: &Arc<Activity>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.listed.insert(number, Arc::clone(activity));
        number
    }

    /// Whether it was listed.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.listed.remove(&number).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    /// Closes the oldest idle connection and no longer lists it; false if all are busy.
    pub(crate) fn evict_idle(&mut self, except: Option<u64>) -> bool {
        let idle = self
            .listed
            .iter()
            .find(|(number, activity)| Some(**number) != except && activity.is_idle());
        let number = idle.map(|(number, _)| *number);
        self.evict(number)
    }

    /// The same with the oldest one, idle or busy; false if there is no other than `except`.
    pub(crate) fn evict_oldest(&mut self, except: Option<u64>) -> bool {
        let number = self.listed.keys().copied().find(|number| Some(*number) != except);
        self.evict(number)
    }

    fn evict(&mut self, number: Option<u64>) -> bool {
        let evicted = number.and_then(|number| self.listed.remove(&number));
        if let Some(activity) = &evicted {
            activity.evicted.cancel();
        }
        evicted.is_some()
    }
}

/// The authenticated connections of each principal.
#[derive(Debug)]
pub(crate) struct PrincipalConnections {
    shares: Shares,
    by_place: Vec<Mutex<ByAge>>,
}

impl PrincipalConnections {
    /// For principals with so many `places`; without others a principal may have all connections.
    pub(crate) fn new(limits: &Limits, places: usize, is_shared: bool) -> Arc<Self> {
        let shares = match is_shared {
            true => Shares::divided(
                // The rest is for new connections, which have not shown a key yet.
                limits.connections_max - limits.new_connections_min(),
                places,
                limits.principal_connections_max(),
                1,
            ),
            false => Shares::undivided(usize::MAX, places),
        };
        Arc::new(Self { shares, by_place: (0..places).map(|_| Mutex::default()).collect() })
    }

    /// Counts a connection of the principal at `place`, if need be instead of its oldest idle one;
    /// none if it may have no more and all are busy.
    pub(crate) fn add(
        self: &Arc<Self>,
        place: usize,
        activity: &Arc<Activity>,
    ) -> Option<PrincipalPermit> {
        let mut listed = self.locked(place)?;
        // One that is closed leaves its part of the share to the new one.
        if !self.shares.try_add(place, 1) && !listed.evict_idle(None) {
            return None;
        }
        let number = listed.add(activity);
        drop(listed);
        Some(PrincipalPermit { connections: Arc::clone(self), place, number })
    }

    fn locked(&self, place: usize) -> Option<MutexGuard<'_, ByAge>> {
        let listed = self.by_place.get(place)?;
        Some(listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One connection of a principal. It is no longer counted when this is dropped.
#[derive(Debug)]
pub(crate) struct PrincipalPermit {
    connections: Arc<PrincipalConnections>,
    place: usize,
    number: u64,
}

impl Drop for PrincipalPermit {
    fn drop(&mut self) {
        let Some(mut listed) = self.connections.locked(self.place) else { return };
        if listed.remove(self.number) {
            self.connections.shares.remove(self.place, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Arc<Activity> {
        let activity = Arc::new(Activity::default());
        activity.running.store(1, Relaxed);
        activity
    }

    fn shares() -> Arc<PrincipalConnections> {
        let limits = Limits { connections_max: 4, ..Limits::default() };
        PrincipalConnections::new(&limits, 2, true)
    }

    #[test]
    fn beyond_its_share_a_principal_loses_its_oldest_idle_connection() {
        let shares = shares();
        let (first, second, third) = (busy(), Arc::new(Activity::default()), busy());
        let _first = shares.add(0, &first).unwrap();
        let _second = shares.add(0, &second).unwrap();
        let _third = shares.add(0, &third).unwrap();
        assert!(second.evicted.is_cancelled() && !first.evicted.is_cancelled());
    }

    #[test]
    fn busy_connections_of_two_principals_leave_a_third_what_is_kept_for_it() {
        let limits = Limits { connections_max: 16, ..Limits::default() };
        let shares = PrincipalConnections::new(&limits, 3, true);
        let fill = |place| (0..99).map_while(|_| shares.add(place, &busy())).collect::<Vec<_>>();
        let held = [fill(0), fill(1)];
        assert_eq!(held.each_ref().map(Vec::len), [8, 4]);
        assert_eq!(fill(2).len(), 2, "and two places are left to new connections");
        drop(held);
        assert_eq!(shares.shares.held(), 0);
    }

    #[test]
    fn a_connection_that_was_closed_for_another_is_counted_once() {
        let shares = shares();
        let idle = shares.add(0, &Arc::default());
        let busy_ones = [shares.add(0, &busy()).unwrap(), shares.add(0, &busy()).unwrap()];
        drop(idle);
        assert!(shares.add(0, &busy()).is_none(), "two are busy");
        drop(busy_ones);
        assert_eq!(shares.shares.held(), 0);
    }

    #[test]
    fn a_share_of_busy_connections_takes_no_more_and_leaves_others_theirs() {
        let shares = shares();
        let first = shares.add(0, &busy());
        let _second = shares.add(0, &busy()).unwrap();
        assert!(shares.add(0, &busy()).is_none());
        assert!(shares.add(1, &busy()).is_some());
        drop(first);
        assert!(shares.add(0, &busy()).is_some());
    }
}
