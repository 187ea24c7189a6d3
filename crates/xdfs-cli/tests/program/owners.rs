//! Owners by name: those whose names have other numbers on the other machine, and those without.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use xdfs_testkit::nobody::is_root;
use xdfs_testkit::{powercut, skip, wait};

use crate::support::{Place, Run, Server, program, run_with_input, xdfs};

/// Names and numbers of the user and the group, of who runs the client and of who serves.
const NAMES: (&str, &str) = ("daemon", "daemon");
const HERE: (u32, u32) = (1, 1);
const THERE: (u32, u32) = (4321, 8765);

/// A server that has a database of users and groups of its own.
fn serve(place: &Place) -> Server {
    let (user, group) = NAMES;
    let users = format!(
        "root:x:0:0::/:/bin/sh\n{user}:x:{}:{}::/:/bin/sh\n",
        THERE.0, THERE.1
    );
    let users = place.make_here("users", users.as_bytes());
    let groups = format!("root:x:0:\n{group}:x:{}:\n", THERE.1);
    let groups = place.make_here("groups", groups.as_bytes());
    Server::start_as(&place.root(), &["--listen", "127.0.0.1:0"], |serve| {
        let mut shell = Command::new("sh");
        let put = "mount --bind \"$0\" /etc/passwd && mount --bind \"$1\" /etc/group && shift";
        shell.args(["-c", &format!("{put} && exec \"$@\""), &users, &groups]);
        shell.arg(serve.get_program()).args(serve.get_args());
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        powercut::confined(shell).unwrap()
    })
}

/// Why that can't be done on this machine.
fn obstacle() -> Option<&'static str> {
    let number = |flag: &str| {
        let output = Command::new("id").args([flag, NAMES.0]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if !is_root() {
        return Some("only root can give files to others");
    }
    if number("-u").zip(number("-g")) != Some(HERE) {
        return Some("nobody is called daemon here");
    }
    let tried = powercut::confined(Command::new("true")).unwrap().status();
    let is_well = tried.is_ok_and(|status| status.success());
    (!is_well).then_some("there are no namespaces")
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn a_synchronisation_comes_to_rest_where_names_have_other_numbers() {
    if let Some(why) = obstacle() {
        return skip::test(why);
    }
    let place = Place::new();
    let server = serve(&place);
    let (tree, back) = (place.here("tree"), place.here("back"));
    for (root, (uid, gid)) in [(Path::new(&tree), HERE), (&place.remote("strange"), THERE)] {
        fs::create_dir(root).unwrap();
        fs::write(root.join("file"), "1").unwrap();
        symlink("file", root.join("link")).unwrap();
        chown(root.join("file"), Some(uid), Some(gid)).unwrap();
        lchown(root.join("link"), Some(uid), Some(gid)).unwrap();
    }
    let ways = [
        (
            tree,
            server.url("/copy"),
            place.remote("copy"),
            (HERE, THERE),
        ),
        (
            server.url("/strange"),
            back.clone(),
            back.into(),
            (THERE, HERE),
        ),
    ];
    for (source, url, target, (own, named)) in ways {
        xdfs(["sync", "-a", &source, &url]).ok();
        assert_eq!(
            ["file", "link"].map(|name| owner(target.join(name))),
            [named; 2]
        );
        // Numbers are compared, and set then.
        let run = xdfs(["sync", "-a", "-v", &source, &url]).ok();
        assert_eq!(
            ["file", "link"].map(|name| owner(target.join(name))),
            [own; 2]
        );
        assert!(!run.stderr.contains("replace"), "{}", run.stderr);
        let run = xdfs(["sync", "-a", "--dry-run", &source, &url]).ok();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "", "{url}");
    }
}

/// The columns of the owner and the group, and the name, of each line of a long listing.
fn listed(run: Run) -> Vec<String> {
    let text = run.ok().text();
    let columns = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{} {} {}", words[2], words[3], words[words.len() - 1])
    };
    text.lines().map(columns).collect()
}

/// Owner and group of each entry in JSON, by name and by number.
fn owners(run: Run) -> Vec<Value> {
    let mut objects = run.ok().json();
    objects.retain(|object| object["type"] == "entry");
    let fields = |entry: &Value| ["user", "group", "uid", "gid"].map(|name| entry[name].clone());
    objects
        .iter()
        .map(|entry| fields(entry).to_vec().into())
        .collect()
}

#[test]
fn owners_have_the_names_of_the_server() {
    if let Some(why) = obstacle() {
        return skip::test(why);
    }
    let place = Place::new();
    let server = serve(&place);
    let root = server.url("/d");
    let path = |name: &str| place.remote("d").join(name);
    fs::create_dir(place.remote("d")).unwrap();
    for (name, (uid, gid)) in [("named", THERE), ("here", HERE), ("mixed", (54321, 0))] {
        fs::write(path(name), "").unwrap();
        chown(path(name), Some(uid), Some(gid)).unwrap();
    }
    symlink("named", path("link")).unwrap();
    lchown(path("link"), Some(0), Some(THERE.1)).unwrap();
    let named = [
        "1 1 here",
        "root daemon named",
        "54321 root mixed",
        "daemon daemon named",
    ];
    let numbers = [
        "1 1 here",
        "0 8765 named",
        "54321 0 mixed",
        "4321 8765 named",
    ];
    assert_eq!(listed(xdfs(["ls", "-l", &root])), named);
    for flag in ["-n", "--numeric", "-ln"] {
        assert_eq!(listed(xdfs(["ls", flag, &root])), numbers, "{flag}");
    }
    let files = ["here", "named"].map(|name| server.url(&format!("/d/{name}")));
    let columns = ["1 1 /d/here", "daemon daemon /d/named"];
    assert_eq!(listed(xdfs(["ls", "-l", &files[0], &files[1]])), columns);

    // In JSON, a name that isn't known is null.
    let expected = [
        json!([null, null, 1, 1]),
        json!(["root", "daemon", 0, 8765]),
        json!([null, "root", 54321, 0]),
        json!(["daemon", "daemon", 4321, 8765]),
    ];
    assert_eq!(owners(xdfs(["ls", "--json", &root])), expected);
    assert_eq!(owners(xdfs(["stat", "--json", &files[1]])), expected[3..]);
    let mut found = owners(xdfs(["find", "--json", "-type", "f", &root]));
    found.sort_by_key(|owner| owner[2].as_u64());
    assert_eq!(found, [0, 3, 2].map(|at: usize| expected[at].clone()));
    let numeric = owners(xdfs(["ls", "--json", "-n", &files[1]]));
    assert_eq!(numeric, [json!([null, null, 4321, 8765])]);

    let mixed = server.url("/d/mixed");
    let form = "%u/%U %g/%G";
    let run = xdfs(["stat", "-c", form, &mixed, &files[1]]).ok();
    assert_eq!(
        run.text(),
        "54321/UNKNOWN 0/root\n4321/daemon 8765/daemon\n"
    );
    let run = xdfs(["stat", &mixed]).ok();
    assert!(
        run.text().contains("  Uid: 54321  Gid: (0/root)\n"),
        "{}",
        run.text()
    );
}

#[test]
fn owners_are_given_by_the_names_of_the_server() {
    if let Some(why) = obstacle() {
        return skip::test(why);
    }
    let place = Place::new();
    let server = serve(&place);
    let (file, url) = (place.remote("f"), server.url("/f"));
    fs::write(&file, "").unwrap();
    let given = |words: &[&str], expected: (u32, u32)| {
        xdfs([&["chown"], words, &[&url]].concat()).ok();
        assert_eq!(owner(&file), expected, "{words:?}");
    };
    given(&["daemon"], (4321, 0));
    given(&[":daemon"], (4321, 8765));
    given(&["root:7"], (0, 7));
    given(&["7:root"], (7, 0));
    // A number stays one.
    given(&["-R", "1:1"], HERE);
    for (word, who) in [("games", "user 'games'"), ("daemon:games", "group 'games'")] {
        let said = ["error: server ", "/f", "the server knows no", who, "hint: "];
        xdfs(["chown", word, &url]).fails(2, &said);
        assert_eq!(owner(&file), HERE);
    }
    let mut shell = program();
    shell.args(["shell", &server.url("/")]);
    let run = run_with_input(&mut shell, b"chown daemon:root f\nls -l f\nls -n f\n");
    let lines = ["daemon root /f", "4321 0 /f"];
    assert_eq!(listed(run), lines);
}

/// More owners than one call asks for.
#[test]
fn all_owners_of_a_large_directory_are_named() {
    if !is_root() {
        return skip::test("only root can give files to others");
    }
    let place = Place::new();
    let server = Server::start(&place.root());
    for number in 0..300 {
        let path = place.remote(&format!("{number:03}"));
        fs::write(&path, "").unwrap();
        chown(&path, Some(number), Some(70_000 + number)).unwrap();
    }
    let output = Command::new("ls")
        .arg("-l")
        .arg(place.root())
        .output()
        .unwrap();
    let expected = String::from_utf8(output.stdout).unwrap();
    let (_, expected) = expected.split_once('\n').unwrap();
    assert!(expected.contains(" daemon "), "{expected}");
    assert_eq!(xdfs(["ls", "-l", &server.url("/")]).ok().text(), expected);
    let found = owners(xdfs(["find", "--json", "-type", "f", &server.url("/")]));
    assert_eq!(found.len(), 300);
    let named = found.iter().filter(|owner| owner[0] == "daemon");
    assert_eq!(named.count(), 1);
}

#[test]
fn who_may_not_list_learns_no_names() {
    let place = Place::new();
    let export = |name: &str, rights: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("f"), "").unwrap();
        format!(
            "[[export]]\nname = \"{name}\"\npath = \"{}\"\n[[export.grant]]\nuser = \"*\"\n\
             rights = [{rights}]\n",
            path.display()
        )
    };
    let config = [
        "audit = \"audit\"\n".to_owned(),
        export("look", "\"list\", \"write\""),
        export("blind", "\"read\", \"write\""),
    ]
    .concat();
    let config = place.make_here("xdfs.toml", config.as_bytes());
    let flags = ["--listen", "127.0.0.1:0", "--config", &config];
    let server = Server::start_with(&place.root(), &flags);
    let [look, blind] = ["/look/f", "/blind/f"].map(|path| server.url(path));
    // From now on the server is trusted.
    xdfs(["ls", &server.url("/look")]).ok();
    let id = |flag: &str| {
        let output = Command::new("id").arg(flag).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (user, group) = (id("-un"), id("-gn"));
    let stat = |url: &str| {
        let run = xdfs(["stat", "-c", "%U:%G", url]).ok();
        assert_eq!(run.stderr, "");
        run.text()
    };
    assert_eq!(stat(&look), format!("{user}:{group}\n"));
    assert_eq!(stat(&blind), "UNKNOWN:UNKNOWN\n");
    // Where there are no names, there are numbers.
    let text = xdfs(["stat", &blind]).ok().text();
    assert!(
        text.contains(&format!("Uid: {}  Gid: {}\n", id("-u"), id("-g"))),
        "{text}"
    );
    xdfs(["chown", &format!("{user}:{group}"), &look]).ok();
    let said = [
        "error: server 127.0.0.1:",
        "/blind/f",
        "may not list",
        "hint: give the number",
    ];
    xdfs(["chown", &user, &blind]).fails(5, &said);
    xdfs(["chown", &id("-u"), &blind]).ok();
    // In the directory of all exports, the right to list one of them will do.
    let listed = listed(xdfs(["ls", "-l", &server.url("/")]));
    assert_eq!(listed, ["root root blind", "root root look"]);
    // The log has what the user was refused, and nothing for which clients ask by themselves.
    xdfs(["ls", &server.url("/blind")]).fails(5, &["/blind"]);
    let refused = || {
        let log = fs::read_to_string(place.here("audit")).unwrap();
        let lines = log.lines().filter(|line| line.contains("\"refuse\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let logged = wait::until(Duration::from_secs(60), || !refused().is_empty());
    let lines = refused();
    assert!(
        logged && lines.len() == 1 && lines[0].contains("\"/blind\""),
        "{lines:?}"
    );
}
