//! The binary `admit`. What it does is in the library beside it, which is compiled while the crates
//! below are still being optimised; a binary would have to wait for them.

use std::process::ExitCode;

/// Events are allocated on one thread and freed on another, over and over, which is what the
/// system's allocator does worst (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    admit::main()
}

/// The allocator asks for huge pages, and whoever touches one first waits until the system has cleared
/// two megabytes. On virtual machines that was seen to take 20 ms, in the middle of a commit
/// (docs/decisions/0032). A system that cannot do without huge pages serves as well, with longer waits.
#[cfg(target_os = "linux")]
fn use_small_pages() {
    rustix::thread::disable_transparent_huge_pages(true).unwrap_or_default();
}

#[cfg(not(target_os = "linux"))]
fn use_small_pages() {}
