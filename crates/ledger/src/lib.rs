//! The ledger: durable truth, behind small ports.
//!
//! Every adapter passes the one contract suite in `admit-testkit`, so a laptop on SQLite and a
//! cluster on PostgreSQL give the same verdicts on the same inputs.

pub mod effects;
pub mod port;
pub mod sqlite;

pub use effects::{AdvanceError, EffectFilter, EffectReader, Effects, Recovered, WithoutEffects};
pub use port::{Admissions, BoxFuture, Filter, Ledger, Reader, Status};
