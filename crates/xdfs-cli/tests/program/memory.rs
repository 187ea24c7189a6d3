//! The memory of a server with many sessions: it stays within what its operator allows, and
//! everything arrives all the same.

use std::fs;
use std::process::Stdio;

use crate::support::{Place, Running, Server, assert_content, content, names, program, xdfs};

const MIB: u64 = 1 << 20;
/// What the servers here may hold for payload.
const BUDGET: u64 = 8 * MIB;
/// What a session may have in any case: two blocks of 256 KiB to send and what is encrypted of
/// them, as many pieces to receive, a pack each way, of which half a MiB is touched, and its
/// threads and channels.
const SESSION: u64 = 3 * MIB;

fn serve(place: &Place) -> Server {
    let flags = ["--listen", "127.0.0.1:0", "--memory-max", "8M"];
    Server::start_with(&place.root(), &flags)
}

fn start(args: &[&str]) -> Running {
    Running::start(program().args(args).stdin(Stdio::null()))
}

/// Fails if the server has grown by more than is allowed with so many sessions at once.
#[track_caller]
fn check_peak(server: &Server, idle: u64, sessions: u64) {
    check_peak_with(server, idle, sessions * SESSION);
}

/// Fails if the server has grown by more than what it may hold for payload, and `own` bytes.
#[track_caller]
fn check_peak_with(server: &Server, idle: u64, own: u64) {
    let peak = server.running.peak_memory() - idle;
    let most = BUDGET + own;
    assert!(peak <= most, "{} of {} KiB", peak >> 10, most >> 10);
}

/// Some of the clients stop in the middle, and keep what the server has for them: little of it fits
/// into their sockets.
#[test]
fn sessions_share_a_little_memory() {
    const CLIENTS: u64 = 12;
    const LENGTH: usize = 24 << 20;
    let place = Place::new();
    let server = serve(&place);
    let name = |n: u64| format!("f{n}");
    for n in 0..CLIENTS {
        let bytes = content(n, LENGTH);
        match n % 2 {
            0 => drop(place.make_here(&name(n), &bytes)),
            _ => fs::write(place.remote(&name(n)), bytes).unwrap(),
        }
    }
    xdfs(["ls", &server.url("/")]).ok();
    let idle = server.running.peak_memory();
    let mut clients: Vec<Running> = (0..CLIENTS)
        .map(|n| {
            let (here, there) = (place.here(&name(n)), server.url(&format!("/{}", name(n))));
            let (source, target) = match n % 2 {
                0 => (here, there),
                _ => (there, here),
            };
            start(&["cp", "--json", "-n", "16", "-w", "16K", &source, &target])
        })
        .collect();
    let (stopped, others) = clients.split_at_mut(4);
    for client in &mut *stopped {
        client.wait_for_bytes(MIB);
        client.signal("STOP");
    }
    for client in others {
        client.wait().ok();
    }
    for client in &mut *stopped {
        client.signal("CONT");
    }
    for client in stopped {
        client.wait().ok();
    }
    check_peak(&server, idle, CLIENTS);
    server
        .running
        .wait_for_message("the memory for transfers is used up");
    for n in 0..CLIENTS {
        let path = match n % 2 {
            0 => place.remote(&name(n)),
            _ => place.here(&name(n)).into(),
        };
        assert_content(path, &content(n, LENGTH));
    }
}

/// A file that is large and comes slowly takes no more memory than a small one, though large ones
/// are written past the page cache.
#[test]
fn slow_uploads_of_large_files_take_little_memory() {
    const CLIENTS: u64 = 24;
    let place = Place::new();
    let server = serve(&place);
    let source = place.make_here("large", &content(1, 70 << 20));
    xdfs(["ls", &server.url("/")]).ok();
    let idle = server.running.peak_memory();
    let mut clients: Vec<Running> = (0..CLIENTS)
        .map(|n| {
            let target = server.url(&format!("/f{n}"));
            let slowly = ["cp", "--json", "-n", "1", "--limit-rate", "1M"];
            start(&[&slowly[..], &[&source, &target]].concat())
        })
        .collect();
    for client in &mut clients {
        client.wait_for_bytes(MIB);
    }
    check_peak_with(&server, idle, CLIENTS * MIB);
}

/// Sessions that end, and those that have nothing to do, leave nothing behind that others lack.
#[test]
fn sessions_come_and_go_with_trees() {
    const ROUNDS: u64 = 3;
    const CLIENTS: u64 = 6;
    let place = Place::new();
    let server = serve(&place);
    fs::create_dir(place.here("tree")).unwrap();
    for n in 0..300 {
        place.make_here(&format!("tree/{n}"), &content(n, 30_000));
    }
    place.make_here("tree/large", &content(300, 5 << 20));
    xdfs(["ls", &server.url("/")]).ok();
    let idle = server.running.peak_memory();
    for round in 0..ROUNDS {
        let mut clients = Vec::new();
        for n in 0..CLIENTS {
            let (name, tree) = (format!("{round}-{n}"), place.here("tree"));
            clients.push(start(&[
                "cp",
                "-r",
                &tree,
                &server.url(&format!("/{name}")),
            ]));
            if round > 0 {
                let source = server.url(&format!("/{}-{n}", round - 1));
                clients.push(start(&["cp", "-r", &source, &place.here(&name)]));
            }
        }
        for mut client in clients {
            client.wait().ok();
        }
    }
    check_peak(&server, idle, 2 * CLIENTS);
    let here = |n| place.here(&format!("{}-{n}", ROUNDS - 1));
    for n in 0..CLIENTS {
        let last = place.remote(&format!("{}-{n}", ROUNDS - 1));
        for copy in [last, here(n).into()] {
            assert_eq!(names(&copy).len(), 301);
            for number in 0..300 {
                let bytes = content(number, 30_000);
                assert_content(copy.join(number.to_string()), &bytes);
            }
            assert_content(copy.join("large"), &content(300, 5 << 20));
        }
    }
}
