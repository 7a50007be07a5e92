//! Reads in the background what a start does not read: the blocks that the index vouches for.
//!
//! A start compares one line of them with the log, so that it does not take longer the longer a log
//! is. This thread compares all of them, at half speed at most, and reports the first that is
//! damaged.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::log::View;
use super::search::{self, Unread};
use super::{DAMAGED, line};

/// A log and how many bytes of it are to be read.
pub(super) type Unchecked = (View, u64);

/// The thread, until it has read everything or is dropped.
#[derive(Debug)]
pub(super) struct BackgroundCheck {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundCheck {
    /// Starts reading. What is damaged is written to `damage`.
    pub(super) fn start(
        logs: Vec<Unchecked>,
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
                    // The first one is enough to stop for.
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

fn check(view: &View, bytes: u64, stop: &AtomicBool) -> Result<(), String> {
    let blocks = view.index.blocks().take_while(|(_, end)| *end <= bytes);
    for block in blocks.filter(|(block, end)| block.start < *end) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let begun = Instant::now();
        let checked = search::each_line(view, &[block], |offset, text| {
            line::verify(text).map_err(|reason| Unread::Damaged { offset, reason })?;
            Ok(ControlFlow::Continue(()))
        });
        match checked {
            Ok(()) => {}
            Err(error @ Unread::Damaged { .. }) => {
                return Err(format!("{} is damaged: {error}; {DAMAGED}", view.path.display()));
            }
            Err(error @ Unread::Io(_)) => {
                return Err(format!(
                    "{} cannot be read to its acknowledged end: {error}; {DAMAGED}",
                    view.path.display()
                ));
            }
        }
        thread::park_timeout(begun.elapsed());
    }
    Ok(())
}
