//! Checks before closing a run. All reasons against closing are evaluated here.
//!
//! ```text
//! open ──▶ closing ──▶ closed          closing: new events are refused, duplicates are recognised
//!   ▲─────────┘ refused or abandoned
//! ```
//!
//! Invariant: the checks use admissions and receipts only. What a streamer has sent, or stores as
//! its progress, has no influence.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of names per objection.
pub const SAMPLE_MAX: usize = 50;

/// Expected number of admitted events per output.
pub type Manifest = BTreeMap<String, u64>;

/// Count with a sample of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedSample {
    /// Total count.
    pub count: u64,
    /// Sample of at most [`SAMPLE_MAX`] names.
    pub sample: Vec<String>,
}

impl CountedSample {
    /// Counts one item.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.sample.len() < SAMPLE_MAX {
            self.sample.push(name.to_owned());
        }
    }
}

impl<'a> FromIterator<&'a str> for CountedSample {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut sample = Self::default();
        names.into_iter().for_each(|name| sample.add(name));
        sample
    }
}

/// Facts about a run for the closure checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Admitted events.
    pub admitted: u64,
    /// Publishes in flight.
    pub in_flight: u64,
    /// Publishes with unknown outcome.
    pub ambiguous: u64,
    /// Quarantines neither released nor superseded.
    pub quarantined: CountedSample,
    /// Receipts without a file in the folder of the run.
    pub receipts_missing: CountedSample,
    /// Quarantine records without a file.
    pub records_missing: CountedSample,
    /// Receipts whose path is outside the folder of the run.
    pub misplaced: CountedSample,
    /// Receipt and quarantine files that differ from the ledger.
    pub differing: CountedSample,
    /// Files in the folder of the run without a decision in the ledger.
    pub unknown: CountedSample,
    /// Admissions and copies whose receipt has no bus position.
    pub without_reference: CountedSample,
    /// Admitted events missing on the bus at the position in their receipt.
    pub messages_missing: CountedSample,
    /// Reason why the bus could not be queried or is not reliable.
    pub bus_trouble: Option<String>,
    /// READY messages of the run whose last streaming attempt failed.
    pub ready_failed: CountedSample,
    /// Outputs in the manifest that the policy does not define.
    pub outputs_unknown: CountedSample,
    /// Counters of the run that differ from its receipts.
    pub miscounted: Vec<Miscount>,
    /// Admitted events per output.
    pub outputs: BTreeMap<String, u64>,
    /// Expected counts, if a manifest was supplied.
    pub manifest: Option<Manifest>,
}

/// Counter that differs from the counted items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// Name of the counter.
    pub name: &'static str,
    /// Value of the counter.
    pub counted: i64,
    /// Actual number.
    pub found: i64,
}

/// Reason why a run cannot be closed. Names are stable, like those of [`Code`](crate::Code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ground {
    /// No event was admitted.
    NothingAdmitted,
    /// A publish is in flight.
    InFlight,
    /// An outcome is unknown.
    Ambiguous,
    /// A quarantine is open.
    QuarantineOpen,
    /// A receipt file is missing.
    ReceiptMissing,
    /// A quarantine record file is missing.
    RecordMissing,
    /// A receipt path is outside its run.
    ReceiptMisplaced,
    /// A file differs from the ledger.
    ReceiptDiffers,
    /// A file has no decision in the ledger.
    ReceiptUnknown,
    /// A receipt has no bus position.
    ReferenceMissing,
    /// An admitted event is missing on the bus.
    MessageMissing,
    /// The bus cannot be queried.
    BusUnhealthy,
    /// A READY message was not streamed completely.
    ReadyFailed,
    /// Counters and receipts disagree.
    Miscounted,
    /// The manifest names an unknown output.
    OutputUnknown,
    /// Admitted counts differ from the manifest.
    ManifestMismatch,
}

impl Ground {
    /// All grounds, in order of evaluation.
    pub const ALL: [Self; 16] = [
        Self::NothingAdmitted,
        Self::InFlight,
        Self::Ambiguous,
        Self::QuarantineOpen,
        Self::ReceiptMissing,
        Self::RecordMissing,
        Self::ReceiptMisplaced,
        Self::ReceiptDiffers,
        Self::ReceiptUnknown,
        Self::ReferenceMissing,
        Self::MessageMissing,
        Self::BusUnhealthy,
        Self::ReadyFailed,
        Self::Miscounted,
        Self::OutputUnknown,
        Self::ManifestMismatch,
    ];

    /// Stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NothingAdmitted => "nothing_admitted",
            Self::InFlight => "in_flight",
            Self::Ambiguous => "ambiguous",
            Self::QuarantineOpen => "quarantine_open",
            Self::ReceiptMissing => "receipt_missing",
            Self::RecordMissing => "record_missing",
            Self::ReceiptMisplaced => "receipt_misplaced",
            Self::ReceiptDiffers => "receipt_differs",
            Self::ReceiptUnknown => "receipt_unknown",
            Self::ReferenceMissing => "reference_missing",
            Self::MessageMissing => "message_missing",
            Self::BusUnhealthy => "bus_unhealthy",
            Self::ReadyFailed => "ready_failed",
            Self::Miscounted => "miscounted",
            Self::OutputUnknown => "output_unknown",
            Self::ManifestMismatch => "manifest_mismatch",
        }
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Objection to closing a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Ground of the objection.
    pub ground: Ground,
    /// Problem and remedy in one sentence.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
    /// Sample of occurrences.
    pub sample: Vec<String>,
}

impl Objection {
    fn new(ground: Ground, of: CountedSample, message: &str) -> Self {
        let CountedSample { count, sample } = of;
        Self { ground, message: message.replace("{n}", &count.to_string()), count, sample }
    }
}

/// Evaluates all grounds in the order of [`Ground::ALL`]. Empty: the run may be closed.
pub fn find_objections(account: &RunFacts) -> Vec<Objection> {
    Ground::ALL.into_iter().filter_map(|ground| evaluate(ground, account)).collect()
}

/// Evaluates one ground.
fn evaluate(ground: Ground, account: &RunFacts) -> Option<Objection> {
    if ground == Ground::NothingAdmitted {
        let nothing = CountedSample::default();
        return (account.admitted == 0).then(|| Objection::new(ground, nothing, message(ground)));
    }
    let of = occurrences(ground, account);
    (of.count > 0).then(|| Objection::new(ground, of, message(ground)))
}

/// Number and examples of what prevents the closing for this reason.
fn occurrences(ground: Ground, account: &RunFacts) -> CountedSample {
    let many = |count| CountedSample { count, sample: Vec::new() };
    match ground {
        Ground::NothingAdmitted => CountedSample::default(),
        Ground::InFlight => many(account.in_flight),
        Ground::Ambiguous => many(account.ambiguous),
        Ground::QuarantineOpen => account.quarantined.clone(),
        Ground::ReceiptMissing => account.receipts_missing.clone(),
        Ground::RecordMissing => account.records_missing.clone(),
        Ground::ReceiptMisplaced => account.misplaced.clone(),
        Ground::ReceiptDiffers => account.differing.clone(),
        Ground::ReceiptUnknown => account.unknown.clone(),
        Ground::ReferenceMissing => account.without_reference.clone(),
        Ground::MessageMissing => account.messages_missing.clone(),
        Ground::BusUnhealthy => account.bus_trouble.as_deref().into_iter().collect(),
        Ground::ReadyFailed => account.ready_failed.clone(),
        Ground::Miscounted => miscounts(&account.miscounted),
        Ground::OutputUnknown => account.outputs_unknown.clone(),
        Ground::ManifestMismatch => match &account.manifest {
            Some(manifest) => mismatches(manifest, &account.outputs),
            None => CountedSample::default(),
        },
    }
}

/// Message template; `{n}` is the count.
const fn message(ground: Ground) -> &'static str {
    match ground {
        Ground::NothingAdmitted => "no event of this run was admitted; duplicates do not count",
        Ground::InFlight => "{n} publishes are in flight; retry when they have finished",
        Ground::Ambiguous => {
            "the outcome of {n} publishes is unknown; resolve them with admit reconcile"
        }
        Ground::QuarantineOpen => {
            "{n} quarantines are neither released nor superseded; see admit quarantine list --run \
             RUN --open"
        }
        Ground::ReceiptMissing => {
            "{n} receipt files are missing in the folder of the run; the gate restores them from the \
             ledger: check the artifact store and retry after a few seconds"
        }
        Ground::RecordMissing => {
            "{n} quarantine record files are missing in the folder of the run; the gate restores \
             them from the ledger: retry after a few seconds"
        }
        Ground::ReceiptMisplaced => "{n} receipts have a path outside the folder of their run",
        Ground::ReceiptDiffers => {
            "{n} files of receipts or quarantine records differ from the ledger; move them away and \
             retry: the gate restores them from the ledger"
        }
        Ground::ReceiptUnknown => {
            "{n} files in the folder of the run have no decision in the ledger; find out where they \
             come from"
        }
        Ground::ReferenceMissing => "{n} receipts of admissions or duplicates have no bus position",
        Ground::MessageMissing => {
            "{n} admitted events are missing on the bus at the position in their receipt; run admit \
             verify and restore the bus from a backup"
        }
        Ground::BusUnhealthy => {
            "the bus cannot confirm the events of the run; see GET /v1/ops/health and retry when the \
             bus is healthy"
        }
        Ground::ReadyFailed => {
            "{n} READY messages were not streamed completely; run admit stream again, or retry when \
             their last record is STREAMED"
        }
        Ground::Miscounted => "{n} counters of the run differ from its receipts; run admit verify",
        Ground::OutputUnknown => {
            "{n} outputs of the manifest are not event types of the policy; correct their names"
        }
        Ground::ManifestMismatch => {
            "{n} outputs differ in their number of admitted events from the manifest"
        }
    }
}

fn miscounts(miscounted: &[Miscount]) -> CountedSample {
    let mut sample = CountedSample::default();
    for Miscount { name, counted, found } in miscounted {
        sample.add(&format!("{name}: {counted} counted, {found} found"));
    }
    sample
}

/// Outputs whose count differs from the manifest. Outputs that the manifest does not name are not
/// compared: other producers than the streamer write to the run too.
fn mismatches(manifest: &Manifest, outputs: &BTreeMap<String, u64>) -> CountedSample {
    let mut sample = CountedSample::default();
    for (output, expected) in manifest {
        let admitted = outputs.get(output).copied().unwrap_or(0);
        if admitted != *expected {
            sample.add(&format!("{output}: {expected} expected, {admitted} admitted"));
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run without objections.
    fn sound() -> RunFacts {
        let outputs = BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)]);
        let manifest = Some(BTreeMap::from([("a".to_owned(), 3)]));
        RunFacts { admitted: 5, outputs, manifest, ..RunFacts::default() }
    }

    fn one(name: &str) -> CountedSample {
        [name].into_iter().collect()
    }

    type Defect = fn(&mut RunFacts);

    /// One defect per ground.
    const DEFECTS: [(Ground, Defect); 16] = [
        (Ground::NothingAdmitted, |account| account.admitted = 0),
        (Ground::InFlight, |account| account.in_flight = 1),
        (Ground::Ambiguous, |account| account.ambiguous = 1),
        (Ground::QuarantineOpen, |account| account.quarantined = one("q")),
        (Ground::ReceiptMissing, |account| account.receipts_missing = one("r")),
        (Ground::RecordMissing, |account| account.records_missing = one("q")),
        (Ground::ReceiptMisplaced, |account| account.misplaced = one("r")),
        (Ground::ReceiptDiffers, |account| account.differing = one("r")),
        (Ground::ReceiptUnknown, |account| account.unknown = one("r")),
        (Ground::ReferenceMissing, |account| account.without_reference = one("r")),
        (Ground::MessageMissing, |account| account.messages_missing = one("t/0/7")),
        (Ground::BusUnhealthy, |account| account.bus_trouble = Some("it is down".to_owned())),
        (Ground::ReadyFailed, |account| account.ready_failed = one("m")),
        (Ground::Miscounted, |account| {
            account.miscounted.push(Miscount { name: "admit", counted: 5, found: 4 });
        }),
        (Ground::OutputUnknown, |account| account.outputs_unknown = one("o")),
        (Ground::ManifestMismatch, |account| {
            account.outputs.insert("a".to_owned(), 4);
        }),
    ];

    #[test]
    fn an_open_quarantine_is_reported_with_the_command_that_lists_it() {
        let account = RunFacts { quarantined: one("q"), ..sound() };
        let message = &find_objections(&account)[0].message;
        assert!(message.contains("admit quarantine list --run RUN --open"), "{message}");
    }

    #[test]
    fn a_sound_run_may_be_closed() {
        assert_eq!(find_objections(&sound()), []);
        let without = RunFacts { manifest: None, ..sound() };
        assert_eq!(find_objections(&without), []);
    }

    #[test]
    fn each_ground_alone_refuses_and_names_itself() {
        assert_eq!(DEFECTS.map(|(ground, _)| ground), Ground::ALL, "every ground has its case");
        for (ground, inject) in DEFECTS {
            let mut account = sound();
            inject(&mut account);
            let objections = find_objections(&account);
            let [objection] = objections.as_slice() else { panic!("{ground}: {objections:?}") };
            assert_eq!(objection.ground, ground);
            assert!(!objection.message.contains("{n}"), "{}", objection.message);
            assert!(!objection.message.ends_with('.'), "{}", objection.message);
        }
    }

    #[test]
    fn all_grounds_together_are_all_reported_in_order() {
        let mut account = sound();
        DEFECTS.iter().for_each(|(_, inject)| inject(&mut account));
        let grounds: Vec<Ground> =
            find_objections(&account).iter().map(|objection| objection.ground).collect();
        assert_eq!(grounds, Ground::ALL);
    }

    #[test]
    fn copies_alone_do_not_close_a_run() {
        let objections = find_objections(&RunFacts::default());
        assert_eq!(objections.len(), 1);
        assert_eq!(objections[0].ground, Ground::NothingAdmitted);
    }

    #[test]
    fn a_manifest_is_compared_by_what_it_names() {
        let mut account = sound();
        for (manifest, expected) in [
            (vec![("a", 3), ("b", 2)], vec![]),
            (vec![("a", 2)], vec!["a: 2 expected, 3 admitted"]),
            (vec![("a", 4)], vec!["a: 4 expected, 3 admitted"]),
            (vec![("c", 1)], vec!["c: 1 expected, 0 admitted"]),
            (vec![("c", 0)], vec![]),
            (vec![], vec![]),
        ] {
            let manifest = manifest.into_iter().map(|(output, n)| (output.to_owned(), n)).collect();
            account.manifest = Some(manifest);
            let objections = find_objections(&account);
            let sample: Vec<&str> = objections
                .iter()
                .flat_map(|objection| &objection.sample)
                .map(String::as_str)
                .collect();
            assert_eq!(sample, expected);
        }
    }

    #[test]
    fn names_are_given_up_to_a_limit_and_counted_beyond() {
        let names: Vec<String> = (0..SAMPLE_MAX + 7).map(|n| n.to_string()).collect();
        let listed: CountedSample = names.iter().map(String::as_str).collect();
        let account = RunFacts { quarantined: listed, ..sound() };
        let objections = find_objections(&account);
        assert_eq!((objections[0].count, objections[0].sample.len()), (57, SAMPLE_MAX));
        assert!(objections[0].message.starts_with("57 quarantines"), "{}", objections[0].message);
    }
}
