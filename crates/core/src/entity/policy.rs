//! Policy: the domain-specific part of entity resolution, as data.

use super::rows::Table;

/// Effect of a later event under the same hard key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayRule {
    /// Known values stay; a replay adds missing fields. Changes are applied only on request, and
    /// never to totals.
    Skip,
    /// Replaces earlier values of the source; missing fields stay.
    Overwrite {
        /// Fields that are filled if missing, and never replaced.
        keeps: &'static [&'static str],
    },
}

/// Trust in the number sent by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberTrust {
    /// Trusted.
    Trusted,
    /// Untrusted: taken from another source with the same end, in this order; each with the word
    /// that records the origin.
    Corrected(&'static [(&'static str, &'static str)]),
}

/// Source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePolicy {
    /// Name.
    pub name: &'static str,
    /// Sources of one family share their hard keys.
    pub family: &'static str,
    /// Whether its events open an entity.
    pub opens: bool,
    /// Whether its events may omit the group, which is then inferred from events with the same hard
    /// key in the family.
    pub is_led: bool,
    /// Replay rule.
    pub replay: ReplayRule,
    /// Trust in its number.
    pub number: NumberTrust,
    /// Field that receives the arrival time of its newest event, if any.
    pub stamp: Option<&'static str>,
}

/// Set of fields with a common order of authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDomain {
    /// Name.
    pub name: &'static str,
    /// Field names; a name that ends in `*` matches all fields with that prefix that are listed
    /// nowhere else.
    pub fields: &'static [&'static str],
    /// Sources in order of authority. Other sources follow in the policy's order.
    pub authority: &'static [&'static str],
    /// Whether other sources are ignored.
    pub is_exclusive: bool,
    /// Whether the fields are totals, which no replay changes.
    pub is_total: bool,
    /// Whether all fields are taken together from the first source that has one of them.
    pub is_whole: bool,
    /// Member that names a row, for fields that are lists of rows merged one by one.
    pub row_key: Option<&'static str>,
}

/// Policy of entity resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Sources, most trusted first: of contradicting identities the first wins.
    pub sources: &'static [SourcePolicy],
    /// Authority per set of fields.
    pub domains: &'static [FieldDomain],
    /// Authority for all other fields.
    pub order: &'static [&'static str],
    /// Maximum clock difference for links by time, in seconds.
    pub window_seconds: i64,
    /// Maximum difference between times of events that start or end together, in seconds: the
    /// longest duration of an entity plus the hour of a clock change.
    pub span_seconds: i64,
    /// Maximum difference between ends under one hard key that still counts as a correction, in
    /// seconds.
    pub tolerance_seconds: i64,
    /// Maximum number of events in a candidate set.
    pub events_max: usize,
    /// Prefix of entity ids.
    pub id_prefix: &'static str,
    /// Tables of derived rows, for SQL queries.
    pub tables: &'static [Table],
}

impl Policy {
    /// Returns the source called `name`.
    pub fn source(&self, name: &str) -> Option<&'static SourcePolicy> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// Rank of a source in the order of trust; unknown ones come last.
    pub fn rank(&self, name: &str) -> usize {
        self.sources.iter().position(|source| source.name == name).unwrap_or(self.sources.len())
    }

    /// Whether events of this source open an entity.
    pub fn opens(&self, name: &str) -> bool {
        self.source(name).is_some_and(|source| source.opens)
    }

    /// Family of a source.
    pub fn family<'a>(&self, name: &'a str) -> &'a str {
        self.source(name).map_or(name, |source| source.family)
    }

    /// Domain of a field: by exact name, else by prefix.
    pub fn domain(&self, field: &str) -> Option<&'static FieldDomain> {
        let identifiers = |domain: &&FieldDomain| domain.fields.contains(&field);
        let begins = |domain: &&FieldDomain| {
            let mut patterns = domain.fields.iter().filter_map(|name| name.strip_suffix('*'));
            patterns.any(|start| field.starts_with(start))
        };
        self.domains.iter().find(identifiers).or_else(|| self.domains.iter().find(begins))
    }

    /// Sources for a field in order of authority.
    pub fn authority(&self, field: &str) -> Vec<&'static str> {
        let domain = self.domain(field);
        let mut sources: Vec<&'static str> =
            domain.map(|domain| domain.authority.to_vec()).unwrap_or_default();
        if !domain.is_some_and(|domain| domain.is_exclusive) {
            let others = self.order.iter().filter(|name| !sources.contains(name)).copied();
            sources.extend(others.collect::<Vec<_>>());
        }
        sources
    }

    /// Maximum distance in seconds at which an event can change the link of another.
    ///
    /// A new canonical event can take an identity from another one, which then takes a third: three
    /// windows, and one more if it is represented by a copy. Each identity may be as long as a
    /// span, and the clock of a canonical event may be read in two ways, a span apart.
    pub const fn reach(&self) -> i64 {
        4 * self.window_seconds + 3 * self.span_seconds
    }
}
