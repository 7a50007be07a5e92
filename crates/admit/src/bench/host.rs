//! What the host of a virtual machine takes away from it.
//!
//! While a host gives a core to somebody else nothing here runs on it, and whoever is being measured waits.
//! The system counts that time, so a stall that is the host's can be told from one that is the gate's.

use std::time::Duration;

/// Core time that the host has taken so far, of all cores together. None where it is not counted.
#[cfg(target_os = "linux")]
pub(super) fn stolen() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/stat").ok()?;
    stolen_in(&told, rustix::param::clock_ticks_per_second())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn stolen() -> Option<Duration> {
    None
}

/// The eighth number of the line for all cores, in ticks.
#[cfg(any(target_os = "linux", test))]
fn stolen_in(told: &str, ticks_per_second: u64) -> Option<Duration> {
    let numbers = told.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = numbers.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(Duration::from_millis(ticks.checked_mul(1_000)?.checked_div(ticks_per_second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number_for_all_cores() {
        let told = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(stolen_in(told, 100), Some(Duration::from_millis(800)));
        assert_eq!(stolen_in(told, 0), None);
        assert_eq!(stolen_in("cpu  1 2 3 4 5 6 7\n", 100), None, "an older system");
        assert_eq!(stolen_in("", 100), None);
    }
}
