//! Whether a run may be closed. Everything that speaks against it is judged here, and nowhere else.
//!
//! ```text
//! open ──▶ closing ──▶ closed          closing: nothing new comes in, what is known is recognised
//!   ▲─────────┘ refused, or nobody closes it any more
//! ```
//!
//! Invariant: the judgement rests on what is admitted and receipted alone. What a streamer has sent,
//! or remembers of its progress, is no part of it.

use std::collections::BTreeMap;
use std::fmt;

/// Most names that are given for what is wrong.
pub const SAMPLE_MAX: usize = 50;

/// How many admitted events of each output a run should have.
pub type Manifest = BTreeMap<String, u64>;

/// So many of a kind, and the names of the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// How many.
    pub count: u64,
    /// The names of some; at most [`SAMPLE_MAX`].
    pub sample: Vec<String>,
}

impl Listed {
    /// One more.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.sample.len() < SAMPLE_MAX {
            self.sample.push(name.to_owned());
        }
    }
}

impl<'a> FromIterator<&'a str> for Listed {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut listed = Self::default();
        names.into_iter().for_each(|name| listed.add(name));
        listed
    }
}

/// What is known of a run when it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Admitted events.
    pub admitted: u64,
    /// Publishes that somebody is still performing.
    pub in_flight: u64,
    /// Publishes nobody knows the outcome of.
    pub ambiguous: u64,
    /// Quarantines that are neither released nor superseded.
    pub quarantined: Listed,
    /// Receipts whose file is not in the folder of the run.
    pub receipts_missing: Listed,
    /// Quarantine records whose file is not there.
    pub records_missing: Listed,
    /// Receipts that are said to lie outside the folder of the run.
    pub misplaced: Listed,
    /// Files of receipts and quarantine records that are not what the ledger holds.
    pub differing: Listed,
    /// Files in the folder of the run that no decision stands behind.
    pub unknown: Listed,
    /// Admissions and copies whose receipt does not say where on the bus the event is.
    pub without_reference: Listed,
    /// Admitted events that the bus does not have where their receipts say.
    pub messages_missing: Listed,
    /// Why the bus could not be asked, or is not to be relied on.
    pub bus_trouble: Option<String>,
    /// READY messages of the run whose last attempt at streaming has failed.
    pub ready_failed: Listed,
    /// Outputs that the manifest names and the policy does not know.
    pub outputs_unknown: Listed,
    /// Counters of the run that are not what its receipts add up to.
    pub miscounted: Vec<Miscount>,
    /// Admitted events of each output.
    pub outputs: BTreeMap<String, u64>,
    /// How many there should be, where somebody said so.
    pub manifest: Option<Manifest>,
}

/// A counter that disagrees with what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// Which counter.
    pub name: &'static str,
    /// What it says.
    pub counted: i64,
    /// What there is.
    pub found: i64,
}

/// Why a run cannot be closed. The words are for ever, as those of [`Code`](crate::Code) are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ground {
    /// Nothing was admitted.
    NothingAdmitted,
    /// Something is in flight.
    InFlight,
    /// An outcome is not known.
    Ambiguous,
    /// A quarantine is open.
    QuarantineOpen,
    /// A receipt has no file.
    ReceiptMissing,
    /// A quarantine record has no file.
    RecordMissing,
    /// A receipt lies outside its run.
    ReceiptMisplaced,
    /// A file is not what the ledger holds.
    ReceiptDiffers,
    /// A file has no decision.
    ReceiptUnknown,
    /// A receipt does not say where the event is.
    ReferenceMissing,
    /// The bus does not have an admitted event.
    MessageMissing,
    /// The bus cannot be asked.
    BusUnhealthy,
    /// A READY message was not streamed to its end.
    ReadyFailed,
    /// Counters and receipts disagree.
    Miscounted,
    /// The manifest names what no event can be.
    OutputUnknown,
    /// There is more or less than there should be.
    ManifestMismatch,
}

impl Ground {
    /// All of them, in the order they are judged.
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

    /// The stable word for it.
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

/// One thing that speaks against closing a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Which it is.
    pub ground: Ground,
    /// What is wrong and what to do about it, in one sentence.
    pub message: String,
    /// How often it is so.
    pub count: u64,
    /// Where, as far as that fits.
    pub sample: Vec<String>,
}

impl Objection {
    fn new(ground: Ground, of: Listed, message: &str) -> Self {
        let Listed { count, sample } = of;
        Self { ground, message: message.replace("{n}", &count.to_string()), count, sample }
    }
}

/// Everything that speaks against closing a run, in the order of [`Ground::ALL`]. Nothing means that
/// it may be closed.
pub fn judge(account: &Account) -> Vec<Objection> {
    Ground::ALL.into_iter().filter_map(|ground| object(ground, account)).collect()
}

/// What one ground has to say.
fn object(ground: Ground, account: &Account) -> Option<Objection> {
    if ground == Ground::NothingAdmitted {
        let nothing = Listed::default();
        return (account.admitted == 0).then(|| Objection::new(ground, nothing, message(ground)));
    }
    let of = listed(ground, account);
    (of.count > 0).then(|| Objection::new(ground, of, message(ground)))
}

/// What of an account is a ground.
fn listed(ground: Ground, account: &Account) -> Listed {
    let many = |count| Listed { count, sample: Vec::new() };
    match ground {
        Ground::NothingAdmitted => Listed::default(),
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
            None => Listed::default(),
        },
    }
}

/// What is wrong and what to do about it; `{n}` stands for how often.
const fn message(ground: Ground) -> &'static str {
    match ground {
        Ground::NothingAdmitted => "no event of this run was admitted, copies do not count",
        Ground::InFlight => "{n} publishes are in flight, close the run again when they have ended",
        Ground::Ambiguous => {
            "nobody knows the outcome of {n} publishes, resolve them with admit reconcile"
        }
        Ground::QuarantineOpen => {
            "{n} quarantines are neither released nor superseded, see admit quarantine list --run \
             RUN --open"
        }
        Ground::ReceiptMissing => {
            "{n} receipts have no file in the folder of the run, the gate writes them again from \
             the ledger: see to the artifact store, close the run again in a moment"
        }
        Ground::RecordMissing => {
            "{n} quarantine records have no file in the folder of the run, the gate writes them \
             again from the ledger: close the run again in a moment"
        }
        Ground::ReceiptMisplaced => {
            "{n} receipts say that they lie outside the folder of the run they belong to"
        }
        Ground::ReceiptDiffers => {
            "{n} files of receipts or quarantine records are not what the ledger holds; move them \
             away and close the run again, the gate writes them again from the ledger"
        }
        Ground::ReceiptUnknown => {
            "{n} files in the folder of the run stand for no decision in the ledger, find out who \
             put them there"
        }
        Ground::ReferenceMissing => {
            "{n} receipts of admissions or copies do not say where on the bus the event is"
        }
        Ground::MessageMissing => {
            "{n} admitted events are not on the bus where their receipts say; compare with admit \
             verify, and restore the bus from a copy"
        }
        Ground::BusUnhealthy => {
            "the bus cannot confirm the events of the run; see GET /v1/ops/health, and close the \
             run again when the bus is healthy"
        }
        Ground::ReadyFailed => {
            "{n} READY messages were not streamed to their end; run admit stream again, or close \
             the run when their last record is STREAMED"
        }
        Ground::Miscounted => {
            "{n} counters of the run are not what its receipts add up to, run admit verify"
        }
        Ground::OutputUnknown => {
            "{n} outputs of the manifest are no event types of the policy; correct their names"
        }
        Ground::ManifestMismatch => {
            "{n} outputs have not as many admitted events as the manifest expects"
        }
    }
}

fn miscounts(miscounted: &[Miscount]) -> Listed {
    let mut listed = Listed::default();
    for Miscount { name, counted, found } in miscounted {
        listed.add(&format!("{name}: {counted} counted, {found} found"));
    }
    listed
}

/// The outputs of a manifest that are not as they should be. What the manifest does not name is not
/// compared: others than the streamer produce too.
fn mismatches(manifest: &Manifest, outputs: &BTreeMap<String, u64>) -> Listed {
    let mut listed = Listed::default();
    for (output, expected) in manifest {
        let admitted = outputs.get(output).copied().unwrap_or(0);
        if admitted != *expected {
            listed.add(&format!("{output}: {expected} expected, {admitted} admitted"));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that nothing speaks against.
    fn sound() -> Account {
        let outputs = BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)]);
        let manifest = Some(BTreeMap::from([("a".to_owned(), 3)]));
        Account { admitted: 5, outputs, manifest, ..Account::default() }
    }

    fn one(name: &str) -> Listed {
        [name].into_iter().collect()
    }

    type Spoil = fn(&mut Account);

    /// One way to spoil a sound run for every ground.
    const SPOILT: [(Ground, Spoil); 16] = [
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
    fn an_open_quarantine_is_told_with_the_command_that_lists_it() {
        let account = Account { quarantined: one("q"), ..sound() };
        let said = &judge(&account)[0].message;
        assert!(said.contains("admit quarantine list --run RUN --open"), "{said}");
    }

    #[test]
    fn a_sound_run_may_be_closed() {
        assert_eq!(judge(&sound()), []);
        let without = Account { manifest: None, ..sound() };
        assert_eq!(judge(&without), []);
    }

    #[test]
    fn each_ground_alone_refuses_and_names_itself() {
        assert_eq!(SPOILT.map(|(ground, _)| ground), Ground::ALL, "every ground has its case");
        for (ground, spoil) in SPOILT {
            let mut account = sound();
            spoil(&mut account);
            let said = judge(&account);
            let [objection] = said.as_slice() else { panic!("{ground}: {said:?}") };
            assert_eq!(objection.ground, ground);
            assert!(!objection.message.contains("{n}"), "{}", objection.message);
            assert!(!objection.message.ends_with('.'), "{}", objection.message);
        }
    }

    #[test]
    fn all_grounds_together_are_all_told_in_their_order() {
        let mut account = sound();
        SPOILT.iter().for_each(|(_, spoil)| spoil(&mut account));
        let grounds: Vec<Ground> = judge(&account).iter().map(|said| said.ground).collect();
        assert_eq!(grounds, Ground::ALL);
    }

    #[test]
    fn copies_alone_do_not_close_a_run() {
        let said = judge(&Account::default());
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].ground, Ground::NothingAdmitted);
    }

    #[test]
    fn a_manifest_is_compared_by_what_it_names() {
        let mut account = sound();
        for (manifest, told) in [
            (vec![("a", 3), ("b", 2)], vec![]),
            (vec![("a", 2)], vec!["a: 2 expected, 3 admitted"]),
            (vec![("a", 4)], vec!["a: 4 expected, 3 admitted"]),
            (vec![("c", 1)], vec!["c: 1 expected, 0 admitted"]),
            (vec![("c", 0)], vec![]),
            (vec![], vec![]),
        ] {
            let manifest = manifest.into_iter().map(|(output, n)| (output.to_owned(), n)).collect();
            account.manifest = Some(manifest);
            let said = judge(&account);
            let sample: Vec<&str> =
                said.iter().flat_map(|said| &said.sample).map(String::as_str).collect();
            assert_eq!(sample, told);
        }
    }

    #[test]
    fn names_are_given_up_to_a_limit_and_counted_beyond() {
        let names: Vec<String> = (0..SAMPLE_MAX + 7).map(|n| n.to_string()).collect();
        let listed: Listed = names.iter().map(String::as_str).collect();
        let account = Account { quarantined: listed, ..sound() };
        let said = judge(&account);
        assert_eq!((said[0].count, said[0].sample.len()), (57, SAMPLE_MAX));
        assert!(said[0].message.starts_with("57 quarantines"), "{}", said[0].message);
    }
}
