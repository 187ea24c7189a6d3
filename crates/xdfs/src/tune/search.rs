//! The order in which settings are sampled.
//!
//! Nine of them span the surface: the ends and the middle of both axes. From the fastest one, the
//! search goes to the neighbour that gains most, until none gains more than noise. Each step gains,
//! so it ends. Rates are arguments.

use std::collections::{HashMap, VecDeque};

use super::{TunePhase, TuneSetting};

/// Gain of a neighbour that is more than noise.
const WORTH: f64 = 1.05;

/// A setting, as its indices on both axes.
type Point = (usize, usize);

/// The state of a search.
#[derive(Debug)]
pub(super) struct Search<'a> {
    channels: &'a [u32],
    windows: &'a [Option<u32>],
    rates: HashMap<Point, f64>,
    /// Settings that span the surface and were not sampled yet.
    survey: VecDeque<Point>,
    /// The setting that was next, until its rate is recorded.
    current: Option<Point>,
    /// The setting whose neighbours are sampled, once the survey is over.
    centre: Option<Point>,
}

impl<'a> Search<'a> {
    /// A search among all pairs. Neither axis is empty.
    pub(super) fn new(channels: &'a [u32], windows: &'a [Option<u32>]) -> Self {
        let ends = |length: usize| [length - 1, 0, (length - 1) / 2];
        let mut survey = VecDeque::new();
        // The last window is the automatic one, which matters most if the bytes don't suffice.
        for window in ends(windows.len()) {
            for channels in ends(channels.len()) {
                if !survey.contains(&(channels, window)) {
                    survey.push_back((channels, window));
                }
            }
        }
        Self {
            channels,
            windows,
            rates: HashMap::new(),
            survey,
            current: None,
            centre: None,
        }
    }

    /// The setting to sample next; `None` at the end. Until its rate is recorded, it stays.
    pub(super) fn next(&mut self) -> Option<(TuneSetting, TunePhase)> {
        if let Some(point) = self.survey.front() {
            self.current = Some(*point);
            return Some((self.setting(*point), TunePhase::Survey));
        }
        loop {
            let centre = match self.centre {
                Some(centre) => centre,
                None => self.fastest(self.rates.keys().copied())?,
            };
            self.centre = Some(centre);
            let mut gains = None;
            for neighbours in [self.beside(centre), self.along_ridge(centre)] {
                if let Some(point) = neighbours.iter().find(|at| !self.rates.contains_key(at)) {
                    self.current = Some(*point);
                    return Some((self.setting(*point), TunePhase::Refinement));
                }
                let best = self.fastest(neighbours.into_iter());
                gains = best.filter(|at| self.rates[at] > self.rates[&centre] * WORTH);
                if gains.is_some() {
                    break;
                }
            }
            self.centre = Some(gains?);
        }
    }

    /// Records the rate of the setting that was next.
    pub(super) fn record(&mut self, rate: f64) {
        self.survey.pop_front();
        if let Some(point) = self.current.take() {
            self.rates.insert(point, rate);
        }
    }

    fn setting(&self, (channels, window): Point) -> TuneSetting {
        TuneSetting {
            channels: Some(self.channels[channels]),
            window: self.windows[window],
        }
    }

    /// The neighbours on one axis.
    fn beside(&self, (channels, window): Point) -> Vec<Point> {
        let (fewer, smaller) = (channels.checked_sub(1), window.checked_sub(1));
        self.within([
            (fewer, Some(window)),
            (Some(channels + 1), Some(window)),
            (Some(channels), smaller),
            (Some(channels), Some(window + 1)),
        ])
    }

    /// The neighbours with more channels of smaller windows, and the reverse: where their product
    /// is what counts, the surface has a ridge that no step on one axis follows.
    fn along_ridge(&self, (channels, window): Point) -> Vec<Point> {
        self.within([
            (channels.checked_sub(1), Some(window + 1)),
            (Some(channels + 1), window.checked_sub(1)),
        ])
    }

    fn within<const N: usize>(&self, points: [(Option<usize>, Option<usize>); N]) -> Vec<Point> {
        let is_in = |(c, w): &Point| *c < self.channels.len() && *w < self.windows.len();
        let points = points.into_iter().filter_map(|(c, w)| Some((c?, w?)));
        points.filter(is_in).collect()
    }

    /// The fastest of the sampled `points`; of equal ones that with fewer channels.
    fn fastest(&self, points: impl Iterator<Item = Point>) -> Option<Point> {
        points.max_by(|a, b| self.rates[a].total_cmp(&self.rates[b]).then(b.cmp(a)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNELS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
    const WINDOWS: [Option<u32>; 5] = [
        Some(64 << 10),
        Some(256 << 10),
        Some(1 << 20),
        Some(4 << 20),
        None,
    ];

    /// The fastest setting that a search finds where `rate` is true, and the number of samples.
    fn run(rate: impl Fn(u32, Option<u32>) -> f64) -> (TuneSetting, usize) {
        let mut search = Search::new(&CHANNELS, &WINDOWS);
        let mut sampled = Vec::new();
        while let Some((setting, _)) = search.next() {
            assert!(!sampled.contains(&setting), "{setting:?} again");
            sampled.push(setting);
            search.record(rate(setting.channels.unwrap(), setting.window));
        }
        let best = search.fastest(search.rates.keys().copied()).unwrap();
        (search.setting(best), sampled.len())
    }

    fn at(channels: u32, window: Option<u32>) -> TuneSetting {
        TuneSetting {
            channels: Some(channels),
            window,
        }
    }

    #[test]
    fn a_peak_between_the_surveyed_settings_is_found_with_few_samples() {
        // Each channel brings its window, up to a limit, and costs a little.
        let (best, samples) = run(|n, w| {
            let window = f64::from(w.unwrap_or(256 << 10));
            (f64::from(n) * window).min(33e6) / (1.0 + f64::from(n) / 50.0)
        });
        assert_eq!(best, at(8, Some(4 << 20)));
        assert!(samples <= 24, "{samples}");
    }

    #[test]
    fn a_flat_surface_ends_after_the_survey_and_one_look_around() {
        let (_, samples) = run(|_, _| 100.0);
        assert!((9..=15).contains(&samples), "{samples}");
    }

    #[test]
    fn a_slope_leads_to_the_corner() {
        assert_eq!(run(|n, _| f64::from(n)).0.channels, Some(64));
        assert_eq!(run(|n, _| 1.0 / f64::from(n)).0.channels, Some(1));
    }

    #[test]
    fn noise_does_not_keep_it_going() {
        let (_, samples) = run(|n, w| {
            let odd = n.wrapping_mul(2_654_435_761) ^ w.unwrap_or(77);
            100.0 + f64::from(odd % 1000) / 250.0
        });
        assert!(samples <= 15, "{samples}");
    }

    #[test]
    fn an_axis_may_have_one_value() {
        let mut search = Search::new(&[8], &[None]);
        assert_eq!(search.next(), Some((at(8, None), TunePhase::Survey)));
        search.record(1.0);
        assert_eq!(search.next(), None);
    }

    #[test]
    fn a_value_that_is_there_twice_does_not_keep_it_going() {
        let mut search = Search::new(&[2, 2, 4], &[None, None]);
        let mut count = 0;
        while search.next().is_some() {
            search.record(1.0);
            count += 1;
        }
        assert!(count <= 6, "{count}");
    }
}
