//! The commands about paths on servers, against what the programs of this machine say of the same
//! tree.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use xdfs_testkit::tree::make_pipe;

use crate::support::{Place, Run, Running, Server, content, names, program, xdfs, xdfs_with_input};

/// What a program of this machine prints, run in `dir`.
#[track_caller]
fn here(dir: &Path, words: &[&str]) -> String {
    let run = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .output()
        .unwrap();
    assert!(run.status.success(), "{words:?}: {run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// The program in the time zone of [`here`].
#[track_caller]
fn there(words: &[&str]) -> Run {
    Running::start(program().args(words).env("TZ", "UTC")).wait()
}

/// Lines in the order of their bytes, without what is aligned.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines
}

/// A server with a small tree.
fn tree() -> (Place, Server) {
    let place = Place::new();
    let root = place.root();
    for dir in ["runs", "runs/one", "runs/two", "empty"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for (name, length) in [
        ("big.img", 300_000),
        (".hidden", 1),
        ("runs/a.dat", 10),
        ("runs/one/b.dat", 2_000),
        ("runs/two/c.txt", 0),
        ("-dash", 3),
        ("two words", 4),
    ] {
        fs::write(root.join(name), content(1, length)).unwrap();
    }
    symlink("runs/a.dat", root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fs::hard_link(root.join("big.img"), root.join("same.img")).unwrap();
    fs::set_permissions(root.join("runs/a.dat"), fs::Permissions::from_mode(0o4750)).unwrap();
    here(
        &root,
        &["touch", "-d", "2001-02-03 04:05:06", "runs/one/b.dat"],
    );
    let server = Server::start(&root);
    (place, server)
}

#[test]
fn ls_prints_what_ls_prints() {
    let (place, server) = tree();
    let root = place.root();
    for flags in ["-1", "-1r", "-1S", "-1d", "-l", "-lh", "-lrt", "-n", "-nrS"] {
        let own = flags.replace('1', "");
        let mut words = vec!["ls"];
        words.extend((own != "-").then_some(own.as_str()));
        let url = server.url("/runs");
        words.push(&url);
        let expected = match flags {
            "-1d" => "/runs\n".to_owned(),
            _ => here(&root, &["ls", flags, "runs"]),
        };
        // There is no line with a total.
        let expected = match flags.contains(['l', 'n']) {
            true => expected
                .lines()
                .skip(1)
                .map(|line| format!("{line}\n"))
                .collect(),
            false => expected,
        };
        assert_eq!(there(&words).ok().text(), expected, "{flags}");
    }
    let all = here(&root, &["ls", "-1A"]);
    assert_eq!(there(&["ls", "-a", &server.url("")]).ok().text(), all);
    let plain = here(&root, &["ls", "-1"]);
    assert_eq!(there(&["ls", &server.url("/")]).ok().text(), plain);
    // A link to a directory is gone through where it is named, unless the link itself is meant.
    symlink("runs", root.join("to-runs")).unwrap();
    let url = server.url("/to-runs");
    assert_eq!(there(&["ls", &url]).ok().text(), "a.dat\none\ntwo\n");
    assert!(
        there(&["ls", "-l", &url])
            .ok()
            .text()
            .ends_with("/to-runs -> runs\n")
    );
    // Times that are long ago, and links with what they say.
    let old = there(&["ls", "-l", &server.url("/runs/one/b.dat")])
        .ok()
        .text();
    assert!(old.contains("Feb  3  2001 /runs/one/b.dat"), "{old}");
    let link = there(&["ls", "-l", &server.url("/link")]).ok().text();
    assert!(
        link.starts_with('l') && link.ends_with("/link -> runs/a.dat\n"),
        "{link}"
    );
    assert_eq!(
        there(&["ls", &server.url("/dangling")]).ok().text(),
        "/dangling\n"
    );
}

#[test]
fn ls_marks_kinds_as_ls_does() {
    let (place, server) = tree();
    let root = place.root();
    make_pipe(root.join("pipe")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    for flags in ["-1", "-1F", "-1AF", "-1rF"] {
        let expected = here(&root, &["ls", flags]);
        let own = flags.replace('A', "a");
        let text = there(&["ls", &own, &server.url("/")]).ok().text();
        assert_eq!(text, expected, "{flags}");
    }
    drop(socket);
    let expected = here(&root, &["ls", "-lF", "runs"]);
    let expected: String = expected.lines().skip(1).map(|l| format!("{l}\n")).collect();
    let text = there(&["ls", "-lF", &server.url("/runs")]).ok().text();
    assert_eq!(text, expected);
    // A link has its arrow.
    let text = there(&["ls", "-lF", &server.url("/link")]).ok().text();
    assert!(text.ends_with(" /link -> runs/a.dat\n"), "{text}");
}

#[test]
fn ls_colours_if_told_to() {
    let (_place, server) = tree();
    let url = server.url("/runs");
    let plain = "a.dat\none\ntwo\n";
    let colored = "\x1b[1;32ma.dat\x1b[0m\n\x1b[1;34mone\x1b[0m\n\x1b[1;34mtwo\x1b[0m\n";
    for (flags, expected) in [
        (&[][..], plain),
        (&["--color=auto"], plain),
        (&["--color=never"], plain),
        (&["--color=always"], colored),
        (&["--color"], colored),
    ] {
        let words = [&["ls"], flags, &[url.as_str()]].concat();
        assert_eq!(there(&words).ok().text(), expected, "{flags:?}");
    }
    let link = there(&["ls", "--color", "-F", &server.url("/dangling")]);
    assert_eq!(link.ok().text(), "\x1b[1;36m/dangling\x1b[0m@\n");
    there(&["ls", "--color=blue", &url]).fails(2, &["blue", "auto, always, never"]);
}

#[test]
fn ls_goes_through_trees_in_the_order_of_ls() {
    let (place, server) = tree();
    // Enough directories, wide and deep, that more are waiting than are asked for at once.
    for a in 0..12 {
        for b in 0..12 {
            fs::create_dir_all(place.remote(&format!("many/{a}/{b}/x"))).unwrap();
        }
    }
    for dir in ["runs", "many"] {
        let expected = here(&place.root(), &["ls", "-1R", dir]);
        let expected = expected.replace(&format!("{dir}:"), &format!("/{dir}:"));
        let expected = expected.replace(&format!("\n{dir}/"), &format!("\n/{dir}/"));
        let run = there(&["ls", "-R", &server.url(&format!("/{dir}"))]).ok();
        assert_eq!(run.text(), expected);
    }
}

#[test]
fn several_operands_are_all_tried_and_the_first_failure_decides() {
    let (_place, server) = tree();
    let urls = ["/runs", "/none", "/big.img", "/big.img/x", "/empty"].map(|path| server.url(path));
    let mut words = vec!["ls"];
    words.extend(urls.iter().map(String::as_str));
    let run = there(&words).fails(4, &["error: server ", "/none", "/big.img/x"]);
    assert_eq!(
        run.text(),
        "/big.img\n\n/runs:\na.dat\none\ntwo\n\n/empty:\n"
    );
    let last = there(&["ls", "--json", &urls[1], "file", &urls[0]]).fails(4, &["file"]);
    let objects = last.json();
    let kinds: Vec<&str> = objects
        .iter()
        .map(|o| o["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["error", "error", "entry", "entry", "entry", "summary"]
    );
    assert_eq!(objects[0]["source"], urls[1].as_str());
    assert_eq!(objects[1]["code"], "invalid-argument");
    let summary = &objects[5];
    assert_eq!(
        (&summary["operands"], &summary["failed"]),
        (&3.into(), &2.into())
    );
    assert_eq!(
        (&summary["exit_code"], &summary["command"]),
        (&4.into(), &"ls".into())
    );
    assert_eq!(objects[2]["path"], "/runs/a.dat");
    assert_eq!(
        (&objects[2]["size"], &objects[2]["mode"]),
        (&10.into(), &0o4750.into())
    );
    // A server that isn't there.
    there(&["ls", "xdfs://127.0.0.1:1/"]).fails(3, &["error: ", "hint: "]);
}

#[test]
fn stat_says_what_stat_says() {
    let (place, server) = tree();
    let form = "%s %b %a %h %u %g %i %x %y %z";
    // To read a link sets its time, on most systems once.
    there(&["stat", &server.url("/link")]).ok();
    for name in ["big.img", "runs", "link", "runs/one/b.dat"] {
        let text = there(&["stat", &server.url(&format!("/{name}"))])
            .ok()
            .text();
        let expected = here(&place.root(), &["stat", "-c", form, name]);
        let mut fields: Vec<&str> = expected.trim().split(' ').collect();
        let mode = format!("({:0>4}/", fields.remove(2));
        assert!(text.contains(&mode), "{text}");
        for field in fields {
            assert!(text.contains(field), "{field} is not in {text}");
        }
    }
    let link = there(&["stat", "--json", &server.url("/link")]).ok().json();
    assert_eq!(
        (&link[0]["kind"], &link[0]["target"]),
        (&"symlink".into(), &"runs/a.dat".into())
    );
    let followed = there(&["stat", "-L", "--json", &server.url("/link")])
        .ok()
        .json();
    assert_eq!(
        (&followed[0]["kind"], &followed[0]["size"]),
        (&"file".into(), &10.into())
    );
    there(&["stat", &server.url("/none")]).fails(4, &["error: server ", "/none"]);
}

#[test]
fn stat_has_the_fields_of_stat() {
    let (place, server) = tree();
    make_pipe(place.root().join("pipe")).unwrap();
    // To read a link sets its time, on most systems once.
    there(&["stat", &server.url("/link")]).ok();
    let form = "%F|%s %b %a %A %f %u %U %g %G %h %i %d|%x %y %z %X %Y %Z%%";
    for name in [
        "big.img",
        "runs",
        "runs/a.dat",
        "runs/two/c.txt",
        "link",
        "pipe",
    ] {
        let url = server.url(&format!("/{name}"));
        let text = there(&["stat", "-c", form, &url]).ok().text();
        let expected = here(&place.root(), &["stat", "-c", form, name]);
        assert_eq!(text, expected, "{name}");
    }
    let [link, words] = ["/link", "/two words"].map(|path| server.url(path));
    let run = there(&["stat", "--format", "<%n> %N", &link, &words]).ok();
    assert_eq!(
        run.text(),
        "</link> /link -> runs/a.dat\n</two words> /two words\n"
    );
    let followed = there(&["stat", "-L", "-c", "%F %s", &link]).ok();
    assert_eq!(followed.text(), "regular file 10\n");
    for (bad, words) in [("%q", "%q"), ("%s %", "after %")] {
        there(&["stat", "-c", bad, &link]).fails(2, &[words]);
    }
    there(&["stat", "--json", "-c", "%s", &link]).fails(2, &["--json"]);
}

#[test]
fn find_finds_what_find_finds() {
    let (place, server) = tree();
    for tests in [
        &[][..],
        &["-name", "*.dat"],
        &["-type", "d"],
        &["-type", "l"],
        &["-type", "f", "-size", "+2"],
        &["-size", "-1"],
        &["-size", "10c"],
        &["-mtime", "+1000"],
        &["-mtime", "0", "-type", "f"],
        &["-maxdepth", "1"],
        &["-maxdepth", "0"],
        &["-name", "[!a-q]*"],
    ] {
        let depth: &[&str] = if tests.first() == Some(&"-maxdepth") {
            tests
        } else {
            &[]
        };
        let rest = &tests[depth.len()..];
        let local = [&["find", "/"][..1], &["."], depth, rest].concat();
        let expected = here(&place.root(), &local);
        let expected = expected.lines().map(|line| match line {
            "." => "/",
            line => line.strip_prefix('.').unwrap(),
        });
        // The root has the name '.' there, and none here.
        let mut expected: Vec<&str> = expected.filter(|line| *line != "/").collect();
        expected.sort_unstable();
        let url = server.url("");
        let words = [&["find", &url][..], tests].concat();
        let text = there(&words).ok().text();
        let mut found: Vec<&str> = text.lines().filter(|line| *line != "/").collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{tests:?}");
    }
    let newer = there(&[
        "find",
        &server.url("/runs"),
        "-newer",
        "2001-02-03 04:05:05",
        "--json",
    ]);
    assert_eq!(newer.ok().json().len(), 7);
    let raw = there(&["find", &server.url("/runs/one"), "-print0"]).ok();
    assert_eq!(raw.stdout, b"/runs/one\0/runs/one/b.dat\0");
    there(&["find", &server.url("/none"), &server.url("/empty")]).fails(4, &["/none"]);
}

/// Wildcards are expanded at the server, in every command that takes places.
#[test]
fn wildcards_stand_for_names_in_every_command() {
    let (place, server) = tree();
    let root = place.root();
    for name in ["w1", "w2", "w{3}", ".w4"] {
        fs::write(root.join(name), name).unwrap();
    }
    let w = server.url("/w*");
    let lines = |words: &[&str]| {
        let text = there(words).ok().text();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&["ls", &w]), ["/w1", "/w2", "/w{3}"]);
    assert_eq!(there(&["cat", &w]).ok().text(), "w1w2w{3}");
    for words in [
        &["stat", "-c", "%n"][..],
        &["du"],
        &["sum"],
        &["find"],
        &["chmod", "600"],
        &["chown", "0"],
        &["touch"],
        &["truncate", "-s", "1"],
    ] {
        if words[0] == "chown" && !xdfs_testkit::nobody::is_root() {
            continue;
        }
        let words = [words, &["--json", &w]].concat();
        let words: Vec<_> = words.into_iter().filter(|word| *word != "%n").collect();
        let words: Vec<_> = words.into_iter().filter(|word| *word != "-c").collect();
        let run = there(&words).ok();
        let summary = run.json().pop().unwrap();
        assert_eq!(summary["operands"], 3, "{words:?}");
        let text = run.text();
        for name in ["/w1", "/w2", "/w{3}"] {
            assert!(text.contains(name), "{words:?}: {text}");
        }
    }
    assert_eq!(fs::read(root.join("w{3}")).unwrap().len(), 1);
    assert_eq!(fs::read(root.join(".w4")).unwrap(), b".w4");
    // A single tree.
    there(&[
        "check",
        &server.url("/ru*s/"),
        root.join("runs").to_str().unwrap(),
    ])
    .ok();
    there(&["sum", "-r", &server.url("/ru[m-o]s")]).ok();
    there(&["check", &w, root.join("runs").to_str().unwrap()]).fails(2, &["3 names match"]);
    let target = place.here("synced");
    there(&["sync", &server.url("/r*s"), &target]).ok();
    assert!(fs::exists(format!("{target}/one/b.dat")).unwrap());
    // Nothing matches, and other operands are done.
    let none = server.url("/none*");
    for words in [&["rm"][..], &["ls"], &["touch"], &["stat"], &["find"]] {
        there(&[words, &[&none]].concat()).fails(4, &["/none*", "no name matches"]);
    }
    there(&["rm", "-f", &none]).ok();
    assert!(!fs::exists(root.join("none*")).unwrap());
    // Quoted, and a name that exists.
    there(&["touch", &server.url("/w%2A")]).ok();
    there(&["rm", &server.url("/w*")]).ok();
    assert!(fs::exists(root.join("w1")).unwrap() && !fs::exists(root.join("w*")).unwrap());
    there(&["rm", &server.url("/w[*]")]).fails(4, &["no name matches"]);
    there(&["mkdir", &server.url("/into")]).ok();
    there(&["mv", &server.url("/w[12]"), &server.url("/into")]).ok();
    there(&["rm", &none, &server.url("/into/*"), &w]).fails(4, &["no name matches"]);
    assert!(!fs::exists(root.join("into/w1")).unwrap() && !fs::exists(root.join("w{3}")).unwrap());
    assert!(fs::exists(root.join(".w4")).unwrap());
}

#[test]
fn links_are_made_to_names_that_match_wildcards() {
    let (place, server) = tree();
    let root = place.root();
    for name in ["v1", "v2"] {
        fs::write(root.join(name), name).unwrap();
    }
    let v = server.url("/v*");
    there(&["ln", &v, &server.url("/new")]).fails(4, &["/new"]);
    there(&["ln", &server.url("/v[1]"), &server.url("/new")]).ok();
    there(&["mkdir", &server.url("/linked")]).ok();
    there(&["ln", &v, &server.url("/linked")]).ok();
    assert_eq!(fs::read(root.join("new")).unwrap(), b"v1");
    assert_eq!(names(root.join("linked")), ["v1", "v2"]);
    there(&["ln", &server.url("/none*"), &server.url("/other")]).fails(4, &["no name matches"]);
    // The text of a symbolic link and the name of a directory are taken as they are.
    there(&["ln", "-s", "../v*", "../v1", &server.url("/linked/")]).fails(6, &["--force"]);
    assert_eq!(
        fs::read_link(root.join("linked/v*")).unwrap(),
        Path::new("../v*")
    );
    there(&["mkdir", &server.url("/w*")]).ok();
    assert!(root.join("w*").is_dir());
    // The times of one path.
    there(&["touch", "-r", &server.url("/v[1]"), &server.url("/v2")]).ok();
    there(&["touch", "-r", &v, &server.url("/v2")]).fails(2, &["2 names match"]);
}

/// A reader that has read enough ends a command without a message.
#[test]
fn a_reader_that_ends_is_no_failure() {
    let (place, server) = tree();
    let big = server.url("/big.img");
    make_pipe(place.remote("pipe")).unwrap();
    let pipe = server.url("/pipe");
    there(&["ls", &pipe]).ok();
    for words in [
        &["cat", &big, &big][..],
        &["cp", &big, "-"],
        &["cp", "-n", "3", &big, "-"],
        &["cat", &pipe],
        &["ls", "-lR", &server.url("/")],
        &["find", &server.url("/")],
        &["cat", "--help"],
        &["completions", "bash"],
    ] {
        let mut command = program();
        command.args(words).stdin(Stdio::null());
        let (read, write) = std::io::pipe().unwrap();
        command.stdout(write).stderr(Stdio::piped());
        // It has nothing to wait for before the reader is gone.
        drop(read);
        let mut child = command.spawn().unwrap();
        drop(command);
        if words[1] == pipe {
            let mut writer = fs::OpenOptions::new()
                .write(true)
                .open(place.remote("pipe"));
            let writer = writer.as_mut().unwrap();
            // Until the pipe has no reader either.
            let ended = xdfs_testkit::wait::until(std::time::Duration::from_secs(60), || {
                std::io::Write::write_all(writer, b"more").is_err()
            });
            assert!(ended);
        }
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn digests_are_computed_there() {
    let (_place, server) = tree();
    let empty = server.url("/runs/two/c.txt");
    let run = there(&["sum", &empty]).ok();
    // BLAKE3 of nothing, which is published.
    let nothing = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(run.text(), format!("{nothing}  /runs/two/c.txt\n"));
    let crc = there(&["sum", "--digest", "crc64nvme", &empty]).ok();
    assert_eq!(crc.text(), format!("{}  /runs/two/c.txt\n", "0".repeat(16)));
    let big = there(&["sum", "--json", &server.url("/big.img")])
        .ok()
        .json();
    assert_eq!(
        (&big[0]["bytes"], &big[0]["type"]),
        (&300_000.into(), &"sum".into())
    );
    // What a copy says of the same file.
    let place = Place::new();
    let url = server.url("/big.img");
    let copy = there(&[
        "get",
        "--json",
        "--digest",
        "blake3",
        &url,
        &place.here("x"),
    ])
    .ok();
    assert_eq!(copy.result()["digest"], big[0]["digest"]);
    there(&["sum", &server.url("/runs")]).fails(6, &["error: server ", "/runs", "--recursive"]);
}

#[test]
fn digests_are_those_of_other_programs() {
    let (place, server) = tree();
    let root = place.root();
    fs::write(root.join("runs/odd\nna\\me"), "odd").unwrap();
    let [big, small] = ["/big.img", "/runs/a.dat"].map(|path| server.url(path));
    let local = root.join("big.img");
    let local = local.to_str().unwrap();
    for (kind, other) in [("sha256", "sha256sum"), ("md5", "md5sum")] {
        // There and here alike.
        let run = there(&["sum", "--digest", kind, &big, local, &small]).ok();
        let expected = here(&root, &[other, "big.img", local, "runs/a.dat"]);
        let expected = expected.replace("  big.img", "  /big.img");
        assert_eq!(run.text(), expected.replace("  runs/", "  /runs/"));
        // A tree, in order, and as the other program checks it.
        let lists = ["runs/", "runs"].map(|name| {
            let url = server.url(&format!("/{name}"));
            [name, &url].map(|place| {
                let mut command = program();
                command.args(["sum", "-r", "--digest", kind, place]);
                let run = Running::start(command.current_dir(&root)).wait();
                run.ok().text()
            })
        });
        let list = &lists[0][0];
        assert!(
            lists.iter().flatten().all(|other| other == list),
            "{lists:?}"
        );
        let names: Vec<&str> = list
            .lines()
            .map(|line| line.split_once("  ").unwrap().1)
            .collect();
        let expected = ["a.dat", "odd\\nna\\\\me", "one/b.dat", "two/c.txt"];
        assert_eq!(names, expected.map(|name| format!("runs/{name}")));
        let file = place.make_here(other, list.as_bytes());
        // From where the list was made.
        let checked = here(&root, &[other, "-c", &file]);
        assert_eq!(checked.matches(": OK\n").count(), 4, "{checked}");
        // And here its lists.
        let list = here(
            &root.join("runs"),
            &[other, "a.dat", "odd\nna\\me", "two/c.txt"],
        );
        let file = place.make_here(other, list.as_bytes());
        for base in [
            server.url("/runs"),
            root.join("runs").to_str().unwrap().to_owned(),
        ] {
            let run = there(&["sum", "--digest", kind, "-c", &file, &base]).ok();
            assert_eq!(
                run.text(),
                "a.dat: OK\n\\odd\\nna\\\\me: OK\ntwo/c.txt: OK\n"
            );
        }
    }
    // One file, and links, which lead to their targets only if they are named.
    let run = there(&["sum", "-r", "--digest", "md5", &server.url("/link")]).ok();
    assert!(run.text().ends_with("  link\n"));
    let run = there(&["sum", "-r", &server.url("/")]).ok();
    assert!(!run.text().contains("link") && run.text().contains("  .hidden\n"));
    there(&["sum", "-r", &small, &big]).fails(2, &["several"]);
    there(&["sum", "-r", &server.url("/none")]).fails(4, &["error: server ", "/none"]);
    there(&["sum", &place.here("none"), &small]).fails(4, &["error: cannot ", "none"]);
    there(&["sum", "-"]).fails(2, &["standard input"]);
    there(&["sum"]).fails(2, &["PLACE"]);
}

#[test]
fn lists_of_digests_are_checked() {
    let (place, server) = tree();
    let (root, runs, top) = (place.root(), server.url("/runs"), server.url("/"));
    let list = there(&["sum", "-r", &runs]).ok().text();
    let file = place.make_here("list", list.as_bytes());
    there(&["sum", "-c", &file, &top]).ok();
    let run = xdfs_with_input(["sum", "-c", "-", &top], list.as_bytes()).ok();
    let ok = "runs/a.dat: OK\nruns/one/b.dat: OK\nruns/two/c.txt: OK\n";
    assert_eq!(run.text(), ok);
    there(&["sum", "-c", &file, &runs]).fails(4, &["relative paths begin in PLACE"]);
    fs::write(root.join("runs/one/b.dat"), content(2, 2_000)).unwrap();
    let words = ["sum", "-c", &file, &top];
    let run = there(&words).fails(18, &["1 of 3 digests differ"]);
    assert_eq!(run.text(), ok.replace("b.dat: OK", "b.dat: FAILED"));
    let run = there(&[&words[..], &["--json"]].concat()).fails(18, &[]);
    let lines = run.json();
    let matches: Vec<_> = lines[..3]
        .iter()
        .map(|line| line["matches"].as_bool())
        .collect();
    assert_eq!(matches, [Some(true), Some(false), Some(true)]);
    assert_eq!(lines[3]["exit_code"], 18);
    // A file that is gone is a failure, which goes first.
    fs::remove_file(root.join("runs/a.dat")).unwrap();
    let run = there(&words).fails(4, &["error: server ", "/runs/a.dat", "1 of 3"]);
    assert_eq!(run.text(), "runs/one/b.dat: FAILED\nruns/two/c.txt: OK\n");
    // The path of a file on a server leads to it with its server only.
    let sums = there(&["sum", &server.url("/big.img")]).ok().text();
    let file = place.make_here("one", sums.as_bytes());
    there(&["sum", "-c", &file]).fails(4, &["/big.img", "xdfs sum -c FILE xdfs://HOST/"]);
    there(&["sum", "-c", &file, &top]).ok();
    // From the current directory, and absolute paths.
    let sums = here(
        &root,
        &["md5sum", "big.img", root.join("-dash").to_str().unwrap()],
    );
    let file = place.make_here("sums", sums.as_bytes());
    let mut command = program();
    command
        .args(["sum", "--digest", "md5", "-c", &file])
        .current_dir(&root);
    let run = Running::start(&mut command).wait().ok();
    assert_eq!(run.text().matches(": OK\n").count(), 2, "{}", run.text());
    there(&["sum", "-c", &file, &runs]).fails(2, &["line 1", "--digest"]);
    let bad = place.make_here("bad", b"words\n");
    there(&["sum", "-c", &bad, &runs]).fails(2, &["line 1", "bad"]);
    there(&["sum", "-c", &place.here("none"), &runs]).fails(4, &["error: cannot ", "none"]);
    there(&["sum", "-r", "-c", &bad, &runs]).fails(2, &["--recursive"]);
}

#[test]
fn cat_prints_files_one_after_the_other() {
    let (place, server) = tree();
    let (big, small) = (server.url("/big.img"), server.url("/runs/a.dat"));
    let run = there(&["cat", &big, &small, &big]).ok();
    let read = |name: &str| fs::read(place.remote(name)).unwrap();
    let expected = [read("big.img"), read("runs/a.dat"), read("big.img")].concat();
    assert!(run.stdout == expected, "standard output differs");
    let part = there(&["cat", "--offset", "2", "--length", "3", &small]).ok();
    assert_eq!(part.stdout, read("runs/a.dat")[2..5]);
    let run = there(&["cat", &server.url("/none"), &small]).fails(4, &["error: server ", "/none"]);
    assert_eq!(run.stdout, read("runs/a.dat"));
}

#[test]
fn space_is_that_of_df_and_du() {
    let (place, server) = tree();
    let du = here(&place.root(), &["du", "runs"]);
    let found = there(&["du", &server.url("/runs")]).ok().text();
    assert_eq!(
        sorted(&found.replace('/', " ")),
        sorted(&du.replace('/', " "))
    );
    // A file with two names counts once.
    let all = here(&place.root(), &["du", "-s", "."]);
    let found = there(&["du", "-s", &server.url("")]).ok().text();
    assert_eq!(found, all.replace("\t.\n", "\t/\n"));
    let found = there(&["du", "-sh", "--apparent-size", &server.url("/runs/one")])
        .ok()
        .text();
    assert_eq!(found, "2.0K\t/runs/one\n");
    let df = there(&["df", &server.url("/"), &server.url("/runs")])
        .ok()
        .text();
    let total = here(&place.root(), &["df", "-k", "--output=size", "."]);
    let total = total.lines().last().unwrap().trim();
    assert_eq!(df.lines().count(), 3);
    assert!(
        df.lines()
            .all(|line| line.contains(total) || line.contains("1K-blocks")),
        "{df}"
    );
    let json = there(&["df", "--json", &server.url("/")]).ok().json();
    assert_eq!(
        json[0]["total"].as_u64().unwrap() / 1024,
        total.parse::<u64>().unwrap()
    );
    there(&["df", &server.url("/none")]).fails(4, &["/none"]);
    there(&["du", &server.url("/none")]).fails(4, &["/none"]);
}

#[test]
fn directories_are_made() {
    let (place, server) = tree();
    there(&["mkdir", "-m", "u=rwx,go=", &server.url("/new")]).ok();
    let mode = |name: &str| fs::metadata(place.remote(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("new"), 0o700);
    there(&["mkdir", &server.url("/new")]).fails(6, &["error: server ", "/new", "--parents"]);
    there(&["mkdir", &server.url("/x/y/z")]).fails(4, &["--parents"]);
    let run = there(&[
        "mkdir",
        "-p",
        "--json",
        &server.url("/x/y/z"),
        &server.url("/new"),
    ])
    .ok();
    assert_eq!(run.json()[0]["path"], "/x/y/z");
    assert!(place.remote("x/y/z").is_dir());
}

#[test]
fn what_is_removed_is_gone_and_nothing_else() {
    let (place, server) = tree();
    there(&["rm", &server.url("/runs")]).fails(6, &["error: ", "-r"]);
    there(&["rm", "-d", &server.url("/runs")]).fails(6, &["/runs"]);
    there(&["rm", "-d", &server.url("/empty")]).ok();
    there(&["rm", &server.url("/none")]).fails(4, &["error: server ", "/none"]);
    there(&["rm", "-f", &server.url("/none"), &server.url("/link")]).ok();
    assert!(place.remote("runs/a.dat").exists() && !place.remote("link").is_symlink());
    for root in ["", "/", "/.", "/runs/..", "//"] {
        there(&["rm", "-rf", &server.url(root)]).fails(2, &["error: ", "root"]);
    }
    // A directory is removed by its own name only.
    for path in ["/runs/.", "/runs/./", "/runs/one/.."] {
        let refused = [
            "the last name of the path is '.' or '..'",
            "name the directory",
        ];
        there(&["rm", "-rf", &server.url(path)]).fails(2, &refused);
        there(&["rm", "-d", &server.url(path)]).fails(2, &refused);
        there(&["mv", &server.url(path), &server.url("/moved")]).fails(2, &refused);
    }
    for line in [
        "cd runs\nrm -r .\n",
        "cd runs/one\nrm -rf ..\n",
        "rm -r runs/.\n",
    ] {
        let run = xdfs_with_input(["shell", &server.url("/")], line.as_bytes());
        run.fails(2, &["the last name of the path is '.' or '..'"]);
    }
    assert!(place.remote("runs/one/b.dat").exists());
    there(&["rm", "-r", &server.url("/runs"), &server.url("/big.img")]).ok();
    let left = [".hidden", "-dash", "dangling", "same.img", "two words"];
    let mut expected = left.map(String::from);
    expected.sort();
    assert_eq!(names(place.root()), expected);
    xdfs(["rm"]).fails(2, &["URL"]);
    xdfs(["rm", "-f"]).fails(2, &["URL"]);
}

#[test]
fn removal_asks_if_told_to() {
    let (place, server) = tree();
    let [big, runs, none] = ["/big.img", "/runs", "/none"].map(|path| server.url(path));
    let words = ["rm", "-i", "-r", big.as_str(), runs.as_str()];
    let run = xdfs_with_input(words, b"yep\n").ok();
    let questions = [
        "remove '/big.img'? [y/N] ",
        "remove '/runs' and all in it? [y/N] ",
    ];
    assert!(run.stderr.contains(questions[0]), "{}", run.stderr);
    // The end of the input is a no.
    assert!(run.stderr.contains(questions[1]), "{}", run.stderr);
    assert!(place.remote("big.img").exists() && place.remote("runs/a.dat").exists());
    let run = xdfs_with_input(words.iter().chain(&["--json"]), b"n\nYes\n").ok();
    assert!(place.remote("big.img").exists() && !place.remote("runs").exists());
    let lines = run.json();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (&lines[0]["type"], &lines[0]["path"]),
        (&"done".into(), &"/runs".into())
    );
    // What can't be removed isn't asked about.
    let run = xdfs_with_input(["rm", "-i", &none], b"y\n").fails(4, &["/none"]);
    assert!(!run.stderr.contains("[y/N]"), "{}", run.stderr);
    there(&["rm", "-i", "-f", &big]).fails(2, &["--force"]);
}

#[test]
fn find_deletes_what_it_finds() {
    let (place, server) = tree();
    let root = place.root();
    for name in ["runs/one/x.tmp", "runs/x.tmp", ".x.tmp"] {
        fs::write(root.join(name), "x").unwrap();
    }
    let all = server.url("/");
    let run = there(&["find", &all, "-name", "*.tmp", "-delete"]).ok();
    assert_eq!(run.text(), "");
    let left = here(&root, &["find", ".", "-name", "*.tmp"]);
    assert_eq!(left, "");
    // The directory that wasn't empty before, after its contents.
    let run = there(&["find", &server.url("/runs/one"), "-delete", "--json"]).ok();
    let lines = run.json();
    let paths: Vec<_> = lines.iter().filter(|l| l["type"] == "done").collect();
    assert_eq!(paths.len(), 2);
    assert_eq!(
        (&paths[0]["path"], &paths[1]["path"]),
        (&"/runs/one/b.dat".into(), &"/runs/one".into())
    );
    assert!(!root.join("runs/one").exists());
    // A directory that isn't empty stays, and is a failure; the rest goes on.
    let runs = server.url("/runs");
    there(&["find", &runs, "-type", "d", "-delete"]).fails(6, &["error: server ", "/runs"]);
    assert!(root.join("runs/a.dat").exists() && !root.join("runs/two/c.txt").is_dir());
    // Not all of a server at once, and never its root.
    for url in [&all, &server.url("/runs/..")] {
        there(&["find", url, "-delete"]).fails(2, &["root", "hint: "]);
        there(&["find", url, "-maxdepth", "1", "-delete"]).fails(2, &["root"]);
    }
    assert!(root.join("big.img").exists());
    there(&["find", &all, "-type", "d", "-name", "e*", "-delete"]).ok();
    assert!(root.is_dir() && !root.join("empty").exists());
    there(&["find", &all, "-size", "+0", "-delete"]).fails(6, &["error: server ", "/runs"]);
    there(&["find", &all, "-delete", "-print0"]).fails(2, &["--print0"]);
}

#[test]
fn names_are_exchanged() {
    let (place, server) = tree();
    let url = |path: &str| server.url(path);
    there(&["mv", &url("/big.img"), &url("/new.img")]).ok();
    assert!(place.remote("new.img").exists() && !place.remote("big.img").exists());
    there(&["mv", &url("/new.img"), &url("/-dash")]).fails(6, &["/-dash", "--force"]);
    there(&["mv", "-n", &url("/new.img"), &url("/-dash")]).ok();
    assert_eq!(fs::read(place.remote("-dash")).unwrap().len(), 3);
    there(&["mv", "-f", &url("/new.img"), &url("/-dash")]).ok();
    assert_eq!(fs::read(place.remote("-dash")).unwrap().len(), 300_000);
    there(&["mv", &url("/-dash"), &url("/runs/a.dat"), &url("/empty")]).ok();
    assert_eq!(names(place.remote("empty")), ["-dash", "a.dat"]);
    there(&["mv", &url("/empty"), &url("/runs")]).ok();
    assert!(place.remote("runs/empty/a.dat").exists());
    there(&["mv", &url("/link"), &url("/dangling"), &url("/none")]).fails(4, &["/none"]);
    there(&["mv", &url("/link"), &url("/same.img/")]).fails(6, &["/same.img"]);
    there(&["mv", &url("/link"), "xdfs://127.0.0.1:1/x"]).fails(2, &["different servers"]);
    there(&["mv", &url("/"), &url("/x")]).fails(2, &["root"]);
}

#[test]
fn links_are_made() {
    let (place, server) = tree();
    let url = |path: &str| server.url(path);
    there(&["ln", &url("/runs/a.dat"), &url("/hard")]).ok();
    assert_eq!(fs::metadata(place.remote("hard")).unwrap().nlink(), 2);
    there(&["ln", "-s", "runs/two", &url("/soft")]).ok();
    assert_eq!(
        fs::read_link(place.remote("soft")).unwrap(),
        Path::new("runs/two")
    );
    there(&["ln", "-s", "x", &url("/hard")]).fails(6, &["/hard", "--force"]);
    there(&["ln", "-sf", "x", &url("/hard")]).ok();
    assert_eq!(fs::read_link(place.remote("hard")).unwrap(), Path::new("x"));
    there(&["ln", &url("/big.img"), &url("/empty")]).ok();
    assert_eq!(names(place.remote("empty")), ["big.img"]);
    there(&["ln", "-s", &url("/a"), &url("/b")]).fails(2, &["URL"]);
    there(&["ln", &url("/none"), &url("/b")]).fails(4, &["error: server "]);
}

#[test]
fn times_are_set_and_files_made() {
    let (place, server) = tree();
    let url = |path: &str| server.url(path);
    let times = |name: &str| {
        let meta = fs::metadata(place.remote(name)).unwrap();
        (meta.atime(), meta.mtime())
    };
    there(&["touch", &url("/made"), &url("/big.img")]).ok();
    assert_eq!(fs::read(place.remote("made")).unwrap(), b"");
    there(&["touch", "-c", &url("/not-made")]).ok();
    assert!(!place.remote("not-made").exists());
    there(&["touch", "-d", "1970-01-02", &url("/made")]).ok();
    assert_eq!(times("made"), (86_400, 86_400));
    there(&["touch", "-a", "-d", "@7", &url("/made")]).ok();
    assert_eq!(times("made"), (7, 86_400));
    there(&["touch", "-m", "-t", "197001010001.02", &url("/made")]).ok();
    assert_eq!(times("made"), (7, 62));
    there(&["touch", "-r", &url("/made"), &url("/big.img")]).ok();
    assert_eq!(times("big.img"), (7, 62));
    let local = place.make_here("local", b"");
    here(
        place.path(),
        &["touch", "-d", "2001-02-03 04:05:06", &local],
    );
    there(&["touch", "-r", &local, &url("/big.img")]).ok();
    assert_eq!(times("big.img"), times("runs/one/b.dat"));
    there(&["touch", &url("/none/x")]).fails(4, &["error: server "]);
    there(&["touch", "-r", &place.here("none"), &url("/x")]).fails(4, &["error: cannot "]);
}

#[test]
fn permissions_and_owners_are_set() {
    let (place, server) = tree();
    let url = |path: &str| server.url(path);
    let mode = |name: &str| fs::metadata(place.remote(name)).unwrap().mode() & 0o7777;
    there(&["chmod", "640", &url("/big.img")]).ok();
    assert_eq!(mode("big.img"), 0o640);
    there(&["chmod", "u+x,g=u,o-r", &url("/big.img")]).ok();
    assert_eq!(mode("big.img"), 0o770);
    there(&["chmod", "--", "-x", &url("/big.img")]).ok();
    assert_eq!(mode("big.img"), 0o660);
    there(&["chmod", "-R", "u=rwX,go=", &url("/runs")]).ok();
    assert_eq!((mode("runs"), mode("runs/one")), (0o700, 0o700));
    assert_eq!((mode("runs/a.dat"), mode("runs/one/b.dat")), (0o700, 0o600));
    there(&["chmod", "640", &url("/none"), &url("/-dash")]).fails(4, &["/none"]);
    assert_eq!(mode("-dash"), 0o640);
    // Nobody needs rights to give a file to whom it belongs.
    let meta = fs::metadata(place.remote("big.img")).unwrap();
    let owner = format!("{}:{}", meta.uid(), meta.gid());
    there(&["chown", &owner, &url("/big.img")]).ok();
    there(&["chown", "-R", &owner, &url("/runs"), &url("/dangling")]).ok();
    there(&[
        "chown",
        "-h",
        &format!(":{}", meta.gid()),
        &url("/dangling"),
    ])
    .ok();
    let own = here(&place.root(), &["stat", "-c", "%U:%G", "big.img"]);
    there(&["chown", own.trim(), &url("/big.img")]).ok();
    for bad in ["alice:", "4294967295", "a\nb", ""] {
        xdfs(["chown", bad, &url("/big.img")]).fails(2, &["no name or number"]);
    }
}

#[test]
fn lengths_are_set() {
    let (place, server) = tree();
    let url = server.url("/big.img");
    let length = || fs::metadata(place.remote("big.img")).unwrap().len();
    for (size, expected) in [("1K", 1024), ("+1K", 2048), ("-1000", 1048), ("-1M", 0)] {
        there(&["truncate", "-s", size, &url]).ok();
        assert_eq!(length(), expected, "{size}");
    }
    there(&["truncate", "-s", "5", &server.url("/made")]).ok();
    assert_eq!(fs::read(place.remote("made")).unwrap(), [0; 5]);
    there(&["truncate", "-c", "-s", "5", &server.url("/not-made")]).ok();
    assert!(!place.remote("not-made").exists());
    there(&["truncate", "-s", "5", &server.url("/runs")]).fails(6, &["/runs"]);
}

#[test]
fn odd_names_are_shown_so_that_they_do_no_harm() {
    let place = Place::new();
    let long = "n".repeat(255);
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe",
        b"\x1b[2J",
        b"-rf",
        long.as_bytes(),
    ] {
        fs::write(place.root().join(OsStr::from_bytes(name)), b"x").unwrap();
    }
    let server = Server::start(&place.root());
    let text = there(&["ls", &server.url("")]).ok().text();
    let shown = [
        "''$'\\033''[2J'",
        "-rf",
        "'new'$'\\n''line'",
        &long,
        "''$'\\377\\376'",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), shown);
    let found = there(&["find", &server.url(""), "-type", "f"]).ok().text();
    assert_eq!(found.lines().count(), 5);
    assert!(found.contains("'/new'$'\\n''line'") && !found.contains('\x1b'));
    let raw = there(&["ls", "-0", &server.url("")]).ok().stdout;
    let expected = [
        &b"\x1b[2J\0-rf\0new\nline\0"[..],
        long.as_bytes(),
        b"\0\xff\xfe\0",
    ]
    .concat();
    assert_eq!(raw, expected);
    let json = there(&["ls", "--json", &server.url("")]).ok().json();
    let bytes = json
        .iter()
        .find(|o| o["path_hex"] == "2ffffe")
        .expect("no hex");
    assert_eq!(bytes["path"], "/\u{fffd}\u{fffd}");
    assert!(
        json.iter()
            .any(|o| o["path"] == "/new\nline" && o["path_hex"].is_null())
    );
    // The same names in URLs.
    for name in ["/new%0Aline", "/%FF%FE", "/-rf", &format!("/{long}")] {
        assert!(
            there(&["sum", &server.url(name)])
                .ok()
                .text()
                .contains("  "),
            "{name}"
        );
    }
    let run = there(&["rm", &server.url("/none%1B%FF")]).fails(4, &["'/none'$'\\033\\377'"]);
    assert!(!run.stderr.contains('\x1b'));
    there(&["mv", &server.url("/%FF%FE"), &server.url("/%FE")]).ok();
    there(&[
        "rm",
        &server.url("/-rf"),
        &server.url("/%FE"),
        &server.url("/new%0Aline"),
    ])
    .ok();
    assert_eq!(names(place.root()).len(), 2);
    let url = server.url(&format!("/{long}n"));
    there(&["mkdir", &url]).fails(6, &["error: server "]);
}

#[test]
fn a_server_that_takes_no_writes_can_be_looked_at() {
    let (place, first) = tree();
    drop(first);
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--read-only"]);
    let url = |path: &str| server.url(path);
    for words in [&["ls", "-lR"][..], &["stat"], &["find"], &["du"], &["df"]] {
        there(&[words, &[&url("/runs")]].concat()).ok();
    }
    let (file, new) = (url("/big.img"), url("/new"));
    for words in [
        &["rm", &file][..],
        &["rm", "-r", &file],
        &["mkdir", &new],
        &["mv", &file, &new],
        &["ln", &file, &new],
        &["ln", "-s", "x", &new],
        &["touch", &file],
        &["touch", &new],
        &["chmod", "600", &file],
        &["chown", "0:0", &file],
        &["truncate", "-s", "0", &file],
    ] {
        there(words).fails(5, &["error: server "]);
    }
    assert_eq!(
        fs::metadata(place.remote("big.img")).unwrap().len(),
        300_000
    );
    assert!(!place.remote("new").exists());
}

#[test]
fn paths_that_lead_out_are_refused() {
    let (_place, server) = tree();
    for words in [&["ls"][..], &["rm", "-r"], &["sum"], &["mkdir"]] {
        let url = server.url("/../../outside");
        there(&[words, &[&url]].concat()).fails(5, &["error: server "]);
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_listing() {
    let (place, server) = tree();
    for number in 0..3000 {
        fs::write(
            place.remote(&format!("runs/file-with-a-long-name-{number}")),
            b"",
        )
        .unwrap();
    }
    let mut command = program();
    command
        .args(["find", &server.url("")])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let (place, server) = tree();
    let url = server.url("/");
    let local = place.make_here("one", b"1");
    let full = |words: &[&str], input: &[u8]| {
        let out = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, input).unwrap();
        drop(writer);
        let mut command = program();
        command.args(words).stdin(reader).stdout(out);
        command.stderr(Stdio::piped());
        let done = command.output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(7), "{words:?}: {said}");
        let times = said.matches("write to standard output").count();
        assert_eq!(times, 1, "{words:?}: {said}");
    };
    for words in [
        &["ls", &url][..],
        &["ls", "-lR", &url],
        &["ls", "--json", &url],
        &["stat", &url],
        &["find", &url],
        &["sum", &server.url("/runs/a.dat")],
        &["du", &url],
        &["df", &url],
        &["mkdir", "-p", "--json", &url],
        &["sync", "--dry-run", &place.here(""), &url],
        &["cp", "--dry-run", "-f", &local, &url],
        &["cp", "--json", "-f", &local, &url],
        &["whoami", &url],
        &["completions", "bash"],
        &["man", &place.here("pages")],
        &["--help"],
        &["--version"],
        &["cp", "--help"],
        &["gridftp", "data-node", "-h"],
    ] {
        full(words, b"");
    }
    // All are there, though none could be named.
    let pages = fs::read_dir(place.here("pages")).unwrap().count();
    assert!(pages > 20, "{pages} pages");
    for line in ["ls", "pwd", "help", "help ls", "ls --help", "lpwd", "find"] {
        full(&["shell", &url], line.as_bytes());
    }
}

/// The hint about a missing directory is a command that makes it; then the first command works.
#[test]
fn a_missing_directory_at_the_server_is_named_with_the_command_that_makes_it() {
    let (place, server) = tree();
    let (file, other) = (place.make_here("f", b"abc"), place.make_here("g", b"de"));
    let source = server.url("/two words");
    for (number, (words, path)) in [
        (vec!["cp", &file], "/"),
        (vec!["cp", &file, &other], "/"),
        (vec!["cp", &source], "/"),
        (vec!["cp", "--dry-run", &file], "/"),
        (vec!["touch"], "/deep/x"),
        (vec!["truncate", "-s", "3"], "/x"),
        (vec!["ln", &source], "/l"),
        (vec!["ln", "-s", "to"], "/l"),
        (vec!["mv", &source], "/x"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = server.url(&format!("/no{number}{path}"));
        let words = [&words[..], &[&target]].concat();
        let directory = target.rsplit_once('/').unwrap().0;
        xdfs(&words).fails(
            4,
            &[&format!("hint: make it with xdfs mkdir -p {directory}\n")],
        );
        xdfs(["mkdir", "-p", directory]).ok();
        xdfs(&words).ok();
    }
    let into = server.url("/no/");
    xdfs(["mv", &server.url("/-dash"), &into])
        .fails(4, &[&format!("xdfs mkdir -p {}", server.url("/no"))]);
}

/// An export can't be made.
#[test]
fn a_missing_export_is_not_to_be_made() {
    let place = Place::new();
    let config = "listen = [\"127.0.0.1:0\"]\n[[export]]\nname = \"data\"\npath = \"../root\"\n\
                  [[export.grant]]\nuser = \"*\"\n\
                  rights = [\"read\", \"list\", \"create\", \"write\"]\n";
    let config = place.make_here("xdfs.toml", config.as_bytes());
    let server = Server::start_with(&place.root(), &["--config", &config]);
    fs::create_dir(place.here("tree")).unwrap();
    let file = place.make_here("tree/f", b"abc");
    let (into, inside) = (server.url("/no/"), server.url("/no/x"));
    for words in [
        &["cp", &file, &into][..],
        &["cp", &file, &inside],
        &["cp", "-r", &place.here("tree"), &inside],
        &["sync", &place.here("tree"), &inside],
        &["touch", &inside],
        &["mkdir", "-p", &inside],
    ] {
        let run = xdfs(words).fails(
            4,
            &["no such export", "hint: the directory / lists the exports"],
        );
        assert!(!run.stderr.contains("mkdir"), "{}", run.stderr);
    }
}
