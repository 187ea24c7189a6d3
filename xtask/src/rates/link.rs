//! Two network namespaces with a long link between them, for the rows that are far: the emulated
//! network of `xdfs-testkit`, by its example `wan`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{call, cargo, root};

/// Each way, and the rate: 50 ms of round-trip time.
const SHAPE: [&str; 4] = ["--delay", "25ms", "--rate", "1Gbit"];

/// Runs a program with other names of hosts: the server of Globus doesn't start where its address
/// has none, and in the namespaces nobody answers questions about names.
const NAMED: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// The namespaces, removed at the end.
#[derive(Debug)]
pub(super) struct Far {
    /// Keeps the link until its input ends.
    wan: Child,
    names: [String; 2],
    addresses: [String; 2],
    /// The file with names of hosts.
    hosts: String,
}

impl Far {
    /// Makes them, and a file in a folder.
    ///
    /// # Errors
    /// The system gives none; that takes root, iproute2 and `/dev/net/tun`.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let mut build = cargo();
        build.args(["build", "--release", "--locked", "--package"]);
        build.args(["xdfs-testkit", "--example", "wan"]);
        call(&mut build).map_err(|_| "the example wan can't be built")?;
        let mut command = Command::new(root().join("target/release/examples/wan"));
        command.args(SHAPE).stdin(Stdio::piped());
        let spawned = command.stderr(Stdio::piped()).spawn();
        let wan = spawned.map_err(|error| format!("start the example wan: {error}"))?;
        let mut far = Self {
            wan,
            names: Default::default(),
            addresses: Default::default(),
            hosts: folder.join("hosts").display().to_string(),
        };
        let lines = far.wan.stderr.take().map(BufReader::new);
        let mut lines = lines
            .into_iter()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        for end in 0..2 {
            let line = lines.next().unwrap_or_default();
            let told = line.strip_prefix("wan: ").unwrap_or_default();
            let (name, address) = told.split_once(" has ").ok_or_else(|| line.clone())?;
            far.names[end] = name.to_owned();
            far.addresses[end] = address.to_owned();
        }
        let names = far.addresses.iter().zip(["near", "far"]);
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        names.for_each(|(address, name)| hosts += &format!("{address} {name}.example {name}\n"));
        std::fs::write(&far.hosts, hosts).map_err(|error| format!("name the hosts: {error}"))?;
        // What it says at its end must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(far)
    }

    /// The words before a program at the client's end (0) or the server's (1).
    pub(super) fn within(&self, end: usize) -> [&str; 8] {
        let (name, hosts) = (&self.names[end], &self.hosts);
        ["ip", "netns", "exec", name, "sh", "-c", NAMED, hosts]
    }

    /// The address of the server's end.
    pub(super) fn address(&self) -> &str {
        &self.addresses[1]
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.wan.stdin.take());
        // It removes what it has made.
        let _ = self.wan.wait();
    }
}
