//! Servers without MLSD: vsftpd, and servers that list as IIS does, or break every rule.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::fake::{Fake, Talk};
use crate::places::{There, trees_work, vsftpd, xdfs};
use crate::stage::{Stage, assert_bytes, assert_same_tree, outcome, run};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn trees_go_both_ways_at_vsftpd() {
    let stage = Stage::open(400, &[]);
    let Some((_server, address)) = vsftpd(&stage, "") else {
        return;
    };
    let url = format!("ftp://{address}/pub");
    let root = stage.beside("anonymous/pub");
    let flags = &["--insecure"];
    let there = There {
        url: &url,
        root: &root,
        flags,
    };
    trees_work(&stage, there);
    let act = |words: &[&str]| run(&mut xdfs(&stage, &[words, &flags[..]].concat()));
    let fails = |words: &[&str]| {
        let (succeeded, said) = outcome(&mut xdfs(&stage, &[words, &flags[..]].concat()));
        assert!(!succeeded, "{said}");
        said
    };
    // What LIST tells: hidden names, names with blanks, modes, links.
    let tree = root.join("tree");
    Stage::make(&tree.join("a b/ c "), 10);
    Stage::make(&tree.join(".hidden"), 20);
    Stage::make(&tree.join("*"), 30);
    Stage::make(&tree.join("-a"), 40);
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    fs::set_permissions(tree.join(".hidden"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("a b", tree.join("link")).unwrap();
    symlink(".hidden", tree.join("to file")).unwrap();
    let there = format!("{url}/tree");
    let shown = act(&["ls", "-la", &there]);
    for words in [
        "5368709120",
        "-rw-------",
        "link -> a b",
        "to file -> .hidden",
        " *",
        " -a",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    fs::remove_file(tree.join("sparse")).unwrap();
    let shown = act(&[
        "stat",
        &format!("{there}/link"),
        &format!("{there}/a b/ c "),
    ]);
    assert!(
        shown.contains("symbolic link") && shown.contains("Size: 10"),
        "{shown}"
    );
    let shown = act(&["find", &there]);
    assert_eq!(shown.lines().count(), 8, "{shown}");
    let shown = act(&["du", "-s", &there]);
    assert!(shown.starts_with("1\t"), "{shown}");
    // A tree, and the second time nothing.
    for (turn, wanted) in [(0, "4 files"), (1, "0 files")] {
        let said = act(&["sync", &there, &text(&stage.here("synced"))]);
        assert!(
            said.contains(wanted) && (turn == 0 || !said.contains("set")),
            "{said}"
        );
        assert_same_tree(&tree, &stage.here("synced"));
    }
    let own = stage.here("synced");
    assert_eq!(
        fs::metadata(own.join(".hidden")).unwrap().mode() & 0o777,
        0o600
    );
    assert_eq!(fs::read_link(own.join("link")).unwrap(), Path::new("a b"));
    fs::remove_file(own.join("link")).unwrap();
    fs::remove_file(own.join("to file")).unwrap();
    fs::set_permissions(own.join(".hidden"), fs::Permissions::from_mode(0o644)).unwrap();
    let up = format!("{url}/up/there");
    for wanted in ["4 files", "0 files"] {
        let said = act(&["sync", &text(&own), &up]);
        assert!(said.contains(wanted), "{said}");
        assert_same_tree(&own, &root.join("up/there"));
    }
    // What the source lists goes, hidden names too, and what it lacks.
    fs::remove_file(own.join(".hidden")).unwrap();
    fs::write(own.join("-a"), "other").unwrap();
    act(&["sync", "--delete", &text(&own), &up]);
    assert_same_tree(&own, &root.join("up/there"));
    // A link isn't followed by what removes.
    fs::create_dir(root.join("kept")).unwrap();
    Stage::make(&root.join("kept/file"), 5);
    symlink("kept", root.join("led")).unwrap();
    act(&["rm", "-r", &format!("{url}/led")]);
    assert!(root.join("kept/file").exists() && !root.join("led").is_symlink());
    symlink("../kept", tree.join("led")).unwrap();
    act(&["rm", "-r", &there]);
    assert!(root.join("kept/file").exists() && !tree.exists());
    let said = fails(&["ls", &there]);
    assert!(said.contains("tree"), "{said}");
}

/// A server without MLSD, whose directory `/d` has these rows, with or without options.
fn lists(all: &'static str, plain: &'static str) -> Fake {
    Fake::start("", move |verb, argument, talk| {
        match (verb, argument) {
            ("CWD", "/d" | "/") => talk.say("250 there\r\n"),
            ("LIST", "-a") if all.is_empty() => talk.say("550 -a: no such file\r\n"),
            ("LIST", "-a") => sends(talk, all),
            ("LIST", "") => sends(talk, plain),
            ("SIZE", "/d/file") => talk.say("213 1000\r\n"),
            ("SIZE", _) => talk.say("550 no such file\r\n"),
            ("MDTM", "/d/file") => talk.say("213 20200102030405\r\n"),
            _ => return false,
        };
        true
    })
}

fn sends(talk: &mut Talk, rows: &str) -> bool {
    talk.send(rows.as_bytes());
    true
}

#[test]
fn rows_of_iis_and_of_servers_without_options_are_read() {
    let stage = Stage::open(401, &[]);
    let dos = "11-21-26  07:23PM                 1000 file\r\n";
    let unix = "total 8\r\n-rw-r----- 1 me us 1000 Nov 21 19:23 file\r\n";
    for (number, (all, plain)) in [("", dos), (dos, dos), ("", unix), ("total 0\r\n", unix)]
        .into_iter()
        .enumerate()
    {
        let fake = lists(all, plain);
        let target = stage.here(&format!("d{number}"));
        let words = ["cp", "-r", "--insecure", &fake.url("/d"), &text(&target)];
        run(&mut xdfs(&stage, &words));
        assert_bytes(&target.join("file"), &crate::fake::content());
        let found = fs::metadata(target.join("file")).unwrap();
        assert_eq!(found.mtime(), 1_577_934_245);
        assert_eq!(plain == unix, found.mode() & 0o777 == 0o640);
    }
}

#[test]
fn what_is_no_listing_is_an_error_that_names_the_row() {
    let stage = Stage::open(402, &[]);
    let good = "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 file\r\n";
    let endless: &str = Box::leak("x".repeat(200_000).into_boxed_str());
    for (rows, wanted) in [
        ("nonsense\r\n", "isn't understood: 'nonsense'"),
        (
            "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 ../evil\r\n",
            "'../evil'",
        ),
        ("-rw-r--r-- 1 0 0 1000 Nov 21 19:23 /evil\r\n", "'/evil'"),
        (
            "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 a\0b\r\n",
            "no name of an entry",
        ),
        (
            "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 a\rb\r\n",
            "no name of an entry",
        ),
        (
            "-rw-r--r-- 1 0 0 99999999999999999999 Nov 21 19:23 a\r\n",
            "isn't understood",
        ),
        (
            "lrwxrwxrwx 1 0 0 1 Nov 21 19:23 a -> b -> c\r\n",
            "isn't understood",
        ),
        (endless, "too long"),
    ] {
        let rows: &str = Box::leak(format!("{good}{rows}").into_boxed_str());
        let fake = lists(rows, rows);
        for words in [
            ["ls", "--insecure"].as_slice(),
            &["cp", "-r", "--retries=0", "--insecure"],
        ] {
            let (url, target) = (fake.url("/d"), text(&stage.here("into")));
            let places: &[&str] = if words[0] == "ls" {
                &[&url]
            } else {
                &[&url, &target]
            };
            let (succeeded, said) = outcome(&mut xdfs(&stage, &[words, places].concat()));
            assert!(!succeeded && said.contains(wanted), "{rows:.300}: {said}");
        }
        assert!(!fake.was_read());
    }
}

#[test]
fn a_million_rows_have_a_bound() {
    let stage = Stage::open(403, &[]);
    let fake = Fake::start("", move |verb, argument, talk| {
        match (verb, argument) {
            ("CWD", _) => talk.say("250 there\r\n"),
            ("LIST", _) => {
                talk.say("150 now\r\n");
                let mut data = talk.data();
                let rows = "drwxr-xr-x 1 0 0 0 Nov 21 19:23 x\r\n".repeat(1000);
                for _ in 0..1100 {
                    // The client closes it before the end.
                    if std::io::Write::write_all(&mut data, rows.as_bytes()).is_err() {
                        break;
                    }
                }
                drop(data);
                talk.say("226 done\r\n")
            }
            ("SIZE", _) => talk.say("550 no such file\r\n"),
            _ => return false,
        };
        true
    });
    let (succeeded, said) = outcome(&mut xdfs(&stage, &["ls", "--insecure", &fake.url("/d")]));
    assert!(
        !succeeded && said.contains("more than 1000000 names"),
        "{said}"
    );
}

#[test]
fn a_server_without_times_is_synchronised_by_copies() {
    let stage = Stage::open(404, &[]);
    let fake = Fake::start("", move |verb, argument, talk| {
        match (verb, argument) {
            ("CWD", "/d" | "/") => talk.say("250 there\r\n"),
            ("LIST", _) => sends(talk, "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 file\r\n"),
            ("SIZE", "/d/file") => talk.say("213 1000\r\n"),
            ("SIZE", _) => talk.say("550 no such file\r\n"),
            _ => return false,
        };
        true
    });
    for _ in 0..2 {
        let (url, target) = (fake.url("/d"), text(&stage.here("d")));
        let said = run(&mut xdfs(
            &stage,
            &["sync", "-v", "--insecure", &url, &target],
        ));
        assert!(
            said.contains("1 file") && said.contains("tells no times"),
            "{said}"
        );
        let said = run(&mut xdfs(
            &stage,
            &["sync", "--compare=digest", "--insecure", &url, &target],
        ));
        assert!(said.contains("0 files"), "{said}");
    }
    let asked = fake.commands();
    assert!(
        asked.iter().any(|line| line.starts_with("MDTM")),
        "{asked:?}"
    );
}
