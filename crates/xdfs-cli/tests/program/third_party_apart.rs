//! Copies between two servers that not every machine reaches, by what passes the client's links.

use std::fs;

use xdfs_testkit::machines::Machines;

use crate::support::{Place, Server, assert_content, content, program};

/// Bytes of the file: enough for what two sessions say to be less than a hundredth of it.
const SIZE: usize = 20_000_000;
/// Files of the tree, and bytes of each and of all. The client gets some hundred bytes for each.
const FILES: usize = 1000;
const FILE_SIZE: usize = 20_000;
const TREE_SIZE: usize = FILES * FILE_SIZE;

/// Two servers and a client on one network. The client has a cable of its own to each server, with
/// addresses that the other one doesn't reach: as that of a machine behind NAT with a forwarded
/// port.
#[test]
fn servers_behind_nat_connect_outwards_and_the_client_helps_if_both_are() {
    let machines = [("a", 1), ("b", 2), ("client", 3)];
    let Some(machines) = Machines::new(&machines) else {
        return;
    };
    machines.connect(["a", "client"], 78);
    machines.connect(["b", "client"], 79);
    let place = Place::new();
    let serve = |name: &str| {
        let root = place.path().join(name);
        fs::create_dir(&root).unwrap();
        let config = place.here(&format!("{name}.toml"));
        let folder = place.here(&format!("{name}-folder"));
        fs::write(&config, format!("folder = {folder:?}\n")).unwrap();
        let flags = ["--config", &config, "--listen", "0.0.0.0:2799"];
        let flags = [&flags[..], &["--connect-to", "10.0.0.0/8"]].concat();
        Server::start_as(&root, &flags, |serve| machines.on(name, &serve))
    };
    let (_a, _b) = (serve("a"), serve("b"));
    let bytes = content(3, SIZE);
    fs::write(place.path().join("a/file"), &bytes).unwrap();
    fs::create_dir(place.path().join("a/tree")).unwrap();
    for file in 0..FILES {
        let path = place.path().join(format!("a/tree/{file}"));
        fs::write(path, content(file as u64, FILE_SIZE)).unwrap();
    }
    for (number, (source, target, way)) in [
        ("10.77.0.1", "10.77.0.2", "direct"),
        ("10.78.0.1", "10.77.0.2", "direct"),
        ("10.77.0.1", "10.79.0.1", "direct"),
        ("10.78.0.1", "10.79.0.1", "client"),
    ]
    .into_iter()
    .enumerate()
    {
        for (name, flags, size) in [("file", &[][..], SIZE), ("tree", &["-r"], TREE_SIZE)] {
            let mut command = program();
            let from = format!("xdfs://{source}/{name}");
            let to = format!("xdfs://{target}/{name}{number}");
            command
                .args(["cp", "--json"])
                .args(flags)
                .args([&from, &to]);
            let before = machines.bytes("client").unwrap();
            let out = machines.on("client", &command).output().unwrap();
            let passed = machines.bytes("client").unwrap() - before;
            let text = String::from_utf8_lossy(&out.stdout);
            let words = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{from} {to}: {text} {words}");
            let is_way = format!("\"way\":\"{way}\"");
            assert!(text.contains(&is_way), "{from} {to}: {text}");
            let size = size as u64;
            match way {
                "direct" => assert!(passed < size / 100, "{from} {to}: {passed} bytes"),
                _ => assert!(passed > 2 * size, "{from} {to}: {passed} bytes"),
            }
        }
        assert_content(place.path().join(format!("b/file{number}")), &bytes);
        for file in [0, FILES / 2, FILES - 1] {
            let copied = place.path().join(format!("b/tree{number}/{file}"));
            assert_content(copied, &content(file as u64, FILE_SIZE));
        }
    }
}
