//! Records: one entity told of by several sources, put together by a rule that is pure.
//!
//! ```text
//!  told ──fold──▶ strand ──compare──▶ identity ──link──▶ anchor ──merge──▶ record
//!  event          one source,         strands that       what a record     every field with
//!                 one hard key        name the same      hangs on          value, source, event
//! ```
//!
//! A [`Policy`] says which sources there are, what names their events, which of them opens a record
//! and who is to be believed about which field. Nothing else here knows what the records are about.
//!
//! Invariant: what becomes of an event depends on the events around it and never on the order in
//! which sources spoke. Only what one source says again under one hard key goes by ledger order.
//! How far "around" reaches is fixed by the policy ([`Policy::reach`]), so whoever resolves an
//! arrival loads [`Range`] and gets what resolving everything there is would have said.

mod anchor;
mod event;
mod fingerprint;
mod identity;
mod link;
mod merge;
mod neighbourhood;
mod policy;
mod publish;
mod resolve;
mod rows;
mod state;
mod strand;
mod text;

pub use event::{Acceptance, Fields, Parse, ParseStatus, SourceEvent};
pub use fingerprint::{Fingerprint, Kind, Likeness, Named};
pub use link::{Confidence, Diagnostics, Link, LinkStatus, Matched, Reason};
pub use merge::{Field, Record, record as merged};
pub use neighbourhood::{Far, Known, Neighbourhood, Range, RecordRule, Resolution, Told};
pub use policy::{Domain, Number, Policy, Replay, Source};
pub use publish::{PUBLISH_NOT_WRITTEN, PUBLISH_UNKNOWN};
pub use resolve::resolve;
pub use rows::{Cell, Scalar, Table};
pub use state::{Illegal, State, Transition};
pub use text::NotStored;
