//! `skyra`: edge devices send envelopes until each is acknowledged; consumers find them in the inbox.
//!
//! An event is who its `event_id` says it is, whichever device sends it: the id is the primary key of
//! the inbox. ACK and NACK carry it, because on one connection many events are under way at once.
//! The ACK says "stored" and means it: for the first delivery, for a copy, and for an event whose id
//! is known with other content, of which the first stays and the other is kept as a conflict. Where
//! principals are configured, other content under an id of another principal is a NACK instead.

mod describe;
mod reply;
mod ts;
mod vet;

use std::time::Duration;

use admit_core::{Code, Door, Entry, Millis, Recorded, Submission};

use crate::{About, Contract, Description, Reply};

pub use reply::nack_code;
pub use vet::recompute;

/// The name of the door this contract is made for.
pub const DOOR: &str = "skyra";

/// The longest `event_id`, in characters.
pub const EVENT_ID_CHARS_MAX: usize = 255;

/// The settings of this door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Deepest nesting of an envelope.
    pub json_depth_max: usize,
    /// Whether ids belong to the principal that first sent them: other content of another principal
    /// is then refused. Off where no principals are configured.
    pub owned_ids: bool,
    /// Longest wait for an answer, where that is more than `limits.answer_ms_max`.
    pub answer_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { json_depth_max: 128, owned_ids: false, answer_max: Duration::ZERO }
    }
}

/// The contract. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skyra {
    settings: Settings,
}

impl Skyra {
    /// The contract with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Contract for Skyra {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &Recorded) -> Reply {
        let received_at = match &recorded.entry {
            Entry::Event(event) => event.received_at,
            Entry::Refused(refused) => refused.received_at,
        };
        reply::reply(recorded, received_at)
    }

    fn reply_at(&self, recorded: &Recorded, now: Millis) -> Reply {
        reply::reply(recorded, now)
    }

    fn refuse(&self, code: Code, message: &str, _retry_after_seconds: u32) -> Reply {
        reply::nack(None, code, message, Millis::default())
    }

    fn refuse_about(&self, about: About<'_>, code: Code, message: &str, _: u32) -> Reply {
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
