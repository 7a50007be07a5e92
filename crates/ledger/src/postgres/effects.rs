//! Effects in the database: born in the commit of their admission, moved on in commits of their own.

use admit_core::json;
use admit_core::{Intent, Millis, Seq};

use super::conn::{Ask, big, big_opt};
use super::{sql, text};

/// The effects that a batch gives birth to, column by column.
#[derive(Default)]
pub(super) struct Born {
    seqs: Vec<i64>,
    kinds: Vec<&'static str>,
    plans: Vec<String>,
    states: Vec<&'static str>,
    attempts: Vec<i64>,
    epochs: Vec<Option<i64>>,
    ats: Vec<i64>,
    written_by: Vec<i64>,
}

impl Born {
    /// The effect of the admission at `seq`, to be written in its commit.
    pub(super) fn push(&mut self, epoch: u64, seq: Seq, intent: &Intent, at: Millis) {
        let standing = intent.starts.standing(epoch);
        let mut plan = Vec::new();
        json::write_object(&intent.plan, &mut plan);
        let plan = String::from_utf8(plan).expect("json is written as utf-8");
        self.seqs.push(big(seq.0));
        self.kinds.push(intent.kind);
        self.plans.push(text::kept(&plan).into_owned());
        self.states.push(standing.word());
        self.attempts.push(i64::from(standing.attempt()));
        self.epochs.push(big_opt(standing.epoch()));
        self.ats.push(at.0);
        self.written_by.push(big(epoch));
    }

    /// What writes them.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        if self.seqs.is_empty() {
            return Vec::new();
        }
        let Self { seqs, kinds, plans, states, attempts, epochs, ats, written_by } = self;
        vec![
            Ask::new(
                sql!("effects_insert"),
                vec![seqs, kinds, plans, states, attempts, epochs, ats],
            ),
            Ask::new(sql!("effects_born"), vec![seqs, ats, attempts, states, written_by]),
        ]
    }
}
