//! What the kernels on both sides keep a path from, and how to lift it.

use std::time::Duration;

use xdfs_proto::Side;

use super::kernel_limits::KernelLimits;
use super::probe::MeasuredPath;
use super::{TuneSample, TuneSetting};

/// Round-trip time from which bbr pays, as in the engine.
const LONG: Duration = Duration::from_millis(10);
/// Share of the largest buffer from which it is taken for the limit.
const NEAR: f64 = 0.7;
/// Share of the time in which the server's buffers were the limit that matters.
const OFTEN: f64 = 0.2;
/// Bounds of the maxima that are advised, in bytes.
const BUFFER_ADVISED: (u64, u64) = (16 << 20, 1 << 30);
/// Packet size below which the path is narrower than tunnels need.
const MTU_USUAL: u32 = 1400;

/// One thing that stands in the way of a higher rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuneAdvice {
    /// The machine it concerns.
    pub side: Side,
    /// What stands in the way, as a sentence without its full stop.
    pub reason: String,
    /// The command that lifts it there, for root; `None` if there is none.
    pub command: Option<String>,
}

/// The advice that follows from the samples of the best setting.
pub(super) fn advise(
    samples: &[TuneSample],
    best: TuneSetting,
    download: bool,
    limits: &KernelLimits,
) -> Vec<TuneAdvice> {
    let mut of_best = samples.iter().rev().filter(|s| s.setting == best);
    let Some((sample, path)) = of_best.find_map(|s| Some((s, s.path.as_ref()?))) else {
        return Vec::new();
    };
    let case = Case {
        sample,
        path,
        download,
        limits,
    };
    let checks = [
        case.congestion(),
        case.own_buffer(),
        case.server_buffer(),
        case.window(),
        case.mtu(),
        case.sender(),
    ];
    checks.into_iter().flatten().collect()
}

struct Case<'a> {
    sample: &'a TuneSample,
    path: &'a MeasuredPath,
    download: bool,
    limits: &'a KernelLimits,
}

impl Case<'_> {
    fn is_long(&self) -> bool {
        self.path.round_trip_min >= LONG
    }

    /// The sender has no bbr.
    fn congestion(&self) -> Option<TuneAdvice> {
        let used = &self.path.congestion;
        if self.download || !self.is_long() || used.is_empty() || used == "bbr" {
            return None;
        }
        let has = |names: &[String]| names.iter().any(|name| name == "bbr");
        let mut steps = Vec::new();
        if !has(&self.limits.congestion_available) {
            steps.push("modprobe tcp_bbr".to_owned());
        }
        if !has(&self.limits.congestion_allowed) {
            let names = self.limits.congestion_allowed.iter().map(String::as_str);
            let names: Vec<&str> = names.chain(["bbr"]).collect();
            let setting = "net.ipv4.tcp_allowed_congestion_control";
            steps.push(format!("sysctl -w {setting}=\"{}\"", names.join(" ")));
        }
        (!steps.is_empty()).then(|| TuneAdvice {
            side: Side::Local,
            reason: format!(
                "the path is long, and its channels use {used}, since this machine has no bbr or \
                 doesn't allow it"
            ),
            command: Some(steps.join(" && ")),
        })
    }

    /// Bytes that the whole path holds.
    fn product(&self) -> f64 {
        self.sample.bytes_per_second * self.path.round_trip_min.as_secs_f64()
    }

    /// A maximum with which one channel could hold them, of which about half is payload.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and saturates"
    )]
    fn advised(&self) -> u64 {
        let bytes = (2.0 * self.product()) as u64;
        let (least, most) = BUFFER_ADVISED;
        bytes.clamp(least, most).next_power_of_two()
    }

    /// The automatic buffers here are as large as they may be.
    fn own_buffer(&self) -> Option<TuneAdvice> {
        let (name, largest, first) = match self.download {
            true => ("tcp_rmem", self.limits.receive_automatic_max, "4096 131072"),
            false => ("tcp_wmem", self.limits.send_automatic_max, "4096 65536"),
        };
        let largest = largest?;
        let of_channel = 2.0 * self.product() / f64::from(self.sample.channels.max(1));
        let is_limit = of_channel >= largest as f64 * NEAR && self.advised() > largest;
        (is_limit && self.sample.setting.window.is_none()).then(|| TuneAdvice {
            side: Side::Local,
            reason: format!(
                "each channel fills the largest automatic buffer of this machine, {largest} bytes"
            ),
            command: Some(format!(
                "sysctl -w net.ipv4.{name}=\"{first} {}\"",
                self.advised()
            )),
        })
    }

    /// The server's receive buffers were the limit.
    fn server_buffer(&self) -> Option<TuneAdvice> {
        let share = self.path.window_limited;
        let is_limit = !self.download && self.is_long() && share >= OFTEN;
        (is_limit && self.sample.setting.window.is_none()).then(|| TuneAdvice {
            side: Side::Remote,
            reason: format!(
                "for {:.0} % of the time the server's receive buffers were the limit",
                share * 100.0
            ),
            command: Some(format!(
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {}\"",
                self.advised()
            )),
        })
    }

    /// A larger window can't be set.
    fn window(&self) -> Option<TuneAdvice> {
        let largest = self.limits.window_max()?;
        let is_largest = self.sample.setting.window == Some(largest);
        is_largest.then(|| {
            let advised = u64::from(largest).saturating_mul(4).max(self.advised());
            TuneAdvice {
                side: Side::Local,
                reason: format!(
                    "the best window is the largest that may be set on this machine, {largest} \
                     bytes"
                ),
                command: Some(format!(
                    "sysctl -w net.core.rmem_max={advised} net.core.wmem_max={advised}"
                )),
            }
        })
    }

    /// Packets are small.
    fn mtu(&self) -> Option<TuneAdvice> {
        let mtu = self.path.mtu;
        (1..MTU_USUAL).contains(&mtu).then(|| TuneAdvice {
            side: Side::Local,
            reason: format!(
                "packets have at most {mtu} bytes; if that is the MTU of this machine's device \
                 ('ip route get' and the server's address name it), and the network takes more, \
                 raise it"
            ),
            command: Some("ip link set dev DEVICE mtu 1500".to_owned()),
        })
    }

    /// The limits of a server that sends can't be seen.
    fn sender(&self) -> Option<TuneAdvice> {
        (self.download && self.is_long()).then(|| TuneAdvice {
            side: Side::Remote,
            reason: "the server sends, so its congestion control and its send buffers matter, \
                     which can't be seen from here; this shows them there"
                .to_owned(),
            command: Some(
                "sysctl net.ipv4.tcp_allowed_congestion_control net.ipv4.tcp_wmem".to_owned(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::TunePhase;

    fn sample(ms: u64, rate: f64, channels: u32) -> TuneSample {
        TuneSample {
            setting: TuneSetting::default(),
            phase: TunePhase::Comparison,
            bytes: 1 << 20,
            elapsed: Duration::from_secs(1),
            bytes_per_second: rate,
            channels,
            path: Some(MeasuredPath {
                round_trip_min: Duration::from_millis(ms),
                round_trip: Duration::from_millis(ms),
                resent: 0.0,
                congestion: "cubic".into(),
                mtu: 1500,
                window_limited: 0.0,
            }),
        }
    }

    fn limits() -> KernelLimits {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        KernelLimits {
            receive_automatic_max: Some(6 << 20),
            send_automatic_max: Some(4 << 20),
            receive_set_max: Some(212_992),
            send_set_max: Some(212_992),
            congestion_available: names(&["reno", "cubic", "bbr"]),
            congestion_allowed: names(&["reno", "cubic", "bbr"]),
        }
    }

    fn commands(sample: &TuneSample, download: bool, limits: &KernelLimits) -> Vec<String> {
        let samples = std::slice::from_ref(sample);
        let advice = advise(samples, sample.setting, download, limits);
        let commands = advice.into_iter().map(|advice| advice.command);
        commands.map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn where_nothing_stands_in_the_way_nothing_is_advised() {
        assert!(commands(&sample(0, 5e9, 4), false, &limits()).is_empty());
        assert!(commands(&sample(50, 20e6, 8), false, &limits()).is_empty());
        let mut unmeasured = sample(50, 20e6, 8);
        unmeasured.path = None;
        assert!(commands(&unmeasured, false, &KernelLimits::default()).is_empty());
    }

    #[test]
    fn bbr_is_loaded_and_allowed_as_far_as_it_is_missing() {
        let mut without = limits();
        without.congestion_allowed.pop();
        let allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"";
        let far = sample(50, 20e6, 8);
        assert_eq!(commands(&far, false, &without), [allow]);
        without.congestion_available.pop();
        let both = format!("modprobe tcp_bbr && {allow}");
        assert_eq!(commands(&far, false, &without), [both]);
        assert!(commands(&sample(1, 20e6, 8), false, &without).is_empty());
    }

    #[test]
    fn full_buffers_are_advised_to_grow_to_what_one_channel_needs() {
        // 100 MB/s over 200 ms: 20 MB, of which each channel holds 2.5 MB.
        let full = sample(200, 100e6, 8);
        let wanted = "sysctl -w net.ipv4.tcp_wmem=\"4096 65536 67108864\"";
        assert_eq!(commands(&full, false, &limits()), [wanted]);
        let down = commands(&full, true, &limits());
        assert!(down[0].contains("net.ipv4.tcp_rmem=\"4096 131072 67108864\""));
        assert!(commands(&sample(200, 100e6, 64), false, &limits()).is_empty());
        let ample = KernelLimits {
            send_automatic_max: Some(1 << 30),
            ..limits()
        };
        assert!(commands(&full, false, &ample).is_empty());
    }

    #[test]
    fn what_was_measured_of_the_server_and_the_packets_is_told() {
        let mut slow = sample(50, 20e6, 8);
        let path = slow.path.as_mut().unwrap();
        path.window_limited = 0.6;
        path.mtu = 1000;
        let advice = advise(std::slice::from_ref(&slow), slow.setting, false, &limits());
        assert_eq!(advice[0].side, Side::Remote);
        assert!(advice[0].reason.contains("60 %"), "{advice:?}");
        assert!(advice[1].reason.contains("1000 bytes"), "{advice:?}");
    }

    #[test]
    fn the_largest_window_that_may_be_set_is_named() {
        let mut large = sample(50, 20e6, 8);
        large.setting.window = Some(212_992);
        let wanted = "sysctl -w net.core.rmem_max=16777216 net.core.wmem_max=16777216";
        assert_eq!(commands(&large, false, &limits()), [wanted]);
    }
}
