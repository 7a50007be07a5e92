//! Entity resolution: source events about one entity are linked and merged by a pure rule.
//!
//! ```text
//!  source ──fold──▶ source thread ──compare──▶ identity ──link──▶ canonical ──merge──▶ entity
//!  event            one source,                matching           event that           fields with
//!                   one hard key               threads            opens an entity      value, source, event
//! ```
//!
//! A [`Policy`] defines the sources, the identifiers of their events, which source opens an entity
//! and the authority per field. The rest of this module is independent of the domain.
//!
//! Invariant: the result depends on the events around an arrival, never on the order of arrival
//! between sources. Only revisions by one source under one hard key are applied in ledger order.
//! The policy bounds the reach of an event ([`Policy::reach`]), so loading [`CandidateRange`] gives
//! the same result as resolving all events.

mod candidate_set;
mod canonical_event;
mod fingerprint;
mod identity;
mod link;
mod merge;
mod policy;
mod publish;
mod resolve;
mod rows;
mod source_event;
mod source_thread;
mod state;
mod stored_text;

pub use candidate_set::{
    CandidateRange, CandidateSet, DistantEvent, EntityInput, EntityRule, KnownLink, Resolution,
};
pub use fingerprint::{EntityIdentifiers, Fingerprint, FingerprintKind, FingerprintMatch};
pub use link::{Confidence, Link, LinkDiagnostics, LinkReason, LinkStatus, MatchBasis};
pub use merge::{Entity, EntityField, entity as merge_entity};
pub use policy::{FieldDomain, NumberTrust, Policy, ReplayRule, SourcePolicy};
pub use publish::{PUBLISH_NOT_WRITTEN, PUBLISH_UNKNOWN};
pub use resolve::resolve;
pub use rows::{Cell, Scalar, Table};
pub use source_event::{Acceptance, EventFields, ParseReport, ParseStatus, SourceEvent};
pub use state::{IllegalTransition, ProcessingState, Transition};
pub use stored_text::StoredTextError;
