//! Whether the files of a run hold what the ledger holds, and whether the bus has its events where
//! their receipts say.
//!
//! Both are read once, in the order of the ledger and in pages. Receipts of a run that were settled
//! together are neighbours on the bus, so a page of receipts is few reads of the bus.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use admit_bus::{Bus, BusHealth, StoredMessage};
use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_contracts::ingestion_gate::eb_ref::EbRef;
use admit_core::closure::CountedSample;
use admit_core::json::{self, Limits, Value};
use admit_core::{Fault, DocumentKind};
use admit_ledger::closures::RunDocument;
use futures_util::future::try_join_all;
use tokio::time::timeout;

use crate::report::RunReporter;

/// Documents that are read at a time.
const PAGE: usize = 1_000;

/// Files that are read at once.
const FILES_MAX: usize = 32;

/// Messages that are read from the bus at a time.
const MESSAGES_MAX: usize = 1_000;

/// The longest that one read of the bus may take.
const READ_WAIT: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Files that are not what the ledger holds.
    pub(super) differing: CountedSample,
    /// Admitted events and the bus.
    pub(super) messages: Messages,
}

/// Admitted events, as the bus has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Messages {
    /// They are where their receipts say.
    pub(super) present: u64,
    /// The bus has let go of everything that is so old.
    pub(super) expired: u64,
    /// They are not there, or something else is.
    pub(super) missing: CountedSample,
    /// Why the bus could not be asked.
    pub(super) trouble: Option<String>,
}

/// An event that should be on the bus.
struct Wanted {
    offset: String,
    dedupe_key: String,
}

impl RunReporter {
    /// Compares the documents of a run with their files, and asks the bus for its events.
    pub(super) async fn contents(&self, run: &str) -> Result<Contents, Fault> {
        let mut contents = Contents::default();
        contents.messages.trouble = self.bus_trouble().await;
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

    async fn bus_trouble(&self) -> Option<String> {
        match timeout(READ_WAIT, self.bus.health(&self.settings.topics)).await {
            Ok(BusHealth::Up | BusHealth::Unknown { .. }) => None,
            Ok(BusHealth::Down { reason }) => Some(reason),
            Err(_) => Some("the probe of the bus did not end in time".to_owned()),
        }
    }

    /// A file that is not there is counted elsewhere.
    async fn compare_files(&self, page: &[RunDocument], differs: &mut CountedSample) -> Result<(), Fault> {
        for documents in page.chunks(FILES_MAX) {
            let mut comparing = Vec::with_capacity(documents.len());
            for document in documents {
                comparing.push(self.is_as_kept(document));
            }
            let compared = try_join_all(comparing).await?;
            for (document, is_as_kept) in documents.iter().zip(compared) {
                if !is_as_kept {
                    differs.add(&document.path);
                }
            }
        }
        Ok(())
    }

    async fn is_as_kept(&self, document: &RunDocument) -> Result<bool, Fault> {
        let file = self.artifacts_get(&document.path).await?;
        let text = document.text.as_bytes();
        Ok(file.is_none_or(|file| file.strip_suffix(b"\n") == Some(text)))
    }

    async fn find_messages(&self, page: &[RunDocument], messages: &mut Messages) {
        let mut places: BTreeMap<(String, u32), Vec<Wanted>> = BTreeMap::new();
        for document in page.iter().filter(|one| one.decision == ReceiptDecision::Admit.as_str()) {
            // A receipt without a reference is counted elsewhere.
            let Some((at, dedupe_key)) = reference(&document.text) else { continue };
            let wanted = Wanted { offset: at.offset, dedupe_key };
            places.entry((at.topic, at.partition)).or_default().push(wanted);
        }
        for ((topic, partition), mut wanted) in places {
            wanted.sort_by(|a, b| compare(&a.offset, &b.offset));
            if messages.trouble.is_some() {
                return;
            }
            let found = find(&*self.bus, &topic, partition, &wanted, messages).await;
            messages.trouble = found.err();
        }
    }
}

/// Reads the bus forward over everything that is wanted of one partition. The error says why the bus
/// cannot be asked.
async fn find(
    bus: &dyn Bus,
    topic: &str,
    partition: u32,
    wanted: &[Wanted],
    messages: &mut Messages,
) -> Result<(), String> {
    let mut absent: Vec<&Wanted> = Vec::new();
    let mut rest = wanted.iter().peekable();
    while let Some(first) = rest.peek() {
        let records = read(bus, topic, partition, &first.offset, MESSAGES_MAX).await?;
        let mut records = records.iter().peekable();
        let is_over = records.peek().is_none();
        while let (Some(one), Some(record)) = (rest.peek(), records.peek()) {
            let order = compare(&one.offset, &record.reference.offset);
            if order == Ordering::Greater {
                records.next();
                continue;
            }
            let is_it = order == Ordering::Equal
                && record.dedupe_key.as_deref() == Some(one.dedupe_key.as_str());
            match is_it {
                true => messages.present += 1,
                false => absent.push(one),
            }
            rest.next();
        }
        if is_over {
            absent.extend(rest.by_ref());
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    let oldest = read(bus, topic, partition, "", 1).await?;
    let oldest = oldest.first().map(|record| record.reference.offset.as_str());
    for Wanted { offset, dedupe_key } in absent {
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
    match timeout(READ_WAIT, bus.read(topic, partition, from, rows_max)).await {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("topic {topic} could not be read in time")),
    }
}

/// Where a receipt says that its event is, and what the event is called there.
fn reference(receipt: &str) -> Option<(EbRef, String)> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let receipt = json::parse(receipt.as_bytes(), &limits).ok()?;
    let dedupe_key = receipt.get("dedupe_key").and_then(Value::as_str)?.to_owned();
    Some((EbRef::read(receipt.get("eb_ref")?)?, dedupe_key))
}

/// Offsets are numbers of any length.
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
