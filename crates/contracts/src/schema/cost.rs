//! Cost of matching the patterns of a schema against a text, computed when the schema is loaded.
//!
//! The time of a match is linear in the text, but the factor is the number of states that the
//! pattern can be in at once: hundreds for `[ab]*a[ab]{600}c`. The number of characters the pattern
//! names, with repetitions expanded, is an upper bound of it.

use regex_automata::dfa::onepass;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::Value;

/// Bytes of a text that count as one step for a pattern in one state at a time.
const BYTES_PER_STEP: u64 = 16;

/// Patterns of at most this many characters have few combinations of states, each computed only
/// once.
const NARROW_MAX: u64 = 8;

/// Extra cost of a state that is computed for each byte: about 10 ns.
const COMPUTED_FACTOR: u64 = 8;

/// Largest table of a pattern that is in one state at a time, in bytes.
const ONE_PASS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Cost of texts. The factors are in sixteenths of a step per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Patterns that may read a text to its end.
    to_the_end: u64,
    /// Patterns that stop early, regardless of what follows.
    bounded: u64,
    /// Maximum cost of the latter for one text.
    bounded_max: u64,
}

impl Cost {
    /// Cost for a schema without patterns.
    pub(super) const LOWEST: Self = Self { to_the_end: 1, bounded: 0, bounded_max: 0 };

    /// Steps for a text of this many bytes.
    pub(super) fn steps(self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        let bounded = bytes.saturating_mul(self.bounded).min(self.bounded_max);
        bytes.saturating_mul(self.to_the_end).max(bounded) / BYTES_PER_STEP
    }

    fn of_pattern(pattern: &str) -> Self {
        // A pattern that cannot be translated or parsed is refused when the schema is compiled.
        let Ok(pattern) = jsonschema_regex::to_rust_regex(pattern) else { return Self::LOWEST };
        let Ok(hir) = regex_syntax::parse(&pattern) else { return Self::LOWEST };
        let characters = characters(&hir);
        let properties = hir.properties();
        let begins_at_start = properties.look_set_prefix().contains(Look::Start);
        if characters <= NARROW_MAX || (begins_at_start && is_one_pass(&pattern)) {
            return Self::LOWEST;
        }
        let factor = characters.saturating_mul(COMPUTED_FACTOR);
        match properties.maximum_len().filter(|_| begins_at_start) {
            Some(longest) => Self {
                bounded: factor,
                bounded_max: factor.saturating_mul(longest as u64 + 1),
                ..Self::LOWEST
            },
            None => Self { to_the_end: factor, ..Self::LOWEST },
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            to_the_end: self.to_the_end.max(other.to_the_end),
            bounded: self.bounded.max(other.bounded),
            bounded_max: self.bounded_max.max(other.bounded_max),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            to_the_end: self.to_the_end.saturating_add(other.to_the_end),
            bounded: self.bounded.saturating_add(other.bounded),
            bounded_max: self.bounded_max.saturating_add(other.bounded_max),
        }
    }
}

/// Cost of the texts and the keys of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// Cost of checking one text: the most expensive `pattern` of the schema.
    pub(super) text: Cost,
    /// Cost of checking one key: all `patternProperties` of the schema.
    pub(super) key: Cost,
}

impl Costs {
    /// Cost for a schema without patterns.
    pub(super) const LOWEST: Self = Self { text: Cost::LOWEST, key: Cost::LOWEST };

    /// Cost of all patterns in a schema.
    pub(super) fn of(schema: &Value) -> Self {
        let mut costs = Self::LOWEST;
        costs.add(schema);
        costs
    }

    fn add(&mut self, schema: &Value) {
        match schema {
            Value::Array(elements) => elements.iter().for_each(|element| self.add(element)),
            Value::Object(members) => {
                if let Some(Value::String(pattern)) = members.get("pattern") {
                    self.text = self.text.max(Cost::of_pattern(pattern));
                }
                if let Some(Value::Object(patterns)) = members.get("patternProperties") {
                    for pattern in patterns.keys() {
                        self.key = self.key.plus(Cost::of_pattern(pattern));
                    }
                }
                members.values().for_each(|member| self.add(member));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Number of characters a pattern names, with repetitions expanded.
fn characters(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Capture(capture) => characters(&capture.sub),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            characters(&repetition.sub).saturating_mul(times.into())
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(characters).fold(0, u64::saturating_add)
        }
    }
}

/// Whether there is at most one next state at each byte of a text.
fn is_one_pass(pattern: &str) -> bool {
    let config = onepass::Config::new().size_limit(Some(ONE_PASS_BYTES_MAX));
    onepass::Builder::new().configure(config).build(pattern).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_in_one_state_at_a_time_costs_as_little_as_no_pattern() {
        let uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
        for pattern in [uuid, r"^\d{4}-\d\d-\d\d$", "^[A-Z]{2,40}$", r"^\S+@\S+$", "^.{1,200}$"] {
            assert_eq!(Cost::of_pattern(pattern), Cost::LOWEST, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_in_many_states_costs_its_size_for_each_byte() {
        for (pattern, characters) in
            [("^([ab]*a[ab]{600}c)?$", 603), ("^.*[A-Z].{1,500}!$", 503), ("[ab]{1,50}c", 51)]
        {
            let text = Costs::of(&json!({"items": {"pattern": pattern}})).text;
            assert!(text.steps(1_600) >= 100 * characters, "{pattern}: {text:?}");
            let key = Costs::of(&json!({"patternProperties": {pattern: {}, "^x[ab]{600}x": {}}}));
            assert!(key.key.steps(1_600) >= 100 * characters, "{pattern}: {key:?}");
        }
    }

    #[test]
    fn text_beyond_the_longest_match_costs_nothing() {
        let cost = Cost::of_pattern("^(a?){10}a{10}$");
        assert_eq!(cost.to_the_end, Cost::LOWEST.to_the_end);
        assert!(cost.steps(100) > 100 && cost.steps(100) == cost.steps(1_000), "{cost:?}");
    }
}
