//! `xdfs sync` from one server to another.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::Fake;
use crate::places::{vsftpd, xdfs};
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, outcome, run};
use crate::tools::Globus;

struct Place {
    url: String,
    root: PathBuf,
}

fn sync(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    run(&mut xdfs(
        stage,
        &[&["sync", "--insecure"], flags, &[from, to]].concat(),
    ))
}

#[track_caller]
fn fails(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    let words = [&["sync", "--insecure"], flags, &[from, to]].concat();
    let (succeeded, said) = outcome(&mut xdfs(stage, &words));
    assert!(!succeeded, "{words:?}: {said}");
    said
}

/// Makes everything in a directory old: nobody knows whether a file that is fresh is complete.
fn age(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path);
        }
        let time = SystemTime::now() - Duration::from_secs(100_000);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
}

fn make(root: &Path) {
    for number in 0..25 {
        Stage::make(
            &root.join(format!("d{}/f {number}", number % 4)),
            number * 997,
        );
    }
    Stage::make(&root.join("deep/er/large"), 9_000_001);
    fs::create_dir(root.join("empty")).unwrap();
    age(root);
}

#[test]
fn every_server_follows_every_other_one() {
    let stage = Stage::open(420, &[]);
    let mut places = vec![Place {
        url: stage.url(""),
        root: stage.root(""),
    }];
    let globus = Globus::start();
    if let Some(globus) = &globus {
        let root = stage.beside("globus");
        fs::create_dir(&root).unwrap();
        let url = format!("ftp://{}/{}", globus.address, root.display());
        places.push(Place { url, root });
    }
    let plain = vsftpd(&stage, "");
    if let Some((_, address)) = &plain {
        let url = format!("ftp://{address}/pub");
        let root = stage.beside("anonymous/pub");
        places.push(Place { url, root });
    }
    for (number, from) in places.iter().enumerate() {
        let tree = from.root.join("tree");
        make(&tree);
        for to in &places {
            let (source, name) = (format!("{}/tree", from.url), format!("of/{number}"));
            let (target, root) = (format!("{}/{name}", to.url), to.root.join(&name));
            let said = sync(&stage, &["--dry-run"], &source, &target);
            assert!(
                said.contains("copy deep/er/large") && !root.exists(),
                "{said}"
            );
            let said = sync(&stage, &[], &source, &target);
            assert!(said.contains("26 files"), "{said}");
            assert_same_tree(&tree, &root);
            let said = sync(&stage, &[], &source, &target);
            assert!(said.contains("0 files"), "{said}");
            // What differs is copied, what is missing comes, what is too much goes.
            fs::write(root.join("d0/f 4"), "changed").unwrap();
            fs::remove_file(root.join("d1/f 5")).unwrap();
            Stage::make(&root.join("d1/more"), 10);
            fs::create_dir(root.join("more")).unwrap();
            let said = sync(&stage, &["--delete", "--dry-run"], &source, &target);
            assert!(
                said.contains("delete more") && root.join("more").exists(),
                "{said}"
            );
            let said = sync(&stage, &["--delete"], &source, &target);
            assert!(
                said.contains("2 files") && said.contains("2 deleted"),
                "{said}"
            );
            assert_same_tree(&tree, &root);
            fs::remove_dir_all(to.root.join("of")).unwrap();
        }
        fs::remove_dir_all(&tree).unwrap();
    }
}

#[test]
fn contents_are_compared_where_they_are() {
    let stage = Stage::open(421, &[]);
    let Some(globus) = Globus::start() else {
        return;
    };
    let root = stage.beside("globus");
    make(&root.join("tree"));
    let from = format!("ftp://{}/{}/tree", globus.address, root.display());
    let to = stage.url("/there/tree");
    sync(&stage, &[], &from, &to);
    let changed = stage.root("there/tree/d0/f 4");
    let before = fs::metadata(&changed).unwrap();
    let other = vec![7; usize::try_from(before.len()).unwrap()];
    fs::write(&changed, other).unwrap();
    let file = fs::File::options().write(true).open(&changed).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let said = sync(&stage, &[], &from, &to);
    assert!(said.contains("0 files"), "{said}");
    let said = sync(&stage, &["--compare=digest"], &from, &to);
    assert!(said.contains("1 file,"), "{said}");
    assert_same_tree(&root.join("tree"), &stage.root("there/tree"));
    // The servers computed them: nothing was read through.
    let said = sync(&stage, &["--compare=digest", "--json"], &from, &to);
    assert!(said.contains("\"files\":0"), "{said}");
}

#[test]
fn servers_of_other_kinds_follow_too() {
    let stage = Stage::open(422, &[]);
    let own = stage.knows_open("own", &stage);
    make(&stage.root("tree"));
    std::os::unix::fs::symlink("d0", stage.root("tree/link")).unwrap();
    age(&stage.root("tree"));
    for (number, (from, to)) in [(&own, &stage.url("")), (&stage.url(""), &own), (&own, &own)]
        .into_iter()
        .enumerate()
    {
        let (from, name) = (format!("{from}/tree"), format!("x/{number}"));
        let (to, root) = (format!("{to}/{name}"), stage.root(&name));
        let is_ftp = to.starts_with("ftp:");
        if is_ftp {
            // It has no links.
            let said = fails(&stage, &["--delete"], &from, &to);
            assert!(said.contains("only files and directories"), "{said}");
            fs::remove_file(stage.root("tree/link")).unwrap();
        }
        sync(&stage, &[], &from, &to);
        assert_same_tree(&stage.root("tree"), &root);
        let said = sync(&stage, &[], &from, &to);
        assert!(said.contains("0 files"), "{said}");
        if is_ftp {
            std::os::unix::fs::symlink("d0", stage.root("tree/link")).unwrap();
        }
    }
}

#[test]
fn what_could_be_a_mistake_is_refused() {
    let stage = Stage::open(423, &[]);
    make(&stage.root("a/tree"));
    Stage::make(&stage.root("b/c/file"), 10);
    let (from, to) = (stage.url("/a/tree"), stage.url("/b/c"));
    for (source, target) in [
        (&from, &from),
        (&stage.url("/a"), &from),
        (&from, &stage.url("/a/")),
        (&from, &stage.url("/a/./tree/d1")),
    ] {
        let said = fails(&stage, &[], source, target);
        assert!(said.contains("or in it"), "{said}");
    }
    let up = stage.url("/b/../a/tree");
    for (source, target) in [(&up, &from), (&from, &up), (&stage.url("/a/tree/.."), &to)] {
        let said = fails(&stage, &["--delete", "--force"], source, target);
        assert!(said.contains("without it"), "{said}");
    }
    let said = fails(&stage, &["--backup-dir=old"], &from, &to);
    assert!(
        said.contains("no hard links") && !stage.root("b/c/d0").exists(),
        "{said}"
    );
    for flag in [
        "--archive",
        "--owner",
        "--xattrs",
        "--hard-links",
        "--delta",
    ] {
        let said = fails(&stage, &[flag], &from, &to);
        assert!(said.contains("can't be done between servers"), "{said}");
    }
    let said = fails(&stage, &["--delete"], &stage.url("/missing"), &to);
    assert!(said.contains("no such directory"), "{said}");
    let said = fails(&stage, &["--delete"], &stage.url("/a/tree/empty"), &to);
    assert!(said.contains("the source is empty"), "{said}");
    // A target that has nothing in common with the source.
    fs::create_dir(stage.root("b/c/sub")).unwrap();
    let said = fails(&stage, &["--delete"], &from, &to);
    assert!(said.contains("nothing in common"), "{said}");
    assert!(stage.root("b/c/file").exists() && !stage.root("b/c/d0").exists());
    let said = fails(&stage, &["--delete", "--max-delete=1"], &from, &to);
    assert!(said.contains("exceed the limit of 1"), "{said}");
    assert!(stage.root("b/c/file").exists() && stage.root("b/c/d0").exists());
    sync(&stage, &["--delete", "--force"], &from, &to);
    assert_same_tree(&stage.root("a/tree"), &stage.root("b/c"));
    // A directory in the way of a file, and the other way round.
    fs::remove_file(stage.root("b/c/d0/f 4")).unwrap();
    Stage::make(&stage.root("b/c/d0/f 4/kept"), 10);
    fs::remove_dir(stage.root("b/c/empty")).unwrap();
    Stage::make(&stage.root("b/c/empty"), 10);
    let said = fails(&stage, &[], &from, &to);
    assert!(said.contains("there is a directory in its place"), "{said}");
    assert_bytes(
        &stage.root("b/c/d0/f 4/kept"),
        &fs::read(stage.root("b/c/empty")).unwrap(),
    );
    sync(&stage, &["--delete"], &from, &to);
    assert_same_tree(&stage.root("a/tree"), &stage.root("b/c"));
}

/// Removes what a killed server has of files: it is hidden, and removed by itself some day.
fn remove_parts(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_parts(&path);
        } else if is_part(&path) {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Whether it is the hidden file of a file that isn't whole yet, or of its journal.
fn is_part(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy());
    ending.is_some_and(|ending| ending == "xdfs-part" || ending.starts_with("xdfs-journal"))
}

/// Kills a server in the middle of a large file.
fn survives(seed: u64, kills_source: bool) {
    let (mut from, mut to) = (Stage::open(seed, &[]), Stage::open(seed + 1, &[]));
    let tree = from.root("tree");
    make(&tree);
    Stage::make(&tree.join("large"), 40_000_000);
    age(&tree);
    let flags = ["--between=client", "--limit-rate=20M"];
    let (source, target) = (from.url("/tree"), to.url("/x/tree"));
    let words = [
        &["sync", "--insecure", "--delete"],
        &flags[..],
        &[&source, &target],
    ]
    .concat();
    let mut client = Guard::spawn(&mut xdfs(&from, &words)).unwrap();
    let root = to.root("x/tree");
    let has_part = || {
        let entries = fs::read_dir(&root).into_iter().flatten();
        let mut hidden = entries.flatten().filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with(".large") || name.contains("xdfs")
        });
        hidden.any(|entry| entry.metadata().is_ok_and(|found| found.len() > 0))
    };
    let has_begun = || has_part() || root.join("large").exists();
    assert!(wait::until(PATIENCE, has_begun), "{:?}", client.output());
    match kills_source {
        true => from.kill_and_restart(),
        false => to.kill_and_restart(),
    }
    let status = client.wait(PATIENCE).unwrap();
    assert!(status.is_some(), "{:?}", client.output());
    // What has a name is whole.
    for name in ["large", "deep/er/large"] {
        if root.join(name).exists() {
            assert_bytes(&root.join(name), &fs::read(tree.join(name)).unwrap());
        }
    }
    run(&mut xdfs(&from, &words));
    remove_parts(&root);
    assert_same_tree(&tree, &root);
}

#[test]
fn a_killed_source_leaves_no_half_file() {
    survives(424, true);
}

#[test]
fn a_killed_target_leaves_no_half_file() {
    survives(426, false);
}

#[test]
fn no_source_leads_out_of_the_target() {
    let stage = Stage::open(428, &[]);
    Stage::make(&stage.root("in/d/kept"), 10);
    for name in ["../evil", "/evil", "..", "a/b"] {
        let rows = format!("Type=file;Size=1000;Modify=20260102030405; {name}\r\n");
        let fake = Fake::start(" MLST Type*;Size*;Modify*;\r\n", move |verb, _, talk| {
            let is_listing = verb == "MLSD";
            if is_listing {
                talk.send(rows.as_bytes());
            }
            is_listing
        });
        let (from, to) = (fake.url("/d"), stage.url("/in/d"));
        let said = fails(&stage, &["--delete", "--force"], &from, &to);
        assert!(said.contains("the listing has"), "{name}: {said}");
        assert!(!fake.was_read() && stage.root("in/d/kept").exists());
        assert!(!stage.root("evil").exists() && !stage.root("in/evil").exists());
    }
}
