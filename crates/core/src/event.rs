//! `Submission`: raw request body. `Event`: a submission that passed contract validation.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::decide::OnOtherContent;
use crate::effect::Intent;
use crate::entity::EntityRule;
use crate::hash::{Digest, Key};
use crate::projection::Projection;
use crate::time::Millis;
use crate::{Code, json};

/// Name of a mounted contract, as stored in the ledger: `pixel-control`, `events/orders`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door(Arc<str>);

/// Name of an authenticated producer, the scope of everything it sends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

macro_rules! name {
    ($name:ident) => {
        impl $name {
            /// Wraps a name that the configuration has validated.
            pub fn new(name: &str) -> Self {
                Self(name.into())
            }

            /// Returns the name.
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
    /// Whether events of this door can be read from a position and claimed by consumers. Ledgers
    /// keep the order of these doors only.
    pub fn is_stream(&self) -> bool {
        self.0.starts_with("events/") || &*self.0 == "skyra"
    }

    /// Whether events of this stream are also in the inbox, where consumers find them by id.
    pub fn has_inbox(&self) -> bool {
        &*self.0 == "skyra"
    }
}

/// Raw request at a door, not validated yet.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Sender.
    pub principal: Principal,
    /// Time of arrival of the last byte.
    pub received_at: Millis,
    /// Body, stored byte for byte.
    pub body: Bytes,
    /// Headers that the contract reads (lower-case names).
    pub headers: Vec<(String, String)>,
    /// Randomness for contracts that generate ids; zero for others.
    pub nonce: [u8; 16],
}

impl Submission {
    /// Returns the value of the first header called `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Validated submission with key and digest, ready for admission.
#[derive(Clone)]
pub struct Event {
    /// Door of arrival.
    pub door: Door,
    /// Identity. One key is admitted once.
    pub key: Key,
    /// Content hash. The same key with another digest is never a plain duplicate.
    pub digest: Digest,
    /// Sender.
    pub principal: Principal,
    /// Time of receipt.
    pub received_at: Millis,
    /// Producer's wall time, if on the wire. Set only by contracts that refuse events [outside the
    /// horizon](crate::Horizon::is_outside): the ledger may purge such an event once it is.
    pub happened_at: Option<Millis>,
    /// Raw body.
    pub body: Bytes,
    /// Producer's delivery attempt counter, if on the wire.
    pub attempt: Option<u32>,
    /// Contract facts for the receipt, fixed at the first admission.
    pub facts: json::Object<'static>,
    /// Meaning of other content under a known key.
    pub on_other_content: OnOtherContent,
    /// In-ledger side effects, applied in the record commit of a fresh admission only.
    pub projections: Vec<Arc<dyn Projection>>,
    /// Entity rule and input, resolved in the record commit of a fresh admission and of every
    /// revision.
    pub record: Option<Arc<dyn EntityRule>>,
    /// Effect to perform outside the ledger, once, on a fresh admission.
    pub effect: Option<Intent>,
    /// Inbox id for contracts that have one. Ids are unique per ledger: a contract that sets this
    /// derives the key from the id alone.
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

/// Refused submission; kept with its reason, claims no key.
#[derive(Clone, Debug)]
pub struct RefusedSubmission {
    /// Door of arrival.
    pub door: Door,
    /// Sender.
    pub principal: Principal,
    /// Time of receipt.
    pub received_at: Millis,
    /// Raw body, kept as evidence.
    pub body: Bytes,
    /// Producer's delivery attempt counter, if readable.
    pub attempt: Option<u32>,
    /// Stable reason code.
    pub code: Code,
    /// Reason text, free of secrets.
    pub message: String,
    /// Facts that could still be extracted.
    pub facts: json::Object<'static>,
}

/// Entry of a record batch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Event to admit or deduplicate.
    Event(Event),
    /// Refused submission to keep.
    Refused(RefusedSubmission),
}

impl Entry {
    /// Key of the event; refused submissions have none.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Event(event) => Some(&event.key),
            Self::Refused(_) => None,
        }
    }
}
