//! What knocks and what comes in: a submission is bytes at a door, an event is a vetted one.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::decide::OnOtherContent;
use crate::effect::Intent;
use crate::hash::{Digest, Key};
use crate::projection::Projection;
use crate::record::RecordRule;
use crate::time::Millis;
use crate::{Code, json};

/// The name of a mounted contract, as it stands in the ledger: `pixel-control`, `events/orders`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door(Arc<str>);

/// The name of an authenticated producer. It is the scope of everything the producer sends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

macro_rules! name {
    ($name:ident) => {
        impl $name {
            /// Takes the name as it is; whoever configures it has checked it.
            pub fn new(name: &str) -> Self {
                Self(name.into())
            }

            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(Door);
name!(Principal);

impl Door {
    /// `true` when what comes in here can be read on from a place and claimed by consumers. Every
    /// ledger keeps the order of these doors, and of no others.
    pub fn is_stream(&self) -> bool {
        self.0.starts_with("events/") || &*self.0 == "skyra"
    }

    /// `true` when the events of this stream are in the inbox too, where consumers find them by id.
    pub fn has_inbox(&self) -> bool {
        &*self.0 == "skyra"
    }
}

/// Bytes at a door, with who sent them and when they came. Nothing has been looked at yet.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Who sent it.
    pub principal: Principal,
    /// When its last byte arrived.
    pub received_at: Millis,
    /// The body exactly as it came; it is kept exactly so.
    pub body: Bytes,
    /// What the transport said beside the body and the contract reads (lower-case names).
    pub headers: Vec<(String, String)>,
    /// Randomness for contracts that make up ids; zero for those that do not ask for it.
    pub nonce: [u8; 16],
}

impl Submission {
    /// The value of the first header called `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// A vetted submission: it has a name and a digest, and the ledger may admit it.
#[derive(Clone)]
pub struct Event {
    /// Where it came in.
    pub door: Door,
    /// Who it is. One key is admitted once.
    pub key: Key,
    /// What it says. The same key with another digest is never a plain duplicate.
    pub digest: Digest,
    /// Who sent it.
    pub principal: Principal,
    /// When it came.
    pub received_at: Millis,
    /// When it happened by the producer's own wall clock, where the wire says so. Only a contract
    /// that refuses what is [outside the horizon](crate::Horizon::is_outside) sets it: the ledger
    /// may forget such an event once it is.
    pub happened_at: Option<Millis>,
    /// The raw body.
    pub body: Bytes,
    /// The producer's own count of this delivery, where the wire carries one.
    pub attempt: Option<u32>,
    /// The contract's part of the receipt, fixed at the first admission.
    pub facts: json::Object<'static>,
    /// What another content under a known key means to this contract.
    pub on_other_content: OnOtherContent,
    /// The in-ledger side effects, applied in the record commit of a fresh admission only.
    pub projections: Vec<Arc<dyn Projection>>,
    /// What the event tells of a record, resolved in the record commit of a fresh admission and of
    /// every revision.
    pub record: Option<Arc<dyn RecordRule>>,
    /// What is to be done outside the ledger, once, if this is a fresh admission.
    pub effect: Option<Intent>,
    /// Under which id consumers find it in the inbox, for contracts that have one. Ids of one ledger
    /// are unique: whoever sets this makes the key of the id alone.
    pub inbox: Option<String>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("door", &self.door)
            .field("key", &self.key)
            .field("digest", &self.digest)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// A submission that could not be admitted. It is kept with its reason and claims no key.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Where it knocked.
    pub door: Door,
    /// Who sent it.
    pub principal: Principal,
    /// When it came.
    pub received_at: Millis,
    /// The raw body, kept as evidence.
    pub body: Bytes,
    /// The producer's own count of this delivery, where it could be read.
    pub attempt: Option<u32>,
    /// Why, as a stable code.
    pub code: Code,
    /// Why, for people; it never contains secrets.
    pub message: String,
    /// What the contract could still read of it.
    pub facts: json::Object<'static>,
}

/// One line of a record batch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// To be admitted, or recognised.
    Event(Event),
    /// To be kept as refused.
    Refused(Refused),
}

impl Entry {
    /// The key it is known by; what is refused has none.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Event(event) => Some(&event.key),
            Self::Refused(_) => None,
        }
    }
}
