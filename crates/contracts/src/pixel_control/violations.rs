//! Broken rules in words: the first few in full, the rest as a number.

use crate::text::{VIOLATION_CHARS_MAX, bounded};

/// How many violations are told in full.
pub(super) const TOLD_MAX: usize = 20;

/// How many of them a rejection's message names.
const MESSAGE_MAX: usize = 3;

/// What is wrong with a submission, in the order it was found.
#[derive(Debug, Default)]
pub(super) struct Violations {
    told: Vec<String>,
    count: usize,
}

impl Violations {
    /// Adds one. The words are made only when they will be told.
    pub(super) fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(bounded(&words(), VIOLATION_CHARS_MAX));
        }
    }

    /// Whether nothing is wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are, told or not.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Those that are told in full.
    pub(super) fn into_told(self) -> Vec<String> {
        self.told
    }

    /// One line for a reply.
    pub(super) fn message(&self) -> String {
        let named: Vec<&str> = self.told.iter().take(MESSAGE_MAX).map(String::as_str).collect();
        let more = self.count - named.len();
        let named = named.join("; ");
        if more == 0 { named } else { format!("{named}; and {more} more") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_are_told_and_the_rest_is_counted() {
        let mut violations = Violations::default();
        assert!(violations.is_empty());
        for number in 0..30 {
            violations.add(|| format!("rule {number}"));
        }
        assert_eq!(violations.count(), 30);
        assert_eq!(violations.message(), "rule 0; rule 1; rule 2; and 27 more");
        assert_eq!(violations.into_told().len(), TOLD_MAX);
    }
}
