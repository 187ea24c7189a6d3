//! Synchronisation, both ways: what differs is moved and nothing else, and what is too much goes.

use std::fs::{self, FileTimes, Permissions};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use xdfs::{
    Client, Code, Compare, DeletionConsent, Fault, Filter, FilterRule, SyncOptions, SyncResult,
    SyncStep, TransferParameters, TreeEvent, TreeOptions,
};
use xdfs_testkit::nobody;

use crate::picture::{assert_same, hard_tree, picture, wide_tree};
use crate::scene::{ALL_WAYS, Origin, Way};
use crate::support::{Folders, Serving, client};

/// The ways of a session with one server.
pub(crate) const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) failed: Vec<(String, Code)>,
    pub(crate) steps: Vec<(SyncStep, String)>,
}

impl Told {
    fn of(&self, step: SyncStep) -> Vec<&str> {
        let these = self.steps.iter().filter(|s| s.0 == step);
        these.map(|s| s.1.as_str()).collect()
    }
}

/// Two trees, and a session between them.
pub(crate) struct Stage {
    pub(crate) way: Way,
    pub(crate) client: Client,
    _server: Serving,
    /// The other server, if there are two.
    pub(crate) origin: Option<Origin>,
    pub(crate) folders: Folders,
}

impl Stage {
    pub(crate) fn new(way: Way) -> Self {
        Self::behind(way, |server| server)
    }

    /// The client goes to another address than that of the server.
    pub(crate) fn behind(way: Way, addr: impl FnOnce(SocketAddr) -> SocketAddr) -> Self {
        let folders = Folders::new(31);
        let server = Serving::start(&folders.root(), |_| {});
        let client = client(addr(server.addr), |_| {});
        let origin = (way == Way::Between).then(|| Origin::new(&folders.here("")));
        let stage = Self {
            way,
            client,
            _server: server,
            origin,
            folders,
        };
        fs::create_dir_all(stage.source()).unwrap();
        stage
    }

    pub(crate) fn source(&self) -> PathBuf {
        match self.way {
            Way::Up | Way::Between => self.folders.here("tree"),
            Way::Down => self.folders.there("tree"),
        }
    }

    pub(crate) fn target(&self) -> PathBuf {
        match self.way {
            Way::Up | Way::Between => self.folders.there("copy"),
            Way::Down => self.folders.here("copy"),
        }
    }

    pub(crate) fn sync(&self, options: &SyncOptions) -> Result<(SyncResult, Told), Fault> {
        let mut told = Told::default();
        let mut observer = |event: TreeEvent<'_>| {
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            match event {
                TreeEvent::Failed { path, fault } => told.failed.push((text(path), fault.code)),
                TreeEvent::Step { step, path, .. } => told.steps.push((step, text(path))),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let result = self.sync_by(options, &mut observer)?;
        assert_eq!(result.tree.failed, told.failed.len() as u64);
        Ok((result, told))
    }

    pub(crate) fn sync_by(
        &self,
        options: &SyncOptions,
        observer: &mut dyn xdfs::Observer,
    ) -> Result<SyncResult, Fault> {
        match self.way {
            Way::Up => {
                let source = self.source();
                self.client.sync_to(&source, b"/copy", options, observer)
            }
            Way::Down => {
                let target = self.target();
                self.client.sync_from(b"/tree", &target, options, observer)
            }
            Way::Between => {
                let source = self.origin.as_ref().unwrap().at("/tree");
                self.client
                    .sync_between(&source, b"/copy", options, observer)
            }
        }
    }

    /// Makes them equal, and says what that took.
    #[track_caller]
    pub(crate) fn make_equal(&self, options: &SyncOptions) -> SyncResult {
        let (result, told) = self.sync(options).unwrap();
        assert_eq!(told.failed, [], "{:?}", self.way);
        assert_same(&self.source(), &self.target());
        result
    }

    /// Nothing is left to be done.
    #[track_caller]
    pub(crate) fn assert_settled(&self, options: &SyncOptions) {
        let (result, told) = self.sync(options).unwrap();
        assert_eq!(numbers(&result), [0; 8], "{:?} {told:?}", self.way);
        assert_eq!(told.steps, []);
    }
}

/// Files, directories, others, replaced, set, renamed, deleted, failed.
fn numbers(result: &SyncResult) -> [u64; 8] {
    let tree = &result.tree;
    [
        tree.files,
        tree.directories,
        tree.others,
        result.replaced,
        result.set,
        result.renamed,
        result.deleted,
        tree.failed,
    ]
}

pub(crate) fn deleting() -> SyncOptions {
    SyncOptions {
        delete: true,
        ..SyncOptions::default()
    }
}

fn by_digest() -> SyncOptions {
    SyncOptions {
        compare: Compare::Digest,
        ..deleting()
    }
}

fn filtered(rules: &[&str]) -> SyncOptions {
    let rules = rules.iter().map(|rule| FilterRule::Exclude((*rule).into()));
    SyncOptions {
        tree: TreeOptions {
            filter: Filter::new(&rules.collect::<Vec<_>>()).unwrap(),
            ..TreeOptions::default()
        },
        force: true,
        ..deleting()
    }
}

fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(seconds, 5);
    let file = fs::File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

pub(crate) fn write(path: PathBuf, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn everything_once_and_nothing_the_second_time() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        hard_tree(&stage.source());
        wide_tree(&stage.source().join("wide"), 31, 300, 3000);
        let result = stage.make_equal(&deleting());
        assert!(result.tree.files > 300 && result.tree.bytes > 5 << 20);
        for options in [deleting(), SyncOptions::default(), by_digest()] {
            stage.assert_settled(&options);
        }
    }
}

#[test]
fn only_what_changed_is_moved() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let source = stage.source();
        wide_tree(&source, 32, 100, 3000);
        write(source.join("d/large"), vec![1; 700 << 10]);
        write(source.join("d/small"), "small");
        write(source.join("d/mode"), "mode");
        symlink("small", source.join("d/link")).unwrap();
        stage.make_equal(&deleting());
        fs::write(source.join("d/small"), "other").unwrap();
        set_time(&source.join("d/small"), 1_234_567_890);
        fs::set_permissions(source.join("d/mode"), Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(source.join("d/link")).unwrap();
        symlink("large", source.join("d/link")).unwrap();
        set_time(&source.join("d"), 1_234_567_890);
        let result = stage.make_equal(&deleting());
        // The directory has another time too.
        assert_eq!(numbers(&result), [1, 0, 1, 2, 2, 0, 0, 0], "{way:?}");
        assert_eq!(result.tree.bytes, 5);
        fs::write(source.join("d/large"), vec![2; 600 << 10]).unwrap();
        let result = stage.make_equal(&deleting());
        assert_eq!(numbers(&result), [1, 0, 0, 1, 0, 0, 0, 0], "{way:?}");
        stage.assert_settled(&deleting());
    }
}

#[test]
fn what_is_too_much_goes_only_if_asked() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let (source, target) = (stage.source(), stage.target());
        wide_tree(&source, 33, 30, 100);
        stage.make_equal(&deleting());
        write(target.join("extra/deep/er/file"), "1");
        write(target.join("extra/file"), "2");
        symlink("/nowhere", target.join("extra/link")).unwrap();
        write(target.join("0/alone"), "3");
        let (result, _) = stage.sync(&SyncOptions::default()).unwrap();
        assert_eq!((result.deleted, result.tree.files), (0, 0));
        assert!(target.join("extra/deep/er/file").exists());
        let few = SyncOptions {
            delete_max: Some(6),
            ..deleting()
        };
        let (result, told) = stage.sync(&few).unwrap();
        assert_eq!((result.deleted, result.kept), (0, 7));
        assert_eq!(told.failed, [(String::new(), Code::NotEmpty)]);
        assert!(target.join("0/alone").exists());
        let enough = SyncOptions {
            delete_max: Some(7),
            ..deleting()
        };
        let (result, told) = stage.sync(&enough).unwrap();
        assert_eq!((result.deleted, told.of(SyncStep::Delete).len()), (7, 7));
        assert_same(&source, &target);
        stage.assert_settled(&deleting());
    }
}

#[test]
fn kinds_that_changed() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let (source, target) = (stage.source(), stage.target());
        write(source.join("file-to-directory"), "1");
        write(source.join("directory-to-file/deep/file"), "2");
        write(source.join("file-to-link"), "3");
        symlink("/", source.join("link-to-large")).unwrap();
        symlink("/", source.join("link-to-small")).unwrap();
        symlink("/tmp", source.join("link-to-directory")).unwrap();
        stage.make_equal(&deleting());
        for name in [
            "file-to-directory",
            "file-to-link",
            "link-to-large",
            "link-to-small",
            "link-to-directory",
        ] {
            fs::remove_file(source.join(name)).unwrap();
        }
        fs::remove_dir_all(source.join("directory-to-file")).unwrap();
        write(source.join("file-to-directory/deep/file"), "4");
        write(source.join("directory-to-file"), "5");
        write(source.join("link-to-large"), vec![6; 700 << 10]);
        write(source.join("link-to-small"), "7");
        write(source.join("link-to-directory/file"), "8");
        symlink("file-to-directory", source.join("file-to-link")).unwrap();
        let (result, told) = stage.sync(&SyncOptions::default()).unwrap();
        let mut failed = told.failed;
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            failed,
            [
                ("directory-to-file".into(), Code::IsDirectory),
                ("file-to-directory".into(), Code::NotDirectory),
                ("link-to-directory".into(), Code::NotDirectory),
            ]
        );
        assert_eq!((result.deleted, result.replaced), (0, 3));
        assert_eq!(
            fs::read(target.join("link-to-large")).unwrap().len(),
            700 << 10
        );
        assert!(target.join("directory-to-file/deep/file").exists());
        stage.make_equal(&deleting());
        stage.assert_settled(&deleting());
    }
}

#[test]
fn what_is_left_out_is_neither_moved_nor_deleted() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let (source, target) = (stage.source(), stage.target());
        for name in [
            "a.o",
            "keep.o",
            "d/b.o",
            "d/keep.o",
            "top",
            "d/top",
            "cache/x",
            "d/cache/y",
        ] {
            write(source.join(name), name);
        }
        for name in [
            "x.o",
            "cache/there",
            "gone/plain",
            "gone/sub/y.o",
            "gone/other/z",
        ] {
            write(target.join(name), name);
        }
        let options = filtered(&["*.o", "!keep.o", "/top", "cache/"]);
        let (result, told) = stage.sync(&options).unwrap();
        assert_eq!(told.failed, []);
        assert_eq!(result.tree.files, 3);
        let there = picture(&target).into_keys();
        let there: Vec<String> = there.map(|n| String::from_utf8(n).unwrap()).collect();
        assert_eq!(
            there,
            [
                "",
                "cache",
                "cache/there",
                "d",
                "d/keep.o",
                "d/top",
                "gone",
                "gone/sub",
                "gone/sub/y.o",
                "keep.o",
                "x.o",
            ]
        );
        assert_eq!(
            result.deleted, 3,
            "gone/plain, gone/other and what is in it"
        );
        stage.assert_settled(&options);
    }
}

#[test]
fn a_file_can_t_take_the_place_of_what_is_left_out() {
    let stage = Stage::new(Way::Up);
    write(stage.source().join("x"), "file");
    write(stage.target().join("x/kept.o"), "kept");
    write(stage.target().join("x/plain"), "plain");
    let (result, told) = stage.sync(&filtered(&["*.o"])).unwrap();
    assert_eq!(told.failed, [("x".into(), Code::NotEmpty)]);
    assert_eq!(result.deleted, 0);
    assert!(stage.target().join("x/plain").exists());
}

#[test]
fn a_source_that_says_nothing_deletes_nothing() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        write(stage.target().join("file"), "1");
        let empty = stage.sync(&deleting()).unwrap_err();
        assert_eq!(empty.code, Code::InvalidArgument);
        // What is left out says nothing either: an empty mount point has such names.
        fs::create_dir(stage.source().join("lost+found")).unwrap();
        let mut filtered = deleting();
        filtered.consent = DeletionConsent::new(|_| panic!("there is nothing to consent to"));
        let rule = FilterRule::Exclude("lost+found".into());
        filtered.tree.filter = Filter::new(&[rule]).unwrap();
        let empty = stage.sync(&filtered).unwrap_err();
        assert_eq!(empty.code, Code::InvalidArgument);
        fs::remove_dir(stage.source().join("lost+found")).unwrap();
        fs::remove_dir(stage.source()).unwrap();
        let missing = stage.sync(&deleting()).unwrap_err();
        assert_eq!(missing.code, Code::NotFound);
        let missing = stage.sync(&SyncOptions::default()).unwrap_err();
        assert_eq!(missing.code, Code::NotFound);
        write(stage.source(), "a file");
        let wrong = stage.sync(&deleting()).unwrap_err();
        assert_eq!(wrong.code, Code::NotDirectory);
        assert!(stage.target().join("file").exists());
        fs::remove_file(stage.source()).unwrap();
        let forced = SyncOptions {
            force: true,
            ..deleting()
        };
        // A mistyped source is no empty one.
        let missing = stage.sync(&forced).unwrap_err();
        assert_eq!(
            (missing.code, missing.hint),
            (Code::NotFound, String::new())
        );
        assert!(stage.target().join("file").exists());
        fs::create_dir(stage.source()).unwrap();
        let (result, _) = stage.sync(&forced).unwrap();
        assert_eq!(result.deleted, 1);
        assert!(!stage.target().join("file").exists());
    }
}

#[test]
fn nothing_is_deleted_when_something_failed() {
    // A target that can't be replaced: a socket where a large file has to go is removed only when
    // all else worked, and a name that the server keeps for itself can't be made.
    let stage = Stage::new(Way::Up);
    write(stage.source().join("fine"), "1");
    write(stage.source().join("link.d/x"), "1");
    symlink(".x.xdfs-part", stage.source().join("bad")).unwrap();
    write(stage.target().join("extra"), "2");
    let (result, told) = stage.sync(&deleting()).unwrap();
    assert_eq!(told.failed.len(), 1, "{told:?}");
    assert_eq!(told.failed[0].0, "bad");
    assert_eq!((result.deleted, result.kept, result.tree.files), (0, 1, 2));
    assert!(stage.target().join("extra").exists());
}

#[test]
fn what_is_never_moved_keeps_nothing_from_being_deleted() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        write(stage.source().join("file"), "1");
        let _socket = UnixListener::bind(stage.source().join("socket")).unwrap();
        write(stage.target().join("extra"), "2");
        let (result, told) = stage.sync(&deleting()).unwrap();
        assert_eq!(told.failed, [("socket".into(), Code::Unsupported)]);
        assert_eq!((result.deleted, result.kept), (1, 0));
    }
}

#[test]
fn digests_find_what_times_hide() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let (source, target) = (stage.source(), stage.target());
        for name in ["a", "b", "c"] {
            write(source.join(name), "the same size");
            set_time(&source.join(name), 1_000_000_000);
        }
        stage.make_equal(&deleting());
        write(source.join("a"), "another text.");
        set_time(&source.join("a"), 1_000_000_000);
        set_time(&source.join("b"), 1_000_000_001);
        stage.assert_different(&SyncOptions::default());
        let result = stage.make_equal(&by_digest());
        assert_eq!(numbers(&result), [1, 0, 0, 1, 1, 0, 0, 0], "{way:?}");
        assert_eq!(fs::read(target.join("a")).unwrap(), b"another text.");
        stage.assert_settled(&by_digest());
    }
}

impl Stage {
    /// A comparison by time doesn't see that `a` changed.
    fn assert_different(&self, options: &SyncOptions) {
        let dry = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    dry_run: true,
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..options.clone()
        };
        let (_, told) = self.sync(&dry).unwrap();
        assert_eq!(told.steps, [(SyncStep::Replace, "b".into())]);
    }
}

#[test]
fn renamed_files_are_renamed() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let source = stage.source();
        for i in 0..20_u8 {
            write(source.join(format!("old/{i}")), vec![i; 1000]);
        }
        write(source.join("large"), vec![99; 700 << 10]);
        write(source.join("empty"), "");
        stage.make_equal(&deleting());
        fs::rename(source.join("old"), source.join("new")).unwrap();
        fs::create_dir(source.join("deep")).unwrap();
        fs::rename(source.join("large"), source.join("deep/larger")).unwrap();
        fs::set_permissions(source.join("new/3"), Permissions::from_mode(0o600)).unwrap();
        let dry = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    dry_run: true,
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..by_digest()
        };
        let (result, told) = stage.sync(&dry).unwrap();
        assert_eq!((result.renamed, told.of(SyncStep::Rename).len()), (21, 21));
        assert!(stage.target().join("old/3").exists());
        let result = stage.make_equal(&by_digest());
        assert_eq!(
            (result.renamed, result.tree.bytes, result.tree.files),
            (21, 0, 0)
        );
        assert_eq!(result.deleted, 1, "the directory");
        stage.assert_settled(&by_digest());
    }
}

#[test]
fn a_dry_run_tells_all_and_writes_nothing() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        let (source, target) = (stage.source(), stage.target());
        wide_tree(&source, 38, 20, 100);
        write(source.join("changed"), "1");
        write(source.join("mode"), "2");
        let dry = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    dry_run: true,
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..deleting()
        };
        let (result, _) = stage.sync(&dry).unwrap();
        assert_eq!(result.tree.files, 22);
        assert!(!target.exists());
        stage.make_equal(&deleting());
        write(source.join("changed"), "other");
        fs::set_permissions(source.join("mode"), Permissions::from_mode(0o600)).unwrap();
        write(source.join("new"), "3");
        write(target.join("extra/file"), "4");
        set_time(&source, 1_234_567_890);
        let before = picture(&target);
        let (result, told) = stage.sync(&dry).unwrap();
        assert_eq!(told.of(SyncStep::Copy), ["new"]);
        assert_eq!(told.of(SyncStep::Replace), ["changed"]);
        assert_eq!(told.of(SyncStep::Set), ["mode", ""]);
        assert_eq!(told.of(SyncStep::Delete), ["extra", "extra/file"]);
        assert_eq!((result.deleted, result.replaced), (2, 1));
        assert_eq!(picture(&target), before);
    }
}

#[test]
fn a_source_that_can_t_be_listed_everywhere_has_nothing_deleted() {
    for way in ALL_WAYS {
        nobody::act(|| {
            let stage = Stage::new(way);
            write(stage.source().join("closed/file"), "1");
            write(stage.source().join("open/file"), "2");
            stage.make_equal(&deleting());
            // What moved out of what can't be seen, for example.
            write(stage.target().join("closed/extra"), "3");
            write(stage.target().join("open/extra"), "4");
            write(stage.source().join("open/new"), "5");
            let closed = stage.source().join("closed");
            fs::set_permissions(&closed, Permissions::from_mode(0o0)).unwrap();
            for dry_run in [true, false] {
                let options = SyncOptions {
                    tree: TreeOptions {
                        parameters: TransferParameters {
                            dry_run,
                            ..TransferParameters::default()
                        },
                        ..TreeOptions::default()
                    },
                    ..deleting()
                };
                let (result, told) = stage.sync(&options).unwrap();
                assert_eq!(told.failed, [("closed".into(), Code::PermissionDenied)]);
                assert_eq!((result.deleted, result.kept), (0, 1), "{way:?}");
            }
            // The directory there is as that of the source by now.
            for closed in [closed, stage.target().join("closed")] {
                fs::set_permissions(closed, Permissions::from_mode(0o755)).unwrap();
            }
            assert!(stage.target().join("closed/extra").exists());
            assert!(stage.target().join("open/extra").exists());
            assert!(stage.target().join("open/new").exists());
            let (result, told) = stage.sync(&deleting()).unwrap();
            assert_eq!((told.failed, result.deleted), (vec![], 2));
        });
    }
}

#[test]
fn a_target_that_can_t_be_listed_keeps_what_is_there() {
    for way in ALL_WAYS {
        nobody::act(|| {
            let stage = Stage::new(way);
            write(stage.source().join("file"), "1");
            stage.make_equal(&deleting());
            write(stage.target().join("closed/inner"), "2");
            write(stage.target().join("open/inner"), "3");
            // It could be removed, since it is empty; but nobody knows that.
            fs::create_dir(stage.target().join("empty")).unwrap();
            let all = ["closed", "empty"];
            let mode = |mode| {
                for name in all {
                    let path = stage.target().join(name);
                    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                }
            };
            mode(0o0);
            let (_, told) = stage.sync(&deleting()).unwrap();
            mode(0o755);
            let expected = all.map(|name| (name.to_owned(), Code::PermissionDenied));
            assert_eq!(told.failed, expected, "{way:?}");
            assert!(stage.target().join("closed/inner").exists());
            assert!(stage.target().join("empty").exists());
            assert!(!stage.target().join("open").exists());
        });
    }
}

/// A target where an ordinary user writes, and a source that root reads.
#[test]
fn modes_that_take_rights_away_come_after_what_needs_them() {
    if !nobody::is_root() {
        return xdfs_testkit::skip::test("only root reads what an ordinary user may not");
    }
    for way in ALL_WAYS {
        let folders = Folders::new(37);
        let start = || Serving::start(&folders.root(), |_| {});
        let (server, own) = match way {
            Way::Up | Way::Between => (nobody::act(start), folders.root()),
            Way::Down => (start(), folders.here("")),
        };
        if let Err(reason) = nobody::let_in(&own) {
            return xdfs_testkit::skip::test(reason);
        }
        fs::set_permissions(own, Permissions::from_mode(0o777)).unwrap();
        let connect = || client(server.addr, |_| {});
        let client = match way {
            Way::Up | Way::Between => connect(),
            Way::Down => nobody::act(connect),
        };
        let origin = (way == Way::Between).then(|| Origin::new(&folders.here("")));
        let stage = Stage {
            way,
            client,
            _server: server,
            origin,
            folders,
        };
        let sync = || match way {
            Way::Up | Way::Between => stage.sync(&deleting()),
            Way::Down => nobody::act(|| stage.sync(&deleting())),
        };
        write(stage.source().join("a/b/c/file"), "1");
        let (_, told) = sync().unwrap();
        assert_eq!(told.failed, [], "{way:?}");
        for name in ["a/b/c", "a/b", "a"] {
            let path = stage.source().join(name);
            fs::set_permissions(path, Permissions::from_mode(0o0)).unwrap();
        }
        let (_, told) = sync().unwrap();
        assert_eq!(told.failed, [], "{way:?}");
        for name in ["a/b/c", "a/b", "a"] {
            let meta = fs::metadata(stage.target().join(name)).unwrap();
            assert_eq!(meta.permissions().mode() & 0o777, 0, "{way:?} {name}");
        }
    }
}

#[test]
fn a_late_copy_that_fails_keeps_what_is_too_much() {
    for way in ALL_WAYS {
        nobody::act(|| {
            let stage = Stage::new(way);
            write(stage.source().join("a/secret"), "1");
            write(stage.source().join("b"), "2");
            // What comes late: something of another kind has to go before.
            write(stage.target().join("a"), "3");
            write(stage.target().join("extra"), "4");
            let secret = stage.source().join("a/secret");
            fs::set_permissions(&secret, Permissions::from_mode(0o0)).unwrap();
            let (result, told) = stage.sync(&deleting()).unwrap();
            fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
            let expected = [("a/secret".to_owned(), Code::PermissionDenied)];
            assert_eq!(told.failed, expected, "{way:?}");
            assert!(stage.target().join("a").is_dir());
            assert!(stage.target().join("extra").exists());
            assert_eq!((result.deleted, result.kept), (1, 1), "{way:?}");
            stage.make_equal(&deleting());
        });
    }
}

#[test]
fn what_comes_into_the_source_meanwhile_is_not_deleted() {
    for way in ALL_WAYS {
        let stage = Stage::new(way);
        write(stage.source().join("file"), "1");
        // More than are looked at together.
        for n in 0..200 {
            write(stage.target().join(format!("d/extra{n:03}")), "2");
        }
        write(stage.target().join("e/inner"), "3");
        write(stage.source().join("d/file"), "1");
        let source = stage.source();
        let (mut deleted, mut failed) = (Vec::new(), Vec::new());
        let mut observer = |event: TreeEvent<'_>| {
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            match event {
                TreeEvent::Step {
                    step: SyncStep::Delete,
                    path,
                    ..
                } => {
                    if deleted.is_empty() {
                        write(source.join("d/extra199"), "new");
                        fs::create_dir(source.join("e")).unwrap();
                    }
                    deleted.push(text(path));
                }
                TreeEvent::Failed { path, fault } => failed.push((text(path), fault.code)),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let many = SyncOptions {
            delete_max: Some(202),
            ..deleting()
        };
        let result = stage.sync_by(&many, &mut observer).unwrap();
        failed.sort_by(|a: &(String, Code), b| a.0.cmp(&b.0));
        let changed = Code::SourceChanged;
        assert_eq!(
            failed,
            [("d/extra199".into(), changed), ("e".into(), changed)],
            "{way:?}"
        );
        assert_eq!((result.deleted, result.kept), (200, 2));
        assert!(stage.target().join("d/extra199").exists());
        assert!(stage.target().join("e").exists());
        // And then they are as in the source.
        stage.make_equal(&deleting());
    }
}

#[test]
fn names_of_one_file_stay_so() {
    let stage = Stage::new(Way::Up);
    write(stage.source().join("first"), "1");
    fs::hard_link(stage.source().join("first"), stage.source().join("second")).unwrap();
    let options = SyncOptions {
        tree: TreeOptions {
            hard_links: true,
            ..TreeOptions::default()
        },
        ..deleting()
    };
    stage.make_equal(&options);
    let inode = |name: &str| fs::metadata(stage.target().join(name)).unwrap().ino();
    assert_eq!(inode("first"), inode("second"));
    stage.assert_settled(&options);
}

#[test]
fn a_sync_that_is_stopped_deletes_nothing() {
    let stage = Stage::new(Way::Up);
    wide_tree(&stage.source(), 39, 200, 100);
    let _socket = UnixListener::bind(stage.source().join("socket")).unwrap();
    write(stage.target().join("extra"), "1");
    let mut stop = |event: TreeEvent<'_>| match event {
        TreeEvent::Failed { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let ended = stage
        .client
        .sync_to(&stage.source(), b"/copy", &deleting(), &mut stop);
    assert_eq!(ended.unwrap_err().code, Code::Cancelled);
    assert!(stage.target().join("extra").exists());
}

/// A tree: what stands under some of a few names, so that two of them have much in common.
#[derive(Clone, Debug)]
enum Node {
    File(u8, u16, u32),
    Link(u8),
    Directory(Vec<(u8, Self)>),
}

fn node() -> impl Strategy<Value = Node> {
    let mode = prop_oneof![Just(0o644_u32), Just(0o600), Just(0o755)];
    let file =
        (0..4_u8, 0..3_u16, mode).prop_map(|(seed, size, mode)| Node::File(seed, size, mode));
    let leaf = prop_oneof![4 => file, 1 => (0..3_u8).prop_map(Node::Link)];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop::collection::vec((0..6_u8, inner), 0..6).prop_map(Node::Directory)
    })
}

fn tree() -> impl Strategy<Value = Node> {
    prop::collection::vec((0..6_u8, node()), 0..6).prop_map(Node::Directory)
}

fn make(path: &Path, node: &Node) {
    if path.symlink_metadata().is_ok() {
        return;
    }
    match node {
        Node::File(seed, size, mode) => {
            fs::write(path, vec![*seed; usize::from(*size)]).unwrap();
            fs::set_permissions(path, Permissions::from_mode(*mode)).unwrap();
            set_time(path, 1_000_000_000 + u64::from(*seed));
        }
        Node::Link(to) => symlink(format!("to-{to}"), path).unwrap(),
        Node::Directory(entries) => {
            fs::create_dir(path).unwrap();
            for (name, below) in entries {
                make(&path.join(format!("n{name}")), below);
            }
        }
    }
}

#[test]
fn any_two_trees_become_equal() {
    let stages = ALL_WAYS.map(Stage::new);
    let mut config = ProptestConfig::with_cases(40);
    config.failure_persistence = None;
    let case = (tree(), tree(), any::<bool>(), any::<bool>());
    proptest!(config, |((source, target, is_up, by_digests) in case)| {
        let stage = &stages[usize::from(is_up)];
        fs::remove_dir_all(stage.source()).unwrap();
        let _ = fs::remove_dir_all(stage.target());
        make(&stage.source(), &source);
        make(&stage.target(), &target);
        let options = if by_digests { by_digest() } else { deleting() };
        let options = SyncOptions { force: true, ..options };
        stage.make_equal(&options);
        stage.assert_settled(&options);
    });
}
