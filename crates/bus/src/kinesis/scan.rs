//! Reading shards: from a sequence number, or from a time for searches.

use std::collections::{BTreeMap, HashMap, HashSet};

use admit_core::Millis;
use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::{Record as Stored, ShardIteratorType};
use bytes::Bytes;
use tokio::time::Instant;

use super::classify_result::{error_text, is_absent, is_sequence, is_throttled};
use super::frame::{hash_key, keys};
use super::shards::Shard;
use super::{BusState, READ_BYTES_MAX, READ_ROWS_MAX, pause_before_retry};
use crate::name;
use crate::port::{BusError, OffsetKind, Reference, SearchQuery, SearchResult, StoredMessage};

/// Maximum records per request.
const PAGE: i32 = 10_000;

/// Start position in a shard.
enum StartPosition<'f> {
    Beginning,
    Sequence(&'f str),
    Time(Millis),
}

/// Search of one shard.
struct ShardQuery<'s> {
    dedupe_keys: HashSet<&'s str>,
    from: Millis,
    to: Millis,
}

/// Hits in one shard, and the reason why the search is incomplete, if it is.
#[derive(Default)]
struct ShardSearch {
    hits: HashMap<String, Vec<Reference>>,
    incomplete: Option<String>,
}

impl BusState {
    /// Committed messages of one shard in order, starting at a sequence number.
    pub(super) async fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> Result<Vec<StoredMessage>, BusError> {
        name::check_topic(topic)
            .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
        if !from.is_empty() && !is_sequence(from) {
            let kind = OffsetKind::KinesisSequence;
            return Err(BusError::NotAnOffset { offset: from.to_owned(), kind });
        }
        let unavailable = |reason: String| BusError::Unavailable { reason, source: None };
        let deadline = Instant::now() + self.options.query_timeout;
        let stream = self.options.stream(topic);
        let shards =
            self.shards.cached(&self.client, &stream, deadline).await.map_err(unavailable)?;
        let Some(shards) = shards else { return Ok(Vec::new()) };
        let Some(shard) = shards.iter().find(|shard| shard.partition == partition) else {
            // A shard that has expired is a partition that has become empty.
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
        let start =
            if from.is_empty() { StartPosition::Beginning } else { StartPosition::Sequence(from) };
        let mut iterator =
            self.iterator(&stream, shard, start, deadline).await.map_err(unavailable)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(place) = iterator.take() {
            let limit = i32::try_from(rows_max - records.len()).unwrap_or(PAGE).min(PAGE);
            let page = self.page(place, limit, deadline).await.map_err(unavailable)?;
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
            // Return what was read once the deadline has passed.
            let is_late = !records.is_empty() && Instant::now() >= deadline;
            if !(is_enough || is_at_end || is_late) {
                iterator = page.next_shard_iterator;
            }
        }
        Ok(records)
    }

    /// Runs the queries of one topic.
    pub(super) async fn find(&self, topic: &str, queries: &[&SearchQuery]) -> Vec<SearchResult> {
        match self.try_find(topic, queries).await {
            Ok(found) => found,
            Err(reason) => vec![SearchResult::Unknown { reason }; queries.len()],
        }
    }

    async fn try_find(
        &self,
        topic: &str,
        queries: &[&SearchQuery],
    ) -> Result<Vec<SearchResult>, String> {
        name::check_topic(topic).map_err(str::to_owned)?;
        let deadline = Instant::now() + self.options.query_timeout;
        let stream = self.options.stream(topic);
        let Some(shards) = self.shards.fetch(&self.client, &stream, deadline).await? else {
            // The stream may have existed when the message was published.
            return Err(format!("stream {stream} does not exist"));
        };
        let (complete_since, created_at) = self.complete_since(&stream).await?;
        let slack = i64::try_from(self.options.clock_slack.as_millis()).unwrap_or(i64::MAX);
        let mut by_shard: BTreeMap<u32, (Shard, ShardQuery<'_>)> = BTreeMap::new();
        for query in queries {
            let at = hash_key(&query.partition_key);
            let (from, to) = (query.from.0.saturating_sub(slack), query.to.0.saturating_add(slack));
            for shard in shards.iter().filter(|shard| shard.takes(at)) {
                let (_, shard_query) = by_shard.entry(shard.partition).or_insert_with(|| {
                    let (from, to) = (Millis(from), Millis(to));
                    (shard.clone(), ShardQuery { dedupe_keys: HashSet::new(), from, to })
                });
                shard_query.dedupe_keys.insert(&query.dedupe_key);
                shard_query.from = shard_query.from.min(Millis(from));
                shard_query.to = shard_query.to.max(Millis(to));
            }
        }
        let mut searches: BTreeMap<u32, ShardSearch> = BTreeMap::new();
        for (partition, (shard, shard_query)) in &by_shard {
            let found = self.search(topic, &stream, shard, shard_query, deadline).await;
            searches.insert(*partition, found);
        }
        let found = queries.iter().map(|query| {
            let at = hash_key(&query.partition_key);
            let mut hits = Vec::new();
            let mut incomplete = None;
            // In the order of their numbers: a shard that was split or merged precedes its
            // successors.
            for shard in shards.iter().filter(|shard| shard.takes(at)) {
                let Some(search) = searches.get(&shard.partition) else { continue };
                hits.extend(search.hits.get(&query.dedupe_key).into_iter().flatten().cloned());
                incomplete = incomplete.or(search.incomplete.clone());
            }
            if query.from.0.saturating_sub(slack) < complete_since.0 {
                let reason =
                    "retention has removed records of that time range from the stream".to_owned();
                incomplete = incomplete.or(Some(reason));
            }
            // It may have been in a deleted stream of that name.
            if query.to < created_at {
                let reason = "the stream was created after that time".to_owned();
                incomplete = incomplete.or(Some(reason));
            }
            match incomplete {
                _ if !hits.is_empty() => SearchResult::Found(hits),
                Some(reason) => SearchResult::Unknown { reason },
                None => SearchResult::Absent,
            }
        });
        Ok(found.collect())
    }

    /// Time since when a stream is complete, and its creation time.
    async fn complete_since(&self, stream: &str) -> Result<(Millis, Millis), String> {
        let described = self.client.describe_stream_summary().stream_name(stream).send().await;
        let described = described.map_err(|error| error_text(&error))?;
        let Some(summary) = described.stream_description_summary() else {
            return Err(format!("kinesis returned no description of {stream}"));
        };
        let retention_ms = i64::from(summary.retention_period_hours()) * 3_600_000;
        let oldest = self.options.clock.now().0.saturating_sub(retention_ms);
        let created_at = millis(summary.stream_creation_timestamp());
        // A stream younger than its retention has lost nothing.
        Ok((if created_at.0 >= oldest { Millis(i64::MIN) } else { Millis(oldest) }, created_at))
    }

    async fn search(
        &self,
        topic: &str,
        stream: &str,
        shard: &Shard,
        shard_query: &ShardQuery<'_>,
        deadline: Instant,
    ) -> ShardSearch {
        let mut search = ShardSearch::default();
        let done =
            self.try_search(topic, stream, shard, shard_query, deadline, &mut search.hits).await;
        search.incomplete = done.err();
        search
    }

    async fn try_search(
        &self,
        topic: &str,
        stream: &str,
        shard: &Shard,
        shard_query: &ShardQuery<'_>,
        deadline: Instant,
        hits: &mut HashMap<String, Vec<Reference>>,
    ) -> Result<(), String> {
        let start = StartPosition::Time(shard_query.from);
        let mut iterator = self.iterator(stream, shard, start, deadline).await?;
        if iterator.is_none() {
            // The shard was listed just before.
            return Err(format!("{} is gone", shard.id));
        }
        let mut seen: u64 = 0;
        while let Some(place) = iterator.take() {
            let page = self.page(place, PAGE, deadline).await?;
            for stored in page.records() {
                let arrived = stored.approximate_arrival_timestamp().map(millis);
                if arrived.is_some_and(|arrived| arrived > shard_query.to) {
                    return Ok(());
                }
                let (_, dedupe_key) = keys(stored.partition_key().unwrap_or_default());
                if let Some(key) = dedupe_key.filter(|key| shard_query.dedupe_keys.contains(key)) {
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
                return Err(format!(
                    "search limit exceeded: {} has more than {records_max} records in that time range",
                    shard.id
                ));
            }
            if Instant::now() >= deadline {
                return Err(format!("timeout: {} was not read to its end", shard.id));
            }
            iterator = page.next_shard_iterator;
        }
        // The end of a closed shard.
        Ok(())
    }

    /// Gets an iterator; `None` means that the shard has expired.
    async fn iterator(
        &self,
        stream: &str,
        shard: &Shard,
        from: StartPosition<'_>,
        deadline: Instant,
    ) -> Result<Option<String>, String> {
        loop {
            let request = self.client.get_shard_iterator().stream_name(stream).shard_id(&shard.id);
            let request = match from {
                StartPosition::Beginning => {
                    request.shard_iterator_type(ShardIteratorType::TrimHorizon)
                }
                StartPosition::Time(at) if at.0 <= 0 => {
                    request.shard_iterator_type(ShardIteratorType::TrimHorizon)
                }
                StartPosition::Sequence(sequence) => request
                    .shard_iterator_type(ShardIteratorType::AtSequenceNumber)
                    .starting_sequence_number(sequence),
                StartPosition::Time(at) => request
                    .shard_iterator_type(ShardIteratorType::AtTimestamp)
                    .timestamp(DateTime::from_millis(at.0)),
            };
            match request.send().await {
                Ok(got) => return Ok(got.shard_iterator),
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) if is_throttled(&error) && pause_before_retry(deadline).await => {}
                Err(error) => return Err(error_text(&error)),
            }
        }
    }

    /// Gets a page of records. Throttled requests are retried until the deadline.
    async fn page(
        &self,
        iterator: String,
        limit: i32,
        deadline: Instant,
    ) -> Result<GetRecordsOutput, String> {
        loop {
            let request = self.client.get_records().shard_iterator(&iterator).limit(limit);
            match request.send().await {
                Ok(page) => return Ok(page),
                Err(error) if is_throttled(&error) && pause_before_retry(deadline).await => {}
                Err(error) => return Err(error_text(&error)),
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

fn record(topic: &str, partition: u32, stored: &Stored) -> Result<StoredMessage, String> {
    if !is_sequence(stored.sequence_number()) {
        return Err("invalid sequence number".to_owned());
    }
    let (partition_key, dedupe_key) = keys(stored.partition_key().unwrap_or_default());
    Ok(StoredMessage {
        reference: reference(topic, partition, stored),
        partition_key: partition_key.to_owned(),
        dedupe_key: dedupe_key.map(str::to_owned),
        payload: Bytes::copy_from_slice(stored.data().as_ref()),
    })
}
