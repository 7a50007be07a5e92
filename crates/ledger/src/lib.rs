//! The ledger: durable truth, behind small ports.
//!
//! Every adapter passes the one contract suite in `admit-testkit`, so a laptop on SQLite and a
//! cluster on PostgreSQL give the same verdicts on the same inputs.

pub mod closures;
mod common;
#[cfg(feature = "postgres")]
pub mod copy;
mod db;
pub mod effects;
pub mod gauges;
pub mod issuance;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod publications;
pub mod retention_guard;
mod rules;
pub mod scenario_runs;
pub mod sqlite;
mod tables;
pub mod verify;
mod verify_inbox;
mod verify_laws;
mod verify_records;

pub use common::{RefusalQuota, SchemaMigration};
pub use effects::{AdvanceError, EffectFilter, EffectReader, Effects, RecoveredEffects};
pub use gauges::Gauges;
pub use issuance::{
    DocumentFilter, DocumentReader, FileNote, FollowUp, Handover, Issuance, IssueHandlers,
    RecordedDelivery, Run, RunCounts, SettledCopy, SettledEffect, Settlement,
};
pub use port::{
    Admissions, BoxFuture, Claims, GateStatus, Inbox, Ledger, Reader, ReceiptFilter, ReceiptPage,
    RecordReader, Records, Retention, Status, StreamNotifier, Streams, WholeLedger,
};
pub use publications::{PublicationReader, Publications};
pub use retention_guard::RetentionGuard;
