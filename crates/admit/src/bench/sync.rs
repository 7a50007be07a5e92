//! Benchmark of a single disk sync, the lower bound of the latency of a lone event.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use super::client::histogram;
use super::report::Figure;
use crate::output::Failure;

/// Number of syncs.
const SYNCS: u64 = 500;

/// Appends a page and syncs, repeatedly.
pub(super) fn measure(dir: &Path) -> Result<Figure, Failure> {
    let path = dir.join("sync");
    let fail = |error| Failure::runtime(format!("failed to write or sync the file: {error}"));
    let mut file = File::create(&path).map_err(fail)?;
    let mut latencies = histogram();
    let started = Instant::now();
    for _ in 0..SYNCS {
        let written_at = Instant::now();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).map_err(fail)?;
        let micros = u64::try_from(written_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros.max(1)).map_err(Failure::runtime)?;
    }
    Ok(Figure::timed(started.elapsed(), latencies))
}
