//! Identities: strands of different sources that name the same thing.

use super::fingerprint::{Likeness, Named};
use super::link::{Matched, Reason};
use super::policy::Policy;
use super::strand::Strand;

/// A strand within an identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Which strand.
    pub(super) strand: usize,
    /// What it has in common with those before it; nothing for the first.
    pub(super) joined: Option<Matched>,
}

/// Strands that belong together. The first is the most trusted and speaks for all.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// What they are named by, all together.
    pub(super) named: Named,
    /// The strands.
    pub(super) members: Vec<Member>,
}

impl Identity {
    /// The strand that speaks for all.
    pub(super) fn leader<'s, 'e>(&self, strands: &'s [Strand<'e>]) -> &'s Strand<'e> {
        &strands[self.members[0].strand]
    }
}

/// A strand that says otherwise than a more trusted one about the same thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clash {
    pub(super) strand: usize,
    pub(super) reason: Reason,
}

/// What the strands that open nothing come to.
pub(super) struct Identities {
    pub(super) identities: Vec<Identity>,
    pub(super) clashes: Vec<Clash>,
}

/// Puts the strands together, the most trusted first: each joins those that are named alike, or
/// clashes with them, or stands for itself.
pub(super) fn identities(policy: &Policy, strands: &[Strand<'_>]) -> Identities {
    let mut found = Identities { identities: Vec::new(), clashes: Vec::new() };
    let told = strands.iter().enumerate().filter(|(_, strand)| !strand.opens);
    let (linkable, others): (Vec<_>, Vec<_>) = told.partition(|(_, strand)| strand.is_linkable());
    for (place, strand) in linkable {
        match meet(policy, strands, &found.identities, strand) {
            Meeting::Joins(identity, matched) => {
                let identity = &mut found.identities[identity];
                identity.named.fill_from(&strand.named);
                identity.members.push(Member { strand: place, joined: Some(matched) });
            }
            Meeting::Clashes(reason) => found.clashes.push(Clash { strand: place, reason }),
            Meeting::Alone => found.identities.push(Identity {
                named: strand.named.clone(),
                members: vec![Member { strand: place, joined: None }],
            }),
        }
    }
    // What does not say where it belongs is led there by its hard key.
    for (place, strand) in others.into_iter().filter(|(_, strand)| strand.is_lost()) {
        let mut owners = found.identities.iter_mut();
        if let Some(owner) = owners.find(|one| shares_hard_key(policy, strands, one, strand)) {
            owner.members.push(Member { strand: place, joined: Some(Matched::HardKey) });
        }
    }
    found
}

enum Meeting {
    Joins(usize, Matched),
    Clashes(Reason),
    Alone,
}

fn meet(
    policy: &Policy,
    strands: &[Strand<'_>],
    identities: &[Identity],
    strand: &Strand<'_>,
) -> Meeting {
    let near = |identity: &Identity| {
        let times = identity.leader(strands).time().zip(strand.time());
        times.is_none_or(|(one, two)| one.abs_diff(two) <= policy.span_seconds.unsigned_abs())
    };
    let around = || identities.iter().enumerate().filter(|(_, identity)| near(identity));
    for (place, identity) in around() {
        if let Likeness::Same(kind) = identity.named.likeness(&strand.named) {
            return Meeting::Joins(place, Matched::Fingerprint(kind));
        }
    }
    for (place, identity) in around() {
        if shares_hard_key(policy, strands, identity, strand)
            && identity.named.group == strand.named.group
        {
            let is_other = identity.named.contradicts(&strand.named, policy.tolerance_seconds);
            return match is_other {
                true => Meeting::Clashes(Reason::HardKeyCollision),
                false => Meeting::Joins(place, Matched::HardKey),
            };
        }
    }
    let clashes = |identity: &Identity| {
        matches!(identity.named.likeness(&strand.named), Likeness::Other(_))
            && identity.named.shares_a_time(&strand.named)
    };
    match around().any(|(_, identity)| clashes(identity)) {
        true => Meeting::Clashes(Reason::FingerprintMismatch),
        false => Meeting::Alone,
    }
}

/// Whether a strand has the hard key of an identity, in the same family of sources.
fn shares_hard_key(
    policy: &Policy,
    strands: &[Strand<'_>],
    identity: &Identity,
    strand: &Strand<'_>,
) -> bool {
    let Some(hard_key) = strand.hard_key() else { return false };
    identity.members.iter().map(|member| &strands[member.strand]).any(|other| {
        other.hard_key() == Some(hard_key)
            && policy.family(other.source) == policy.family(strand.source)
    })
}
