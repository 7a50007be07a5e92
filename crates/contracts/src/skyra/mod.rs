//! `skyra`: edge devices send envelopes until each is acknowledged; consumers read them from the
//! inbox.
//!
//! The identity of an event is its `event_id` alone, across all devices: the id is the primary key
//! of the inbox. ACK and NACK carry it, because one connection has many events in flight. An ACK
//! means "stored": for the first delivery, for a copy, and for other content under a known id, of
//! which the first stays and the other is stored as a conflict. Where principals are configured,
//! other content under an id of another principal gets a NACK instead.

mod describe;
mod reply;
mod ts;
mod vet;

use std::time::Duration;

use admit_core::{Code, Door, Entry, Millis, RecordedEntry, Submission};

use crate::{Contract, Description, RefusalContext, Reply};

pub use reply::nack_code;
pub use vet::recompute;

/// Default door name of this contract.
pub const DOOR: &str = "skyra";

/// Longest `event_id`, in characters.
pub const EVENT_ID_CHARS_MAX: usize = 255;

/// Settings of this door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum nesting depth of an envelope.
    pub json_depth_max: usize,
    /// Whether an id belongs to the principal that first sent it: other content from another
    /// principal is then refused. Off where no principals are configured.
    pub owned_ids: bool,
    /// Longest wait for a reply, if longer than `limits.answer_ms_max`.
    pub answer_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { json_depth_max: 128, owned_ids: false, answer_max: Duration::ZERO }
    }
}

/// The `skyra` contract. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skyra {
    settings: Settings,
}

impl Skyra {
    /// Creates the contract.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Contract for Skyra {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        let received_at = match &recorded.entry {
            Entry::Event(event) => event.received_at,
            Entry::Refused(refused) => refused.received_at,
        };
        reply::reply(recorded, received_at)
    }

    fn reply_at(&self, recorded: &RecordedEntry, now: Millis) -> Reply {
        reply::reply(recorded, now)
    }

    fn refuse(&self, code: Code, message: &str, _retry_after_seconds: u32) -> Reply {
        reply::nack(None, code, message, Millis::default())
    }

    fn refuse_about(&self, about: RefusalContext<'_>, code: Code, message: &str, _: u32) -> Reply {
        let event_id = vet::event_id(about.body, self.settings.json_depth_max);
        reply::nack(event_id.as_deref(), code, message, about.now)
    }

    fn takes_messages(&self) -> bool {
        true
    }

    fn answer_max(&self) -> Duration {
        self.settings.answer_max
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}
