//! Searches and reads over what the writer showed us: committed lines, which never change.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::ControlFlow;

use admit_core::Millis;

use super::index::Block;
use super::line::{self, NotALine};
use super::log::View;
use super::{PARTITION, READ_BYTES_MAX};
use crate::port::{BusError, Found, OffsetKind, Record, Reference, Sought};

/// Why a log could not be gone through.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("line {offset} is damaged: {reason}")]
    Damaged { offset: u64, reason: NotALine },
}

/// Answers every search, in order. `looked` has every topic that is asked for.
pub(super) fn find(
    looked: &HashMap<String, Result<Option<View>, String>>,
    sought: &[Sought],
    bytes_max: u64,
) -> Vec<Found> {
    let mut found: Vec<Vec<Reference>> = vec![Vec::new(); sought.len()];
    let mut unread: HashMap<&str, String> = HashMap::new();
    for (topic, view) in looked {
        let own = || sought.iter().enumerate().filter(|(_, one)| one.topic == *topic);
        let searched = match view {
            Ok(None) => Ok(()),
            Err(reason) => Err(reason.clone()),
            Ok(Some(view)) => {
                let ranges = merged(own().map(|(_, one)| (one.from, one.to)).collect());
                let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
                for (place, one) in own() {
                    wanted.entry(&one.dedupe_key).or_default().push(place);
                }
                search(view, &ranges, bytes_max, |key, at, reference| {
                    for place in wanted.get(key).into_iter().flatten() {
                        let one = &sought[*place];
                        if at.is_none_or(|at| (one.from..=one.to).contains(&at)) {
                            found[*place].push(reference());
                        }
                    }
                })
            }
        };
        if let Err(reason) = searched {
            unread.insert(topic, reason);
        }
    }
    let answers = sought.iter().zip(found);
    answers
        .map(|(one, at)| match unread.get(one.topic.as_str()) {
            Some(reason) => Found::CannotTell { reason: reason.clone() },
            None if at.is_empty() => Found::Absent,
            None => Found::At(at),
        })
        .collect()
}

/// Goes through the lines of the blocks that may hold a time of `ranges`.
fn search(
    view: &View,
    ranges: &[(Millis, Millis)],
    bytes_max: u64,
    mut each: impl FnMut(&str, Option<Millis>, &dyn Fn() -> Reference),
) -> Result<(), String> {
    let blocks: Vec<(Block, u64)> =
        view.index.blocks().filter(|(block, _)| overlaps(block, ranges)).collect();
    let bytes: u64 = blocks.iter().map(|(block, end)| end - block.start).sum();
    if bytes > bytes_max {
        return Err(format!(
            "{bytes} bytes of topic {} are of that time, at most {bytes_max} are searched; ask for a shorter time",
            view.topic
        ));
    }
    let searched = each_line(view, &blocks, |offset, text| {
        let head = line::head(text).map_err(|reason| Unread::Damaged { offset, reason })?;
        if let Some(key) = &head.dedupe_key {
            each(key, head.at, &|| reference(view, offset, head.at));
        }
        Ok(ControlFlow::Continue(()))
    });
    searched.map_err(|error| format!("the log of topic {} could not be read: {error}", view.topic))
}

/// Lines from the offset `from` on, at most `rows_max`.
pub(super) fn read(view: &View, from: u64, rows_max: usize) -> Result<Vec<Record>, BusError> {
    let mut records = Vec::new();
    if rows_max == 0 || from >= view.index.next {
        return Ok(records);
    }
    let start = view.index.block_of(from).start;
    let blocks: Vec<(Block, u64)> =
        view.index.blocks().filter(|(block, _)| block.start >= start).collect();
    let mut bytes = 0;
    let gone_through = each_line(view, &blocks, |offset, text| {
        if offset < from {
            return Ok(ControlFlow::Continue(()));
        }
        let record = record(view, offset, text)?;
        bytes += record.payload.len();
        records.push(record);
        let is_full = records.len() >= rows_max || bytes >= READ_BYTES_MAX;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    match gone_through {
        Ok(()) => Ok(records),
        Err(Unread::Io(error)) => Err(BusError::Unavailable {
            reason: format!("could not read {}", view.path.display()),
            source: Some(Box::new(error)),
        }),
        Err(Unread::Damaged { offset, reason }) => Err(BusError::Damaged {
            place: format!("line {offset} of {}", view.path.display()),
            reason: reason.to_string(),
        }),
    }
}

fn record(view: &View, offset: u64, text: &[u8]) -> Result<Record, Unread> {
    let line = line::whole(text).map_err(|reason| Unread::Damaged { offset, reason })?;
    Ok(Record {
        reference: reference(view, offset, line.head.at),
        partition_key: line.partition_key.into_owned(),
        dedupe_key: line.head.dedupe_key.map(|key| key.into_owned()),
        payload: line.payload,
    })
}

fn reference(view: &View, offset: u64, published_at: Option<Millis>) -> Reference {
    Reference {
        topic: view.topic.to_string(),
        partition: PARTITION,
        offset: offset.to_string(),
        offset_kind: OffsetKind::FileLine,
        published_at,
    }
}

/// Calls `each` with every line of the blocks and its offset, until it breaks.
pub(super) fn each_line(
    view: &View,
    blocks: &[(Block, u64)],
    mut each: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Unread>,
) -> Result<(), Unread> {
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

/// Time ranges in order, with those that touch made one.
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
