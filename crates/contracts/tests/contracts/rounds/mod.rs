//! The door of rounds and the rule behind it, without a ledger: artifacts in, one record out.

mod artifacts;
mod damage;
mod identity;
mod linking;
mod merging;
mod orders;
mod world;
