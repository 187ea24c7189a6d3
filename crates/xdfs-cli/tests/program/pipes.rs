//! Named pipes of a server as one end of a pipeline here.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, Server, assert_content, content, program, xdfs, xdfs_with_input};

fn make_pipe(place: &Place, name: &str) {
    xdfs_testkit::tree::make_pipe(place.remote(name)).unwrap();
}

#[test]
fn standard_input_goes_into_a_pipe_and_comes_out_of_it() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let expected = content(1, 3_000_000);
    let url = server.url("/p");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| xdfs(["cat", &url]).ok());
        let run = xdfs_with_input(["cp", "--json", "-", &url], &expected).ok();
        assert_eq!(run.result()["bytes"], 3_000_000);
        assert!(reader.join().unwrap().stdout == expected);
    });
    // It is still a pipe, and nothing was left beside it.
    assert!(!place.remote("p").is_file());
    assert_eq!(crate::support::names(place.root()).len(), 1);
}

#[test]
fn what_comes_out_of_a_pipe_is_copied_to_standard_output() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let expected = content(4, 3_000_000);
    let (url, writer) = (server.url("/p"), place.remote("p"));
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&writer, &expected).unwrap());
        let run = xdfs(["cp", &url, "-"]).ok();
        assert!(run.stdout == expected);
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The other end goes away before everything is written.
            let _ = std::fs::write(&writer, &expected);
        });
        let run = xdfs(["cp", "--length", "10", &url, "-"]).ok();
        assert_eq!(run.stdout, expected[..10]);
    });
    // To a file, and from within it, nothing can be copied: a pipe has no length.
    xdfs(["cp", &url, &place.here("f")]).fails(6, &["pipe"]);
    xdfs(["cp", "--offset", "1", &url, "-"]).fails(6, &["pipe"]);
}

/// Whichever block of a large file the disk brings first.
#[test]
fn bytes_of_a_disk_come_in_order() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(6, (66 << 20) + 5_003);
    std::fs::write(place.remote("large"), &expected).unwrap();
    std::fs::File::open(place.remote("large"))
        .unwrap()
        .sync_all()
        .unwrap();
    // Out of the page cache.
    let file = format!("if={}", place.remote("large").display());
    let dropped = Command::new("dd")
        .args([&file, "iflag=nocache", "count=0"])
        .output();
    assert!(dropped.unwrap().status.success());
    let run = xdfs(["cp", &server.url("/large"), "-"]).ok();
    assert!(run.stdout == expected);
}

#[test]
fn a_bound_on_the_rate_holds_for_pipes_too() {
    const RATE: &str = "1M";
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let expected = content(5, 1_500_000);
    let url = server.url("/p");
    let least = Duration::from_millis(1200);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| xdfs(["cat", &url]).ok());
        let start = Instant::now();
        xdfs_with_input(["cp", "--limit-rate", RATE, "-", &url], &expected).ok();
        assert!(start.elapsed() >= least, "{:?}", start.elapsed());
        assert!(reader.join().unwrap().stdout == expected);
    });
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(place.remote("p"), &expected).unwrap());
        let start = Instant::now();
        let run = xdfs(["cp", "--limit-rate", RATE, &url, "-"]).ok();
        assert!(start.elapsed() >= least, "{:?}", start.elapsed());
        assert!(run.stdout == expected);
    });
}

#[test]
fn who_waits_for_a_bound_on_the_rate_can_be_stopped() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let mut command = program();
    command.args(["cp", "--limit-rate", "1", &server.url("/p"), "-"]);
    let mut running = crate::support::Running::start(command.stdin(Stdio::null()));
    let mut writer = std::fs::OpenOptions::new();
    let mut writer = writer.write(true).open(place.remote("p")).unwrap();
    // It would take hours.
    std::io::Write::write_all(&mut writer, &[7; 10_000]).unwrap();
    running.signal("INT");
    assert_eq!(running.wait().code, Some(130));
}

#[test]
fn who_waits_for_a_writer_can_be_stopped() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let mut command = program();
    command.args(["cp", &server.url("/p"), "-"]);
    let mut running = crate::support::Running::start(command.stdin(Stdio::null()));
    // It has opened the pipe as soon as somebody can write to it.
    let mut writer = std::fs::OpenOptions::new();
    let mut writer = writer.write(true).open(place.remote("p")).unwrap();
    std::io::Write::write_all(&mut writer, b"x").unwrap();
    running.signal("INT");
    assert_eq!(running.wait().code, Some(130));
}

#[test]
fn a_part_of_what_comes_out_is_enough() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let writer = place.remote("p");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The other end goes away before everything is written.
            let _ = std::fs::write(&writer, content(2, 1_000_000));
        });
        let run = xdfs(["cat", "--length", "10", &server.url("/p")]).ok();
        assert_eq!(run.stdout, content(2, 1_000_000)[..10]);
    });
    // What isn't a pipe is refused as before.
    std::fs::create_dir(place.remote("d")).unwrap();
    xdfs(["cat", &server.url("/d")]).fails(6, &["directory"]);
}

#[test]
fn a_file_is_written_as_before() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(3, 100_000);
    xdfs_with_input(["cp", "-", &server.url("/f")], &expected).ok();
    assert_content(place.remote("f"), &expected);
}

#[test]
fn who_waits_for_a_reader_can_be_stopped() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make_pipe(&place, "p");
    let mut command = program();
    command.args(["cp", "-", &server.url("/p")]);
    let mut running = crate::support::Running::start(command.stdin(Stdio::piped()));
    std::thread::sleep(Duration::from_millis(300));
    running.signal("INT");
    assert_eq!(running.wait().code, Some(130));
}
