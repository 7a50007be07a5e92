//! Builders of test events.

use std::sync::Arc;

use admit_core::json::Object;
use admit_core::projection::ProjectionState;
use admit_core::{
    Code, Digest, Door, EntityId, Entry, Event, Key, Millis, OnOtherContent, Principal, Projection,
    ProjectionError, RefusedSubmission,
};
use bytes::Bytes;

/// Door of test events.
pub const DOOR: &str = "test";

/// Event `name` with `content`; other content under its name is a conflict.
pub fn event(name: &str, content: &str) -> Event {
    Event {
        door: Door::new(DOOR),
        key: key(name),
        digest: Digest::of(content.as_bytes()),
        principal: Principal::new("local"),
        received_at: Millis(1_000),
        happened_at: None,
        body: Bytes::copy_from_slice(content.as_bytes()),
        attempt: Some(1),
        facts: Object::from_iter([("name", name.to_owned().into())]),
        on_other_content: OnOtherContent::Conflict,
        projections: Vec::new(),
        record: None,
        effect: None,
        inbox: None,
    }
}

/// Same, at the stream `door`.
pub fn streamed(door: &Door, name: &str, content: &str) -> Event {
    let key = Key::derive(door.as_str(), &[name.as_bytes()]);
    Event { door: door.clone(), key, ..event(name, content) }
}

/// Same event with a producer's wall time, received at that time.
pub fn happened(name: &str, content: &str, at: Millis) -> Event {
    Event { received_at: at, happened_at: Some(at), ..event(name, content) }
}

/// Key of events called `name`.
pub fn key(name: &str) -> Key {
    Key::derive(DOOR, &[name.as_bytes()])
}

/// Same event as a batch entry.
pub fn entry(name: &str, content: &str) -> Entry {
    Entry::Event(event(name, content))
}

/// Event for which other content is a revision.
pub fn revisable(name: &str, content: &str) -> Entry {
    Entry::Event(Event { on_other_content: OnOtherContent::Revision, ..event(name, content) })
}

/// Event that adds its content's length to the tally called `tally`.
pub fn counted(name: &str, content: &str, tally: &str) -> Entry {
    let projection = SumProjection {
        entity: tally.to_owned(),
        add: content.len(),
        fails: ProjectionFailure::Never,
    };
    Entry::Event(Event { projections: vec![Arc::new(projection)], ..event(name, content) })
}

/// Event whose projection fails in the given way.
pub fn poisoned(name: &str, fails: ProjectionFailure) -> Entry {
    let projection = SumProjection { entity: "poisoned".to_owned(), add: 1, fails };
    Entry::Event(Event { projections: vec![Arc::new(projection)], ..event(name, "poison") })
}

/// Submission that failed validation.
pub fn refused(body: &str) -> Entry {
    Entry::Refused(RefusedSubmission {
        door: Door::new(DOOR),
        principal: Principal::new("local"),
        received_at: Millis(1_000),
        body: Bytes::copy_from_slice(body.as_bytes()),
        attempt: None,
        code: Code::InvalidJson,
        message: "not json".to_owned(),
        facts: Object::default(),
    })
}

/// Failure mode of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionFailure {
    /// Succeeds.
    Never,
    /// Returns an error.
    WithError,
    /// Panics halfway.
    WithPanic,
}

/// Projection kind of [`SumProjection`].
pub const TALLY: &str = "test.tally";

/// Projection that sums.
#[derive(Debug)]
pub struct SumProjection {
    entity: String,
    add: usize,
    fails: ProjectionFailure,
}

struct SumState(usize);

impl ProjectionState for SumState {
    fn to_text(&self) -> String {
        self.0.to_string()
    }
}

impl Projection for SumProjection {
    fn entity(&self) -> EntityId {
        EntityId { projection: TALLY, entity: self.entity.clone() }
    }

    fn load(&self, stored: Option<&str>) -> Result<Box<dyn ProjectionState>, ProjectionError> {
        let sum = stored.map_or(Ok(0), str::parse).map_err(|error| self.error(&error))?;
        Ok(Box::new(SumState(sum)))
    }

    fn apply(&self, document: &mut dyn ProjectionState) -> Result<(), ProjectionError> {
        let document: &mut dyn std::any::Any = document;
        let sum: &mut SumState = document.downcast_mut().expect("a tally's document is a sum");
        match self.fails {
            ProjectionFailure::Never => sum.0 += self.add,
            ProjectionFailure::WithError => return Err(self.error(&"injected failure")),
            ProjectionFailure::WithPanic => {
                sum.0 += 1_000_000;
                panic!("injected panic");
            }
        }
        Ok(())
    }
}

impl SumProjection {
    fn error(&self, message: &dyn std::fmt::Display) -> ProjectionError {
        ProjectionError {
            projection: TALLY,
            entity: self.entity.clone(),
            message: message.to_string(),
        }
    }
}
