//! What the gate says of itself: a change of policy at the start, and quarantines in numbers.

use std::sync::{Arc, Mutex, PoisonError};

use admit_artifacts::{ArtifactsError, File, Line, Markers};
use admit_bus::{Message, PublishOutcome};
use admit_contracts::ingestion_gate::governance::{self, AUDIT_TOPIC, AuditEvent, PolicyRev};
pub(super) use admit_contracts::ingestion_gate::paths::UNSCOPED;
use admit_core::json::{self, Object, write_object};
use admit_core::{Fault, FaultKind, RunState};
use bytes::Bytes;
use tokio::time::timeout;

use super::Ingest;

/// Runs that are read at a time.
const RUNS_PAGE: usize = 256;

/// Most runs whose logs get a line about a change of policy. A start waits for them.
const RUNS_TOLD_MAX: usize = 1_024;

/// Counts quarantines.
#[derive(Debug, Default)]
pub(super) struct Spikes(Mutex<governance::SpikeDetector>);

impl Ingest {
    /// Notes a quarantine; too many of them within a minute are told on the bus, once.
    pub(super) fn note_quarantine(self: &Arc<Self>) {
        let mut spikes = self.spikes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(audit) = spikes.note(self.clock.now()) else { return };
        drop(spikes);
        tracing::warn!("many events are in quarantine");
        let ingest = Arc::clone(self);
        self.tasks.spawn(async move { ingest.audit(audit).await });
    }

    /// Says something on the audit topic. It is not an admission, and nothing hangs on it.
    async fn audit(&self, audit: AuditEvent) {
        let message = Message {
            topic: AUDIT_TOPIC.into(),
            partition_key: audit.partition_key(),
            dedupe_key: audit.event_id.clone(),
            payload: written(&audit.envelope).into(),
            at: self.clock.now(),
        };
        let published = timeout(self.bus.delivery_timeout(), self.bus.publish(vec![message])).await;
        match published.ok().and_then(|mut published| published.pop()) {
            Some(PublishOutcome::Committed(_)) => {}
            other => tracing::warn!(?other, "an audit event may not be on the bus"),
        }
    }

    /// Writes the change into the log of every run that is open: an event whose class changes is
    /// published again there, under another dedupe key.
    async fn tell_open_runs(
        &self,
        policy: &PolicyRev,
        before: Option<&PolicyRev>,
    ) -> Result<(), Fault> {
        let (paths, now) = (self.contract.paths(), self.clock.now());
        let (mut after, mut told) = (String::new(), 0);
        loop {
            let page = self.ledger.runs(after, RUNS_PAGE).await?;
            for run in page.iter().filter(|run| run.state != RunState::Closed) {
                let provenance = self.contract.provenance();
                let (event_id, line) = policy.changed(before, &run.id, now, provenance);
                let text = written(&line);
                let mut marked = text.clone();
                marked.push(b'\n');
                let marker = File::new(paths.governance_marker(&run.id, &event_id), marked);
                let lines = vec![Line { text: Bytes::from(text), marker }];
                let log = paths.governance_log(&run.id);
                for put in self.artifacts.append_lines(&log, lines, Markers::Verified).await {
                    put.map_err(cannot)?;
                }
                told += 1;
            }
            match page.last() {
                Some(last) if page.len() == RUNS_PAGE && told < RUNS_TOLD_MAX => {
                    after = last.id.clone();
                }
                Some(_) if page.len() == RUNS_PAGE => {
                    tracing::warn!(
                        told,
                        "too many runs are open to write the change of policy into each; their reports and closures name every policy"
                    );
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Before the doors open: where another policy decides than last time, that is written down.
    pub(super) async fn note_policy(&self) -> Result<(), Fault> {
        let (paths, now) = (self.contract.paths(), self.clock.now());
        let active = paths.active_policy();
        let text = self.artifacts.get(&active).await.map_err(cannot)?;
        let before = text
            .as_ref()
            .and_then(|text| PolicyRev::read(&json::parse(text, &json::Limits::default()).ok()?));
        let policy = self.contract.policy_rev();
        if before.as_ref() == Some(&policy) {
            return Ok(());
        }
        let provenance = self.contract.provenance();
        let (event_id, line) = policy.changed(before.as_ref(), UNSCOPED, now, provenance);
        let text = written(&line);
        let mut marked = text.clone();
        marked.push(b'\n');
        let marker = File::new(paths.governance_marker(UNSCOPED, &event_id), marked);
        let lines = vec![Line { text: Bytes::from(text), marker }];
        let log = paths.governance_log(UNSCOPED);
        for put in self.artifacts.append_lines(&log, lines, Markers::Verified).await {
            put.map_err(cannot)?;
        }
        if before.is_some() {
            self.tell_open_runs(&policy, before.as_ref()).await?;
        }
        self.audit(policy.activation(before.as_ref(), now)).await;
        let mut bytes = written(&policy.active(now));
        bytes.push(b'\n');
        for restored in self.artifacts.restore(vec![File::new(active, bytes)]).await {
            restored.map_err(cannot)?;
        }
        self.artifacts.sync().await.map_err(cannot)?;
        let (revision, digest) = (&policy.revision, &policy.content_digest);
        match before {
            Some(_) => tracing::warn!(revision, digest, "another policy decides from now on"),
            None => tracing::debug!(revision, digest, "the first policy of this gate"),
        }
        Ok(())
    }
}

fn cannot(error: ArtifactsError) -> Fault {
    Fault::caused_by(FaultKind::Internal, "the change of policy cannot be written down", error)
}

fn written(object: &Object<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_object(object, &mut text);
    text
}
