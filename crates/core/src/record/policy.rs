//! The policy: everything a record depends on that is not a rule, as data.

use super::rows::Table;

/// What a second telling under the same hard key does to what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// What is known stays; a replay adds what nobody had told yet. Changes are made only when they
    /// are asked for, and never to totals.
    Skip,
    /// What it says replaces what its source said before; what it leaves out stays.
    Overwrite {
        /// Fields that are filled where they were missing, and never replaced.
        keeps: &'static [&'static str],
    },
}

/// Whether a source knows which of the entities of its group it tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// It does.
    Trusted,
    /// It may be wrong: who else tells of the same end is believed, the first of these sources
    /// first, each with the word that says where the number came from.
    Corrected(&'static [(&'static str, &'static str)]),
}

/// One source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// Sources of one family share their hard keys.
    pub family: &'static str,
    /// Whether a record exists once this source has told of it.
    pub opens: bool,
    /// Whether its events may leave out the group: then the hard key of others in its family leads
    /// there.
    pub is_led: bool,
    /// What a replay does.
    pub replay: Replay,
    /// How far its number is to be trusted.
    pub number: Number,
    /// The field that says when its newest telling came, where one is wanted.
    pub stamp: Option<&'static str>,
}

/// A set of fields with one answer to "who is to be believed".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: &'static str,
    /// The fields; a name that ends in `*` stands for all that begin like it and stand nowhere
    /// else.
    pub fields: &'static [&'static str],
    /// Who is believed, first to last. Others come after them in the policy's order.
    pub authority: &'static [&'static str],
    /// Whether nobody else is believed at all.
    pub is_exclusive: bool,
    /// Whether the fields are totals, which no replay changes.
    pub is_total: bool,
    /// Whether the fields are believed together: all of them of the first source that tells one.
    pub is_whole: bool,
    /// The member that names a row, where the fields are lists of rows that are merged one by one.
    pub row_key: Option<&'static str>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sources, the most trusted first: where identities contradict each other, the first in
    /// this order stands.
    pub sources: &'static [Source],
    /// Who is believed about what.
    pub domains: &'static [Domain],
    /// Who is believed about everything else.
    pub order: &'static [&'static str],
    /// How far clocks may be apart for an event to be linked by time, in seconds.
    pub window_seconds: i64,
    /// How far apart the times of events can be that start or end together, in seconds: the longest
    /// an entity lasts, and the hour that clocks are turned back by.
    pub span_seconds: i64,
    /// How far ends under one hard key may differ and still be a correction, in seconds.
    pub tolerance_seconds: i64,
    /// Most events of one neighbourhood that are looked at.
    pub events_max: usize,
    /// What the ids of records begin with.
    pub id_prefix: &'static str,
    /// The tables that rows of events are kept in, for people who ask in SQL.
    pub tables: &'static [Table],
}

impl Policy {
    /// The source called `name`.
    pub fn source(&self, name: &str) -> Option<&'static Source> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// The place of a source in the order of trust; unknown ones come last.
    pub fn rank(&self, name: &str) -> usize {
        self.sources.iter().position(|source| source.name == name).unwrap_or(self.sources.len())
    }

    /// Whether events of this source open a record.
    pub fn opens(&self, name: &str) -> bool {
        self.source(name).is_some_and(|source| source.opens)
    }

    /// The family of a source.
    pub fn family<'a>(&self, name: &'a str) -> &'a str {
        self.source(name).map_or(name, |source| source.family)
    }

    /// The domain of a field: where it is named, else where its beginning is.
    pub fn domain(&self, field: &str) -> Option<&'static Domain> {
        let named = |domain: &&Domain| domain.fields.contains(&field);
        let begins = |domain: &&Domain| {
            let mut patterns = domain.fields.iter().filter_map(|name| name.strip_suffix('*'));
            patterns.any(|start| field.starts_with(start))
        };
        self.domains.iter().find(named).or_else(|| self.domains.iter().find(begins))
    }

    /// Who is believed about a field, first to last.
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

    /// How far an event can change what becomes of another, in seconds.
    ///
    /// A new anchor can draw an identity away from another anchor, which then takes a third: three
    /// windows, and one more where the anchor is a copy that another one stands for. Each identity
    /// may be as long as a span, and the clock of an anchor may be read in two ways, a span apart.
    pub const fn reach(&self) -> i64 {
        4 * self.window_seconds + 3 * self.span_seconds
    }
}
