//! Stripes with the client: over the data nodes of real servers, and from servers that lie about
//! them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, Talk, block, content, header};
use crate::ftps;
use crate::nodes::Cluster;
use crate::places::xdfs;
use crate::relay::Relay;
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, names, outcome, run};
use crate::tools::has_globus;

pub(crate) const EXTENDED: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
/// Bytes of a file that gets all data connections.
pub(crate) const LARGE: usize = 20_000_001;
/// Bytes of which each node has more than sockets and programs hold on the way.
const LONG: usize = 180_000_001;
/// The data nodes of the tests are at addresses of their own.
const STRIPED: [&str; 4] = [
    "cp",
    "--insecure",
    "--stripe",
    "--stripe-nodes=127.0.0.0/30",
];

/// Copies, and returns what the program printed.
#[track_caller]
fn copy(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    run(&mut xdfs(stage, &[&STRIPED, flags, &[from, to]].concat()))
}

/// Copies, and returns what the program printed; fails if it succeeds.
#[track_caller]
fn fails(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    let words = [&STRIPED, flags, &["--retries=0", from, to]].concat();
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    assert!(!succeeded, "{text}");
    text
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The server of the Globus tools with two data nodes.
pub(crate) struct GlobusCluster {
    /// The data nodes, and behind them the server itself.
    servers: Vec<Guard>,
    /// Of the nodes.
    logs: Vec<PathBuf>,
    address: String,
}

/// A server of the Globus tools, and where it listens.
#[track_caller]
fn globus_server(command: &mut Command) -> (Guard, String) {
    // It looks for its own files by this path.
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .args(["-port", "0", "-log-level", "ALL"]);
    if rustix::process::geteuid().is_root() {
        command.arg("-allow-root");
    }
    let server = Guard::spawn(command).unwrap();
    let address = |line: &str| {
        let address = line.strip_prefix("Server listening at ")?;
        Some(address.trim().to_owned())
    };
    let Some(address) = server.line(PATIENCE, address) else {
        panic!("the server did not start: {:?}", server.output());
    };
    (server, address)
}

impl GlobusCluster {
    /// With anonymous users.
    #[track_caller]
    pub(crate) fn start(place: &Path) -> Option<Self> {
        Self::start_with(place, |command, _| {
            command.arg("-aa");
            if rustix::process::geteuid().is_root() {
                command.args(["-anonymous-user", "root"]);
            }
        })
    }

    /// With what `set` adds to each command; it is told whether that is one of a data node.
    #[track_caller]
    fn start_with(place: &Path, set: impl Fn(&mut Command, bool)) -> Option<Self> {
        if !has_globus() || !crate::stage::has("globus-gridftp-server") {
            xdfs_testkit::skip::test("globus-gridftp-server is not installed");
            return None;
        }
        let (mut servers, mut addresses, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        for host in ["127.0.0.2", "127.0.0.3"] {
            let log = place.join(host);
            let mut command = Command::new("globus-gridftp-server");
            command
                .args(["-dn", "-control-interface", host])
                .args(["-data-interface", host, "-l"])
                .arg(&log);
            set(&mut command, true);
            let (node, address) = globus_server(&mut command);
            servers.push(node);
            addresses.push(address);
            logs.push(log);
        }
        let mut command = Command::new("globus-gridftp-server");
        command.args([
            "-control-interface",
            "127.0.0.1",
            "-r",
            &addresses.join(","),
        ]);
        set(&mut command, false);
        let (server, address) = globus_server(&mut command);
        servers.push(server);
        let port = address.rsplit(':').next().unwrap().to_owned();
        Some(Self {
            servers,
            logs,
            address: format!("127.0.0.1:{port}"),
        })
    }

    pub(crate) fn url(&self, path: &Path) -> String {
        format!("ftp://{}/{}", self.address, path.display())
    }

    /// Kills the processes in which the second node serves transfers. Returns how many there were.
    fn kill_transfers(&self) -> usize {
        let parent = self.servers[1].id().to_string();
        let children = Command::new("pgrep")
            .args(["-P", &parent])
            .output()
            .unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let pids = children.lines().map(|line| line.parse().unwrap());
        let killed = pids.filter(|pid| {
            let pid = rustix::process::Pid::from_raw(*pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
        });
        killed.count()
    }

    /// Waits until so many files were moved, and fails unless the first node, which tells its bytes
    /// of each, has had a part of them.
    #[track_caller]
    pub(crate) fn moved(&self, files: usize) {
        let said = || {
            let logs = self.logs.iter().map(fs::read_to_string);
            logs.map(Result::unwrap_or_default).collect::<String>()
        };
        let bytes = |line: &str| {
            let number = line.split(" NBYTES=").nth(1)?;
            number.split(' ').next()?.parse::<usize>().ok()
        };
        let told = || {
            let said = said();
            let files = said.lines().filter(|line| !line.contains(" TYPE=MLSD "));
            files.filter_map(bytes).collect::<Vec<_>>()
        };
        assert!(
            wait::until(PATIENCE, || told().len() == files),
            "{}",
            said()
        );
        let is_part = |bytes: &usize| (LARGE / 10..LARGE / 10 * 9).contains(bytes);
        assert!(told().iter().all(is_part), "{:?}", told());
    }
}

#[test]
fn files_go_over_the_nodes_of_xdfs_both_ways() {
    let cluster = Cluster::open(800, 2, "");
    let stage = &cluster.stage;
    let mut moved = 0;
    for (number, flags) in [
        &[][..],
        &["-n", "1"],
        &["-n", "3", "--stripe-block-size", "64K"],
        // More in all than a transfer may have.
        &["-n", "64"],
    ]
    .into_iter()
    .enumerate()
    {
        for bytes in [0, 1, LARGE] {
            let name = format!("{number}-{bytes}");
            let wanted = Stage::make(&stage.here(&name), bytes);
            let there = stage.url(&format!("//data/{name}"));
            copy(stage, flags, &text(&stage.here(&name)), &there);
            assert_bytes(&stage.root(&name), &wanted);
            let back = stage.here(&format!("{name}.back"));
            copy(stage, flags, &there, &text(&back));
            assert_bytes(&back, &wanted);
        }
        moved += 1;
    }
    // Files below 1 MiB are sent by the server.
    cluster.assert_requests("=send ", &[moved, moved]);
    cluster.assert_requests("=store ", &[3 * moved, 3 * moved]);
    // A part, from both sides.
    let wanted = fs::read(stage.root(&format!("0-{LARGE}"))).unwrap();
    let part = ["--offset=1000", "--length=15000001"];
    let there = stage.url(&format!("//data/0-{LARGE}"));
    copy(stage, &part, &there, &text(&stage.here("part")));
    assert_bytes(&stage.here("part"), &wanted[1000..15_001_001]);
    let here = text(&stage.here(&format!("0-{LARGE}")));
    copy(stage, &part, &here, &stage.url("//data/part"));
    assert_bytes(&stage.root("part"), &wanted[1000..15_001_001]);
    assert!(names(stage).iter().all(|name| !name.starts_with('.')));
}

#[test]
fn trees_and_lists_are_striped_too() {
    let cluster = Cluster::open(801, 2, "");
    let stage = &cluster.stage;
    let tree = stage.here("tree");
    for (name, bytes) in [
        ("a", 100),
        ("empty", 0),
        ("sub/big", LARGE),
        ("sub/deep/c", 2 << 20),
    ] {
        Stage::make(&tree.join(name), bytes);
    }
    copy(stage, &["-r"], &text(&tree), &stage.url("//data/"));
    assert_same_tree(&tree, &stage.root("tree"));
    let before = cluster.requests("=store ");
    assert!(before.iter().all(|count| *count >= 4), "{before:?}");
    // A listing doesn't have the files after it sent by the server alone.
    let back = text(&stage.here("back"));
    let flags = ["-r", "-n", "1"];
    copy(stage, &flags, &stage.url("//data/tree"), &back);
    assert_same_tree(&tree, &stage.here("back"));
    cluster.assert_requests("=send ", &[2, 2]);
    let list = format!(
        "{} {}\n{} {}\n",
        stage.url("//data/tree/sub/big"),
        text(&stage.here("one")),
        text(&tree.join("sub/big")),
        stage.url("//data/two"),
    );
    fs::write(stage.here("list"), list).unwrap();
    let list = text(&stage.here("list"));
    run(&mut xdfs(
        stage,
        &[&STRIPED[..], &["--from-file", &list]].concat(),
    ));
    let wanted = fs::read(tree.join("sub/big")).unwrap();
    assert_bytes(&stage.here("one"), &wanted);
    assert_bytes(&stage.root("two"), &wanted);
    cluster.assert_requests("=send ", &[3, 3]);
}

#[test]
fn files_go_over_the_nodes_of_globus_both_ways() {
    let stage = Stage::open(802, &[]);
    let Some(globus) = GlobusCluster::start(&stage.here("")) else {
        return;
    };
    let folder = stage.beside("globus");
    fs::create_dir(&folder).unwrap();
    let mut moved = 0;
    for (number, flags) in [&[][..], &["-n", "1", "--stripe-block-size=256K"]]
        .into_iter()
        .enumerate()
    {
        let wanted = Stage::make(&stage.here("big"), LARGE);
        let there = folder.join(number.to_string());
        copy(
            &stage,
            flags,
            &text(&stage.here("big")),
            &globus.url(&there),
        );
        assert_bytes(&there, &wanted);
        moved += 1;
        globus.moved(moved);
        let back = stage.here(&format!("back{number}"));
        copy(&stage, flags, &globus.url(&there), &text(&back));
        assert_bytes(&back, &wanted);
        moved += 1;
        globus.moved(moved);
    }
    // Listings and files take turns.
    let tree = stage.here("tree");
    for (name, bytes) in [
        ("a", 100),
        ("empty", 0),
        ("sub/big", LARGE),
        ("sub/c", 1 << 20),
    ] {
        Stage::make(&tree.join(name), bytes);
    }
    copy(
        &stage,
        &["-r"],
        &text(&tree),
        &globus.url(&folder.join("tree")),
    );
    assert_same_tree(&tree, &folder.join("tree"));
    let back = text(&stage.here("again"));
    copy(
        &stage,
        &["-r", "-n1"],
        &globus.url(&folder.join("tree")),
        &back,
    );
    assert_same_tree(&tree, &stage.here("again"));
}

#[test]
fn stripes_go_straight_from_nodes_to_nodes() {
    let cluster = Cluster::open(803, 2, "third_party = true");
    let stage = &cluster.stage;
    let Some(globus) = GlobusCluster::start(&stage.here("")) else {
        return;
    };
    let wanted = Stage::make(&stage.root("ours"), LARGE);
    let theirs = stage.beside("theirs");
    let direct = ["--between=direct", "-n", "2"];
    copy(
        stage,
        &direct,
        &stage.url("//data/ours"),
        &globus.url(&theirs),
    );
    assert_bytes(&theirs, &wanted);
    cluster.assert_requests("=send ", &[1, 1]);
    globus.moved(1);
    let blocks = [&direct[..], &["--stripe-block-size=128K"]].concat();
    copy(
        stage,
        &blocks,
        &globus.url(&theirs),
        &stage.url("//data/back"),
    );
    assert_bytes(&stage.root("back"), &wanted);
    cluster.assert_requests("=store ", &[1, 1]);
    globus.moved(2);
    // Through this machine.
    let relay = ["--between=client"];
    copy(
        stage,
        &relay,
        &globus.url(&theirs),
        &stage.url("//data/through"),
    );
    assert_bytes(&stage.root("through"), &wanted);
    cluster.assert_requests("=store ", &[2, 2]);
    globus.moved(3);
    // No data goes from one server to a third host.
    let unnamed = [
        "cp",
        "--insecure",
        "--stripe",
        "--retries=0",
        "--between=direct",
    ];
    let (from, to) = (globus.url(&theirs), stage.url("//data/never"));
    let (succeeded, said) = outcome(&mut xdfs(stage, &[&unnamed[..], &[&from, &to]].concat()));
    assert!(
        !succeeded && said.contains("names 127.0.0.2,127.0.0.3"),
        "{said}"
    );
    assert!(
        said.contains("--stripe-nodes 127.0.0.2,127.0.0.3"),
        "{said}"
    );
    assert!(!stage.root("never").exists());
}

/// Begins to copy a file slowly, and kills a node meanwhile. Returns how the copy ended.
#[track_caller]
fn with_a_node_killed(cluster: &mut Cluster, flags: &[&str]) -> (bool, String) {
    let slowly = ["-v", "-n1", "--limit-rate=80M"];
    let words = [&STRIPED[..], &slowly, flags].concat();
    let mut copying = Guard::spawn(&mut xdfs(&cluster.stage, &words)).unwrap();
    let has_begun = || {
        let all = [cluster.requests("=store "), cluster.requests("=send ")];
        all.contains(&vec![1, 1])
    };
    assert!(wait::until(PATIENCE, has_begun), "{:?}", copying.output());
    std::thread::sleep(Duration::from_millis(200));
    cluster.nodes[1].kill().unwrap();
    let status = copying.wait(PATIENCE).unwrap();
    let said = copying.output().join("\n");
    (status.is_some_and(|status| status.success()), said)
}

#[test]
fn an_upload_begins_anew_without_a_node_that_was_killed() {
    let mut cluster = Cluster::open(804, 2, "");
    let wanted = Stage::make(&cluster.stage.here("big"), LONG);
    let (from, to) = (
        text(&cluster.stage.here("big")),
        cluster.stage.url("//data/big"),
    );
    let (succeeded, said) = with_a_node_killed(&mut cluster, &[&from, &to]);
    assert!(succeeded && said.contains("retry 1"), "{said}");
    assert_bytes(&cluster.stage.root("big"), &wanted);
    assert_eq!(names(&cluster.stage), ["big"]);
}

#[test]
fn a_download_goes_on_without_a_node_that_was_killed() {
    for by_itself in [true, false] {
        let mut cluster = Cluster::open(809, 2, "");
        let wanted = Stage::make(&cluster.stage.root("big"), LONG);
        let relay = Relay::to(&cluster.stage.address);
        let to = cluster.stage.here("big");
        let (url, path) = (relay.url("//data/big"), text(&to));
        if by_itself {
            let (succeeded, said) = with_a_node_killed(&mut cluster, &[&url, &path]);
            assert!(succeeded && said.contains("retry 1"), "{said}");
        } else {
            let flags = ["--retries=0", &url, &path];
            let (succeeded, said) = with_a_node_killed(&mut cluster, &flags);
            assert!(!succeeded && said.contains("closed"), "{said}");
            assert!(!to.exists());
            copy(&cluster.stage, &[], &url, &path);
        }
        assert_bytes(&to, &wanted);
        let rest = relay.take_commands("REST 0-");
        assert!(!rest.is_empty(), "{by_itself}");
    }
}

/// The server then says 500 to everything, until there is a new session, which also removes what
/// has come of an upload. And what it sends by stripes can't begin in the middle.
#[test]
fn a_copy_goes_on_after_globus_has_lost_a_node() {
    let stage = Stage::open(812, &[]);
    let Some(globus) = GlobusCluster::start(&stage.here("")) else {
        return;
    };
    let folder = stage.beside("globus");
    fs::create_dir(&folder).unwrap();
    let wanted = Stage::make(&stage.here("big"), LONG);
    let (there, back) = (folder.join("big"), stage.here("back"));
    let (here, url) = (text(&stage.here("big")), globus.url(&there));
    for (from, to, reached) in [
        (&here, &url, &folder),
        (&url, &text(&back), &stage.here("")),
    ] {
        let slowly = ["-v", "--limit-rate=60M", from, to];
        let words = [&STRIPED[..], &slowly].concat();
        let mut copying = Guard::spawn(&mut xdfs(&stage, &words)).unwrap();
        let has_begun = || {
            let names = fs::read_dir(reached).unwrap().map(Result::unwrap);
            let mut names = names.map(|name| name.file_name());
            names.any(|name| name.as_encoded_bytes()[0] == b'.')
        };
        assert!(wait::until(PATIENCE, has_begun), "{:?}", copying.output());
        std::thread::sleep(Duration::from_millis(500));
        assert!(globus.kill_transfers() > 0);
        // One that had no connection yet is waited for.
        let status = copying.wait(PATIENCE * 2).unwrap();
        let said = copying.output().join("\n");
        assert!(status.is_some_and(|status| status.success()), "{said}");
        assert!(said.contains("retry 1"), "{said}");
    }
    assert_bytes(&there, &wanted);
    assert_bytes(&back, &wanted);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    // A part is refused, once.
    let target = text(&stage.here("part"));
    let part = [
        "cp",
        "-v",
        "--insecure",
        "--stripe",
        "--stripe-nodes=127.0.0.0/30",
    ];
    let part = [&part[..], &["--offset=1000", &url, &target]].concat();
    let (succeeded, said) = outcome(&mut xdfs(&stage, &part));
    assert!(!succeeded && said.contains("leave out --stripe"), "{said}");
    assert!(
        !said.contains("retry 1") && !stage.here("part").exists(),
        "{said}"
    );
}

/// The keys of a protected session don't leave the server, so it is its only node.
#[test]
fn a_protected_server_is_its_only_node() {
    let stage = Stage::with_users(810, "");
    let wanted = Stage::make(&stage.here("big"), LARGE);
    let (authority, password) = (ftps::authority(&stage), ftps::password(&stage));
    let (here, there) = (text(&stage.here("big")), ftps::url(&stage, "big"));
    let back = text(&stage.here("back"));
    let trust = ["--ca", &authority, "--password-file", &password];
    let flags = [&["cp", "--stripe"], &trust[..]].concat();
    for places in [[&here, &there], [&there, &back]] {
        run(&mut xdfs(
            &stage,
            &[&flags[..], &[places[0], places[1]]].concat(),
        ));
    }
    assert_bytes(&stage.root("alice/big"), &wanted);
    assert_bytes(&stage.here("back"), &wanted);
}

/// Data nodes of Globus act for the user, by the proxy that was delegated.
#[cfg(feature = "gsi")]
#[test]
fn nodes_prove_whose_they_are_by_gsi() {
    use crate::grid::{ALICE, Grid, has_tools};
    if !has_tools() {
        return xdfs_testkit::skip::test("the tools of Globus are not installed");
    }
    let stage = Stage::open(811, &[]);
    let grid = Grid::make(&stage.beside(""));
    let user = run(Command::new("id").arg("-un"));
    let map = format!("\"{ALICE}\" {}\n", user.trim());
    fs::write(grid.path("globus-mapfile"), map).unwrap();
    let globus = GlobusCluster::start_with(&stage.here(""), |command, is_node| {
        command
            .env("X509_CERT_DIR", grid.path("certificates"))
            .env("X509_USER_CERT", grid.path("host.pem"))
            .env("X509_USER_KEY", grid.path("host.key"))
            .env("GRIDMAP", grid.path("globus-mapfile"))
            // The addresses of the nodes aren't in the certificate of the host.
            .arg("-no-si");
        if is_node {
            command.args(["-auth-level", "0"]);
        }
    });
    let Some(globus) = globus else {
        return;
    };
    let wanted = Stage::make(&stage.here("big"), LARGE);
    let there = stage.beside("there");
    let port = globus.address.rsplit(':').next().unwrap();
    let url = format!("gsiftp://localhost:{port}/{}", there.display());
    let mut moved = 0;
    for level in ["private", "safe", "clear", "unauthenticated"] {
        let (here, back) = (text(&stage.here("big")), text(&stage.here("back")));
        for places in [[&here, &url], [&url, &back]] {
            let protect = format!("--protect={level}");
            let flags = ["cp", "--force", "-I", "--stripe", &protect];
            let words = [&flags[..], &[places[0], places[1]]].concat();
            // A proof doesn't lead to other addresses.
            let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
            assert!(!succeeded && said.contains("names 127.0.0."), "{said}");
            let named = ["--stripe-nodes=127.0.0.2,127.0.0.3"];
            run(&mut xdfs(&stage, &[&words[..], &named].concat()));
            moved += 1;
            globus.moved(moved);
        }
        assert_bytes(&there, &wanted);
        assert_bytes(&stage.here("back"), &wanted);
        fs::remove_file(&there).unwrap();
    }
}

/// Stripes of a fake server.
type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

fn host_port(address: SocketAddr) -> String {
    let (ip, port) = (address.ip().to_string(), address.port());
    format!("{},{},{}", ip.replace('.', ","), port / 256, port % 256)
}

/// A server that tells `spas` to SPAS and does `act` for RETR, with the addresses of SPOR or PORT.
fn sender(spas: &str, act: impl Fn(&mut Talk, &[SocketAddr]) + Send + Sync + 'static) -> Fake {
    let spas = spas.to_owned();
    let told = Addresses::default();
    Fake::start(EXTENDED, move |verb, argument, talk| {
        match verb {
            "SPAS" => drop(talk.say(&spas)),
            "SPOR" => {
                let address = |text: &str| {
                    let numbers: Vec<u16> = text.split(',').map(|n| n.parse().unwrap()).collect();
                    SocketAddr::from(([127, 0, 0, 1], numbers[4] << 8 | numbers[5]))
                };
                *told.lock().unwrap() = argument.split(' ').map(address).collect();
                talk.say("200 fine\r\n");
            }
            "RETR" => {
                let addresses = told.lock().unwrap().clone();
                act(talk, &addresses);
            }
            _ => return false,
        }
        true
    })
}

/// The reply to SPAS with so many addresses of the server.
fn stripes(count: u16) -> String {
    let line = |n: u16| format!(" 127,0,0,1,200,{n}\r\n");
    let lines: String = (1..=count).map(line).collect();
    format!("229-here\r\n{lines}229 End\r\n")
}

#[test]
fn what_servers_say_about_stripes_is_checked() {
    let stage = Stage::open(805, &[]);
    fs::write(stage.here("up"), content()).unwrap();
    let many: String = (0..10_000)
        .map(|n| format!(" 127,0,0,1,{},{}\r\n", 4 + n / 256, n % 256))
        .collect();
    let foreign = "229-x\r\n 127,0,0,1,200,1\r\n 192,0,2,1,200,1\r\n229 End\r\n";
    for (spas, cause) in [
        (foreign, "names 192.0.2.1"),
        (&format!("229-x\r\n{many}229 End\r\n"), "10000 addresses"),
        ("229-x\r\n what is this\r\n229 End\r\n", "'what is this'"),
        ("229-x\r\n 127,0,0,1,0,0\r\n229 End\r\n", "is no address"),
        (
            "229-x\r\n 127,0,0,1,3,255\r\n229 End\r\n",
            "is no address for data",
        ),
        (
            "229-x\r\n 0,0,0,0,9,9\r\n229 End\r\n",
            "is no address for data",
        ),
        (
            "229-x\r\n 127,0,0,1,9,9\r\n 127,0,0,1,9,9\r\n229 End\r\n",
            "twice",
        ),
        (
            "229 Entering Extended Passive Mode (|||9|)\r\n",
            "has no address",
        ),
        ("229-x\r\n229 End\r\n", "has no address"),
        ("500 what\r\n", "has no stripes"),
        ("502 what\r\n", "leave out --stripe"),
    ] {
        let fake = sender(spas, |_, _| {});
        let (url, down) = (fake.url("/f"), text(&stage.here("down")));
        let said = fails(&stage, &[], &url, &down);
        assert!(said.contains(cause), "{cause}: {said}");
        let said = fails(&stage, &["--force", "-I"], &text(&stage.here("up")), &url);
        assert!(said.contains(cause), "{cause}: {said}");
        if cause != "leave out --stripe" {
            assert!(said.contains(&fake.address.to_string()), "{said}");
        }
        // And no other server is told about it.
        let other = sender(&stripes(1), |_, _| {});
        let direct = ["--force", "-I", "--between=direct"];
        let said = fails(&stage, &direct, &other.url("/f"), &url);
        assert!(said.contains(cause), "{cause}: {said}");
        let told = |fake: &Fake, verb: &str| {
            let commands = fake.commands();
            commands.iter().any(|command| command.starts_with(verb))
        };
        assert!(!told(&other, "PORT") && !told(&other, "SPOR") && !other.was_read());
        assert!(!told(&fake, "STOR") && !fake.was_read());
        assert!(!stage.here("down").exists());
    }
    // A server that can't send to several addresses isn't asked to send to one.
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        match verb {
            "SPAS" => talk.say(&stripes(2)),
            "SPOR" => talk.say("500 what\r\n"),
            _ => return false,
        };
        true
    });
    let other = sender(&stripes(2), |_, _| {});
    let (down, there) = (text(&stage.here("down")), other.url("/g"));
    for target in [&down, &there] {
        let said = fails(&stage, &["--force", "-I"], &fake.url("/f"), target);
        assert!(said.contains("has no stripes"), "{said}");
        assert!(said.contains(&fake.address.to_string()), "{said}");
    }
    assert!(!fake.was_read() && !stage.here("down").exists());
    // A server without MODE E isn't used in another way.
    let fake = Fake::start(" MLST Type*;Size*;Modify*;\r\n", |verb, _, talk| {
        let is_mode = verb == "MODE";
        if is_mode {
            talk.say("504 no\r\n");
        }
        is_mode
    });
    let said = fails(&stage, &[], &fake.url("/f"), &text(&stage.here("down")));
    assert!(said.contains("has no stripes"), "{said}");
    assert!(!fake.was_read());
    // Nor is one of another protocol, to which trees go. Each pair of a list, and each source.
    let (up, list) = (text(&stage.here("up")), text(&stage.here("list")));
    let said = fails(&stage, &["-r"], &text(&stage.here("")), "ssh://localhost/d");
    let lacking = "only servers of GridFTP have stripes";
    assert!(said.contains(lacking), "{said}");
    fs::write(&list, format!("{up} ssh://localhost/x\n")).unwrap();
    let words = [&STRIPED[..], &["--from-file", &list]].concat();
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && said.contains(lacking), "{said}");
    let both = [&fake.url("/f"), &up, &text(&stage.here(""))];
    let both = both.map(String::as_str);
    let (succeeded, said) = outcome(&mut xdfs(&stage, &[&STRIPED[..], &both].concat()));
    assert!(!succeeded && said.contains(lacking), "{said}");
    let most = i64::MAX as u64 + 1;
    let block = format!("--stripe-block-size={most}");
    let said = fails(
        &stage,
        &[&block],
        &fake.url("/f"),
        &text(&stage.here("down")),
    );
    assert!(said.contains("no file has so many bytes"), "{said}");
}

/// Sends blocks to an address.
fn sent(to: SocketAddr, pieces: &[Vec<u8>]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    // The client may have had enough.
    let _ = stream.write_all(&pieces.concat());
    stream
}

#[test]
fn a_file_of_stripes_is_whole_or_none() {
    let stage = Stage::open(806, &[]);
    let all = content();
    let (first, second) = all.split_at(600);
    let end = |count| header(0x48, 0, count);
    let (first, second) = (block(0, 0, first), block(0, 600, second));
    type Pieces = Vec<(usize, Vec<Vec<u8>>)>;
    let cases: Vec<(&str, Pieces, &str)> = vec![
        // By address, and what comes over each connection to it.
        (
            "whole",
            vec![
                (0, vec![first.clone(), end(1)]),
                (1, vec![second.clone(), end(1)]),
            ],
            "",
        ),
        (
            "two to an address",
            vec![
                (0, vec![first.clone(), end(2)]),
                (0, vec![header(8, 0, 0)]),
                (1, vec![second.clone(), end(1)]),
            ],
            "",
        ),
        (
            "one of them has ended too early",
            vec![
                (0, vec![first.clone(), end(2)]),
                (1, vec![second.clone(), end(1)]),
            ],
            "nothing came",
        ),
        (
            "a node has closed it",
            vec![
                (0, vec![first.clone(), end(1)]),
                (1, vec![second[..50].to_vec()]),
            ],
            "closed",
        ),
        (
            "too many ends",
            vec![
                (0, vec![first.clone(), end(1)]),
                (1, vec![second.clone(), end(1), header(8, 0, 0)]),
                (1, vec![header(8, 0, 0)]),
            ],
            "more EODs",
        ),
        (
            "ends that disagree",
            vec![
                (0, vec![first.clone(), end(1)]),
                (1, vec![second.clone(), header(0x40, 0, 3)]),
                (1, vec![end(2)]),
            ],
            "different numbers",
        ),
        (
            "a stripe is missing",
            vec![(0, vec![first.clone(), end(1)]), (1, vec![end(1)])],
            "before its size",
        ),
        (
            "a stripe comes twice",
            vec![
                (0, vec![first.clone(), end(1)]),
                (1, vec![first.clone(), end(1)]),
            ],
            "came twice",
        ),
        (
            "a node never connects",
            vec![(0, vec![first, end(1)])],
            "nothing came",
        ),
    ];
    let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    for (case, pieces, cause) in cases {
        let kept = Arc::clone(&open);
        let fake = sender(&stripes(2), move |talk, addresses| {
            assert_eq!(addresses.len(), 2);
            talk.say("150 now\r\n");
            let mut streams = Vec::new();
            for (at, pieces) in &pieces {
                streams.push(sent(addresses[*at], pieces));
            }
            match cause {
                "" => drop(talk.say("226 done\r\n")),
                // It says so once it has waited.
                "nothing came" => drop(talk.say("426 nothing came of a data node\r\n")),
                "closed" => streams.clear(),
                _ => drop(talk.say("226 done\r\n")),
            }
            // They stay open.
            kept.lock().unwrap().extend(streams);
        });
        let down = stage.here("down");
        let (url, path) = (fake.url("/f"), text(&down));
        let words = [&STRIPED[..], &["--retries=0", &url, &path]].concat();
        let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
        assert_eq!(succeeded, cause.is_empty(), "{case}: {said}");
        assert!(said.contains(cause), "{case}: {said}");
        let names_node = said.contains("(data node 127.0.0.1:");
        assert!(cause != "closed" || names_node, "{case}: {said}");
        assert_eq!(succeeded, down.exists(), "{case}");
        if succeeded {
            assert_bytes(&down, &all);
            fs::remove_file(&down).unwrap();
        }
    }
}

/// A connection from another address than the server's.
fn from_elsewhere(to: &SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let own: SocketAddr = "127.0.0.9:0".parse().unwrap();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &own).unwrap();
    connect(&socket, to).unwrap();
    TcpStream::from(socket)
}

/// Whoever passes by can't end a copy for good, nor have itself named.
#[test]
fn a_passer_by_explains_nothing() {
    let stage = Stage::open(813, &[]);
    for at in [0, 1] {
        let open = Mutex::new(Vec::new());
        let fake = sender(&stripes(2), move |talk, addresses| {
            drop(from_elsewhere(&addresses[at]));
            talk.say("150 now\r\n");
            let half = block(0, 0, &content()[..600]);
            open.lock().unwrap().push(sent(addresses[0], &[half]));
            std::thread::sleep(Duration::from_millis(100));
            talk.say("426 lost\r\n");
        });
        let (url, down) = (fake.url("/f"), text(&stage.here("down")));
        let words = [&STRIPED[..3], &["-v", "--retries=1", &url, &down]].concat();
        let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && said.contains("lost"), "{said}");
        let commands = fake.commands();
        let asked = commands
            .iter()
            .filter(|command| command.starts_with("RETR"));
        assert_eq!(asked.count(), 2, "{said}");
        // Where another one has come, it wasn't a node that was refused.
        assert_eq!(said.contains("--stripe-nodes"), at == 1, "{said}");
        assert!(!said.contains("--stripe-nodes 127"), "{said}");
    }
}

/// Connections from others aren't taken, and the failure tells what to do.
#[test]
fn data_of_another_host_needs_its_name() {
    let stage = Stage::open(807, &[]);
    let fake = |end: &'static str| {
        let open = Mutex::new(Vec::new());
        sender(&stripes(2), move |talk, addresses| {
            let all = content();
            let pieces = [block(0, 0, &all[..600]), block(0, 600, &all[600..])];
            talk.say("150 now\r\n");
            for (address, piece) in addresses.iter().zip(pieces) {
                let mut stream = from_elsewhere(address);
                // It may be refused.
                let _ = stream.write_all(&[piece, header(0x48, 0, 1)].concat());
                open.lock().unwrap().push(stream);
            }
            talk.say(end);
        })
    };
    let down = text(&stage.here("down"));
    let plain = [
        "cp",
        "--insecure",
        "--stripe",
        &fake("426 lost\r\n").url("/f"),
        &down,
    ];
    // It isn't tried again and again.
    let (succeeded, said) = outcome(&mut xdfs(&stage, &plain));
    let explains = said.contains("data connections from 127.0.0.9 were refused");
    assert!(!succeeded && explains, "{said}");
    assert!(said.contains("--stripe-nodes names it"), "{said}");
    assert!(!stage.here("down").exists());
    let named = ["--insecure", "--stripe", "--stripe-nodes", "127.0.0.9"];
    let url = fake("226 done\r\n").url("/f");
    run(&mut xdfs(
        &stage,
        &[&["cp"], &named[..], &[&url, &down]].concat(),
    ));
    assert_bytes(&stage.here("down"), &content());
}

/// An upload to a server whose second data node does `act` with its connection.
fn upload(stage: &Stage, act: fn(TcpStream)) -> (bool, String) {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let lines = listeners.each_ref().map(|own| {
        let address = own.local_addr().unwrap();
        format!(" {}\r\n", host_port(address))
    });
    let listeners = Mutex::new(listeners.map(Some));
    let fake = Fake::start(EXTENDED, move |verb, _, talk| {
        match verb {
            "SPAS" => drop(talk.say(&format!("229-x\r\n{}229 End\r\n", lines.concat()))),
            "STOR" => {
                let taken = listeners.lock().unwrap().each_mut().map(Option::take);
                let [Some(first), Some(second)] = taken else {
                    talk.say("450 once only\r\n");
                    return true;
                };
                talk.say("150 go\r\n");
                act(second.accept().unwrap().0);
                let (mut stream, _) = first.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut seen = Vec::new();
                let _ = stream.read_to_end(&mut seen);
                talk.say("426 a data node is lost\r\n");
            }
            "MLST" => drop(talk.say("550 No such file or directory\r\n")),
            "DELE" => drop(talk.say("250 gone\r\n")),
            "ABOR" => drop(talk.say("226 fine\r\n")),
            _ => return false,
        }
        true
    });
    let (from, url) = (text(&stage.here("up")), fake.url("/f"));
    let words = [&STRIPED[..], &["--retries=0", &from, &url]].concat();
    let ended = outcome(&mut xdfs(stage, &words));
    let commands = fake.commands();
    let has = |verb: &str| commands.iter().any(|command| command.starts_with(verb));
    // Nothing of it gets the name.
    assert!(!has("RNTO") && has("DELE"), "{commands:?}");
    ended
}

#[test]
fn an_upload_names_the_node_that_has_closed_its_connection() {
    let stage = Stage::open(808, &[]);
    Stage::make(&stage.here("up"), LARGE);
    let (succeeded, said) = upload(&stage, drop);
    assert!(!succeeded && said.contains("data node"), "{said}");
    // One that reads a while.
    let (succeeded, said) = upload(&stage, |mut stream| {
        let mut piece = vec![0; 1 << 20];
        stream.read_exact(&mut piece).unwrap();
    });
    assert!(!succeeded && said.contains("data node"), "{said}");
    // Nobody listens.
    let fake = sender(&stripes(2), |_, _| {});
    let url = fake.url("/g");
    let said = fails(&stage, &["--force"], &text(&stage.here("up")), &url);
    assert!(said.contains("127.0.0.1:5120"), "{said}");
}
