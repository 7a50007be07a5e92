//! Governance records: policy changes at startup, and quarantine spikes.

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

/// Page size of reading runs.
const RUNS_PAGE: usize = 256;

/// Maximum number of runs whose logs get a line about a policy change. The start waits for them.
const RUNS_UPDATED_MAX: usize = 1_024;

/// Detector of quarantine spikes.
#[derive(Debug, Default)]
pub(super) struct QuarantineSpikes(Mutex<governance::SpikeDetector>);

impl Ingest {
    /// Counts a quarantine; publishes one audit event if there are too many within a minute.
    pub(super) fn note_quarantine(self: &Arc<Self>) {
        let mut spikes = self.spikes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(audit) = spikes.note(self.clock.now()) else { return };
        drop(spikes);
        tracing::warn!("quarantine spike: many events were quarantined within a minute");
        let ingest = Arc::clone(self);
        self.tasks.spawn(async move { ingest.publish_audit(audit).await });
    }

    /// Publishes an event on the audit topic, best effort.
    async fn publish_audit(&self, audit: AuditEvent) {
        let message = Message {
            topic: AUDIT_TOPIC.into(),
            partition_key: audit.partition_key(),
            dedupe_key: audit.event_id.clone(),
            payload: to_json(&audit.envelope).into(),
            at: self.clock.now(),
        };
        let published = timeout(self.bus.delivery_timeout(), self.bus.publish(vec![message])).await;
        match published.ok().and_then(|mut published| published.pop()) {
            Some(PublishOutcome::Committed(_)) => {}
            other => tracing::warn!(?other, "an audit event may not have been published"),
        }
    }

    /// Appends a policy change to the log of every open run: events whose class changes are published
    /// again there, under another dedupe key.
    async fn record_policy_in_open_runs(
        &self,
        policy: &PolicyRev,
        before: Option<&PolicyRev>,
    ) -> Result<(), Fault> {
        let (paths, now) = (self.contract.paths(), self.clock.now());
        let (mut after, mut updated) = (String::new(), 0);
        loop {
            let page = self.ledger.runs(after, RUNS_PAGE).await?;
            for run in page.iter().filter(|run| run.state != RunState::Closed) {
                let provenance = self.contract.provenance();
                let (event_id, line) = policy.changed(before, &run.id, now, provenance);
                let text = to_json(&line);
                let mut marker_text = text.clone();
                marker_text.push(b'\n');
                let marker = File::new(paths.governance_marker(&run.id, &event_id), marker_text);
                let lines = vec![Line { text: Bytes::from(text), marker }];
                let log = paths.governance_log(&run.id);
                for put in self.artifacts.append_lines(&log, lines, Markers::Verified).await {
                    put.map_err(cannot_record)?;
                }
                updated += 1;
            }
            match page.last() {
                Some(last) if page.len() == RUNS_PAGE && updated < RUNS_UPDATED_MAX => {
                    after = last.id.clone();
                }
                Some(_) if page.len() == RUNS_PAGE => {
                    tracing::warn!(
                        updated,
                        "too many open runs, the policy change was not appended to all of their logs; their reports and closures list every policy"
                    );
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Records the policy if it differs from that of the last start. Runs before the doors open.
    pub(super) async fn record_policy(&self) -> Result<(), Fault> {
        let (paths, now) = (self.contract.paths(), self.clock.now());
        let active = paths.active_policy();
        let text = self.artifacts.get(&active).await.map_err(cannot_record)?;
        let before = text
            .as_ref()
            .and_then(|text| PolicyRev::read(&json::parse(text, &json::Limits::default()).ok()?));
        let policy = self.contract.policy_rev();
        if before.as_ref() == Some(&policy) {
            return Ok(());
        }
        let provenance = self.contract.provenance();
        let (event_id, line) = policy.changed(before.as_ref(), UNSCOPED, now, provenance);
        let text = to_json(&line);
        let mut marker_text = text.clone();
        marker_text.push(b'\n');
        let marker = File::new(paths.governance_marker(UNSCOPED, &event_id), marker_text);
        let lines = vec![Line { text: Bytes::from(text), marker }];
        let log = paths.governance_log(UNSCOPED);
        for put in self.artifacts.append_lines(&log, lines, Markers::Verified).await {
            put.map_err(cannot_record)?;
        }
        if before.is_some() {
            self.record_policy_in_open_runs(&policy, before.as_ref()).await?;
        }
        self.publish_audit(policy.activation(before.as_ref(), now)).await;
        let mut bytes = to_json(&policy.active(now));
        bytes.push(b'\n');
        for restored in self.artifacts.restore(vec![File::new(active, bytes)]).await {
            restored.map_err(cannot_record)?;
        }
        self.artifacts.sync().await.map_err(cannot_record)?;
        let (revision, digest) = (&policy.revision, &policy.content_digest);
        match before {
            Some(_) => tracing::warn!(revision, digest, "the policy has changed"),
            None => tracing::debug!(revision, digest, "first policy of this gate"),
        }
        Ok(())
    }
}

fn cannot_record(error: ArtifactsError) -> Fault {
    Fault::caused_by(FaultKind::Internal, "cannot record the policy change", error)
}

fn to_json(object: &Object<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_object(object, &mut text);
    text
}
