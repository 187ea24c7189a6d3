//! The JSON lines of `xdfs tune`. docs/json.md is their contract.

use std::time::Duration;

use serde::Serialize;
use xdfs::{TuneEnd, TuneOptions, TuneReport, TuneSample, TuneSetting};

use super::table;
use crate::json;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum TuneRecord<'a> {
    Sample(SampleBody<'a>),
    Tune(TuneBody<'a>),
}

#[derive(Serialize)]
struct SampleBody<'a> {
    phase: &'static str,
    setting: SettingBody,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    channels: u32,
    path: Option<PathBody<'a>>,
}

#[derive(Serialize)]
struct SettingBody {
    channels: Option<u32>,
    window: Option<u32>,
}

impl From<TuneSetting> for SettingBody {
    fn from(TuneSetting { channels, window }: TuneSetting) -> Self {
        Self { channels, window }
    }
}

#[derive(Serialize)]
struct PathBody<'a> {
    round_trip_min_seconds: f64,
    round_trip_seconds: f64,
    resent: f64,
    congestion: &'a str,
    mtu: u32,
    window_limited: f64,
}

#[derive(Serialize)]
struct TuneBody<'a> {
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

#[derive(Serialize)]
struct AdviceBody<'a> {
    side: String,
    reason: &'a str,
    command: Option<&'a str>,
}

/// The line of a sample.
pub(super) fn sample(sample: &TuneSample) -> String {
    let path = sample.path.as_ref().map(|path| PathBody {
        round_trip_min_seconds: path.round_trip_min.as_secs_f64(),
        round_trip_seconds: path.round_trip.as_secs_f64(),
        resent: path.resent,
        congestion: &path.congestion,
        mtu: path.mtu,
        window_limited: path.window_limited,
    });
    json::line(&TuneRecord::Sample(SampleBody {
        phase: table::phase(sample.phase),
        setting: sample.setting.into(),
        bytes: sample.bytes,
        seconds: sample.elapsed.as_secs_f64(),
        bytes_per_second: sample.bytes_per_second,
        channels: sample.channels,
        path,
    }))
}

/// The line of the result.
pub(super) fn report(report: &TuneReport, options: &TuneOptions) -> String {
    let advice = report.advice.iter().map(|advice| AdviceBody {
        side: advice.side.to_string(),
        reason: &advice.reason,
        command: advice.command.as_deref(),
    });
    let samples = report.samples.iter();
    json::line(&TuneRecord::Tune(TuneBody {
        direction: if options.download {
            "download"
        } else {
            "upload"
        },
        end: match report.end {
            TuneEnd::Found => "found",
            TuneEnd::Bytes => "bytes",
            TuneEnd::Time => "time",
            TuneEnd::Stopped => "stopped",
            // Variants added later.
            _ => "other",
        },
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
        advice: advice.collect(),
    }))
}
