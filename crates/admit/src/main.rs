//! The binary `admit`. What it does is in the library beside it, which is compiled while the crates
//! below are still being optimised; a binary would have to wait for them.

use std::process::ExitCode;

/// Events are allocated on one thread and freed on another, over and over, which is what the
/// system's allocator does worst (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    admit::main()
}
