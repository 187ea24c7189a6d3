//! What the process and the machine use: [`usage`], [`load`].

use std::time::Duration;

/// What the process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads since it began.
    pub processor: Duration,
    /// Bytes of memory that it has at present.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

/// What the process uses at present. `None` where the system has no such figure.
#[must_use]
pub fn usage() -> Option<Usage> {
    read()
}

/// The load of the machine: threads that run or want to, as an average of the last minute. `None`
/// where the system has no such figure.
#[must_use]
pub fn load() -> Option<f64> {
    // A file that Linux has.
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(target_os = "linux")]
fn read() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let ticks = rustix::param::clock_ticks_per_second();
    parsed(&stat, ticks, rustix::param::page_size() as u64, descriptors)
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<Usage> {
    None
}

/// The figures of `/proc/self/stat`. The second field is a name in brackets, which may hold
/// anything.
#[cfg(any(target_os = "linux", test))]
fn parsed(stat: &str, ticks: u64, page_bytes: u64, descriptors: u64) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = rest
        .split_whitespace()
        // The state is a letter, and some figures are negative.
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // Numbered from 3 on in the manual.
    let field = |number: usize| fields.get(number - 3).copied();
    let used = field(14)?.checked_add(field(15)?)?;
    let nanoseconds = u128::from(used) * 1_000_000_000 / u128::from(ticks.max(1));
    Some(Usage {
        processor: Duration::from_nanos(u64::try_from(nanoseconds).ok()?),
        resident_bytes: field(24)?.saturating_mul(page_bytes),
        threads: field(20)?,
        // The one that counted them is closed again.
        descriptors: descriptors.saturating_sub(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_process_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 1 2048 3 0 0";
        let usage = parsed(stat, 100, 4096, 5).unwrap();
        assert_eq!(usage.processor, Duration::from_secs(2));
        assert_eq!((usage.threads, usage.descriptors), (9, 4));
        assert_eq!(usage.resident_bytes, 3 * 4096);
        for bad in ["", "7 (a", "7 (a) S 1"] {
            assert_eq!(parsed(bad, 100, 4096, 5), None, "{bad}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_something() {
        let usage = usage().unwrap();
        assert!(usage.resident_bytes > 0 && usage.threads > 0 && usage.descriptors > 0);
        assert!(load().unwrap() >= 0.0);
    }
}
