//! Collected rule violations: the first few in full, the rest as a count.

use crate::text::{VIOLATION_CHARS_MAX, bounded};

/// Maximum number of violations listed in full.
pub(super) const LISTED_MAX: usize = 20;

/// Maximum number of violations in a rejection message.
const MESSAGE_MAX: usize = 3;

/// Violations of a submission, in the order they were found.
#[derive(Debug, Default)]
pub(super) struct Violations {
    listed: Vec<String>,
    count: usize,
}

impl Violations {
    /// Adds a violation. The text is rendered only if it will be listed.
    pub(super) fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(bounded(&words(), VIOLATION_CHARS_MAX));
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Total number, listed or not.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Violations listed in full.
    pub(super) fn into_listed(self) -> Vec<String> {
        self.listed
    }

    /// One-line summary for a reply.
    pub(super) fn message(&self) -> String {
        let named: Vec<&str> = self.listed.iter().take(MESSAGE_MAX).map(String::as_str).collect();
        let more = self.count - named.len();
        let named = named.join("; ");
        if more == 0 { named } else { format!("{named}; and {more} more") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_are_listed_and_the_rest_is_counted() {
        let mut violations = Violations::default();
        assert!(violations.is_empty());
        for number in 0..30 {
            violations.add(|| format!("rule {number}"));
        }
        assert_eq!(violations.count(), 30);
        assert_eq!(violations.message(), "rule 0; rule 1; rule 2; and 27 more");
        assert_eq!(violations.into_listed().len(), LISTED_MAX);
    }
}
