//! The rate of a job over time as a picture: the paths of an SVG, and the same in words.

use super::{duration, shown, size};
use crate::curve::Curve;
use crate::time::Time;

/// The size of the picture, in units of its own.
const WIDTH: u64 = 240;
const HEIGHT: u64 = 60;
/// The height of the highest rate.
const HIGHEST: u64 = 56;

/// A picture of a curve.
pub(super) struct Picture {
    /// The path of the line.
    pub(super) line: String,
    /// The path of what is beneath it.
    pub(super) area: String,
    /// The highest rate.
    pub(super) most: String,
    /// The times at both ends.
    pub(super) from: String,
    pub(super) to: String,
    /// The picture in words.
    pub(super) text: String,
}

impl Picture {
    /// The picture of a curve; `None` if it has less than two steps.
    pub(super) fn new(curve: &Curve) -> Option<Self> {
        let rates: Vec<_> = curve.rates().collect();
        let steps = u64::try_from(rates.len()).ok()?;
        let last = steps.checked_sub(1).filter(|last| *last > 0)?;
        let most = rates.iter().copied().max().filter(|most| *most > 0)?;
        let mut points = Vec::new();
        for (step, rate) in (0..).zip(&rates) {
            let height = u128::from(*rate) * u128::from(HIGHEST) * 10 / u128::from(most);
            let y = u128::from(HEIGHT) * 10 - height;
            let x = step * WIDTH * 10 / last;
            points.push(format!("{}.{} {}.{}", x / 10, x % 10, y / 10, y % 10));
        }
        let line = format!("M{}", points.join("L"));
        let milliseconds = steps.saturating_mul(curve.step_ms);
        let us = i64::try_from(milliseconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        let end = curve.began_at.microseconds().saturating_add(us);
        let bytes: u64 = curve.bytes.iter().copied().fold(0, u64::saturating_add);
        let mean = size(bytes.saturating_mul(1000) / milliseconds.max(1));
        let (most, time) = (size(most), duration(milliseconds / 1000));
        Some(Self {
            area: format!("{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"),
            line,
            from: shown(&curve.began_at),
            to: shown(&Time::from_microseconds(end)),
            text: format!("On average {mean}/s over {time}, at most {most}/s"),
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_highest_rate_at_its_top() {
        let mut curve = Curve::new(Time::from_microseconds(0));
        assert!(Picture::new(&curve).is_none());
        curve.bytes = vec![0, 1_000_000, 500_000];
        let picture = Picture::new(&curve).unwrap_or_else(|| panic!("three steps"));
        assert_eq!(picture.line, "M0.0 60.0L120.0 4.0L240.0 32.0");
        assert_eq!(
            picture.text,
            "On average 500 kB/s over 3 s, at most 1.00 MB/s"
        );
        curve.bytes = vec![0, 0];
        assert!(Picture::new(&curve).is_none());
    }
}
