//! The arguments of the program.

use std::time::Duration;

use xdfs_testkit::wan::{Link, Plan};

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) plan: Plan,
    /// Options of both hosts' networks.
    pub(crate) settings: Vec<(String, String)>,
    /// A line for the shell of the right host.
    pub(crate) right: Option<String>,
    /// A program for the left host, and its arguments.
    pub(crate) left: Vec<String>,
}

impl Options {
    pub(crate) const HELP: &str = "\
usage: wan [OPTION...] [-- PROGRAM [ARGUMENT...]]

  --delay TIME        one way, such as 25ms, 800us or 1s
  --jitter TIME       at most so much more
  --rate RATE         such as 1Gbit or 20MB, a second
  --queue SIZE        such as 64kB; default: what the link moves in a round trip
  --loss SHARE        such as 0.1%
  --mtu BYTES         default: 1500
  --offload           segments of up to 64 KiB, for high rates
  --seed NUMBER       of losses and jitter
  --option NAME=VALUE of both hosts, such as net.ipv4.tcp_congestion_control=bbr
  --right LINE        run by the shell of the right host, and ended at the end

PROGRAM runs on the left host; without it the network stays until the input ends. Both see
WAN_ADDRESS (of the right host), WAN_LEFT and WAN_RIGHT (names for `ip netns exec`).";

    /// `None` if only help is wanted.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut link = Link::default();
        let mut plan = Plan::new(link);
        let (mut settings, mut right) = (Vec::new(), None);
        while let Some(name) = args.next() {
            match name.as_str() {
                "--" => break,
                "--help" | "-h" => return Ok(None),
                "--offload" => {
                    plan.offload = true;
                    continue;
                }
                _ => {}
            }
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let known = match name.as_str() {
                "--delay" => time(&value).map(|time| link.delay = time),
                "--jitter" => time(&value).map(|time| link.jitter = time),
                "--rate" => bytes(&value).map(|rate| link.bandwidth = Some(rate)),
                "--queue" => bytes(&value).map(|size| link.queue = Some(size)),
                "--loss" => share(&value).map(|loss| link.loss = loss),
                "--mtu" => value.parse().ok().map(|mtu| plan.mtu = mtu),
                "--seed" => value.parse().ok().map(|seed| plan.seed = seed),
                "--option" => value
                    .split_once('=')
                    .map(|(name, value)| settings.push((name.to_owned(), value.to_owned()))),
                "--right" => {
                    right = Some(value.clone());
                    Some(())
                }
                _ => return Err(format!("unknown option {name}; see --help")),
            };
            known.ok_or_else(|| format!("{name} doesn't take `{value}`; see --help"))?;
        }
        (plan.left_to_right, plan.right_to_left) = (link, link);
        Ok(Some(Self {
            plan,
            settings,
            right,
            left: args.collect(),
        }))
    }
}

/// A number with one of these units.
fn measure(value: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = value.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = value.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * factor)
}

fn time(value: &str) -> Option<Duration> {
    let seconds = measure(value, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn bytes(value: &str) -> Option<u64> {
    let units = [
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("kbit", 1e3 / 8.0),
        ("Mbit", 1e6 / 8.0),
        ("Gbit", 1e9 / 8.0),
    ];
    // Saturates, which is what a number that large means.
    measure(value, &units).map(|bytes| bytes as u64)
}

fn share(value: &str) -> Option<f64> {
    let share = measure(value, &[("%", 0.01)])?;
    (0.0..=1.0).contains(&share).then_some(share)
}
