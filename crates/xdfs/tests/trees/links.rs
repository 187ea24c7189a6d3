//! Further names of files whose first names could not be moved: they never get what stood there
//! before.

use std::fs::{self, File, FileTimes, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use xdfs::{Code, Compare, SyncOptions, TransferParameters, TreeEvent, TreeOptions, TreeResult};
use xdfs_testkit::nobody;

use crate::delta::noise;
use crate::picture::assert_same;
use crate::scene::{ALL_WAYS, Failed, Way, across, down, up};
use crate::sync::{Stage, WAYS, write};

/// Files with two names each.
const FILES: usize = 16;

fn linked() -> TreeOptions {
    TreeOptions {
        hard_links: true,
        ..TreeOptions::default()
    }
}

/// Copies what is in the source into the target, which is there.
fn copy(stage: &Stage, options: &TreeOptions) -> (TreeResult, Failed) {
    let copied = match stage.way {
        Way::Up => up(&stage.client, &stage.source().join(""), "/copy", options),
        Way::Down => down(&stage.client, "/tree/", &stage.target(), options),
        Way::Between => {
            let source = stage.origin.as_ref().unwrap().at("/tree/");
            across(&stage.client, &source, "/copy", options)
        }
    };
    copied.unwrap()
}

fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn mode(path: PathBuf, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Makes files with two names in the source. Returns the names: of every other file the one that
/// was made first stands first, so that whatever the order of a listing is, of some files the name
/// that stands first is listed first.
fn make_source(stage: &Stage) -> Vec<[String; 2]> {
    let names = (0..FILES).map(|n| {
        let mut names = [format!("{n}-a"), format!("{n}-b")];
        let path = names.clone().map(|name| stage.source().join(name));
        fs::write(&path[0], "new").unwrap();
        set_time(&path[0], 1_000_000);
        fs::hard_link(&path[0], &path[1]).unwrap();
        names.rotate_left(n % 2);
        names
    });
    names.collect()
}

/// Each name has what the source has, or what it had before, and that is told. Returns how many
/// the latter are.
#[track_caller]
fn assert_told(
    stage: &Stage,
    names: &[[String; 2]],
    before: &dyn Fn(&str) -> Option<&'static str>,
    failed: &Failed,
) -> usize {
    let wrong = names.as_flattened().iter().filter(|name| {
        let found = fs::read_to_string(stage.target().join(name)).ok();
        if found.as_deref() == Some("new") {
            return false;
        }
        assert_eq!(found.as_deref(), before(name), "{name}");
        let is_it = |(path, code): &(Vec<u8>, Code)| {
            path == name.as_bytes() && *code == Code::AlreadyExists
        };
        assert!(failed.iter().any(is_it), "{name} {failed:?}");
        true
    });
    wrong.count()
}

/// The same command with the right to replace what is there puts everything right.
#[track_caller]
fn assert_put_right(stage: &Stage, names: &[[String; 2]], options: TreeOptions) {
    let overwrite = true;
    let (_, failed) = copy(
        stage,
        &TreeOptions {
            parameters: TransferParameters {
                overwrite,
                ..options.parameters
            },
            ..options
        },
    );
    assert_eq!(failed, [], "{:?}", stage.way);
    assert_same(&stage.source(), &stage.target());
    for names in names {
        let [one, other] = names.each_ref().map(|name| inode(stage, name));
        assert_eq!(one, other, "{names:?}");
    }
}

fn inode(stage: &Stage, name: &str) -> u64 {
    fs::metadata(stage.target().join(name)).unwrap().ino()
}

#[test]
fn what_stood_under_a_first_name_gets_no_other_name() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let names = make_source(&stage);
        for [taken, _] in &names {
            write(stage.target().join(taken), "old");
        }
        let (_, failed) = copy(&stage, &linked());
        let is_taken = |name: &str| names.iter().any(|[taken, _]| taken == name);
        let before = |name: &str| is_taken(name).then_some("old");
        let kept = assert_told(&stage, &names, &before, &failed);
        // Of some files the first name was taken, of others the further one.
        assert!(kept > FILES && kept < 2 * FILES, "{way:?} {kept}");
        assert_put_right(&stage, &names, linked());
    }
}

#[test]
fn names_of_one_file_that_is_another_are_told() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let names = make_source(&stage);
        for [one, other] in &names {
            write(stage.target().join(one), "old");
            fs::hard_link(stage.target().join(one), stage.target().join(other)).unwrap();
        }
        let (_, failed) = copy(&stage, &linked());
        let kept = assert_told(&stage, &names, &|_| Some("old"), &failed);
        assert_eq!((kept, failed.len()), (2 * FILES, 2 * FILES), "{way:?}");
        assert_put_right(&stage, &names, linked());
    }
}

/// An earlier run had moved both names, and somebody has changed the target since.
#[test]
fn what_was_changed_since_an_earlier_run_gets_no_other_name() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let names = make_source(&stage);
        fs::create_dir(stage.target()).unwrap();
        // It can't be moved, so that the journal stays.
        let socket = stage.source().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let options = TreeOptions {
            journal: Some(stage.folders.here("state")),
            ..linked()
        };
        let (_, failed) = copy(&stage, &options);
        assert_eq!(failed, [(b"socket".to_vec(), Code::Unsupported)]);
        for [taken, other] in &names {
            assert_eq!(inode(&stage, taken), inode(&stage, other));
            fs::remove_file(stage.target().join(other)).unwrap();
            fs::remove_file(stage.target().join(taken)).unwrap();
            fs::write(stage.target().join(taken), "own").unwrap();
        }
        let (_, failed) = copy(&stage, &options);
        let is_taken = |name: &str| names.iter().any(|[taken, _]| taken == name);
        let before = |name: &str| is_taken(name).then_some("own");
        let kept = assert_told(&stage, &names, &before, &failed);
        assert!(kept > FILES && kept < 2 * FILES, "{way:?} {kept}");
        fs::remove_file(&socket).unwrap();
        assert_put_right(&stage, &names, options);
    }
}

/// The first name is in a directory of the target where nothing can be made.
#[test]
fn a_first_name_that_can_t_be_replaced_gets_no_other_name() {
    for way in ALL_WAYS {
        nobody::act(|| {
            let stage = Stage::new(way);
            let (source, target) = (stage.source(), stage.target());
            write(source.join("closed/first"), "new");
            set_time(&source.join("closed/first"), 1_000_000);
            fs::create_dir(source.join("closed/below")).unwrap();
            let further = "closed/below/further";
            fs::hard_link(source.join("closed/first"), source.join(further)).unwrap();
            write(target.join("closed/first"), "old");
            fs::create_dir(target.join("closed/below")).unwrap();
            mode(source.join("closed"), 0o555);
            mode(target.join("closed"), 0o555);
            let options = TreeOptions {
                parameters: TransferParameters {
                    overwrite: true,
                    ..linked().parameters
                },
                ..linked()
            };
            let (_, failed) = copy(&stage, &options);
            let found = |name: &str| fs::read_to_string(target.join(name)).ok();
            assert!(failed.contains(&(b"closed/first".to_vec(), Code::PermissionDenied)));
            assert_eq!(found("closed/first").as_deref(), Some("old"), "{way:?}");
            // Unless it was listed first, it is told and not made.
            match found(further) {
                None => assert_eq!(failed.len(), 2, "{way:?} {failed:?}"),
                found => assert_eq!(found.as_deref(), Some("new"), "{way:?}"),
            }
            let (_, failed) = copy(&stage, &options);
            assert_eq!(failed, [], "{way:?}");
            assert_same(&source, &target);
            assert_eq!(inode(&stage, "closed/first"), inode(&stage, further));
            // Or they could not be removed.
            mode(source.join("closed"), 0o755);
            mode(target.join("closed"), 0o755);
        });
    }
}

#[test]
fn a_synchronisation_gives_no_other_name_to_what_it_could_not_replace() {
    let with = |delta, compare| SyncOptions {
        tree: linked(),
        delta,
        compare,
        ..SyncOptions::default()
    };
    let new = noise(1, 1_200_000);
    let [old, other] = [7, 8].map(|byte| {
        let mut old = new.clone();
        old[500_000..500_010].fill(byte);
        old
    });
    if !nobody::is_root() {
        return xdfs_testkit::skip::test("only root makes a directory that another can't open");
    }
    for (options, old_time) in [
        (with(false, Compare::SizeAndTime), 2_000_000),
        (with(true, Compare::SizeAndTime), 2_000_000),
        // Only the content tells them apart.
        (with(false, Compare::Digest), 1_000_000),
        (with(true, Compare::Digest), 1_000_000),
    ] {
        let ways: &[Way] = match options.delta {
            true => &WAYS,
            false => &ALL_WAYS,
        };
        for &way in ways {
            let stage = nobody::act(|| {
                let stage = Stage::new(way);
                let (source, target) = (stage.source(), stage.target());
                write(source.join("1/first"), &new);
                set_time(&source.join("1/first"), 1_000_000);
                fs::create_dir(source.join("2")).unwrap();
                fs::hard_link(source.join("1/first"), source.join("2/further")).unwrap();
                for (name, content) in [("1/first", &old), ("2/further", &other)] {
                    write(target.join(name), content);
                    set_time(&target.join(name), old_time);
                }
                stage
            });
            let target = stage.target();
            chown(target.join("1"), Some(0), Some(0)).unwrap();
            nobody::act(|| {
                let mut failed = Vec::new();
                let mut observer = |event: TreeEvent<'_>| {
                    if let TreeEvent::Failed { path, fault } = event {
                        assert_eq!(fault.code, Code::PermissionDenied);
                        // Its time can't be set either.
                        if path != b"1" {
                            failed.push((path.to_vec(), fault.cause.clone()));
                        }
                    }
                    ControlFlow::Continue(())
                };
                stage.sync_by(&options, &mut observer).unwrap();
                assert!(fs::read(target.join("1/first")).unwrap() == old, "{way:?}");
                assert_eq!(failed[0].0, b"1/first", "{way:?} {failed:?}");
                let found = fs::read(target.join("2/further")).unwrap();
                // Two files that are looked at for their differences come in any order.
                if !options.delta || found != new {
                    assert!(found == other, "{way:?} {options:?}");
                    assert_eq!((failed.len(), &failed[1].0[..]), (2, &b"2/further"[..]));
                    let cause = &failed[1].1;
                    assert!(cause.contains("a further name of '1/first'"), "{cause}");
                }
            });
            chown(target.join("1"), Some(nobody::ID), Some(nobody::ID)).unwrap();
            nobody::act(|| drop(stage.make_equal(&options)));
        }
    }
}

/// A server that isn't root's gives nobody the right to act as the owner: the file is there without
/// it, and that is no failure.
#[test]
fn a_first_name_with_another_mode_gets_its_further_names() {
    nobody::act(|| {
        let stage = Stage::new(Way::Up);
        let (source, target) = (stage.source(), stage.target());
        write(source.join("a"), "program");
        mode(source.join("a"), 0o4755);
        fs::hard_link(source.join("a"), source.join("b")).unwrap();
        fs::create_dir(&target).unwrap();
        let options = TreeOptions {
            owner: true,
            ..linked()
        };
        let (result, failed) = copy(&stage, &options);
        assert_eq!(failed, []);
        assert_eq!(result.unkept, 1);
        assert_eq!(fs::read(target.join("a")).unwrap(), b"program");
        assert_eq!(inode(&stage, "a"), inode(&stage, "b"));
    });
}
