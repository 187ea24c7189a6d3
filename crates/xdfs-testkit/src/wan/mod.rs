//! A wide area network: two hosts, and a link between them that has a delay, a bandwidth, a queue
//! and losses.
//!
//! The hosts are network namespaces, made and removed here; each has one device (`wan0`), and two
//! threads carry packets from one to the other, as [`Link`] says. Nothing of the network around is
//! touched, and a kernel without network emulation will do. Two such networks at the same time
//! don't know of each other, so all of them have the same addresses.
//!
//! It needs Linux, the right to make namespaces (mostly root), `/dev/net/tun` and the program
//! `ip`; where one of them is missing, [`Wan::new`] says `Unsupported`.
//!
//! Programs are started by [`Side::command`], code of the test itself by [`Side::run`]. When the
//! value is dropped, also by a panic, the link ends; programs that still run are cut off, and
//! not ended. A killed process leaves its namespaces to the next one, which removes them.
//!
//! What it can't do: packets aren't reordered, doubled or damaged. The threads share the cores
//! with what is tested, so look at [`Counters::overrun`] and [`Counters::late`] before believing
//! a figure taken at a high rate. On two cores that were busy with other work too, TCP got 2 Gbit/s
//! through at an MTU of 1500 and 9 Gbit/s with [`Plan::offload`], and at 1 Gbit/s one or two
//! packets in a thousand were more than a millisecond late. The threads ask for a real-time
//! priority, by the program `chrt`; without it a fifth of the packets and more were late there.
//!
//! The example `wan` is all of this by hand: `cargo run -p xdfs-testkit --example wan -- --help`.

mod forwarder;
mod link;
mod namespace;
mod one_way_link;
mod packet_store;
mod segment;

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::{fs, path::PathBuf};

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use forwarder::Forwarder;
pub use link::{Counters, Link};
use namespace::{Namespace, unsupported};

/// The device of each host.
const DEVICE: &str = "wan0";

/// IPv6 needs links with packets of this size (RFC 8200, section 5).
const MTU_V6: u16 = 1280;

/// IPv4 needs links with packets of this size (RFC 791, section 3.2).
const MTU_LEAST: u16 = 68;

/// Packets that the system keeps for a forwarder which is busy.
const BACKLOG: u32 = 10_000;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the left host to the right one.
    LeftToRight,
    /// From the right host to the left one.
    RightToLeft,
}

/// What a network is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// From the left host to the right one.
    pub left_to_right: Link,
    /// From the right host to the left one.
    pub right_to_left: Link,
    /// Bytes of the largest IP packet, from 68. Under 1280 there is no IPv6.
    pub mtu: u16,
    /// Decides which packets are lost, and what jitter they have.
    pub seed: u64,
    /// Lets the system hand over up to 64 KiB as one segment, as to a network card: many times
    /// the rate for the same work. Losses still take single packets of the MTU, and the bandwidth
    /// counts their headers; but the packets of a segment arrive together, when the last of them
    /// would, so it is for links that are fast enough for this to make no difference.
    pub offload: bool,
}

impl Plan {
    /// The same link both ways, an MTU of 1500, and no offload.
    #[must_use]
    pub fn new(link: Link) -> Self {
        Self {
            left_to_right: link,
            right_to_left: link,
            mtu: 1500,
            seed: 1,
            offload: false,
        }
    }

    /// The same plan with packets of up to so many bytes.
    #[must_use]
    pub fn with_mtu(self, mtu: u16) -> Self {
        Self { mtu, ..self }
    }

    /// The same plan with other numbers drawn.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same plan with segments of up to 64 KiB.
    #[must_use]
    pub fn with_offload(self) -> Self {
        Self {
            offload: true,
            ..self
        }
    }
}

/// Two hosts and the link between them; dropping it removes all of them.
#[derive(Debug)]
pub struct Wan {
    // In the order in which they have to go.
    left_to_right: Forwarder,
    right_to_left: Forwarder,
    left: Side,
    right: Side,
}

impl Wan {
    /// Makes the network; when this returns, packets pass.
    ///
    /// # Errors
    /// `Unsupported` if this machine or user can't have one, `InvalidInput` for an MTU that is too
    /// small, and else what the system says.
    pub fn new(plan: Plan) -> io::Result<Self> {
        if plan.mtu < MTU_LEAST {
            let why = format!("an MTU of {} is less than {MTU_LEAST}", plan.mtu);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (left, left_device) = Side::new("left", 1, plan)?;
        let (right, right_device) = Side::new("right", 2, plan)?;
        let forwarder = |from: &Arc<SyncDevice>, to: &Arc<SyncDevice>, link, seed| {
            Forwarder::new(Arc::clone(from), Arc::clone(to), plan.offload, link, seed)
        };
        // Both directions draw, and not the same.
        let (there, back) = (plan.seed.wrapping_mul(2), plan.seed.wrapping_mul(2) | 1);
        Ok(Self {
            left_to_right: forwarder(&left_device, &right_device, plan.left_to_right, there)?,
            right_to_left: forwarder(&right_device, &left_device, plan.right_to_left, back)?,
            left,
            right,
        })
    }

    /// The host that counts as near.
    #[must_use]
    pub fn left(&self) -> &Side {
        &self.left
    }

    /// The host that counts as far.
    #[must_use]
    pub fn right(&self) -> &Side {
        &self.right
    }

    /// How one direction is now.
    #[must_use]
    pub fn link(&self, direction: Direction) -> Link {
        self.forwarder(direction).link()
    }

    /// Changes both directions, within some tens of microseconds. What is on the wire still
    /// arrives when it would have; what waits for the link follows the new one.
    pub fn set(&self, link: Link) {
        self.set_direction(Direction::LeftToRight, link);
        self.set_direction(Direction::RightToLeft, link);
    }

    /// Changes one direction, as [`Self::set`] does.
    pub fn set_direction(&self, direction: Direction, link: Link) {
        self.forwarder(direction).set(link);
    }

    /// What one direction has done so far.
    ///
    /// # Errors
    /// The system doesn't tell how many packets the forwarder has missed.
    pub fn counters(&self, direction: Direction) -> io::Result<Counters> {
        let from = match direction {
            Direction::LeftToRight => &self.left,
            Direction::RightToLeft => &self.right,
        };
        let missed = from.missed()?;
        let mut counters = self.forwarder(direction).counters();
        counters.overrun += missed;
        Ok(counters)
    }

    fn forwarder(&self, direction: Direction) -> &Forwarder {
        match direction {
            Direction::LeftToRight => &self.left_to_right,
            Direction::RightToLeft => &self.right_to_left,
        }
    }
}

/// One of the two hosts.
#[derive(Debug)]
pub struct Side {
    namespace: Namespace,
    v4: Ipv4Addr,
    v6: Option<Ipv6Addr>,
}

impl Side {
    fn new(role: &str, number: u8, plan: Plan) -> io::Result<(Self, Arc<SyncDevice>)> {
        let namespace = Namespace::new(role)?;
        let device = namespace.run(|| {
            let device = DeviceBuilder::new()
                .name(DEVICE)
                .layer(Layer::L3)
                .inherit_enable_state()
                .offload(plan.offload);
            device.build_sync()
        })?;
        let device = device.map_err(|error| match error.raw_os_error() {
            Some(1 | 2 | 6 | 13 | 19) => unsupported(&format!("/dev/net/tun: {error}")),
            _ => error,
        })?;
        device.set_nonblocking(true)?;
        let v4 = Ipv4Addr::new(10, 77, 0, number);
        namespace.ip(&format!(
            "link set lo up\n\
             link set {DEVICE} mtu {} txqueuelen {BACKLOG}\n\
             addr add {v4}/24 dev {DEVICE}\n\
             link set {DEVICE} up\n",
            plan.mtu
        ))?;
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number));
        // The kernel may know no IPv6.
        let has_v6 = plan.mtu >= MTU_V6
            && namespace
                .ip(&format!("addr add {v6}/64 dev {DEVICE} nodad\n"))
                .is_ok();
        let side = Self {
            namespace,
            v4,
            v6: has_v6.then_some(v6),
        };
        Ok((side, Arc::new(device)))
    }

    /// The name of its namespace, for instance for `ip netns exec`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Its IPv4 address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.v4.into()
    }

    /// Its IPv6 address, if the kernel has IPv6 and the MTU allows it.
    #[must_use]
    pub fn address_v6(&self) -> Option<IpAddr> {
        self.v6.map(Into::into)
    }

    /// A command that runs `program` on this host. Its process is the program itself, so it can
    /// be watched and ended by its id. Files are those of this machine; `/sys` is its own.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name()]).arg(program);
        command
    }

    /// Runs `act` on this host, on a thread of its own, and waits for it. Sockets that it opens
    /// stay on this host wherever they are used, and threads that it starts are there too.
    ///
    /// # Errors
    /// The thread can't be started there. A panic of `act` goes on in the caller.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.run(act)
    }

    /// Sets an option of its network, such as `net.ipv4.tcp_congestion_control` or
    /// `net.ipv4.tcp_rmem`; a new host has the system's defaults.
    ///
    /// # Errors
    /// There is no such option, or it doesn't take the value; `InvalidInput` if the name isn't one
    /// beneath `net`.
    pub fn set_option(&self, name: &str, value: &str) -> io::Result<()> {
        let path = option_path(name)?;
        self.run(|| fs::write(path, value))?
    }

    /// The value of an option of its network.
    ///
    /// # Errors
    /// As for [`Self::set_option`].
    pub fn option(&self, name: &str) -> io::Result<String> {
        let path = option_path(name)?;
        let value = self.run(|| fs::read_to_string(path))??;
        Ok(value.trim().to_owned())
    }

    /// Packets that found the forwarder's backlog full.
    fn missed(&self) -> io::Result<u64> {
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let device = table.lines().find_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            (name.trim() == DEVICE).then_some(numbers)
        });
        // Eight numbers of what came in, then bytes, packets, errors and drops of what went out.
        let dropped = device.and_then(|numbers| numbers.split_whitespace().nth(11));
        dropped
            .and_then(|dropped| dropped.parse().ok())
            .ok_or_else(|| io::Error::other(format!("no figures of {DEVICE}: {table}")))
    }
}

/// The file of an option; only options of a network belong to one host.
fn option_path(name: &str) -> io::Result<PathBuf> {
    let parts: Vec<_> = name.split('.').collect();
    let plain = |part: &&str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    if parts.len() < 3 || parts[0] != "net" || !parts.iter().all(plain) {
        let why = format!("`{name}` is not a network option");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(std::path::Path::new("/proc/sys").join(parts.join("/")))
}
