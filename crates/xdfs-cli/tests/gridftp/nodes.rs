//! Data nodes: real clients, nodes that die or lie, and ends that have another key.

use std::fs;
use std::path::Path;
use std::process::Command;

use xdfs_testkit::process::Guard;

use crate::client::{Client, EOD, EOF, block, blocks, data};
use crate::stage::{PATIENCE, Stage, assert_bytes, names, run};
use crate::tools::{Globus, copy, file_url, has_globus};

const BIG: usize = 9_000_000;

/// A server with data nodes, in one file system.
pub(crate) struct Cluster {
    pub(crate) stage: Stage,
    pub(crate) nodes: Vec<Guard>,
}

/// The export of a server and of its nodes.
const EXPORT: &str = "[[export]]\nname = \"data\"\npath = \"ROOT\"\npublic = true\n\
    anonymous = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n";

/// A data node with this configuration.
#[track_caller]
pub(crate) fn start_node(config: &Path) -> (Guard, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("XDFS_CONFIG_DIR", config.parent().unwrap().join("keys"))
        .env_remove("HOME")
        .args(["gridftp", "data-node", "--log=debug", "--config"])
        .arg(config);
    let node = Guard::spawn(&mut command).unwrap();
    let after = |prefix: &'static str| {
        let found = node.line(PATIENCE, |line| Some(line.strip_prefix(prefix)?.to_owned()));
        found.unwrap_or_else(|| panic!("the node did not start: {:?}", node.output()))
    };
    let (address, key) = (after("data node on "), after("fingerprint "));
    (node, address, key)
}

/// A configuration of a data node in a folder of its own.
pub(crate) fn node_config(place: &Path, name: &str, root: &Path, more: &str) -> std::path::PathBuf {
    let folder = place.join(name);
    fs::create_dir_all(folder.join("keys")).unwrap();
    let export = EXPORT.replace("ROOT", &root.display().to_string());
    let text = format!("folder = \"server\"\n{export}{more}");
    fs::write(folder.join("node.toml"), text).unwrap();
    folder.join("node.toml")
}

/// The key of the server whose folder is `place`: a data node there makes it.
#[track_caller]
fn key_of(place: &Path) -> String {
    let nobody = format!("SHA256:{}", "A".repeat(43));
    let more = format!("[gridftp.data_node]\nlisten = \"127.0.0.1:0\"\nobeys = [\"{nobody}\"]\n");
    let text = format!(
        "folder = \"server\"\n{}{more}",
        EXPORT.replace("ROOT", "/nowhere")
    );
    fs::write(place.join("key.toml"), text).unwrap();
    start_node(&place.join("key.toml")).2
}

impl Cluster {
    /// So many nodes, and a server with `more` in its settings.
    #[track_caller]
    pub(crate) fn open(seed: u64, count: usize, more: &str) -> Self {
        let mut nodes = Vec::new();
        let stage = Stage::prepared(seed, "", |root| {
            let place = root.parent().unwrap();
            let server = key_of(place);
            let mut text = format!("folder = \"server\"\naudit = \"audit.jsonl\"\n{EXPORT}");
            let mut tables = String::new();
            for number in 0..count {
                let own = format!(
                    "[gridftp.data_node]\nlisten = \"127.0.0.{}:0\"\nobeys = [\"{server}\"]\n",
                    number + 2
                );
                let config = node_config(place, &format!("node{number}"), root, &own);
                let (node, address, key) = start_node(&config);
                nodes.push(node);
                tables += &format!("[[gridftp.node]]\naddress = \"{address}\"\nkey = \"{key}\"\n");
            }
            text += &format!("{more}\n{tables}");
            let text = text.replace("ROOT", &root.display().to_string());
            fs::write(place.join("xdfs.toml"), text).unwrap();
        });
        Self { stage, nodes }
    }

    /// How many requests with this verb each node has had.
    fn requests(&self, verb: &str) -> Vec<usize> {
        let has_it = |line: &&String| line.contains("request=") && line.contains(verb);
        let of = |node: &Guard| node.output().iter().filter(has_it).count();
        self.nodes.iter().map(of).collect()
    }
}

#[test]
fn globus_url_copy_moves_stripes_both_ways() {
    if !has_globus() {
        return;
    }
    let cluster = Cluster::open(300, 2, "");
    let stage = &cluster.stage;
    for (number, flags) in [
        &["-stripe"][..],
        &["-stripe", "-p", "4"],
        &["-stripe", "-sbs", "65536", "-p", "2"],
        &["-stripe", "-sbs", "0", "-p", "1"],
        &["-fast"],
    ]
    .into_iter()
    .enumerate()
    {
        for bytes in [0, 1, (1 << 20) + 1, BIG] {
            let name = format!("{number}-{bytes}");
            let wanted = Stage::make(&stage.here(&name), bytes);
            let target = stage.url(&format!("/data/{name}"));
            run(copy(flags).args([&file_url(&stage.here(&name)), &target]));
            assert_bytes(&stage.root(&name), &wanted);
            let back = stage.here(&format!("{name}.back"));
            run(copy(flags).args([&target, &file_url(&back)]));
            assert_bytes(&back, &wanted);
        }
    }
    // Large ones go by the nodes; uploads if the client asks for stripes.
    assert_eq!(cluster.requests("Send("), [10, 10]);
    assert_eq!(cluster.requests("Store("), [16, 16]);
    assert!(names(stage).iter().all(|name| !name.starts_with('.')));
    // The server's log has all bytes.
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let has = |kind: &str| {
        let count = |line: &&str| line.contains(kind) && line.contains(&format!("{BIG}"));
        audit.lines().filter(count).count()
    };
    assert_eq!((has("\"upload\""), has("\"download\"")), (5, 5), "{audit}");
}
