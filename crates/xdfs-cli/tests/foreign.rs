//! A foreign peer: the client and the server in Python of `docs/protocol/reference`, which were
//! written from the text, against the program, both ways. So program and text can't drift apart.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[expect(dead_code, reason = "the tests of the program use more of it")]
#[path = "program/support.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xdfs_testkit::skip;
use xdfs_testkit::tree::{TempTree, random_bytes};

use support::{Run, Running, Server, program, run_with_input, xdfs};

/// The folder of the reference.
fn reference(script: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/reference");
    folder.join(script)
}

/// A command that runs a script of the reference, or `None` if this machine has no Python.
fn python(script: &str) -> Option<Command> {
    let version = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"])
        .stderr(Stdio::null())
        .status();
    if !version.is_ok_and(|status| status.success()) {
        skip::test("this machine has no Python 3.11");
        return None;
    }
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(reference(script))
        .stdin(Stdio::null());
    Some(command)
}

/// The program serves a folder, and the reference is the client.
struct Served {
    place: TempTree,
    server: Server,
}

impl Served {
    fn new(seed: u64) -> Self {
        let place = TempTree::new(seed).unwrap();
        fs::create_dir(place.join("root")).unwrap();
        let flags = ["--listen", "127.0.0.1:0", "--insecure"];
        let server = Server::start_with(&place.join("root"), &flags);
        Self { place, server }
    }

    fn url(&self, path: &str) -> String {
        format!("xdfs://{}/{path}", self.server.addresses[0])
    }

    /// Runs the reference's client: its flags and command, a path on the server, other words.
    fn client(&self, command: &str, path: &str, words: &[&str]) -> Run {
        let mut python = python("client.py").expect("the test has looked for it");
        python.args(command.split_whitespace());
        python.arg(self.url(path)).args(words);
        Running::start(&mut python).wait()
    }

    /// A local file with content, and its path as a word.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.place.join(name), bytes).unwrap();
        self.local(name)
    }

    fn local(&self, name: &str) -> String {
        self.place.join(name).to_string_lossy().into_owned()
    }

    fn at_server(&self, name: &str) -> Vec<u8> {
        fs::read(self.place.join("root").join(name)).unwrap()
    }
}

/// The reference serves a folder.
struct Foreign {
    place: TempTree,
    running: Running,
    port: String,
}

impl Foreign {
    /// `None` if this machine has no Python.
    fn new(seed: u64, flags: &str) -> Option<Self> {
        let mut python = python("server.py")?;
        let place = TempTree::new(seed).unwrap();
        fs::create_dir(place.join("root")).unwrap();
        python.arg("--root").arg(place.join("root")).arg("-v");
        let port_file = place.join("port");
        python.arg("--port-file").arg(&port_file);
        python.args(flags.split_whitespace());
        let running = Running::start(&mut python);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let port = loop {
            match fs::read_to_string(&port_file) {
                Ok(port) if !port.is_empty() => break port,
                _ => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
            assert!(std::time::Instant::now() < deadline, "it did not start");
        };
        Some(Self {
            place,
            running,
            port,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("xdfs://127.0.0.1:{}/{path}", self.port)
    }

    /// Runs the program: a command with its flags, then words. One that begins with ':' is a path
    /// at the server, one with '@' a local path.
    fn xdfs(&self, command: &str, words: &[&str]) -> Run {
        let (command, flags) = command.split_once(' ').unwrap_or((command, ""));
        let mut args = vec![command.to_owned(), "--insecure".to_owned()];
        args.extend(flags.split_whitespace().map(str::to_owned));
        for word in words {
            args.push(match (word.strip_prefix(':'), word.strip_prefix('@')) {
                (Some(path), _) => self.url(path),
                (_, Some(name)) => self.place.join(name).to_string_lossy().into_owned(),
                _ => (*word).to_owned(),
            });
        }
        xdfs(args)
    }

    fn at_server(&self, name: &str) -> Vec<u8> {
        fs::read(self.place.join("root").join(name)).unwrap()
    }
}

/// Names, kinds and contents of a tree, and the permission bits of its files.
fn picture(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_dir() {
                open.push(path);
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_file() {
                let hash = xdfs_testkit::tree::Random::new(0).below(1);
                let bytes = fs::read(&path).unwrap();
                let sum = bytes.iter().fold(hash, |sum, byte| {
                    sum.wrapping_mul(0x0100_0000_01b3)
                        .wrapping_add(u64::from(*byte) + 1)
                });
                format!(
                    "file of {} bytes, {sum:x}, {:?}",
                    bytes.len(),
                    meta.permissions()
                )
            } else {
                "other".to_owned()
            };
            lines.push(format!("{name}: {what}"));
        }
    }
    lines.sort();
    lines
}

/// A tree with all kinds of entries: empty and small files, one too large for a pack, directories,
/// links, a name that isn't UTF-8, a sparse file.
fn make_tree(folder: &Path) {
    fs::create_dir_all(folder.join("d/e/empty")).unwrap();
    fs::write(folder.join("zero"), b"").unwrap();
    for n in 0..20 {
        fs::write(
            folder.join(format!("d/file {n}")),
            random_bytes(n, n as usize * 311),
        )
        .unwrap();
    }
    fs::write(folder.join("d/e/large"), random_bytes(77, 900_000)).unwrap();
    let sparse = fs::File::create(folder.join("d/sparse")).unwrap();
    sparse.set_len(700_000).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::PermissionsExt as _;
        std::os::unix::fs::symlink("../zero", folder.join("d/link")).unwrap();
        fs::write(
            folder.join(std::ffi::OsStr::from_bytes(b"d/\xff\xfe")),
            b"odd",
        )
        .unwrap();
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(folder.join("d/file 3"), mode).unwrap();
    }
}

#[test]
fn the_reference_agrees_with_every_vector() {
    let Some(mut python) = python("check_vectors.py") else {
        return;
    };
    let run = Running::start(&mut python).wait();
    assert_eq!(run.code, Some(0), "{}", run.text());
}

#[test]
fn a_foreign_client_moves_files() {
    if python("client.py").is_none() {
        return;
    }
    let served = Served::new(1);
    let content = random_bytes(3, 700_001);
    let source = served.file("source", &content);
    for (digest, length) in [("none", 0), ("crc64nvme", 700_001), ("blake3", 70_001)] {
        let content = &content[..length];
        let source = served.file("part", content);
        let back = served.local(digest);
        let flags = format!("-n 3 --block 65536 --digest {digest}");
        served
            .client(&format!("{flags} put"), digest, &[&source])
            .ok();
        assert_eq!(served.at_server(digest), content, "{digest}");
        served
            .client(&format!("{flags} get"), digest, &[&back])
            .ok();
        assert_eq!(fs::read(&back).unwrap(), content, "{digest}");
    }
    let part = served.local("a part");
    let command = "--strict --offset 65000 --length 70000 get";
    served.client(command, "crc64nvme", &[&part]).ok();
    assert_eq!(fs::read(&part).unwrap(), &content[65_000..135_000]);
    served
        .client("get", "%63rc64nvme", &[&served.local("decoded")])
        .ok();

    // What is refused, and what a dry run doesn't do.
    served
        .client("put", "none", &[&source])
        .fails(1, &["already-exists"]);
    served
        .client("get", "no/such", &[&part])
        .fails(1, &["not-found"]);
    served
        .client("put", "../out", &[&source])
        .fails(1, &["path-escape"]);
    served
        .client("put", "no/such", &[&source])
        .fails(1, &["not-found"]);
    served.client("--dry-run put", "new", &[&source]).ok();
    assert!(!served.place.join("root/new").exists());
    served
        .client("--dry-run get", "none", &[&served.local("new")])
        .ok();
    assert!(!served.place.join("new").exists());
    served.client("--overwrite put", "none", &[&source]).ok();
    assert_eq!(served.at_server("none"), content);
}

#[test]
fn a_foreign_client_loses_channels_and_goes_on() {
    if python("client.py").is_none() {
        return;
    }
    let served = Served::new(2);
    let content = random_bytes(4, 1_600_000);
    let source = served.file("source", &content);
    let flags = "-v -n 3 --block 65536";
    for (what, words) in [("--drop-after 5", "is lost"), ("--leave-after 5", "leaves")] {
        let (put, get) = (format!("{flags} {what} put"), format!("{flags} {what} get"));
        let run = served.client(&put, what, &[&source]).ok();
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(served.at_server(what), content, "{what}");
        let back = served.local("back");
        let run = served
            .client(&format!("--overwrite {get}"), what, &[&back])
            .ok();
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(fs::read(&back).unwrap(), content, "{what}");
    }
    // All channels at once: nothing stands under the name, and the same command goes on.
    let put = format!("{flags} --die-after 20 put");
    served.client(&put, "killed", &[&source]).fails(75, &[]);
    assert!(!served.place.join("root/killed").exists());
    served
        .client(
            "-n 2 --block 65536 --verify-resumed put",
            "killed",
            &[&source],
        )
        .ok();
    assert_eq!(served.at_server("killed"), content);
    let back = served.local("killed");
    let get = format!("{flags} --die-after 15 get");
    served.client(&get, "killed", &[&back]).fails(75, &[]);
    assert!(!Path::new(&back).exists());
    served.client("get", "killed", &[&back]).ok();
    assert_eq!(fs::read(&back).unwrap(), content);
}

#[test]
fn a_foreign_client_moves_trees_and_makes_calls() {
    if python("client.py").is_none() {
        return;
    }
    let served = Served::new(3);
    make_tree(&served.place.join("tree"));
    let expected = picture(&served.place.join("tree"));
    served
        .client("put-tree", "tree", &[&served.local("tree")])
        .ok();
    assert_eq!(picture(&served.place.join("root/tree")), expected);
    served
        .client(
            "--digest blake3 get-tree",
            "tree/d/e",
            &[&served.local("e")],
        )
        .ok();
    served
        .client("-n 3 get-tree", "tree", &[&served.local("back")])
        .ok();
    assert_eq!(picture(&served.place.join("back")), expected);
    let again = served.client("put-tree", "tree", &[&served.local("tree")]);
    again.fails(1, &["already-exists"]);

    let client =
        |command: &str, path: &str, words: &[&str]| served.client(command, path, words).ok();
    client("mkdir", "a/b", &[]);
    client("write", "a/b/f", &["written in place"]);
    client("append", "a/b/f", &[", and more"]);
    assert_eq!(
        client("cat", "a/b/f", &[]).text(),
        "written in place, and more"
    );
    client("symlink", "a/l", &["b/f"]);
    assert_eq!(client("readlink", "a/l", &[]).text().trim(), "b/f");
    client("copy", "a/b/f", &["a/g"]);
    client("mv", "a/g", &["a/h"]);
    assert_eq!(served.at_server("a/h"), b"written in place, and more");
    let sum = client("--digest blake3 sum", "a/h", &[]).text();
    assert_eq!(sum.trim(), blake3_of(b"written in place, and more"));
    assert!(client("stat", "a/h", &[]).text().contains("'size': 26"));
    client("df", "", &[]);
    client("sync", "a", &[]);
    client("rm", "a/h", &[]);
    served.client("rmdir", "a/b", &[]).fails(1, &["not-empty"]);
    assert!(client("rmtree", "a", &[]).text().contains("'entries': 4"));
    assert!(!served.place.join("root/a").exists());
    // More entries than fit into eight parts that nobody took.
    fs::create_dir(served.place.join("root/many")).unwrap();
    for n in 0..2500 {
        let name = format!("root/many/{n:04}-{}", "x".repeat(200));
        fs::write(served.place.join(name), b"").unwrap();
    }
    assert_eq!(client("ls", "many", &[]).text().lines().count(), 2500);
}

/// BLAKE3 by the reference, which the vectors hold to the program's.
fn blake3_of(bytes: &[u8]) -> String {
    let code = "import digests, sys; print(digests.blake3(sys.stdin.buffer.read()).hex())";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", code]).current_dir(reference("."));
    run_with_input(&mut python, bytes)
        .ok()
        .text()
        .trim()
        .to_owned()
}

#[test]
fn a_foreign_server_takes_and_gives_files() {
    let Some(foreign) = Foreign::new(4, "") else {
        return;
    };
    let content = random_bytes(5, 700_000);
    fs::write(foreign.place.join("source"), &content).unwrap();
    foreign.xdfs("cp -n 3", &["@source", ":file"]).ok();
    assert_eq!(foreign.at_server("file"), content);
    foreign.xdfs("cp -n 3", &[":file", "@back"]).ok();
    assert_eq!(fs::read(foreign.place.join("back")).unwrap(), content);
    let again = foreign.xdfs("cp", &["@source", ":file"]).ok();
    assert!(again.stderr.contains("there already"), "{}", again.stderr);
    foreign
        .xdfs("cp --no-resume -I", &["@source", ":file"])
        .fails(6, &["exists already"]);
    foreign
        .xdfs("cp", &[":none", "@other"])
        .fails(4, &["no such file"]);
    foreign.xdfs("cp --dry-run", &["@source", ":new"]).ok();
    assert!(!foreign.place.join("root/new").exists());
    // Options between source and target, a stream of unknown length, a part.
    fs::write(foreign.place.join("small"), &content[..50_000]).unwrap();
    foreign
        .xdfs("cp", &["@small", "--digest", "blake3", ":small"])
        .ok();
    foreign
        .xdfs("cp", &[":small", "--digest", "none", "@small-back"])
        .ok();
    assert_eq!(
        fs::read(foreign.place.join("small-back")).unwrap(),
        &content[..50_000]
    );
    let mut stream = program();
    stream.args(["cp", "--insecure", "-", &foreign.url("stream")]);
    run_with_input(&mut stream, &content[..300_000]).ok();
    assert_eq!(foreign.at_server("stream"), &content[..300_000]);
    foreign
        .xdfs("cp --offset 1000 --length 2000", &[":file", "@part"])
        .ok();
    assert_eq!(
        fs::read(foreign.place.join("part")).unwrap(),
        &content[1000..3000]
    );
}

#[test]
fn a_foreign_server_takes_and_gives_trees_and_answers_calls() {
    let Some(foreign) = Foreign::new(5, "") else {
        return;
    };
    let tree = foreign.place.join("tree");
    make_tree(&tree);
    let expected = picture(&tree);
    foreign.xdfs("cp -r", &["@tree", ":tree"]).ok();
    assert_eq!(picture(&foreign.place.join("root/tree")), expected);
    foreign.xdfs("cp -r", &[":tree", "@back"]).ok();
    assert_eq!(picture(&foreign.place.join("back")), expected);
    fs::write(tree.join("zero"), b"not any more").unwrap();
    fs::remove_file(tree.join("d/file 7")).unwrap();
    foreign.xdfs("sync --delete", &["@tree", ":tree"]).ok();
    assert_eq!(picture(&foreign.place.join("root/tree")), picture(&tree));
    foreign.xdfs("sync --delete", &[":tree", "@back"]).ok();
    assert_eq!(picture(&foreign.place.join("back")), picture(&tree));

    let text = |command: &str, words: &[&str]| foreign.xdfs(command, words).ok().text();
    assert_eq!(text("ls", &[":tree"]), "d\nzero\n");
    assert_eq!(
        text("find", &[":tree"]).lines().count(),
        picture(&tree).len() + 1
    );
    assert!(text("stat", &[":tree/zero"]).contains("Size: 12"));
    assert_eq!(text("cat", &[":tree/zero"]), "not any more");
    assert!(text("sum", &[":tree/zero"]).starts_with(&blake3_of(b"not any more")));
    for kind in ["blake3", "sha256", "md5", "crc64nvme"] {
        let sums = |word: &str| text(&format!("sum -r --digest {kind}"), &[word]);
        // Paths of this side are printed as they are written.
        let above = format!("{}/", foreign.place.path().display());
        assert_eq!(sums(":tree"), sums("@tree").replace(&above, ""), "{kind}");
    }
    foreign.xdfs("check", &["@tree", ":tree"]).ok();
    // It can't look up accounts, as an older version: owners are numbers.
    let numbers = foreign.xdfs("ls -n", &[":tree"]).ok().text();
    let long = foreign.xdfs("ls -l", &[":tree"]).ok();
    assert_eq!((long.text(), &*long.stderr), (numbers, ""));
    let run = foreign.xdfs("stat -c %U:%G:%s", &[":tree/zero"]).ok();
    assert_eq!((&*run.text(), &*run.stderr), ("UNKNOWN:UNKNOWN:12\n", ""));
    let said = [": cannot look up the owner for ", "can't look up", "hint: "];
    foreign.xdfs("chown root", &[":tree/zero"]).fails(14, &said);
    foreign.xdfs("mkdir -p", &[":a/b"]).ok();
    foreign.xdfs("mv", &[":tree/zero", ":a/b/one"]).ok();
    assert_eq!(foreign.at_server("a/b/one"), b"not any more");
    foreign.xdfs("rm", &[":a/b/one"]).ok();
    foreign.xdfs("rm -r", &[":a"]).ok();
    foreign
        .xdfs("cat", &[":../../etc/passwd"])
        .fails(5, &["leads out"]);
    foreign.xdfs("rm", &[":a"]).fails(4, &[]);
}

#[test]
fn a_foreign_server_loses_channels() {
    let content = random_bytes(6, 700_000);
    let cases = [
        ("--drop-after 4", "is lost"),
        ("--die-after 6", "broke the session off"),
    ];
    for (flags, words) in cases {
        for upload in [true, false] {
            let Some(foreign) = Foreign::new(6, flags) else {
                return;
            };
            let there = foreign.place.join("root/file");
            let here = foreign.place.join("file");
            let (source, target) = if upload {
                (&here, &there)
            } else {
                (&there, &here)
            };
            fs::write(source, &content).unwrap();
            let places = if upload {
                ["@file", ":file"]
            } else {
                [":file", "@file"]
            };
            foreign.xdfs("cp -n 3 -b 64K", &places).ok();
            assert!(fs::read(target).unwrap() == content, "{flags} {upload}");
            foreign.running.wait_for_message(words);
        }
    }
}

#[test]
fn x25_a_source_that_changes_in_place_is_found_out() {
    let place = TempTree::new(8).unwrap();
    let source = place.join("source");
    fs::write(&source, random_bytes(8, 6_000_000)).unwrap();
    // The time of the last change is set back after it.
    let Some(foreign) = Foreign::new(8, &format!("--spoil {}", source.display())) else {
        return;
    };
    let words = [&*source.to_string_lossy(), ":file"];
    foreign
        .xdfs("cp -n 2 -b 64K", &words)
        .fails(9, &["changed"]);
    assert!(!foreign.place.join("root/file").exists());
}

#[test]
fn an_eofr_that_comes_again_is_the_same() {
    let Some(foreign) = Foreign::new(7, "--lose-eofr") else {
        return;
    };
    fs::write(foreign.place.join("file"), random_bytes(7, 300_000)).unwrap();
    foreign.xdfs("cp -n 2 -b 64K", &["@file", ":file"]).ok();
    foreign
        .running
        .wait_for_message("EOFR came again, the same");
}

/// Rules S-30 and S-31: what the program wants further it does in another session.
#[test]
fn a_foreign_server_ends_the_session_first() {
    let content = random_bytes(9, 300_000);
    for words in [["@file", ":new"], [":file", "@new"]] {
        let Some(foreign) = Foreign::new(9, "--end-after 1") else {
            return;
        };
        for folder in ["", "root"] {
            fs::write(foreign.place.join(folder).join("file"), &content).unwrap();
        }
        foreign.xdfs("cp -n 1", &words).ok();
        foreign.running.wait_for_message("ended first");
    }
    let Some(foreign) = Foreign::new(9, "--end-after 1") else {
        return;
    };
    let tree = foreign.place.join("tree");
    make_tree(&tree);
    let run = foreign.xdfs("cp -r -n 1", &["@tree", ":tree"]);
    if run.code != Some(0) {
        // A change on its way may have been made: the user is asked to look.
        assert!(run.stderr.contains("it has ended"), "{}", run.stderr);
        foreign.xdfs("cp -r -n 1", &["@tree", ":tree"]).ok();
    }
    foreign.running.wait_for_message("ended first");
    assert_eq!(picture(&foreign.place.join("root/tree")), picture(&tree));
}

/// Rule K-20: trees go by packs alone, so with a server that has none each entry fails
/// with its word.
#[test]
fn k20_a_foreign_server_without_packs() {
    let Some(foreign) = Foreign::new(10, "--no-packs") else {
        return;
    };
    make_tree(&foreign.place.join("tree"));
    make_tree(&foreign.place.join("root/there"));
    for (words, failure) in [
        (["@tree", ":new"], "cannot write '/new"),
        ([":there", "@new"], "cannot read '/there"),
    ] {
        for command in ["cp -r", "sync"] {
            let run = foreign.xdfs(command, &words);
            run.fails(14, &[failure, "this side doesn't offer the call"]);
        }
    }
    // It goes on with what it can do.
    foreign.xdfs("cp", &["@tree/d/e/large", ":file"]).ok();
    foreign.xdfs("cp", &[":file", "@file"]).ok();
}

/// Rule K-28: a server can't give what is copied from it owners that were not asked for, here or at
/// another server.
#[test]
fn k28_a_foreign_server_that_gives_owners_unasked() {
    let Some(foreign) = Foreign::new(12, "--give-owners") else {
        return;
    };
    make_tree(&foreign.place.join("root/there"));
    let run = foreign.xdfs("cp -r --retries 0", &[":there", "@new"]);
    let refusal = "the pack has metadata that were not requested";
    let words = ["server 127.0.0.1:", refusal, "keep to the protocol"];
    run.fails(10, &words);
    assert!(!foreign.place.join("new/d/file 3").exists());
    foreign.xdfs("cp -r --owner", &[":there", "@asked"]).ok();
}

/// Rule K-24: of a server that doesn't follow links in packs no such pack is requested. Uploads
/// don't depend on it.
#[cfg(unix)]
#[test]
fn k24_a_foreign_server_that_does_not_follow_links() {
    let Some(foreign) = Foreign::new(11, "") else {
        return;
    };
    make_tree(&foreign.place.join("tree"));
    foreign.xdfs("cp -r", &["@tree", ":there"]).ok();
    for command in ["cp -rL", "sync -L"] {
        let run = foreign.xdfs(command, &[":there", "@new"]);
        run.fails(10, &["can't follow symbolic links", "newer xdfs"]);
    }
    std::os::unix::fs::symlink("d", foreign.place.join("tree/followed")).unwrap();
    foreign.xdfs("sync -L", &["@tree", ":there"]).ok();
    let there = foreign.place.join("root/there");
    assert_eq!(picture(&there.join("followed")), picture(&there.join("d")));
}
