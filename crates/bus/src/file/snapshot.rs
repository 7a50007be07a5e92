//! Copies the logs of a bus, each up to a given length, while a gate may be writing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::{FileReader, LINE_BYTES_MAX, line, log};

/// Length of each log at one moment, in bytes, by topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLengths(BTreeMap<String, u64>);

impl LogLengths {
    /// Reads the current lengths.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn of(reader: &FileReader) -> io::Result<Self> {
        let topics = reader.topics()?;
        let length = |topic: String| {
            let bytes = reader.log_bytes(&topic).map_err(io::Error::other)?;
            Ok((topic, bytes))
        };
        topics.into_iter().map(length).collect::<io::Result<_>>().map(Self)
    }

    /// Every topic with its length, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(topic, bytes)| (topic.as_str(), *bytes))
    }

    /// Length of one topic's log; 0 if there is none.
    pub fn get(&self, topic: &str) -> u64 {
        self.0.get(topic).copied().unwrap_or(0)
    }
}

/// Copies the first `bytes` of the log of `topic` from one bus folder to another, without a
/// trailing partial line. Returns the number of bytes copied.
///
/// # Errors
/// When the log cannot be read or written.
pub fn copy_log(from: &Path, to: &Path, topic: &str, bytes: u64) -> io::Result<u64> {
    let folder = to.join(topic);
    fs::create_dir_all(&folder)?;
    let source = File::open(from.join(topic).join(log::LOG))?;
    let mut target =
        OpenOptions::new().read(true).write(true).create_new(true).open(folder.join(log::LOG))?;
    let copied = io::copy(&mut source.take(bytes), &mut target)?;
    let whole = end_of_last_line(&mut target, copied)?;
    target.set_len(whole)?;
    Ok(whole)
}

/// Cuts off the longest tail of a log that begins at or after `from` and holds only messages whose
/// dedupe key `is_known` rejects. `from` is the end of a line. Returns how many messages that were.
///
/// # Errors
/// When the log cannot be read or written, or a line in that part is invalid.
pub fn cut_unknown_end(
    root: &Path,
    topic: &str,
    from: u64,
    mut is_known: impl FnMut(&str) -> io::Result<bool>,
) -> io::Result<u64> {
    let path = root.join(topic).join(log::LOG);
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut reader = BufReader::new(&file);
    reader.seek(SeekFrom::Start(from))?;
    let (mut end, mut keep, mut unknown) = (from, from, 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
        if read == 0 {
            break;
        }
        end += read as u64;
        let whole = text.strip_suffix(b"\n").unwrap_or(&text);
        let header = line::parse_header(whole).map_err(io::Error::other)?;
        let is_kept = match &header.dedupe_key {
            Some(key) => is_known(key)?,
            None => true,
        };
        unknown = if is_kept { 0 } else { unknown + 1 };
        if is_kept {
            keep = end;
        }
    }
    drop(reader);
    if keep < end {
        file.set_len(keep)?;
    }
    Ok(unknown)
}

/// Offset after the last whole line of the first `bytes`.
fn end_of_last_line(file: &mut File, bytes: u64) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(STEP);
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(&mut part)?;
        if let Some(newline) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str) -> String {
        format!("{{\"dedupe_key\":\"{key}\",\"partition_key\":\"p\",\"payload\":{{}}}}\n")
    }

    fn log_with(root: &Path, text: &str) {
        fs::create_dir_all(root.join("t")).unwrap();
        fs::write(root.join("t").join(log::LOG), text).unwrap();
    }

    #[test]
    fn a_copy_ends_with_the_last_whole_line() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = line("a") + &line("b");
        log_with(from.path(), &text);
        let lengths = LogLengths::of(&FileReader::new(from.path())).unwrap();
        assert_eq!(lengths.get("t"), text.len() as u64);
        let copied = copy_log(from.path(), to.path(), "t", text.len() as u64 - 1).unwrap();
        assert_eq!(copied, line("a").len() as u64);
        assert_eq!(fs::read_to_string(to.path().join("t").join(log::LOG)).unwrap(), line("a"));
    }

    #[test]
    fn only_a_tail_of_unknown_messages_is_cut_off() {
        let root = tempfile::tempdir().unwrap();
        let text = line("a") + &line("x") + &line("b") + &line("y") + &line("z");
        log_with(root.path(), &text);
        let from = line("a").len() as u64;
        let known = |key: &str| Ok(matches!(key, "a" | "b"));
        assert_eq!(cut_unknown_end(root.path(), "t", from, known).unwrap(), 2);
        let left = fs::read_to_string(root.path().join("t").join(log::LOG)).unwrap();
        assert_eq!(left, line("a") + &line("x") + &line("b"));
    }
}
