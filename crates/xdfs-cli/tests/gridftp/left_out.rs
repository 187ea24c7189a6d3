//! Names that listings of FTP can't tell: they are missed, and nothing is deleted for it.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;

use crate::client::Client;
use crate::places::xdfs;
use crate::stage::{Stage, assert_same_tree, names, outcome, run};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// What a command says that fails.
#[track_caller]
fn fails(stage: &Stage, words: &[&str]) -> String {
    let (succeeded, said) = outcome(&mut xdfs(stage, &[words, &["--insecure"]].concat()));
    assert!(!succeeded, "{words:?}: {said}");
    said
}

#[test]
fn the_server_says_what_its_listings_lack() {
    let stage = Stage::open(410, &[]);
    for name in ["d/a", "d/b\nc", "d/e\rf", "d/sub/g\n", "plain/h"] {
        Stage::make(&stage.root(name), 10);
    }
    let mut client = Client::log_in(&stage);
    for (command, left_out) in [
        ("MLSD /d", Some(2)),
        ("LIST /d", Some(2)),
        ("NLST /d", Some(2)),
        ("MLSR /d", Some(3)),
        ("LIST /d/*", Some(2)),
        ("NLST /d/a*", None),
        ("MLSD /plain", None),
        ("MLSR /plain", None),
    ] {
        let mut data = TcpStream::connect(client.passive()).unwrap();
        client.ask(command, 150);
        let mut rows = String::new();
        data.read_to_string(&mut rows).unwrap();
        let said = client.expect(226);
        let wanted = left_out.map(|names| format!("LeftOut={names};"));
        match wanted {
            Some(wanted) => assert!(said.contains(&wanted), "{command}: {said}"),
            None => assert_eq!(said.trim(), "226 Transfer complete.", "{command}"),
        }
    }
    assert!(client.ask("MLSC /d", 250).contains("LeftOut=2;"));
    assert!(!client.ask("MLSC /plain", 250).contains("LeftOut"));
}

#[test]
fn a_name_that_no_command_can_have_fails_alone() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let stage = Stage::open(414, &[]);
    for number in 0..20 {
        Stage::make(&stage.root(&format!("d/f{number:02}")), 10);
    }
    // Because of the first one it isn't read by segments.
    Stage::make(&stage.root("d/left\nout"), 10);
    let evil = OsStr::from_bytes(b"f05\xff");
    Stage::make(&stage.root("d").join(evil), 10);
    let said = fails(
        &stage,
        &["cp", "-r", &stage.url("/d"), &text(&stage.here("d"))],
    );
    assert!(said.contains("f05"), "{said}");
    for number in 0..20 {
        assert!(stage.here(&format!("d/f{number:02}")).exists(), "{said}");
    }
}

/// Wildcards find the other names, with a warning about those that FTP can't carry.
#[test]
fn wildcards_find_the_other_names() {
    let stage = Stage::open(819, &[]);
    for name in ["d/a.dat", "d/b.dat", "d/left\nout.dat", "d/other"] {
        Stage::make(&stage.root(name), 10);
    }
    let pattern = stage.url("/d/*.dat");
    let here = stage.here("here");
    fs::create_dir_all(&here).unwrap();
    for words in [
        &["cp", "--insecure", &pattern, &text(&here)][..],
        &["stat", "--insecure", &pattern],
        &["rm", "--insecure", &pattern],
    ] {
        let (succeeded, said) = outcome(&mut xdfs(&stage, words));
        assert!(succeeded, "{words:?}: {said}");
        let warning = "warning: server ";
        assert!(
            said.contains(warning) && said.contains("1 name in it is left out"),
            "{said}"
        );
    }
    let found = fs::read_dir(&here).unwrap().count();
    assert_eq!(found, 2);
    assert!(!stage.root("d/a.dat").exists() && stage.root("d/left\nout.dat").exists());
    // A name that no command can have.
    let said = fails(&stage, &["ls", &stage.url("/d/left%0Aout.dat")]);
    assert!(said.contains("cannot use the name '/d/left'"), "{said}");
    assert!(!said.contains("MLST"), "{said}");
}

#[test]
fn what_is_left_out_is_missed_and_nothing_is_deleted() {
    let stage = Stage::open(411, &[]);
    let tree = stage.root("tree");
    for name in ["a", "sub/b", "sub/c\nd", "other/e"] {
        Stage::make(&tree.join(name), 100);
    }
    let url = stage.url("/tree");
    let left_out = "1 name in it is left out";
    for command in ["ls", "find", "du"] {
        let said = fails(&stage, &[command, &stage.url("/tree/sub")]);
        assert!(said.contains(left_out), "{said}");
    }
    // The rest is copied.
    let said = fails(&stage, &["cp", "-r", &url, &text(&stage.here("copied"))]);
    assert!(said.contains(left_out), "{said}");
    let target = stage.here("synced");
    for extra in ["sub/c\nd", "sub/x", "y"] {
        Stage::make(&target.join(extra), 100);
    }
    let said = fails(&stage, &["sync", "--delete", &url, &text(&target)]);
    assert!(said.contains(left_out), "{said}");
    for copy in [stage.here("copied"), target.clone()] {
        for name in ["a", "sub/b", "other/e"] {
            assert_eq!(
                fs::read(copy.join(name)).unwrap(),
                fs::read(tree.join(name)).unwrap()
            );
        }
    }
    for kept in ["sub/c\nd", "sub/x", "y"] {
        assert!(target.join(kept).exists(), "{kept}");
    }
    // At the root of the tree too, and from one server to another.
    let root = stage.url("/tree/sub");
    let said = fails(
        &stage,
        &["sync", "--delete", &root, &text(&stage.here("root"))],
    );
    assert!(
        said.contains(left_out) && stage.here("root/b").exists(),
        "{said}"
    );
    for command in [&["cp", "-r"][..], &["sync"]] {
        let to = stage.url(&format!("/to-{}/", command[0]));
        let said = fails(&stage, &[command, &[&format!("{root}/"), &to]].concat());
        assert!(said.contains(left_out), "{said}");
        assert!(
            stage.root(&format!("to-{}/b", command[0])).exists(),
            "{:?}",
            names(&stage)
        );
    }
    // At the target they stay, and so does their directory.
    let own = stage.here("own");
    Stage::make(&own.join("a"), 100);
    Stage::make(&own.join("other/f"), 100);
    let said = fails(&stage, &["sync", "--delete", &text(&own), &url]);
    assert!(
        said.contains("left out") || said.contains("not empty"),
        "{said}"
    );
    assert!(tree.join("sub/c\nd").exists() && !tree.join("sub/b").exists());
    assert!(tree.join("other/f").exists() && !tree.join("other/e").exists());
    // What goes there with such a name is refused by itself.
    Stage::make(&own.join("n\nm"), 100);
    let said = fails(&stage, &["cp", "-r", &text(&own), &stage.url("/up")]);
    assert!(
        said.contains("FTP can't carry names with an end of a line"),
        "{said}"
    );
    fs::remove_file(own.join("n\nm")).unwrap();
    assert_same_tree(&own, &stage.root("up"));
    run(&mut xdfs(&stage, &["ls", "--insecure", &stage.url("/up")]));
}

/// A directory of the target makes room for a link of the source that leads out of the export:
/// the server doesn't look behind it, and nothing there is in the tree.
#[test]
fn a_link_that_leads_out_takes_the_place_of_a_directory() {
    let stage = Stage::open(818, &[]);
    let outside = stage.here("outside");
    Stage::make(&outside.join("sub/f"), 10);
    Stage::make(&stage.root("d/kept"), 10);
    std::os::unix::fs::symlink(&outside, stage.root("d/x")).unwrap();
    let target = stage.here("target");
    for name in ["x/sub/f", "x/other", "gone"] {
        Stage::make(&target.join(name), 20);
    }
    let (url, path) = (stage.url("/d"), text(&target));
    let words = ["sync", "--delete", "--force", &url, &path, "--insecure"];
    run(&mut xdfs(&stage, &words));
    assert_eq!(fs::read_link(target.join("x")).unwrap(), outside);
    assert!(outside.join("sub/f").exists() && !target.join("gone").exists());
    assert!(target.join("kept").exists());
}
