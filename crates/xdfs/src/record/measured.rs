//! The records of measurements: of settings of a session, and of driver stacks.

use std::time::Duration;

use serde::Serialize;

use crate::stack_perf::{PerfCase, PerfSample};
use crate::tune::{MeasuredPath, TuneAdvice, TuneOptions, TuneReport, TuneSample, TuneSetting};

#[derive(Debug, Serialize)]
pub(super) struct SampleBody<'a> {
    phase: &'static str,
    setting: SettingBody,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    channels: u32,
    path: Option<MeasuredPathBody<'a>>,
}

impl<'a> From<&'a TuneSample> for SampleBody<'a> {
    fn from(sample: &'a TuneSample) -> Self {
        Self {
            phase: sample.phase.as_str(),
            setting: sample.setting.into(),
            bytes: sample.bytes,
            seconds: sample.elapsed.as_secs_f64(),
            bytes_per_second: sample.bytes_per_second,
            channels: sample.channels,
            path: sample.path.as_ref().map(MeasuredPathBody::from),
        }
    }
}

#[derive(Debug, Serialize)]
struct SettingBody {
    channels: Option<u32>,
    window: Option<u32>,
}

impl From<TuneSetting> for SettingBody {
    fn from(TuneSetting { channels, window }: TuneSetting) -> Self {
        Self { channels, window }
    }
}

#[derive(Debug, Serialize)]
struct MeasuredPathBody<'a> {
    round_trip_min_seconds: f64,
    round_trip_seconds: f64,
    resent: f64,
    congestion: &'a str,
    mtu: u32,
    window_limited: f64,
}

impl<'a> From<&'a MeasuredPath> for MeasuredPathBody<'a> {
    fn from(path: &'a MeasuredPath) -> Self {
        Self {
            round_trip_min_seconds: path.round_trip_min.as_secs_f64(),
            round_trip_seconds: path.round_trip.as_secs_f64(),
            resent: path.resent,
            congestion: &path.congestion,
            mtu: path.mtu,
            window_limited: path.window_limited,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct TuneBody<'a> {
    direction: &'static str,
    end: &'static str,
    samples: usize,
    bytes: u64,
    seconds: f64,
    default: SettingBody,
    default_bytes_per_second: f64,
    fastest: Option<SettingBody>,
    fastest_bytes_per_second: Option<f64>,
    noise: Option<f64>,
    best: SettingBody,
    gain: f64,
    advice: Vec<AdviceBody<'a>>,
}

#[derive(Debug, Serialize)]
struct AdviceBody<'a> {
    side: String,
    reason: &'a str,
    command: Option<&'a str>,
}

impl<'a> TuneBody<'a> {
    pub(super) fn new(report: &'a TuneReport, options: &TuneOptions) -> Self {
        let advice = |advice: &'a TuneAdvice| AdviceBody {
            side: advice.side.to_string(),
            reason: &advice.reason,
            command: advice.command.as_deref(),
        };
        let samples = report.samples.iter();
        Self {
            direction: match options.download {
                true => "download",
                false => "upload",
            },
            end: report.end.as_str(),
            samples: report.samples.len(),
            bytes: samples.clone().map(|sample| sample.bytes).sum(),
            seconds: samples
                .map(|sample| sample.elapsed)
                .sum::<Duration>()
                .as_secs_f64(),
            default: options.default.into(),
            default_bytes_per_second: report.default_bytes_per_second,
            fastest: report.fastest.map(|(setting, _)| setting.into()),
            fastest_bytes_per_second: report.fastest.map(|(_, rate)| rate),
            noise: report.noise,
            best: report.best.into(),
            gain: report.gain(options.default),
            advice: report.advice.iter().map(advice).collect(),
        }
    }
}

/// The median and the range of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number of numbers the larger one in the middle.
    pub median: f64,
    /// The smallest number.
    pub least: f64,
    /// The largest number.
    pub greatest: f64,
}

impl Spread {
    /// The spread of these numbers; `None` if there are none.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = numbers.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let (least, greatest) = (all.first().copied()?, all.last().copied()?);
        Some(Self {
            median: all[all.len() / 2],
            least,
            greatest,
        })
    }
}

#[derive(Debug, Serialize)]
pub(super) struct StackBody<'a> {
    stack: &'a str,
    pattern: &'static str,
    message_bytes: usize,
    messages: u64,
    bytes_per_second: Option<Spread>,
    round_trip_seconds: Option<Spread>,
    round_trip_99_seconds: Option<Spread>,
    ratio: Option<f64>,
}

impl<'a> StackBody<'a> {
    pub(super) fn new(
        stack: &'a str,
        case: &PerfCase,
        samples: &[PerfSample],
        ratios: &[f64],
    ) -> Self {
        let trips = samples.iter().filter_map(|sample| sample.round_trip);
        let rates = samples.iter().filter(|sample| sample.round_trip.is_none());
        Self {
            stack,
            pattern: case.pattern.as_str(),
            message_bytes: case.message_bytes,
            messages: samples.iter().map(|sample| sample.messages).sum(),
            bytes_per_second: Spread::of(rates.map(|sample| sample.bytes_per_second(case))),
            round_trip_seconds: Spread::of(trips.clone().map(|(median, _)| median.as_secs_f64())),
            round_trip_99_seconds: Spread::of(trips.map(|(_, last)| last.as_secs_f64())),
            ratio: Spread::of(ratios.iter().copied()).map(|ratio| ratio.median),
        }
    }
}
