//! Names that differ only in case, on file systems that tell them apart and on one that doesn't.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use xdfs::{
    Client, Code, Compare, Fault, SyncOptions, SyncResult, TransferParameters, TreeEvent,
    TreeOptions, TreeResult,
};
use xdfs_testkit::folding::FoldingDisk;
use xdfs_testkit::tree::random_bytes;

use crate::picture::{assert_same, picture};
use crate::support::{Folders, Serving, client};

/// A source, a target that may not tell names apart, and a session between them.
struct Scene {
    client: Client,
    _server: Serving,
    _disk: Option<FoldingDisk>,
    folders: Folders,
    up: bool,
}

/// What failed.
type Failed = Vec<(String, Fault)>;

impl Scene {
    /// `None`, with the reason printed, where the file system can't be mounted.
    fn new(up: bool, folds: bool) -> Option<Self> {
        let folders = Folders::new(51);
        let at = match up {
            true => folders.there("disk"),
            false => folders.here("disk"),
        };
        fs::create_dir(&at).unwrap();
        let disk = match folds.then(|| FoldingDisk::mount(&at)) {
            Some(Err(error)) => {
                let reason = format_args!("no file system can be mounted by FUSE: {error}");
                xdfs_testkit::skip::test(reason);
                return None;
            }
            Some(Ok(disk)) => Some(disk),
            None => None,
        };
        let server = Serving::start(&folders.root(), |_| {});
        let client = client(server.addr, |_| {});
        Some(Self {
            client,
            _server: server,
            _disk: disk,
            folders,
            up,
        })
    }

    fn source(&self) -> PathBuf {
        match self.up {
            true => self.folders.here("tree"),
            false => self.folders.there("tree"),
        }
    }

    fn target(&self) -> PathBuf {
        match self.up {
            true => self.folders.there("disk/copy"),
            false => self.folders.here("disk/copy"),
        }
    }

    fn options(&self, overwrite: bool) -> TreeOptions {
        TreeOptions {
            parameters: TransferParameters {
                overwrite,
                ..TransferParameters::default()
            },
            hard_links: true,
            journal: Some(self.folders.here("state")),
            ..TreeOptions::default()
        }
    }

    /// What there is goes as the target itself, not into it.
    fn copy(&self, options: &TreeOptions) -> (TreeResult, Failed) {
        let mut failed = Vec::new();
        let mut observer = |event: TreeEvent<'_>| note(&event, &mut failed);
        let (client, observer) = (&self.client, &mut observer);
        let result = match self.up {
            true => {
                let source = format!("{}/", self.source().display());
                client.upload_tree(Path::new(&source), b"/disk/copy", options, observer)
            }
            false => client.download_tree(b"/tree/", &self.target(), options, observer),
        };
        let result = result.unwrap();
        assert_eq!(result.failed, failed.len() as u64);
        (result, failed)
    }

    fn sync(&self, options: &SyncOptions) -> (SyncResult, Failed) {
        let mut failed = Vec::new();
        let mut observer = |event: TreeEvent<'_>| note(&event, &mut failed);
        let (client, observer) = (&self.client, &mut observer);
        let result = match self.up {
            true => client.sync_to(&self.source(), b"/disk/copy", options, observer),
            false => client.sync_from(b"/tree", &self.target(), options, observer),
        };
        let result = result.unwrap();
        assert_eq!(result.tree.failed, failed.len() as u64);
        (result, failed)
    }
}

fn note(event: &TreeEvent<'_>, failed: &mut Failed) -> ControlFlow<()> {
    if let TreeEvent::Failed { path, fault } = event {
        let path = String::from_utf8_lossy(path).into_owned();
        failed.push((path, Fault::clone(fault)));
    }
    ControlFlow::Continue(())
}

fn write(path: PathBuf, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Names of every kind that differ only in case, and others.
fn make_tree(root: &Path) {
    for name in ["Readme", "README", "other", "deep/down/xy", "deep/down/XY"] {
        write(root.join(name), name);
    }
    write(root.join("deep/down/Xy"), "the third");
    for (seed, name) in [(1, "Big.bin"), (2, "BIG.bin")] {
        fs::write(root.join(name), random_bytes(seed, 700 << 10)).unwrap();
    }
    // Directories, in which some names are the same and some aren't; and one of another kind.
    for (directory, name) in [("Src", "a"), ("Src", "b"), ("SRC", "a"), ("SRC", "c")] {
        let content = format!("{directory}{name}");
        write(root.join(directory).join(name), &content);
    }
    write(root.join("SRC/sub/Inner"), "Inner");
    write(root.join("SRC/sub/INNER"), "INNER");
    write(root.join("Src/sub/Inner"), "of Src");
    write(root.join("Mix/in it"), "in it");
    write(root.join("MIX"), "a file");
    symlink("other", root.join("Link")).unwrap();
    write(root.join("LINK"), "no link");
    // Composed and decomposed: other file systems take these for one.
    write(root.join("\u{e9}"), "composed");
    write(root.join("e\u{301}"), "decomposed");
    // A link to a file elsewhere, and two names of one file.
    fs::create_dir(root.join("hard")).unwrap();
    fs::hard_link(root.join("other"), root.join("hard/Name")).unwrap();
    write(root.join("hard/NAME"), "a file");
    fs::create_dir(root.join("twins")).unwrap();
    fs::hard_link(root.join("Readme"), root.join("twins/Twin")).unwrap();
    fs::hard_link(root.join("Readme"), root.join("twins/TWIN")).unwrap();
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| name(entry.unwrap())).collect()
}

/// Of each name there is one, as it is in the source; the paths of the others are returned.
fn assert_one_each(source: &Path, target: &Path) -> BTreeSet<String> {
    let (own, there) = (names(source), names(target));
    let fold = |names: &BTreeSet<String>| -> BTreeSet<String> {
        names.iter().map(|name| name.to_lowercase()).collect()
    };
    assert_eq!(fold(&own), fold(&there), "{}", source.display());
    assert_eq!(there.len(), fold(&there).len());
    let mut lost = BTreeSet::new();
    for name in &own {
        let (from, to) = (source.join(name), target.join(name));
        if !there.contains(name) {
            lost.insert(name.clone());
        } else if from.is_symlink() || from.is_file() {
            assert_eq!(picture(&from)[&b""[..]].what, picture(&to)[&b""[..]].what);
        } else {
            let below = assert_one_each(&from, &to).into_iter();
            lost.extend(below.map(|path| format!("{name}/{path}")));
        }
    }
    lost
}

fn assert_told(failed: &Failed, lost: &BTreeSet<String>) {
    let told: BTreeSet<String> = failed.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(told.len(), failed.len(), "each is told once: {failed:?}");
    assert_eq!(&told, lost);
    for (path, fault) in failed {
        assert_eq!(fault.code, Code::AlreadyExists, "{fault}");
        let name = path.rsplit('/').next().unwrap();
        assert!(fault.cause.contains(&format!("'{name}'")), "{fault}");
        assert!(fault.cause.contains("file system"), "{fault}");
        assert!(!fault.hint.is_empty());
    }
}

#[test]
fn of_names_that_the_target_takes_for_one_the_first_is_kept() {
    for (up, overwrite) in [(true, false), (true, true), (false, false), (false, true)] {
        let Some(scene) = Scene::new(up, true) else {
            return;
        };
        make_tree(&scene.source());
        let (result, failed) = scene.copy(&scene.options(overwrite));
        let mut lost = assert_one_each(&scene.source(), &scene.target());
        // Two names of one file are told only if they are different files.
        assert!(lost.remove("twins/Twin") || lost.remove("twins/TWIN"));
        assert_told(&failed, &lost);
        assert!(lost.len() >= 8 && result.files > 8, "{lost:?}");
        // Once more, over all that is there: nothing changes places.
        let (_, failed) = scene.copy(&scene.options(true));
        let mut again = assert_one_each(&scene.source(), &scene.target());
        assert!(again.remove("twins/Twin") || again.remove("twins/TWIN"));
        assert_told(&failed, &again);
        assert_eq!(again, lost);
        let fresh = TreeOptions {
            journal: None,
            ..scene.options(true)
        };
        let (_, failed) = scene.copy(&fresh);
        let mut again = assert_one_each(&scene.source(), &scene.target());
        assert!(again.remove("twins/Twin") || again.remove("twins/TWIN"));
        assert_told(&failed, &again);
    }
}

/// What the target has stays what it is, in whichever order the source is listed: of so many pairs
/// some are listed one way and some the other.
#[test]
fn a_name_that_the_target_has_keeps_its_place() {
    for (up, journal) in [(true, true), (true, false), (false, true), (false, false)] {
        let Some(scene) = Scene::new(up, true) else {
            return;
        };
        let (source, target) = (scene.source(), scene.target());
        write(source.join("first"), "first");
        fs::create_dir(source.join("several")).unwrap();
        for pair in 0..16 {
            write(source.join(format!("NAME{pair}")), "UPPER");
            fs::hard_link(
                source.join("first"),
                source.join(format!("several/NAME{pair}")),
            )
            .unwrap();
        }
        let options = TreeOptions {
            journal: journal.then(|| scene.folders.here("state")),
            ..scene.options(true)
        };
        assert_eq!(scene.copy(&options).1.len(), 0);
        let mut lost = BTreeSet::new();
        for pair in 0..16 {
            for at in ["", "several/"] {
                let name = format!("{at}name{pair}");
                write(source.join(&name), "the lower one");
                lost.insert(name);
            }
            // A further name of a file whose place is taken, and one whose first name is either.
            let name = format!("Name{pair}");
            fs::hard_link(source.join("first"), source.join(&name)).unwrap();
            lost.insert(name);
        }
        for _ in 0..2 {
            let (_, failed) = scene.copy(&options);
            assert_eq!(assert_one_each(&source, &target), lost);
            assert_told(&failed, &lost);
        }
    }
}

#[test]
fn a_target_that_tells_names_apart_gets_them_all() {
    for up in [true, false] {
        let scene = Scene::new(up, false).unwrap();
        make_tree(&scene.source());
        // Size and time tell them apart, however coarse the clock is.
        let mut file = fs::File::options();
        let file = file
            .append(true)
            .open(scene.source().join("README"))
            .unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1000))
            .unwrap();
        let (_, failed) = scene.copy(&scene.options(false));
        assert!(failed.is_empty(), "{failed:?}");
        assert_same(&scene.source(), &scene.target());
        let inode = |name: &str| fs::metadata(scene.target().join(name)).unwrap().ino();
        assert_eq!(inode("hard/Name"), inode("other"));
        assert_eq!(inode("twins/Twin"), inode("twins/TWIN"));
        assert_ne!(inode("Readme"), inode("README"));
        // What stands there is replaced where that is wanted, and stays otherwise.
        write(scene.target().join("README"), "changed");
        let (_, failed) = scene.copy(&scene.options(false));
        assert!(failed.iter().any(|(path, _)| path == "README"));
        let (_, failed) = scene.copy(&scene.options(true));
        assert!(failed.is_empty(), "{failed:?}");
        assert_same(&scene.source(), &scene.target());
        // Several names of one file at the target are several names.
        fs::remove_file(scene.target().join("README")).unwrap();
        let linked = ["Readme", "README"].map(|name| scene.target().join(name));
        fs::hard_link(&linked[0], &linked[1]).unwrap();
        let (_, failed) = scene.copy(&scene.options(true));
        assert!(failed.is_empty(), "{failed:?}");
        assert_same(&scene.source(), &scene.target());
    }
}

fn deleting() -> SyncOptions {
    SyncOptions {
        delete: true,
        ..SyncOptions::default()
    }
}

#[test]
fn a_synchronisation_keeps_one_of_such_names_and_deletes_none_of_them() {
    for up in [true, false] {
        let Some(scene) = Scene::new(up, true) else {
            return;
        };
        make_tree(&scene.source());
        let (_, failed) = scene.sync(&SyncOptions::default());
        let lost = assert_one_each(&scene.source(), &scene.target());
        assert_told(&failed, &lost);
        let before = picture(&scene.target());
        // What is there and was not moved stays, since something failed.
        write(scene.target().join("more"), "more");
        for compare in [Compare::SizeAndTime, Compare::Digest] {
            let options = SyncOptions {
                compare,
                ..deleting()
            };
            let (result, failed) = scene.sync(&options);
            assert_told(&failed, &lost);
            assert_eq!((result.deleted, result.renamed), (0, 0));
            assert_eq!((result.kept, result.tree.files), (1, 0));
        }
        fs::remove_file(scene.target().join("more")).unwrap();
        let root = fs::File::open(scene.target()).unwrap();
        let meta = fs::metadata(scene.source()).unwrap();
        root.set_modified(meta.modified().unwrap()).unwrap();
        assert_eq!(before, picture(&scene.target()));
        // A dry run can't know what a target will make of names that aren't there.
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
        let (result, failed) = scene.sync(&dry);
        assert_told(&failed, &lost);
        assert_eq!((result.tree.files, result.deleted), (0, 0));
    }
}

#[test]
fn a_synchronisation_finds_names_that_are_spelled_otherwise() {
    for (up, compare) in [
        (true, Compare::SizeAndTime),
        (false, Compare::SizeAndTime),
        (true, Compare::Digest),
        (false, Compare::Digest),
    ] {
        let Some(scene) = Scene::new(up, true) else {
            return;
        };
        for name in ["README", "DIR/F", "DIR/same", "extra", "Dropped/x", "KIND"] {
            write(scene.target().join(name), "of old");
        }
        for name in ["Readme", "Dir/f", "Dir/new", "Kind/in it"] {
            write(scene.source().join(name), &format!("this is {name}"));
        }
        write(scene.source().join("Dir/SAME"), "of old");
        let options = SyncOptions {
            compare,
            ..deleting()
        };
        let (result, failed) = scene.sync(&options);
        assert!(failed.is_empty(), "{failed:?}");
        // The file where a directory goes is one of them.
        assert_eq!(result.deleted, 4);
        let target = scene.target();
        let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
        for name in ["Readme", "Dir/f", "Dir/new", "Kind/in it"] {
            assert_eq!(read(name), format!("this is {name}"));
        }
        assert_eq!(read("Dir/same"), "of old");
        let names = |at: &str| Vec::from_iter(names(&target.join(at)));
        assert_eq!(names(""), ["DIR", "Kind", "README"]);
        assert_eq!(names("DIR"), ["F", "new", "same"]);
        // Nothing is left to do.
        let (result, failed) = scene.sync(&options);
        assert!(failed.is_empty(), "{failed:?}");
        let moved = (result.tree.files, result.set, result.deleted, result.kept);
        assert_eq!(moved, (0, 0, 0, 0));
    }
}

#[test]
fn a_synchronisation_with_a_target_that_tells_names_apart_moves_them_all() {
    for up in [true, false] {
        let scene = Scene::new(up, false).unwrap();
        make_tree(&scene.source());
        // Names of which the target has some already, and one that has to go.
        for name in ["README", "deep/down/XY", "SRC/a", "deep/DOWN", "hard/name"] {
            write(scene.target().join(name), "of old");
        }
        let (result, failed) = scene.sync(&deleting());
        assert!(failed.is_empty(), "{failed:?}");
        assert_same(&scene.source(), &scene.target());
        assert_eq!(result.deleted, 2);
        let (result, failed) = scene.sync(&deleting());
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!((result.tree.files, result.set), (0, 0));
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
        fs::remove_dir_all(scene.target()).unwrap();
        let (told, _) = scene.sync(&dry);
        let (result, _) = scene.sync(&deleting());
        let count = |result: &TreeResult| (result.files, result.directories, result.others);
        assert_eq!(count(&told.tree), count(&result.tree));
    }
}
