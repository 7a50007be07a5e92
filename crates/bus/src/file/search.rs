//! Searches and reads over a [`LogView`]: committed lines, which never change.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::ControlFlow;

use admit_core::Millis;

use super::index::Block;
use super::line::{self, LineError};
use super::log::LogView;
use super::{PARTITION, READ_BYTES_MAX};
use crate::port::{BusError, OffsetKind, Reference, SearchQuery, SearchResult, StoredMessage};

/// Error while reading a log.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("line {offset} is damaged: {reason}")]
    Damaged { offset: u64, reason: LineError },
}

/// Runs all queries. Returns results in order; `views` has every topic of the queries.
pub(super) fn find(
    views: &HashMap<String, Result<Option<LogView>, String>>,
    queries: &[SearchQuery],
    bytes_max: u64,
) -> Vec<SearchResult> {
    let mut found: Vec<Vec<Reference>> = vec![Vec::new(); queries.len()];
    let mut failed: HashMap<&str, String> = HashMap::new();
    for (topic, view) in views {
        let of_topic = || queries.iter().enumerate().filter(|(_, query)| query.topic == *topic);
        let scanned = match view {
            Ok(None) => Ok(()),
            Err(reason) => Err(reason.clone()),
            Ok(Some(view)) => {
                let ranges = merged(of_topic().map(|(_, query)| (query.from, query.to)).collect());
                let mut indexes: HashMap<&str, Vec<usize>> = HashMap::new();
                for (index, query) in of_topic() {
                    indexes.entry(&query.dedupe_key).or_default().push(index);
                }
                search(view, &ranges, bytes_max, |key, at, reference| {
                    for index in indexes.get(key).into_iter().flatten() {
                        let query = &queries[*index];
                        if at.is_none_or(|at| (query.from..=query.to).contains(&at)) {
                            found[*index].push(reference());
                        }
                    }
                })
            }
        };
        if let Err(reason) = scanned {
            failed.insert(topic, reason);
        }
    }
    let results = queries.iter().zip(found);
    results
        .map(|(query, at)| match failed.get(query.topic.as_str()) {
            Some(reason) => SearchResult::Unknown { reason: reason.clone() },
            None if at.is_empty() => SearchResult::Absent,
            None => SearchResult::Found(at),
        })
        .collect()
}

/// Scans the blocks that may hold a time within `ranges`.
fn search(
    view: &LogView,
    ranges: &[(Millis, Millis)],
    bytes_max: u64,
    mut each: impl FnMut(&str, Option<Millis>, &dyn Fn() -> Reference),
) -> Result<(), String> {
    let blocks: Vec<(Block, u64)> =
        view.index.blocks().filter(|(block, _)| overlaps(block, ranges)).collect();
    let bytes: u64 = blocks.iter().map(|(block, end)| end - block.start).sum();
    if bytes > bytes_max {
        return Err(format!(
            "{bytes} bytes of topic {} are in that time range, the limit of a search is {bytes_max}; use a shorter range",
            view.topic
        ));
    }
    let scanned = each_line(view, &blocks, |offset, text| {
        let header =
            line::parse_header(text).map_err(|reason| ReadError::Damaged { offset, reason })?;
        if let Some(key) = &header.dedupe_key {
            each(key, header.at, &|| reference(view, offset, header.at));
        }
        Ok(ControlFlow::Continue(()))
    });
    scanned.map_err(|error| format!("the log of topic {} could not be read: {error}", view.topic))
}

/// Reads lines from the offset `from` on, at most `rows_max`.
pub(super) fn read(
    view: &LogView,
    from: u64,
    rows_max: usize,
) -> Result<Vec<StoredMessage>, BusError> {
    let mut records = Vec::new();
    if rows_max == 0 || from >= view.index.next {
        return Ok(records);
    }
    let start = view.index.block_of(from).start;
    let blocks: Vec<(Block, u64)> =
        view.index.blocks().filter(|(block, _)| block.start >= start).collect();
    let mut bytes = 0;
    let scanned = each_line(view, &blocks, |offset, text| {
        if offset < from {
            return Ok(ControlFlow::Continue(()));
        }
        let record = record(view, offset, text)?;
        bytes += record.payload.len();
        records.push(record);
        let is_full = records.len() >= rows_max || bytes >= READ_BYTES_MAX;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    match scanned {
        Ok(()) => Ok(records),
        Err(ReadError::Io(error)) => Err(BusError::Unavailable {
            reason: format!("could not read {}", view.path.display()),
            source: Some(Box::new(error)),
        }),
        Err(ReadError::Damaged { offset, reason }) => Err(BusError::Damaged {
            place: format!("line {offset} of {}", view.path.display()),
            reason: reason.to_string(),
        }),
    }
}

fn record(view: &LogView, offset: u64, text: &[u8]) -> Result<StoredMessage, ReadError> {
    let line = line::parse(text).map_err(|reason| ReadError::Damaged { offset, reason })?;
    Ok(StoredMessage {
        reference: reference(view, offset, line.header.at),
        partition_key: line.partition_key.into_owned(),
        dedupe_key: line.header.dedupe_key.map(|key| key.into_owned()),
        payload: line.payload,
    })
}

fn reference(view: &LogView, offset: u64, published_at: Option<Millis>) -> Reference {
    Reference {
        topic: view.topic.to_string(),
        partition: PARTITION,
        offset: offset.to_string(),
        offset_kind: OffsetKind::FileLine,
        published_at,
    }
}

/// Calls `each` with every line of the blocks and its offset, until `each` breaks.
pub(super) fn each_line(
    view: &LogView,
    blocks: &[(Block, u64)],
    mut each: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, ReadError>,
) -> Result<(), ReadError> {
    if blocks.is_empty() {
        return Ok(());
    }
    let mut file = File::open(&view.path)?;
    let mut bytes = Vec::new();
    for (block, end) in blocks {
        bytes.clear();
        file.seek(SeekFrom::Start(block.start))?;
        file.by_ref().take(end - block.start).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != end - block.start {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let (mut rest, mut offset) = (&bytes[..], block.first);
        while !rest.is_empty() {
            let text = rest;
            let taken = rest.skip_until(b'\n')?;
            let text = &text[..taken];
            if each(offset, text.strip_suffix(b"\n").unwrap_or(text))?.is_break() {
                return Ok(());
            }
            offset += 1;
        }
    }
    Ok(())
}

/// Sorts time ranges and merges those that touch.
fn merged(mut ranges: Vec<(Millis, Millis)>) -> Vec<(Millis, Millis)> {
    ranges.retain(|(from, to)| from <= to);
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let touches = next.0 <= kept.1;
        if touches {
            kept.1 = kept.1.max(next.1);
        }
        touches
    });
    ranges
}

fn overlaps(block: &Block, ranges: &[(Millis, Millis)]) -> bool {
    let first = ranges.partition_point(|(_, to)| *to < block.from);
    ranges.get(first).is_some_and(|(from, _)| *from <= block.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ranges_are_merged_and_the_right_blocks_are_read() {
        let range = |from, to| (Millis(from), Millis(to));
        let ranges =
            merged(vec![range(50, 60), range(1, 5), range(4, 9), range(9, 9), range(8, 7)]);
        assert_eq!(ranges, [range(1, 9), range(50, 60)]);
        let block = |from, to| Block { first: 0, start: 0, from: Millis(from), to: Millis(to) };
        let is_read = |from, to| overlaps(&block(from, to), &ranges);
        assert_eq!(
            [is_read(9, 20), is_read(0, 1), is_read(10, 49), is_read(20, 50)],
            [true, true, false, true]
        );
        assert!(!is_read(61, 99));
        assert!(is_read(i64::MIN, i64::MAX), "a block without times is always read");
        assert!(!is_read(i64::MAX, i64::MIN), "an empty block never");
    }
}
