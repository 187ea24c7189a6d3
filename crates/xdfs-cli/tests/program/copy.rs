//! One file, both ways.

use crate::support::{Place, Server, assert_content, content, names, xdfs, xdfs_with_input};

const BLOCK: usize = 64 << 10;

#[test]
fn sizes_around_the_block_survive_both_ways() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK + 5] {
        let expected = content(size as u64 + 1, size);
        let name = format!("file-{size}");
        let source = place.make_here(&name, &expected);
        let url = server.url(&format!("/{name}"));
        xdfs(["cp", "-n", "3", "-b", "64K", &source, &url]).ok();
        assert_content(place.remote(&name), &expected);
        let back = place.here(&format!("back-{size}"));
        let run = xdfs(["cp", "-n", "3", "-b", "64K", &url, &back]).ok();
        assert_content(&back, &expected);
        assert!(
            run.stdout.is_empty(),
            "only data and JSON go to standard output"
        );
        assert!(run.stderr.contains("channel"), "{}", run.stderr);
    }
    // Nothing hidden stays behind.
    assert_eq!(names(place.root()).len(), 6);
}

#[test]
fn defaults_and_every_digest_work() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(3, 5_000_001);
    let source = place.make_here("a", &expected);
    xdfs(["cp", &source, &server.url("/default")]).ok();
    assert_content(place.remote("default"), &expected);
    for kind in ["crc64nvme", "blake3", "none"] {
        let url = server.url(&format!("/{kind}"));
        let run = xdfs(["cp", "--json", "--digest", kind, &source, &url]).ok();
        assert_eq!(run.result()["digest"]["kind"], kind);
        let value = &run.result()["digest"]["value"];
        let digits = value.as_str().map_or(0, str::len);
        assert_eq!(
            digits,
            match kind {
                "crc64nvme" => 16,
                "blake3" => 64,
                _ => 0,
            }
        );
        assert_content(place.remote(kind), &expected);
        let back = place.here(kind);
        xdfs(["cp", &url, "--digest", kind, &back]).ok();
        assert_content(&back, &expected);
    }
}

#[test]
fn a_directory_as_the_target_keeps_the_name() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(4, 1000);
    let source = place.make_here("name", &expected);
    std::fs::create_dir(place.remote("sub")).unwrap();
    xdfs(["cp", &source, &server.url("/sub/")]).ok();
    assert_content(place.remote("sub/name"), &expected);
    xdfs(["cp", &source, &server.url("")]).ok();
    assert_content(place.remote("name"), &expected);
    std::fs::create_dir(place.here("down")).unwrap();
    xdfs(["cp", &server.url("/name"), &place.here("down")]).ok();
    assert_content(place.here("down/name"), &expected);
}

#[test]
fn standard_input_and_output_are_places() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for size in [0, 1, 3 * BLOCK + 17] {
        let expected = content(9, size);
        let url = server.url(&format!("/stream-{size}"));
        xdfs_with_input(["cp", "-b", "64K", "-", &url], &expected).ok();
        assert_content(place.remote(&format!("stream-{size}")), &expected);
        let run = xdfs(["cp", &url, "-"]).ok();
        assert!(
            run.stdout == expected,
            "standard output differs at size {size}"
        );
    }
}

#[test]
fn a_part_of_a_file_is_copied() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(5, 300_000);
    std::fs::write(place.remote("whole"), &expected).unwrap();
    let url = server.url("/whole");
    let part = place.here("part");
    xdfs(["cp", "--offset", "100K", "--length", "64K", &url, &part]).ok();
    assert_content(&part, &expected[102_400..102_400 + 65_536]);
    let rest = place.here("rest");
    xdfs(["cp", "--offset", "299999", &url, &rest]).ok();
    assert_content(&rest, &expected[299_999..]);
    let source = place.make_here("source", &expected);
    xdfs([
        "cp",
        "--offset",
        "7",
        "--length",
        "11",
        &source,
        &server.url("/up"),
    ])
    .ok();
    assert_content(place.remote("up"), &expected[7..18]);
    xdfs(["cp", "--offset", "1M", &url, &place.here("none")]).fails(2, &["error: ", "offset"]);
    assert!(!std::fs::exists(place.here("none")).unwrap());
}

#[test]
fn a_target_that_exists_stays_unless_forced() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("new", &content(6, 200_000));
    std::fs::write(place.remote("old"), b"old").unwrap();
    let url = server.url("/old");
    xdfs(["cp", &source, &url]).fails(6, &["error: server ", "/old", "hint: "]);
    assert_content(place.remote("old"), b"old");
    xdfs(["cp", "-f", &source, &url]).ok();
    assert_content(place.remote("old"), &content(6, 200_000));

    let here = place.make_here("here", b"mine");
    xdfs(["cp", &url, &here]).fails(6, &["error: cannot "]);
    assert_content(&here, b"mine");
    xdfs(["cp", "--force", &url, &here]).ok();
    assert_content(&here, &content(6, 200_000));
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(7, 100_000));
    let run = xdfs(["cp", "--dry-run", &source, &server.url("/file")]).ok();
    assert!(run.text().starts_with("would copy "), "{}", run.text());
    assert!(names(place.root()).is_empty());
    let run = xdfs(["cp", "--dry-run", "--json", &source, &server.url("/file")]).ok();
    assert_eq!(
        (&run.result()["dry_run"], &run.result()["bytes"]),
        (&true.into(), &100_000.into())
    );
    std::fs::write(place.remote("there"), b"abc").unwrap();
    xdfs(["cp", "--dry-run", &source, &server.url("/there")]).fails(6, &["there"]);
    xdfs([
        "cp",
        "--dry-run",
        &server.url("/there"),
        &place.here("down"),
    ])
    .ok();
    assert_eq!(names(place.here("")), ["file"]);
}

#[test]
fn failures_name_side_path_and_cause() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let down = place.here("down");
    xdfs(["cp", &server.url("/none"), &down]).fails(4, &["error: server ", "/none"]);
    xdfs(["cp", &place.here("none"), &server.url("/x")]).fails(4, &["error: cannot ", "none"]);
    std::fs::create_dir(place.remote("dir")).unwrap();
    xdfs(["cp", &server.url("/dir"), &down]).fails(6, &["error: server ", "/dir"]);
    xdfs(["cp", &server.url("/../../etc/passwd"), &down]).fails(5, &["error: server "]);
    assert!(!std::fs::exists(&down).unwrap());
    drop(server);
    xdfs(["cp", &place.make_here("a", b"a"), "xdfs://127.0.0.1:1/x"])
        .fails(3, &["error: cannot ", "hint: "]);
}

/// A directory in the way of a file isn't one to copy, and a server that isn't there has no path.
#[test]
fn hints_are_about_what_is_wrong() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let (a, f) = (place.make_here("a", b"a"), place.make_here("f", b"f"));
    std::fs::create_dir_all(place.remote("dr/f")).unwrap();
    std::fs::create_dir(place.here("down")).unwrap();
    std::fs::create_dir(place.here("down/f")).unwrap();
    let run = xdfs(["cp", &a, &f, &server.url("/dr/")]);
    let run = run.fails(6, &["'/dr/f': is a directory", "hint: name a file in it"]);
    assert!(!run.stderr.contains("--recursive"), "{}", run.stderr);
    let hint = "use --recursive to copy it";
    xdfs(["cp", &server.url("/dr"), &place.here("down")]).fails(6, &[hint]);
    xdfs(["cp", "", &server.url("/")]).fails(2, &["cannot use '' as a place: it is empty"]);
    for command in [
        &["ls"][..],
        &["cp", "-r", &a],
        &["sync", &place.here("down")],
    ] {
        // Nothing listens on port 1.
        let run = xdfs([command, &["xdfs://127.0.0.1:1/"]].concat());
        assert!(
            run.stderr
                .contains("cannot connect to 127.0.0.1:1: connection refused"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn quiet_is_quiet_and_verbose_tells_more() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(8, 10_000));
    let quiet = xdfs(["cp", "-q", &source, &server.url("/quiet")]).ok();
    assert!(
        quiet.stdout.is_empty() && quiet.stderr.is_empty(),
        "{}",
        quiet.stderr
    );
    let verbose = xdfs(["cp", "-v", &source, &server.url("/verbose")]).ok();
    assert!(verbose.stderr.contains("crc64nvme") && verbose.stderr.contains("limited by"));
}

#[test]
#[cfg(unix)]
fn what_goes_to_dev_null_is_moved_and_dropped() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for name in ["a", "b"] {
        std::fs::write(place.remote(name), content(1, 100_000)).unwrap();
    }
    for names in [&["/a"][..], &["/a", "/b"]] {
        let urls = names.iter().map(|name| server.url(name));
        let words = ["cp".to_owned(), "--json".to_owned()]
            .into_iter()
            .chain(urls);
        let run = xdfs(words.chain(["/dev/null".to_owned()])).ok();
        assert_eq!(run.result()["bytes"], 100_000 * names.len());
    }
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

/// A limit holds for a small file too, of which the last block would exceed it.
#[test]
fn a_small_file_keeps_the_rate_limit() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(1, 8 << 20));
    let back = place.here("back");
    for [from, to] in [
        [&source, &server.url("/file")],
        [&server.url("/file"), &back],
    ] {
        let run = xdfs(["cp", "--json", "--limit-rate", "20M", from, to]).ok();
        let seconds = run.result()["seconds"].as_f64().unwrap();
        // At least as long: however slow the machine is, this holds.
        assert!(seconds >= 0.95 * f64::from(8 << 20) / 20e6, "{seconds}");
    }
}

#[test]
fn a_refusal_says_in_plain_words_why() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--read-only"];
    let server = Server::start_with(&place.root(), &flags);
    let source = place.make_here("file", b"content");
    let url = server.url("/file");
    xdfs(["cp", &source, &url]).fails(5, &["it is read-only for this user"]);
    xdfs(["mkdir", &server.url("/d")]).fails(5, &["it is read-only for this user"]);
    std::fs::create_dir(place.remote("d")).unwrap();
    xdfs(["rm", "-r", &server.url("/d")]).fails(5, &["it is read-only for this user"]);
    // One line for one reason, however many files it stops.
    std::fs::create_dir(place.here("many")).unwrap();
    for name in 0..300 {
        place.make_here(&format!("many/{name}"), b"x");
    }
    let many = ["cp", "-r", &place.here("many"), &server.url("/many")];
    let run = xdfs(many).fails(5, &["read-only", "(300 times more)", "301 failed"]);
    assert!(run.stderr.lines().count() < 10, "{}", run.stderr);

    let server = Server::start(&place.root());
    xdfs(["mkdir", &server.url("/d")]).fails(6, &["--parents ignores that"]);
    // The key is named, so that the user finds it in the list of the server.
    let alice = server.url("/").replace("xdfs://", "xdfs://alice@");
    xdfs(["ls", &alice]).fails(16, &["refused the login of 'alice' (key SHA256:"]);

    let tree = place.here("tree");
    std::fs::create_dir(&tree).unwrap();
    #[cfg(unix)]
    for text in ["/one", "/other"] {
        let link = place.here("tree/link");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(text, link).unwrap();
        let run = xdfs(["cp", "-r", "--no-resume", &tree, &server.url("/")]);
        match text {
            "/one" => drop(run.ok()),
            _ => drop(run.fails(6, &["make the symbolic link '/tree/link'", "--force"])),
        }
    }
}
