//! `xdfs sync --delete`: what it says before, when it asks, and when it refuses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use xdfs_testkit::terminal::Terminal;

use crate::support::{Place, Run, Server, names, program, xdfs};

const PATIENCE: Duration = Duration::from_secs(60);

fn write(path: impl AsRef<Path>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

/// A tree `tree` here and the same at `copy` there, with so many names beside it.
fn trees(place: &Place, extra: u32) -> (Server, String, String) {
    let server = Server::start(&place.root());
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    write(place.here("tree/kept"));
    xdfs(["sync", &tree, &url]).ok();
    add(place, extra);
    (server, tree, url)
}

fn add(place: &Place, extra: u32) {
    (0..extra).for_each(|number| write(place.remote(&format!("copy/x{number}"))));
}

/// Runs it at a terminal, and answers the question.
#[track_caller]
fn at_terminal(arguments: &[&str], question: &str, answer: &str) -> (i32, String) {
    let mut command = program();
    command.args(arguments);
    let mut terminal = Terminal::start(&command).unwrap();
    let asked = terminal.wait_for(question, 0, PATIENCE);
    assert!(asked.is_some(), "{}", terminal.text());
    terminal.send(answer.as_bytes()).unwrap();
    let status = terminal.wait(PATIENCE).expect("it ends");
    (status.code().unwrap_or(-1), terminal.text())
}

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) -> Run {
    xdfs(arguments).fails(6, words)
}

#[test]
fn few_names_go_without_a_question_and_are_told() {
    let place = Place::new();
    let (_server, tree, url) = trees(&place, 100);
    let run = xdfs(["sync", "--delete", &tree, &url]).ok();
    let words = ["/copy: about to delete 100 of 101 names: x0, x1, x10, x11, x12 and 95 more"];
    assert!(run.stderr.contains(words[0]), "{}", run.stderr);
    assert_eq!(names(place.remote("copy")), ["kept"]);
    // Nothing to delete, nothing to tell.
    let run = xdfs(["sync", "--delete", &tree, &url]).ok();
    assert!(!run.stderr.contains("about to"), "{}", run.stderr);
    add(&place, 2);
    let run = xdfs(["sync", "--delete", "--json", &tree, &url]).ok();
    let lines = run.json();
    let told = lines.iter().find(|l| l["type"] == "deletion").unwrap();
    assert_eq!(
        (&told["names"], &told["names_at_target"]),
        (&2.into(), &3.into())
    );
    assert_eq!(told["examples"], serde_json::json!(["x0", "x1"]));
}

#[test]
fn without_a_terminal_a_large_share_is_refused() {
    let place = Place::new();
    let (_server, tree, url) = trees(&place, 101);
    write(place.here("tree/new"));
    let words = [
        "/copy': nothing deleted: 101 of 102 names would be deleted, more than a tenth",
        "use --force or --max-delete 101",
        "101 not deleted",
    ];
    let run = refused(&["sync", "--delete", &tree, &url], &words);
    assert!(run.stdout.is_empty());
    assert_eq!(names(place.remote("copy")).len(), 103);
    let run = refused(&["sync", "--delete", "--json", &tree, &url], &words[1..2]);
    let lines = run.json();
    let error = lines.iter().find(|l| l["type"] == "error").unwrap();
    assert_eq!(
        (&error["code"], &error["exit_code"]),
        (&"not-empty".into(), &6.into())
    );
    assert_eq!(run.result()["exit_code"], 6);
    xdfs(["sync", "--delete", "--dry-run", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")).len(), 103);
    refused(
        &["sync", "--delete", "--max-delete", "100", &tree, &url],
        &["limit of 100"],
    );
    assert_eq!(names(place.remote("copy")).len(), 103);
    xdfs(["sync", "--delete", "--max-delete", "101", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")), ["kept", "new"]);
    add(&place, 101);
    xdfs(["sync", "--delete", "--force", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")), ["kept", "new"]);
    // A tenth of many is much, and still no surprise.
    (0..1200).for_each(|n| write(place.here(&format!("tree/many/{n}"))));
    xdfs(["sync", &tree, &url]).ok();
    add(&place, 130);
    xdfs(["sync", "--delete", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")), ["kept", "many", "new"]);
}

#[test]
fn at_a_terminal_it_asks() {
    let place = Place::new();
    let (_server, tree, url) = trees(&place, 101);
    let arguments = ["sync", "--delete", &tree, &url];
    let question = "more than a tenth; delete them? [y/N] ";
    for no in ["\r", "n\r", "yep\r"] {
        let (code, text) = at_terminal(&arguments, question, no);
        assert_eq!(code, 130, "{text}");
        assert!(
            text.contains("nothing deleted: it was not confirmed"),
            "{text}"
        );
        assert_eq!(names(place.remote("copy")).len(), 102);
    }
    // Ctrl-C at the question ends it.
    let (code, _) = at_terminal(&arguments, question, "\x03");
    assert_eq!(code, 130);
    assert_eq!(names(place.remote("copy")).len(), 102);
    let (code, text) = at_terminal(&arguments, question, "y\r");
    assert_eq!(code, 0, "{text}");
    assert_eq!(names(place.remote("copy")), ["kept"]);
    // Not for programs that read JSON.
    add(&place, 101);
    let json = ["sync", "--delete", "--json", &tree, &url];
    let (code, text) = at_terminal(&json, "use --force or --max-delete 101", "");
    assert_eq!(code, 6, "{text}");
    assert!(!text.contains("[y/N]"), "{text}");
}

#[test]
fn the_root_of_an_export_is_never_emptied_in_silence() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let (tree, url) = (place.here("tree"), server.url("/"));
    write(place.here("tree/a"));
    write(place.remote("a"));
    write(place.remote("b"));
    let words = ["1 name would be deleted from the root", "--max-delete 1"];
    refused(&["sync", "--delete", &tree, &url], &words);
    assert_eq!(names(place.root()), ["a", "b"]);
    let (code, text) = at_terminal(&["sync", "--delete", &tree, &url], "[y/N] ", "yes\r");
    assert_eq!(code, 0, "{text}");
    assert_eq!(names(place.root()), ["a"]);
    write(place.remote("b"));
    xdfs(["sync", "--delete", "--max-delete", "1", &tree, &url]).ok();
    assert_eq!(names(place.root()), ["a"]);
    // Nothing to delete is no surprise.
    xdfs(["sync", "--delete", &tree, &url]).ok();
    // An export of several.
    drop(server);
    let export = place.path().join("export");
    fs::create_dir(&export).unwrap();
    write(export.join("a"));
    write(export.join("b"));
    let config = place.make_here(
        "xdfs.toml",
        format!(
            "[[export]]\nname = \"data\"\npath = \"{}\"\n[[export.grant]]\nuser = \"*\"\n\
             rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n",
            export.display()
        )
        .as_bytes(),
    );
    let server = Server::start_with(
        &place.root(),
        &["--listen", "127.0.0.1:0", "--config", &config],
    );
    let url = server.url("/data");
    refused(&["sync", "--delete", &tree, &url], &words);
    assert_eq!(names(&export), ["a", "b"]);
    xdfs(["sync", "--delete", "--force", &tree, &url]).ok();
    assert_eq!(names(&export), ["a"]);
}

/// `cp -r tree U/` makes /tree, and `sync tree U/` fills /.
#[test]
fn a_wrong_target_is_left_as_it_is() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let tree = place.here("tree");
    write(place.here("tree/a"));
    write(place.here("tree/d/b"));
    xdfs(["cp", "-r", &tree, &server.url("/")]).ok();
    write(place.remote("other"));
    let hint = format!("did you mean {}?", server.url("/tree"));
    for url in [server.url("/"), server.url("")] {
        let words = ["nothing copied or deleted", "'tree'", &hint, "--force"];
        refused(&["sync", "--delete", &tree, &url], &words);
        assert_eq!(names(place.root()), ["other", "tree"]);
    }
    // Another name, but nothing in common, at a deeper place.
    write(place.remote("deep/copy/x/y"));
    write(place.remote("deep/copy/z"));
    let url = server.url("/deep/copy/");
    let words = ["nothing in common", "all its 2 entries", "/deep/copy/tree?"];
    refused(&["sync", "--delete", &tree, &url], &words);
    assert_eq!(names(place.remote("deep/copy")), ["x", "z"]);
    let (code, text) = at_terminal(&["sync", "--delete", &tree, &url], "[y/N] ", "n\r");
    assert_eq!(code, 130, "{text}");
    assert!(
        text.contains("nothing copied or deleted: it was not confirmed"),
        "{text}"
    );
    assert_eq!(names(place.remote("deep/copy")), ["x", "z"]);
    // A limit bounds what it may cost.
    refused(
        &["sync", "--delete", "--max-delete", "1", &tree, &url],
        &["3 names exceed"],
    );
    assert_eq!(names(place.remote("deep/copy")), ["a", "d", "x", "z"]);
    // With that in common, few names go without a question.
    xdfs(["sync", "--delete", &tree, &url]).ok();
    assert_eq!(names(place.remote("deep/copy")), ["a", "d"]);
    // Downloads too.
    write(place.here("back/tree/a"));
    write(place.here("back/d"));
    let (url, back) = (server.url("/tree"), place.here("back"));
    refused(
        &["sync", "--delete", &url, &back],
        &["'tree'", "back/tree?"],
    );
    assert_eq!(names(&back), ["d", "tree"]);
    let question = format!("go on with {back}? [y/N] ");
    let (code, text) = at_terminal(&["sync", "--delete", &url, &back], &question, "y\r");
    assert_eq!(code, 0, "{text}");
    assert_eq!(names(&back), ["a", "d"]);
    xdfs(["sync", "--delete", "--force", &tree, &server.url("/")]).ok();
    assert_eq!(names(place.root()), ["a", "d"]);
}

fn inode(path: impl AsRef<Path>) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path).unwrap().ino()
}

/// What the backup directory has of an older state of `copy`: see the test.
fn changed(source: &Path, copy: &Path, large: usize) -> [u64; 4] {
    for directory in [source, copy] {
        fs::create_dir_all(directory.join("d")).unwrap();
        fs::create_dir_all(directory.join("gone/deep")).unwrap();
    }
    fs::remove_dir_all(source.join("gone")).unwrap();
    fs::write(copy.join("small"), "old").unwrap();
    fs::write(source.join("small"), "newer").unwrap();
    fs::write(copy.join("d/large"), vec![1; large]).unwrap();
    fs::write(source.join("d/large"), vec![2; large + 1]).unwrap();
    std::os::unix::fs::symlink("old", copy.join("link")).unwrap();
    fs::write(source.join("link"), vec![3; large]).unwrap();
    fs::write(copy.join("gone/deep/file"), "gone").unwrap();
    ["small", "d/large", "link", "gone/deep/file"].map(|name| inode(copy.join(name)))
}

#[track_caller]
fn assert_kept(backup: &Path, inodes: [u64; 4], large: usize) {
    let kept = ["small", "d/large", "link", "gone/deep/file"];
    // Moved, and not copied.
    assert_eq!(kept.map(|name| inode(backup.join(name))), inodes);
    assert_eq!(fs::read(backup.join("small")).unwrap(), b"old");
    assert_eq!(fs::read(backup.join("d/large")).unwrap(), vec![1; large]);
    assert_eq!(
        fs::read_link(backup.join("link")).unwrap(),
        Path::new("old")
    );
    let mut kept = names(backup);
    kept.retain(|name| name != ".xdfs-backup");
    assert_eq!(kept, ["d", "gone", "link", "small"]);
    assert_eq!(names(backup.join("d")), ["large"]);
}

#[test]
fn what_goes_is_kept_in_the_backup_directory() {
    const LARGE: usize = 3 << 20;
    let place = Place::new();
    let server = Server::start(&place.root());
    let (tree, copy) = (place.here("tree"), place.remote("copy"));
    let (up, back) = (server.url("/copy"), place.here("back"));
    let inodes = changed(Path::new(&tree), &copy, LARGE);
    let arguments = [
        "sync",
        "--delete",
        "--delta",
        "--backup-dir",
        "../old/1",
        &tree,
        &up,
    ];
    xdfs(arguments.iter().chain(&["--dry-run"])).ok();
    assert_eq!(names(place.root()), ["copy"]);
    xdfs(arguments).ok();
    assert_kept(&place.remote("old/1"), inodes, LARGE);
    assert_eq!(names(&copy), ["d", "link", "small"]);
    assert_eq!(fs::read(copy.join("d/large")).unwrap(), vec![2; LARGE + 1]);
    // Nothing changed, nothing kept; and a newer backup takes the place of the older one.
    xdfs(arguments).ok();
    assert_kept(&place.remote("old/1"), inodes, LARGE);
    fs::write(place.here("tree/small"), "newest!").unwrap();
    xdfs(arguments).ok();
    assert_eq!(fs::read(place.remote("old/1/small")).unwrap(), b"newer");
    // The other way, into a directory of the target, which stays out of it all.
    let inodes = changed(&copy.join("sub"), Path::new(&back), LARGE);
    fs::create_dir(copy.join("sub/.old")).unwrap();
    fs::write(copy.join("sub/.old/x"), "of the source").unwrap();
    let (down, kept) = (server.url("/copy/sub"), place.here("back/.old"));
    let arguments = ["sync", "--delete", "--backup-dir", ".old", &down, &back];
    for _ in 0..2 {
        xdfs(arguments).ok();
        assert_kept(Path::new(&kept), inodes, LARGE);
        assert_eq!(names(&back), [".old", "d", "link", "small"]);
    }
    // Wherever its name comes from.
    fs::remove_file(copy.join("sub/small")).unwrap();
    let link = place.here("alias");
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    xdfs(["sync", "--delete", "--backup-dir", &link, &down, &back]).ok();
    assert_eq!(names(&back), [".old", "d", "link"]);
    assert_eq!(fs::read(Path::new(&kept).join("small")).unwrap(), b"newer");
}

#[test]
fn a_backup_directory_in_the_target_outlives_later_runs() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let tree = place.here("tree");
    fs::create_dir_all(place.here("tree/d")).unwrap();
    let (up, down) = (server.url("/copy"), place.here("back"));
    for name in ["a", "b", "d/c"] {
        fs::write(place.here(&format!("tree/{name}")), name).unwrap();
    }
    xdfs(["sync", &tree, &up]).ok();
    xdfs(["sync", &up, &down]).ok();
    fs::write(place.here("tree/a"), "newer").unwrap();
    fs::remove_file(place.here("tree/d/c")).unwrap();
    let places = [place.remote("copy"), down.clone().into()];
    let source = place.remote("source");
    fs::create_dir(&source).unwrap();
    for name in ["a", "b"] {
        fs::copy(place.here(&format!("tree/{name}")), source.join(name)).unwrap();
    }
    fs::create_dir(source.join("d")).unwrap();
    let url = server.url("/source");
    let ways = [[&*tree, &*up], [&url, &down]];
    for ([source, target], at) in ways.into_iter().zip(&places) {
        let kept = ["old/runs/1/a", "old/runs/1/d/c"].map(|name| at.join(name));
        xdfs([
            "sync",
            "--delete",
            "--backup-dir",
            "old/runs/1",
            source,
            target,
        ])
        .ok();
        assert!(kept.iter().all(|kept| kept.exists()));
        fs::write(at.join("old/other"), "of nobody").unwrap();
        for flags in [
            &["--dry-run"][..],
            &[],
            &["--force"],
            &["--compare", "digest"],
        ] {
            let run = xdfs([&["sync", "--delete", source, target][..], flags].concat()).ok();
            let words = [
                "'old/runs/1'",
                "it keeps what an earlier run",
                "--backup-dir",
            ];
            assert!(
                words.iter().all(|word| run.stderr.contains(word)),
                "{}",
                run.stderr
            );
            assert!(kept.iter().all(|kept| kept.exists()), "{flags:?}");
        }
        assert!(!at.join("old/other").exists(), "what isn't kept there goes");
        let run = xdfs(["sync", source, target]).ok();
        assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    }
}

#[test]
fn a_backup_directory_that_can_t_keep_anything() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    fs::create_dir_all(place.remote("copy")).unwrap();
    fs::create_dir_all(&tree).unwrap();
    fs::write(place.here("tree/a"), "new!").unwrap();
    for name in ["a", "b"] {
        fs::write(place.remote(&format!("copy/{name}")), "old").unwrap();
    }
    let sync = |directory: &str| xdfs(["sync", "--delete", "--backup-dir", directory, &tree, &url]);
    for directory in ["", ".", "/", "/copy", &url, "../copy/"] {
        sync(directory).fails(2, &[]);
    }
    sync("xdfs://127.0.0.1:1/old").fails(2, &["target's side"]);
    // A file is in the way, and then a directory.
    fs::write(place.remote("old"), "").unwrap();
    sync("/old").fails(6, &["/old"]);
    fs::remove_file(place.remote("old")).unwrap();
    fs::create_dir_all(place.remote("old/a")).unwrap();
    sync("/old").fails(6, &["/old/a': is a directory", "could not be kept in /old"]);
    let content = |name: &str| fs::read(place.remote(name)).unwrap();
    assert_eq!(
        (content("copy/a"), content("copy/b")),
        (b"old".to_vec(), b"old".to_vec())
    );
    // Another file system, of a local target.
    let back = place.here("back");
    fs::create_dir(&back).unwrap();
    fs::write(place.here("back/a"), "older").unwrap();
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return xdfs_testkit::skip::part("there is no /dev/shm");
    };
    use std::os::unix::fs::MetadataExt as _;
    if elsewhere.path().metadata().unwrap().dev() == place.path().metadata().unwrap().dev() {
        return xdfs_testkit::skip::part("/dev/shm is in the same file system");
    }
    let elsewhere = elsewhere.path().to_str().unwrap();
    xdfs(["sync", "--backup-dir", elsewhere, &url, &back]).fails(14, &["could not be kept"]);
    assert_eq!(fs::read(place.here("back/a")).unwrap(), b"older");
    sync("../old/new").ok();
    assert_eq!(
        (content("old/new/a"), content("old/new/b")),
        (b"old".to_vec(), b"old".to_vec())
    );
    assert_eq!(names(place.remote("copy")), ["a"]);
}
