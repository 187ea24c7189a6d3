//! Driver stacks by name: of listeners, of sessions and in URLs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Place, Running, Server, assert_content, content, program, xdfs};

const LENGTH: usize = 3 << 20;

/// The host and port of a listener, without its stack.
fn host(server: &Server, number: usize) -> &str {
    let address = &server.addresses[number];
    address.rsplit_once("://").map_or(address, |(_, host)| host)
}

#[test]
fn files_move_over_any_stack() {
    let place = Place::new();
    let source = place.make_here("source", &content(1, LENGTH));
    let back = place.here("back");
    let stacks = [
        "tcp,tls,zstd",
        "tcp,lz4",
        "ptcp:n=3",
        "tcp,tls,ptcp:n=2",
        "tcp,ptcp:n=2,zstd:level=1,tls",
        "tcp,buffer,digest,tls",
        "quic",
        "quic,zstd",
    ];
    let listens: Vec<String> = stacks
        .iter()
        .map(|s| format!("{s}://127.0.0.1:0"))
        .collect();
    let words: Vec<&str> = listens.iter().flat_map(|l| ["--listen", l]).collect();
    let server = Server::start_with(&place.root(), &words);
    for (number, stack) in stacks.into_iter().enumerate() {
        eprintln!("{stack}");
        assert!(server.addresses[number].starts_with(&format!("{stack}://")));
        let target = format!("xdfs://{}/{number}", host(&server, number));
        xdfs(["cp", "-n", "3", "--stack", stack, &source, &target]).ok();
        assert_content(place.remote(&number.to_string()), &content(1, LENGTH));
        xdfs(["cp", "-f", "--stack", stack, &target, &back]).ok();
        assert_content(&back, &content(1, LENGTH));
        let names = stack
            .split(',')
            .map(|driver| driver.split(':').next().unwrap());
        let names: Vec<_> = names.collect();
        let host = host(&server, number);
        for scheme in [names.join("+"), names.join(",")] {
            let url = format!("xdfs+{scheme}://{host}/");
            let listed = xdfs(["ls", &url]).ok().text();
            assert!(
                listed.lines().any(|line| line == number.to_string()),
                "{listed}"
            );
        }
        let url = format!("xdfs://{host}/{number}");
        for command in ["ls", "stat", "sum", "cat", "touch", "rm"] {
            xdfs([command, "--stack", stack, &url]).ok();
        }
        xdfs(["whoami", "--stack", stack, &format!("xdfs://{host}")]).ok();
    }
}

#[test]
fn the_next_stack_is_tried_where_the_server_is_not_reached() {
    let place = Place::new();
    let source = place.make_here("source", &content(2, LENGTH));
    let server = Server::start(&place.root());
    let stacks = ["cp", "--stack", "ptcp", "--stack", "tcp"];
    let run = xdfs([&stacks[..], &[&source, &server.url("/a")]].concat()).ok();
    assert!(
        run.stderr.contains("going on with tcp,tls"),
        "{}",
        run.stderr
    );
    assert_content(place.remote("a"), &content(2, LENGTH));
    let run = xdfs([&stacks[..], &["--json", &source, &server.url("/b")]].concat()).ok();
    let told = run
        .json()
        .into_iter()
        .find(|line| line["decision"] == "fallback")
        .unwrap();
    assert_eq!(
        [&told["stack_before"], &told["stack"]],
        ["tcp,ptcp,tls", "tcp,tls"]
    );
    // Only of those that the user has listed.
    let alone = [
        "cp",
        "--retries",
        "0",
        "--stack",
        "ptcp",
        &source,
        &server.url("/c"),
    ];
    assert_ne!(xdfs(alone).code, Some(0));
    assert!(!place.remote("c").exists());
}

#[test]
fn what_cannot_protect_or_order_is_refused() {
    let place = Place::new();
    // Blocks that aren't worth to be compressed are the same with both drivers of compression.
    let source = place.make_here("source", &[b'x'; 100_000]);
    let words = [
        "--protect",
        "clear",
        "--listen",
        "tcp,tls,zstd://127.0.0.1:0",
    ];
    let server = Server::start_with(&place.root(), &words);
    let target = format!("xdfs://{}/a", host(&server, 0));
    let cp = |words: &[&str]| xdfs([&["cp"], words, &[&source, &target]].concat());
    cp(&["--stack", "tcp,tls,zstd", "--protect", "clear"]).fails(17, &["private payload only"]);
    cp(&["--stack", "tcp,tls", "--insecure"]).fails(2, &["leave out --insecure"]);
    cp(&["--stack", "udp"]).fails(2, &["order"]);
    cp(&["--stack", "unix"]).fails(2, &["takes a path"]);
    cp(&["--stack", "tcp,tcp"]).fails(2, &["only the first driver"]);
    cp(&["--stack", "zstd"]).fails(2, &["begins with a transport"]);
    let run = cp(&["--retries", "0", "--stack", "tcp,tls,lz4"]);
    assert_ne!(run.code, Some(0), "{}", run.stderr);
    assert!(!place.remote("a").exists());
    for listen in [
        "nonsense://127.0.0.1:0",
        "tcp,udp://127.0.0.1:0",
        "://127.0.0.1:0",
    ] {
        let run = xdfs(["serve", "--listen", listen, "--check-config"]);
        assert_eq!(run.code, Some(2), "{listen}: {}", run.stderr);
    }
    xdfs(["serve", "--insecure", "--listen", "tcp,tls://127.0.0.1:0"])
        .fails(2, &["leave out --insecure"]);
}

#[test]
fn quic_gives_way_to_tcp_where_datagrams_vanish() {
    let place = Place::new();
    let source = place.make_here("source", &content(3, LENGTH));
    let server = Server::start(&place.root());
    // Nobody answers at the UDP port, as behind a firewall.
    let hole = std::net::UdpSocket::bind(host(&server, 0)).unwrap();
    let stacks = ["cp", "--stack", "quic:connect=1", "--stack", "tcp"];
    let run = xdfs([&stacks[..], &[&source, &server.url("/a")]].concat()).ok();
    let words = "going on with tcp,tls";
    assert!(run.stderr.contains(words), "{}", run.stderr);
    assert_content(place.remote("a"), &content(3, LENGTH));
    assert!(hole.recv_from(&mut [0; 2000]).is_ok());
    // Without the hole, the system tells at once that nobody listens.
    drop(hole);
    let stacks = ["cp", "--stack", "quic", "--stack", "tcp"];
    let run = xdfs([&stacks[..], &[&source, &server.url("/b")]].concat()).ok();
    assert!(run.stderr.contains(words), "{}", run.stderr);
    assert_content(place.remote("b"), &content(3, LENGTH));
}

/// An address that is free over TCP and UDP, from this port on: below those from which systems
/// take ports that nobody chose, so that no other test gets it meanwhile.
fn free_address(first: u16) -> std::net::SocketAddr {
    let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let is_free = |port: &u16| {
        let at = address(*port);
        std::net::TcpListener::bind(at).is_ok() && std::net::UdpSocket::bind(at).is_ok()
    };
    address((first..first + 1000).find(is_free).unwrap())
}

#[test]
fn quic_and_tcp_listen_at_the_same_number() {
    let place = Place::new();
    let source = place.make_here("source", &content(4, LENGTH));
    let at = free_address(20_000);
    let listen = [&format!("quic://{at}"), &at.to_string()];
    let server = Server::start_with(
        &place.root(),
        &["--listen", listen[0], "--listen", listen[1]],
    );
    let url = format!("xdfs://{}/", host(&server, 1));
    for stack in ["quic", "tcp"] {
        xdfs(["cp", "--stack", stack, &source, &format!("{url}{stack}")]).ok();
        assert_content(place.remote(stack), &content(4, LENGTH));
    }
}

#[test]
fn quic_tells_why_a_server_is_not_trusted() {
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "quic://127.0.0.1:0"]);
    let wrong = format!("SHA256:{}", "A".repeat(43));
    let url = format!("xdfs+quic://{}/", host(&server, 0));
    let words = ["isn't pinned", "compare the pin"];
    xdfs(["ls", "--pin", &wrong, &url]).fails(17, &words);
    xdfs(["ls", &url]).ok();
}

/// Otherwise only silence would tell, and here nobody waits for that.
#[test]
#[cfg(target_os = "linux")]
fn clients_notice_a_quic_server_that_was_killed_and_started_again() {
    let place = Place::new();
    let source = place.make_here("source", &content(5, LENGTH));
    let at = free_address(25_000);
    let listen = format!("quic:idle=3600://{at}");
    let start = || Server::start_with(&place.root(), &["--listen", &listen]);
    let mut server = start();
    let target = format!("xdfs://{at}/target");
    let mut command = program();
    command.env("XDFS_STATE_DIR", place.path().join("state"));
    command.args(["cp", "--stack", "quic:idle=3600", "--limit-rate", "300K"]);
    let mut copy = Running::start(command.args([source, target]).stdin(Stdio::null()));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_dir(place.root()).unwrap().any(|entry| {
        let length = entry.unwrap().metadata().unwrap().len();
        length > 100_000
    }) {
        assert!(Instant::now() < deadline, "the copy doesn't begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.running.kill();
    drop(server);
    let _server = start();
    let since = Instant::now();
    copy.wait_for_message("reset by peer");
    // A session that hears nothing ends after a minute.
    assert!(since.elapsed() < Duration::from_secs(40));
    copy.wait().ok();
    assert_content(place.remote("target"), &content(5, LENGTH));
}
