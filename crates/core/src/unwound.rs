//! What must still happen when a thread that others rely on ends by a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `work`, which is all of a thread. If it panics, `tell` runs before the thread ends: one that is
/// gone answers nobody, and whoever depends on it would go on as if it were there.
pub fn or_tell<R>(work: impl FnOnce() -> R, tell: impl FnOnce()) -> R {
    // Nothing of the work is used again, whatever state it was left in.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        tell();
        resume_unwind(panic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_panic_is_told_and_goes_on_and_nothing_else_is_told() {
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        assert_eq!(or_tell(|| 7, tell), 7);
        assert_eq!(told.get(), 0);
        let unwound = catch_unwind(AssertUnwindSafe(|| or_tell(|| panic!("on purpose"), tell)));
        assert!(unwound.is_err());
        assert_eq!(told.get(), 1);
    }
}
