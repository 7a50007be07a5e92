//! Limit on the work of schema checks, counted in steps.
//!
//! A schema may cause work that grows faster than the event, such as `anyOf` over a recursive
//! `$ref`. One step is about one access to a value. Steps instead of time, because then the verdict
//! on an event is the same on every machine and under any load, and because a contract reads no
//! clock.
//!
//! The validator calls into [`super::node`] for every value it reads; those calls [charge] the
//! allowance of the thread. When it is used up they unwind to the start of the check, without the
//! panic hook. The validator keeps no state between checks, so nothing is left inconsistent.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::rc::Rc;

use super::cost::Costs;

/// Steps that the check of any event may take: tens of milliseconds.
const STEPS_MIN: u64 = 500_000;

/// Steps per value of an event, if that is more. An ordinary schema takes about ten.
pub(super) const STEPS_PER_VALUE: u64 = 100;

/// Accesses per text and key, if that is more.
pub(super) const READS_PER_TEXT: u64 = 4;

/// Maximum steps for the check of one event of any size: about a second.
const STEPS_MAX: u64 = 20_000_000;

/// Maximum steps for listing the violations of an event.
const DETAIL_STEPS_MAX: u64 = 200_000;

/// Steps between two checks of the time limit: below a millisecond.
const STEPS_PER_TIME_CHECK: u64 = 8_192;

/// Maximum stack for the check of one event, of the 2 MiB that a serving thread has.
const STACK_BYTES_MAX: usize = 1024 * 1024;

/// Work allowed on a thread that also serves other requests.
#[derive(Debug)]
pub struct Budget {
    steps: u64,
}

impl Budget {
    /// For all events of one request together: a few milliseconds.
    const REQUEST_STEPS: u64 = 50_000;

    /// Size of the bodies that [`Self::REQUEST_STEPS`] are for.
    const REQUEST_BYTES: usize = 64 * 1024;

    /// Creates the budget of one request.
    pub const fn of_request() -> Self {
        Self { steps: Self::REQUEST_STEPS }
    }

    /// Creates the budget of one request with large bodies of `bytes` in total. It grows with them, as the
    /// time to parse them does.
    pub const fn of_bytes(bytes: usize) -> Self {
        let requests = bytes.div_ceil(Self::REQUEST_BYTES) as u64;
        Self { steps: Self::REQUEST_STEPS.saturating_mul(requests) }
    }
}

/// Reason why a check ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckAborted {
    /// Too many steps, or too deep a recursion.
    TooCostly,
    /// The event is invalid, and listing its violations would take too many steps.
    DetailsTooCostly,
    /// The validator panicked.
    Defect,
}

impl CheckAborted {
    /// Description as a violation.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::TooCostly => "check aborted: the schema takes more steps than one event may use",
            Self::DetailsTooCostly => "invalid; listing the violations would take too many steps",
            Self::Defect => "check aborted: the schema validator failed",
        }
    }
}

/// Panic payload that unwinds a check whose allowance is used up.
struct AllowanceExhausted;

/// Panic payload that unwinds a check whose time is up.
struct TimeLimitReached;

#[derive(Clone, Copy)]
struct Allowance {
    steps: u64,
    /// Address below which the stack is too deep; 0 for no limit.
    stack_end: usize,
    /// Whether it belongs to a [`Budget`] and thus to more than one check.
    is_budget: bool,
}

thread_local! {
    static ALLOWANCE: Cell<Allowance> =
        const { Cell::new(Allowance { steps: u64::MAX, stack_end: 0, is_budget: false }) };
}

thread_local! {
    static COSTS: Cell<Costs> = const { Cell::new(Costs::LOWEST) };
}

/// Charges one access to a text that a pattern may be matched against.
pub(super) fn charge_text(text: &str) {
    charge(COSTS.get().text.steps(text.len()).saturating_add(1));
}

/// Charges one access to a key that patterns may be matched against.
pub(super) fn charge_key(key: &str) {
    charge(COSTS.get().key.steps(key.len()).saturating_add(1));
}

/// Takes `steps` off the allowance of this thread. Unwinds to the start of the check if fewer are
/// left.
#[inline]
pub(super) fn charge(steps: u64) {
    let allowance = ALLOWANCE.get();
    let marker = 0_u8;
    match allowance.steps.checked_sub(steps) {
        Some(left) if ptr::from_ref(&marker).addr() > allowance.stack_end => {
            ALLOWANCE.set(Allowance { steps: left, ..allowance });
            if left / STEPS_PER_TIME_CHECK != allowance.steps / STEPS_PER_TIME_CHECK {
                unwind_if_late();
            }
        }
        _ => resume_unwind(Box::new(AllowanceExhausted)),
    }
}

type IsLate = Rc<dyn Fn() -> bool>;

thread_local! {
    static IS_LATE: RefCell<Option<IsLate>> = const { RefCell::new(None) };
}

#[cold]
fn unwind_if_late() {
    let is_late = IS_LATE.with_borrow(Option::clone);
    if is_late.is_some_and(|is_late| is_late()) {
        resume_unwind(Box::new(TimeLimitReached));
    }
}

/// Guard that restores the time limit of the thread, also on unwind.
struct TimeLimitGuard(Option<IsLate>);

impl Drop for TimeLimitGuard {
    fn drop(&mut self) {
        IS_LATE.set(self.0.take());
    }
}

/// Runs `work`, whose checks end without a verdict as soon as `is_late` returns true: then `None`.
/// `is_late` is polled now and then and limits only how long the thread is occupied; no verdict
/// depends on it.
pub fn unless_late<T>(is_late: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> Option<T> {
    let _restored = TimeLimitGuard(IS_LATE.replace(Some(Rc::new(is_late))));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<TimeLimitReached>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Guard that restores the allowance of the thread, also on unwind.
struct AllowanceGuard(Allowance);

impl Drop for AllowanceGuard {
    fn drop(&mut self) {
        ALLOWANCE.set(self.0);
    }
}

/// Runs `work` with an allowance and returns how many steps of it are left.
fn with<T>(steps: u64, is_budget: bool, work: impl FnOnce() -> T) -> (Result<T, Payload>, u64) {
    let marker = 0_u8;
    let stack_end = ptr::from_ref(&marker).addr().saturating_sub(STACK_BYTES_MAX);
    let _restored = AllowanceGuard(ALLOWANCE.replace(Allowance { steps, stack_end, is_budget }));
    let done = catch_unwind(AssertUnwindSafe(work));
    (done, ALLOWANCE.get().steps)
}

type Payload = Box<dyn Any + Send>;

/// Runs `work`, whose checks may use the rest of `budget`. `None` if that is not enough.
pub(crate) fn within<T>(budget: &mut Budget, work: impl FnOnce() -> T) -> Option<T> {
    let (done, left) = with(budget.steps, true, work);
    budget.steps = left;
    match done {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<AllowanceExhausted>() => {
            budget.steps = 0;
            None
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `work` within the budget of the thread if it has one, else within `steps`.
fn limited<T>(steps: u64, work: impl FnOnce() -> T) -> Result<T, CheckAborted> {
    let of_budget = ALLOWANCE.get().is_budget;
    let done = match of_budget {
        true => catch_unwind(AssertUnwindSafe(work)),
        false => with(steps, false, work).0,
    };
    done.map_err(|payload| match payload.is::<AllowanceExhausted>() {
        true if of_budget => resume_unwind(payload),
        false if payload.is::<TimeLimitReached>() => resume_unwind(payload),
        true => CheckAborted::TooCostly,
        false => CheckAborted::Defect,
    })
}

/// Guard that restores the cost of texts on this thread, also on unwind.
struct CostsGuard(Costs);

impl Drop for CostsGuard {
    fn drop(&mut self) {
        COSTS.set(self.0);
    }
}

/// Runs `work` with the text costs of the patterns of its schema.
pub(super) fn at<T>(costs: Costs, work: impl FnOnce() -> T) -> T {
    let _restored = CostsGuard(COSTS.replace(costs));
    work()
}

/// Runs the check of one event. The allowance grows with the event: `sized` counts its steps.
pub(super) fn check<T>(
    sized: impl FnOnce() -> u64,
    work: impl Fn() -> T,
) -> Result<T, CheckAborted> {
    match limited(STEPS_MIN, &work) {
        // Counting walks the whole event and is rarely needed.
        Err(CheckAborted::TooCostly) => {
            let steps = sized().min(STEPS_MAX);
            if steps > STEPS_MIN { limited(steps, work) } else { Err(CheckAborted::TooCostly) }
        }
        done => done,
    }
}

/// Runs the listing of an event's violations.
pub(super) fn details<T>(work: impl FnOnce() -> T) -> Result<T, CheckAborted> {
    limited(DETAIL_STEPS_MAX, work).map_err(|stopped| match stopped {
        CheckAborted::TooCostly | CheckAborted::DetailsTooCostly => CheckAborted::DetailsTooCostly,
        CheckAborted::Defect => CheckAborted::Defect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks an event of one value.
    fn one<T>(work: impl Fn() -> T) -> Result<T, CheckAborted> {
        check(|| 1, work)
    }

    #[test]
    fn a_check_ends_when_its_steps_are_used_up() {
        assert_eq!(one(|| charge(STEPS_MIN)), Ok(()));
        let endless = || {
            loop {
                charge(1_000);
            }
        };
        assert_eq!(one(endless), Err::<(), _>(CheckAborted::TooCostly));
        assert_eq!(details(endless), Err::<(), _>(CheckAborted::DetailsTooCostly));
        assert_eq!(one(|| charge(STEPS_MIN)), Ok(()), "the next one begins anew");
    }

    #[test]
    fn a_large_event_may_take_more_steps_but_not_any_number() {
        let of_values = |values: u64, steps| {
            check(|| values.saturating_mul(STEPS_PER_VALUE), || charge(steps)).is_ok()
        };
        assert!(of_values(100_000, 100 * STEPS_PER_VALUE * 1_000));
        assert!(!of_values(100_000, 101 * STEPS_PER_VALUE * 1_000));
        assert!(!of_values(u64::MAX, STEPS_MAX + 1));
    }

    #[test]
    fn a_check_ends_without_a_verdict_when_the_time_of_its_thread_is_up() {
        let looks = Rc::new(Cell::new(0));
        let polls = Rc::clone(&looks);
        let is_late = move || {
            polls.set(polls.get() + 1);
            polls.get() > 3
        };
        let endless = || {
            loop {
                charge(100);
            }
        };
        assert_eq!(unless_late(is_late, || one(endless)), None::<Result<(), _>>);
        assert_eq!(looks.get(), 4);
        assert_eq!(
            unless_late(|| false, || one(endless)),
            Some(Err::<(), _>(CheckAborted::TooCostly))
        );
        assert_eq!(unless_late(|| true, || details(endless)), None::<Result<(), _>>);
        assert_eq!(one(|| charge(STEPS_MIN)), Ok(()), "time is up only within that work");
    }

    #[test]
    fn a_panic_inside_of_a_check_is_a_result() {
        assert_eq!(one(|| panic!("a defect of the validator")), Err::<(), _>(CheckAborted::Defect));
    }

    #[test]
    fn a_recursion_that_is_too_deep_ends_before_the_stack_does() {
        fn deeper(depth: u64) -> u64 {
            charge(1);
            let padding = std::hint::black_box([depth; 64]);
            if depth == u64::MAX { depth } else { deeper(depth + 1) + padding[3] }
        }
        assert_eq!(one(|| deeper(0)), Err(CheckAborted::TooCostly));
    }

    #[test]
    fn the_checks_of_a_request_share_its_budget() {
        let mut budget = Budget { steps: 10 };
        assert_eq!(within(&mut budget, || one(|| charge(6))), Some(Ok(())));
        assert_eq!(within(&mut budget, || one(|| charge(6))), None);
        assert_eq!(within(&mut budget, || 1), Some(1), "what checks nothing needs nothing");
        assert_eq!(one(|| charge(6)), Ok(()), "without a budget there is the limit of one check");
    }
}
