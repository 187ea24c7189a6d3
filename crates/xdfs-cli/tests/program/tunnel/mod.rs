//! Tunnels: what travels through them, what is refused, and what becomes of them when a side fails.

mod bundles;
mod listeners;
mod programs;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::wait;

use crate::support::{Place, Run, Running, Server, content, program};

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its own folder, and the rules `connect` about tunnels.
fn settings(place: &Place, connect: &[&str]) -> String {
    settings_of(place, "connect", connect)
}

/// The same with rules about `action`.
fn settings_of(place: &Place, action: &str, rules: &[&str]) -> String {
    let mut text = "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\nowner = \"owner\"\n\
                    audit = \"audit.jsonl\"\nroot = \"../root\"\n"
        .to_owned();
    for rule in rules {
        text += &format!("[[tunnel.{action}]]\n{rule}\n");
    }
    place.make_here("xdfs.toml", text.as_bytes())
}

fn start(place: &Place, connect: &[&str]) -> Server {
    let config = settings(place, connect);
    serve(place, &["--config", &config])
}

fn serve(place: &Place, flags: &[&str]) -> Server {
    Server::start_as(&place.root(), flags, |mut serve| {
        serve.env("XDFS_CONFIG_DIR", place.here("config"));
        serve
    })
}

const TO_LOOPBACK: &str = "user = \"*\"\nhost = \"127.0.0.1\"\nports = \"*\"";

fn tunnel_command(place: &Place, server: &Server, words: &[&str]) -> Command {
    tunnel_to(place, &server.url(""), words)
}

fn tunnel_to(place: &Place, url: &str, words: &[&str]) -> Command {
    let mut command = program();
    command.env("XDFS_CONFIG_DIR", place.here("config"));
    command.arg("tunnel").args(words).arg(url);
    command.stdin(Stdio::null());
    command
}

/// The address of a server.
fn address_of(server: &Server) -> SocketAddr {
    let url = server.url("");
    let address = url.trim_start_matches("xdfs://").trim_end_matches('/');
    address.parse().unwrap()
}

/// A tunnel that ends by itself, since it is refused.
fn refused(place: &Place, server: &Server, spec: &str) -> Run {
    Running::start(&mut tunnel_command(place, server, &["-L", spec])).wait()
}

/// A running tunnel to `target`, and the address that it listens on.
fn tunnel(place: &Place, server: &Server, target: &str, more: &[&str]) -> (Running, SocketAddr) {
    let spec = format!("0:{target}");
    let words = [&["-L", spec.as_str()], more].concat();
    listening(&mut tunnel_command(place, server, &words))
}

/// A running tunnel, and the address that it tells.
fn listening(command: &mut Command) -> (Running, SocketAddr) {
    let running = Running::start(command);
    let line = running.wait_for_output("listening on ");
    let address = line.split(' ').nth(2).unwrap().parse().unwrap();
    (running, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn wait_until(what: &str, fact: impl FnMut() -> bool) {
    assert!(wait::until(PATIENCE, fact), "{what}: never");
}

/// A target that sends everything back, and ends when its peer does.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Sends a line and reads it back.
fn ping(stream: &mut TcpStream) {
    stream.write_all(b"ping\n").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping\n");
}

#[test]
fn bytes_arrive_both_ways_and_each_end_is_passed_on_by_itself() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_running, address) = tunnel(&place, &server, &target, &[]);
    let sent = content(41, 5 << 20);
    for target_ends_first in [false, true] {
        let mut near = connect(address);
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let (first, second) = match target_ends_first {
            false => (&mut near, &mut far),
            true => (&mut far, &mut near),
        };
        let got = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut got = Vec::new();
                second.read_to_end(&mut got).unwrap();
                got
            });
            first.write_all(&sent).unwrap();
            first.shutdown(Shutdown::Write).unwrap();
            reading.join().unwrap()
        });
        assert!(got == sent);
        // The other direction goes on.
        second.write_all(&sent).unwrap();
        second.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        first.read_to_end(&mut back).unwrap();
        assert!(back == sent);
    }
}

#[test]
fn an_unchanged_http_client_gets_its_file() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    std::fs::write(place.remote("big"), content(42, 3 << 20)).unwrap();
    let mut web = Command::new("python3");
    web.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]);
    web.current_dir(place.root());
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    if !has_curl || Command::new("python3").arg("--version").output().is_err() {
        return xdfs_testkit::skip::test("there is no curl or no python3");
    }
    let web = Running::start(&mut web);
    let line = web.wait_for_output("port ");
    let port = line.split("port ").nth(1).unwrap();
    let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
    let (_running, address) = tunnel(&place, &server, &format!("127.0.0.1:{port}"), &[]);
    let file = place.here("got");
    let url = format!("http://{address}/big");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "-m", "60", "-o", &file, &url]);
    assert!(curl.status().unwrap().success());
    assert!(std::fs::read(file).unwrap() == content(42, 3 << 20));
}

/// The limit of a user is one for all that is moved, so both directions count.
#[test]
fn bytes_are_charged_to_the_rate_of_the_user() {
    let place = Place::new();
    let limits = format!("{TO_LOOPBACK}\n[limits]\nbytes_per_second_per_user_max = \"1M\"");
    let server = start(&place, &[&limits]);
    let (_running, address) = tunnel(&place, &server, &echo().to_string(), &[]);
    let mut stream = connect(address);
    let sent = content(43, 1_000_000);
    let begun = std::time::Instant::now();
    let mut back = vec![0; sent.len()];
    std::thread::scope(|scope| {
        let mut writing = stream.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || writing.write_all(sent).unwrap());
        stream.read_exact(&mut back).unwrap();
    });
    assert!(back == sent);
    assert!(begun.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn sockets_stand_on_either_side() {
    let place = Place::new();
    let target = place.here("target.sock");
    let server = start(
        &place,
        &[&format!("user = \"*\"\nhost = \"unix:{target}\"")],
    );
    let listener = UnixListener::bind(&target).unwrap();
    let local = place.here("local.sock");
    let spec = format!("unix:{local}:unix:{target}");
    let running = Running::start(&mut tunnel_command(&place, &server, &["-L", &spec]));
    running.wait_for_output("listening on unix:");
    let mut near = UnixStream::connect(&local).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"abc").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    far.read_to_string(&mut got).unwrap();
    far.write_all(b"def").unwrap();
    drop(far);
    let mut back = String::new();
    near.read_to_string(&mut back).unwrap();
    assert_eq!((got.as_str(), back.as_str()), ("abc", "def"));
    refused(&place, &server, &format!("0:unix:{target}2")).fails(5, &["doesn't allow"]);
}

#[test]
fn a_tunnel_without_ports_is_refused() {
    let run = Running::start(program().args(["tunnel", "xdfs://127.0.0.1"])).wait();
    run.fails(2, &["--local <SPEC>|--remote <SPEC>"]);
}

#[test]
fn nothing_is_allowed_by_default() {
    let place = Place::new();
    let server = start(&place, &[]);
    let target = echo();
    refused(&place, &server, &format!("0:{target}")).fails(10, &["no tunnels", "hint: "]);
}

#[test]
fn other_targets_than_those_of_the_rules_are_refused() {
    let place = Place::new();
    let target = echo();
    let port = target.port();
    let exact = format!("user = \"*\"\nhost = \"127.0.0.1\"\nports = \"{port}\"");
    let server = start(
        &place,
        &[
            &exact,
            // Names that lead to the server itself are not meant by this.
            "user = \"*\"\nhost = \"*\"\nports = \"*\"",
            "user = \"somebody\"\nhost = \"127.0.0.2\"\nports = \"*\"",
        ],
    );
    let (_running, address) = tunnel(&place, &server, &target.to_string(), &[]);
    ping(&mut connect(address));
    let other = if port == 1 { 2 } else { 1 };
    for spec in [
        format!("0:127.0.0.1:{other}"),
        format!("0:127.0.0.2:{port}"),
        format!("0:0.0.0.0:{port}"),
        format!("0:[::1]:{port}"),
        format!("0:[::]:{port}"),
        "0:169.254.169.254:80".to_owned(),
    ] {
        refused(&place, &server, &spec).fails(5, &["doesn't allow this user that target"]);
    }
    // A name whose address is allowed is as good as the address, and any other isn't.
    let (running, address) = tunnel(&place, &server, &format!("localhost:{other}"), &[]);
    let mut stream = connect(address);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    running.wait_for_message("doesn't allow this user that target");
    let audit = std::fs::read_to_string(place.here("audit.jsonl")).unwrap();
    let named = format!("\"path\":\"localhost:{other}\"");
    let line = audit.lines().find(|line| line.contains(&named)).unwrap();
    assert!(line.contains("\"event\":\"refuse\""), "{line}");
    assert!(line.contains("permission-denied"), "{line}");
}

#[test]
fn a_target_that_nobody_listens_at_is_told_and_the_port_stays() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    drop(listener);
    let (running, address) = tunnel(&place, &server, &target.to_string(), &[]);
    let mut stream = connect(address);
    // Not an end that could be taken for an empty answer.
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    running.wait_for_message("connect to the target");
    let _listener = TcpListener::bind(target).unwrap();
    let mut stream = connect(address);
    stream.write_all(b"x").unwrap();
    let (mut far, _) = _listener.accept().unwrap();
    far.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_thousand_connections_work_at_once() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if most.maximum.is_some_and(|most| most < 4096) {
        return xdfs_testkit::skip::test("a process may not have 4096 descriptors");
    }
    let raised = rustix::process::Rlimit {
        current: most.maximum,
        ..most
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let target = echo();
    let (running, address) = tunnel(&place, &server, &target.to_string(), &[]);
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| connect(address)).collect();
    for _ in 0..2 {
        for stream in &mut streams {
            stream.write_all(b"ping\n").unwrap();
        }
        for stream in &mut streams {
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"ping\n");
        }
    }
    let audit = std::fs::read_to_string(place.here("audit.jsonl")).unwrap();
    let opened = audit
        .lines()
        .filter(|line| line.contains("\"event\":\"tunnel\""));
    assert_eq!(opened.count(), 1000);
    #[cfg(target_os = "linux")]
    println!(
        "peak memory in bytes: server {}, client {}",
        server.running.peak_memory(),
        running.peak_memory()
    );
    drop(running);
}

/// The peer of a slow reader waits; nobody in between keeps the bytes.
#[test]
#[cfg(target_os = "linux")]
fn a_slow_reader_costs_no_memory() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (running, address) = tunnel(&place, &server, &target, &[]);
    let before = [server.running.peak_memory(), running.peak_memory()];
    let near = connect(address);
    let (mut far, _) = listener.accept().unwrap();
    // Until the buffers of all sockets on the way are full.
    far.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let bytes = vec![7; 1 << 20];
    let mut written = 0_usize;
    while let Ok(n) = far.write(&bytes) {
        written += n;
        assert!(written < 256 << 20, "somebody keeps everything");
    }
    let after = [server.running.peak_memory(), running.peak_memory()];
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < 8 << 20, "{before} {after}");
    }
    // And all of it arrives.
    drop(far);
    let mut near = near;
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), written);
}

#[test]
fn a_server_that_dies_ends_connections_and_later_ones_dial_again() {
    let place = Place::new();
    let config = settings(&place, &[TO_LOOPBACK]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let serve = || serve(&place, &["--config", &config, "--listen", &at]);
    let mut server = serve();
    let target = echo();
    let (running, address) = tunnel(&place, &server, &target.to_string(), &[]);
    let mut stream = connect(address);
    ping(&mut stream);
    server.running.kill();
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let mut stream = connect(address);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    running.wait_for_message("connect");
    let _server = serve();
    ping(&mut connect(address));
}

#[test]
fn a_client_that_dies_ends_its_connections_at_the_target() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (mut running, address) = tunnel(&place, &server, &target, &[]);
    let _near = connect(address);
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    running.kill();
    assert_eq!(
        far.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    server.running.wait_for_message("tunnel-end");
}

#[test]
fn a_tunnel_whose_output_nobody_reads_goes_on() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let spec = format!("0:{}", echo());
    let mut command = tunnel_command(&place, &server, &["--json", "-L", &spec]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    let mut output = std::io::BufReader::with_capacity(1, output);
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line.matches("\"schema\"").count(), 1, "{line}");
    let (_, rest) = line.split_once("\"address\":\"").unwrap();
    let address: SocketAddr = rest.split('"').next().unwrap().parse().unwrap();
    // A pipe holds some hundred lines.
    for _ in 0..700 {
        ping(&mut connect(address));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let ended = wait::until(PATIENCE, || child.try_wait().unwrap().is_some());
    // Before the assertion, so that nothing is left in any case.
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended, "it doesn't end");
}

#[test]
fn ctrl_c_ends_a_tunnel_in_order() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let (mut running, address) = tunnel(&place, &server, &echo().to_string(), &["-v"]);
    ping(&mut connect(address));
    running.wait_for_message("is connected to 127.0.0.1");
    running.signal("INT");
    assert_eq!(running.wait().code, Some(0));
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn a_reload_that_takes_the_right_away_ends_connections() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let (_running, address) = tunnel(&place, &server, &echo().to_string(), &[]);
    let mut stream = connect(address);
    ping(&mut stream);
    // Another rule for the same target changes nothing.
    settings(
        &place,
        &["user = \"*\"\nhost = \"127.0.0.0/8\"\nports = \"*\""],
    );
    server.running.signal("HUP");
    server.running.wait_for_message("tunnels_ended=0");
    ping(&mut stream);
    settings(
        &place,
        &["user = \"*\"\nhost = \"10.0.0.0/8\"\nports = \"*\""],
    );
    server.running.signal("HUP");
    server.running.wait_for_message("tunnels_ended=1");
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let mut stream = connect(address);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
}

#[test]
fn more_connections_than_a_user_may_have_are_refused() {
    let place = Place::new();
    let limits = format!("{TO_LOOPBACK}\n[limits]\nconnections_per_user_max = 2");
    let server = start(&place, &[&limits]);
    let (running, address) = tunnel(&place, &server, &echo().to_string(), &[]);
    let mut first = connect(address);
    let mut second = connect(address);
    ping(&mut first);
    ping(&mut second);
    let mut third = connect(address);
    assert!(!matches!(third.read(&mut [0]), Ok(1..)));
    running.wait_for_message("has 2 connections already");
    drop(second);
    server.running.wait_for_message("tunnel-end");
    ping(&mut connect(address));
    ping(&mut first);
}

#[test]
fn an_idle_tunnel_ends() {
    let place = Place::new();
    let server = start(
        &place,
        &[&format!("{TO_LOOPBACK}\n[tunnel]\nidle_seconds = 1")],
    );
    let (_running, address) = tunnel(&place, &server, &echo().to_string(), &[]);
    let mut stream = connect(address);
    ping(&mut stream);
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    server.running.wait_for_message("deadline-exceeded");
}

/// HELLO of a peer without protection, which knows tunnels.
fn hello() -> Vec<u8> {
    let feature = [b"\0\x05\0\x07tunnels".as_slice(), b"\0\0"].concat();
    let mut hello = b"\xf8xDFS\r\n\0\0\x01\x01\0".to_vec();
    hello.extend((feature.len() as u32).to_be_bytes());
    hello.extend(feature);
    hello
}

fn request(purpose: u8, target: &[u8], number: u64, bundle: u64) -> Vec<u8> {
    let mut body = vec![purpose];
    body.extend((target.len() as u16).to_be_bytes());
    body.extend(target);
    body.extend(number.to_be_bytes());
    body.extend(bundle.to_be_bytes());
    let mut frame = b"\x0b\0\0\0".to_vec();
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

/// What a server without protection answers until it closes.
fn answer_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address_of(server));
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset behind the answer is none of the test's business.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn open_server(place: &Place, rules: &str) -> Server {
    let text = format!("listen = [\"127.0.0.1:0\"]\ninsecure = true\n{rules}");
    let config = place.make_here("open.toml", text.as_bytes());
    Server::start_as(&place.root(), &["--config", &config], |serve| serve)
}

#[test]
fn a_server_without_authentication_has_only_public_targets() {
    let place = Place::new();
    let target = echo();
    let insecure = |server: &Server| {
        let spec = format!("0:{target}");
        let words = ["--insecure", "-L", spec.as_str()];
        Running::start(&mut tunnel_command(&place, server, &words))
    };
    let server = open_server(&place, "");
    insecure(&server).wait().fails(10, &["no tunnels"]);
    let rule = format!("[[tunnel.connect]]\n{TO_LOOPBACK}\n");
    let server = open_server(&place, &rule);
    insecure(&server).wait().fails(5, &["doesn't allow"]);
    let public = rule.replace("user = \"*\"", "public = true");
    let server = open_server(&place, &public);
    let running = insecure(&server);
    let line = running.wait_for_output("listening on ");
    let address = line.split(' ').nth(2).unwrap().parse().unwrap();
    ping(&mut connect(address));
}

#[test]
fn absurd_requests_are_refused_and_the_server_goes_on() {
    let place = Place::new();
    let rule =
        format!("[[tunnel.connect]]\n{TO_LOOPBACK}\n").replace("user = \"*\"", "public = true");
    let server = open_server(&place, &rule);
    let target = echo().to_string();
    let long = vec![b'a'; 513];
    let target = target.as_bytes();
    for (purpose, text, number, bundle) in [
        (1, b"".as_slice(), 0, 0),
        (1, b"a", 0, 0),
        (1, b"127.0.0.1:0", 0, 0),
        (1, b"127.0.0.1:99999", 0, 0),
        (1, b"127.0.0.1:1 ", 0, 0),
        (1, b"unix:", 0, 0),
        (1, b"unix:/etc/../x", 0, 0),
        (1, b"\xff\xfe:1", 0, 0),
        (1, b"a\nb:1", 0, 0),
        (1, &long, 0, 0),
        (9, target, 0, 0),
        (1, target, 7, 0),
        // No rule lets it listen, and so nothing waits there.
        (2, b"127.0.0.1:0", 0, 0),
        (2, b"127.0.0.1:0", 0, 7),
        (3, b"127.0.0.1:0", 7, 0),
        (3, b"127.0.0.1:0", 0, 0),
        (0, target, 0, 7),
        (4, target, 0, 0),
        (4, target, 7, 7),
        (4, target, 0, 7),
    ] {
        let bytes = [hello(), request(purpose, text, number, bundle)].concat();
        let answer = answer_to(&server, &bytes);
        let exception = answer.iter().position(|&b| b == 0x7f);
        assert!(exception.is_some(), "{purpose} {text:?}: {answer:?}");
    }
    // A second TUNNEL belongs to the bytes of the first, and the target gets it.
    let again = request(1, target, 0, 0);
    let bytes = [hello(), again.clone(), again.clone()].concat();
    let mut stream = connect(address_of(&server));
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&again), "{answer:?}");
}
