//! Saying it again: because somebody asks, who is named, under the message id it always had.

use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, ScenarioState};
use admit_ledger::scenario_runs::{RunPublication, PublicationState, ScenarioRun};
use tokio::task::spawn_blocking;

use super::lead::{Lead, Led};
use super::publish::{Kind, Saying};
use super::reason::{Refusal, Refused, RunnerError};
use super::settings::millis;
use super::{Runner, documents, gone, identity};
use crate::shape::is_platform_run;

/// Most characters of a reason or a name.
const TEXT_CHARS_MAX: usize = 1_000;

/// What a request may hold.
const MEMBERS: [&str; 5] =
    ["reemit_kind", "reason", "dry_run", "emit_platform_run_id", "cross_run_override"];

/// What is emitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReemitKind {
    /// READY, of a run that is ready.
    ReadyOnly,
    /// The end, of a run that ended otherwise.
    TerminalOnly,
    /// Whichever it is.
    Both,
}

impl ReemitKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReadyOnly, Self::TerminalOnly, Self::Both];

    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadyOnly => "READY_ONLY",
            Self::TerminalOnly => "TERMINAL_ONLY",
            Self::Both => "BOTH",
        }
    }
}

/// Somebody's wish to have it said again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reemit {
    /// What.
    pub kind: ReemitKind,
    /// Who wishes it, as they say.
    pub actor: String,
    /// Whose key they showed, where there are keys.
    pub principal: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Whether only to say what would be done.
    pub is_dry_run: bool,
    /// For which platform run, if not the active one.
    pub platform_run_id: Option<String>,
    /// Why a run of another platform run may be emitted all the same.
    pub override_reason: Option<String>,
}

impl Reemit {
    /// Reads a request. An empty body asks for `READY_ONLY`.
    ///
    /// # Errors
    /// `REEMIT_REQUEST_INVALID` with what is wrong.
    pub fn read(body: &[u8], actor: &str) -> Result<Self, Refused> {
        let invalid = |detail: &str| Refused::new(Refusal::ReemitRequestInvalid, detail.to_owned());
        let actor = actor.trim();
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        if actor.is_empty() || actor.chars().count() > TEXT_CHARS_MAX || !is_plain(actor) {
            return Err(invalid("who asks must be named in the header X-SR-Actor"));
        }
        let body: &[u8] = if body.trim_ascii().is_empty() { b"{}" } else { body };
        let parsed = json::parse(body, &Limits::default());
        let Ok(Value::Object(asked)) = parsed else {
            return Err(invalid("the body must be empty or a JSON object"));
        };
        if asked.iter().any(|(name, _)| !MEMBERS.contains(&name)) {
            return Err(invalid(
                "a re-emit knows reemit_kind, reason, dry_run, emit_platform_run_id and \
                 cross_run_override",
            ));
        }
        let text = |value: Option<&Value<'_>>| match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= TEXT_CHARS_MAX => {
                Ok(Some(text.clone().into_owned()).filter(|text| !text.trim().is_empty()))
            }
            Some(_) => Err(invalid("texts must be texts of at most 1000 characters")),
        };
        let word = text(asked.get("reemit_kind"))?;
        let word = word.as_deref().unwrap_or(ReemitKind::ReadyOnly.word());
        let kind = ReemitKind::ALL.into_iter().find(|kind| kind.word() == word);
        let platform_run_id = text(asked.get("emit_platform_run_id"))?;
        if platform_run_id.as_ref().is_some_and(|run| !is_platform_run(run)) {
            return Err(invalid("emit_platform_run_id is not a platform run"));
        }
        let is_dry_run = match asked.get("dry_run") {
            None | Some(Value::Null) => false,
            Some(value) => {
                value.as_bool().ok_or_else(|| invalid("dry_run must be true or false"))?
            }
        };
        let overriding = asked.get("cross_run_override");
        Ok(Self {
            kind: kind
                .ok_or_else(|| invalid("reemit_kind must be READY_ONLY, TERMINAL_ONLY or BOTH"))?,
            actor: actor.to_owned(),
            principal: None,
            reason: text(asked.get("reason"))?,
            is_dry_run,
            platform_run_id,
            override_reason: text(overriding.and_then(|value| value.get("reason_code")))?,
        })
    }
}

/// What was emitted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reemitted {
    /// The run.
    pub run: ScenarioRun,
    /// The kind of message.
    pub kind: &'static str,
    /// Its id, which is the one it always had.
    pub message_id: String,
    /// Whether nothing was done.
    pub is_dry_run: bool,
}

impl Runner {
    /// Says it again.
    ///
    /// # Errors
    /// When there is nothing of the kind to say, when it may not be said, or when it is not known to
    /// have been said.
    pub async fn reemit(&self, run_id: &str, asked: &Reemit) -> Result<Reemitted, RunnerError> {
        let run = self.known(run_id).await?;
        self.may_emit(&run, asked).await?;
        let saying = self.to_say(&run, asked)?;
        let (kind, message_id) = (saying.kind.word(), saying.message_id.clone());
        if asked.is_dry_run {
            return Ok(Reemitted { run, kind, message_id, is_dry_run: true });
        }
        self.not_too_often(&run)?;
        self.restore(&run).await?;
        // Named by what is said: whoever asks for BOTH says one of the two.
        let said = match saying.kind {
            Kind::Ready | Kind::ReadyReemit => ReemitKind::ReadyOnly,
            Kind::TerminalReemit => ReemitKind::TerminalOnly,
        };
        let name = format!("reemit:{run_id}:{}", said.word());
        let lead = match self.take(name, self.settings.reemit_lease_ttl).await? {
            Led::ByUs(lead) => lead,
            Led::By(owner) => {
                let detail = format!("Lease held by another runner ({owner})");
                return Err(Refused::new(Refusal::ReemitBusy, detail).into());
            }
        };
        let said = self.say_again(&lead, run_id, saying).await;
        self.give_back(lead).await;
        let run = said?;
        self.show(run_id).await?;
        match run.publications.last() {
            Some(last) if last.state == PublicationState::Published => {
                Ok(Reemitted { run, kind, message_id, is_dry_run: false })
            }
            last => {
                let state = last.map_or("unknown", |last| last.state.word());
                let why = last.and_then(|last| last.evidence.clone()).unwrap_or_default();
                let detail = format!("the outcome is {state}: {why}; it is in the record");
                Err(Refused::new(Refusal::ReemitFailed, detail).into())
            }
        }
    }

    async fn say_again(
        &self,
        lead: &Lead,
        run_id: &str,
        saying: Saying,
    ) -> Result<ScenarioRun, RunnerError> {
        // Others may have said something since it was looked at; attempts are counted under a lease.
        let mut run = self.known(run_id).await?;
        let in_flight = |said: &&RunPublication| {
            said.kind == saying.kind.word() && said.state == PublicationState::InFlight
        };
        if let Some(mut lost) = run.publications.iter().find(in_flight).cloned() {
            // We lead, so whoever was publishing it does not any more.
            lost.state = PublicationState::Unknown;
            lost.evidence = Some("the runner stopped while it was publishing".to_owned());
            let again = Saying { payload: String::new(), ..saying.clone() };
            run = self.settle(lead, &run, lost, again).await?;
        }
        self.say(lead, &run, saying).await
    }

    /// Whether this run may be emitted from here.
    async fn may_emit(&self, run: &ScenarioRun, asked: &Reemit) -> Result<(), RunnerError> {
        if !self.settings.reemit_same_platform_run_only {
            return Ok(());
        }
        let active = match &asked.platform_run_id {
            Some(named) => Some(named.clone()),
            None => {
                let active = self.active.clone();
                spawn_blocking(move || active.named()).await.map_err(|_| gone())??
            }
        };
        if active.is_none_or(|active| active == run.platform_run_id) {
            return Ok(());
        }
        let refusal = match &asked.override_reason {
            None => Refusal::CrossRunOverrideRequired,
            Some(reason) if self.settings.override_reasons.contains(reason) => return Ok(()),
            Some(_) => Refusal::CrossRunReasonNotAllowed,
        };
        let detail = format!(
            "the run belongs to {}, which is not the platform run it would be emitted for; name \
             cross_run_override.reason_code, one of {:?}",
            run.platform_run_id, self.settings.override_reasons
        );
        Err(Refused::new(refusal, detail).into())
    }

    /// What there is to say of the kind that is asked for.
    fn to_say(&self, run: &ScenarioRun, asked: &Reemit) -> Result<Saying, RunnerError> {
        let is_ready = run.state == ScenarioState::Ready;
        let is_ended = matches!(run.state, ScenarioState::Failed | ScenarioState::Quarantined);
        let refusal = match asked.kind {
            ReemitKind::ReadyOnly if !is_ready => Some(Refusal::ReemitReadyOnlyMismatch),
            ReemitKind::TerminalOnly if !is_ended => Some(Refusal::ReemitTerminalOnlyMismatch),
            ReemitKind::Both if !is_ready && !is_ended => Some(Refusal::ReemitReadyOnlyMismatch),
            ReemitKind::ReadyOnly | ReemitKind::TerminalOnly | ReemitKind::Both => None,
        };
        if let Some(refusal) = refusal {
            return Err(Refused::new(refusal, format!("the run is {}", run.state)).into());
        }
        let mut details = Object::from_iter([("actor", Value::from(asked.actor.clone()))]);
        for (name, value) in [
            ("principal", &asked.principal),
            ("reason", &asked.reason),
            ("override_reason_code", &asked.override_reason),
        ] {
            if let Some(value) = value {
                details.push(name, value.clone());
            }
        }
        let refs = self.refs(run);
        if is_ended {
            let status = documents::status(run, &refs);
            let message_id = identity::terminal_key(&run.run_id, run.state.word(), &status);
            let payload = documents::written(&status);
            return Ok(Saying { kind: Kind::TerminalReemit, message_id, payload, details });
        }
        let signal = run.document(documents::SIGNAL).zip(documents::message_id(run));
        if run.document(documents::FACTS).is_none() {
            let detail = "the facts of this run are not there, nobody could stream it";
            return Err(Refused::new(Refusal::FactsViewMissing, detail).into());
        }
        let Some((signal, message_id)) = signal else {
            let detail = "READY was never said; submit the run again instead";
            return Err(Refused::new(Refusal::ReemitReadyOnlyMismatch, detail).into());
        };
        let payload = signal.text.clone();
        Ok(Saying { kind: Kind::ReadyReemit, message_id, payload, details })
    }

    fn not_too_often(&self, run: &ScenarioRun) -> Result<(), RunnerError> {
        let window = millis(self.settings.reemit_window);
        let since = Millis(self.clock.now().0.saturating_sub(window));
        let again = run
            .publications
            .iter()
            .filter(|said| said.kind != Kind::Ready.word() && said.at >= since);
        if again.count() < self.settings.reemits_max {
            return Ok(());
        }
        let detail = format!(
            "the run was emitted again {} times within {} s, wait",
            self.settings.reemits_max,
            self.settings.reemit_window.as_secs()
        );
        Err(Refused::new(Refusal::ReemitRateLimit, detail).into())
    }
}
