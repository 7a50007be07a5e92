//! Recording and settling at doors that issue documents: verdict, documents and the counters of the
//! run in one transaction.

use std::sync::Arc;

use admit_core::effect::{By, Effect, Illegal, Standing, Step};
use admit_core::json::{self, Object, Value};
use admit_core::{
    Code, Decision, Door, Entry, Event, Fault, FaultKind, Filed, First, Issue, Issued, Millis,
    Occasion, Original, Recorded, Refused, RunState, Said, Seq, Verdict, decide,
};
use rusqlite::{Connection, OptionalExtension};

use super::batch::{Batch, BatchError};
use super::effects::{self, Stepped};
use super::issued::{self, About, Ids, Runs};
use super::keys::KeyIndex;
use super::queries;
use super::task::{Tx, Work};
use crate::common::job::Told;
use crate::issuance::{Copied, FileNote, Outlook, Settled, Settlement};

impl Batch<'_> {
    /// Records one entry of a door that issues. After an error the transaction is rolled back.
    pub(super) fn issuing(
        &mut self,
        keys: &KeyIndex,
        entry: &Entry,
        issue: &dyn Issue,
    ) -> Result<(Verdict, Told), BatchError> {
        let (facts, at) = match entry {
            Entry::Event(event) => (&event.facts, event.received_at),
            Entry::Refused(refused) => (&refused.facts, refused.received_at),
        };
        let run = issue.run(facts);
        let mut is_open = true;
        if let Some(run) = run {
            is_open = self.runs.state(self.conn, run, at)? == RunState::Open;
            self.runs.count(Some(run), at, |counts| counts.deliveries += 1);
        }
        match entry {
            Entry::Refused(refused) if is_open => self.refused_issuing(refused, issue),
            Entry::Refused(refused) => self.run_closed(refused, issue),
            Entry::Event(event) => self.event_issuing(keys, event, issue, is_open),
        }
    }

    fn refused_issuing(
        &mut self,
        refused: &Refused,
        issue: &dyn Issue,
    ) -> Result<(Verdict, Told), BatchError> {
        let verdict = self.refused(refused)?;
        let Some(seq) = verdict.seq() else { return Ok((verdict, Told::filed(Vec::new()))) };
        let (code, message) = (refused.code, refused.message.as_str());
        let occasion = Occasion::Refused { code, message };
        let filed = self.say(issue, occasion, seq, None, refused.received_at, &refused.facts)?;
        Ok((verdict, Told::filed(filed)))
    }

    /// Keeps a delivery outside of its run, which takes nothing new.
    fn run_closed(
        &mut self,
        refused: &Refused,
        issue: &dyn Issue,
    ) -> Result<(Verdict, Told), BatchError> {
        let message = "the run of this event is closed to new events".to_owned();
        let refused = Refused { code: Code::RunClosed, message, ..refused.clone() };
        let verdict = self.refused(&refused)?;
        let filed = match verdict.seq() {
            Some(seq) => {
                let (at, occasion) = (refused.received_at, Occasion::RunClosed);
                self.say(issue, occasion, seq, None, at, &refused.facts)?
            }
            None => Vec::new(),
        };
        Ok((verdict, Told { filed, outlook: Outlook::RunClosed }))
    }

    fn event_issuing(
        &mut self,
        keys: &KeyIndex,
        event: &Event,
        issue: &dyn Issue,
        is_open: bool,
    ) -> Result<(Verdict, Told), BatchError> {
        let run = issue.run(&event.facts);
        let Some(first) = self.first(keys, &event.key)? else {
            if !is_open {
                return self.run_closed(&as_refused(event), issue);
            }
            let (verdict, seq) = self.admit(event, None)?;
            self.runs.count(run, event.received_at, |counts| counts.in_flight += 1);
            let outlook = Outlook::Performs { seq, attempt: 1 };
            return Ok((verdict, Told { filed: Vec::new(), outlook }));
        };
        match decide(Some(&first), &event.digest, event.on_other_content) {
            Decision::Fresh | Decision::Duplicate => {
                self.copy_issuing(event, first, issue, is_open)
            }
            Decision::Revision | Decision::Conflict if !is_open => {
                self.run_closed(&as_refused(event), issue)
            }
            Decision::Revision | Decision::Conflict => {
                let standing = self.standing(first.seq)?;
                let verdict = self.conflict(event, first.clone())?;
                let seq = verdict.seq().unwrap_or(first.seq);
                let receipt = issued::receipt_of(self.conn, first.seq)?;
                let facts = parsed(&first.facts)?;
                let first = Original {
                    seq: first.seq,
                    facts: &facts,
                    standing: &standing,
                    receipt: receipt.as_deref(),
                };
                let occasion = Occasion::Conflict { first };
                let of = Some(first.seq);
                let filed = self.say(issue, occasion, seq, of, event.received_at, &event.facts)?;
                Ok((verdict, Told::filed(filed)))
            }
        }
    }

    /// A copy: what it means hangs on where the first stands.
    fn copy_issuing(
        &mut self,
        event: &Event,
        first: First,
        issue: &dyn Issue,
        is_open: bool,
    ) -> Result<(Verdict, Told), BatchError> {
        let at = event.received_at;
        let standing = self.standing(first.seq)?;
        let outlook = match &standing {
            Standing::Refused(_) if !is_open => {
                return self.run_closed(&as_refused(event), issue);
            }
            Standing::Refused(_) => {
                let renewed = effects::advance(self.conn, self.epoch, first.seq, &Step::Renew, at)?;
                let Stepped { effect, .. } = renewed.map_err(|_| lost_effect())?;
                let run = issue.run(&event.facts);
                self.runs.count(run, at, |counts| counts.in_flight += 1);
                Outlook::Performs { seq: first.seq, attempt: effect.standing.attempt() }
            }
            Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_) => {
                Outlook::InFlight { seq: first.seq }
            }
            Standing::Done(_) | Standing::Ambiguous(_) => Outlook::Said,
        };
        let seq = self.sighting(first.seq, event, None)?;
        let filed = if outlook == Outlook::Said {
            let (of, text) = (first.seq, first.facts.clone());
            let receipt = issued::receipt_of(self.conn, of)?;
            let facts = parsed(&text)?;
            let original = Original {
                seq: of,
                facts: &facts,
                standing: &standing,
                receipt: receipt.as_deref(),
            };
            let occasion = Occasion::Copy { first: original };
            self.say(issue, occasion, seq, Some(of), at, &event.facts)?
        } else {
            Vec::new()
        };
        Ok((Verdict::Duplicate { seq, first }, Told { filed, outlook }))
    }

    fn standing(&self, seq: Seq) -> Result<Standing, BatchError> {
        let effect = effects::get(self.conn, seq)?.ok_or_else(lost_effect)?;
        Ok(effect.standing)
    }

    fn say(
        &mut self,
        issue: &dyn Issue,
        occasion: Occasion<'_>,
        seq: Seq,
        of: Option<Seq>,
        at: Millis,
        facts: &Object<'_>,
    ) -> Result<Vec<Filed>, BatchError> {
        let taken = Ids(self.conn);
        let said = Said { occasion, seq, at, facts, taken: &taken };
        let documents = issued::say(issue, &said).map_err(BatchError::Poisoned)?;
        let about = About { seq, of, at, reopens: false };
        Ok(issued::file(self.conn, &mut self.runs, documents, about)?)
    }
}

/// An event that may not come in, as something to be kept all the same.
fn as_refused(event: &Event) -> Refused {
    Refused {
        door: event.door.clone(),
        principal: event.principal.clone(),
        received_at: event.received_at,
        body: event.body.clone(),
        attempt: event.attempt,
        code: Code::RunClosed,
        message: String::new(),
        facts: event.facts.clone(),
    }
}

fn lost_effect() -> BatchError {
    let message = "the effect of the first event under this key is not where it was left";
    BatchError::Poisoned(Fault::new(FaultKind::Internal, message))
}

/// Facts that this ledger has written itself.
fn parsed(text: &[u8]) -> Result<Object<'_>, BatchError> {
    match json::parse(text, &limits()) {
        Ok(Value::Object(facts)) => Ok(facts),
        Ok(_) | Err(_) => {
            let message = "the facts of an earlier event cannot be read";
            Err(BatchError::Poisoned(Fault::new(FaultKind::Internal, message)))
        }
    }
}

fn limits() -> json::Limits {
    json::Limits { bytes_max: usize::MAX, ..json::Limits::default() }
}

/// Moving effects on, for the writer.
pub(super) struct Settle {
    pub(super) epoch: u64,
    pub(super) batch: Vec<Settlement>,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for Settle {
    type Answer = Vec<Result<Settled, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut runs = Runs::default();
        let mut settled = Vec::with_capacity(self.batch.len());
        for Settlement { seq, step, facts } in &self.batch {
            let stepped = effects::advance(tx.conn, self.epoch, *seq, step, self.at)?;
            settled.push(match stepped {
                Err(illegal) => Err(illegal),
                Ok(stepped) => {
                    let by = if let Step::Reconcile { by, .. } = step { Some(by) } else { None };
                    let is_news = !matches!(step, Step::Evidence { .. });
                    let filed = if is_news {
                        let issue = &*self.issue;
                        conclude(tx.conn, &mut runs, issue, &stepped, by, facts.as_ref(), self.at)?
                    } else {
                        Vec::new()
                    };
                    Ok(Settled { effect: stepped.effect, filed })
                }
            });
        }
        runs.write(tx.conn)?;
        Ok(settled)
    }
}

/// What an effect's new state leaves behind: documents, counters, and what they make void.
fn conclude(
    conn: &Connection,
    runs: &mut Runs,
    issue: &dyn Issue,
    stepped: &Stepped,
    by: Option<&By>,
    facts: Option<&Object<'static>>,
    at: Millis,
) -> rusqlite::Result<Vec<Filed>> {
    let (seq, standing) = (stepped.effect.seq, &stepped.effect.standing);
    let stored;
    let facts = match facts {
        Some(facts) => facts,
        None => {
            stored = stored_facts(conn, seq)?;
            &stored
        }
    };
    let run = issue.run(facts);
    let change =
        |word: &str| i64::from(standing.word() == word) - i64::from(stepped.before == word);
    let (in_flight, ambiguous) = (change("in_flight"), change("ambiguous"));
    runs.count(run, at, |counts| {
        counts.in_flight += in_flight;
        counts.ambiguous += ambiguous;
    });
    if let Some(by) = by {
        let open = issued::open_of(conn, seq)?;
        let open = open.into_iter().filter(|open| open.is_about_the_effect(issue)).collect();
        issued::release(conn, runs, open, "reconciled", by, at)?;
    }
    let taken = Ids(conn);
    let occasion = Occasion::Settled { standing, by };
    let said = Said { occasion, seq, at, facts, taken: &taken };
    let documents = or_nothing(issued::say(issue, &said), seq);
    let reopens = matches!(standing, Standing::Ambiguous(_));
    let about = About { seq, of: Some(seq), at, reopens };
    let filed = issued::file(conn, runs, documents, about)?;
    if let (Standing::Done(_), Some(receipt)) = (standing, filed.first()) {
        issued::supersede(conn, runs, issue, seq, receipt.n, at)?;
    }
    Ok(filed)
}

/// An outcome is kept even where the contract fails to put it into words: whoever waits for the
/// documents is told of a fault, and `admit verify` names what is missing.
fn or_nothing(documents: Result<Vec<Issued>, Fault>, seq: Seq) -> Vec<Issued> {
    documents.unwrap_or_else(|fault| {
        tracing::error!(seq = seq.0, %fault, "an outcome was kept without its documents");
        Vec::new()
    })
}

fn stored_facts(conn: &Connection, seq: Seq) -> rusqlite::Result<Object<'static>> {
    let text: Option<String> =
        conn.prepare_cached(queries::FIRST)?.query_row([seq.0], |row| row.get(2)).optional()?;
    let text = text.unwrap_or_default();
    Ok(match json::parse(text.as_bytes(), &limits()) {
        Ok(Value::Object(facts)) => facts.into_owned(),
        Ok(_) | Err(_) => Object::new(),
    })
}

/// Saying what there is to say about a copy that has waited, for the writer.
pub(super) struct SettleCopy {
    pub(super) copy: Recorded,
    pub(super) first: Seq,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for SettleCopy {
    type Answer = Result<Copied, Illegal>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let Some(effect) = effects::get(tx.conn, self.first)? else {
            return Ok(Err(Illegal::NoEffect));
        };
        let standing = effect.standing;
        if matches!(standing, Standing::Refused(_)) {
            return Ok(Ok(Copied { standing, filed: Vec::new() }));
        }
        let Entry::Event(event) = &self.copy.entry else { return Ok(Err(Illegal::NoEffect)) };
        let mut runs = Runs::default();
        let receipt = issued::receipt_of(tx.conn, self.first)?;
        let facts = stored_facts(tx.conn, self.first)?;
        let first = Original {
            seq: self.first,
            facts: &facts,
            standing: &standing,
            receipt: receipt.as_deref(),
        };
        let seq = self.copy.verdict.seq().unwrap_or(self.first);
        let taken = Ids(tx.conn);
        let occasion = Occasion::Copy { first };
        let said = Said { occasion, seq, at: self.at, facts: &event.facts, taken: &taken };
        let documents = or_nothing(issued::say(&*self.issue, &said), seq);
        let about = About { seq, of: Some(self.first), at: self.at, reopens: false };
        let filed = issued::file(tx.conn, &mut runs, documents, about)?;
        runs.write(tx.conn)?;
        Ok(Ok(Copied { standing, filed }))
    }
}

/// Looking after what earlier processes had in flight at one door, for the writer.
pub(super) struct RecoverDoor {
    pub(super) epoch: u64,
    pub(super) door: Door,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for RecoverDoor {
    type Answer = Vec<Effect>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let lost: Vec<Effect> = tx
            .conn
            .prepare_cached(queries::EFFECT_LOST_OF_DOOR)?
            .query_map([self.door.as_str()], effects::effect_row)?
            .collect::<Result<_, _>>()?;
        let mut runs = Runs::default();
        let mut recovered = Vec::new();
        for effect in lost {
            let before = effect.standing.word();
            let effect = effects::recovered(tx.conn, self.epoch, effect, self.at)?;
            if !matches!(effect.standing, Standing::Ambiguous(_)) {
                continue;
            }
            // Lost without a word: the counter does not know of it yet.
            let before = if before == "ambiguous" { "in_flight" } else { before };
            let stepped = Stepped { before, effect };
            conclude(tx.conn, &mut runs, &*self.issue, &stepped, None, None, self.at)?;
            recovered.push(stepped.effect);
        }
        runs.write(tx.conn)?;
        Ok(recovered)
    }
}

/// Letting a quarantine go, for the writer.
pub(super) struct Release {
    pub(super) run: String,
    pub(super) id: String,
    pub(super) how: &'static str,
    pub(super) by: By,
    pub(super) at: Millis,
}

impl Work for Release {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let mut runs = Runs::default();
        let open = issued::open_named(tx.conn, &self.run, &self.id)?;
        let any = issued::release(tx.conn, &mut runs, open, self.how, &self.by, self.at)?;
        runs.write(tx.conn)?;
        Ok(any)
    }
}

/// Noting what is known about files, for the writer.
pub(super) struct NoteFiles(pub(super) FileNote);

impl Work for NoteFiles {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let (numbers, is_unwritten) = match &self.0 {
            FileNote::SyncedTo(n) => {
                tx.conn.prepare_cached(queries::META_PUT)?.execute((issued::SYNCED, n))?;
                return Ok(());
            }
            FileNote::Unwritten(numbers) => (numbers, true),
            FileNote::Written(numbers) => (numbers, false),
        };
        let mut put = tx.conn.prepare_cached(queries::ISSUED_UNWRITTEN_PUT)?;
        for n in numbers {
            put.execute((n, is_unwritten))?;
        }
        Ok(())
    }
}

/// Changing whether a run takes events, for the writer.
pub(super) struct TurnRun {
    pub(super) id: String,
    pub(super) from: RunState,
    pub(super) to: RunState,
    pub(super) at: Millis,
}

impl Work for TurnRun {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let row = (&self.id, self.from.as_str(), self.to.as_str(), self.at.0);
        Ok(tx.conn.prepare_cached(queries::RUN_STATE)?.execute(row)? > 0)
    }
}
