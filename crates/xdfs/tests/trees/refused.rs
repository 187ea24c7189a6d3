//! Trees of which something can't be moved: the rest is, and what isn't is told.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use xdfs::{Code, SyncOptions, TransferParameters, TreeEvent, TreeOptions};

use xdfs_testkit::nobody;

use crate::picture::{assert_same, wide_tree};
use crate::scene::{down, replacing, up};
use crate::support::{Folders, Serving, client};

#[test]
fn kinds_that_clash_are_told() {
    let folders = Folders::new(11);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("is-directory/below")).unwrap();
    fs::write(source.join("is-directory/below/file"), "1").unwrap();
    fs::write(source.join("is-file"), "2").unwrap();
    fs::write(source.join("other"), "3").unwrap();
    fs::write(source.join("is-large"), vec![5; 600 << 10]).unwrap();
    let there = folders.root().join("there");
    fs::create_dir_all(there.join("is-file/full")).unwrap();
    fs::write(there.join("is-directory"), "x").unwrap();
    fs::create_dir(there.join("is-large")).unwrap();
    let slash = source.join("");
    let (result, failed) = up(&client, &slash, "/there", &replacing()).unwrap();
    let paths: Vec<&[u8]> = failed.iter().map(|f| f.0.as_slice()).collect();
    assert!(paths.contains(&&b"is-directory"[..]), "{failed:?}");
    assert!(
        paths.contains(&&b"is-directory/below/file"[..]),
        "{failed:?}"
    );
    assert!(paths.contains(&&b"is-file"[..]), "{failed:?}");
    assert_eq!(result.files, 1);
    assert_eq!(fs::read(there.join("other")).unwrap(), b"3");
    assert_eq!(fs::read(there.join("is-directory")).unwrap(), b"x");
    assert!(there.join("is-file/full").is_dir());
    assert!(paths.contains(&&b"is-large"[..]), "{failed:?}");
    assert_eq!(fs::read_dir(there.join("is-large")).unwrap().count(), 0);
}

#[test]
fn what_has_no_content_is_told() {
    let folders = Folders::new(12);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 12, 10, 100);
    let _socket = UnixListener::bind(source.join("socket")).unwrap();
    let (result, failed) = up(&client, &source, "/there", &TreeOptions::default()).unwrap();
    assert_eq!(result.files, 10);
    assert_eq!(failed, [(b"socket".to_vec(), Code::Unsupported)]);
    let _other = UnixListener::bind(folders.root().join("there/socket")).unwrap();
    let back = folders.here("back");
    let (result, failed) = down(&client, "/there", &back, &TreeOptions::default()).unwrap();
    assert_eq!(result.files, 10);
    assert_eq!(failed, [(b"socket".to_vec(), Code::Unsupported)]);
}

#[test]
fn a_tree_does_not_go_through_links() {
    let folders = Folders::new(13);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("d/file"), "1").unwrap();
    fs::write(source.join("d/large"), vec![1; 600 << 10]).unwrap();
    let (there, outside) = (folders.root().join("there"), folders.here("outside"));
    fs::create_dir_all(&there).unwrap();
    fs::create_dir_all(&outside).unwrap();
    symlink(&outside, there.join("d")).unwrap();
    let slash = source.join("");
    let (_, failed) = up(&client, &slash, "/there", &replacing()).unwrap();
    assert!(failed.len() >= 3, "{failed:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The same here, with a link that was swapped in before.
    let back = folders.here("back");
    fs::create_dir_all(&back).unwrap();
    symlink(&outside, back.join("d")).unwrap();
    fs::remove_file(there.join("d")).unwrap();
    up(&client, &slash, "/there", &replacing()).unwrap();
    let (_, failed) = down(&client, "/there/", &back, &replacing()).unwrap();
    assert!(!failed.is_empty());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{failed:?}");
}

#[test]
fn files_of_all_sizes_do_not_go_through_links_that_stay_inside() {
    let folders = Folders::new(16);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    fs::create_dir_all(source.join("a/d/e")).unwrap();
    fs::create_dir_all(source.join("a/well")).unwrap();
    for (name, length) in [("small", 5), ("large", 600 << 10)] {
        for directory in ["a", "a/d", "a/d/e", "a/well"] {
            fs::write(source.join(directory).join(name), vec![1; length]).unwrap();
        }
    }
    let (there, other) = (folders.root().join("there"), folders.root().join("other"));
    fs::create_dir_all(there.join("a")).unwrap();
    fs::create_dir_all(&other).unwrap();
    symlink("../../other", there.join("a/d")).unwrap();
    let slash = source.join("");
    let (_, failed) = up(&client, &slash, "/there", &replacing()).unwrap();
    for name in ["small", "large"] {
        for directory in ["a/d", "a/d/e"] {
            let path = format!("{directory}/{name}").into_bytes();
            assert!(failed.contains(&(path, Code::PathEscape)), "{failed:?}");
        }
        assert!(there.join("a").join(name).is_file());
        assert!(there.join("a/well").join(name).is_file());
    }
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    // The directory of the tree itself may be where a link leads: it was named.
    symlink("other", folders.root().join("link")).unwrap();
    let (result, failed) = up(&client, &slash, "/link", &replacing()).unwrap();
    assert_eq!((result.files, failed), (8, Vec::new()));
    assert_same(&source, &other);
}

#[test]
fn a_server_that_takes_no_writes_gets_none() {
    let folders = Folders::new(14);
    let server = Serving::start(&folders.root(), |builder| builder.read_only = true);
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 14, 10, 100);
    let outcome = up(&client, &source, "/there", &TreeOptions::default());
    let code = match outcome {
        Err(fault) => fault.code,
        Ok((result, failed)) => {
            assert_eq!(result.files, 0);
            failed[0].1
        }
    };
    assert_eq!(code, Code::ReadOnly);
    assert!(!folders.root().join("there").exists());
}

#[test]
fn sources_that_are_no_trees() {
    let folders = Folders::new(15);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let options = TreeOptions::default();
    let missing = up(&client, &folders.here("missing"), "/x", &options).unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    let file = folders.here("file");
    fs::write(&file, "1").unwrap();
    let wrong = up(&client, &file, "/x", &options).unwrap_err();
    assert_eq!(wrong.code, Code::NotDirectory);
    let missing = down(&client, "/missing", &folders.here("y"), &options).unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    fs::write(folders.root().join("file"), "1").unwrap();
    let wrong = down(&client, "/file", &folders.here("y"), &options).unwrap_err();
    assert_eq!(wrong.code, Code::NotDirectory);
}

#[test]
fn a_tree_that_is_stopped_ends() {
    let folders = Folders::new(16);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 16, 500, 5000);
    let _socket = UnixListener::bind(source.join("socket")).unwrap();
    let mut stop = |event: TreeEvent<'_>| match event {
        TreeEvent::Failed { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let options = TreeOptions::default();
    let ended = client.upload_tree(&source, b"/there", &options, &mut stop);
    assert_eq!(ended.unwrap_err().code, Code::Cancelled);
    // The session goes on.
    fs::remove_file(source.join("socket")).unwrap();
    let (_, failed) = up(&client, &source, "/again", &options).unwrap();
    assert_eq!(failed, []);
    assert_same(&source, &folders.root().join("again"));
}

/// A dry run finds the directories in which nothing can be made.
#[cfg(target_os = "linux")]
#[test]
fn a_dry_run_foresees_directories_that_can_t_be_written() {
    use std::os::unix::fs::PermissionsExt as _;
    nobody::act(|| {
        let folders = Folders::new(17);
        let server = Serving::start(&folders.root(), |_| {});
        let client = client(server.addr, |_| {});
        let options = TreeOptions {
            parameters: TransferParameters {
                dry_run: true,
                ..TransferParameters::default()
            },
            ..TreeOptions::default()
        };
        let mode = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for upload in [true, false] {
            let (here, there) = (folders.here("tree"), folders.root().join("tree"));
            let (source, target) = if upload {
                (&here, &there)
            } else {
                (&there, &here)
            };
            fs::create_dir_all(source.join("closed/below")).unwrap();
            fs::create_dir_all(source.join("open")).unwrap();
            for name in ["closed/1", "closed/below/2", "open/3"] {
                fs::write(source.join(name), "x").unwrap();
            }
            fs::create_dir_all(target.join("closed")).unwrap();
            fs::create_dir_all(target.join("open")).unwrap();
            mode(&target.join("closed"), 0o555);
            let run = || match upload {
                true => up(&client, &here.join(""), "/tree", &options),
                false => down(&client, "/tree/", &here, &options),
            };
            let (_, mut failed) = run().unwrap();
            failed.sort_by(|a, b| a.0.cmp(&b.0));
            let denied = |name: &str| (name.as_bytes().to_vec(), Code::PermissionDenied);
            assert_eq!(failed, ["closed/1", "closed/below"].map(denied), "{upload}");
            // Nor can it be made in one that can't be written.
            mode(&target.join("closed"), 0o755);
            fs::remove_dir_all(target).unwrap();
            let above = target.parent().unwrap();
            mode(above, 0o555);
            let outcome = run();
            mode(above, 0o755);
            assert_eq!(
                outcome.unwrap_err().code,
                Code::PermissionDenied,
                "{upload}"
            );
            fs::remove_dir_all(source).unwrap();
        }
    });
}

/// What can't be written to fails in a dry run of a synchronisation as it does in the run; what its
/// owner has closed is opened, and fails in neither.
#[cfg(target_os = "linux")]
#[test]
fn a_dry_run_of_a_synchronisation_foresees_what_can_t_be_written() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    if !nobody::is_root() {
        return xdfs_testkit::skip::test("only root makes directories of several owners");
    }
    let folders = Folders::new(18);
    nobody::let_in(&folders.root()).unwrap();
    nobody::let_in(&folders.here("")).unwrap();
    for up in [true, false] {
        let name = format!("tree{up}");
        let (here, there) = (folders.here(&name), folders.root().join(&name));
        let (source, target) = match up {
            true => (&here, &there),
            false => (&there, &here),
        };
        for directory in ["closed/made", "own", "open"] {
            fs::create_dir_all(source.join(directory)).unwrap();
        }
        for name in [
            "closed/new",
            "closed/changed",
            "closed/made/below",
            "own/new",
            "open/new",
        ] {
            fs::write(source.join(name), "of the source").unwrap();
        }
        for directory in ["closed", "own", "open"] {
            fs::create_dir_all(target.join(directory)).unwrap();
        }
        for name in ["closed/changed", "closed/extra", "open/extra"] {
            fs::write(target.join(name), "older").unwrap();
        }
        let mode = |path: &str, mode| {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(target.join(path), permissions).unwrap();
        };
        for path in ["", "own", "open", "closed/changed", "closed/extra"] {
            chown(target.join(path), Some(nobody::ID), Some(nobody::ID)).unwrap();
        }
        mode("own", 0o500);
        mode("closed", 0o755);
        let run = |is_dry| {
            nobody::act(|| {
                let server = Serving::start(&folders.root(), |_| {});
                let client = client(server.addr, |_| {});
                let options = SyncOptions {
                    tree: TreeOptions {
                        parameters: TransferParameters {
                            dry_run: is_dry,
                            ..TransferParameters::default()
                        },
                        ..TreeOptions::default()
                    },
                    delete: true,
                    delete_max: Some(10),
                    ..SyncOptions::default()
                };
                let mut failed = Vec::new();
                let mut observer = |event: TreeEvent<'_>| {
                    if let TreeEvent::Failed { path, fault } = event {
                        let path = String::from_utf8_lossy(path).into_owned();
                        failed.push((path, fault.code));
                    }
                    ControlFlow::Continue(())
                };
                let there = format!("/{name}");
                let result = match up {
                    true => client.sync_to(&here, there.as_bytes(), &options, &mut observer),
                    false => client.sync_from(there.as_bytes(), &here, &options, &mut observer),
                };
                let result = result.unwrap();
                assert_eq!(result.tree.failed, failed.len() as u64);
                failed.sort_by(|a: &(String, Code), b| a.0.cmp(&b.0));
                (result, failed)
            })
        };
        let denied = |name: &str| (name.to_owned(), Code::PermissionDenied);
        let (result, foreseen) = run(true);
        let wanted = ["closed/changed", "closed/made", "closed/new"].map(denied);
        assert_eq!(foreseen, wanted, "{up}");
        assert_eq!((result.tree.files, result.deleted, result.kept), (2, 0, 2));
        assert!(!target.join("open/new").exists() && !target.join("own/new").exists());
        let (_, failed) = run(false);
        assert!(
            foreseen.iter().all(|one| failed.contains(one)),
            "{failed:?}"
        );
        assert!(target.join("open/new").exists() && target.join("own/new").exists());
        // What is to be deleted there, once nothing else fails.
        fs::remove_dir_all(source.join("closed/made")).unwrap();
        fs::remove_file(source.join("closed/new")).unwrap();
        fs::copy(source.join("closed/changed"), target.join("closed/changed")).unwrap();
        let same = fs::metadata(source.join("closed/changed")).unwrap();
        let mut file = fs::File::options();
        let file = file.write(true).open(target.join("closed/changed"));
        let file = file.unwrap();
        file.set_modified(same.modified().unwrap()).unwrap();
        for directory in ["closed", ""] {
            let time = fs::metadata(source.join(directory)).unwrap().modified();
            let there = fs::File::open(target.join(directory)).unwrap();
            there.set_modified(time.unwrap()).unwrap();
        }
        let (result, foreseen) = run(true);
        assert_eq!(foreseen, ["closed/extra"].map(denied), "{up}");
        assert_eq!(result.deleted, 1);
        let (result, failed) = run(false);
        assert!(failed.contains(&denied("closed/extra")), "{failed:?}");
        assert_eq!(result.deleted, 1);
        assert!(target.join("closed/extra").exists() && !target.join("open/extra").exists());
        // A target that can't be made.
        let none = format!("{name}/closed/none");
        let outcome = nobody::act(|| {
            let server = Serving::start(&folders.root(), |_| {});
            let client = client(server.addr, |_| {});
            let options = SyncOptions {
                tree: TreeOptions {
                    parameters: TransferParameters {
                        dry_run: true,
                        ..TransferParameters::default()
                    },
                    ..TreeOptions::default()
                },
                ..SyncOptions::default()
            };
            let mut observer = |_: TreeEvent<'_>| ControlFlow::Continue(());
            let (from, to) = (folders.here(&name), folders.here(&none));
            match up {
                true => {
                    let to = format!("/{none}");
                    client.sync_to(&from, to.as_bytes(), &options, &mut observer)
                }
                false => {
                    let from = format!("/{name}");
                    client.sync_from(from.as_bytes(), &to, &options, &mut observer)
                }
            }
        });
        assert_eq!(outcome.unwrap_err().code, Code::PermissionDenied, "{up}");
    }
}
