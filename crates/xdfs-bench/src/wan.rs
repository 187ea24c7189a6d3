//! Two hosts of their own that are far apart, for the groups over long paths.
//!
//! Servers run on the right one, clients on the left one. For trees the link adds 50 ms to each
//! round trip; the narrow one passes 1 Gbit/s each way and loses what its queue of one round trip
//! can't hold. The links of `link` are as their table says. cubic is the default of both hosts.
//! TCP may take buffers of 64 MiB, so that one connection can fill the path; over the links of the
//! table xdfs alone has to do with what the machine gives by itself. Where the system gives no such
//! network the answer says why. Called by `session`.

use crate::command_line::CommandLine;

/// Names for the addresses that all such networks have, as lines of a file of hosts.
pub(crate) const HOST_NAMES: &str = "10.77.0.1 wan-left\n10.77.0.2 wan-right\n";

/// The hosts and the link between them.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct WanHosts {
    wan: xdfs_testkit::wan::Wan,
    /// The link of the table, where it is one.
    row: Option<crate::link::WanLink>,
    /// The buffers that the machine gives by itself: of receivers and of senders.
    machine_buffers: [String; 2],
    /// Keeps bbr forbidden.
    _allowed: Option<crate::congestion::Allowed>,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, time::Duration};

    use xdfs_testkit::wan::{Direction as Way, Link, Plan, Side, Wan};

    use super::{CommandLine, WanHosts};
    use crate::{
        congestion::{self, Allowed},
        link::{WanLink, payload_of},
        options::Group,
        tool::Direction,
    };

    /// One way, for trees.
    const DELAY: Duration = Duration::from_millis(25);
    /// Bytes a second, for trees over the narrow link.
    const BANDWIDTH: u64 = 1_000_000_000 / 8;
    /// The option that names the congestion control.
    const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
    /// The option that lists those that programs may choose.
    const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
    /// That list, where bbr is forbidden.
    const WITHOUT_BBR: &str = "reno cubic";
    /// The options of the buffers: of receivers and of senders.
    const BUFFERS: [&str; 2] = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
    /// What they are set to where one connection has to fill the path.
    const LARGE_BUFFERS: [&str; 2] = ["4096 131072 67108864", "4096 65536 67108864"];
    /// What a connection learned shall not help the next one.
    const NO_METRICS: &str = "net.ipv4.tcp_no_metrics_save";

    impl WanHosts {
        /// Makes the network of a group; the error is one line for the report.
        pub(crate) fn new(group: Group) -> Result<Self, String> {
            let link = match group.link() {
                Some(row) => link_of(row),
                None if group == Group::TreeWanNarrow => {
                    Link::delay(DELAY).with_bandwidth(BANDWIDTH)
                }
                None => Link::delay(DELAY),
            };
            Self::with_link(group, link)
        }

        /// The same with a link that passes everything on at once.
        pub(crate) fn unbounded(group: Group) -> Result<Self, String> {
            Self::with_link(group, Link::default())
        }

        fn with_link(group: Group, link: Link) -> Result<Self, String> {
            let row = group.link();
            let mut plan = Plan::new(link);
            plan.offload = row.is_none_or(WanLink::in_segments);
            let failed = |error: io::Error| format!("no emulated network: {error}");
            let wan = Wan::new(plan).map_err(failed)?;
            let allowed = if row.is_some_and(|row| !row.properties().allows_bbr) {
                Some(
                    Allowed::only(WITHOUT_BBR)
                        .map_err(|error| format!("bbr is allowed: {error}"))?,
                )
            } else {
                None
            };
            let machine_buffers = BUFFERS.map(|name| {
                let value = wan.left().option(name).unwrap_or_default();
                value.replace('\t', " ")
            });
            let hosts = Self {
                wan,
                row,
                machine_buffers,
                _allowed: allowed,
            };
            // Only while they are set, the machine has to allow it.
            let with_default = Allowed::with_default();
            hosts.set([(CONGESTION_CONTROL, congestion::DEFAULT), (NO_METRICS, "1")]);
            drop(with_default);
            hosts.give_buffers(false);
            let default = hosts.option(CONGESTION_CONTROL);
            if row.is_some() && default != congestion::DEFAULT {
                return Err(format!(
                    "no emulated network: the hosts' congestion control stays {default}"
                ));
            }
            Ok(hosts)
        }

        /// Gives TCP buffers of 64 MiB; over the links of the table runs of xdfs alone get what the
        /// machine gives by itself.
        pub(crate) fn give_buffers(&self, is_of_xdfs_alone: bool) {
            let [receive, send] = if is_of_xdfs_alone && self.row.is_some() {
                self.machine_buffers.each_ref().map(String::as_str)
            } else {
                LARGE_BUFFERS
            };
            self.set([(BUFFERS[0], receive), (BUFFERS[1], send)]);
        }

        /// What is in force is said in the report.
        fn set(&self, options: [(&str, &str); 2]) {
            for side in [self.wan.left(), self.wan.right()] {
                for (name, value) in options {
                    let _ = side.set_option(name, value);
                }
            }
        }

        fn option(&self, name: &str) -> String {
            let value = self.wan.left().option(name);
            value.map_or_else(|_| "unknown".to_owned(), |value| value.replace('\t', " "))
        }

        /// Payload that has been delivered in one direction so far, in bytes, with what was sent
        /// twice.
        pub(crate) fn delivered(&self, direction: Direction) -> u64 {
            let way = match direction {
                Direction::Down => Way::RightToLeft,
                Direction::Local | Direction::Up => Way::LeftToRight,
            };
            let counters = self.wan.counters(way);
            counters.map_or(0, |counters| payload_of(counters.bytes) as u64)
        }

        /// The command as it is on these hosts, for servers and clients.
        pub(crate) fn addressed(&self, line: CommandLine) -> CommandLine {
            line.at(&self.wan.right().address().to_string())
        }

        /// The command on the far host.
        pub(crate) fn server(&self, line: CommandLine) -> CommandLine {
            self.within(self.wan.right(), line)
        }

        /// The command on the near host.
        pub(crate) fn client(&self, line: CommandLine) -> CommandLine {
            self.within(self.wan.left(), line)
        }

        /// A process that may change the network may also use what is forbidden to others.
        fn within(&self, side: &Side, line: CommandLine) -> CommandLine {
            let line = match self.row {
                Some(row) if !row.properties().allows_bbr => line.after(
                    "setpriv",
                    ["--bounding-set=-net_admin", "--inh-caps=-net_admin"],
                ),
                _ => line,
            };
            line.after("ip", ["netns", "exec", side.name()])
        }

        /// How good the emulation was, in one sentence for the report.
        pub(crate) fn emulation_quality(&self) -> String {
            let sum = || -> io::Result<[u64; 5]> {
                let mut sum = [0; 5];
                for way in [Way::LeftToRight, Way::RightToLeft] {
                    let counters = self.wan.counters(way)?;
                    let more = [
                        counters.packets,
                        counters.lost,
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
                |[packets, lost, dropped, overrun, late]| {
                    format!(
                        "{packets} packets delivered, {late} of them more than a millisecond late; \
                         {lost} lost at random, {dropped} dropped by the full queue of the link, \
                         {overrun} missed by the emulator"
                    )
                },
            );
            let buffers = if self.row.is_some() {
                let [receive, send] = &self.machine_buffers;
                format!(
                    "for xdfs the machine's own receive buffers ({receive}) and send buffers \
                     ({send} bytes), for rivals and beside them larger ones ({} and {})",
                    LARGE_BUFFERS[0], LARGE_BUFFERS[1]
                )
            } else {
                let [receive, send] = BUFFERS.map(|name| self.option(name));
                format!("receive buffers {receive}, send buffers {send} bytes")
            };
            format!(
                "Both hosts: {} by default and {} allowed, {buffers}. The emulation: {counted}.",
                self.option(CONGESTION_CONTROL),
                self.option(ALLOWED),
            )
        }
    }

    fn link_of(row: WanLink) -> Link {
        let properties = row.properties();
        let link = Link::delay(row.delay())
            .with_bandwidth(row.bandwidth())
            .with_loss(f64::from(properties.lost_per_mille) / 1000.0);
        match properties.queue_bytes {
            Some(bytes) => link.with_queue(bytes),
            None => link,
        }
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
    pub(crate) fn give_buffers(&self, _: bool) {}

    /// As [`Self::new`].
    pub(crate) fn unbounded(group: crate::options::Group) -> Result<Self, String> {
        Self::new(group)
    }

    /// Never called.
    pub(crate) fn delivered(&self, _: crate::tool::Direction) -> u64 {
        0
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
