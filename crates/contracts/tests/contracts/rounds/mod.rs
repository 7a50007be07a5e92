//! The rounds door and its merge rule, without a ledger: artifacts in, one record out.

mod artifacts;
mod damage;
mod identity;
mod linking;
mod merging;
mod orders;
mod world;
