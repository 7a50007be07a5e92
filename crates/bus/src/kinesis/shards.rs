//! The shards of a stream as partitions: the number at the end of a shard's id is the partition.
//!
//! Kinesis numbers shards in the order in which they are made and reuses no number, so a partition
//! stays the same shard for ever. Splitting and merging makes new ones; the old ones are closed, and
//! stay readable until what they hold is too old.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::time::Instant;

use super::judge::{is_absent, is_throttled, said};
use super::wait_a_moment;

/// Most shards of one stream that are looked at.
const SHARDS_MAX: usize = 10_000;
/// How long the list is believed by those who read on.
const BELIEVED: Duration = Duration::from_secs(10);

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) id: String,
    pub(super) partition: u32,
    /// First and last hash key that belong here.
    range: (u128, u128),
}

impl Shard {
    /// Whether records with this hash key belong, or belonged, here.
    pub(super) fn takes(&self, hash_key: u128) -> bool {
        (self.range.0..=self.range.1).contains(&hash_key)
    }
}

/// The partition that a shard's id stands for: `shardId-000000000012` is 12.
pub(super) fn partition(shard_id: &str) -> Option<u32> {
    shard_id.rsplit_once('-')?.1.parse().ok()
}

/// What was listed, and when.
#[derive(Debug, Default)]
pub(super) struct Shards(Mutex<HashMap<String, (Instant, Vec<Shard>)>>);

impl Shards {
    /// The shards of a stream in the order of their numbers, perhaps a moment old; `None` where there
    /// is no such stream.
    pub(super) async fn lately(
        &self,
        client: &Client,
        stream: &str,
        until: Instant,
    ) -> Result<Option<Vec<Shard>>, String> {
        let known = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(stream).filter(|(at, _)| at.elapsed() < BELIEVED).cloned()
        };
        match known {
            Some((_, shards)) => Ok(Some(shards)),
            None => self.now(client, stream, until).await,
        }
    }

    /// As [`Self::lately`], asked for just now.
    pub(super) async fn now(
        &self,
        client: &Client,
        stream: &str,
        until: Instant,
    ) -> Result<Option<Vec<Shard>>, String> {
        let mut shards: Vec<Shard> = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let asked = client.list_shards();
            // A token stands for its stream.
            let asked = match token.take() {
                Some(token) => asked.next_token(token),
                None => asked.stream_name(stream),
            };
            let page = match asked.send().await {
                Ok(page) => page,
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) if is_throttled(&error) && wait_a_moment(until).await => {
                    shards.clear();
                    continue;
                }
                Err(error) => return Err(said(&error)),
            };
            for shard in page.shards() {
                shards.push(read(shard).ok_or_else(|| {
                    format!("kinesis lists {} without what it takes", shard.shard_id())
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
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(stream.to_owned(), (Instant::now(), shards.clone()));
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
