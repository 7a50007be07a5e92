//! Before the doors open: what an earlier process left is put in order, in every place.

use admit_core::Fault;

use super::Ingest;

impl Ingest {
    /// In-flight publishes of earlier processes become ambiguous, lost files are made again, a
    /// change of policy is written down, and the first probe is made.
    pub(crate) async fn recover(&self) -> Result<(), Fault> {
        self.take_over().await?;
        let (restored, newest) = self.restore_files().await?;
        self.files.begin_at(newest);
        if restored > 0 {
            tracing::info!(restored, "documents after the last sync were put back");
        }
        self.note_policy().await?;
        self.probe().await;
        Ok(())
    }

    /// In-flight publishes of gates that are gone become ambiguous.
    pub(crate) async fn take_over(&self) -> Result<(), Fault> {
        let (door, now) = (Self::door(), self.clock.now());
        let lost = self.ledger.recover_issuing(door, self.issue.clone(), now).await?;
        if !lost.is_empty() {
            tracing::warn!(
                count = lost.len(),
                "publishes were in flight when the gate stopped, see admit reconcile"
            );
            for _ in &lost {
                self.ambiguous.add_one();
            }
        }
        // What is said about them is issued here and now, so its files are this gate's to write.
        let mut said = Vec::new();
        for effect in &lost {
            said.extend(self.ledger.filed_of(effect.seq).await?);
        }
        self.write_files(&said.iter().collect::<Vec<_>>(), None).await;
        Ok(())
    }
}
