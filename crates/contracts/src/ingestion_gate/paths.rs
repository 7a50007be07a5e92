//! Where artifacts lie: always under the run that their own event names.

/// Stands in for a run where an envelope names none.
pub const UNSCOPED: &str = "unscoped";

/// The folder that local stores keep runs in.
const LOCAL: &str = "fraud-platform";

/// The layout of the artifact store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// What stands before every run: empty, or a folder with a slash at its end.
    prefix: String,
}

impl Paths {
    /// Runs at the top of the store, as on S3.
    pub fn top() -> Self {
        Self::default()
    }

    /// Runs where a local store at `root` keeps them: under `fraud-platform/`, unless the root
    /// itself is called so.
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

    /// Where the bytes of an envelope without a run are kept, beside its record.
    pub fn unscoped_raw(&self, id: &str) -> String {
        format!("{}{UNSCOPED}/ig/quarantine/{id}.raw", self.prefix)
    }

    /// Where the health probe writes.
    pub fn probe(&self) -> String {
        format!("{}{UNSCOPED}/ig/health/last_probe.json", self.prefix)
    }

    /// The policy that was active last.
    pub fn active_policy(&self) -> String {
        format!("{}{UNSCOPED}/ig/policy/active.json", self.prefix)
    }

    /// The governance log of a run, one event a line.
    pub fn governance_log(&self, run: &str) -> String {
        format!("{}{run}/obs/governance/events.jsonl", self.prefix)
    }

    /// The marker that an event is in the governance log.
    pub fn governance_marker(&self, run: &str, event_id: &str) -> String {
        format!("{}{run}/obs/governance/markers/{event_id}.json", self.prefix)
    }

    /// What stands before every run.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `<run>/<rest>`, for those who write beside the gate.
    pub fn of_run(&self, run: &str, rest: &str) -> String {
        format!("{}{run}/{rest}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_root_gets_the_folder_once() {
        let receipt = |paths: Paths| paths.receipt("r", "x");
        assert_eq!(receipt(Paths::top()), "r/ig/receipts/x.json");
        assert_eq!(receipt(Paths::local("data/artifacts")), "fraud-platform/r/ig/receipts/x.json");
        assert_eq!(receipt(Paths::local("runs/fraud-platform/")), "r/ig/receipts/x.json");
    }
}
