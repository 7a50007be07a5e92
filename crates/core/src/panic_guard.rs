//! Notification of a panic in a thread that others depend on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `work`, the whole body of a thread. If it panics, calls `on_panic` before the thread ends:
/// otherwise callers would wait for a thread that no longer exists.
pub fn run<R>(work: impl FnOnce() -> R, on_panic: impl FnOnce()) -> R {
    // `AssertUnwindSafe`: the state of `work` is not used after a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        on_panic();
        resume_unwind(panic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_panic_calls_the_hook_once_and_propagates() {
        let calls = Cell::new(0);
        let on_panic = || calls.set(calls.get() + 1);
        assert_eq!(run(|| 7, on_panic), 7);
        assert_eq!(calls.get(), 0);
        let unwound = catch_unwind(AssertUnwindSafe(|| run(|| panic!("on purpose"), on_panic)));
        assert!(unwound.is_err());
        assert_eq!(calls.get(), 1);
    }
}
