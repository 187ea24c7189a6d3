//! Finds the number of channels and the window that suit the network path to a server.
//!
//! The rate is a surface over both. It is sampled by transfers from memory to memory at a few
//! settings that span it, then around the fastest one until no neighbour gains more than noise.
//! In the end the fastest and the default take turns, so that the gain is not that of a lucky
//! sample. Bytes and time are bounded, and a part of both is kept for that end.

mod advice;
mod kernel_limits;
mod probe;
mod search;
mod zeros;

use std::ops::{ControlFlow, Deref};
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};

use crate::client::Client;

pub use advice::TuneAdvice;
pub use kernel_limits::KernelLimits;
use probe::Bounds;
pub use probe::MeasuredPath;
use search::Search;

/// Share of bytes and time that the search may use; the rest is for the comparison.
const SEARCH_SHARE: f64 = 0.75;
/// Samples of a usual search, which share its bytes and time.
const SEARCH_SAMPLES: u32 = 16;
/// Samples of each of the default and the fastest setting, in turn.
const COMPARISONS: u32 = 3;
/// Duration of a sample, in round trips, and its bounds: the rates of new channels grow for many
/// round trips.
const SAMPLE_ROUND_TRIPS: u32 = 60;
const SAMPLE_TIME: (Duration, Duration) = (Duration::from_millis(700), Duration::from_secs(3));

/// Share of the time of a sample in which it may send: the rest is for opening the session and for
/// what is in flight at the end.
const SENDING: f64 = 0.8;

/// What a setting is: the options of [`ClientOptions`](crate::ClientOptions) that are searched.
/// `None` is automatic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TuneSetting {
    /// Number of channels.
    pub channels: Option<u32>,
    /// Socket buffer of a channel in bytes.
    pub window: Option<u32>,
}

/// Options of [`tune`].
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Measure from the server to this side, instead of to the server.
    pub download: bool,
    /// The setting to compare with.
    pub default: TuneSetting,
    /// Numbers of channels to choose from, ascending.
    pub channels: Vec<u32>,
    /// Windows to choose from, ascending, with the automatic one last.
    pub windows: Vec<Option<u32>>,
    /// Largest number of bytes of payload to move, over all samples.
    pub bytes_max: u64,
    /// Longest time for all samples.
    pub time_max: Duration,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            download: false,
            default: TuneSetting::default(),
            channels: vec![1, 2, 4, 8, 16, 32, 64],
            windows: KernelLimits::read().windows(),
            bytes_max: 4 << 30,
            time_max: Duration::from_secs(60),
        }
    }
}

/// What a sample was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunePhase {
    /// The default, and settings that span the surface.
    Survey,
    /// Neighbours of the fastest setting.
    Refinement,
    /// The default and the fastest setting in turn.
    Comparison,
}

impl TunePhase {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Survey => "survey",
            Self::Refinement => "refinement",
            Self::Comparison => "comparison",
        }
    }
}

/// The rate at one setting.
#[derive(Clone, Debug)]
pub struct TuneSample {
    /// The setting.
    pub setting: TuneSetting,
    /// What it was taken for.
    pub phase: TunePhase,
    /// Bytes of payload that were moved.
    pub bytes: u64,
    /// Time of the sample, opening the session included.
    pub elapsed: Duration,
    /// The rate: that of the later half, where the sample was long enough to tell.
    pub bytes_per_second: f64,
    /// Largest number of channels open at once.
    pub channels: u32,
    /// The system's measurements; `None` where it has none.
    pub path: Option<MeasuredPath>,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TuneEnd {
    /// No neighbour of the fastest setting gains more than noise.
    Found,
    /// [`TuneOptions::bytes_max`] is used up.
    Bytes,
    /// [`TuneOptions::time_max`] is over.
    Time,
    /// The caller wanted no further sample.
    Stopped,
}

impl TuneEnd {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::Stopped => "stopped",
        }
    }
}

/// What [`tune`] has found.
#[derive(Clone, Debug)]
pub struct TuneReport {
    /// All samples, in order.
    pub samples: Vec<TuneSample>,
    /// Why the search ended.
    pub end: TuneEnd,
    /// The setting to use: the default, unless another is faster by more than the noise.
    pub best: TuneSetting,
    /// The fastest setting other than the default, with its rate. Where it was compared, the
    /// median; otherwise the one sample of the search. `None` if there is no sample of any.
    pub fastest: Option<(TuneSetting, f64)>,
    /// The rate of the default, in the same way.
    pub default_bytes_per_second: f64,
    /// Largest deviation from the median among the samples of the comparison, as a share of it.
    /// `None` without a complete comparison.
    pub noise: Option<f64>,
    /// What stands in the way of a higher rate.
    pub advice: Vec<TuneAdvice>,
}

impl TuneReport {
    /// Rate of the fastest setting as a multiple of the default's; 1 if there is none.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        match self.fastest {
            Some((_, rate)) if self.default_bytes_per_second > 0.0 => {
                rate / self.default_bytes_per_second
            }
            _ => 1.0,
        }
    }

    /// Rate of [`TuneReport::best`] as a multiple of the default's: 1 if the default is best.
    #[must_use]
    pub fn gain(&self, default: TuneSetting) -> f64 {
        if self.best == default {
            1.0
        } else {
            self.ratio()
        }
    }
}

/// Searches the best setting for the server that `connect` opens sessions with, one for each
/// sample. After each, `on_sample` decides whether to go on; it has heard of all samples if the
/// search fails.
///
/// The server has to let its user write `mem:null`, or read `mem:zero` for downloads. Nothing is
/// stored on either side.
///
/// # Errors
/// There is no setting to choose from; a session can't be opened or breaks, or the server refuses
/// the transfer; [`Code::DeadlineExceeded`] if nothing arrives for a sample.
pub fn tune<C: Deref<Target = Client>>(
    connect: impl FnMut(TuneSetting) -> Result<C, Fault>,
    options: &TuneOptions,
    on_sample: impl FnMut(&TuneSample) -> ControlFlow<()>,
) -> Result<TuneReport, Fault> {
    if options.channels.is_empty() || options.windows.is_empty() {
        let cause = "there is no number of channels or no window to choose from";
        return Err(Fault::new(Code::InvalidArgument, "tune the session", cause));
    }
    let mut tuning = Tuning {
        connect,
        on_sample,
        options,
        began: Instant::now(),
        bytes: 0,
        sample_time: SAMPLE_TIME.1,
        samples: Vec::new(),
    };
    let end = match tuning.search()? {
        ControlFlow::Continue(end) => match tuning.compare()? {
            ControlFlow::Continue(()) => end,
            ControlFlow::Break(end) => end,
        },
        ControlFlow::Break(end) => end,
    };
    Ok(report(options, tuning.samples, end))
}

/// A run of [`tune`].
struct Tuning<'a, F, S> {
    connect: F,
    on_sample: S,
    options: &'a TuneOptions,
    began: Instant,
    /// Bytes that were moved, or may have been.
    bytes: u64,
    sample_time: Duration,
    samples: Vec<TuneSample>,
}

impl<C, F, S> Tuning<'_, F, S>
where
    C: Deref<Target = Client>,
    F: FnMut(TuneSetting) -> Result<C, Fault>,
    S: FnMut(&TuneSample) -> ControlFlow<()>,
{
    /// Samples until the fastest setting is found, or the search's share of bytes or time is used.
    fn search(&mut self) -> Result<ControlFlow<TuneEnd, TuneEnd>, Fault> {
        let share = SEARCH_SHARE / f64::from(SEARCH_SAMPLES);
        let bounds = |tuning: &Self| Bounds {
            time: tuning.options.time_max.mul_f64(share * SENDING),
            bytes: of(tuning.options.bytes_max, share),
        };
        let default = self.options.default;
        if let ControlFlow::Break(end) = self.sample(default, TunePhase::Survey, bounds(self))? {
            return Ok(ControlFlow::Break(end));
        }
        // The first sample has measured the path.
        if let Some(path) = self.samples.last().and_then(|sample| sample.path.as_ref()) {
            let time = path.round_trip_min * SAMPLE_ROUND_TRIPS;
            self.sample_time = time.clamp(SAMPLE_TIME.0, SAMPLE_TIME.1);
        }
        let mut search = Search::new(&self.options.channels, &self.options.windows);
        while let Some((setting, phase)) = search.next() {
            if self.bytes >= of(self.options.bytes_max, SEARCH_SHARE) {
                return Ok(ControlFlow::Continue(TuneEnd::Bytes));
            }
            if self.began.elapsed() >= self.options.time_max.mul_f64(SEARCH_SHARE) {
                return Ok(ControlFlow::Continue(TuneEnd::Time));
            }
            let rate = match self.known(setting) {
                // It is the default, where its channels and window were given.
                Some(rate) => rate,
                None => match self.sample(setting, phase, bounds(self))? {
                    ControlFlow::Continue(rate) => rate,
                    ControlFlow::Break(end) => return Ok(ControlFlow::Break(end)),
                },
            };
            search.record(rate);
        }
        Ok(ControlFlow::Continue(TuneEnd::Found))
    }

    /// Samples the default and the fastest setting in turn.
    fn compare(&mut self) -> Result<ControlFlow<TuneEnd>, Fault> {
        let default = self.options.default;
        let Some((fastest, _)) = fastest(&self.samples, default) else {
            return Ok(ControlFlow::Continue(()));
        };
        for turn in 0..2 * COMPARISONS {
            let left = 2 * COMPARISONS - turn;
            let bounds = Bounds {
                time: (self.time_left() / left).mul_f64(SENDING),
                bytes: self.options.bytes_max.saturating_sub(self.bytes) / u64::from(left),
            };
            let setting = if turn % 2 == 0 { default } else { fastest };
            let sampled = self.sample(setting, TunePhase::Comparison, bounds)?;
            if let ControlFlow::Break(end) = sampled {
                return Ok(ControlFlow::Break(end));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes a sample within `bounds` and what is left in all, and returns its rate.
    fn sample(
        &mut self,
        setting: TuneSetting,
        phase: TunePhase,
        bounds: Bounds,
    ) -> Result<ControlFlow<TuneEnd, f64>, Fault> {
        let bytes_left = self.options.bytes_max.saturating_sub(self.bytes);
        let time_left = self.time_left();
        if bytes_left == 0 {
            return Ok(ControlFlow::Break(TuneEnd::Bytes));
        }
        if time_left.is_zero() {
            return match self.samples.is_empty() {
                true => Err(silent()),
                false => Ok(ControlFlow::Break(TuneEnd::Time)),
            };
        }
        let bounds = Bounds {
            time: bounds.time.min(self.sample_time).min(time_left),
            bytes: bounds.bytes.clamp(1, bytes_left),
        };
        let client = (self.connect)(setting)?;
        let deadline = self.began + self.options.time_max;
        let Some(probe) = probe::run(&client, self.options.download, bounds, deadline)? else {
            let is_over = Instant::now() >= deadline && !self.samples.is_empty();
            return match is_over {
                true => Ok(ControlFlow::Break(TuneEnd::Time)),
                false => Err(silent()),
            };
        };
        self.bytes += probe.bytes_used;
        let sample = TuneSample {
            setting,
            phase,
            bytes: probe.bytes,
            elapsed: probe.elapsed,
            bytes_per_second: probe.bytes_per_second,
            channels: probe.channels,
            path: probe.path,
        };
        let goes_on = (self.on_sample)(&sample);
        let rate = sample.bytes_per_second;
        self.samples.push(sample);
        Ok(match goes_on {
            ControlFlow::Continue(()) => ControlFlow::Continue(rate),
            ControlFlow::Break(()) => ControlFlow::Break(TuneEnd::Stopped),
        })
    }

    fn time_left(&self) -> Duration {
        self.options.time_max.saturating_sub(self.began.elapsed())
    }

    /// The rate of a setting that was sampled already.
    fn known(&self, setting: TuneSetting) -> Option<f64> {
        let mut samples = self.samples.iter();
        let found = samples.find(|sample| sample.setting == setting)?;
        Some(found.bytes_per_second)
    }
}

fn silent() -> Fault {
    let cause = "nothing has arrived in the time of a sample";
    Fault::new(Code::DeadlineExceeded, "measure the rate", cause)
        .hint("allow more time, or look at the path with one channel: xdfs perf -n 1")
}

/// A share of a number of bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of it is not negative and not above it"
)]
fn of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// The fastest sample of the search, other than the default.
fn fastest(samples: &[TuneSample], default: TuneSetting) -> Option<(TuneSetting, f64)> {
    samples
        .iter()
        .filter(|sample| sample.phase != TunePhase::Comparison && sample.setting != default)
        .map(|sample| (sample.setting, sample.bytes_per_second))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

fn report(options: &TuneOptions, samples: Vec<TuneSample>, end: TuneEnd) -> TuneReport {
    let default = options.default;
    let compared = |setting: TuneSetting| {
        let compared = samples
            .iter()
            .filter(|s| s.phase == TunePhase::Comparison && s.setting == setting);
        spread(compared.map(|sample| sample.bytes_per_second).collect())
    };
    let searched = samples.first().map_or(0.0, |first| first.bytes_per_second);
    let mut report = TuneReport {
        end,
        best: default,
        fastest: fastest(&samples, default),
        default_bytes_per_second: searched,
        noise: None,
        advice: Vec::new(),
        samples: Vec::new(),
    };
    if let Some((setting, _)) = report.fastest
        && let (Some(fast), Some(slow)) = (compared(setting), compared(default))
    {
        report.fastest = Some((setting, fast.0));
        report.default_bytes_per_second = slow.0;
        report.noise = Some(fast.1.max(slow.1));
    }
    // A sample of the search was chosen for being the fastest: alone it proves nothing.
    if let (Some((setting, _)), Some(noise)) = (report.fastest, report.noise)
        && report.ratio() > 1.0 + noise
    {
        report.best = setting;
    }
    report.advice = advice::advise(
        &samples,
        report.best,
        options.download,
        &KernelLimits::read(),
    );
    report.samples = samples;
    report
}

/// The median, and the largest deviation from it as its share. `None` below two rates.
fn spread(mut rates: Vec<f64>) -> Option<(f64, f64)> {
    if rates.len() < 2 {
        return None;
    }
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    let median = match rates.len() % 2 {
        0 => f64::midpoint(rates[middle - 1], rates[middle]),
        _ => rates[middle],
    };
    let deviation = (rates[rates.len() - 1] - median).max(median - rates[0]);
    Some((
        median,
        if median > 0.0 {
            deviation / median
        } else {
            0.0
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(channels: Option<u32>, phase: TunePhase, rate: f64) -> TuneSample {
        TuneSample {
            setting: TuneSetting {
                channels,
                window: None,
            },
            phase,
            bytes: 1,
            elapsed: Duration::from_secs(1),
            bytes_per_second: rate,
            channels: 1,
            path: None,
        }
    }

    fn reported(comparison: &[(Option<u32>, f64)]) -> TuneReport {
        let mut samples = vec![
            sample(None, TunePhase::Survey, 100.0),
            sample(Some(8), TunePhase::Survey, 300.0),
            sample(Some(16), TunePhase::Refinement, 250.0),
        ];
        let compared = comparison.iter();
        samples.extend(compared.map(|(n, rate)| sample(*n, TunePhase::Comparison, *rate)));
        report(&TuneOptions::default(), samples, TuneEnd::Found)
    }

    const EIGHT: TuneSetting = TuneSetting {
        channels: Some(8),
        window: None,
    };

    #[test]
    fn the_gain_is_that_of_the_comparison() {
        let found = reported(&[
            (None, 100.0),
            (Some(8), 190.0),
            (None, 110.0),
            (Some(8), 220.0),
            (None, 95.0),
            (Some(8), 200.0),
        ]);
        assert_eq!((found.best, found.fastest), (EIGHT, Some((EIGHT, 200.0))));
        assert!((found.gain(TuneSetting::default()) - 2.0).abs() < 1e-9);
        assert!((found.noise.unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_gain_within_the_noise_is_none() {
        let found = reported(&[
            (None, 100.0),
            (Some(8), 90.0),
            (None, 130.0),
            (Some(8), 140.0),
            (None, 110.0),
            (Some(8), 120.0),
        ]);
        assert_eq!(found.best, TuneSetting::default());
        assert!((found.gain(TuneSetting::default()) - 1.0).abs() < 1e-9);
        assert!(found.ratio() > 1.05 && found.noise.unwrap() > 0.15);
    }

    #[test]
    fn a_lucky_sample_alone_is_no_gain() {
        for compared in [&[][..], &[(None, 100.0), (Some(8), 300.0)]] {
            let found = reported(compared);
            assert_eq!(found.best, TuneSetting::default());
            assert_eq!((found.noise, found.fastest), (None, Some((EIGHT, 300.0))));
        }
    }

    #[test]
    fn a_search_without_samples_reports_nothing() {
        let found = report(&TuneOptions::default(), Vec::new(), TuneEnd::Stopped);
        assert!(found.fastest.is_none() && found.advice.is_empty());
        assert!((found.ratio() - 1.0).abs() < 1e-9);
    }
}
