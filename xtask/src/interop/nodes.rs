//! Servers with data nodes, and what shows that all of them have moved a file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools::{Kind, Tools};
use crate::process::{Running, search_path, until};

/// Data nodes of a server.
const NODES: usize = 2;
/// Nobody's key, which a server's own is asked for with.
const NOBODY: &str = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A running data node, at an address of its own.
pub(super) struct Node {
    /// Until it is dropped.
    _running: Running,
    /// What it says about transfers.
    log: PathBuf,
    /// `HOST:PORT`, at which its server reaches it.
    pub(super) address: String,
    /// With xdfs.
    pub(super) key: String,
}

/// Starts the data nodes of a server that serves `folder`, before the server itself.
///
/// # Errors
/// One doesn't start, or servers of this kind have none.
pub(super) fn start(kind: Kind, tools: &Tools, folder: &Path) -> Result<Vec<Node>, String> {
    let owner = match kind {
        Kind::Xdfs => key_of_server(tools, folder)?,
        _ => String::new(),
    };
    (0..NODES)
        .map(|number| {
            let place = folder.join(format!("node{number}"));
            fs::create_dir_all(&place).map_err(|error| error.to_string())?;
            let host = format!("127.0.0.{}", number + 2);
            match kind {
                Kind::Globus => globus_node(&place, &host),
                Kind::Xdfs => {
                    let more = format!("listen = \"{host}:0\"\nobeys = [\"{owner}\"]\n");
                    xdfs_node(tools, &place, &folder.join("root/drop"), &more)
                }
                Kind::Vsftpd => Err("vsftpd has no data nodes".into()),
            }
        })
        .collect()
}

impl Node {
    fn said(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes that it says to have moved of files.
    fn bytes(&self) -> Vec<usize> {
        let number = |line: &str| {
            let rest = line.split(" NBYTES=").nth(1)?;
            rest.split(' ').next()?.parse().ok()
        };
        self.said().lines().filter_map(number).collect()
    }

    /// Whether it was asked for a stripe of a file.
    fn has_had_stripes(&self) -> bool {
        let is_request = |line: &str| line.contains("=send ") || line.contains("=store ");
        let said = self.said();
        said.lines()
            .any(|line| line.contains("request=") && is_request(line))
    }
}

/// Fails unless each of the nodes has moved a part of a file of `bytes`.
pub(super) fn check(kind: Kind, nodes: &[Node], bytes: usize) -> Result<(), String> {
    let is_striped = match kind {
        // The first node says how much it has moved. The last lines of a log may be late.
        Kind::Globus => {
            let told = || nodes.iter().flat_map(Node::bytes).next_back();
            until(|| told().is_some());
            told().is_some_and(|part| part > 0 && part < bytes)
        }
        _ => until(|| nodes.iter().all(Node::has_had_stripes)),
    };
    match is_striped {
        true => Ok(()),
        false => Err(format!("one data node of {} moves all of it", kind.name())),
    }
}

/// The key by which the nodes of a server know it.
fn key_of_server(tools: &Tools, folder: &Path) -> Result<String, String> {
    let more = format!("listen = \"127.0.0.1:0\"\nobeys = [\"{NOBODY}\"]\n");
    // A node in the same folder makes it, and ends.
    xdfs_node(tools, folder, &folder.join("root/drop"), &more).map(|node| node.key)
}

fn xdfs_node(tools: &Tools, place: &Path, root: &Path, more: &str) -> Result<Node, String> {
    let config = format!(
        "folder = \"server\"\n[[export]]\nname = \"drop\"\npath = \"{}\"\npublic = true\n\
         anonymous = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n\
         [gridftp.data_node]\n{more}",
        root.display()
    );
    let file = place.join("node.toml");
    fs::write(&file, config).map_err(|error| error.to_string())?;
    let mut command = Command::new(&tools.xdfs);
    command
        .env("XDFS_CONFIG_DIR", place.join("keys"))
        .args(["gridftp", "data-node", "--log=debug", "--config"])
        .arg(&file);
    let after = |running: &Running, prefix: &str| {
        let found = running.line(|line| line.strip_prefix(prefix).map(str::to_owned));
        found.ok_or_else(|| format!("a data node did not start: {}", running.said()))
    };
    let running = started(&mut command, place.join("log"))?;
    Ok(Node {
        address: after(&running, "data node on ")?,
        key: after(&running, "fingerprint ")?,
        _running: running,
        log: place.join("log"),
    })
}

fn globus_node(place: &Path, host: &str) -> Result<Node, String> {
    let mut command = Command::new("globus-gridftp-server");
    command
        .env("PATH", search_path())
        .args(["-dn", "-aa", "-port", "0", "-control-interface", host])
        .args(["-data-interface", host, "-log-level", "ALL", "-l"])
        .arg(place.join("transfers"));
    let owner = fs::metadata("/proc/self").map_err(|error| error.to_string())?;
    if owner.uid() == 0 {
        command.args(["-anonymous-user", "root", "-allow-root"]);
    }
    let running = started(&mut command, place.join("log"))?;
    let address = running.line(|line| {
        let address = line.strip_prefix("Server listening at ")?;
        Some(address.trim().to_owned())
    });
    Ok(Node {
        address: address.ok_or_else(|| format!("a data node did not start: {}", running.said()))?,
        key: String::new(),
        _running: running,
        log: place.join("transfers"),
    })
}

fn started(command: &mut Command, log: PathBuf) -> Result<Running, String> {
    Running::start(command, &log).map_err(|error| format!("start a data node: {error}"))
}
