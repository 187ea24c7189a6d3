//! Machines of a test on one network: network namespaces with a bridge between them, made and
//! removed by the program `ip`.
//!
//! All of them see the file systems of the machine below. Their network has no delay and no loss;
//! [`crate::wan`] has those, for two hosts.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::skip;

/// Machines by name, which end with this value.
#[derive(Debug)]
pub struct Machines {
    prefix: String,
    /// Names, and the last byte of each one's address.
    machines: Vec<(&'static str, u8)>,
}

impl Machines {
    /// Machines at `10.77.0.N`, for each name its N. `None`, and a test that counts as skipped,
    /// where this user or machine has no network namespaces.
    ///
    /// # Panics
    /// There are namespaces, but the network can't be made.
    #[must_use]
    pub fn new(machines: &[(&'static str, u8)]) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("xn{}-{number}", std::process::id());
        let made = Self {
            prefix,
            machines: machines.to_vec(),
        };
        let hub = made.name("hub");
        if !ip(&format!("netns add {hub}")) {
            skip::test("there are no network namespaces for this user");
            return None;
        }
        set(&format!("-n {hub} link add bridge type bridge"));
        set(&format!("-n {hub} link set bridge up"));
        for (machine, last) in machines {
            let own = made.name(machine);
            for line in [
                format!("netns add {own}"),
                format!("-n {hub} link add name {machine} type veth peer name eth0 netns {own}"),
                format!("-n {hub} link set dev {machine} master bridge up"),
                format!("-n {own} addr add 10.77.0.{last}/24 dev eth0"),
                format!("-n {own} link set lo up"),
                format!("-n {own} link set eth0 up"),
            ] {
                set(&line);
            }
        }
        Some(made)
    }

    /// Adds a cable between two machines, which are at `10.NET.0.1` and `10.NET.0.2` there. To the
    /// others these addresses are those of a machine that doesn't answer.
    ///
    /// # Panics
    /// The cable can't be made.
    pub fn connect(&self, [one, other]: [&str; 2], net: u8) {
        let (here, there) = (self.name(one), self.name(other));
        set(&format!(
            "-n {here} link add name eth{net} type veth peer name eth{net} netns {there}"
        ));
        for (own, last) in [(&here, 1), (&there, 2)] {
            set(&format!(
                "-n {own} addr add 10.{net}.0.{last}/24 dev eth{net}"
            ));
            set(&format!("-n {own} link set dev eth{net} up"));
        }
        for (machine, _) in &self.machines {
            if ![one, other].contains(machine) {
                let own = self.name(machine);
                set(&format!(
                    "-n {own} route add 10.{net}.0.0/24 via 10.77.0.254"
                ));
            }
        }
    }

    /// `command` on a machine.
    #[must_use]
    pub fn on(&self, machine: &str, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name(machine)]);
        inside.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Limits the link of a machine to so many Mbit/s, each way. Returns `false` where the kernel
    /// can't do that.
    #[must_use]
    pub fn limit(&self, machine: &str, mbit: u32) -> bool {
        let own = self.name(machine);
        let hub = self.name("hub");
        let devices = [(&own, "eth0"), (&hub, machine)];
        devices.iter().all(|(space, device)| {
            let line = format!(
                "-n {space} qdisc add dev {device} root tbf rate {mbit}mbit burst 256kb \
                 latency 100ms"
            );
            run("tc", &line)
        })
    }

    /// Cuts a machine off from the bridge, without a word to the others.
    ///
    /// # Panics
    /// The device can't be set.
    pub fn cut_off(&self, machine: &str) {
        set(&format!(
            "-n {} link set dev {machine} down",
            self.name("hub")
        ));
    }

    /// The bytes that a machine has sent and received so far by all of its devices but loopback.
    ///
    /// # Errors
    /// The counters can't be read.
    pub fn bytes(&self, machine: &str) -> io::Result<u64> {
        let mut cat = Command::new("cat");
        let list = self.on(machine, cat.arg("/proc/net/dev")).output()?;
        let mut sum = 0;
        for line in String::from_utf8_lossy(&list.stdout).lines() {
            let Some((device, counters)) = line.split_once(':') else {
                continue;
            };
            // Bytes received are the first counter, bytes sent the ninth.
            let counters = counters.split_whitespace();
            let counters: Vec<u64> = counters.filter_map(|c| c.parse().ok()).collect();
            if device.trim().starts_with("eth")
                && let [received, _, _, _, _, _, _, _, sent, ..] = counters[..]
            {
                sum += received + sent;
            }
        }
        Ok(sum)
    }

    fn name(&self, machine: &str) -> String {
        format!("{}-{machine}", self.prefix)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in self.machines.iter().map(|own| own.0).chain(["hub"]) {
            let mut command = Command::new("ip");
            let _ = command.args(["netns", "del", &self.name(machine)]).output();
        }
    }
}

/// Runs `ip`, which has to succeed.
#[track_caller]
fn set(line: &str) {
    assert!(ip(line), "ip {line}");
}

/// Runs `ip` with the words of a line.
fn ip(line: &str) -> bool {
    run("ip", line)
}

/// Runs a program with the words of a line.
fn run(program: &str, line: &str) -> bool {
    let words = line.split_whitespace();
    let out = Command::new(program).args(words).output();
    out.is_ok_and(|out| out.status.success())
}
