//! Bounded queue of log lines, written to standard error by a dedicated thread.
//!
//! Standard error may be a file on a full disk, a closed pipe, or a pipe whose reader is stuck. None of
//! that may block or stop the caller, so a line is dropped when the queue is full. The next line that is
//! written is preceded by a warning with the number of dropped lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Capacity of the queue, in lines.
const QUEUED_LINES_MAX: usize = 4096;

/// Longest wait for the queue at exit.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Sender side of the queue.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    sender: SyncSender<LogItem>,
    dropped: Arc<AtomicU64>,
}

enum LogItem {
    Line(Vec<u8>),
    /// Request for a signal once all earlier lines are written.
    Flush(SyncSender<()>),
}

impl LogQueue {
    /// Starts the thread that writes to `out`. `warning` formats the line about dropped lines.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        warning: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUED_LINES_MAX);
        let queue = Self { sender, dropped: Arc::default() };
        let dropped = queue.dropped.clone();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&receiver, out, &dropped, warning))?;
        Ok(queue)
    }

    /// Waits until all queued lines are written, at most [`FLUSH_MAX`].
    pub(super) fn flush(&self) {
        let (flushed, flush_done) = sync_channel(1);
        // A full queue means that the reader is stuck, so waiting would not help.
        if self.sender.try_send(LogItem::Flush(flushed)).is_ok() {
            flush_done.recv_timeout(FLUSH_MAX).unwrap_or_default();
        }
    }
}

fn write_all(
    receiver: &Receiver<LogItem>,
    mut out: impl Write,
    dropped: &AtomicU64,
    warning: impl Fn(u64) -> String,
) {
    for item in receiver {
        match item {
            LogItem::Line(line) => {
                let count = dropped.swap(0, Ordering::Relaxed);
                let warned = match count {
                    0 => Ok(()),
                    count => out.write_all(warning(count).as_bytes()),
                };
                if warned.and_then(|()| out.write_all(&line)).is_err() {
                    dropped.fetch_add(count + 1, Ordering::Relaxed);
                }
            }
            LogItem::Flush(flushed) => flushed.send(()).unwrap_or_default(),
        }
    }
}

impl Write for LogQueue {
    /// Queues one line per call. Always succeeds, because a logger cannot report its own failure.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.sender.try_send(LogItem::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
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

    /// Writes into memory; each write waits for a message on `open`.
    struct BlockingWriter {
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for BlockingWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.open.recv().map_err(io::Error::other)?;
            self.written.lock().expect("the lock is not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn warning(count: u64) -> String {
        format!("{count} dropped\n")
    }

    #[test]
    fn a_stuck_reader_blocks_no_caller_and_dropped_lines_are_counted() {
        let (open, gate) = sync_channel(2 * QUEUED_LINES_MAX);
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let writer = BlockingWriter { open: gate, written: written.clone() };
        let mut queue = LogQueue::start(writer, warning).unwrap();
        let all = QUEUED_LINES_MAX + 10;
        for _ in 0..all {
            queue.write_all(b"a line\n").unwrap();
        }
        for _ in 0..=all {
            open.send(()).unwrap();
        }
        let written_lines =
            || written.lock().unwrap().iter().filter(|byte| **byte == b'\n').count();
        let started = Instant::now();
        while written_lines() < QUEUED_LINES_MAX && started.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        queue.write_all(b"the last\n").unwrap();
        queue.flush();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let (lines, counted) = text.lines().fold((0, 0), |(lines, counted), line| {
            match line.strip_suffix(" dropped") {
                Some(number) => (lines, counted + number.parse::<usize>().unwrap()),
                None => (lines + 1, counted),
            }
        });
        assert_eq!(
            lines + counted,
            all + 1,
            "every line is written or counted: {lines}, {counted}"
        );
        assert!(counted > 0, "the queue was full");
        assert!(text.ends_with("the last\n"));
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_until_one_can() {
        struct FullDisk(Arc<AtomicU64>, Arc<Mutex<Vec<u8>>>);
        impl Write for FullDisk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0.load(Ordering::SeqCst) == 1 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.1.lock().expect("the lock is not poisoned").extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (full, written) = (Arc::new(AtomicU64::new(1)), Arc::<Mutex<Vec<u8>>>::default());
        let mut queue = LogQueue::start(FullDisk(full.clone(), written.clone()), warning).unwrap();
        for _ in 0..3 {
            queue.write_all(b"lost\n").unwrap();
        }
        queue.flush();
        full.store(0, Ordering::SeqCst);
        queue.write_all(b"written\n").unwrap();
        queue.flush();
        assert_eq!(*written.lock().unwrap(), b"3 dropped\nwritten\n");
    }
}
