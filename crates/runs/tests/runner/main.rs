//! The scenario runner on the golden pack: with a real ledger, real files and a real bus.

mod crash;
mod evidence;
mod race;
mod reemit;
mod submit;
mod world;
mod writers;
