//! Two network namespaces with a long link between them, for the rows that are far.

use std::process::Command;

/// Addresses of the client and the server.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Each way, and the rate: 50 ms of round-trip time.
const SHAPE: &str = "netem delay 25ms rate 1gbit limit 20000";

/// The namespaces, removed at the end.
#[derive(Debug)]
pub(super) struct Far {
    names: [String; 2],
}

impl Far {
    /// Makes them.
    ///
    /// # Errors
    /// The system gives none; that takes root and iproute2.
    pub(super) fn new() -> Result<Self, String> {
        let id = std::process::id();
        let far = Self {
            names: ["a", "b"].map(|end| format!("xdfs-{id}-{end}")),
        };
        let [one, other] = &far.names;
        ip(&format!("netns add {one}"))?;
        ip(&format!("netns add {other}"))?;
        ip(&format!(
            "link add veth netns {one} type veth peer name veth netns {other}"
        ))?;
        for (name, address) in far.names.iter().zip(ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev veth"))?;
            ip(&format!("-n {name} link set veth up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            call("tc", &format!("-n {name} qdisc add dev veth root {SHAPE}"))?;
        }
        Ok(far)
    }

    /// The words before a program at the client's end (0) or the server's (1).
    pub(super) fn within(&self, end: usize) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[end]]
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for name in &self.names {
            // It may not have come about.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    call("ip", arguments)
}

fn call(program: &str, arguments: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    let output = command.args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| format!("{program} {arguments}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {arguments}: {said}"))
        }
    }
}
