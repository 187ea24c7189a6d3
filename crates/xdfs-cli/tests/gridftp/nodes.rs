//! Data nodes: real clients, nodes that die or lie, and ends that have another key.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use xdfs_testkit::process::Guard;
use xdfs_testkit::strangers::Strangers;
use xdfs_testkit::wait;

use crate::client::{Client, EOD, EOF, block, blocks, data, trusting};
use crate::stage::{PASSWORD, PATIENCE, Stage, assert_bytes, names, run};
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
pub(crate) fn node_config(place: &Path, name: &str, root: &Path, more: &str) -> PathBuf {
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

/// The address of a data node and its key, for the settings of a server.
type Named = (String, String);

impl Cluster {
    /// So many nodes, and a server with `more` in its settings.
    #[track_caller]
    pub(crate) fn open(seed: u64, count: usize, more: &str) -> Self {
        let mut nodes = Vec::new();
        let stage = Self::serve(seed, more, |place, server| {
            let start = |number| {
                let (node, address, key) = Self::node(place, number, server);
                nodes.push(node);
                (address, key)
            };
            (0..count).map(start).collect()
        });
        Self { stage, nodes }
    }

    /// A node that obeys the server with this key.
    #[track_caller]
    fn node(place: &Path, number: usize, server: &str) -> (Guard, String, String) {
        let own = format!(
            "[gridftp.data_node]\nlisten = \"127.0.0.{}:0\"\nobeys = [\"{server}\"]\n",
            number + 2
        );
        let root = place.join("root");
        start_node(&node_config(place, &format!("node{number}"), &root, &own))
    }

    /// A server with the nodes that `nodes` makes of the place and of the key of the server.
    #[track_caller]
    fn serve(seed: u64, more: &str, nodes: impl FnOnce(&Path, &str) -> Vec<Named>) -> Stage {
        Stage::prepared(seed, "", |root| {
            let place = root.parent().unwrap();
            let mut text = format!(
                "folder = \"server\"\naudit = \"audit.jsonl\"\n{EXPORT}[gridftp]\n{more}\n"
            );
            for (address, key) in nodes(place, &key_of(place)) {
                text += &format!("[[gridftp.node]]\naddress = \"{address}\"\nkey = \"{key}\"\n");
            }
            let text = text.replace("ROOT", &root.display().to_string());
            fs::write(place.join("xdfs.toml"), text).unwrap();
        })
    }

    /// Asserts how many requests with this verb each node has had. Their logs may be late.
    #[track_caller]
    pub(crate) fn assert_requests(&self, verb: &str, expected: &[usize]) {
        let has_all = || {
            let found = self.requests(verb);
            found.iter().zip(expected).all(|(found, all)| found >= all)
        };
        assert!(wait::until(PATIENCE, has_all), "{:?}", self.requests(verb));
        assert_eq!(self.requests(verb), expected);
    }

    /// The requests with this verb that each node has had, once their logs say nothing more.
    pub(crate) fn requests(&self, verb: &str) -> Vec<usize> {
        let has_it = |line: &&String| line.contains("request=") && line.contains(verb);
        let of = |node: &Guard| node.output().iter().filter(has_it).count();
        let count = || self.nodes.iter().map(of).collect::<Vec<_>>();
        let mut found = count();
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(50));
            let before = std::mem::replace(&mut found, count());
            if before == found {
                break;
            }
        }
        found
    }
}

/// Asks for stripes, and returns their addresses.
#[track_caller]
fn stripes(client: &mut Client) -> Vec<SocketAddr> {
    let text = client.ask("SPAS", 229);
    let address = |line: &str| {
        let line = line.strip_prefix(' ')?;
        let numbers: Vec<u16> = line.split(',').map(|n| n.parse().unwrap()).collect();
        let ip: Vec<u8> = numbers[..4]
            .iter()
            .map(|n| u8::try_from(*n).unwrap())
            .collect();
        let ip: [u8; 4] = ip.try_into().unwrap();
        Some(SocketAddr::from((ip, numbers[4] * 256 + numbers[5])))
    };
    text.lines().filter_map(address).collect()
}

/// A logged-in client in MODE E.
#[track_caller]
fn extended(stage: &Stage) -> Client {
    let mut client = Client::log_in(stage);
    client.ask("TYPE I", 200);
    client.ask("MODE E", 200);
    client
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
        &["-stripe", "-sbs", "65536", "-bs", "65536", "-p", "2"],
        &["-stripe", "-sbs", "0", "-p", "1"],
        &["-fast"],
    ]
    .into_iter()
    .enumerate()
    {
        // The tool itself can't partition what is here.
        let up = if flags.contains(&"0") {
            &["-stripe"]
        } else {
            flags
        };
        for bytes in [0, 1, (1 << 20) + 1, BIG] {
            let name = format!("{number}-{bytes}");
            let wanted = Stage::make(&stage.here(&name), bytes);
            let target = stage.url(&format!("/data/{name}"));
            run(copy(up).args([&file_url(&stage.here(&name)), &target]));
            assert_bytes(&stage.root(&name), &wanted);
            let back = stage.here(&format!("{name}.back"));
            run(copy(flags).args([&target, &file_url(&back)]));
            assert_bytes(&back, &wanted);
        }
    }
    // Large ones go by the nodes; uploads if the client asks for stripes.
    cluster.assert_requests("=send ", &[10, 10]);
    cluster.assert_requests("=store ", &[16, 16]);
    assert!(names(stage).iter().all(|name| !name.starts_with('.')));
    // The server's log has all bytes.
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let has = |kind: &str| {
        let count = |line: &&str| line.contains(kind) && line.contains(&format!("{BIG}"));
        audit.lines().filter(count).count()
    };
    assert_eq!((has("\"upload\""), has("\"download\"")), (5, 5), "{audit}");
}

/// With blocks below its buffers the tool leaves out the end of a file, and tells it all the same.
#[test]
fn an_end_that_was_left_out_is_not_published() {
    if !has_globus() {
        return;
    }
    let cluster = Cluster::open(301, 2, "");
    let stage = &cluster.stage;
    Stage::make(&stage.here("big"), BIG);
    let mut command = copy(&["-stripe", "-sbs", "65536", "-dbg"]);
    command.args([&file_url(&stage.here("big")), &stage.url("/data/big")]);
    let mut running = Guard::spawn(&mut command).unwrap();
    let refused = |line: &str| line.contains("ALLO has told 9000000").then_some(());
    let said = running.line(PATIENCE, refused);
    assert!(said.is_some(), "{:?}", running.output());
    running.kill().unwrap();
    assert!(!stage.root("big").exists());
}

/// Connections that say nothing don't keep its server from a data node.
#[test]
fn strangers_at_a_node_keep_no_server_out() {
    let cluster = Cluster::open(330, 1, "");
    let settings = fs::read_to_string(cluster.stage.beside("xdfs.toml")).unwrap();
    let mut lines = settings.lines();
    let address = lines.find_map(|line| line.strip_prefix("address = \"")?.strip_suffix('"'));
    let address: SocketAddr = address.unwrap().parse().unwrap();
    // More than there are places for.
    let strangers =
        [[127, 0, 0, 11], [127, 0, 0, 12]].map(|from| Strangers::open(from.into(), address, 150));
    if strangers.iter().any(Result::is_err) {
        return xdfs_testkit::skip::test("this machine has one address of its own, or few sockets");
    }
    let mut client = extended(&cluster.stage);
    assert_eq!(stripes(&mut client).len(), 1);
}

#[test]
fn stripes_go_between_servers_both_ways() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let cluster = Cluster::open(302, 2, "third_party = true");
    let stage = &cluster.stage;
    for flags in [&["-stripe"][..], &["-stripe", "-p", "3"]] {
        let wanted = Stage::make(&stage.root("ours"), BIG);
        let theirs = stage.here("theirs");
        run(copy(flags).args([stage.url("/data/ours"), globus.url(&theirs)]));
        assert_bytes(&theirs, &wanted);
        run(copy(flags).args([globus.url(&theirs), stage.url("/data/back")]));
        assert_bytes(&stage.root("back"), &wanted);
        // From stripes to stripes.
        run(copy(flags).args([stage.url("/data/back"), stage.url("/data/again")]));
        assert_bytes(&stage.root("again"), &wanted);
        fs::remove_file(&theirs).unwrap();
        fs::remove_file(stage.root("back")).unwrap();
    }
    cluster.assert_requests("=send ", &[4, 4]);
    cluster.assert_requests("=store ", &[4, 4]);
}

/// A data connection to a stripe, with these blocks and an EOD.
fn send_stripe(address: SocketAddr, pieces: &[(u64, &[u8])]) -> TcpStream {
    let mut stream = data(address);
    for (offset, bytes) in pieces {
        let block = block(0, bytes.len() as u64, *offset, bytes);
        stream.write_all(&block).unwrap();
    }
    stream.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    stream
}

#[test]
fn layouts_say_which_node_has_which_bytes() {
    let cluster = Cluster::open(303, 2, "");
    let stage = &cluster.stage;
    let wanted = Stage::make(&stage.root("big"), 3 << 20);
    for (layout, block_bytes) in [
        ("StripeLayout=Blocked;BlockSize=65536;", 65536),
        ("StripeLayout=Partitioned;", 3 << 19),
    ] {
        let mut client = extended(stage);
        client.ask(&format!("OPTS RETR {layout}Parallelism=2,2,2;"), 200);
        client.ask("REST 0-100,2000000-2000001", 350);
        let listener = client.active();
        client.ask("RETR /data/big", 150);
        let (mut found, mut eofs) = (vec![0; wanted.len()], Vec::new());
        for _ in 0..4 {
            let (mut stream, from) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let node = match from.ip().to_string().as_str() {
                "127.0.0.1" => None,
                other => panic!("{other}"),
            };
            let mut stripe = node;
            for (bits, offset, payload) in blocks(&mut stream) {
                let at = usize::try_from(offset).unwrap();
                if bits & EOF != 0 {
                    eofs.push(offset);
                } else if !payload.is_empty() {
                    let own = at / block_bytes % 2;
                    // All of a connection is of one stripe.
                    assert_eq!(*stripe.get_or_insert(own), own, "{layout} {at}");
                    assert!(at % block_bytes + payload.len() <= block_bytes);
                    found[at..at + payload.len()].copy_from_slice(&payload);
                }
            }
        }
        assert_eq!(eofs, [4], "{layout}");
        client.expect(226);
        found[..100].copy_from_slice(&wanted[..100]);
        found[2_000_000] = wanted[2_000_000];
        assert!(found == wanted, "{layout}");
    }
    // A client can have everything of the server itself.
    let mut client = extended(stage);
    client.ask("OPTS RETR StripeLayout=None;Parallelism=1,1,1;", 200);
    let listener = client.active();
    client.ask("RETR /data/big", 150);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let last = blocks(&mut stream).pop().unwrap();
    assert_eq!((last.0, last.1), (EOF | EOD, 1));
    client.expect(226);
    cluster.assert_requests("=send ", &[2, 2]);
}

#[test]
fn connections_of_nodes_are_used_again_and_given_up_for_a_listing() {
    let cluster = Cluster::open(304, 2, "");
    let stage = &cluster.stage;
    let wanted = Stage::make(&stage.root("big"), 2 << 20);
    let mut client = extended(stage);
    let listener = client.active();
    client.ask("RETR /data/big", 150);
    let accept = || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut streams = [accept(), accept()];
    let take = |streams: &mut [TcpStream; 2]| {
        let mut found = vec![0; wanted.len()];
        for stream in streams {
            for (_, offset, payload) in blocks(stream) {
                // That of an end is something else.
                let at = usize::try_from(offset).unwrap().min(wanted.len());
                found[at..at + payload.len()].copy_from_slice(&payload);
            }
        }
        found
    };
    assert!(take(&mut streams) == wanted);
    client.expect(226);
    client.ask("RETR /data/big", 125);
    assert!(take(&mut streams) == wanted);
    client.expect(226);
    // The server itself has listings, and connects anew.
    client.ask("MLSD /data", 150);
    let mut own = accept();
    assert!(blocks(&mut own).len() > 1);
    client.expect(226);
    for stream in &mut streams {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    // From then on it sends files over this connection too.
    client.ask("RETR /data/big", 125);
    assert!(blocks(&mut own).len() > 1);
    client.expect(226);
    // An upload over connections that stay open.
    let addresses = stripes(&mut client);
    assert_eq!(addresses.len(), 2);
    client.send(b"STOR /data/one\r\n");
    let mut streams = [
        send_stripe(addresses[0], &[(0, b"abc")]),
        send_stripe(addresses[1], &[(3, b"def")]),
    ];
    client.expect(150);
    while client.reply().unwrap().0 != 226 {}
    client.send(b"STOR /data/two\r\n");
    client.expect(125);
    for (stream, at) in streams.iter_mut().zip([0, 1]) {
        stream.write_all(&block(0, 1, at, b"x")).unwrap();
        stream.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    }
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("one"), b"abcdef");
    assert_bytes(&stage.root("two"), b"xx");
    // What nodes don't do is refused there, and is possible by PASV.
    stripes(&mut client);
    let (code, text) = {
        client.send(b"APPE /data/one\r\n");
        client.reply().unwrap()
    };
    assert_eq!(code, 425, "{text}");
    let passive = client.passive();
    client.send(b"APPE /data/one\r\n");
    let _stream = send_stripe(passive, &[(0, b"g")]);
    client.expect(150);
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("one"), b"abcdefg");
}

#[test]
fn an_upload_goes_on_after_a_node_was_killed() {
    let mut cluster = Cluster::open(305, 2, "");
    let stage = &cluster.stage;
    let wanted = Stage::make(&stage.here("big"), 3_000_000);
    fs::write(stage.root("big"), "before").unwrap();
    let mut client = extended(stage);
    let addresses = stripes(&mut client);
    assert_eq!(addresses.len(), 2);
    client.send(b"STOR /data/big\r\n");
    let mut streams: Vec<_> = addresses.iter().map(|own| data(*own)).collect();
    let piece = |start: usize, end: usize| {
        let bytes = &wanted[start..end];
        block(0, bytes.len() as u64, start as u64, bytes)
    };
    streams[0].write_all(&piece(0, 500_000)).unwrap();
    streams[1].write_all(&piece(500_000, 1_000_000)).unwrap();
    client.expect(150);
    let mut told = Vec::new();
    while told.len() < 2 {
        let (code, text) = client.reply().unwrap();
        assert!(code < 200, "{text}");
        if let Some(ranges) = text.strip_prefix("111 Range Marker ") {
            told.push(ranges.to_owned());
        }
    }
    told.sort();
    assert_eq!(told, ["0-500000", "500000-1000000"]);
    let dead = addresses[0].ip().to_string();
    cluster.nodes[0].kill().unwrap();
    let text = loop {
        let (code, text) = client.reply().unwrap();
        if code >= 200 {
            assert_eq!(code, 426, "{text}");
            break text;
        }
    };
    assert!(text.contains(&dead), "{text}");
    let tells = |line: &str| {
        let is_it = line.contains("a transfer by data nodes fails") && line.contains(&dead);
        is_it.then_some(())
    };
    assert!(stage.server.line(PATIENCE, tells).is_some());
    assert_bytes(&stage.root("big"), b"before");
    // The session goes on with the other one.
    let addresses = stripes(&mut client);
    assert_eq!(addresses.len(), 1);
    assert_ne!(addresses[0].ip().to_string(), dead);
    client.ask("REST 0-500000,500000-1000000", 350);
    client.send(b"STOR /data/big\r\n");
    let _stream = send_stripe(addresses[0], &[(1_000_000, &wanted[1_000_000..])]);
    client.expect(150);
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("big"), &wanted);
    assert_eq!(names(stage), ["big"]);
}

#[test]
fn an_upload_that_a_silent_node_may_still_write_is_not_gone_on_with() {
    let cluster = Cluster::open(319, 2, "");
    let stage = &cluster.stage;
    fs::write(stage.root("big"), "before").unwrap();
    let mut client = extended(stage);
    let addresses = stripes(&mut client);
    client.send(b"STOR /data/big\r\n");
    let mut streams: Vec<_> = addresses.iter().map(|own| data(*own)).collect();
    streams[0].write_all(&block(0, 3, 0, b"abc")).unwrap();
    streams[1].write_all(&block(0, 3, 3, b"def")).unwrap();
    client.expect(150);
    let mut told = 0;
    while told < 2 {
        let (code, text) = client.reply().unwrap();
        assert!(code < 200, "{text}");
        told += usize::from(code == 111);
    }
    let signal = |name: &str| {
        let id = cluster.nodes[0].id().to_string();
        run(Command::new("kill").args([name, &id]));
    };
    signal("-STOP");
    // What it would write when it goes on.
    streams[0].write_all(&block(0, 3, 6, b"old")).unwrap();
    client.send(b"ABOR\r\n");
    // While the server waits for it, nobody else has the file.
    let mut other = extended(stage);
    other.passive();
    other.ask("REST 0-3,3-6", 350);
    other.ask("STOR /data/big", 450);
    while client.reply().unwrap().0 != 426 {}
    client.expect(226);
    assert_eq!(names(stage), ["big"]);
    other.ask("REST 0-3,3-6", 350);
    other.ask("STOR /data/big", 554);
    let address = other.passive();
    other.send(b"STOR /data/big\r\n");
    let _stream = send_stripe(address, &[(0, b"abcdefnew")]);
    other.expect(150);
    while other.reply().unwrap().0 != 226 {}
    signal("-CONT");
    let ends = |line: &str| line.contains("a server's link ends").then_some(());
    assert!(cluster.nodes[0].line(PATIENCE, ends).is_some());
    assert_bytes(&stage.root("big"), b"abcdefnew");
    assert_eq!(names(stage), ["big"]);
}

#[test]
fn no_receiver_is_left_without_connections() {
    let cluster = Cluster::open(320, 2, "");
    let stage = &cluster.stage;
    Stage::make(&stage.root("big"), 2 << 20);
    for layout in ["Blocked;BlockSize=65536", "None"] {
        let mut client = extended(stage);
        let options = format!("OPTS RETR StripeLayout={layout};Parallelism=64,64,64;");
        client.ask(&options, 200);
        let any = || TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<_> = (0..5).map(|_| any()).collect();
        let address = |own: &TcpListener| {
            let port = own.local_addr().unwrap().port();
            format!(" 127,0,0,1,{},{}", port / 256, port % 256)
        };
        let addresses: String = listeners.iter().map(address).collect();
        client.ask(&format!("SPOR{addresses}"), 200);
        let receivers: Vec<_> = listeners
            .into_iter()
            .map(|listener| thread::spawn(move || receive_all(&listener)))
            .collect();
        client.ask("RETR /data/big", 150);
        client.expect(226);
        let bytes = receivers.into_iter().map(|own| own.join().unwrap());
        assert_eq!(bytes.sum::<u64>(), 2 << 20, "{layout}");
    }
}

/// Takes connections until as many EODs have come as an EOF tells. Returns the bytes of payload.
fn receive_all(listener: &TcpListener) -> u64 {
    let (mut bytes, mut eods, mut wanted) = (0, 0, None);
    while wanted != Some(eods) {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for (bits, offset, payload) in blocks(&mut stream) {
            bytes += payload.len() as u64;
            eods += u64::from(bits & EOD != 0);
            if bits & EOF != 0 {
                wanted = Some(offset);
            }
        }
    }
    bytes
}

#[test]
fn a_download_names_the_node_that_was_killed() {
    let mut cluster = Cluster::open(306, 2, "");
    let stage = &cluster.stage;
    // More than sockets hold.
    let file = fs::File::create(stage.root("big")).unwrap();
    file.set_len(400 << 20).unwrap();
    let mut client = extended(stage);
    let listener = client.active();
    client.ask("RETR /data/big", 150);
    let _streams = [listener.accept().unwrap(), listener.accept().unwrap()];
    cluster.nodes[1].kill().unwrap();
    let text = client.expect(426);
    assert!(text.contains("127.0.0.3"), "{text}");
    Stage::make(&stage.root("small"), 2 << 20);
    let listener = client.active();
    client.ask("RETR /data/small", 150);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    blocks(&mut stream);
    client.expect(226);
}

#[test]
fn a_client_that_goes_away_leaves_nothing_at_nodes() {
    let cluster = Cluster::open(307, 1, "");
    let stage = &cluster.stage;
    let mut client = extended(stage);
    let addresses = stripes(&mut client);
    client.send(b"STOR /data/big\r\n");
    let mut stream = data(addresses[0]);
    stream.write_all(&block(0, 5, 0, b"abc")).unwrap();
    client.expect(150);
    drop(client);
    // The node closes the connection in the middle of a block.
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    let is_gone = || names(stage).is_empty();
    assert!(wait::until(PATIENCE, is_gone), "{:?}", names(stage));
}

#[test]
fn an_end_with_another_key_is_left_out() {
    for wrong_server in [false, true] {
        let mut nodes = Vec::new();
        let stage = Cluster::serve(308, "", |place, server| {
            let nobody = format!("SHA256:{}", "A".repeat(43));
            let obeys = if wrong_server { &*nobody } else { server };
            let (node, address, key) = Cluster::node(place, 0, obeys);
            nodes.push(node);
            vec![(address, if wrong_server { key } else { nobody })]
        });
        let wanted = Stage::make(&stage.root("big"), 2 << 20);
        let mut client = extended(&stage);
        let addresses = stripes(&mut client);
        assert_eq!(addresses.len(), 1);
        assert_eq!(addresses[0].ip().to_string(), "127.0.0.1");
        let listener = client.active();
        client.ask("RETR /data/big", 150);
        let (mut stream, _) = listener.accept().unwrap();
        let found: Vec<u8> = blocks(&mut stream)
            .into_iter()
            .flat_map(|own| own.2)
            .collect();
        client.expect(226);
        assert!(found == wanted);
        let reason = match wrong_server {
            true => "doesn't trust",
            false => "isn't named here",
        };
        let log = stage.server.output();
        let is_told = |line: &String| line.contains("is left out") && line.contains(reason);
        assert!(log.iter().any(is_told), "{log:?}");
        assert!(
            !nodes[0]
                .output()
                .iter()
                .any(|line| line.contains("request="))
        );
    }
}

#[test]
fn nobody_else_has_a_data_node_do_anything() {
    let cluster = Cluster::open(309, 1, "");
    let address = cluster.nodes[0].output();
    let address = address
        .iter()
        .find_map(|line| line.strip_prefix("data node on "));
    let address = address.unwrap().to_owned();
    // No TLS.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"listen\nlisten\nlisten\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.windows(9).any(|own| own == b"listening"));
    // TLS without a key that it obeys.
    let mut openssl = Command::new("openssl");
    openssl.args([
        "s_client",
        "-connect",
        &address,
        "-alpn",
        "xdfs-node/1",
        "-quiet",
    ]);
    openssl
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut running = openssl.stderr(std::process::Stdio::null()).spawn().unwrap();
    let _ = running.stdin.take().unwrap().write_all(b"listen\n");
    let out = running.wait_with_output().unwrap();
    assert!(out.stdout.is_empty(), "{out:?}");
    // Silence ends.
    let mut silent = TcpStream::connect(&address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    cluster.assert_requests("=listen", &[0]);
}

#[test]
fn a_server_that_doesn_t_wait_for_answers_is_cut_off() {
    let cluster = Cluster::open(321, 1, "");
    let node = &cluster.nodes[0];
    let said = node.output();
    let address = said
        .iter()
        .find_map(|line| line.strip_prefix("data node on "));
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-alpn", "xdfs-node/1", "-quiet", "-connect"]);
    openssl.arg(address.unwrap());
    openssl
        .arg("-cert")
        .arg(cluster.stage.beside("server/server.crt"));
    openssl
        .arg("-key")
        .arg(cluster.stage.beside("server/server.key"));
    openssl
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut running = openssl.spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    input.write_all("listen\n".repeat(500).as_bytes()).unwrap();
    let refuses = |line: &str| {
        line.contains("before another one is answered")
            .then_some(())
    };
    assert!(node.line(PATIENCE, refuses).is_some());
    drop(input);
    running.wait().unwrap();
    // None, if the first one has come before `hello` was sent.
    assert!(cluster.requests("=listen")[0] <= 1);
}

/// A data node that says what a test says: `script` has the lines for each request.
fn lying_node(place: &Path, script: Vec<&'static str>) -> Named {
    let config = node_config(place, "liar", &place.join("root"), "");
    let nobody = format!("SHA256:{}", "A".repeat(43));
    let own = format!("[gridftp.data_node]\nlisten = \"127.0.0.2:0\"\nobeys = [\"{nobody}\"]\n");
    let text = fs::read_to_string(&config).unwrap() + &own;
    fs::write(&config, text).unwrap();
    let (node, _, key) = start_node(&config);
    drop(node);
    let folder = place.join("liar/server");
    let chain = vec![CertificateDer::from_pem_file(folder.join("server.crt")).unwrap()];
    let secret = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider);
    let tls = tls.with_safe_default_protocol_versions().unwrap();
    let mut tls = tls
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .unwrap();
    tls.alpn_protocols = vec![b"xdfs-node/1".to_vec()];
    let tls = Arc::new(tls);
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let tls = ServerConnection::new(Arc::clone(&tls)).unwrap();
            let stream = StreamOwned::new(tls, stream.unwrap());
            let script = script.clone();
            thread::spawn(move || {
                let mut link = BufReader::new(stream);
                let _ = link.get_mut().write_all(b"hello\n");
                let _ = link.get_mut().flush();
                let mut script = script.into_iter();
                let mut line = String::new();
                // Until the server closes it.
                while link.read_line(&mut line).is_ok_and(|read| read > 0) {
                    let Some(answer) = script.next() else {
                        continue;
                    };
                    if link.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    let _ = link.get_mut().flush();
                }
            });
        }
    });
    (address, key)
}

#[test]
fn a_node_that_lies_about_an_upload_is_found_out() {
    let listening = "listening at=127.0.0.2:5000\n";
    let flood: &str = Box::leak(("ready\n".to_owned() + &"moved bytes=1\n".repeat(9000)).into());
    let long: &str = Box::leak(format!("ready\nmoved bytes={}", "1".repeat(1 << 18)).into());
    for (number, (lie, word)) in [
        ("ready\ndone bytes=5 durable=0-6\n", "can't have come"),
        // As if it was written: the file is shorter.
        ("ready\ndone bytes=5 durable=0-5\n", "the file has 0 bytes"),
        (
            "ready\ndone bytes=900 durable=9223372036854775000-9223372036854775800\n",
            "the file has",
        ),
        ("ready\nmoved bytes=5\nmoved bytes=4\n", "fewer bytes"),
        ("done bytes=5 durable=0-5\n", "wasn't asked for"),
        ("ready\ndone bytes=5\n", "nothing of what has come"),
        ("ready\nready\n", "wasn't asked for"),
        ("ready\nfine\n", "no message"),
        ("ready\nhello\n", "wasn't asked for"),
        ("ready\nmoved bytes=5 durable=9-1\n", "durable"),
        ("ready\nmoved bytes=18446744073709551616\n", "bytes"),
        ("failed code=no-space cause=full\n", "full"),
        (
            "ready\nfailed code=io cause=broken%0D%0A226%20fine\n",
            "broken226 fine",
        ),
        (long, "too long"),
        (flood, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let stage = Cluster::serve(310, "", |place, _| {
            vec![lying_node(place, vec![listening, lie])]
        });
        fs::write(stage.root("big"), "before").unwrap();
        let mut client = extended(&stage);
        assert_eq!(stripes(&mut client), ["127.0.0.2:5000".parse().unwrap()]);
        client.send(b"STOR /data/big\r\n");
        if word.is_empty() {
            // It only wastes time: ABOR ends it.
            client.expect(150);
            client.send(b"ABOR\r\n");
        }
        let (code, text) = loop {
            let (code, text) = client.reply().unwrap();
            if code >= 200 {
                break (code, text);
            }
        };
        assert!((400..600).contains(&code), "{number}: {text}");
        assert!(text.contains(word), "{number}: {text}");
        if word.is_empty() {
            client.expect(226);
        } else if !word.starts_with("the file") {
            assert!(text.contains("127.0.0.2"), "{number}: {text}");
        }
        client.ask("NOOP", 200);
        assert_bytes(&stage.root("big"), b"before");
        assert_eq!(names(&stage), ["big"], "{number}");
    }
}

#[test]
fn a_node_that_lies_about_a_download_is_found_out() {
    for (lie, word) in [
        ("ready\ndone bytes=0\n", "0 bytes of 2097152"),
        ("ready\ndone bytes=2097153\n", "2097153 bytes of 2097152"),
        ("ready\nmoved bytes=5 durable=0-5\n", "durable"),
        ("listening at=127.0.0.2:5000\n", "wasn't asked for"),
        (
            "failed code=source-changed cause=another%20file\n",
            "another file",
        ),
    ] {
        let stage = Cluster::serve(311, "", |place, _| vec![lying_node(place, vec![lie])]);
        Stage::make(&stage.root("big"), 2 << 20);
        let mut client = extended(&stage);
        let _listener = client.active();
        client.send(b"RETR /data/big\r\n");
        let (code, text) = loop {
            let (code, text) = client.reply().unwrap();
            if code >= 200 {
                break (code, text);
            }
        };
        assert!((400..600).contains(&code) && text.contains(word), "{text}");
        assert!(text.contains("127.0.0.2"), "{text}");
        client.ask("NOOP", 200);
    }
}

#[test]
fn nodes_with_another_file_system_refuse() {
    let mut nodes = Vec::new();
    let stage = Cluster::serve(312, "", |place, server| {
        let own =
            format!("[gridftp.data_node]\nlisten = \"127.0.0.2:0\"\nobeys = [\"{server}\"]\n");
        let other = place.join("here");
        let (node, address, key) = start_node(&node_config(place, "node0", &other, &own));
        nodes.push(node);
        vec![(address, key)]
    });
    Stage::make(&stage.root("big"), 2 << 20);
    Stage::make(&stage.here("big"), (2 << 20) + 1);
    // What an interrupted upload there has left.
    fs::write(stage.here(".new.xdfs-part"), "other").unwrap();
    let mut client = extended(&stage);
    let _listener = client.active();
    client.send(b"RETR /data/big\r\n");
    let (code, text) = client.reply().unwrap();
    assert!(
        code >= 400 && text.contains("version of the file"),
        "{text}"
    );
    for name in ["new", "newer"] {
        assert_eq!(stripes(&mut client).len(), 1);
        client.send(format!("STOR /data/{name}\r\n").as_bytes());
        let (code, text) = client.reply().unwrap();
        assert!(code >= 400 && text.contains("127.0.0.2"), "{text}");
    }
    assert_eq!(names(&stage), ["big"]);
    assert_bytes(&stage.here(".new.xdfs-part"), b"other");
}

#[test]
fn the_client_of_xdfs_has_files_of_the_server_itself() {
    let cluster = Cluster::open(313, 2, "");
    let stage = &cluster.stage;
    let wanted = Stage::make(&stage.root("big"), 20_000_000);
    let mut cp = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    cp.env("XDFS_CONFIG_DIR", stage.beside("keys"))
        .args(["cp", "-v", "--insecure", "-n", "4"])
        .arg(stage.url("//data/big"))
        .arg(stage.here("big"));
    let said = run(&mut cp);
    assert_bytes(&stage.here("big"), &wanted);
    assert!(!said.contains("stream mode"), "{said}");
    cluster.assert_requests("=send ", &[0, 0]);
}

/// What `stage` tells a client who asks for stripes: whether they are at the server itself.
#[track_caller]
fn is_alone(client: &mut Client) -> bool {
    let addresses = stripes(client);
    addresses
        .iter()
        .all(|own| own.ip().to_string() == "127.0.0.1")
}

#[test]
fn users_have_their_rights_at_nodes_and_protected_files_stay_at_the_server() {
    let mut nodes = Vec::new();
    let stage = Stage::prepared(315, "", |root| {
        let place = root.parent().unwrap();
        fs::create_dir(root.join("alice")).unwrap();
        fs::write(place.join("password"), format!("{PASSWORD}\n")).unwrap();
        let export = format!(
            "[[export]]\nname = \"home\"\npath = \"{}/{{user}}\"\n[[export.grant]]\n\
             user = \"*\"\nrights = [\"read\", \"list\", \"create\"]\n",
            root.display()
        );
        let text = format!("folder = \"server\"\nprotect = \"clear\"\n{export}");
        fs::write(place.join("xdfs.toml"), &text).unwrap();
        let mut add = Command::new(env!("CARGO_BIN_EXE_xdfs"));
        add.env("XDFS_CONFIG_DIR", place.join("keys"))
            .args(["user", "add", "alice", "--config"])
            .arg(place.join("xdfs.toml"))
            .stdin(fs::File::open(place.join("password")).unwrap());
        assert!(add.status().unwrap().success());
        let server = key_of(place);
        let folder = place.join("node0");
        fs::create_dir_all(folder.join("keys")).unwrap();
        let own = format!(
            "folder = \"server\"\n{export}[gridftp.data_node]\nlisten = \"127.0.0.2:0\"\n\
             obeys = [\"{server}\"]\n"
        );
        fs::write(folder.join("node.toml"), own).unwrap();
        let (node, address, key) = start_node(&folder.join("node.toml"));
        nodes.push(node);
        let named = format!("[[gridftp.node]]\naddress = \"{address}\"\nkey = \"{key}\"\n");
        fs::write(place.join("xdfs.toml"), text + &named).unwrap();
    });
    let wanted = Stage::make(&stage.here("big"), 2 << 20);
    let config = trusting(&stage);
    let mut client = Client::secure(&stage, &config);
    client.ask("USER alice", 331);
    client.ask(&format!("PASS {PASSWORD}"), 230);
    client.ask("MODE E", 200);
    let addresses = stripes(&mut client);
    assert_eq!(addresses[0].ip().to_string(), "127.0.0.2");
    client.send(b"STOR /home/big\r\n");
    let _stream = send_stripe(addresses[0], &[(0, &wanted)]);
    client.expect(150);
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("alice/big"), &wanted);
    // What the user may not do isn't done by a node either.
    stripes(&mut client);
    client.send(b"STOR /home/big\r\n");
    assert_eq!(client.reply().unwrap().0, 550);
    // The keys of protected connections stay at the server.
    client.ask("PBSZ 0", 200);
    client.ask("PROT P", 200);
    assert!(is_alone(&mut client));
    client.ask("PROT C", 200);
    assert!(!is_alone(&mut client));
    client.ask("MODE S", 200);
    assert!(is_alone(&mut client));
    client.ask("MODE T", 200);
    assert!(is_alone(&mut client));
}

#[test]
fn a_rate_limit_and_a_quota_hold_with_nodes() {
    let slow = "[limits]\nbytes_per_second_per_user_max = \"100M\"\n";
    let cluster = Cluster::open(316, 1, slow);
    assert!(is_alone(&mut extended(&cluster.stage)));
    let mut nodes = Vec::new();
    let stage = Stage::prepared(317, "", |root| {
        let place = root.parent().unwrap();
        let server = key_of(place);
        let (node, address, key) = Cluster::node(place, 0, &server);
        nodes.push(node);
        let export = EXPORT.replace("ROOT", &root.display().to_string());
        let text = format!(
            "folder = \"server\"\n{export}quota_bytes = \"1M\"\n[[gridftp.node]]\n\
             address = \"{address}\"\nkey = \"{key}\"\n"
        );
        fs::write(place.join("xdfs.toml"), text).unwrap();
    });
    let mut client = extended(&stage);
    for (bytes, code) in [(1 << 20, 226), (1, 552)] {
        let addresses = stripes(&mut client);
        assert_eq!(addresses[0].ip().to_string(), "127.0.0.2");
        client.send(format!("STOR /data/of{bytes}\r\n").as_bytes());
        let _stream = send_stripe(addresses[0], &[(0, &vec![1; bytes])]);
        let (found, text) = loop {
            let (found, text) = client.reply().unwrap();
            if found >= 200 {
                break (found, text);
            }
        };
        assert_eq!(found, code, "{text}");
    }
    assert_eq!(names(&stage), ["of1048576"]);
}

#[test]
fn settings_that_nodes_cannot_have_are_refused() {
    let place = xdfs_testkit::tree::TempTree::new(318).unwrap();
    fs::create_dir(place.join("root")).unwrap();
    let nobody = format!("SHA256:{}", "A".repeat(43));
    let node = format!("[[gridftp.node]]\naddress = \"localhost\"\nkey = \"{nobody}\"\n");
    let short = "[[gridftp.node]]\naddress = \"localhost\"\nkey = \"SHA256:AAAA\"\n";
    for (command, text, word) in [
        ("serve", format!("insecure = true\n{node}"), "--insecure"),
        ("serve", short.to_owned(), "line 4"),
        ("serve", format!("{node}{node}"), "twice"),
        (
            "gridftp",
            "insecure = true\n".to_owned(),
            "prove who they are",
        ),
        ("gridftp", String::new(), "obeys"),
    ] {
        let text = format!("root = \"{}\"\n{text}", place.join("root").display());
        fs::write(place.join("xdfs.toml"), text).unwrap();
        let mut xdfs = Command::new(env!("CARGO_BIN_EXE_xdfs"));
        xdfs.env("XDFS_CONFIG_DIR", place.join("keys"));
        match command {
            "serve" => xdfs.args(["serve", "--check-config", "--config"]),
            _ => xdfs.args(["gridftp", "data-node", "--config"]),
        };
        let (succeeded, said) = crate::stage::outcome(xdfs.arg(place.join("xdfs.toml")));
        assert!(!succeeded && said.contains(word), "{word}: {said}");
        if command != "serve" {
            let (code, said) = check_node(&place.join("xdfs.toml"));
            assert!(code == Some(2) && said.contains(word), "{word}: {said}");
        }
    }
}

/// The exit code of the check of a data node's settings, and what it prints.
fn check_node(config: &Path) -> (Option<i32>, String) {
    let mut xdfs = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    xdfs.env("XDFS_CONFIG_DIR", config.parent().unwrap().join("keys"))
        .args(["gridftp", "data-node", "--check-config", "--config"]);
    let output = xdfs.arg(config).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// Checks before a start and beside a running node, which change nothing.
#[test]
fn settings_of_a_node_are_checked_without_starting_it() {
    let place = xdfs_testkit::tree::TempTree::new(322).unwrap();
    let root = place.join("root");
    fs::create_dir(&root).unwrap();
    let server = format!("SHA256:{}", "A".repeat(43));
    let own = format!("[gridftp.data_node]\nlisten = \"127.0.0.1:0\"\nobeys = [\"{server}\"]\n");
    let config = node_config(place.path(), "node", &root, &own);
    let folder = config.parent().unwrap().join("server");
    let (code, said) = check_node(&config);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "would be a data node on 127.0.0.1:0".to_owned(),
        format!(
            "would serve /data from {}",
            root.canonicalize().unwrap().display()
        ),
        "  anyone: read, list, create, write, delete".to_owned(),
        format!("would obey the server with the key {server}"),
        format!("would make a key in {}", folder.display()),
        "the settings are valid".to_owned(),
    ] {
        assert!(said.lines().any(|own| own == line), "{line}: {said}");
    }
    assert!(!folder.exists());
    let (node, _, key) = start_node(&config);
    let (code, said) = check_node(&config);
    assert!(
        code == Some(0) && said.contains(&format!("fingerprint {key}\n")),
        "{said}"
    );
    drop(node);
    // Every fault, each with its line.
    let twisted = "[accounts]\nalice = \"alice\"\n[certificate]\nchain = \"none.pem\"\n\
                   key = \"none.key\"\n[gridftp.data_node]\nlisten = \"203.0.113.77:0\"\n";
    let config = node_config(place.path(), "node", &place.join("none"), twisted);
    let (code, said) = check_node(&config);
    assert_eq!(code, Some(2), "{said}");
    for words in [
        "[accounts] (",
        "line 7)",
        "none.pem",
        "line 9)",
        "no server that it obeys (",
        "line 12)",
        "/none",
        "4 errors",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // An address that this machine doesn't have is one of the time, and the last to be named.
    let config = node_config(
        place.path(),
        "node",
        &root,
        &own.replace("127.0.0.1", "203.0.113.77"),
    );
    let (code, said) = check_node(&config);
    assert!(code == Some(2) && said.contains("line 8)"), "{said}");
}
