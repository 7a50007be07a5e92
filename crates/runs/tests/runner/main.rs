//! Tests of the scenario runner on the golden pack, with a real ledger, real files and a real bus.

mod concurrency;
mod crash;
mod evidence;
mod reemit;
mod submit;
mod world;
mod write_scope;
