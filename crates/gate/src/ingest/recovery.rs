//! Start-up recovery of the ingestion gate: effects, files and policy.

use admit_core::Fault;

use super::Ingest;

impl Ingest {
    /// Marks in-flight publishes of earlier processes as ambiguous, restores lost files, records a change
    /// of policy, and makes the first health probe.
    pub(crate) async fn recover(&self) -> Result<(), Fault> {
        self.recover_dead_gates().await?;
        let (restored, newest) = self.restore_files().await?;
        self.files.start_at(newest);
        if restored > 0 {
            tracing::info!(restored, "restored the files of documents after the last sync");
        }
        self.record_policy().await?;
        self.probe().await;
        Ok(())
    }

    /// Marks in-flight publishes of dead gates as ambiguous.
    pub(crate) async fn recover_dead_gates(&self) -> Result<(), Fault> {
        let (door, now) = (Self::door(), self.clock.now());
        let lost = self.ledger.recover_issuing(door, self.issue.clone(), now).await?;
        if !lost.is_empty() {
            tracing::warn!(
                count = lost.len(),
                "publishes were in flight when their gate stopped and are now ambiguous, see admit reconcile"
            );
            for _ in &lost {
                self.ambiguous.add_one();
            }
        }
        // The documents about them are issued by this gate, which therefore writes their files.
        let mut documents = Vec::new();
        for effect in &lost {
            documents.extend(self.ledger.filed_of(effect.seq).await?);
        }
        self.write_files(&documents.iter().collect::<Vec<_>>(), None).await;
        Ok(())
    }
}
