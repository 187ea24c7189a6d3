//! Interruptions of every kind; afterwards the same command goes on and the bytes are right.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Place, Running, Server, assert_content, content, names, program, xdfs};

const SIZE: usize = 48 << 20;

/// A rate at which there is time to interrupt.
const SLOW: &str = "40M";

fn slow_copy(source: &str, target: &str) -> Running {
    let args = [
        "cp",
        "--json",
        "-v",
        "-n",
        "3",
        "--limit-rate",
        SLOW,
        source,
        target,
    ];
    Running::start(program().args(args))
}

/// The partial file is hidden, and nothing stands under the name.
#[track_caller]
fn assert_unpublished(dir: impl AsRef<Path>, name: &str) {
    assert!(
        !names(dir).contains(&name.to_owned()),
        "an incomplete file is visible"
    );
}

#[test]
fn a_killed_client_goes_on_with_an_upload() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(11, SIZE);
    let source = place.make_here("file", &expected);
    let url = server.url("/file");
    let mut client = slow_copy(&source, &url);
    client.wait_for_bytes(8 << 20);
    client.kill();
    assert_unpublished(place.root(), "file");
    let run = xdfs(["cp", "--json", &source, &url]).ok();
    assert!(
        run.result()["resumed_bytes"].as_u64().unwrap() > 0,
        "{}",
        run.text()
    );
    assert_content(place.remote("file"), &expected);
    assert_eq!(names(place.root()), ["file"]);
}

#[test]
fn a_killed_client_goes_on_with_a_download() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(12, SIZE);
    std::fs::write(place.remote("file"), &expected).unwrap();
    let target = place.here("file");
    let mut client = slow_copy(&server.url("/file"), &target);
    client.wait_for_bytes(8 << 20);
    client.kill();
    assert_unpublished(place.here(""), "file");
    xdfs(["cp", &server.url("/file"), &target]).ok();
    assert_content(&target, &expected);
    assert_eq!(names(place.here("")), ["file"]);
}

#[test]
fn a_client_outlives_a_server_that_is_killed_and_comes_back() {
    let place = Place::new();
    let mut server = Server::start(&place.root());
    let expected = content(13, SIZE);
    let source = place.make_here("file", &expected);
    let mut client = slow_copy(&source, &server.url("/file"));
    client.wait_for_bytes(8 << 20);
    server.running.kill();
    assert_unpublished(place.root(), "file");
    let address = server.addresses[0].clone();
    let _again = Server::start_with(&place.root(), &["--listen", &address]);
    let run = client.wait().ok();
    assert!(run.stderr.contains("retry 1 of 30"), "{}", run.stderr);
    assert_eq!(run.result()["failed"], 0);
    assert_content(place.remote("file"), &expected);
}

#[test]
fn a_changed_source_starts_over() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(14, SIZE));
    let url = server.url("/file");
    let mut client = slow_copy(&source, &url);
    client.wait_for_bytes(8 << 20);
    client.kill();
    let changed = content(15, SIZE);
    std::fs::write(&source, &changed).unwrap();
    let run = xdfs(["cp", "--json", &source, &url]).ok();
    assert_eq!(run.result()["resumed_bytes"], 0);
    assert_content(place.remote("file"), &changed);
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "it did not come so far"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Changes the first byte of a partial file, once nobody writes to it any more.
fn damage(partial: &Path) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(partial);
    let mut file = file.unwrap();
    wait_until(|| file.try_lock().is_ok());
    let mut byte = [0];
    file.read_exact(&mut byte).unwrap();
    file.rewind().unwrap();
    file.write_all(&[!byte[0]]).unwrap();
}

/// As a disk may do that lost what it had called durable.
#[test]
fn what_was_kept_is_read_again_when_that_is_asked_for() {
    let expected = content(18, SIZE);
    for command in [&["cp"][..], &["cp", "-r"], &["sync"]] {
        for up in [true, false] {
            let place = Place::new();
            let server = Server::start(&place.root());
            let (near, far) = (PathBuf::from(place.here("d")), place.remote("d"));
            std::fs::create_dir(&near).unwrap();
            std::fs::create_dir(&far).unwrap();
            let (from, to) = if up { (near, far) } else { (far, near) };
            std::fs::write(from.join("file"), &expected).unwrap();
            let name = if command == ["cp"] { "d/file" } else { "d/" };
            let (here, there) = (place.here(name), server.url(&format!("/{name}")));
            let (source, target) = if up { (here, there) } else { (there, here) };
            let with = |more: &[&str]| {
                let mut line = program();
                line.args(command)
                    .arg("--json")
                    .args(more)
                    .args([&source, &target]);
                line
            };
            let slow = &mut with(&["-v", "--limit-rate", "10M"]);
            let mut first = Running::start(slow);
            wait_until(|| to.join(".file.xdfs-journal").exists());
            first.kill();
            assert_unpublished(&to, "file");
            damage(&to.join(".file.xdfs-part"));
            let run = Running::start(&mut with(&["--verify-resumed"])).wait().ok();
            assert_content(to.join("file"), &expected);
            assert_eq!(names(&to), ["file"], "{command:?} {}", run.text());
        }
    }
}

#[test]
fn no_resume_starts_over() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(16, SIZE);
    let source = place.make_here("file", &expected);
    let url = server.url("/file");
    let mut client = slow_copy(&source, &url);
    client.wait_for_bytes(8 << 20);
    client.kill();
    let run = xdfs(["cp", "--json", "--no-resume", &source, &url]).ok();
    assert_eq!(run.result()["resumed_bytes"], 0);
    assert_content(place.remote("file"), &expected);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_in_an_orderly_way() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(17, SIZE);
    let source = place.make_here("file", &expected);
    let url = server.url("/file");
    let mut client = slow_copy(&source, &url);
    client.wait_for_bytes(8 << 20);
    client.signal("INT");
    let run = client
        .wait()
        .fails(130, &["run the same command again to resume"]);
    assert_eq!(run.result()["exit_code"], 130);
    assert_unpublished(place.root(), "file");
    let run = xdfs(["cp", "--json", &source, &url]).ok();
    assert!(run.result()["resumed_bytes"].as_u64().unwrap() > 0);
    assert_content(place.remote("file"), &expected);
}

#[cfg(unix)]
#[test]
fn a_server_that_drains_leaves_a_resumable_state() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--grace", "0"];
    let mut server = Server::start_with(&place.root(), &flags);
    let expected = content(18, SIZE);
    let source = place.make_here("file", &expected);
    let url = server.url("/file");
    let words = [
        "cp",
        "--json",
        "-n",
        "3",
        "--retries",
        "0",
        "--limit-rate",
        SLOW,
        &source,
        &url,
    ];
    let mut client = Running::start(program().args(words));
    client.wait_for_bytes(8 << 20);
    server.running.signal("TERM");
    server.running.wait().ok();
    let run = client.wait();
    assert!(
        matches!(run.code, Some(3 | 13)),
        "{:?}: {}",
        run.code,
        run.stderr
    );
    assert_unpublished(place.root(), "file");
    let server = Server::start(&place.root());
    let run = xdfs(["cp", "--json", &source, &server.url("/file")]).ok();
    assert!(run.result()["resumed_bytes"].as_u64().unwrap() > 0);
    assert_content(place.remote("file"), &expected);
}

#[cfg(unix)]
#[test]
fn a_draining_server_lets_running_copies_end() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--grace", "30"];
    let mut server = Server::start_with(&place.root(), &flags);
    let expected = content(19, SIZE);
    let source = place.make_here("file", &expected);
    let url = server.url("/file");
    let mut client = slow_copy(&source, &url);
    client.wait_for_bytes(8 << 20);
    server.running.signal("TERM");
    client.wait().ok();
    server.running.wait().ok();
    assert_content(place.remote("file"), &expected);
}
