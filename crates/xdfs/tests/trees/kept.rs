//! Trees that arrive as they were.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use xdfs::{Code, TransferParameters, TreeOptions};
use xdfs_testkit::proxy::{FaultProxy, Plan};

use crate::picture::{assert_same, hard_tree, wide_tree};
use crate::scene::{down, replacing, up};
use crate::support::{Folders, Serving, client};

#[test]
fn a_tree_with_everything_arrives_as_it_was() {
    let folders = Folders::new(1);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    hard_tree(&source);
    let options = TreeOptions::default();
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!(failed, []);
    assert_eq!(
        (result.files, result.directories, result.others),
        (13, 8, 5)
    );
    assert_same(&source, &folders.root().join("there"));
    let back = folders.here("back");
    let (again, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!(failed, []);
    assert_eq!((again.files, again.directories, again.others), (13, 8, 5));
    assert_eq!(again.bytes, result.bytes);
    assert_same(&source, &back);
}

#[test]
fn a_tree_that_is_named_by_a_link_keeps_the_mode_of_its_root() {
    let folders = Folders::new(1);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 1, 2, 100);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o700)).unwrap();
    let link = folders.here("link");
    symlink(&source, &link).unwrap();
    let options = TreeOptions::default();
    let (_, failed) = up(&client, &link, "/there", &options).unwrap();
    assert_eq!(failed, []);
    // Its mode and its times among the rest.
    assert_same(&source, &folders.root().join("there"));
    let at_server = folders.root().join("link");
    symlink("there", &at_server).unwrap();
    let back = folders.here("back");
    down(&client, "/link", &back, &options).unwrap();
    assert_same(&source, &back);
}

#[test]
fn a_tree_goes_into_a_directory_that_is_there() {
    let folders = Folders::new(2);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 2, 20, 100);
    let options = TreeOptions::default();
    let (result, _) = up(&client, &source, "/", &options).unwrap();
    assert_eq!(result.target, b"/tree");
    assert_same(&source, &folders.root().join("tree"));
    // With a slash at the end what is in it goes there.
    let slash = source.join("");
    fs::create_dir(folders.root().join("flat")).unwrap();
    up(&client, &slash, "/flat", &options).unwrap();
    assert_same(&source, &folders.root().join("flat"));
    let here = folders.here("in");
    fs::create_dir(&here).unwrap();
    down(&client, "/tree", &here, &options).unwrap();
    assert_same(&source, &here.join("tree"));
}

#[test]
fn a_server_that_takes_few_files_at_once_gets_the_rest_again() {
    let folders = Folders::new(20);
    let server = Serving::start(&folders.root(), |server| server.limits.open_files_max = 8);
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 20, 600, 20_000);
    let options = TreeOptions::default();
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!((result.files, failed), (600, vec![]));
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!((result.files, failed), (600, vec![]));
    assert_same(&source, &folders.root().join("there"));
    assert_same(&source, &back);
}

#[test]
fn many_files_survive_channels_that_break() {
    let folders = Folders::new(3);
    let server = Serving::start(&folders.root(), |_| {});
    let proxy = Arc::new(FaultProxy::new(server.addr).unwrap());
    proxy.set_plan(
        Plan::up(|f| f.delay = Duration::from_millis(1))
            .and_down(|f| f.delay = Duration::from_millis(1)),
    );
    let client = client(proxy.addr(), |options| options.channels = Some(4));
    let source = folders.here("tree");
    wide_tree(&source, 3, 3000, 20_000);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let breaker = {
        let (proxy, stop) = (Arc::clone(&proxy), Arc::clone(&stop));
        thread::spawn(move || {
            let (mut broken, mut calm, mut before) = (0, 0, Vec::new());
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let live = proxy.live();
                // Connections that are fresh are no channels of the session yet: without any
                // other one it would end.
                calm = if live == before { calm + 1 } else { 0 };
                if live.len() == 4 && calm >= 10 {
                    broken += u32::from(proxy.cut(live[0]));
                }
                before = live;
                thread::sleep(Duration::from_millis(10));
            }
            broken
        })
    };
    let options = replacing();
    for round in 0..3 {
        let (result, failed) = up(&client, &source, "/there", &options).unwrap();
        assert_eq!((result.files, failed), (3000, vec![]), "round {round}");
        let back = folders.here("back");
        let (result, failed) = down(&client, "/there", &back, &options).unwrap();
        assert_eq!((result.files, failed), (3000, vec![]), "round {round}");
        assert_same(&source, &folders.root().join("there"));
        assert_same(&source, &back);
        fs::remove_dir_all(&back).unwrap();
        fs::remove_dir_all(folders.root().join("there")).unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(breaker.join().unwrap() > 0, "no channel broke");
}

#[test]
fn a_file_where_a_directory_must_go_keeps_what_it_has() {
    let folders = Folders::new(17);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("secret")).unwrap();
    fs::set_permissions(source.join("secret"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(source.join("other"), "other").unwrap();
    for options in [TreeOptions::default(), replacing()] {
        for is_up in [true, false] {
            let target = match is_up {
                true => folders.root().join("t"),
                false => folders.here("t"),
            };
            fs::create_dir(&target).unwrap();
            let secret = target.join("secret");
            fs::write(&secret, "key").unwrap();
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
            let before = fs::metadata(&secret).unwrap();
            let (result, failed) = if is_up {
                up(&client, &source.join(""), "/t", &options).unwrap()
            } else {
                up(&client, &source, "/from", &options).unwrap();
                let got = down(&client, "/from/", &target, &options).unwrap();
                fs::remove_dir_all(folders.root().join("from")).unwrap();
                got
            };
            assert_eq!(result.files, 1);
            assert_eq!(failed, [(b"secret".to_vec(), Code::NotDirectory)]);
            let after = fs::metadata(&secret).unwrap();
            assert_eq!(after.mode(), before.mode());
            assert_eq!(after.modified().unwrap(), before.modified().unwrap());
            assert_eq!(fs::read(&secret).unwrap(), b"key");
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

#[test]
fn as_much_is_kept_of_large_files_as_of_small_ones() {
    let folders = Folders::new(15);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("in")).unwrap();
    let names = ["small", "large", "in/large"];
    let time = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
    for (name, length) in names.into_iter().zip([100, 700_000, 3_000_000]) {
        let path = source.join(name);
        fs::write(&path, vec![5; length]).unwrap();
        let file = fs::File::open(&path).unwrap();
        xdfs_sys::fs::set_xattr(&file, b"user.colour", name.as_bytes()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        if xdfs_testkit::nobody::is_root() {
            std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        } else {
            xdfs_testkit::skip::part("only root gives files away");
        }
        let times = fs::FileTimes::new().set_accessed(time(1_000_000_000));
        file.set_times(times.set_modified(time(1_100_000_000)))
            .unwrap();
    }
    let known = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        let file = fs::File::open(path).unwrap();
        let xattrs = xdfs_sys::fs::xattrs(&file, &|name| name.starts_with(b"user.")).unwrap();
        let times = (meta.atime(), meta.mtime());
        let owner = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
        (meta.len(), times, owner, xattrs)
    };
    let wanted: Vec<_> = names.iter().map(|name| known(&source.join(name))).collect();
    assert_eq!(wanted[1].1, (1_000_000_000, 1_100_000_000));
    let options = TreeOptions {
        owner: true,
        xattrs: true,
        read_times: true,
        ..TreeOptions::default()
    };
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!((result.files, failed), (3, vec![]));
    let there = folders.root().join("there");
    let found: Vec<_> = names.iter().map(|name| known(&there.join(name))).collect();
    assert_eq!(found, wanted);
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!((result.files, failed), (3, vec![]));
    let found: Vec<_> = names.iter().map(|name| known(&back.join(name))).collect();
    assert_eq!(found, wanted);
}

#[test]
fn several_names_of_a_file_stay_one_file() {
    let folders = Folders::new(4);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("one"), "content").unwrap();
    fs::hard_link(source.join("one"), source.join("two")).unwrap();
    fs::hard_link(source.join("one"), source.join("b/three")).unwrap();
    let options = TreeOptions {
        hard_links: true,
        ..TreeOptions::default()
    };
    let (_, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!(failed, []);
    let inode = |name: &str| {
        let meta = fs::metadata(folders.root().join("there").join(name)).unwrap();
        (meta.ino(), meta.nlink())
    };
    assert_eq!(inode("one").1, 3);
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &options).unwrap();
    assert_eq!((result.files, result.others, failed), (1, 2, vec![]));
    let here = |name: &str| {
        let meta = fs::metadata(back.join(name)).unwrap();
        (meta.ino(), meta.nlink())
    };
    assert_eq!(here("one").1, 3);
    assert_eq!(here("one"), here("two"));
    assert_eq!(here("one"), here("b/three"));
    let plain = folders.here("plain");
    down(&client, "/there", &plain, &TreeOptions::default()).unwrap();
    assert_eq!(fs::metadata(plain.join("one")).unwrap().nlink(), 1);
    // What is one file already is no failure, though nothing may be replaced.
    let (result, failed) = up(&client, &source.join(""), "/there", &options).unwrap();
    assert_eq!((result.resumed.files, failed), (3, vec![]));
    assert_eq!(inode("one"), inode("two"));
    assert_eq!(inode("one"), inode("b/three"));
    assert_same(&source, &folders.root().join("there"));
}

#[test]
fn what_is_there_is_replaced_or_kept() {
    let folders = Folders::new(5);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 5, 200, 1000);
    fs::write(source.join("large"), vec![7; 700 << 10]).unwrap();
    up(&client, &source, "/there", &TreeOptions::default()).unwrap();
    let slash = source.join("");
    let (result, failed) = up(&client, &slash, "/there", &TreeOptions::default()).unwrap();
    assert_eq!((result.files, result.resumed.files), (0, 201));
    assert_eq!(failed, []);
    // With other times they are other versions.
    wide_tree(&source, 5, 200, 1000);
    let (result, failed) = up(&client, &slash, "/there", &TreeOptions::default()).unwrap();
    assert_eq!((result.files, result.resumed.files), (0, 1));
    assert_eq!(failed.len(), 200);
    assert!(
        failed.iter().all(|f| f.1 == Code::AlreadyExists),
        "{failed:?}"
    );
    fs::write(source.join("large"), vec![8; 600 << 10]).unwrap();
    let (result, failed) = up(&client, &slash, "/there", &replacing()).unwrap();
    assert_eq!((result.files, failed), (201, vec![]));
    assert_same(&source, &folders.root().join("there"));
}

#[test]
fn a_dry_run_writes_nothing() {
    let folders = Folders::new(6);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 6, 50, 100);
    let options = TreeOptions {
        parameters: TransferParameters {
            dry_run: true,
            ..TransferParameters::default()
        },
        ..TreeOptions::default()
    };
    let (result, _) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!(result.files, 50);
    assert!(!folders.root().join("there").exists());
    fs::create_dir(folders.root().join("t")).unwrap();
    up(&client, &source, "/t/x", &TreeOptions::default()).unwrap();
    let (result, _) = down(&client, "/t/x", &folders.here("back"), &options).unwrap();
    assert_eq!(result.files, 50);
    assert!(!folders.here("back").exists());
}

#[test]
fn what_is_left_out_is_not_copied() {
    let folders = Folders::new(7);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    for name in ["a.o", "b.c", "d/keep.o", "d/e.o", "cache/x"] {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let rules = ["*.o", "!keep.o", "cache/"].map(|r| xdfs::FilterRule::Exclude(r.into()));
    let options = TreeOptions {
        filter: xdfs::Filter::new(&rules).unwrap(),
        ..TreeOptions::default()
    };
    let (result, failed) = up(&client, &source, "/there", &options).unwrap();
    assert_eq!((result.files, failed), (2, vec![]));
    up(&client, &source, "/all", &TreeOptions::default()).unwrap();
    let (result, failed) = down(&client, "/all", &folders.here("back"), &options).unwrap();
    assert_eq!((result.files, failed), (2, vec![]));
    assert!(folders.here("back/d/keep.o").exists() && !folders.here("back/cache").exists());
}

#[test]
fn a_tree_keeps_to_its_rate() {
    let folders = Folders::new(8);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    // Many packs, and files that go alone.
    wide_tree(&source, 8, 400, 60_000);
    for n in 0..4u64 {
        let large = n.to_be_bytes().repeat(100_000);
        fs::write(source.join(format!("large-{n}")), large).unwrap();
    }
    let rate = 10_000_000;
    let options = TreeOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(rate),
            ..TransferParameters::default()
        },
        ..TreeOptions::default()
    };
    let least = |bytes: u64| Duration::from_secs_f64(bytes as f64 / rate as f64 * 0.8);
    let (there, _) = up(&client, &source, "/there", &options).unwrap();
    assert!(there.bytes > 10_000_000, "{there:?}");
    assert!(there.elapsed >= least(there.bytes), "{there:?}");
    let (back, _) = down(&client, "/there", &folders.here("back"), &options).unwrap();
    assert!(back.elapsed >= least(back.bytes), "{back:?}");
    // The bound goes with what asked for it: no transfer is held back by that of one before.
    let free = TreeOptions::default();
    let (again, _) = up(&client, &source, "/again", &free).unwrap();
    assert_eq!(again.bytes, there.bytes);
    assert_same(&source, &folders.root().join("again"));
}
