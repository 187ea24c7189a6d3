//! Medians, spreads and paired ratios of small samples.
//!
//! Not a statistics package: a benchmark row holds a handful of runs, so the median with the
//! smallest and largest value says all that can honestly be said. Ratios are taken within a
//! repetition, because a machine drifts over minutes by more than most tools differ, and only then
//! summed up. Called by `row`, `verdict` and `markdown`.

/// Median, smallest and largest value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Spread {
    /// Middle value; the mean of the two middle values of an even sample.
    pub(crate) median: f64,
    /// Smallest value.
    pub(crate) low: f64,
    /// Largest value.
    pub(crate) high: f64,
}

impl Spread {
    /// Sums up a sample; `None` when it is empty or holds a value that is not finite.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self {
            median,
            low: sorted[0],
            high: sorted[sorted.len() - 1],
        })
    }
}

/// Ratios `ours / theirs` of the runs that share a repetition number.
///
/// Repetitions that only one of the two has are left out, and so are divisions by zero.
pub(crate) fn paired_ratios(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Vec<f64> {
    ours.iter()
        .filter_map(|(repetition, our)| {
            let their = theirs.iter().find(|(other, _)| other == repetition)?.1;
            (their > 0.0).then(|| our / their)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_samples() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (2.0, 1.0, 3.0));
        let even = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((even.median, even.low, even.high), (2.5, 1.0, 4.0));
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.low, one.high), (7.0, 7.0, 7.0));
    }

    #[test]
    fn no_spread_without_finite_values() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn ratios_pair_by_repetition() {
        let ours = [(0, 2.0), (1, 9.0), (3, 5.0)];
        let theirs = [(1, 3.0), (0, 4.0), (2, 1.0)];
        assert_eq!(paired_ratios(&ours, &theirs), vec![0.5, 3.0]);
        assert!(paired_ratios(&ours, &[(0, 0.0)]).is_empty());
    }
}
