//! Samples as lines of text, for people and as comma-separated values.

use xdfs::{TuneSample, TuneSetting};

use crate::human;

/// The columns of the file.
const COLUMNS: &str = "phase,channels,window_bytes,bytes,seconds,bytes_per_second,channels_open,\
                       round_trip_min_seconds,round_trip_seconds,resent,congestion,mtu\n";

/// A size with the units that flags have: `64K`.
pub(super) fn binary(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{}G", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// A window with the units that flags have; `auto` for an automatic one.
pub(super) fn window(window: Option<u32>) -> String {
    window.map_or_else(|| AUTO.to_owned(), binary)
}

/// The word for an automatic number or window.
const AUTO: &str = "auto";

fn number(number: Option<u32>) -> String {
    number.map_or_else(|| AUTO.to_owned(), |number| number.to_string())
}

/// A sample as a line for people.
pub(super) fn line(sample: &TuneSample, default: TuneSetting) -> String {
    let setting = match sample.setting {
        setting if setting == default => "default".to_owned(),
        setting => format!(
            "-n {:<4} -w {}",
            number(setting.channels),
            window(setting.window)
        ),
    };
    let mut text = format!(
        "{setting:<16} {:>10}  {} in {}",
        human::rate(sample.bytes_per_second),
        human::size(sample.bytes),
        human::seconds(sample.elapsed.as_secs_f64()),
    );
    let asked = sample.setting.channels;
    if asked != Some(sample.channels) {
        text.push_str(&format!(
            ", {}",
            human::count(sample.channels.into(), "channel")
        ));
    }
    if let Some(path) = &sample.path
        && path.resent >= 0.0005
    {
        text.push_str(&format!(", {:.1} % sent again", path.resent * 100.0));
    }
    text.push('\n');
    text
}

/// All samples as comma-separated values.
pub(super) fn csv(samples: &[TuneSample]) -> String {
    let rows = samples.iter().map(|sample| {
        let path = sample.path.as_ref().map(|path| {
            format!(
                "{:.6},{:.6},{:.6},{},{}",
                path.round_trip_min.as_secs_f64(),
                path.round_trip.as_secs_f64(),
                path.resent,
                path.congestion,
                path.mtu
            )
        });
        format!(
            "{},{},{},{},{:.6},{:.0},{},{}\n",
            sample.phase.as_str(),
            number(sample.setting.channels),
            number(sample.setting.window),
            sample.bytes,
            sample.elapsed.as_secs_f64(),
            sample.bytes_per_second,
            sample.channels,
            path.unwrap_or_else(|| ",,,,".to_owned()),
        )
    });
    std::iter::once(COLUMNS.to_owned()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xdfs::TunePhase;

    use super::*;

    #[test]
    fn every_row_has_a_value_for_each_column() {
        let sample = TuneSample {
            setting: TuneSetting {
                channels: Some(8),
                window: None,
            },
            phase: TunePhase::Survey,
            bytes: 1000,
            elapsed: Duration::from_millis(500),
            bytes_per_second: 2500.4,
            channels: 7,
            path: None,
        };
        let measured = TuneSample {
            path: Some(xdfs::MeasuredPath {
                round_trip_min: Duration::from_millis(10),
                round_trip: Duration::from_millis(20),
                resent: 0.25,
                congestion: "cubic".into(),
                mtu: 1500,
                window_limited: 0.0,
            }),
            ..sample
        };
        let both = [sample, measured];
        let text = csv(&both);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "survey,8,auto,1000,0.500000,2500,7,,,,,");
        assert!(lines[2].ends_with(",0.010000,0.020000,0.250000,cubic,1500"));
        for line in &lines {
            assert_eq!(line.matches(',').count(), COLUMNS.matches(',').count());
        }
        let shown = line(&both[1], TuneSetting::default());
        assert_eq!(
            shown,
            "-n 8    -w auto   2.50 kB/s  1.00 kB in 500 ms, 7 channels, 25.0 % sent again\n"
        );
        assert!(line(&both[0], both[0].setting).starts_with("default  "));
    }

    #[test]
    fn sizes_are_those_that_flags_take() {
        let sizes = [4096, 212_992, 1 << 20, 3 << 30, 5000].map(binary);
        assert_eq!(sizes, ["4K", "208K", "1M", "3G", "5000"]);
    }
}
