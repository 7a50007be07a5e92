//! Binary of `admit`. The code is in the library of this crate, because a library compiles while its
//! dependencies are still being optimised and a binary must wait for them.

use std::process::ExitCode;

/// Events are allocated on one thread and freed on another, which is slow with the system allocator
/// (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    admit::main()
}

/// Disables transparent huge pages. The first access to one waits until the kernel has cleared two
/// megabytes, which took up to 20 ms on virtual machines, in the middle of a commit
/// (docs/decisions/0032). A failure is ignored: the gate works, with longer pauses.
#[cfg(target_os = "linux")]
fn use_small_pages() {
    rustix::thread::disable_transparent_huge_pages(true).unwrap_or_default();
}

#[cfg(not(target_os = "linux"))]
fn use_small_pages() {}
