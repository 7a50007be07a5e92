//! Re-emit: publishes the message of a run again on request, under its original message id.

use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, ScenarioState};
use admit_ledger::scenario_runs::{PublicationState, RunPublication, ScenarioRun};
use tokio::task::spawn_blocking;

use super::lease::{Leadership, RunnerLease};
use super::publish::{MessageKind, RunMessage};
use super::reason::{RefusalCode, RefusedRequest, RunnerError};
use super::settings::millis;
use super::{Runner, documents, identity, panicked};
use crate::id_format::is_platform_run;

/// Maximum characters of a reason or a name.
const TEXT_CHARS_MAX: usize = 1_000;

/// Allowed members of a request.
const MEMBERS: [&str; 5] =
    ["reemit_kind", "reason", "dry_run", "emit_platform_run_id", "cross_run_override"];

/// Message to re-emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReemitKind {
    /// READY of a run that is ready.
    ReadyOnly,
    /// The terminal message of a run that failed or was quarantined.
    TerminalOnly,
    /// Either, depending on the state of the run.
    Both,
}

impl ReemitKind {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::ReadyOnly, Self::TerminalOnly, Self::Both];

    /// Its name on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadyOnly => "READY_ONLY",
            Self::TerminalOnly => "TERMINAL_ONLY",
            Self::Both => "BOTH",
        }
    }
}

/// Request to re-emit the message of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReemitRequest {
    /// The message.
    pub kind: ReemitKind,
    /// Requesting actor, as given in the request.
    pub actor: String,
    /// Authenticated principal, if there are keys.
    pub principal: Option<String>,
    /// The reason, for the record.
    pub reason: Option<String>,
    /// Whether to only show the result without publishing.
    pub is_dry_run: bool,
    /// Platform run to emit for, if not the active one.
    pub platform_run_id: Option<String>,
    /// Override reason for a run of another platform run.
    pub override_reason: Option<String>,
}

impl ReemitRequest {
    /// Parses a request. An empty body is `READY_ONLY`.
    ///
    /// # Errors
    /// `REEMIT_REQUEST_INVALID` with the reason.
    pub fn read(body: &[u8], actor: &str) -> Result<Self, RefusedRequest> {
        let invalid = |detail: &str| {
            RefusedRequest::new(RefusalCode::ReemitRequestInvalid, detail.to_owned())
        };
        let actor = actor.trim();
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        if actor.is_empty() || actor.chars().count() > TEXT_CHARS_MAX || !is_plain(actor) {
            return Err(invalid("header X-SR-Actor must name the actor"));
        }
        let body: &[u8] = if body.trim_ascii().is_empty() { b"{}" } else { body };
        let parsed = json::parse(body, &Limits::default());
        let Ok(Value::Object(members)) = parsed else {
            return Err(invalid("the body must be empty or a JSON object"));
        };
        if members.iter().any(|(name, _)| !MEMBERS.contains(&name)) {
            return Err(invalid(
                "unknown member; allowed are reemit_kind, reason, dry_run, emit_platform_run_id and \
                 cross_run_override",
            ));
        }
        let text = |value: Option<&Value<'_>>| match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= TEXT_CHARS_MAX => {
                Ok(Some(text.clone().into_owned()).filter(|text| !text.trim().is_empty()))
            }
            Some(_) => Err(invalid("text members must be strings of at most 1000 characters")),
        };
        let word = text(members.get("reemit_kind"))?;
        let word = word.as_deref().unwrap_or(ReemitKind::ReadyOnly.word());
        let kind = ReemitKind::ALL.into_iter().find(|kind| kind.word() == word);
        let platform_run_id = text(members.get("emit_platform_run_id"))?;
        if platform_run_id.as_ref().is_some_and(|run| !is_platform_run(run)) {
            return Err(invalid("emit_platform_run_id is not a platform run"));
        }
        let is_dry_run = match members.get("dry_run") {
            None | Some(Value::Null) => false,
            Some(value) => {
                value.as_bool().ok_or_else(|| invalid("dry_run must be true or false"))?
            }
        };
        let cross_run_override = members.get("cross_run_override");
        Ok(Self {
            kind: kind
                .ok_or_else(|| invalid("reemit_kind must be READY_ONLY, TERMINAL_ONLY or BOTH"))?,
            actor: actor.to_owned(),
            principal: None,
            reason: text(members.get("reason"))?,
            is_dry_run,
            platform_run_id,
            override_reason: text(cross_run_override.and_then(|value| value.get("reason_code")))?,
        })
    }
}

/// Result of a re-emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReemitResult {
    /// The run.
    pub run: ScenarioRun,
    /// Kind of the message.
    pub kind: &'static str,
    /// Its message id, the same as before.
    pub message_id: String,
    /// Whether it was a dry run.
    pub is_dry_run: bool,
}

impl Runner {
    /// Publishes the message of a run again.
    ///
    /// # Errors
    /// When the run has no such message, when the request is not allowed, or when the bus did not
    /// confirm it.
    pub async fn reemit(
        &self,
        run_id: &str,
        request: &ReemitRequest,
    ) -> Result<ReemitResult, RunnerError> {
        let run = self.load_run(run_id).await?;
        self.check_platform_run(&run, request).await?;
        let message = self.message_to_reemit(&run, request)?;
        let (kind, message_id) = (message.kind.word(), message.message_id.clone());
        if request.is_dry_run {
            return Ok(ReemitResult { run, kind, message_id, is_dry_run: true });
        }
        self.check_rate_limit(&run)?;
        self.restore_files(&run).await?;
        // The lease is named by the message: BOTH selects one of the two.
        let lease_kind = match message.kind {
            MessageKind::Ready | MessageKind::ReadyReemit => ReemitKind::ReadyOnly,
            MessageKind::TerminalReemit => ReemitKind::TerminalOnly,
        };
        let name = format!("reemit:{run_id}:{}", lease_kind.word());
        let lease = match self.acquire_lease(name, self.settings.reemit_lease_ttl).await? {
            Leadership::Acquired(lease) => lease,
            Leadership::HeldBy(owner) => {
                let detail = format!("Lease held by another runner ({owner})");
                return Err(RefusedRequest::new(RefusalCode::ReemitBusy, detail).into());
            }
        };
        let published = self.publish_again(&lease, run_id, message).await;
        self.release_lease(lease).await;
        let run = published?;
        self.update_status_files(run_id).await?;
        match run.publications.last() {
            Some(last) if last.state == PublicationState::Published => {
                Ok(ReemitResult { run, kind, message_id, is_dry_run: false })
            }
            last => {
                let state = last.map_or("unknown", |last| last.state.word());
                let evidence = last.and_then(|last| last.evidence.clone()).unwrap_or_default();
                let detail =
                    format!("the outcome is {state}: {evidence}; see the record of the run");
                Err(RefusedRequest::new(RefusalCode::ReemitFailed, detail).into())
            }
        }
    }

    async fn publish_again(
        &self,
        lease: &RunnerLease,
        run_id: &str,
        message: RunMessage,
    ) -> Result<ScenarioRun, RunnerError> {
        // Load again under the lease: there may be new attempts.
        let mut run = self.load_run(run_id).await?;
        let in_flight = |attempt: &&RunPublication| {
            attempt.kind == message.kind.word() && attempt.state == PublicationState::InFlight
        };
        if let Some(mut lost) = run.publications.iter().find(in_flight).cloned() {
            // This runner holds the lease, so the attempt was interrupted.
            lost.state = PublicationState::Unknown;
            lost.evidence = Some("the runner stopped while it was publishing".to_owned());
            let interrupted = RunMessage { payload: String::new(), ..message.clone() };
            run = self.record_outcome(lease, &run, (lost, None), interrupted).await?;
        }
        self.publish_message(lease, &run, message).await
    }

    /// Checks that the run belongs to the requested platform run, or that an override allows it.
    async fn check_platform_run(
        &self,
        run: &ScenarioRun,
        request: &ReemitRequest,
    ) -> Result<(), RunnerError> {
        if !self.settings.reemit_same_platform_run_only {
            return Ok(());
        }
        let active = match &request.platform_run_id {
            Some(requested) => Some(requested.clone()),
            None => {
                let active = self.active.clone();
                spawn_blocking(move || active.read()).await.map_err(|_| panicked())??
            }
        };
        if active.is_none_or(|active| active == run.platform_run_id) {
            return Ok(());
        }
        let code = match &request.override_reason {
            None => RefusalCode::CrossRunOverrideRequired,
            Some(reason) if self.settings.override_reasons.contains(reason) => return Ok(()),
            Some(_) => RefusalCode::CrossRunReasonNotAllowed,
        };
        let detail = format!(
            "the run belongs to platform run {}, not to the requested one; to override, set \
             cross_run_override.reason_code to one of {:?}",
            run.platform_run_id, self.settings.override_reasons
        );
        Err(RefusedRequest::new(code, detail).into())
    }

    /// Builds the requested message.
    fn message_to_reemit(
        &self,
        run: &ScenarioRun,
        request: &ReemitRequest,
    ) -> Result<RunMessage, RunnerError> {
        let is_ready = run.state == ScenarioState::Ready;
        let is_ended = matches!(run.state, ScenarioState::Failed | ScenarioState::Quarantined);
        let refusal = match request.kind {
            ReemitKind::ReadyOnly if !is_ready => Some(RefusalCode::ReemitReadyOnlyMismatch),
            ReemitKind::TerminalOnly if !is_ended => Some(RefusalCode::ReemitTerminalOnlyMismatch),
            ReemitKind::Both if !is_ready && !is_ended => {
                Some(RefusalCode::ReemitReadyOnlyMismatch)
            }
            ReemitKind::ReadyOnly | ReemitKind::TerminalOnly | ReemitKind::Both => None,
        };
        if let Some(refusal) = refusal {
            return Err(RefusedRequest::new(refusal, format!("the run is {}", run.state)).into());
        }
        let mut details = Object::from_iter([("actor", Value::from(request.actor.clone()))]);
        for (name, value) in [
            ("principal", &request.principal),
            ("reason", &request.reason),
            ("override_reason_code", &request.override_reason),
        ] {
            if let Some(value) = value {
                details.push(name, value.clone());
            }
        }
        let refs = self.refs(run);
        if is_ended {
            let status = documents::run_status(run, &refs);
            let message_id = identity::terminal_key(&run.run_id, run.state.word(), &status);
            let payload = documents::to_json(&status);
            return Ok(RunMessage {
                kind: MessageKind::TerminalReemit,
                message_id,
                payload,
                details,
            });
        }
        let signal = run.document(documents::SIGNAL).zip(documents::message_id(run));
        if run.document(documents::FACTS).is_none() {
            let detail = "the facts of this run are missing, so it cannot be streamed";
            return Err(RefusedRequest::new(RefusalCode::FactsViewMissing, detail).into());
        }
        let Some((signal, message_id)) = signal else {
            let detail = "READY was never published; submit the run again instead";
            return Err(RefusedRequest::new(RefusalCode::ReemitReadyOnlyMismatch, detail).into());
        };
        let payload = signal.text.clone();
        Ok(RunMessage { kind: MessageKind::ReadyReemit, message_id, payload, details })
    }

    fn check_rate_limit(&self, run: &ScenarioRun) -> Result<(), RunnerError> {
        let window = millis(self.settings.reemit_window);
        let since = Millis(self.clock.now().0.saturating_sub(window));
        let reemits = run
            .publications
            .iter()
            .filter(|attempt| attempt.kind != MessageKind::Ready.word() && attempt.at >= since);
        let times: Vec<Millis> = reemits.map(|attempt| attempt.at).collect();
        if times.len() < self.settings.reemits_max {
            return Ok(());
        }
        // Until the oldest of them is outside of the window.
        let oldest = times.iter().map(|at| at.0 - since.0).min().unwrap_or(window);
        let wait = u32::try_from(oldest.max(0) / 1_000 + 1).unwrap_or(u32::MAX);
        let detail = format!(
            "rate limit exceeded: {} re-emits of this run within {} s; retry later",
            self.settings.reemits_max,
            self.settings.reemit_window.as_secs()
        );
        Err(RefusedRequest::new(RefusalCode::ReemitRateLimit, detail).retry_after(wait).into())
    }
}
