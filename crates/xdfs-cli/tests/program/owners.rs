//! Owners whose names have other numbers on the other machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use xdfs_testkit::nobody::is_root;
use xdfs_testkit::{powercut, skip};

use crate::support::{Place, Server, xdfs};

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
