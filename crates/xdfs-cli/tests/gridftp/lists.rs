//! `xdfs cp --from-file`: lists of pairs, with places of every kind.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::places::xdfs;
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, outcome, run};

/// The address for xDFS, which the server tells before that for GridFTP.
fn xdfs_address(stage: &Stage) -> String {
    let output = stage.server.output();
    let address = output
        .iter()
        .find_map(|line| line.strip_prefix("listening on "));
    address.unwrap().to_owned()
}

/// Logins at the door for GridFTP so far.
fn logins(stage: &Stage) -> usize {
    let output = stage.server.output();
    let is_login = |line: &&String| line.contains(" login ") && line.contains("door=\"gridftp\"");
    output.iter().filter(is_login).count()
}

#[test]
fn each_line_is_a_copy_and_sessions_are_used_again() {
    let stage = Stage::open(90, &[]);
    let (ftp, there) = (stage.url(""), format!("xdfs://{}", xdfs_address(&stage)));
    let here = stage.here("").display().to_string();
    let mut list = String::from("# comment\n\n");
    let mut wanted = Vec::new();
    for number in 0..300 {
        let bytes = 10 + number;
        let (source, target) = match number % 4 {
            0 => {
                let content = Stage::make(&stage.here(&format!("a {number}")), bytes);
                wanted.push((stage.root(&format!("up {number}")), content));
                (format!("{here}a {number}"), format!("{ftp}/up%20{number}"))
            }
            1 => {
                let content = Stage::make(&stage.root(&format!("f{number}")), bytes);
                wanted.push((stage.here(&format!("down {number}")), content));
                let target = format!("file://{here}down%20{number}");
                (format!("{ftp}/f{number}"), target)
            }
            2 => {
                let content = Stage::make(&stage.here(&format!("b{number}")), bytes);
                wanted.push((stage.root(&format!("x{number}")), content));
                (format!("{here}b{number}"), format!("{there}/x{number}"))
            }
            _ => {
                let content = Stage::make(&stage.root(&format!("g{number}")), bytes);
                wanted.push((stage.here(&format!("y{number}")), content));
                (format!("{there}/g{number}"), format!("{here}y{number}"))
            }
        };
        list += &format!("\"{source}\" \"{target}\"\n");
    }
    fs::write(stage.here("list"), &list).unwrap();
    let path = stage.here("list").display().to_string();
    let words = ["cp", "--insecure", "--json", "--from-file", &path];
    let said = run(&mut xdfs(&stage, &words));
    for (path, content) in &wanted {
        assert_bytes(path, content);
    }
    let files = said
        .lines()
        .filter(|line| line.contains("\"type\":\"file\""));
    assert_eq!(files.count(), 300, "{said}");
    let result = said.lines().last().unwrap();
    assert!(
        result.contains("\"type\":\"result\"") && result.contains("\"files\":300"),
        "{result}"
    );
    assert!(logins(&stage) <= 16, "{} logins", logins(&stage));
    // A second time nothing is left to do, and with other content --force is needed.
    run(&mut xdfs(&stage, &words));
    fs::write(&wanted[0].0, "another").unwrap();
    assert!(!outcome(&mut xdfs(&stage, &words)).0);
    run(&mut xdfs(&stage, &[&words[..], &["--force"]].concat()));
    assert_bytes(&wanted[0].0, &wanted[0].1);
}

#[test]
fn a_failure_is_that_of_its_line() {
    let stage = Stage::open(91, &[]);
    let content = Stage::make(&stage.root("good"), 1000);
    Stage::make(&stage.root("tree/sub/file"), 77);
    let here = stage.here("").display().to_string();
    let good = stage.url("/good");
    let list = [
        format!("{good} {here}first"),
        format!("{} {here}missing", stage.url("/missing")),
        format!("ftp://me:secret@{}/good", stage.address),
        format!("{good} {here}part 0,100"),
        format!("ftp://me:secret@{0}/good ftp://{0}/other", stage.address),
        format!("- {}", stage.url("/stream")),
        format!("nothing://h/x {here}x"),
        "x".repeat(100_000),
        format!("{}/ {here}tree", stage.url("/tree")),
        format!("{good} {here}last"),
    ];
    fs::write(stage.here("list"), list.join("\n")).unwrap();
    let path = stage.here("list").display().to_string();
    let words = ["cp", "--insecure", "--json", "-r", "--from-file", &path];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded, "{said}");
    for name in ["first", "last"] {
        assert_bytes(&stage.here(name), &content);
    }
    assert_same_tree(&stage.root("tree"), &stage.here("tree"));
    let errors: Vec<_> = said
        .lines()
        .filter(|line| line.contains("\"type\":\"error\""))
        .collect();
    let causes = [
        "/missing",
        "line 3 doesn't have a source and a target",
        "line 4 has a third word",
        "log in as me",
        "a standard stream can't be in a list",
        "'nothing' is not a supported protocol",
        "line 8 has more than 65536 bytes",
    ];
    assert_eq!(errors.len(), causes.len(), "{errors:#?}");
    for cause in causes {
        let of = errors.iter().filter(|line| line.contains(cause)).count();
        assert!(of >= 1, "{cause}: {errors:#?}");
    }
    assert!(!said.contains("secret"), "{said}");
    let result = said.lines().last().unwrap();
    assert!(result.contains("\"failed\":7"), "{result}");
    // Not found is the first failure.
    let status = xdfs(&stage, &words).stdin(Stdio::null()).output().unwrap();
    assert_eq!(status.status.code(), Some(4));
    for words in [
        &["cp", "--insecure", "--from-file", &path, "a", "b"][..],
        &["cp", "--insecure", "--from-file", "/no/such/list"],
    ] {
        assert!(!outcome(&mut xdfs(&stage, words)).0, "{words:?}");
    }
}

#[test]
fn a_list_is_copied_while_it_is_written() {
    let stage = Stage::open(92, &[]);
    let content = Stage::make(&stage.root("file"), 5000);
    let mut command = xdfs(&stage, &["cp", "--insecure", "--from-file", "-"]);
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    for name in ["one", "two"] {
        let target = stage.here(name);
        writeln!(input, "{} {}", stage.url("/file"), target.display()).unwrap();
        assert!(wait::until(PATIENCE, || target.exists()), "{name}");
        assert_bytes(&target, &content);
    }
    drop(input);
    let mut ended = None;
    let _ = wait::until(PATIENCE, || {
        ended = running.try_wait().unwrap();
        ended.is_some()
    });
    if ended.is_none() {
        running.kill().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()));
}

/// The most memory that a process has had, in KiB.
fn peak(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn a_million_lines_take_no_memory() {
    let stage = Stage::open(93, &[]);
    let list = stage.here("list");
    // A stream on this machine, which is refused without anything to wait for.
    fs::write(&list, "some/place -\n".repeat(1_000_000)).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$0\" \"$@\" > /dev/null 2> /dev/null"])
        .arg(env!("CARGO_BIN_EXE_xdfs"))
        .args(["cp", "--insecure", "--quiet", "--from-file"])
        .arg(&list);
    let mut running = Guard::spawn(&mut command).unwrap();
    let mut most = 0;
    let mut status = None;
    // Two threads hand each line over, which takes a busy machine minutes.
    let _ = wait::until(10 * PATIENCE, || {
        most = most.max(peak(running.id()).unwrap_or(0));
        status = running.wait(std::time::Duration::ZERO).unwrap();
        status.is_some()
    });
    let code = status.and_then(|status| status.code());
    assert_eq!(code, Some(2));
    assert!((1..64 << 10).contains(&most), "{most} KiB");
}

/// Lines to one target follow each other, and a file that was moved there isn't lost to the next.
#[test]
fn lines_to_one_target_keep_their_order() {
    let stage = Stage::open(99, &[]);
    let here = stage.here("").display().to_string();
    let list = stage.here("list").display().to_string();
    let mut lines = String::new();
    let mut last = Vec::new();
    for number in 0..12 {
        // The longest comes first, and would end last.
        last = Stage::make(&stage.root(&format!("d{number}")), 3_000_000 >> number);
        let source = stage.url(&format!("/d{number}"));
        lines += &format!("{source} {here}target\n");
    }
    fs::write(&list, &lines).unwrap();
    for _ in 0..3 {
        run(&mut xdfs(
            &stage,
            &["cp", "--insecure", "--force", "--from-file", &list],
        ));
        assert_bytes(&stage.here("target"), &last);
    }
    let contents = ["m0", "m1"].map(|name| Stage::make(&stage.here(name), 1000));
    let to = stage.url("/moved");
    fs::write(&list, format!("{here}m0 {to}\n{here}m1 {to}\n")).unwrap();
    let words = [
        "cp",
        "--insecure",
        "--force",
        "--remove-source",
        "--from-file",
        &list,
    ];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(
        !succeeded && text.contains("an earlier line moves"),
        "{text}"
    );
    assert_bytes(&stage.root("moved"), &contents[0]);
    assert_bytes(&stage.here("m1"), &contents[1]);
}

/// A server that never answered isn't tried again, and holds up nobody.
#[test]
fn a_server_that_is_not_there_is_not_waited_for() {
    let stage = Stage::open(150, &[]);
    let content = Stage::make(&stage.root("f"), 1000);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = free.local_addr().unwrap();
    drop(free);
    let here = stage.here("").display().to_string();
    let list = stage.here("list").display().to_string();
    let good = stage.url("/f");
    fs::write(
        &list,
        format!("ftp://{nowhere}/x {here}x\n{good} {here}y\n"),
    )
    .unwrap();
    let words = ["cp", "--insecure", "--from-file", &list];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("connection refused"), "{text}");
    assert!(!text.contains("retry"), "{text}");
    assert_bytes(&stage.here("y"), &content);
}
