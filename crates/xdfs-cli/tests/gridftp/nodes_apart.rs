//! A server, two data nodes and a client, each in a network namespace of its own, with one file
//! system.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use xdfs_testkit::machines::Machines;
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::TempTree;

use crate::stage::{PATIENCE, Stage, assert_bytes, run};
use crate::tools::{copy, file_url, has_globus};

/// The machines, and the last byte of the address of each.
const MACHINES: [(&str, u8); 4] = [("server", 1), ("node0", 11), ("node1", 12), ("client", 9)];

fn xdfs(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command.env("XDFS_CONFIG_DIR", folder.join("keys"));
    command.env_remove("HOME").current_dir(folder).args(args);
    command
}

/// Starts a data node, or makes its key.
#[track_caller]
fn node(machines: &Machines, machine: &str, folder: &Path, obeys: &str) -> (Guard, String) {
    let last = MACHINES.iter().find(|own| own.0 == machine).unwrap().1;
    let root = folder.parent().unwrap().join("root");
    fs::create_dir_all(folder.join("keys")).unwrap();
    let text = format!(
        "folder = \"{0}/server\"\n[[export]]\nname = \"data\"\npath = \"{1}\"\npublic = true\n\
         anonymous = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n\
         [gridftp.data_node]\nlisten = \"10.77.0.{last}:2812\"\nobeys = [\"{obeys}\"]\n",
        folder.display(),
        root.display(),
    );
    fs::write(folder.join("node.toml"), text).unwrap();
    let config = folder.join("node.toml").display().to_string();
    let command = xdfs(
        folder,
        &["gridftp", "data-node", "--log=debug", "--config", &config],
    );
    let node = Guard::spawn(&mut machines.on(machine, &command)).unwrap();
    let key = node.line(PATIENCE, |line| {
        Some(line.strip_prefix("fingerprint ")?.to_owned())
    });
    let key = key.unwrap_or_else(|| panic!("the node did not start: {:?}", node.output()));
    (node, key)
}

#[test]
fn stripes_go_by_machines_of_their_own_until_one_is_cut_off() {
    if !has_globus() {
        return;
    }
    let Some(machines) = Machines::new(&MACHINES) else {
        return;
    };
    let place = TempTree::new(320).unwrap();
    for name in ["root", "here", "server"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let server_folder = place.join("server");
    let nobody = format!("SHA256:{}", "A".repeat(43));
    // Its key is made by a data node that nobody uses.
    let (_, server_key) = node(&machines, "server", &server_folder, &nobody);
    let mut nodes = Vec::new();
    let mut tables = String::new();
    for (machine, last) in [("node0", 11), ("node1", 12)] {
        let (guard, key) = node(&machines, machine, &place.join(machine), &server_key);
        nodes.push(guard);
        tables += &format!("[[gridftp.node]]\naddress = \"10.77.0.{last}\"\nkey = \"{key}\"\n");
    }
    let text = fs::read_to_string(server_folder.join("node.toml")).unwrap();
    let text = text.split("[gridftp").next().unwrap().to_owned();
    let config = server_folder.join("xdfs.toml");
    fs::write(
        &config,
        format!("{text}[gridftp]\nlisten = \"10.77.0.1:2811\"\n{tables}"),
    )
    .unwrap();
    let config = config.display().to_string();
    let serve = [
        "serve",
        "--log=debug",
        "--listen=10.77.0.1:2799",
        "--config",
        &config,
    ];
    let mut serve = machines.on("server", &xdfs(&server_folder, &serve));
    let server = Guard::spawn(&mut serve).unwrap();
    let is_up = |line: &str| line.strip_prefix("GridFTP on ").map(|_| ());
    assert!(
        server.line(PATIENCE, is_up).is_some(),
        "{:?}",
        server.output()
    );
    let by_client = |command: &Command| run(&mut machines.on("client", command));
    let url = |name: &str| format!("ftp://10.77.0.1:2811/data/{name}");
    let here = |name: &str| place.join("here").join(name);
    for flags in [&["-stripe"][..], &["-stripe", "-p", "4"]] {
        let wanted = Stage::make(&here("big"), 9_000_000);
        by_client(copy(flags).args([&file_url(&here("big")), &url("big")]));
        assert_bytes(&place.join("root/big"), &wanted);
        by_client(copy(flags).args([&url("big"), &file_url(&here("back"))]));
        assert_bytes(&here("back"), &wanted);
    }
    for node in &nodes {
        let is_one = |line: &&String| line.contains("request=");
        assert_eq!(node.output().iter().filter(is_one).count(), 6);
    }
    // A download that is too large to have come before the cable is pulled.
    let file = fs::File::create(place.join("root/huge")).unwrap();
    file.set_len(200 << 30).unwrap();
    let mut command = copy(&["-stripe", "-dbg"]);
    command.args([&url("huge"), "file:///dev/null"]);
    let mut copying = Guard::spawn(&mut machines.on("client", &command)).unwrap();
    let begins = |line: &str| line.contains("=send ").then_some(());
    assert!(
        nodes[1]
            .line(PATIENCE, |line| {
                let is_it = line.contains("huge") || line.contains("104, 117, 103, 101");
                begins(line).filter(|()| is_it)
            })
            .is_some()
    );
    machines.cut_off("node1");
    let cut_off = Instant::now();
    // The tool itself may wait for the node for longer.
    let refused = |line: &str| {
        let is_it = line.starts_with("426") && line.contains("10.77.0.12");
        is_it.then_some(())
    };
    let said = copying.line(PATIENCE, refused);
    assert!(
        said.is_some(),
        "{:?} {:?}",
        copying.output(),
        server.output()
    );
    copying.kill().unwrap();
    // Nor does the node go on without its server.
    let ends = |line: &str| {
        let is_it = line.contains("link ends") && line.contains("error");
        is_it.then_some(())
    };
    assert!(nodes[1].line(PATIENCE, ends).is_some());
    assert!(
        cut_off.elapsed() < Duration::from_secs(45),
        "{:?}",
        cut_off.elapsed()
    );
    // The other one is left.
    let back = here("after");
    by_client(copy(&["-stripe"]).args([&url("big"), &file_url(&back)]));
    assert_bytes(&back, &fs::read(place.join("root/big")).unwrap());
}
