//! Reading shards: from a sequence number on, or from a time on when something is sought.

use std::collections::{BTreeMap, HashMap, HashSet};

use admit_core::Millis;
use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::{Record as Stored, ShardIteratorType};
use bytes::Bytes;
use tokio::time::Instant;

use super::frame::{hash_key, keys};
use super::judge::{is_absent, is_sequence, is_throttled, said};
use super::shards::Shard;
use super::{READ_BYTES_MAX, READ_ROWS_MAX, Shared, wait_a_moment};
use crate::name;
use crate::port::{BusError, Found, OffsetKind, Record, Reference, Sought};

/// Most records of one request.
const PAGE: i32 = 10_000;

/// From where on a shard is read.
enum From<'f> {
    Beginning,
    Sequence(&'f str),
    Time(Millis),
}

/// What one shard is searched for.
struct Wanted<'s> {
    dedupe_keys: HashSet<&'s str>,
    from: Millis,
    to: Millis,
}

/// What was found in one shard, and why it could not be searched to the end.
#[derive(Default)]
struct Searched {
    hits: HashMap<String, Vec<Reference>>,
    incomplete: Option<String>,
}

impl Shared {
    /// Committed messages of one shard in order, from a sequence number on.
    pub(super) async fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> Result<Vec<Record>, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        if !from.is_empty() && !is_sequence(from) {
            let kind = OffsetKind::KinesisSequence;
            return Err(BusError::NotAnOffset { offset: from.to_owned(), kind });
        }
        let unavailable = |reason: String| BusError::Unavailable { reason, source: None };
        let until = Instant::now() + self.options.find_wait;
        let stream = self.options.stream(topic);
        let shards = self.shards.lately(&self.client, &stream, until).await.map_err(unavailable)?;
        let Some(shards) = shards else { return Ok(Vec::new()) };
        let Some(shard) = shards.iter().find(|shard| shard.partition == partition) else {
            // A shard that was there and is too old now is a partition that has become empty.
            let is_beyond = shards.last().is_none_or(|last| last.partition < partition);
            let topic = topic.to_owned();
            return if is_beyond && partition > 0 {
                Err(BusError::NoSuchPartition { topic, partition })
            } else {
                Ok(Vec::new())
            };
        };
        let rows_max = rows_max.min(READ_ROWS_MAX);
        if rows_max == 0 {
            return Ok(Vec::new());
        }
        let start = if from.is_empty() { From::Beginning } else { From::Sequence(from) };
        let mut iterator =
            self.iterator(&stream, shard, start, until).await.map_err(unavailable)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(place) = iterator.take() {
            let limit = i32::try_from(rows_max - records.len()).unwrap_or(PAGE).min(PAGE);
            let page = self.page(place, limit, until).await.map_err(unavailable)?;
            for stored in page.records() {
                let record = record(topic, partition, stored).map_err(|reason| {
                    let place = format!("{stream} {}", stored.sequence_number());
                    BusError::Damaged { place, reason }
                })?;
                bytes += record.payload.len();
                records.push(record);
            }
            let is_enough = records.len() >= rows_max || bytes >= READ_BYTES_MAX;
            let is_at_end = page.millis_behind_latest() == Some(0);
            // What was read stands, however long the rest would take.
            let is_late = !records.is_empty() && Instant::now() >= until;
            if !(is_enough || is_at_end || is_late) {
                iterator = page.next_shard_iterator;
            }
        }
        Ok(records)
    }

    /// Looks for messages of one topic.
    pub(super) async fn find(&self, topic: &str, sought: &[&Sought]) -> Vec<Found> {
        match self.try_find(topic, sought).await {
            Ok(found) => found,
            Err(reason) => vec![Found::CannotTell { reason }; sought.len()],
        }
    }

    async fn try_find(&self, topic: &str, sought: &[&Sought]) -> Result<Vec<Found>, String> {
        name::check_topic(topic).map_err(str::to_owned)?;
        let until = Instant::now() + self.options.find_wait;
        let stream = self.options.stream(topic);
        let Some(shards) = self.shards.now(&self.client, &stream, until).await? else {
            // A stream that is not there was perhaps there when it was published to.
            return Err(format!("there is no stream {stream}"));
        };
        let (kept_since, made) = self.kept_since(&stream).await?;
        let slack = i64::try_from(self.options.clock_slack.as_millis()).unwrap_or(i64::MAX);
        let mut by_shard: BTreeMap<u32, (Shard, Wanted<'_>)> = BTreeMap::new();
        for one in sought {
            let at = hash_key(&one.partition_key);
            let (from, to) = (one.from.0.saturating_sub(slack), one.to.0.saturating_add(slack));
            for shard in shards.iter().filter(|shard| shard.takes(at)) {
                let (_, wanted) = by_shard.entry(shard.partition).or_insert_with(|| {
                    let (from, to) = (Millis(from), Millis(to));
                    (shard.clone(), Wanted { dedupe_keys: HashSet::new(), from, to })
                });
                wanted.dedupe_keys.insert(&one.dedupe_key);
                wanted.from = wanted.from.min(Millis(from));
                wanted.to = wanted.to.max(Millis(to));
            }
        }
        let mut searched: BTreeMap<u32, Searched> = BTreeMap::new();
        for (partition, (shard, wanted)) in &by_shard {
            let found = self.search(topic, &stream, shard, wanted, until).await;
            searched.insert(*partition, found);
        }
        let found = sought.iter().map(|one| {
            let at = hash_key(&one.partition_key);
            let mut hits = Vec::new();
            let mut incomplete = None;
            // In the order of their numbers: a shard that was split or merged comes before what it
            // was made into.
            for shard in shards.iter().filter(|shard| shard.takes(at)) {
                let Some(searched) = searched.get(&shard.partition) else { continue };
                hits.extend(searched.hits.get(&one.dedupe_key).into_iter().flatten().cloned());
                incomplete = incomplete.or(searched.incomplete.clone());
            }
            if one.from.0.saturating_sub(slack) < kept_since.0 {
                let reason = "the stream no longer keeps everything of that time".to_owned();
                incomplete = incomplete.or(Some(reason));
            }
            // Then it may be in a stream that somebody has deleted.
            if one.to < made {
                let reason = "the stream was made after that time".to_owned();
                incomplete = incomplete.or(Some(reason));
            }
            match incomplete {
                _ if !hits.is_empty() => Found::At(hits),
                Some(reason) => Found::CannotTell { reason },
                None => Found::Absent,
            }
        });
        Ok(found.collect())
    }

    /// Since when a stream has everything that was put into it, and when it was made.
    async fn kept_since(&self, stream: &str) -> Result<(Millis, Millis), String> {
        let described = self.client.describe_stream_summary().stream_name(stream).send().await;
        let described = described.map_err(|error| said(&error))?;
        let Some(summary) = described.stream_description_summary() else {
            return Err(format!("kinesis does not describe {stream}"));
        };
        let kept = i64::from(summary.retention_period_hours()) * 3_600_000;
        let oldest = self.options.clock.now().0.saturating_sub(kept);
        let made = millis(summary.stream_creation_timestamp());
        // It has lost nothing from before it was made.
        Ok((if made.0 >= oldest { Millis(i64::MIN) } else { Millis(oldest) }, made))
    }

    async fn search(
        &self,
        topic: &str,
        stream: &str,
        shard: &Shard,
        wanted: &Wanted<'_>,
        until: Instant,
    ) -> Searched {
        let mut searched = Searched::default();
        let done = self.try_search(topic, stream, shard, wanted, until, &mut searched.hits).await;
        searched.incomplete = done.err();
        searched
    }

    async fn try_search(
        &self,
        topic: &str,
        stream: &str,
        shard: &Shard,
        wanted: &Wanted<'_>,
        until: Instant,
        hits: &mut HashMap<String, Vec<Reference>>,
    ) -> Result<(), String> {
        let start = From::Time(wanted.from);
        let mut iterator = self.iterator(stream, shard, start, until).await?;
        if iterator.is_none() {
            // It was listed a moment ago.
            return Err(format!("{} is gone", shard.id));
        }
        let mut seen: u64 = 0;
        while let Some(place) = iterator.take() {
            let page = self.page(place, PAGE, until).await?;
            for stored in page.records() {
                let arrived = stored.approximate_arrival_timestamp().map(millis);
                if arrived.is_some_and(|arrived| arrived > wanted.to) {
                    return Ok(());
                }
                let (_, dedupe_key) = keys(stored.partition_key().unwrap_or_default());
                if let Some(key) = dedupe_key.filter(|key| wanted.dedupe_keys.contains(key)) {
                    let reference = reference(topic, shard.partition, stored);
                    hits.entry(key.to_owned()).or_default().push(reference);
                }
            }
            seen += page.records().len() as u64;
            if page.millis_behind_latest() == Some(0) {
                return Ok(());
            }
            if seen > self.options.find_records_max {
                let records_max = self.options.find_records_max;
                return Err(format!("{} has more than {records_max} records there", shard.id));
            }
            if Instant::now() >= until {
                return Err(format!("{} could not be read to the end in time", shard.id));
            }
            iterator = page.next_shard_iterator;
        }
        // A closed shard ends.
        Ok(())
    }

    /// Where to begin; `None` is a shard that has ended there.
    async fn iterator(
        &self,
        stream: &str,
        shard: &Shard,
        from: From<'_>,
        until: Instant,
    ) -> Result<Option<String>, String> {
        loop {
            let asked = self.client.get_shard_iterator().stream_name(stream).shard_id(&shard.id);
            let asked = match from {
                From::Beginning => asked.shard_iterator_type(ShardIteratorType::TrimHorizon),
                From::Time(at) if at.0 <= 0 => {
                    asked.shard_iterator_type(ShardIteratorType::TrimHorizon)
                }
                From::Sequence(sequence) => asked
                    .shard_iterator_type(ShardIteratorType::AtSequenceNumber)
                    .starting_sequence_number(sequence),
                From::Time(at) => asked
                    .shard_iterator_type(ShardIteratorType::AtTimestamp)
                    .timestamp(DateTime::from_millis(at.0)),
            };
            match asked.send().await {
                Ok(got) => return Ok(got.shard_iterator),
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) if is_throttled(&error) && wait_a_moment(until).await => {}
                Err(error) => return Err(said(&error)),
            }
        }
    }

    /// Records from an iterator on. Reading may be throttled, and is asked for again.
    async fn page(
        &self,
        iterator: String,
        limit: i32,
        until: Instant,
    ) -> Result<GetRecordsOutput, String> {
        loop {
            let asked = self.client.get_records().shard_iterator(&iterator).limit(limit);
            match asked.send().await {
                Ok(page) => return Ok(page),
                Err(error) if is_throttled(&error) && wait_a_moment(until).await => {}
                Err(error) => return Err(said(&error)),
            }
        }
    }
}

fn millis(at: &DateTime) -> Millis {
    Millis(at.to_millis().unwrap_or_default())
}

fn reference(topic: &str, partition: u32, stored: &Stored) -> Reference {
    Reference {
        topic: topic.to_owned(),
        partition,
        offset: stored.sequence_number().to_owned(),
        offset_kind: OffsetKind::KinesisSequence,
        published_at: stored.approximate_arrival_timestamp().map(millis),
    }
}

fn record(topic: &str, partition: u32, stored: &Stored) -> Result<Record, String> {
    if !is_sequence(stored.sequence_number()) {
        return Err("its sequence number is none".to_owned());
    }
    let (partition_key, dedupe_key) = keys(stored.partition_key().unwrap_or_default());
    Ok(Record {
        reference: reference(topic, partition, stored),
        partition_key: partition_key.to_owned(),
        dedupe_key: dedupe_key.map(str::to_owned),
        payload: Bytes::copy_from_slice(stored.data().as_ref()),
    })
}
