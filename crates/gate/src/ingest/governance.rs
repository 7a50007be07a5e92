//! What the gate says of itself: a change of policy at the start, and quarantines in numbers.

use std::sync::{Arc, Mutex, PoisonError};

use admit_artifacts::{File, Line, Markers};
use admit_bus::{Message, Published};
use admit_contracts::ingestion_gate::governance::{self, AUDIT_TOPIC, Audit, PolicyRev};
pub(super) use admit_contracts::ingestion_gate::paths::UNSCOPED;
use admit_core::json::{self, Object, write_object};
use admit_core::{Fault, FaultKind};
use bytes::Bytes;
use tokio::time::timeout;

use super::Ingest;

/// Counts quarantines.
#[derive(Debug, Default)]
pub(super) struct Spikes(Mutex<governance::Spikes>);

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
    async fn audit(&self, audit: Audit) {
        let message = Message {
            topic: AUDIT_TOPIC.into(),
            partition_key: audit.partition_key(),
            dedupe_key: audit.event_id.clone(),
            payload: written(&audit.envelope).into(),
            at: self.clock.now(),
        };
        let published = timeout(self.bus.delivery_timeout(), self.bus.publish(vec![message])).await;
        match published.ok().and_then(|mut published| published.pop()) {
            Some(Published::Committed(_)) => {}
            other => tracing::warn!(?other, "an audit event may not be on the bus"),
        }
    }

    /// Before the doors open: where another policy decides than last time, that is written down.
    pub(super) async fn note_policy(&self) -> Result<(), Fault> {
        let cannot = |error: admit_artifacts::ArtifactsError| {
            let message = "the change of policy cannot be written down";
            Fault::caused_by(FaultKind::Internal, message, error)
        };
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
        for put in self.artifacts.append_lines(&log, lines, Markers::Doubted).await {
            put.map_err(cannot)?;
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

fn written(object: &Object<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_object(object, &mut text);
    text
}
