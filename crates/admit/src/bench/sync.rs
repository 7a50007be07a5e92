//! What one sync costs on this disk: the floor under every lone acknowledgement.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use super::client::histogram;
use super::report::Figure;
use crate::output::Failure;

/// Syncs measured.
const SYNCS: u64 = 500;

/// Appends a page and syncs, over and over.
pub(super) fn measure(dir: &Path) -> Result<Figure, Failure> {
    let path = dir.join("sync");
    let fail = |error| Failure::runtime(format!("cannot measure a sync: {error}"));
    let mut file = File::create(&path).map_err(fail)?;
    let mut latencies = histogram();
    let started = Instant::now();
    for _ in 0..SYNCS {
        let one = Instant::now();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).map_err(fail)?;
        let micros = u64::try_from(one.elapsed().as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros.max(1)).map_err(Failure::runtime)?;
    }
    Ok(Figure::timed(started.elapsed(), latencies))
}
