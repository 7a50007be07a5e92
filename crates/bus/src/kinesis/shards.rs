//! Shards as partitions: the number at the end of a shard's id is the partition.
//!
//! Kinesis numbers shards in order of creation and reuses no number, so a partition is the same
//! shard for ever. Splitting and merging creates new shards; the old ones are closed, and stay
//! readable until their records expire.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::time::Instant;

use super::classify_result::{error_text, is_absent, is_throttled};
use super::pause_before_retry;

/// Maximum shards of one stream.
const SHARDS_MAX: usize = 10_000;
/// How long reads use the cached list.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) id: String,
    pub(super) partition: u32,
    /// First and last hash key.
    range: (u128, u128),
}

impl Shard {
    /// Whether records with this hash key belong, or belonged, to this shard.
    pub(super) fn takes(&self, hash_key: u128) -> bool {
        (self.range.0..=self.range.1).contains(&hash_key)
    }
}

/// The partition of a shard id: `shardId-000000000012` is 12.
pub(super) fn partition(shard_id: &str) -> Option<u32> {
    shard_id.rsplit_once('-')?.1.parse().ok()
}

/// Cached shard lists, with the time of listing.
#[derive(Debug, Default)]
pub(super) struct ShardCache(Mutex<HashMap<String, (Instant, Vec<Shard>)>>);

impl ShardCache {
    /// The shards of a stream in the order of their numbers, possibly from the cache; `None` if the
    /// stream does not exist.
    pub(super) async fn cached(
        &self,
        client: &Client,
        stream: &str,
        deadline: Instant,
    ) -> Result<Option<Vec<Shard>>, String> {
        let cache = {
            let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(stream).filter(|(at, _)| at.elapsed() < CACHE_TTL).cloned()
        };
        match cache {
            Some((_, shards)) => Ok(Some(shards)),
            None => self.fetch(client, stream, deadline).await,
        }
    }

    /// Like [`Self::cached`], but always fetched.
    pub(super) async fn fetch(
        &self,
        client: &Client,
        stream: &str,
        deadline: Instant,
    ) -> Result<Option<Vec<Shard>>, String> {
        let mut shards: Vec<Shard> = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let request = client.list_shards();
            // A token implies its stream.
            let request = match token.take() {
                Some(token) => request.next_token(token),
                None => request.stream_name(stream),
            };
            let page = match request.send().await {
                Ok(page) => page,
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) if is_throttled(&error) && pause_before_retry(deadline).await => {
                    shards.clear();
                    continue;
                }
                Err(error) => return Err(error_text(&error)),
            };
            for shard in page.shards() {
                shards.push(read(shard).ok_or_else(|| {
                    format!("kinesis listed {} without a valid hash key range", shard.shard_id())
                })?);
            }
            if shards.len() > SHARDS_MAX {
                return Err(format!("the stream has more than {SHARDS_MAX} shards"));
            }
            match page.next_token() {
                Some(next) => token = Some(next.to_owned()),
                None => break,
            }
        }
        shards.sort_by_key(|shard| shard.partition);
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(stream.to_owned(), (Instant::now(), shards.clone()));
        Ok(Some(shards))
    }
}

fn read(shard: &aws_sdk_kinesis::types::Shard) -> Option<Shard> {
    let range = shard.hash_key_range()?;
    let range = (range.starting_hash_key().parse().ok()?, range.ending_hash_key().parse().ok()?);
    let id = shard.shard_id().to_owned();
    Some(Shard { partition: partition(&id)?, id, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_the_number_of_its_shard() {
        assert_eq!(partition("shardId-000000000000"), Some(0));
        assert_eq!(partition("shardId-000000000012"), Some(12));
        assert_eq!(partition("shardId-004294967295"), Some(u32::MAX));
        for odd in ["", "shardId", "shardId-", "shardId-x", "shardId-004294967296"] {
            assert_eq!(partition(odd), None, "{odd}");
        }
    }
}
