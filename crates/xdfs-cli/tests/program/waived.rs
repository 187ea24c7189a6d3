//! What `--durability none` waives: calls that make a target durable, as `strace` sees them at the
//! end that writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, Running, Server, content, program};
use crate::trees::assert_same;
use crate::unheard::{beneath, can_trace};

/// The same command beneath `strace`, which notes what is made durable.
fn traced(command: &Command, trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-y", "-a", "1", "-e", "signal=none", "-o"]);
    strace.arg(trace);
    strace.args(["-e", "trace=fsync,fdatasync,syncfs,sync,sync_file_range"]);
    beneath(strace, command)
}

/// Copies a tree of small files, and returns the calls for the target.
fn syncs(is_upload: bool, durability: &str) -> Vec<String> {
    let place = Place::new();
    let trace = place.path().join("trace");
    let from = match is_upload {
        true => place.here("tree").into(),
        false => place.remote("tree"),
    };
    for directory in ["a", "b/c"] {
        let path = from.join(directory);
        fs::create_dir_all(&path).unwrap();
        for file in 0..20_usize {
            let content = content(file as u64, file * 997);
            fs::write(path.join(format!("f{file}")), content).unwrap();
        }
    }
    let server =
        Server::start_as(
            &place.root(),
            &["--listen", "127.0.0.1:0"],
            |serve| match is_upload {
                true => traced(&serve, &trace),
                false => serve,
            },
        );
    let (source, target, to) = match is_upload {
        true => (place.here("tree"), server.url("/"), place.remote("tree")),
        false => {
            let to = place.here("copy");
            (server.url("/tree"), to.clone(), to.into())
        }
    };
    let mut copy = program();
    copy.args(["cp", "-r", "--durability", durability, &source, &target]);
    if !is_upload {
        copy = traced(&copy, &trace);
    }
    Running::start(&mut copy).wait().ok();
    assert_same(&from, &to);
    // Each is noted before the program goes on.
    let text = fs::read_to_string(&trace).unwrap();
    let root = to.parent().unwrap().to_str().unwrap();
    let of_target = text.lines().filter(|line| line.contains(root));
    of_target.map(ToOwned::to_owned).collect()
}

#[test]
fn nothing_is_made_durable_that_nobody_waits_for() {
    if !can_trace() {
        return;
    }
    for is_upload in [true, false] {
        assert_eq!(syncs(is_upload, "none"), [""; 0], "upload: {is_upload}");
        for durability in ["batch", "full"] {
            let syncs = syncs(is_upload, durability);
            let is_whole = |line: &String| line.contains("syncfs(") || line.contains("fsync(");
            assert!(
                syncs.iter().any(is_whole),
                "{is_upload}, {durability}: {syncs:?}"
            );
        }
    }
}
