//! Content check of a run: files must equal the ledger, and the bus must have the events at the positions
//! in their receipts.
//!
//! Both are read once, in pages, in ledger order. Receipts that were settled together are adjacent on the
//! bus, so a page of receipts needs few reads of the bus.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use admit_bus::{Bus, BusHealth, StoredMessage};
use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_contracts::ingestion_gate::eb_ref::EbRef;
use admit_core::closure::CountedSample;
use admit_core::json::{self, Limits, Value};
use admit_core::{DocumentKind, Fault};
use admit_ledger::closures::RunDocument;
use futures_util::future::try_join_all;
use tokio::time::timeout;

use crate::report::RunReporter;

/// Documents per page.
const PAGE: usize = 1_000;

/// Files read concurrently.
const FILES_MAX: usize = 32;

/// Messages per read of the bus.
const MESSAGES_MAX: usize = 1_000;

/// Timeout of one read of the bus.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of the content check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentCheck {
    /// Files that differ from the ledger.
    pub(super) differing: CountedSample,
    /// Admitted events on the bus.
    pub(super) messages: MessageCheck,
}

/// Check of admitted events on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageCheck {
    /// Events at the positions in their receipts.
    pub(super) present: u64,
    /// Events removed by the retention of the bus.
    pub(super) expired: u64,
    /// Events not at their position.
    pub(super) missing: CountedSample,
    /// Why the bus could not be read, if it failed.
    pub(super) trouble: Option<String>,
}

/// An event expected on the bus.
struct ExpectedMessage {
    offset: String,
    dedupe_key: String,
}

impl RunReporter {
    /// Compares the documents of a run with their files, and its receipts with the bus.
    pub(super) async fn check_contents(&self, run: &str) -> Result<ContentCheck, Fault> {
        let mut contents = ContentCheck::default();
        contents.messages.trouble = self.probe_bus().await;
        for kind in [DocumentKind::Receipt, DocumentKind::Quarantine] {
            let mut after = 0;
            loop {
                let page = self.ledger.run_documents(run.to_owned(), kind, after, PAGE).await?;
                self.compare_files(&page, &mut contents.differing).await?;
                if kind == DocumentKind::Receipt {
                    self.find_messages(&page, &mut contents.messages).await;
                }
                match page.last() {
                    Some(last) if page.len() == PAGE => after = last.n,
                    _ => break,
                }
            }
        }
        Ok(contents)
    }

    async fn probe_bus(&self) -> Option<String> {
        match timeout(READ_TIMEOUT, self.bus.health(&self.settings.topics)).await {
            Ok(BusHealth::Up | BusHealth::Unknown { .. }) => None,
            Ok(BusHealth::Down { reason }) => Some(reason),
            Err(_) => Some("timeout of the bus health check".to_owned()),
        }
    }

    /// Counts differing files. Missing files are counted by the presence check.
    async fn compare_files(
        &self,
        page: &[RunDocument],
        differs: &mut CountedSample,
    ) -> Result<(), Fault> {
        for documents in page.chunks(FILES_MAX) {
            let mut comparing = Vec::with_capacity(documents.len());
            for document in documents {
                comparing.push(self.matches_ledger(document));
            }
            let compared = try_join_all(comparing).await?;
            for (document, matches) in documents.iter().zip(compared) {
                if !matches {
                    differs.add(&document.path);
                }
            }
        }
        Ok(())
    }

    async fn matches_ledger(&self, document: &RunDocument) -> Result<bool, Fault> {
        let file = self.artifacts_get(&document.path).await?;
        let text = document.text.as_bytes();
        Ok(file.is_none_or(|file| file.strip_suffix(b"\n") == Some(text)))
    }

    async fn find_messages(&self, page: &[RunDocument], messages: &mut MessageCheck) {
        let mut partitions: BTreeMap<(String, u32), Vec<ExpectedMessage>> = BTreeMap::new();
        for document in
            page.iter().filter(|receipt| receipt.decision == ReceiptDecision::Admit.as_str())
        {
            // Receipts without a reference are counted by the tally.
            let Some((at, dedupe_key)) = bus_reference(&document.text) else { continue };
            let expected = ExpectedMessage { offset: at.offset, dedupe_key };
            partitions.entry((at.topic, at.partition)).or_default().push(expected);
        }
        for ((topic, partition), mut expected) in partitions {
            expected.sort_by(|a, b| compare(&a.offset, &b.offset));
            if messages.trouble.is_some() {
                return;
            }
            let checked = check_partition(&*self.bus, &topic, partition, &expected, messages).await;
            messages.trouble = checked.err();
        }
    }
}

/// Checks the expected messages of one partition by reading it forward. The error is the reason why the
/// bus cannot be read.
async fn check_partition(
    bus: &dyn Bus,
    topic: &str,
    partition: u32,
    expected: &[ExpectedMessage],
    messages: &mut MessageCheck,
) -> Result<(), String> {
    let mut absent: Vec<&ExpectedMessage> = Vec::new();
    let mut rest = expected.iter().peekable();
    while let Some(first) = rest.peek() {
        let records = read(bus, topic, partition, &first.offset, MESSAGES_MAX).await?;
        let mut records = records.iter().peekable();
        let is_at_end = records.peek().is_none();
        while let (Some(next), Some(record)) = (rest.peek(), records.peek()) {
            let order = compare(&next.offset, &record.reference.offset);
            if order == Ordering::Greater {
                records.next();
                continue;
            }
            let is_present = order == Ordering::Equal
                && record.dedupe_key.as_deref() == Some(next.dedupe_key.as_str());
            match is_present {
                true => messages.present += 1,
                false => absent.push(next),
            }
            rest.next();
        }
        if is_at_end {
            absent.extend(rest.by_ref());
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    let oldest = read(bus, topic, partition, "", 1).await?;
    let oldest = oldest.first().map(|record| record.reference.offset.as_str());
    for ExpectedMessage { offset, dedupe_key } in absent {
        if oldest.is_some_and(|oldest| compare(offset, oldest) == Ordering::Less) {
            messages.expired += 1;
        } else {
            messages.missing.add(&format!("{topic}/{partition}/{offset} {dedupe_key}"));
        }
    }
    Ok(())
}

async fn read(
    bus: &dyn Bus,
    topic: &str,
    partition: u32,
    from: &str,
    rows_max: usize,
) -> Result<Vec<StoredMessage>, String> {
    match timeout(READ_TIMEOUT, bus.read(topic, partition, from, rows_max)).await {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("timeout while reading topic {topic}")),
    }
}

/// Position of an event on the bus and its dedupe key, from its receipt.
fn bus_reference(receipt: &str) -> Option<(EbRef, String)> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let receipt = json::parse(receipt.as_bytes(), &limits).ok()?;
    let dedupe_key = receipt.get("dedupe_key").and_then(Value::as_str)?.to_owned();
    Some((EbRef::read(receipt.get("eb_ref")?)?, dedupe_key))
}

/// Compares offsets, which are numbers of any length.
fn compare(a: &str, b: &str) -> Ordering {
    let digits = |text: &str| text.trim_start_matches('0').to_owned();
    let (a, b) = (digits(a), digits(b));
    a.len().cmp(&b.len()).then_with(|| a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_compare_as_numbers_of_any_length() {
        let sequence = "49590338271490256608559692538361571095921575989136588898";
        let mut offsets = [sequence, "10", "9", "0", "100"];
        offsets.sort_by(|a, b| compare(a, b));
        assert_eq!(offsets, ["0", "9", "10", "100", sequence]);
        assert_eq!(compare("007", "7"), Ordering::Equal);
    }
}
