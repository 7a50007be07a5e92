//! Paths of artifacts: always under the run that their own event names.

/// Folder of artifacts whose envelope names no run.
pub const UNSCOPED: &str = "unscoped";

/// Folder in which local stores keep runs.
const LOCAL: &str = "fraud-platform";

/// Layout of the artifact store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArtifactPaths {
    /// Prefix of every run: empty, or a folder with a trailing slash.
    prefix: String,
}

impl ArtifactPaths {
    /// Layout with runs at the top of the store, as on S3.
    pub fn top() -> Self {
        Self::default()
    }

    /// Layout of a local store at `root`: runs under `fraud-platform/`, unless `root` itself has
    /// that name.
    pub fn local(root: &str) -> Self {
        let name = root.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if name == LOCAL { Self::top() } else { Self { prefix: format!("{LOCAL}/") } }
    }

    /// `<run>/ig/receipts/<id>.json`
    pub fn receipt(&self, run: &str, id: &str) -> String {
        format!("{}{run}/ig/receipts/{id}.json", self.prefix)
    }

    /// `<run>/ig/quarantine/<id>.json`
    pub fn quarantine(&self, run: &str, id: &str) -> String {
        format!("{}{run}/ig/quarantine/{id}.json", self.prefix)
    }

    /// Path of the raw bytes of an envelope without a run, beside its record.
    pub fn unscoped_raw(&self, id: &str) -> String {
        format!("{}{UNSCOPED}/ig/quarantine/{id}.raw", self.prefix)
    }

    /// Path that the health probe writes to.
    pub fn probe(&self) -> String {
        format!("{}{UNSCOPED}/ig/health/last_probe.json", self.prefix)
    }

    /// Path of the last active policy.
    pub fn active_policy(&self) -> String {
        format!("{}{UNSCOPED}/ig/policy/active.json", self.prefix)
    }

    /// Path of the governance log of a run, one event per line.
    pub fn governance_log(&self, run: &str) -> String {
        format!("{}{run}/obs/governance/events.jsonl", self.prefix)
    }

    /// Path of the marker for an event in the governance log.
    pub fn governance_marker(&self, run: &str, event_id: &str) -> String {
        format!("{}{run}/obs/governance/markers/{event_id}.json", self.prefix)
    }

    /// Prefix of every run.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `<run>/<rest>`, for other writers of the store.
    pub fn of_run(&self, run: &str, rest: &str) -> String {
        format!("{}{run}/{rest}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_root_gets_the_folder_once() {
        let receipt = |paths: ArtifactPaths| paths.receipt("r", "x");
        assert_eq!(receipt(ArtifactPaths::top()), "r/ig/receipts/x.json");
        assert_eq!(
            receipt(ArtifactPaths::local("data/artifacts")),
            "fraud-platform/r/ig/receipts/x.json"
        );
        assert_eq!(receipt(ArtifactPaths::local("runs/fraud-platform/")), "r/ig/receipts/x.json");
    }
}
