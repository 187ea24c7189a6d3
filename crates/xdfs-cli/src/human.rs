//! Human-readable numbers: sizes in binary units, rates in decimal ones, durations.
//!
//! Pure formatting, for progress, results and the demo. JSON doesn't use it.

use std::time::Duration;

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 would round to 1000 of the smaller unit.
    while value >= base.min(999.5) && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let unit_name = units[unit];
    match value {
        _ if unit == 0 => format!("{value:.0} {unit_name}"),
        v if v < 9.995 => format!("{v:.2} {unit_name}"),
        v if v < 99.95 => format!("{v:.1} {unit_name}"),
        v => format!("{v:.0} {unit_name}"),
    }
}

/// A number of bytes, as `1.50 GB`: powers of 1000, as in rates.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn size(bytes: u64) -> String {
    scaled(
        bytes as f64,
        1000.0,
        &["B", "kB", "MB", "GB", "TB", "PB", "EB"],
    )
}

/// Bytes per second, as `1.91 GB/s`.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    let units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
    scaled(bytes_per_second.max(0.0), 1000.0, &units)
}

/// An elapsed time, as `12 ms`, `3.4 s` or `1:02:03`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1000.0),
        s if s < 59.95 => format!("{s:.1} s"),
        s => clock(Duration::from_secs_f64(s.clamp(0.0, 1e15))),
    }
}

/// A time as hours, minutes and seconds: `0:07`, `12:34`, `1:02:03`.
pub(crate) fn clock(time: Duration) -> String {
    let s = time.as_secs();
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

/// `1 channel`, `2 channels`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (2, "2 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (1_500_000_000, "1.50 GB"),
            (9_999, "10.0 kB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn rates() {
        for (bytes, text) in [
            (0.0, "0 B/s"),
            (500.4, "500 B/s"),
            (999.9, "1.00 kB/s"),
            (1_910_000_000.0, "1.91 GB/s"),
            (45_600_000.0, "45.6 MB/s"),
            (-1.0, "0 B/s"),
        ] {
            assert_eq!(rate(bytes), text);
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds(0.0042), "4 ms");
        assert_eq!(seconds(3.42), "3.4 s");
        assert_eq!(seconds(62.0), "1:02");
        assert_eq!(
            seconds(f64::INFINITY),
            clock(Duration::from_secs(1_000_000_000_000_000))
        );
        assert_eq!(clock(Duration::from_secs(7)), "0:07");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(count(1, "channel"), "1 channel");
        assert_eq!(count(4, "channel"), "4 channels");
    }
}
