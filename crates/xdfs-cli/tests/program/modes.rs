//! Modes that a server wishes: the umask decides, unless exact ones are asked for.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Place, Run, Running, Server, program, xdfs};

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// The program under a umask.
fn run(umask: &str, args: &[&str]) -> Run {
    let own = program();
    let mut command = Command::new("sh");
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]);
    command.arg(own.get_program()).args(args);
    Running::start(command.stdin(Stdio::null())).wait()
}

/// What a server has.
const ENTRIES: [(&str, u32); 7] = [
    ("dir", 0o6777),
    ("dir/sticky", 0o1777),
    ("dir/shut", 0o2555),
    ("dir/shut/deep", 0o7775),
    ("dir/tool", 0o4777),
    ("dir/large", 0o6766),
    ("dir/own", 0o600),
];

fn make_entries(root: &Path) {
    fs::create_dir_all(root.join("dir/sticky")).unwrap();
    fs::create_dir_all(root.join("dir/shut/deep")).unwrap();
    for (name, length) in [("tool", 3), ("own", 3), ("large", 2 << 20)] {
        fs::write(root.join("dir").join(name), vec![7; length]).unwrap();
    }
    for (name, mode) in ENTRIES {
        set_mode(root.join(name), mode);
    }
}

#[track_caller]
fn check(target: &str, wanted: impl Fn(u32) -> u32) {
    for (name, has) in ENTRIES {
        let path = format!("{target}{}", name.strip_prefix("dir").unwrap());
        assert_eq!(mode(&path), wanted(has), "{path}");
    }
}

/// The steps of a synchronisation that would be done now.
fn steps(umask: &str, args: &[&str]) -> String {
    run(umask, &[&["sync", "--dry-run"], args].concat())
        .ok()
        .text()
}

#[test]
fn what_comes_from_a_server_gets_what_the_umask_leaves() {
    let place = Place::new();
    make_entries(&place.root());
    let server = Server::start(&place.root());
    let url = server.url("/dir");
    for (umask, mask) in [("022", 0o022), ("077", 0o077), ("007", 0o007)] {
        let cut = |mode: u32| mode & 0o777 & !mask;
        let target = place.here(&format!("copied{umask}"));
        run(umask, &["cp", "-r", &url, &target]).ok();
        check(&target, cut);
        // It is the same again, and recognised by its content too.
        run(umask, &["cp", "-r", &format!("{url}/"), &target]).ok();
        assert_eq!(steps(umask, &[&url, &target]), "");
        let target = place.here(&format!("synced{umask}"));
        for _ in 0..2 {
            run(umask, &["sync", &url, &target]).ok();
            check(&target, cut);
            assert_eq!(steps(umask, &[&url, &target]), "");
        }
        // A mode that differs is set again, and special bits of the user's own stay.
        set_mode(format!("{target}/own"), 0o640);
        set_mode(format!("{target}/sticky"), 0o3711);
        run(umask, &["sync", &url, &target]).ok();
        assert_eq!(mode(format!("{target}/own")), 0o600);
        assert_eq!(mode(format!("{target}/sticky")), 0o3000 | cut(0o777));
        assert_eq!(steps(umask, &[&url, &target]), "");
        // Single files, also into a directory that is there.
        let there = place.here(&format!("there{umask}"));
        fs::create_dir(&there).unwrap();
        set_mode(&there, 0o700);
        for (name, has) in [("tool", 0o4777), ("large", 0o6766)] {
            let (from, single) = (
                format!("{url}/{name}"),
                place.here(&format!("{name}{umask}")),
            );
            for target in [&single, &there] {
                run(umask, &["cp", &from, target]).ok();
            }
            for path in [single, format!("{there}/{name}")] {
                assert_eq!(mode(&path), cut(has), "{path}");
                // Its own result is known by content, time and mode.
                run(umask, &["cp", "-I", &from, &path]).ok();
                set_mode(&path, cut(has) ^ 0o100);
                run(umask, &["cp", "-I", &from, &path]).fails(6, &["exists"]);
            }
        }
        assert_eq!(mode(&there), 0o700);
    }
}

#[test]
fn exact_modes_come_by_request() {
    let place = Place::new();
    make_entries(&place.root());
    let server = Server::start(&place.root());
    let url = server.url("/dir");
    // Only root keeps owners of others, but these are its own in any case.
    for how in ["-a", "--owner"] {
        for command in [&["cp", "-r"][..], &["sync"]] {
            let target = place.here(&format!("{}{how}", command[0]));
            run("077", &[command, &[how, &url, &target]].concat()).ok();
            check(&target, |mode| mode);
            assert_eq!(steps("077", &[how, &url, &target]), "");
        }
    }
    // Access control lists have the permissions in them.
    let target = place.here("lists");
    run("077", &["cp", "-r", "--xattrs", &url, &target]).ok();
    check(&target, |mode| mode & 0o1777);
    assert_eq!(steps("077", &["--xattrs", &url, &target]), "");
    // A single file has no owner to keep.
    for how in ["-a", "--owner", "--xattrs"] {
        let target = place.here(&format!("single{how}"));
        let from = format!("{url}/tool");
        run("077", &["cp", how, &from, &target]).ok();
        assert_eq!(mode(&target), 0o777);
        run("077", &["cp", "-I", how, &from, &target]).ok();
    }
}

#[test]
fn what_goes_to_a_server_keeps_its_permissions() {
    let place = Place::new();
    make_entries(Path::new(&place.here("")));
    let server = Server::start(&place.root());
    let source = place.here("dir");
    let target = |name: &str| place.remote(name).to_str().unwrap().to_owned();
    let is_root = xdfs_testkit::nobody::is_root();
    for (command, name) in [(&["cp", "-r"][..], "copied"), (&["sync"], "synced")] {
        let url = server.url(&format!("/{name}"));
        run("077", &[command, &[&source, &url]].concat()).ok();
        check(&target(name), |mode| mode & 0o1777);
        assert_eq!(steps("077", &[&source, &url]), "");
        if !is_root {
            xdfs_testkit::skip::part("only the server of root gives special bits to files");
            continue;
        }
        let (name, url) = (format!("{name}-all"), format!("{url}-all"));
        run("077", &[command, &["-a", &source, &url]].concat()).ok();
        check(&target(&name), |mode| mode);
        assert_eq!(steps("077", &["-a", &source, &url]), "");
        // What has the bits keeps them without owners.
        assert_eq!(steps("077", &[&source, &url]), "");
        run("077", &["sync", &source, &url]).ok();
        check(&target(&name), |mode| mode);
    }
}

#[test]
fn anonymous_users_set_no_special_bits() {
    let place = Place::new();
    let text = "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\n\
         [[export]]\nname = \"pub\"\npath = \"../root\"\npublic = true\nanonymous = \"all\"\n";
    let config = place.make_here("xdfs.toml", text.as_bytes());
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let url = server.url("/pub").replace("xdfs://", "xdfs://anonymous@");
    fs::create_dir(place.remote("d")).unwrap();
    for (bits, words) in [
        ("6755", "set-user-id and set-group-id"),
        ("2755", "set-user-id and set-group-id"),
        ("1755", "the sticky bit"),
    ] {
        let words = format!("{words} may not be set here");
        xdfs(["chmod", bits, &format!("{url}/d")]).fails(5, &[&words]);
        xdfs(["mkdir", "-m", bits, &format!("{url}/m")]).fails(5, &[&words]);
    }
    make_entries(Path::new(&place.here("")));
    let source = place.here("dir");
    let there = format!("{url}/tree");
    for _ in 0..2 {
        run("022", &["sync", &source, &there]).ok();
        check(place.remote("tree").to_str().unwrap(), |mode| mode & 0o777);
        assert_eq!(steps("022", &[&source, &there]), "");
    }
    run("022", &["cp", "-r", &source, &format!("{url}/copied")]).ok();
    check(place.remote("copied").to_str().unwrap(), |mode| {
        mode & 0o777
    });
}
