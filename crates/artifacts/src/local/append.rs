//! Appending lines once: first the line, then its marker, under a file lock.
//!
//! A crash in between leaves a line without marker, or a partial line. The next append removes a
//! partial line, and a start searches every uncertain line ([`Markers::Verified`]).

use std::collections::HashSet;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use super::{LocalStore, in_folder, store_error};
use crate::port::{ArtifactsError, Line, Markers, Put};

/// Maximum wait for the file lock.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Poll interval of the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

impl LocalStore {
    /// Appends lines, with one result per line.
    pub(super) fn append(
        &self,
        path: &str,
        lines: &[Line],
        markers: Markers,
    ) -> Vec<Result<Put, ArtifactsError>> {
        match self.try_append(path, lines, markers) {
            Ok(results) => results,
            Err(error) => each(lines.len(), error),
        }
    }

    /// An error applies to all lines: nothing was appended.
    fn try_append(
        &self,
        path: &str,
        lines: &[Line],
        markers: Markers,
    ) -> Result<Vec<Result<Put, ArtifactsError>>, ArtifactsError> {
        let place = self.place(path)?;
        self.staging()?;
        let checked: Vec<_> = lines.iter().map(|line| self.check_line(path, line)).collect();
        if checked.iter().all(Result::is_err) {
            return Ok(checked.into_iter().map(|one| one.map(|()| Put::Existed)).collect());
        }
        let fail = |source| store_error("append to", path, source);
        let _one = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = open(&place).map_err(fail)?;
        lock(&file).map_err(fail)?;
        truncate_torn_line(&mut file).map_err(fail)?;
        let mut known = match markers {
            Markers::Trusted => HashSet::new(),
            Markers::Verified => find(&mut file, lines).map_err(fail)?,
        };
        let results = lines.iter().zip(checked).map(|(line, checked)| {
            checked?;
            let is_known = match markers {
                Markers::Trusted => self.place(&line.marker.path)?.is_file(),
                Markers::Verified => known.contains(&line.text[..]),
            };
            match (is_known, markers) {
                (true, Markers::Trusted) => Ok(Put::Existed),
                // The marker may be damaged, too.
                (true, Markers::Verified) => self.replace(&line.marker).map(|()| Put::Existed),
                (false, _) => {
                    let appended = self.append_one(path, &mut file, line, markers)?;
                    known.insert(&line.text[..]);
                    Ok(appended)
                }
            }
        });
        Ok(results.collect())
        // Closing the file releases its lock.
    }

    fn check_line(&self, path: &str, line: &Line) -> Result<(), ArtifactsError> {
        if line.text.is_empty() || line.text.contains(&b'\n') {
            return Err(ArtifactsError::InvalidLine { path: path.to_owned() });
        }
        self.place_for(&line.marker).map(|_| ())
    }

    /// Appends one line and creates its marker; both or neither.
    fn append_one(
        &self,
        path: &str,
        file: &mut fs::File,
        line: &Line,
        markers: Markers,
    ) -> Result<Put, ArtifactsError> {
        let fail = |source| store_error("append to", path, source);
        let before = file.seek(SeekFrom::End(0)).map_err(fail)?;
        let text = [&line.text[..], b"\n"].concat();
        let marked = file.write_all(&text).map_err(fail).and_then(|()| match markers {
            Markers::Trusted => self.put_if_absent(&line.marker).map(|_| ()),
            Markers::Verified => self.replace(&line.marker),
        });
        match marked {
            Ok(()) => Ok(Put::Created),
            Err(error) => {
                if let Err(error) = file.set_len(before) {
                    tracing::warn!(path, %error, "failed to remove a line whose marker could not be created");
                }
                Err(error)
            }
        }
    }
}

fn open(place: &Path) -> io::Result<fs::File> {
    let mut file = None;
    in_folder(place, || {
        let mut options = OpenOptions::new();
        file = Some(options.read(true).append(true).create(true).open(place)?);
        Ok(())
    })?;
    file.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Acquires the lock, with a timeout.
fn lock(file: &fs::File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begun.elapsed() > LOCK_WAIT => {
                let reason = "timeout waiting for the file lock of another process";
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL_INTERVAL),
        }
    }
}

/// Removes a partial line at the end of the file. The lock is held, so there is no other writer.
fn truncate_torn_line(file: &mut fs::File) -> io::Result<()> {
    const STEP: u64 = 4096;
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(STEP);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        (&mut *file).take(end - start).read_to_end(&mut bytes)?;
        if let Some(newline) = bytes.iter().rposition(|byte| *byte == b'\n') {
            end = start + newline as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length {
        tracing::warn!(bytes = length - end, "removed a partial line at the end of a file");
        file.set_len(end)?;
    }
    Ok(())
}

/// Returns the lines that are in the file.
fn find<'l>(file: &mut fs::File, lines: &'l [Line]) -> io::Result<HashSet<&'l [u8]>> {
    let wanted: HashSet<&[u8]> = lines.iter().map(|line| &line.text[..]).collect();
    let mut found = HashSet::new();
    file.rewind()?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut text = Vec::new();
    while reader.read_until(b'\n', &mut text)? > 0 {
        if let Some(line) = text.strip_suffix(b"\n").and_then(|text| wanted.get(text)) {
            found.insert(*line);
        }
        text.clear();
    }
    Ok(found)
}

/// Repeats an error for every line.
fn each(lines: usize, error: ArtifactsError) -> Vec<Result<Put, ArtifactsError>> {
    let again = |error: &ArtifactsError| match error {
        ArtifactsError::InvalidPath { path, reason } => {
            ArtifactsError::InvalidPath { path: path.clone(), reason }
        }
        ArtifactsError::ReadOnly => ArtifactsError::ReadOnly,
        ArtifactsError::TooLarge { .. }
        | ArtifactsError::InvalidLine { .. }
        | ArtifactsError::Store { .. }
        | ArtifactsError::NotSynced { .. } => {
            store_error("append to", "a file of lines", io::Error::other(error.to_string()))
        }
    };
    (0..lines).map(|_| Err(again(&error))).collect()
}
