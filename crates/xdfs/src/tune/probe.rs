//! One sample: a transfer from memory to memory in a session of its own.

use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::{TransferParameters, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::{DigestKind, Fault};
use xdfs_xio::PathSample;

use super::zeros::BoundedZeros;
use crate::client::Client;
use crate::events::{Progress, TransferResult};
use crate::transfer::{LocalPlace, Transfer, TransferOptions};

/// Time beyond that of the sample, as a multiple of it and in addition, after which the rest of
/// what is in flight is no longer waited for.
const OVERTIME: (u32, Duration) = (1, Duration::from_secs(2));

/// Least duration of a sample, in round trips: in fewer nothing arrives.
const ROUND_TRIPS_MIN: u32 = 4;

/// The bounds of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Time after which no further bytes are sent.
    pub(super) time: Duration,
    /// Largest number of bytes.
    pub(super) bytes: u64,
}

/// What came of a sample.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) bytes: u64,
    /// Bytes that count towards the limit: also those sent again, or still in flight.
    pub(super) bytes_used: u64,
    pub(super) elapsed: Duration,
    pub(super) bytes_per_second: f64,
    pub(super) channels: u32,
    pub(super) path: Option<MeasuredPath>,
}

/// The system's measurements of all channels of a sample. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPath {
    /// Shortest round-trip time.
    pub round_trip_min: Duration,
    /// Round-trip time under load: the mean of the channels.
    pub round_trip: Duration,
    /// Share of the bytes sent by this side that were sent again.
    pub resent: f64,
    /// Congestion control of this side; empty if unknown.
    pub congestion: String,
    /// Largest packet that the path takes, in bytes; zero if unknown.
    pub mtu: u32,
    /// Share of the sending time in which the server's receive buffers were the limit.
    pub window_limited: f64,
}

impl MeasuredPath {
    /// The sum of the channels; `None` if none was measured.
    fn of(samples: &[PathSample]) -> Option<Self> {
        let measured = || {
            let samples = samples.iter();
            samples.filter(|sample| sample.round_trip_min > Duration::ZERO)
        };
        let first = measured().next()?;
        let count = u32::try_from(measured().count()).unwrap_or(u32::MAX);
        let sum = |bytes: fn(&PathSample) -> u64| measured().map(bytes).sum::<u64>();
        let time = |of: fn(&PathSample) -> Duration| measured().map(of).sum::<Duration>();
        Some(Self {
            round_trip_min: measured().map(|s| s.round_trip_min).min()?,
            round_trip: time(|s| s.round_trip) / count,
            resent: share(sum(|s| s.resent_bytes) as f64, sum(|s| s.sent_bytes) as f64),
            congestion: first.congestion.clone(),
            mtu: measured().map(|s| s.path_mtu).min()?,
            window_limited: share(
                time(|s| s.window_limited).as_secs_f64(),
                time(|s| s.busy).as_secs_f64(),
            ),
        })
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Takes a sample. `None` if nothing has arrived until `deadline`.
///
/// # Errors
/// The fault of the session or the transfer.
pub(super) fn run(
    client: &Client,
    download: bool,
    bounds: Bounds,
    deadline: Instant,
) -> Result<Option<Probe>, Fault> {
    let began = Instant::now();
    let (multiple, addition) = OVERTIME;
    let cut_off = deadline.min(began + bounds.time * (1 + multiple) + addition);
    // The time of a sample begins when its session is open: a transfer of nothing shows that.
    let nothing = Bounds { bytes: 0, ..bounds };
    if follow(client, start(client, download, nothing)?, cut_off, |_| ())?.is_none() {
        return Ok(None);
    }
    let mut path = measured(client);
    let round_trip = path
        .as_ref()
        .map_or(Duration::ZERO, |path| path.round_trip_min);
    let bounds = Bounds {
        time: bounds.time.max(round_trip * ROUND_TRIPS_MIN),
        ..bounds
    };

    let started = Instant::now();
    let mut arrived = Vec::new();
    let mut channels = 0;
    let transfer = start(client, download, bounds)?;
    let result = follow(client, transfer, cut_off, |progress| {
        arrived.push((started.elapsed(), progress.bytes));
        channels = channels.max(progress.channels);
        // The last measurement is the one that counts.
        path = measured(client).or_else(|| path.take());
    })?;
    let bytes_used = match &result {
        Some(result) if !download => result.bytes + result.retransmitted_bytes,
        // Time ends a download at once, so what the server had sent is in flight, and not known.
        _ => bounds.bytes,
    };
    if let Some(result) = result {
        arrived.push((started.elapsed(), result.bytes));
        channels = channels.max(result.channels);
        path = measured(client).or(path);
    }
    let bytes = arrived.last().map_or(0, |(_, bytes)| *bytes);
    Ok((bytes > 0).then(|| Probe {
        bytes,
        bytes_used,
        elapsed: began.elapsed(),
        bytes_per_second: late_rate(&arrived),
        channels,
        path,
    }))
}

/// The measurements so far. If the session has ended, so does the transfer, with its fault.
fn measured(client: &Client) -> Option<MeasuredPath> {
    MeasuredPath::of(&client.measure_channels().ok()?)
}

/// Waits for the end of a transfer. At `cut_off` stops the session, and returns `None`.
fn follow(
    client: &Client,
    mut transfer: Transfer,
    cut_off: Instant,
    mut on_progress: impl FnMut(Progress),
) -> Result<Option<TransferResult>, Fault> {
    loop {
        let left = cut_off.saturating_duration_since(Instant::now());
        if left.is_zero() {
            client.stop();
            return Ok(None);
        }
        if let Some(progress) = transfer.progress(left) {
            on_progress(progress);
        }
        if transfer.is_finished() {
            return transfer.wait().map(Some);
        }
    }
}

/// Starts the transfer of a sample.
fn start(client: &Client, download: bool, bounds: Bounds) -> Result<Transfer, Fault> {
    let options = TransferOptions {
        parameters: TransferParameters {
            resume: Resume::Never,
            digest: Some(DigestKind::None),
            overwrite: true,
            ..TransferParameters::default()
        },
        length: download.then_some(bounds.bytes),
        duration: Some(bounds.time),
        ..TransferOptions::default()
    };
    if download {
        return client.download(b"mem:zero", &LocalPlace::Memory, &options);
    }
    let upload = UploadSpec {
        source: Box::new(BoundedZeros::new(bounds.bytes)),
        source_path: b"mem:zero".to_vec(),
        target: b"mem:null".to_vec(),
        name: Vec::new(),
        pack: false,
        relaxed: false,
        last: None,
    };
    client.start(&options, TransferKind::Upload(upload))
}

/// The rate of the later half of the time; of all of it if it has no progress in between.
fn late_rate(arrived: &[(Duration, u64)]) -> f64 {
    let Some(&(end, bytes)) = arrived.last() else {
        return 0.0;
    };
    let late = arrived.iter().find(|(at, _)| *at >= end / 2);
    let (from, before) = match late {
        Some(&(at, before)) if at < end.mul_f64(0.7) => (at, before),
        _ => (Duration::ZERO, 0),
    };
    share(
        bytes.saturating_sub(before) as f64,
        (end - from).as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, bytes: u64) -> (Duration, u64) {
        (Duration::from_millis(ms), bytes)
    }

    #[test]
    fn the_rate_is_that_of_the_later_half() {
        let arrived = [at(100, 0), at(900, 50), at(1100, 100), at(2000, 1000)];
        assert!((late_rate(&arrived) - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn a_sample_that_is_too_short_for_that_has_one_rate() {
        assert!((late_rate(&[at(50, 100)]) - 2000.0).abs() < 1e-6);
        assert!((late_rate(&[at(90, 100), at(100, 200)]) - 2000.0).abs() < 1e-6);
        assert!(late_rate(&[]).abs() < 1e-9 && late_rate(&[at(0, 0)]).abs() < 1e-9);
    }

    #[test]
    fn channels_are_summed_and_those_without_a_measurement_left_out() {
        let channel = |ms, sent_bytes, resent_bytes, path_mtu| PathSample {
            round_trip: Duration::from_millis(2 * ms),
            round_trip_min: Duration::from_millis(ms),
            sent_bytes,
            resent_bytes,
            path_mtu,
            busy: Duration::from_secs(2),
            window_limited: Duration::from_secs(1),
            ..PathSample::default()
        };
        let samples = [
            channel(20, 900, 30, 1500),
            PathSample::default(),
            channel(10, 100, 20, 1400),
        ];
        let path = MeasuredPath::of(&samples).unwrap();
        assert_eq!(path.round_trip_min, Duration::from_millis(10));
        assert_eq!(path.round_trip, Duration::from_millis(30));
        assert_eq!(path.mtu, 1400);
        assert!((path.resent - 0.05).abs() < 1e-9);
        assert!((path.window_limited - 0.5).abs() < 1e-9);
        assert_eq!(MeasuredPath::of(&samples[1..2]), None);
    }
}
