//! Two network namespaces with a long link between them, for the rows that are far: the emulated
//! network of `xdfs-testkit`, by its example `wan`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::{call, cargo, root};

/// Each way, and the rate: 50 ms of round-trip time.
const SHAPE: [&str; 4] = ["--delay", "25ms", "--rate", "1Gbit"];

/// The namespaces, removed at the end.
#[derive(Debug)]
pub(super) struct Far {
    /// Keeps the link until its input ends.
    wan: Child,
    names: [String; 2],
    addresses: [String; 2],
}

impl Far {
    /// Makes them.
    ///
    /// # Errors
    /// The system gives none; that takes root, iproute2 and `/dev/net/tun`.
    pub(super) fn new() -> Result<Self, String> {
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
        };
        let lines = far.wan.stderr.take().map(BufReader::new);
        let mut lines = lines
            .into_iter()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        for end in 0..2 {
            let line = lines.next().unwrap_or_default();
            let told = line.strip_prefix("wan: ").unwrap_or_default();
            let (name, address) = told.split_once(" has ").ok_or(line.clone())?;
            far.names[end] = name.to_owned();
            far.addresses[end] = address.to_owned();
        }
        // What it says at its end must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(far)
    }

    /// The words before a program at the client's end (0) or the server's (1).
    pub(super) fn within(&self, end: usize) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[end]]
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
