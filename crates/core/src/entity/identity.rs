//! Identities: source threads of different sources that match each other.

use super::fingerprint::{EntityIdentifiers, FingerprintMatch};
use super::link::{LinkReason, MatchBasis};
use super::policy::Policy;
use super::source_thread::SourceThread;

/// Thread within an identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Index of the thread.
    pub(super) thread: usize,
    /// Basis of the match with earlier members; `None` for the first.
    pub(super) joined: Option<MatchBasis>,
}

/// Matching threads. The first is the most trusted and represents the identity.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Combined identifiers.
    pub(super) identifiers: EntityIdentifiers,
    /// Members.
    pub(super) members: Vec<Member>,
}

impl Identity {
    /// Most trusted thread.
    pub(super) fn leader<'s, 'e>(&self, threads: &'s [SourceThread<'e>]) -> &'s SourceThread<'e> {
        &threads[self.members[0].thread]
    }
}

/// Thread that contradicts a more trusted one about the same entity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clash {
    pub(super) thread: usize,
    pub(super) reason: LinkReason,
}

/// Identities and clashes of threads that open no entity.
pub(super) struct Identities {
    pub(super) identities: Vec<Identity>,
    pub(super) clashes: Vec<Clash>,
}

/// Groups threads, most trusted first: each joins a matching identity, clashes with one, or starts
/// its own.
pub(super) fn identities(policy: &Policy, threads: &[SourceThread<'_>]) -> Identities {
    let mut found = Identities { identities: Vec::new(), clashes: Vec::new() };
    let stated = threads.iter().enumerate().filter(|(_, thread)| !thread.opens);
    let (linkable, others): (Vec<_>, Vec<_>) = stated.partition(|(_, thread)| thread.is_linkable());
    for (place, thread) in linkable {
        match place_thread(policy, threads, &found.identities, thread) {
            ThreadPlacement::Joins(identity, matched) => {
                let identity = &mut found.identities[identity];
                identity.identifiers.fill_from(&thread.identifiers);
                identity.members.push(Member { thread: place, joined: Some(matched) });
            }
            ThreadPlacement::Clashes(reason) => found.clashes.push(Clash { thread: place, reason }),
            ThreadPlacement::Alone => found.identities.push(Identity {
                identifiers: thread.identifiers.clone(),
                members: vec![Member { thread: place, joined: None }],
            }),
        }
    }
    // Threads without a group join by hard key.
    for (place, thread) in others.into_iter().filter(|(_, thread)| thread.needs_hard_key()) {
        let mut owners = found.identities.iter_mut();
        if let Some(owner) = owners.find(|one| shares_hard_key(policy, threads, one, thread)) {
            owner.members.push(Member { thread: place, joined: Some(MatchBasis::HardKey) });
        }
    }
    found
}

enum ThreadPlacement {
    Joins(usize, MatchBasis),
    Clashes(LinkReason),
    Alone,
}

fn place_thread(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    identities: &[Identity],
    thread: &SourceThread<'_>,
) -> ThreadPlacement {
    let near = |identity: &Identity| {
        let times = identity.leader(threads).time().zip(thread.time());
        times.is_none_or(|(one, two)| one.abs_diff(two) <= policy.span_seconds.unsigned_abs())
    };
    let around = || identities.iter().enumerate().filter(|(_, identity)| near(identity));
    for (place, identity) in around() {
        if let FingerprintMatch::Same(kind) = identity.identifiers.compare(&thread.identifiers) {
            return ThreadPlacement::Joins(place, MatchBasis::Fingerprint(kind));
        }
    }
    for (place, identity) in around() {
        if shares_hard_key(policy, threads, identity, thread)
            && identity.identifiers.group == thread.identifiers.group
        {
            let is_other =
                identity.identifiers.contradicts(&thread.identifiers, policy.tolerance_seconds);
            return match is_other {
                true => ThreadPlacement::Clashes(LinkReason::HardKeyCollision),
                false => ThreadPlacement::Joins(place, MatchBasis::HardKey),
            };
        }
    }
    let clashes = |identity: &Identity| {
        matches!(identity.identifiers.compare(&thread.identifiers), FingerprintMatch::Other(_))
            && identity.identifiers.shares_a_time(&thread.identifiers)
    };
    match around().any(|(_, identity)| clashes(identity)) {
        true => ThreadPlacement::Clashes(LinkReason::FingerprintMismatch),
        false => ThreadPlacement::Alone,
    }
}

/// Whether a thread shares a hard key with an identity, within one family of sources.
fn shares_hard_key(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    identity: &Identity,
    thread: &SourceThread<'_>,
) -> bool {
    let Some(hard_key) = thread.hard_key() else { return false };
    identity.members.iter().map(|member| &threads[member.thread]).any(|other| {
        other.hard_key() == Some(hard_key)
            && policy.family(other.source) == policy.family(thread.source)
    })
}
