//! Large files that take the place of what is neither a file nor a directory.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use xdfs::{
    Client, Code, Fault, SyncOptions, SyncResult, TransferParameters, TreeEvent, TreeOptions,
};

use crate::support::{Folders, Serving, client, hidden_names};

const LARGE: usize = 700_000;
const FILES: [&str; 2] = ["file", "in/file"];

/// Where both ways lead.
fn targets(folders: &Folders) -> [std::path::PathBuf; 2] {
    [folders.root().join("there"), folders.here("back")]
}

/// There, or from there: each has to be looked at before the next, which reads it.
fn sync(
    client: &Client,
    here: &Path,
    is_up: bool,
    options: &SyncOptions,
) -> Result<SyncResult, Fault> {
    let mut observer = |event: TreeEvent<'_>| {
        if let TreeEvent::Failed { path, fault } = event {
            panic!("{}: {fault}", path.escape_ascii());
        }
        ControlFlow::Continue(())
    };
    match is_up {
        true => client.sync_to(here, b"/there", options, &mut observer),
        false => client.sync_from(b"/there", here, options, &mut observer),
    }
}

fn put_links(target: &Path) {
    fs::create_dir_all(target.join("in")).unwrap();
    for name in FILES {
        let _ = fs::remove_file(target.join(name));
        symlink("nowhere", target.join(name)).unwrap();
    }
}

#[test]
fn all_is_kept_of_files_that_take_the_place_of_links() {
    let folders = Folders::new(61);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("in")).unwrap();
    let time = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
    for name in FILES {
        fs::write(source.join(name), vec![5; LARGE]).unwrap();
        let file = fs::File::open(source.join(name)).unwrap();
        xdfs_sys::fs::set_xattr(&file, b"user.colour", name.as_bytes()).unwrap();
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o440)).unwrap();
        let times = fs::FileTimes::new().set_accessed(time(1_000_000_000));
        let times = times.set_modified(time(1_100_000_000));
        file.set_times(times).unwrap();
    }
    let options = SyncOptions {
        tree: TreeOptions {
            xattrs: true,
            read_times: true,
            ..TreeOptions::default()
        },
        ..SyncOptions::default()
    };
    let targets = targets(&folders);
    for (target, (here, is_up)) in targets.iter().zip([(&source, true), (&targets[1], false)]) {
        put_links(target);
        let result = sync(&client, here, is_up, &options).unwrap();
        assert_eq!(result.tree.files, 2);
        for name in FILES {
            let path = target.join(name);
            let meta = fs::symlink_metadata(&path).unwrap();
            let found = (meta.len(), meta.mode() & 0o7777, meta.atime(), meta.mtime());
            assert_eq!(found, (LARGE as u64, 0o440, 1_000_000_000, 1_100_000_000));
            let file = fs::File::open(&path).unwrap();
            let xattrs = xdfs_sys::fs::xattrs(&file, &|name| name.starts_with(b"user."));
            let wanted = (b"user.colour".to_vec(), name.as_bytes().to_vec());
            assert_eq!(xattrs.unwrap(), [wanted], "{}", path.display());
        }
    }
}

/// Who is killed between the end of the transfer and the last step leaves the new file under
/// another name.
#[test]
fn what_a_swap_left_goes_with_the_next_one() {
    let folders = Folders::new(62);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("in")).unwrap();
    for name in FILES {
        fs::write(source.join(name), vec![5; LARGE]).unwrap();
    }
    let name = |path: &str, number: u32| {
        let hash = blake3::hash(path.as_bytes()).to_hex();
        format!(".xdfs-swap-{}-{number}", &hash[..16])
    };
    let left = [
        name("file", 0),
        format!("in/{}", name("in/file", 0)),
        format!("in/{}", name("in/file", 1)),
    ];
    // These mean nothing here, or are in the source.
    let others = [name("other", 0), name("file", 2), name("file", 8)];
    fs::write(source.join(&others[1]), "mine").unwrap();
    let targets = targets(&folders);
    for (target, (here, is_up)) in targets.iter().zip([(&source, true), (&targets[1], false)]) {
        put_links(target);
        fs::write(target.join(&others[0]), "other").unwrap();
        fs::write(target.join(&others[2]), "other").unwrap();
        // With something to swap, and without.
        for dry_run in [true, false, false] {
            for left in &left {
                fs::write(target.join(left), "left").unwrap();
            }
            let options = SyncOptions {
                tree: TreeOptions {
                    parameters: TransferParameters {
                        dry_run,
                        ..TransferParameters::default()
                    },
                    ..TreeOptions::default()
                },
                ..SyncOptions::default()
            };
            assert_eq!(sync(&client, here, is_up, &options).unwrap().deleted, 3);
            assert!(
                left.iter()
                    .all(|left| target.join(left).exists() == dry_run)
            );
        }
        let found = FILES.map(|name| fs::metadata(target.join(name)).unwrap().len());
        assert_eq!(found, [LARGE as u64; 2]);
        assert!(others.iter().all(|other| target.join(other).exists()));
        // The other way has one more of them.
        fs::remove_file(target.join(&others[0])).unwrap();
        fs::remove_file(target.join(&others[2])).unwrap();
    }
}

/// Whichever of its names come late, by a swap or since a directory has to go before.
#[test]
fn names_of_one_file_are_joined() {
    let folders = Folders::new(63);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir(&source).unwrap();
    let pairs = [("a", "b"), ("d", "c"), ("e", "f"), ("g", "h"), ("i", "j")];
    for (first, second) in pairs {
        let length = if first == "i" { 10 } else { LARGE };
        fs::write(source.join(first), vec![5; length]).unwrap();
        fs::hard_link(source.join(first), source.join(second)).unwrap();
    }
    let options = SyncOptions {
        tree: TreeOptions {
            hard_links: true,
            ..TreeOptions::default()
        },
        delete: true,
        ..SyncOptions::default()
    };
    let targets = targets(&folders);
    for (target, (here, is_up)) in targets.iter().zip([(&source, true), (&targets[1], false)]) {
        fs::create_dir(target).unwrap();
        for name in ["a", "d", "e", "f", "h"] {
            symlink("nowhere", target.join(name)).unwrap();
        }
        for name in ["g", "i"] {
            fs::create_dir(target.join(name)).unwrap();
        }
        let result = sync(&client, here, is_up, &options).unwrap();
        assert_eq!((result.tree.files, result.tree.others), (5, 5));
        for (first, second) in pairs {
            let [one, other] = [first, second].map(|name| {
                let meta = fs::symlink_metadata(target.join(name)).unwrap();
                (meta.ino(), meta.nlink(), meta.len())
            });
            assert_eq!(one, other, "{first} and {second}");
            let length = if first == "i" { 10 } else { LARGE as u64 };
            assert_eq!((one.1, one.2), (2, length), "{first}");
        }
        let again = sync(&client, here, is_up, &options).unwrap();
        assert_eq!((again.tree.files, again.tree.others), (0, 0));
    }
}

/// A tree at the server and one of links here, whose synchronisation takes seconds.
struct Slow {
    folders: Folders,
    client: Client,
    _server: Serving,
    options: SyncOptions,
}

impl Slow {
    fn new(seed: u64, names: &[&str]) -> Self {
        let folders = Folders::new(seed);
        let server = Serving::start(&folders.root(), |_| {});
        let client = client(server.addr, |_| {});
        fs::create_dir(folders.there("tree")).unwrap();
        fs::create_dir(folders.here("back")).unwrap();
        for name in names {
            let path = folders.there("tree").join(name);
            fs::write(&path, vec![5; 4 * LARGE]).unwrap();
            let file = fs::File::open(&path).unwrap();
            xdfs_sys::fs::set_xattr(&file, b"user.colour", b"red").unwrap();
            symlink("nowhere", folders.here("back").join(name)).unwrap();
        }
        let options = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    rate_bytes_per_s_max: Some(2_000_000),
                    ..TransferParameters::default()
                },
                xattrs: true,
                ..TreeOptions::default()
            },
            ..SyncOptions::default()
        };
        Self {
            folders,
            client,
            _server: server,
            options,
        }
    }

    /// Does something once a file is on its way; returns what failed.
    fn sync(&self, meanwhile: impl FnOnce()) -> Vec<(Vec<u8>, Fault)> {
        let back = self.folders.here("back");
        let (mut meanwhile, mut failed) = (Some(meanwhile), Vec::new());
        let mut observer = |event: TreeEvent<'_>| {
            match event {
                TreeEvent::Progress(_) if meanwhile.is_some() => {
                    if !hidden_names(&back).is_empty()
                        && let Some(meanwhile) = meanwhile.take()
                    {
                        meanwhile();
                    }
                }
                TreeEvent::Failed { path, fault } => failed.push((path.to_vec(), fault.clone())),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let ended = self
            .client
            .sync_from(b"/tree", &back, &self.options, &mut observer);
        ended.unwrap();
        assert!(meanwhile.is_none(), "nothing was seen of it on its way");
        failed
    }
}

/// Or a later run would find its size and its time, and nothing missing.
#[test]
fn a_file_that_could_not_get_what_it_is_to_have_does_not_take_its_place() {
    let slow = Slow::new(64, &["file"]);
    let (back, aside) = (slow.folders.here("back"), slow.folders.here("aside"));
    let failed = slow.sync(|| {
        fs::rename(&back, &aside).unwrap();
        fs::write(&back, "in the way").unwrap();
    });
    let is_told = failed.iter().any(|(path, _)| path == b"file");
    assert!(is_told, "{failed:?}");
    let found = fs::symlink_metadata(aside.join("file")).unwrap();
    assert!(found.is_symlink(), "{found:?}");
    assert_eq!(hidden_names(&aside), [""; 0]);
    fs::remove_file(&back).unwrap();
    fs::rename(&aside, &back).unwrap();
    assert_eq!(slow.sync(|| {}), []);
    let file = fs::File::open(back.join("file")).unwrap();
    let xattrs = xdfs_sys::fs::xattrs(&file, &|name| name.starts_with(b"user."));
    assert_eq!(
        xattrs.unwrap(),
        [(b"user.colour".to_vec(), b"red".to_vec())]
    );
}

#[test]
fn special_bits_that_are_not_kept_are_counted() {
    let folders = Folders::new(66);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("in")).unwrap();
    let targets = targets(&folders);
    for name in FILES {
        fs::write(source.join(name), vec![5; LARGE]).unwrap();
    }
    let ways = [
        (&source, &targets[0], true),
        (&targets[0], &targets[1], false),
    ];
    for (from, target, is_up) in ways {
        for xattrs in [false, true] {
            for (name, mode) in FILES.into_iter().zip([0o4755, 0o755]) {
                fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            put_links(target);
            let options = SyncOptions {
                tree: TreeOptions {
                    xattrs,
                    ..TreeOptions::default()
                },
                ..SyncOptions::default()
            };
            let here = if is_up { &source } else { target };
            let result = sync(&client, here, is_up, &options).unwrap();
            assert_eq!((result.tree.files, result.tree.unkept), (2, 1));
            for name in FILES {
                let mode = fs::symlink_metadata(target.join(name)).unwrap().mode();
                assert_eq!(mode & 0o7777, 0o755, "{name}");
            }
        }
    }
}

/// Its further names aren't made then, and that is told too.
#[test]
fn what_is_no_large_file_any_more_is_left_out() {
    let others = ["directory", "link", "pipe", "small"];
    let mut slow = Slow::new(65, &["a", "directory", "link", "pipe", "small", "still"]);
    slow.options.tree.hard_links = true;
    let (source, back) = (slow.folders.there("tree"), slow.folders.here("back"));
    fs::remove_file(source.join("still")).unwrap();
    fs::hard_link(source.join("small"), source.join("still")).unwrap();
    let failed = slow.sync(|| {
        for name in others {
            fs::remove_file(source.join(name)).unwrap();
            // Nothing is in the way of what is there now.
            fs::remove_file(back.join(name)).unwrap();
        }
        fs::create_dir(source.join("directory")).unwrap();
        symlink("a", source.join("link")).unwrap();
        xdfs_testkit::tree::make_pipe(source.join("pipe")).unwrap();
        fs::write(source.join("small"), "small").unwrap();
    });
    let (failed, further) = failed.split_at(others.len());
    for ((path, fault), name) in failed.iter().zip(others) {
        assert_eq!(path, name.as_bytes());
        assert_eq!(fault.code, Code::SourceChanged, "{fault}");
        assert_eq!(fault.cause, "it is not a large file any more");
    }
    let [(path, fault)] = further else {
        panic!("{further:?}")
    };
    assert_eq!(
        (&path[..], fault.code),
        (&b"still"[..], Code::SourceChanged)
    );
    assert!(fault.cause.contains("further name of 'small'"), "{fault}");
    let names = fs::read_dir(&back).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "still"]);
    assert!(
        fs::symlink_metadata(back.join("still"))
            .unwrap()
            .is_symlink()
    );
}
