//! Copies whose source and target are on servers: links, and files that never leave their server.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use xdfs_testkit::proxy::FaultProxy;

use crate::support::{Place, Run, Server, assert_content, content, names, xdfs};

const BYTES: usize = 9_000_000;

/// A server behind a proxy that counts what passes, and URLs by that way.
struct Counted {
    proxy: FaultProxy,
    _server: Server,
}

impl Counted {
    fn start(root: &Path) -> Self {
        let server = Server::start(root);
        let url = server.url("");
        let address = url.trim_start_matches("xdfs://").trim_end_matches('/');
        let address: SocketAddr = address.parse().unwrap();
        let proxy = FaultProxy::new(address).unwrap();
        Self {
            proxy,
            _server: server,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("xdfs://{}{path}", self.proxy.addr())
    }

    fn passed(&self) -> u64 {
        let (up, down) = self.proxy.forwarded();
        up + down
    }
}

/// The record of the only file.
fn file(run: &Run) -> Value {
    let found = run
        .json()
        .into_iter()
        .find(|record| record["type"] == "file");
    found.expect("no file was copied")
}

fn set_time(path: impl AsRef<Path>, seconds: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

fn time(path: impl AsRef<Path>) -> u64 {
    let time = fs::symlink_metadata(path).unwrap().modified().unwrap();
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_copy_within_a_server_stays_there() {
    let place = Place::new();
    let server = Counted::start(&place.root());
    let data = content(1, BYTES);
    fs::write(place.remote("a"), &data).unwrap();
    fs::set_permissions(place.remote("a"), fs::Permissions::from_mode(0o640)).unwrap();
    set_time(place.remote("a"), 1_000_000);
    fs::create_dir(place.remote("d")).unwrap();

    let run = xdfs(["cp", "--json", &server.url("/a"), &server.url("/b")]).ok();
    assert_eq!(file(&run)["direct"], true);
    assert_eq!(file(&run)["bytes"], BYTES);
    assert_content(place.remote("b"), &data);
    assert_eq!(time(place.remote("b")), 1_000_000);
    let mode = fs::metadata(place.remote("b"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    // In a directory it keeps its name.
    xdfs(["cp", &server.url("/a"), &server.url("/d/")]).ok();
    assert_content(place.remote("d/a"), &data);
    // The same again is there already; another content is refused, and replaced with --force.
    xdfs(["cp", &server.url("/a"), &server.url("/b")]).ok();
    fs::write(place.remote("b"), "other").unwrap();
    xdfs(["cp", &server.url("/a"), &server.url("/b")]).fails(6, &["exists"]);
    assert_content(place.remote("b"), b"other");
    xdfs(["cp", "--force", &server.url("/a"), &server.url("/b")]).ok();
    assert_content(place.remote("b"), &data);
    xdfs(["cp", &server.url("/none"), &server.url("/c")]).fails(4, &["/none"]);
    let passed = server.passed();
    assert!(
        passed < BYTES as u64 / 4,
        "{passed} bytes have left the server"
    );

    // A part has to pass this machine, and so has what is wanted that way.
    let part = [
        "cp",
        "--length",
        "10",
        &server.url("/a"),
        &server.url("/part"),
    ];
    xdfs(part).ok();
    assert_content(place.remote("part"), &data[..10]);
    let run = xdfs([
        "cp",
        "--json",
        "--between",
        "client",
        &server.url("/a"),
        &server.url("/e"),
    ])
    .ok();
    assert_eq!(file(&run)["direct"], false);
    assert_content(place.remote("e"), &data);
    assert!(server.passed() > BYTES as u64);
}

#[test]
fn trees_between_servers_keep_their_links() {
    let place = Place::new();
    let other = Place::new();
    let server = Counted::start(&place.root());
    let second = Server::start(&other.root());
    fs::create_dir_all(place.remote("tree/d/e")).unwrap();
    let data = content(2, BYTES);
    fs::write(place.remote("tree/d/large"), &data).unwrap();
    fs::write(place.remote("tree/small"), "small").unwrap();
    symlink("small", place.remote("tree/link")).unwrap();
    symlink("no/such", place.remote("tree/d/dangling")).unwrap();
    symlink("d", place.remote("tree/to-directory")).unwrap();
    set_time(place.remote("tree/small"), 2_000_000);
    let check = |root: &Path| {
        assert_content(root.join("d/large"), &data);
        assert_content(root.join("small"), b"small");
        assert_eq!(time(root.join("small")), 2_000_000);
        for (link, target) in [
            ("link", "small"),
            ("d/dangling", "no/such"),
            ("to-directory", "d"),
        ] {
            assert_eq!(fs::read_link(root.join(link)).unwrap(), Path::new(target));
        }
        assert_eq!(names(root), ["d", "link", "small", "to-directory"]);
        assert_eq!(names(root.join("d")), ["dangling", "e", "large"]);
    };

    let before = server.passed();
    xdfs(["cp", "-r", &server.url("/tree"), &server.url("/copy")]).ok();
    check(&place.remote("copy"));
    xdfs(["sync", &server.url("/tree"), &server.url("/same")]).ok();
    check(&place.remote("same"));
    let passed = server.passed() - before;
    assert!(
        passed < BYTES as u64 / 4,
        "{passed} bytes have left the server"
    );

    xdfs(["cp", "-r", &server.url("/tree"), &second.url("/copy")]).ok();
    check(&other.remote("copy"));
    // The same command again has nothing to do, and what is missing is copied.
    fs::remove_file(other.remote("copy/link")).unwrap();
    xdfs(["cp", "-r", &server.url("/tree/"), &second.url("/copy")]).ok();
    check(&other.remote("copy"));
    xdfs(["sync", &server.url("/tree"), &second.url("/copy")]).ok();
    check(&other.remote("copy"));
    let moved = [
        "cp",
        "-r",
        "--remove-source",
        &server.url("/tree"),
        &second.url("/moved"),
    ];
    xdfs(moved).ok();
    check(&other.remote("moved"));
    assert_eq!(names(place.remote("tree/d")), ["e"]);
}

#[test]
fn archives_between_servers_keep_hard_links() {
    let (place, other) = (Place::new(), Place::new());
    let (server, second) = (Server::start(&place.root()), Server::start(&other.root()));
    fs::create_dir(place.remote("tree")).unwrap();
    fs::write(place.remote("tree/a"), "small").unwrap();
    fs::hard_link(place.remote("tree/a"), place.remote("tree/b")).unwrap();
    let source = server.url("/tree");
    xdfs(["cp", "-a", &source, &second.url("/copy")]).ok();
    xdfs(["sync", "-a", &source, &second.url("/same")]).ok();
    xdfs(["cp", "-a", &source, &server.url("/within")]).ok();
    let copies = [
        other.remote("copy"),
        other.remote("same"),
        place.remote("within"),
    ];
    for copy in copies {
        assert_content(copy.join("a"), b"small");
        assert_eq!(fs::metadata(copy.join("b")).unwrap().nlink(), 2);
    }
    xdfs(["sync", "--delta", &source, &second.url("/same")]).fails(2, &["sent whole"]);
    // A copy without this machine has only content, mode and time.
    let direct = ["cp", "-a", "--between=direct", &source, &server.url("/no")];
    xdfs(direct).fails(2, &["can't be kept"]);
    assert!(!place.remote("no").exists());
}

/// By whatever name a directory is reached, it isn't copied into itself, nor deleted as a part of
/// the target.
#[test]
fn directories_in_each_other_are_refused_by_any_name() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.remote("t/a")).unwrap();
    fs::create_dir_all(place.remote("t/u")).unwrap();
    fs::write(place.remote("t/u/f"), "1").unwrap();
    symlink("t", place.remote("ts")).unwrap();
    symlink("t/u", place.remote("us")).unwrap();
    symlink("../a", place.remote("t/u/deep")).unwrap();
    symlink("t/u/deep", place.remote("far")).unwrap();
    let localhost = |path: &str| server.url(path).replace("127.0.0.1", "localhost");
    let local = |path: &str| place.remote(path).to_str().unwrap().to_owned();
    let before = || {
        let found = [names(place.root()), names(place.remote("t"))];
        let below = [names(place.remote("t/a")), names(place.remote("t/u"))];
        (found, below)
    };
    let was = before();
    for (source, target) in [
        (server.url("/t"), server.url("/ts/a/new")),
        (server.url("/ts"), server.url("/t/a/new/er")),
        (server.url("/t"), server.url("/far/new")),
        (server.url("/t"), localhost("/t/new")),
        (localhost("/t"), server.url("/us/new")),
        (local("t"), server.url("/t/new")),
        (local("ts"), server.url("/far/new")),
        (server.url("/t"), local("us/new")),
        (server.url("/ts"), local("t/a/new")),
    ] {
        for words in [
            &["cp", "-r"][..],
            &["sync"],
            &["sync", "--delete", "--force"],
        ] {
            let run = xdfs(words.iter().chain([&&*source, &&*target]));
            run.fails(2, &["in it"]);
            assert_eq!(before(), was, "{words:?} {source} {target}");
        }
    }
    // In a directory that has it, it is the same one.
    xdfs(["cp", "-rf", &server.url("/t"), &localhost("/")]).fails(2, &["in it"]);
    xdfs(["cp", "-rf", &local("t"), &server.url("/")]).fails(2, &["in it"]);
    for (source, target) in [
        (server.url("/us"), server.url("/t")),
        (localhost("/t/u"), server.url("/ts")),
        (server.url("/far"), local("t")),
        (local("us"), server.url("/t")),
        (server.url("/t"), localhost("/ts")),
    ] {
        xdfs(["sync", "--delete", "--force", &source, &target]).fails(2, &["in it"]);
        assert_eq!(before(), was, "{source} {target}");
    }
    // What the filter leaves out isn't copied into itself.
    let words = [
        "cp",
        "-r",
        "--exclude",
        "/new",
        &local("t"),
        &server.url("/t/new"),
    ];
    xdfs(words).ok();
    assert_eq!(names(place.remote("t/new")), ["a", "u"]);
    fs::remove_dir_all(place.remote("t/new")).unwrap();
    // Nor does a link that is followed lead there.
    fs::create_dir(place.remote("other")).unwrap();
    symlink("../../other", place.remote("t/a/link")).unwrap();
    for (source, target) in [
        (server.url("/t"), localhost("/other/new")),
        (local("t"), server.url("/other/new")),
        (server.url("/t"), local("other/new")),
    ] {
        let run = xdfs(["cp", "-r", "-L", &source, &target]);
        assert!(matches!(run.code, Some(0 | 2)), "{}", run.stderr);
        assert_eq!(fs::read(place.remote("other/new/u/f")).unwrap(), b"1");
        assert!(!place.remote("other/new/a/link/new/a").exists(), "{source}");
        fs::remove_dir_all(place.remote("other/new")).unwrap();
    }
}
