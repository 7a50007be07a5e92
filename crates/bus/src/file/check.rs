//! Background check of the blocks that a start skips because the index vouches for them.
//!
//! A start compares only one line per block with the log, so that it takes no longer the longer a
//! log is. This thread verifies all lines, at half speed at most, and reports the first damage.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::log::LogView;
use super::search::{self, ReadError};
use super::{DAMAGED_LOG_HELP, line};

/// A log, and how many of its bytes to verify.
pub(super) type UncheckedLog = (LogView, u64);

/// Handle of the thread, which runs until everything is verified or the handle is dropped.
#[derive(Debug)]
pub(super) struct BackgroundCheck {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundCheck {
    /// Starts the check. The first damage is written to `damage`.
    pub(super) fn start(
        logs: Vec<UncheckedLog>,
        damage: Arc<OnceLock<String>>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        if logs.iter().all(|(_, bytes)| *bytes == 0) {
            return Ok(Self { stop, thread: None });
        }
        let stopped = Arc::clone(&stop);
        let work = move || {
            for (view, bytes) in &logs {
                if let Err(reason) = check(view, *bytes, &stopped) {
                    tracing::error!(topic = &*view.topic, reason, "a bus log is damaged");
                    // The first damage is enough to stop.
                    damage.set(reason).unwrap_or_default();
                }
            }
        };
        let thread = thread::Builder::new().name("bus-check".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for BackgroundCheck {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the check of the bus logs ended by a panic");
            }
        }
    }
}

fn check(view: &LogView, bytes: u64, stop: &AtomicBool) -> Result<(), String> {
    let blocks = view.index.blocks().take_while(|(_, end)| *end <= bytes);
    for block in blocks.filter(|(block, end)| block.start < *end) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let begun = Instant::now();
        let checked = search::each_line(view, &[block], |offset, text| {
            line::verify(text).map_err(|reason| ReadError::Damaged { offset, reason })?;
            Ok(ControlFlow::Continue(()))
        });
        match checked {
            Ok(()) => {}
            Err(error @ ReadError::Damaged { .. }) => {
                return Err(format!(
                    "{} is damaged: {error}; {DAMAGED_LOG_HELP}",
                    view.path.display()
                ));
            }
            Err(error @ ReadError::Io(_)) => {
                return Err(format!(
                    "{} cannot be read to its acknowledged end: {error}; {DAMAGED_LOG_HELP}",
                    view.path.display()
                ));
            }
        }
        thread::park_timeout(begun.elapsed());
    }
    Ok(())
}
