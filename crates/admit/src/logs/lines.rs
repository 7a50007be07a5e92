//! Lines on their way to standard error, which a thread of its own writes.
//!
//! Standard error may be a file on a full disk, a pipe whose reader is gone, or one whose reader has
//! stopped reading. None of that may hold up or end whoever had something to say, so a line that
//! finds no room is left out. How many were is said in the next line that is written.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// So many lines may wait.
const WAITING_MAX: usize = 4096;

/// How long the process waits at its end for the lines before.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Where lines are put.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    to: SyncSender<Waiting>,
    left_out: Arc<AtomicU64>,
}

enum Waiting {
    Line(Vec<u8>),
    /// Somebody wants to know when everything before is written.
    Flush(SyncSender<()>),
}

impl Lines {
    /// Starts the thread that writes to `out`. `note` makes the line that says how many were left out.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        note: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (to, waiting) = sync_channel(WAITING_MAX);
        let lines = Self { to, left_out: Arc::default() };
        let left_out = lines.left_out.clone();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&waiting, out, &left_out, note))?;
        Ok(lines)
    }

    /// Waits until what was put in so far is written, but not for a reader that does not read.
    pub(super) fn flush(&self) {
        let (written, told) = sync_channel(1);
        // With no room the reader has stopped reading, and waiting would not help.
        if self.to.try_send(Waiting::Flush(written)).is_ok() {
            told.recv_timeout(FLUSH_MAX).unwrap_or_default();
        }
    }
}

fn write_all(
    waiting: &Receiver<Waiting>,
    mut out: impl Write,
    left_out: &AtomicU64,
    note: impl Fn(u64) -> String,
) {
    for next in waiting {
        match next {
            Waiting::Line(line) => {
                let missing = left_out.swap(0, Ordering::Relaxed);
                let noted = match missing {
                    0 => Ok(()),
                    missing => out.write_all(note(missing).as_bytes()),
                };
                if noted.and_then(|()| out.write_all(&line)).is_err() {
                    left_out.fetch_add(missing + 1, Ordering::Relaxed);
                }
            }
            Waiting::Flush(written) => written.send(()).unwrap_or_default(),
        }
    }
}

impl Write for Lines {
    /// One call is one line. It always succeeds: there is nobody who could do anything about it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.to.try_send(Waiting::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Instant;

    /// Writes into memory, once it is told to.
    struct Gated {
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.open.recv().map_err(io::Error::other)?;
            self.written.lock().expect("nobody panics with it").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn note(missing: u64) -> String {
        format!("{missing} left out\n")
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up_and_is_told_how_much_it_missed() {
        let (open, gate) = sync_channel(2 * WAITING_MAX);
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let mut lines = Lines::start(Gated { open: gate, written: written.clone() }, note).unwrap();
        let all = WAITING_MAX + 10;
        for _ in 0..all {
            lines.write_all(b"a line\n").unwrap();
        }
        for _ in 0..=all {
            open.send(()).unwrap();
        }
        let written_lines =
            || written.lock().unwrap().iter().filter(|byte| **byte == b'\n').count();
        let begun = Instant::now();
        while written_lines() < WAITING_MAX && begun.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        lines.write_all(b"the last\n").unwrap();
        lines.flush();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let (said, counted) = text.lines().fold((0, 0), |(said, missed), line| {
            match line.strip_suffix(" left out") {
                Some(number) => (said, missed + number.parse::<usize>().unwrap()),
                None => (said + 1, missed),
            }
        });
        assert_eq!(said + counted, all + 1, "every line is there or counted: {said}, {counted}");
        assert!(counted > 0, "there was no room for all of them");
        assert!(text.ends_with("the last\n"));
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_until_one_can() {
        struct Full(Arc<AtomicU64>, Arc<Mutex<Vec<u8>>>);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0.load(Ordering::SeqCst) == 1 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.1.lock().expect("nobody panics with it").extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (full, written) = (Arc::new(AtomicU64::new(1)), Arc::<Mutex<Vec<u8>>>::default());
        let mut lines = Lines::start(Full(full.clone(), written.clone()), note).unwrap();
        for _ in 0..3 {
            lines.write_all(b"lost\n").unwrap();
        }
        lines.flush();
        full.store(0, Ordering::SeqCst);
        lines.write_all(b"kept\n").unwrap();
        lines.flush();
        assert_eq!(*written.lock().unwrap(), b"3 left out\nkept\n");
    }
}
