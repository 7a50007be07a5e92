//! Lookup tables for `admit verify`: receipts, effects and keys read in pages instead of one by one.
//!
//! Documents and messages are almost in ledger order, so one page serves hundreds of lookups.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use admit_contracts::ingestion_gate::DOOR;
use admit_core::effect::Effect;
use admit_core::{DocumentKind, Fault, Key, Receipt, Seq, StoredDocument};
use admit_ledger::{EffectFilter, ReceiptFilter};

use crate::ledger::LedgerReader;

/// Rows per prefetch.
const PREFETCH_ROWS: usize = 1_000;

/// Rows per page when all admissions are read.
const ALL_PAGE: usize = 5_000;

/// Bytes of a key that are kept in memory; long enough to rule out collisions.
const PREFIX_BYTES: usize = 16;

/// Receipts and effects from the current seq on. Others are read individually.
pub(super) struct ReceiptPrefetch<'l> {
    ledger: &'l dyn LedgerReader,
    receipts: HashMap<Seq, Receipt>,
    effects: HashMap<Seq, Effect>,
}

impl<'l> ReceiptPrefetch<'l> {
    /// Reads receipts and effects from the lowest of `seqs` on.
    pub(super) async fn read(
        ledger: &'l dyn LedgerReader,
        seqs: impl Iterator<Item = Seq>,
    ) -> Result<Self, Fault> {
        let mut prefetch = Self { ledger, receipts: HashMap::new(), effects: HashMap::new() };
        let Some(first) = seqs.min() else { return Ok(prefetch) };
        let (door, after) = (Some(DOOR.to_owned()), Seq(first.0.saturating_sub(1)));
        let filter = ReceiptFilter {
            door: door.clone(),
            after,
            rows_max: PREFETCH_ROWS,
            ..ReceiptFilter::default()
        };
        let receipts = ledger.list(filter).await?;
        prefetch.receipts = receipts.into_iter().map(|it| (it.id.seq, it)).collect();
        let filter =
            EffectFilter { door, after, rows_max: PREFETCH_ROWS, ..EffectFilter::default() };
        let effects = ledger.effects(filter).await?;
        prefetch.effects = effects.into_iter().map(|it| (it.seq, it)).collect();
        Ok(prefetch)
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

/// Map from key to the admission that claimed it. Single lookups in the ledger scan the unmerged part of the
/// key index, which is too slow for every message.
pub(super) struct ClaimedKeys(Vec<([u8; PREFIX_BYTES], Seq)>);

impl ClaimedKeys {
    /// Reads the keys of all fresh admissions of the door.
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
        let at = self.0.partition_point(|(claimed, _)| *claimed < prefix);
        self.0.get(at).filter(|(claimed, _)| *claimed == prefix).map(|(_, seq)| *seq)
    }
}

/// Index of documents: the decisions that each seq has a receipt for, and the paths of all documents.
pub(super) struct DocumentIndex {
    marks: Vec<u8>,
    /// Hashes of the paths of all documents; a collision would hide an unknown file.
    paths: Vec<u64>,
}

impl DocumentIndex {
    pub(super) const ADMIT: u8 = 1;
    pub(super) const QUARANTINE: u8 = 2;

    pub(super) fn new(last: Seq) -> Self {
        let seqs = usize::try_from(last.0).unwrap_or(usize::MAX).saturating_add(1);
        Self { marks: vec![0; seqs], paths: Vec::new() }
    }

    pub(super) fn add(&mut self, stored: &StoredDocument) {
        self.paths.push(path_hash(&stored.document.path));
        let is_own = stored.of == Some(stored.seq) && stored.document.kind == DocumentKind::Receipt;
        let mark = match &*stored.document.decision {
            "ADMIT" if is_own => Self::ADMIT,
            "QUARANTINE" if is_own => Self::QUARANTINE,
            _ => return,
        };
        let at = usize::try_from(stored.seq.0).unwrap_or(usize::MAX);
        if let Some(marks) = self.marks.get_mut(at) {
            *marks |= mark;
        }
    }

    pub(super) fn has(&self, seq: Seq, mark: u8) -> bool {
        let at = usize::try_from(seq.0).unwrap_or(usize::MAX);
        self.marks.get(at).is_some_and(|marks| marks & mark != 0)
    }

    /// Sorts the paths; required before [`Self::has_path`].
    pub(super) fn sort(&mut self) {
        self.paths.sort_unstable();
    }

    pub(super) fn has_path(&self, path: &str) -> bool {
        self.paths.binary_search(&path_hash(path)).is_ok()
    }
}

fn path_hash(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn prefix(key: &Key) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix.copy_from_slice(&key.as_bytes()[..PREFIX_BYTES]);
    prefix
}
