//! Two hosts of their own that are far apart, for the groups `tree-wan` and `tree-wan-narrow`.
//!
//! Servers run on the right one, clients on the left one. The link adds 50 ms to each round trip.
//! The narrow one passes 1 Gbit/s each way and loses what its queue of one round trip can't hold.
//! TCP may take buffers of 64 MiB, so that one connection can fill it. Where the system gives no
//! such network the answer says why. Called by `session`.

use crate::command_line::CommandLine;

/// The hosts and the link between them.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct WanHosts {
    wan: xdfs_testkit::wan::Wan,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, time::Duration};

    use xdfs_testkit::wan::{Direction, Link, Plan, Side, Wan};

    use super::{CommandLine, WanHosts};
    use crate::options::Group;

    /// One way.
    const DELAY: Duration = Duration::from_millis(25);
    /// Bytes a second.
    const BANDWIDTH: u64 = 1_000_000_000 / 8;
    /// The option that names the congestion control.
    const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
    /// What both hosts are set to, as far as they take it.
    const SETTINGS: [(&str, &str); 4] = [
        (CONGESTION_CONTROL, "cubic"),
        ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
        ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
        // What a connection learned shall not help the next one.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ];

    impl WanHosts {
        /// Makes the network of a group; the error is one line for the report.
        pub(crate) fn new(group: Group) -> Result<Self, String> {
            let mut link = Link::delay(DELAY);
            if group == Group::TreeWanNarrow {
                link = link.with_bandwidth(BANDWIDTH);
            }
            let wan = Wan::new(Plan::new(link).with_offload())
                .map_err(|error| format!("no emulated network: {error}"))?;
            for side in [wan.left(), wan.right()] {
                for (name, value) in SETTINGS {
                    // What is in force is said below.
                    let _ = side.set_option(name, value);
                }
            }
            Ok(Self { wan })
        }

        /// The command as it is on these hosts, for servers and clients.
        pub(crate) fn addressed(&self, line: CommandLine) -> CommandLine {
            line.at(&self.wan.right().address().to_string())
        }

        /// The command on the far host.
        pub(crate) fn server(&self, line: CommandLine) -> CommandLine {
            within(self.wan.right(), line)
        }

        /// The command on the near host.
        pub(crate) fn client(&self, line: CommandLine) -> CommandLine {
            within(self.wan.left(), line)
        }

        /// How good the emulation was, in one sentence for the report.
        pub(crate) fn emulation_quality(&self) -> String {
            let settings = |name: &str| {
                let value = self.wan.left().option(name);
                value.unwrap_or_else(|_| "unknown".to_owned())
            };
            let sum = || -> io::Result<[u64; 4]> {
                let mut sum = [0; 4];
                for direction in [Direction::LeftToRight, Direction::RightToLeft] {
                    let counters = self.wan.counters(direction)?;
                    let more = [
                        counters.packets,
                        counters.dropped,
                        counters.overrun,
                        counters.late,
                    ];
                    for (all, more) in sum.iter_mut().zip(more) {
                        *all += more;
                    }
                }
                Ok(sum)
            };
            let counted = sum().map_or_else(
                |error| format!("not counted: {error}"),
                |[packets, dropped, overrun, late]| {
                    format!(
                        "of {packets} packets the queue of the link dropped {dropped}, the \
                         emulator missed {overrun}, and {late} were more than a millisecond late"
                    )
                },
            );
            format!(
                "Both hosts: {}, receive buffers {}, send buffers {} bytes. \
                 The emulation: {counted}.",
                settings(CONGESTION_CONTROL),
                settings("net.ipv4.tcp_rmem").replace('\t', " "),
                settings("net.ipv4.tcp_wmem").replace('\t', " "),
            )
        }
    }

    fn within(side: &Side, line: CommandLine) -> CommandLine {
        line.after("ip", ["netns", "exec", side.name()])
    }
}

/// Nothing: there is no emulation on this system.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct WanHosts {}

#[cfg(not(target_os = "linux"))]
impl WanHosts {
    /// Says why there is none.
    pub(crate) fn new(_: crate::options::Group) -> Result<Self, String> {
        Err("no emulated network: it needs Linux".to_owned())
    }

    /// Never called.
    pub(crate) fn addressed(&self, line: CommandLine) -> CommandLine {
        line
    }

    /// Never called.
    pub(crate) fn server(&self, line: CommandLine) -> CommandLine {
        line
    }

    /// Never called.
    pub(crate) fn client(&self, line: CommandLine) -> CommandLine {
        line
    }

    /// Never called.
    pub(crate) fn emulation_quality(&self) -> String {
        String::new()
    }
}
