//! Steal time of a virtual machine: core time that the host gave to others.
//!
//! Linux counts it, so a stall caused by the host can be distinguished from one caused by the gate.

use std::time::Duration;

/// Steal time since boot, of all cores together; `None` if the system does not count it.
#[cfg(target_os = "linux")]
pub(super) fn steal_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    parse_steal_time(&stat, rustix::param::clock_ticks_per_second())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn steal_time() -> Option<Duration> {
    None
}

/// Parses the steal time, the eighth number of the `cpu` line, in ticks.
#[cfg(any(target_os = "linux", test))]
fn parse_steal_time(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let numbers = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = numbers.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(Duration::from_millis(ticks.checked_mul(1_000)?.checked_div(ticks_per_second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_the_eighth_number_for_all_cores() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(parse_steal_time(stat, 100), Some(Duration::from_millis(800)));
        assert_eq!(parse_steal_time(stat, 0), None);
        assert_eq!(parse_steal_time("cpu  1 2 3 4 5 6 7\n", 100), None, "an older system");
        assert_eq!(parse_steal_time("", 100), None);
    }
}
