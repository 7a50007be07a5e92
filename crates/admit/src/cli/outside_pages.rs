//! What the check asks the ledger about one event after the other, read a page ahead: documents and
//! messages come about in ledger order, so one question answers for hundreds of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use admit_contracts::ingestion_gate::DOOR;
use admit_core::effect::Effect;
use admit_core::{Fault, StoredDocument, DocumentKind, Key, Receipt, Seq};
use admit_ledger::{EffectFilter, ReceiptFilter};

use crate::ledger::LedgerReader;

/// Rows that are read ahead.
const AHEAD: usize = 1_000;

/// Rows of one page of admissions, where all of them are read.
const ALL_PAGE: usize = 5_000;

/// Of a key so much is remembered: far more than could meet by chance.
const PREFIX_BYTES: usize = 16;

/// Receipts and effects around the places that are looked at now. What is not among them is asked for by
/// itself.
pub(super) struct Ahead<'l> {
    ledger: &'l dyn LedgerReader,
    receipts: HashMap<Seq, Receipt>,
    effects: HashMap<Seq, Effect>,
}

impl<'l> Ahead<'l> {
    /// Reads ahead from the first of these places.
    pub(super) async fn of(
        ledger: &'l dyn LedgerReader,
        places: impl Iterator<Item = Seq>,
    ) -> Result<Self, Fault> {
        let mut ahead = Self { ledger, receipts: HashMap::new(), effects: HashMap::new() };
        let Some(first) = places.min() else { return Ok(ahead) };
        let (door, after) = (Some(DOOR.to_owned()), Seq(first.0.saturating_sub(1)));
        let filter = ReceiptFilter { door: door.clone(), after, rows_max: AHEAD, ..ReceiptFilter::default() };
        let receipts = ledger.list(filter).await?;
        ahead.receipts = receipts.into_iter().map(|it| (it.id.seq, it)).collect();
        let filter = EffectFilter { door, after, rows_max: AHEAD, ..EffectFilter::default() };
        let effects = ledger.effects(filter).await?;
        ahead.effects = effects.into_iter().map(|it| (it.seq, it)).collect();
        Ok(ahead)
    }

    pub(super) async fn receipt(&self, seq: Seq) -> Result<Option<Receipt>, Fault> {
        match self.receipts.get(&seq) {
            Some(receipt) => Ok(Some(receipt.clone())),
            None => self.ledger.receipt(seq).await,
        }
    }

    pub(super) async fn effect(&self, seq: Seq) -> Result<Option<Effect>, Fault> {
        match self.effects.get(&seq) {
            Some(effect) => Ok(Some(effect.clone())),
            None => self.ledger.effect(seq).await,
        }
    }
}

/// Which admission claimed a key. A ledger looks one key up among all that are noted but not merged yet,
/// so a question for each message would take longer the more there are.
pub(super) struct ClaimedKeys(Vec<([u8; PREFIX_BYTES], Seq)>);

impl ClaimedKeys {
    /// The keys of every fresh admission of the door.
    pub(super) async fn read(ledger: &dyn LedgerReader) -> Result<Self, Fault> {
        let (mut keys, mut after) = (Vec::new(), Seq(0));
        loop {
            let page = ledger
                .list(ReceiptFilter {
                    door: Some(DOOR.to_owned()),
                    verdicts: vec!["fresh".to_owned()],
                    after,
                    rows_max: ALL_PAGE,
                    ..ReceiptFilter::default()
                })
                .await?;
            let Some(last) = page.last() else { break };
            after = last.id.seq;
            keys.extend(page.iter().filter_map(|it| Some((prefix(&it.key?), it.id.seq))));
        }
        keys.sort_unstable();
        Ok(Self(keys))
    }

    pub(super) fn find(&self, key: &Key) -> Option<Seq> {
        let prefix = prefix(key);
        let at = self.0.partition_point(|(known, _)| *known < prefix);
        self.0.get(at).filter(|(known, _)| *known == prefix).map(|(_, seq)| *seq)
    }
}

/// Which admissions have the receipt of their outcome, one mark a place, and which files are documents.
pub(super) struct Documented {
    marks: Vec<u8>,
    /// The paths of all documents, hashed: a stranger that is taken for one by chance is not met.
    paths: Vec<u64>,
}

impl Documented {
    pub(super) const ADMIT: u8 = 1;
    pub(super) const QUARANTINE: u8 = 2;

    pub(super) fn upto(last: Seq) -> Self {
        let places = usize::try_from(last.0).unwrap_or(usize::MAX).saturating_add(1);
        Self { marks: vec![0; places], paths: Vec::new() }
    }

    pub(super) fn note(&mut self, filed: &StoredDocument) {
        self.paths.push(hashed(&filed.document.path));
        let is_own = filed.of == Some(filed.seq) && filed.document.kind == DocumentKind::Receipt;
        let mark = match &*filed.document.decision {
            "ADMIT" if is_own => Self::ADMIT,
            "QUARANTINE" if is_own => Self::QUARANTINE,
            _ => return,
        };
        let at = usize::try_from(filed.seq.0).unwrap_or(usize::MAX);
        if let Some(marks) = self.marks.get_mut(at) {
            *marks |= mark;
        }
    }

    pub(super) fn has(&self, seq: Seq, mark: u8) -> bool {
        let at = usize::try_from(seq.0).unwrap_or(usize::MAX);
        self.marks.get(at).is_some_and(|marks| marks & mark != 0)
    }
    /// Puts the paths in order; before that none is found.
    pub(super) fn sort(&mut self) {
        self.paths.sort_unstable();
    }

    pub(super) fn has_path(&self, path: &str) -> bool {
        self.paths.binary_search(&hashed(path)).is_ok()
    }
}

fn hashed(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn prefix(key: &Key) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix.copy_from_slice(&key.as_bytes()[..PREFIX_BYTES]);
    prefix
}
