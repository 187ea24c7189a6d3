//! Trees that are broken off go on where they were.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use xdfs::{
    Client, Code, Durability, Fault, Observer, Resume, TransferParameters, TreeEvent, TreeOptions,
    TreeResult,
};

use crate::picture::{assert_same, hard_tree};
use crate::scene::{ALL_WAYS, Origin, Way};
use crate::support::{Folders, Serving, client};

/// What came of a tree, and what was told meanwhile.
pub(crate) struct Run {
    pub(crate) result: Result<TreeResult, Fault>,
    pub(crate) failed: Vec<(Vec<u8>, Code)>,
    pub(crate) warnings: Vec<Fault>,
}

pub(crate) struct Scene {
    pub(crate) folders: Folders,
    _server: Serving,
    client: Client,
    /// The other server, if there are two.
    origin: Option<Origin>,
    way: Way,
}

impl Scene {
    pub(crate) fn new(seed: u64, way: Way) -> Self {
        let folders = Folders::new(seed);
        let server = Serving::start(&folders.root(), |_| {});
        let client = client(server.addr, |_| {});
        let origin = (way == Way::Between).then(|| Origin::new(&folders.here("")));
        Self {
            folders,
            _server: server,
            client,
            origin,
            way,
        }
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

    pub(crate) fn journals(&self) -> PathBuf {
        self.folders.here("state/trees")
    }

    /// The journals that are there of runs that left something to do.
    pub(crate) fn found(&self) -> Vec<PathBuf> {
        let (ended, found) = self.all_found();
        drop(ended);
        found
    }

    /// Those of runs that left nothing to do, and the others.
    fn all_found(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let entries = fs::read_dir(self.journals());
        let entries = entries.into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.partition(|path| path.extension().is_some_and(|end| end == "ended"))
    }

    pub(crate) fn options(&self) -> TreeOptions {
        TreeOptions {
            journal: Some(self.journals()),
            ..TreeOptions::default()
        }
    }

    /// Copies the tree by its name, or what is in it if that ends in a slash.
    fn copy(
        &self,
        name: &str,
        options: &TreeOptions,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let there = format!("/{name}");
        let client = &self.client;
        match self.way {
            Way::Up => client.upload_tree(&self.folders.here(name), b"/copy", options, observer),
            Way::Down => client.download_tree(there.as_bytes(), &self.target(), options, observer),
            Way::Between => {
                let source = self.origin.as_ref().unwrap().at(&there);
                client.copy_tree_from(&source, b"/copy", options, observer)
            }
        }
    }

    /// Copies the tree, and stops when so many files have arrived.
    pub(crate) fn run(&self, options: &TreeOptions, stop_at: u64) -> Run {
        let (mut failed, mut warnings) = (Vec::new(), Vec::new());
        let mut observer = |event: TreeEvent<'_>| {
            match event {
                TreeEvent::Failed { path, fault } => failed.push((path.to_vec(), fault.code)),
                TreeEvent::Warning(fault) => warnings.push(fault.clone()),
                TreeEvent::Progress(result) if result.files >= stop_at => {
                    return ControlFlow::Break(());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let result = self.copy("tree", options, &mut observer);
        Run {
            result,
            failed,
            warnings,
        }
    }

    /// Copies a part of the tree.
    pub(crate) fn part(&self, stop_at: u64) {
        let options = TreeOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(8_000_000),
                ..self.options().parameters
            },
            ..self.options()
        };
        let run = self.run(&options, stop_at);
        assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
        assert_eq!((run.failed, run.warnings), (vec![], vec![]));
        assert_eq!(self.found().len(), 1);
    }

    /// Copies the rest: nothing fails, and no journal is left.
    #[track_caller]
    pub(crate) fn rest(&self) -> TreeResult {
        let run = self.run(&self.options(), u64::MAX);
        assert_eq!((run.failed, run.warnings), (vec![], vec![]));
        assert_eq!(self.found(), Vec::<PathBuf>::new());
        run.result.unwrap()
    }
}

pub(crate) const FILES: u64 = 1500;

/// 30 directories in 3 directories, with 50 files of 40 KiB each.
pub(crate) fn even_tree(root: &Path) {
    tree_of(root, 40 << 10);
}

/// Likewise, with files of so many bytes.
pub(crate) fn tree_of(root: &Path, bytes: usize) {
    for n in 0..FILES {
        let directory = root.join(format!("{}/{}", n % 3, n % 30));
        fs::create_dir_all(&directory).unwrap();
        let content = n.to_be_bytes().repeat(bytes / 8);
        fs::write(directory.join(format!("f{n}")), content).unwrap();
    }
}

/// All directories with files, by their paths beneath the tree.
fn leaves() -> Vec<String> {
    (0..30).map(|n| format!("{}/{n}", n % 3)).collect()
}

fn goes_on(way: Way) {
    let scene = Scene::new(61, way);
    even_tree(&scene.source());
    scene.part(300);
    // What appears in a directory that is finished isn't seen: nobody lists it.
    for leaf in leaves() {
        fs::write(scene.source().join(leaf).join("new"), "new").unwrap();
    }
    let result = scene.rest();
    let (moved, resumed) = (result.files, result.resumed);
    assert!(resumed.files >= 300, "{result:?}");
    assert!(
        resumed.bytes >= 300 * 40_960 && resumed.directories > 0,
        "{result:?}"
    );
    let seen = |leaf: &String| scene.target().join(leaf).join("new").exists();
    let (seen, unseen): (Vec<_>, Vec<_>) = leaves().into_iter().partition(seen);
    assert!(!seen.is_empty() && !unseen.is_empty(), "{seen:?}");
    assert!(resumed.files >= 50 * unseen.len() as u64, "{unseen:?}");
    assert_eq!(moved + resumed.files, FILES + seen.len() as u64);
    for leaf in unseen {
        fs::remove_file(scene.source().join(leaf).join("new")).unwrap();
    }
    assert_same_files(&scene.source(), &scene.target());
}

fn assert_same_files(a: &Path, b: &Path) {
    for leaf in leaves() {
        for entry in fs::read_dir(a.join(&leaf)).unwrap() {
            let name = entry.unwrap().file_name();
            let (a, b) = (a.join(&leaf).join(&name), b.join(&leaf).join(&name));
            assert!(
                fs::read(&a).unwrap() == fs::read(&b).unwrap(),
                "{}",
                b.display()
            );
        }
    }
}

#[test]
fn an_upload_goes_on() {
    goes_on(Way::Up);
}

#[test]
fn a_download_goes_on() {
    goes_on(Way::Down);
}

/// A large file is on its way when the tree is stopped.
#[test]
fn what_is_broken_off_has_not_failed() {
    for way in ALL_WAYS {
        let scene = Scene::new(76, way);
        fs::create_dir(scene.source()).unwrap();
        fs::write(scene.source().join("small"), "1").unwrap();
        fs::write(scene.source().join("large"), vec![7; 24 << 20]).unwrap();
        // At the rate of a part it takes several seconds. It may go before the small one.
        scene.part(0);
        scene.rest();
        assert_same(&scene.source(), &scene.target());
    }
}

/// What the rules left out at first has to come, also in directories that are finished.
#[test]
fn a_journal_is_of_its_rules() {
    for way in ALL_WAYS {
        let scene = Scene::new(77, way);
        even_tree(&scene.source());
        for leaf in leaves() {
            fs::write(scene.source().join(leaf).join("late"), "late").unwrap();
        }
        let rules = scene.folders.here("rules");
        let filtered = |text: &str| {
            fs::write(&rules, text).unwrap();
            let rule = xdfs::FilterRule::File(rules.clone());
            TreeOptions {
                parameters: TransferParameters {
                    overwrite: true,
                    ..scene.options().parameters
                },
                filter: xdfs::Filter::new(&[rule]).unwrap(),
                ..scene.options()
            }
        };
        let slow = TreeOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(8_000_000),
                ..filtered("late\n").parameters
            },
            ..filtered("late\n")
        };
        let run = scene.run(&slow, 300);
        assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
        let run = scene.run(&filtered("nothing\n"), u64::MAX);
        assert_eq!(run.result.unwrap().resumed.files, 0);
        // Other rules make another tree, which goes into what is there.
        let target = scene.target().join("tree");
        for leaf in leaves() {
            assert!(target.join(leaf).join("late").exists());
        }
    }
}

/// One directory, so that every claim is that of an entry.
fn flat_tree(root: &Path) {
    fs::create_dir_all(root).unwrap();
    for n in 0..600_u64 {
        fs::write(root.join(format!("f{n}")), n.to_be_bytes().repeat(2048)).unwrap();
    }
}

fn sees_changes(way: Way) {
    let scene = Scene::new(62, way);
    flat_tree(&scene.source());
    scene.part(200);
    // All files change, so those that were claimed do as well; half of them keep their size.
    for n in 0..600_u64 {
        let content = (n + 1000).to_be_bytes().repeat(2048 + (n % 2) as usize);
        fs::write(scene.source().join(format!("f{n}")), content).unwrap();
    }
    let result = scene.rest();
    assert_eq!((result.files, result.resumed.files), (600, 0));
    assert_same(&scene.source(), &scene.target());
}

#[test]
fn a_copy_between_servers_goes_on() {
    goes_on(Way::Between);
}

#[test]
fn an_upload_sends_what_changed() {
    sees_changes(Way::Up);
}

#[test]
fn a_download_fetches_what_changed() {
    sees_changes(Way::Down);
}

fn misses_what_is_gone(way: Way) {
    let scene = Scene::new(63, way);
    flat_tree(&scene.source());
    fs::create_dir(scene.source().join("d")).unwrap();
    fs::write(scene.source().join("d/file"), "1").unwrap();
    scene.part(200);
    // The target is emptied, but it is the same directory.
    for entry in fs::read_dir(scene.target()).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    let result = scene.rest();
    assert_eq!((result.files, result.resumed.files), (601, 0));
    assert_same(&scene.source(), &scene.target());
}

#[test]
fn an_upload_does_not_believe_in_what_is_gone() {
    misses_what_is_gone(Way::Up);
}

#[test]
fn a_download_does_not_believe_in_what_is_gone() {
    misses_what_is_gone(Way::Down);
}

#[test]
fn another_target_begins_anew() {
    for way in ALL_WAYS {
        let scene = Scene::new(64, way);
        flat_tree(&scene.source());
        scene.part(100);
        let target = scene.target();
        fs::rename(&target, target.with_extension("old")).unwrap();
        fs::create_dir(&target).unwrap();
        let run = scene.run(&scene.options(), u64::MAX);
        let result = run.result.unwrap();
        assert_eq!(run.warnings.len(), 1);
        assert_eq!(run.warnings[0].code, Code::Stale);
        assert_eq!((result.files, result.resumed.files), (600, 0));
        // It was there, so that the tree goes into it.
        assert_same(&scene.source(), &target.join("tree"));
    }
}

#[test]
fn a_target_that_is_gone_begins_anew() {
    for way in ALL_WAYS {
        let scene = Scene::new(65, way);
        flat_tree(&scene.source());
        scene.part(100);
        fs::remove_dir_all(scene.target()).unwrap();
        let run = scene.run(&scene.options(), u64::MAX);
        let result = run.result.unwrap();
        assert_eq!((result.files, result.resumed.files), (600, 0));
        assert_same(&scene.source(), &scene.target());
    }
}

#[test]
fn a_damaged_journal_costs_work_and_nothing_else() {
    for way in ALL_WAYS {
        for damage in 0..3 {
            let scene = Scene::new(66 + damage, way);
            even_tree(&scene.source());
            scene.part(300);
            let path = &scene.found()[0];
            let mut bytes = fs::read(path).unwrap();
            match damage {
                0 => bytes.truncate(bytes.len() / 2),
                1 => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                }
                // Of another version: nothing is known, and what is there isn't ours.
                _ => bytes[9] ^= 1,
            }
            fs::write(path, bytes).unwrap();
            let options = TreeOptions {
                parameters: TransferParameters {
                    overwrite: true,
                    ..scene.options().parameters
                },
                ..scene.options()
            };
            if damage == 2 {
                fs::remove_dir_all(scene.target()).unwrap();
            }
            let run = scene.run(&options, u64::MAX);
            assert_eq!(run.failed, []);
            run.result.unwrap();
            assert_same(&scene.source(), &scene.target());
        }
    }
}

#[test]
fn beginning_anew_forgets() {
    for way in ALL_WAYS {
        let scene = Scene::new(69, way);
        even_tree(&scene.source());
        scene.part(300);
        let options = TreeOptions {
            parameters: TransferParameters {
                resume: Resume::Never,
                overwrite: true,
                ..scene.options().parameters
            },
            ..scene.options()
        };
        fs::remove_dir_all(scene.target()).unwrap();
        let result = scene.run(&options, u64::MAX).result.unwrap();
        assert_eq!((result.files, result.resumed.files), (FILES, 0));
        assert_same(&scene.source(), &scene.target());
    }
}

#[test]
fn what_failed_is_all_that_is_tried_by_the_next_run() {
    for way in ALL_WAYS {
        let scene = Scene::new(70, way);
        even_tree(&scene.source());
        // A directory that isn't empty stands in the way of a file.
        let wrong = scene.target().join("1/1/f1/in the way");
        fs::create_dir_all(&wrong).unwrap();
        let options = scene.options();
        let run = || {
            let mut failed = Vec::new();
            let mut observer = |event: TreeEvent<'_>| {
                if let TreeEvent::Failed { path, .. } = event {
                    failed.push(path.to_vec());
                }
                ControlFlow::Continue(())
            };
            let result = scene.copy("tree/", &options, &mut observer);
            (result.unwrap(), failed)
        };
        let (result, failed) = run();
        assert_eq!(
            (result.files, failed),
            (FILES - 1, vec![b"1/1/f1".to_vec()])
        );
        assert_eq!(scene.found().len(), 1);
        fs::remove_dir_all(scene.target().join("1/1/f1")).unwrap();
        let (result, failed) = run();
        assert_eq!((result.files, failed), (1, vec![]));
        assert_eq!(result.resumed.files, FILES - 1);
        assert_same(&scene.source(), &scene.target());
        assert_eq!(scene.found(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_run_after_one_that_came_to_its_end_sees_every_change() {
    for way in ALL_WAYS {
        let scene = Scene::new(77, way);
        even_tree(&scene.source());
        // With a slash at its end, so that the tree goes where something stands.
        let run = |overwrite, stop_at| {
            let mut failed = Vec::new();
            let mut observer = |event: TreeEvent<'_>| {
                match event {
                    TreeEvent::Failed { path, fault } => failed.push((path.to_vec(), fault.code)),
                    TreeEvent::Progress(result) if result.files >= stop_at => {
                        return ControlFlow::Break(());
                    }
                    _ => {}
                }
                ControlFlow::Continue(())
            };
            let options = TreeOptions {
                parameters: TransferParameters {
                    overwrite,
                    rate_bytes_per_s_max: (stop_at < FILES).then_some(24_000_000),
                    ..scene.options().parameters
                },
                ..scene.options()
            };
            let result = scene.copy("tree/", &options, &mut observer);
            (result, failed)
        };
        fs::create_dir_all(scene.target().join("1/1/f1/in the way")).unwrap();
        let (result, failed) = run(false, u64::MAX);
        assert_eq!((result.unwrap().files, failed.len()), (FILES - 1, 1));
        // A new file, a changed one, and one that is gone, in directories that were finished.
        let (source, target) = (scene.source(), scene.target());
        fs::write(source.join("2/2/new"), "new").unwrap();
        fs::write(source.join("0/3/f3"), "changed").unwrap();
        fs::remove_file(target.join("0/6/f6")).unwrap();
        let (result, mut failed) = run(false, u64::MAX);
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        // Whose the changed one is isn't known any more, and that is told.
        let names: Vec<_> = failed.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!(names, [&b"0/3/f3"[..], b"1/1/f1"]);
        assert_eq!(failed[0].1, Code::AlreadyExists);
        let result = result.unwrap();
        assert_eq!((result.files, result.resumed.files), (2, FILES - 3));
        // So it is for the run after one that was stopped after one that came to its end.
        for n in (0..FILES).filter(|n| n % 30 != 1) {
            let file = source.join(format!("{}/{}/f{n}", n % 3, n % 30));
            fs::write(file, (n + 1).to_be_bytes().repeat(5 * 1024)).unwrap();
        }
        let (result, _) = run(true, 300);
        assert_eq!(result.unwrap_err().code, Code::Cancelled);
        fs::remove_dir_all(target.join("1/1/f1")).unwrap();
        let (result, failed) = run(true, u64::MAX);
        assert_eq!(failed, []);
        assert!(result.unwrap().resumed.files >= 300);
        assert_same(&source, &target);
        assert_eq!(scene.found(), Vec::<PathBuf>::new());
    }
}

/// Whoever didn't hear that all is done says the same again, and means the same.
#[test]
fn a_run_that_left_nothing_to_do_may_be_repeated() {
    for way in ALL_WAYS {
        let scene = Scene::new(78, way);
        hard_tree(&scene.source());
        let again = || scene.run(&scene.options(), u64::MAX);
        let first = again().result.unwrap();
        for _ in 0..2 {
            let run = again();
            assert_eq!((run.failed, run.warnings.len()), (vec![], 1));
            assert!(run.warnings[0].hint.contains("--no-resume"));
            let result = run.result.unwrap();
            assert_eq!(result.target, first.target);
            assert_eq!((result.files, result.resumed.files), (0, first.files));
            assert_same(&scene.source(), &scene.target());
        }
        // What is missing is copied, and what was changed is somebody's.
        let (source, target) = (scene.source(), scene.target());
        fs::write(source.join("new"), "new").unwrap();
        fs::write(source.join("other"), "old").unwrap();
        assert_eq!(again().result.unwrap().files, 2);
        fs::write(source.join("other"), "changed").unwrap();
        fs::remove_file(target.join("new")).unwrap();
        let run = again();
        assert_eq!(run.failed, [(b"other".to_vec(), Code::AlreadyExists)]);
        assert_eq!(run.result.unwrap().files, 1);
        assert_eq!(scene.all_found().0, Vec::<PathBuf>::new());
        fs::remove_file(target.join("other")).unwrap();
        assert_eq!(again().result.unwrap().files, 1);
        assert_same(&source, &target);
    }
}

#[test]
fn a_run_that_left_nothing_to_do_is_forgotten() {
    for way in ALL_WAYS {
        let scene = Scene::new(79, way);
        fs::create_dir_all(scene.source().join("a/b")).unwrap();
        fs::write(scene.source().join("a/b/c"), "c").unwrap();
        fs::write(scene.source().join("d"), "d").unwrap();
        let again = |begin_anew| {
            let options = TreeOptions {
                parameters: TransferParameters {
                    resume: match begin_anew {
                        true => Resume::Never,
                        false => Resume::Trust,
                    },
                    ..scene.options().parameters
                },
                ..scene.options()
            };
            let run = scene.run(&options, u64::MAX);
            assert_eq!(run.warnings, []);
            run.result.unwrap()
        };
        let target = again(false).target;
        // Its target is gone, or is another.
        for is_other in [false, true] {
            fs::rename(scene.target(), scene.target().with_extension("old")).unwrap();
            if is_other {
                fs::create_dir(scene.target()).unwrap();
            }
            let result = again(false);
            assert_eq!(result.files, 2);
            assert_eq!(result.target == target, !is_other);
            fs::remove_dir_all(scene.target().with_extension("old")).unwrap();
        }
        // Wanted so.
        fs::remove_dir_all(scene.target()).unwrap();
        again(false);
        assert_eq!(again(true).files, 2);
        fs::remove_dir_all(scene.target()).unwrap();
        // After a day.
        again(false);
        let (ended, _) = scene.all_found();
        assert_eq!(ended.len(), 1);
        let age = Duration::from_secs(25 * 60 * 60);
        let file = fs::File::options().write(true).open(&ended[0]).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        let result = again(false);
        assert_eq!(result.files, 2);
        assert_ne!(result.target, target);
    }
}

#[test]
fn of_two_runs_at_once_the_second_one_ends() {
    let scene = Scene::new(71, Way::Up);
    even_tree(&scene.source());
    let mut inner = None;
    let options = TreeOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(24_000_000),
            ..scene.options().parameters
        },
        ..scene.options()
    };
    let mut observer = |event: TreeEvent<'_>| {
        if matches!(event, TreeEvent::Progress(_)) && inner.is_none() {
            let replacing = TreeOptions {
                parameters: TransferParameters {
                    overwrite: true,
                    ..scene.options().parameters
                },
                ..scene.options()
            };
            inner = Some(scene.run(&replacing, u64::MAX));
        }
        ControlFlow::Continue(())
    };
    let source = scene.source();
    let outer = scene
        .client
        .upload_tree(&source, b"/copy", &options, &mut observer);
    let inner = inner.unwrap();
    assert_eq!(inner.warnings, []);
    let fault = inner.result.unwrap_err();
    assert!(
        fault.code == Code::Busy && !fault.hint.is_empty(),
        "{fault:?}"
    );
    assert_eq!(outer.unwrap().files, FILES);
    assert_same(&scene.source(), &scene.target());
}

#[test]
fn a_journal_that_can_not_be_kept_is_told_and_done_without() {
    let scene = Scene::new(72, Way::Up);
    hard_tree(&scene.source());
    fs::write(scene.folders.here("state"), "a file").unwrap();
    let run = scene.run(&scene.options(), u64::MAX);
    assert_eq!((run.warnings.len(), run.failed), (1, vec![]));
    run.result.unwrap();
    assert_same(&scene.source(), &scene.target());
}

#[test]
fn every_durability_copies_everything() {
    for way in ALL_WAYS {
        for durability in [Durability::Full, Durability::Batch, Durability::None] {
            let scene = Scene::new(73, way);
            hard_tree(&scene.source());
            let options = TreeOptions {
                durability,
                ..scene.options()
            };
            let run = scene.run(&options, u64::MAX);
            assert_eq!((run.warnings.len(), run.failed), (0, vec![]));
            run.result.unwrap();
            assert_same(&scene.source(), &scene.target());
            assert_eq!(scene.found(), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn names_of_one_file_stay_so_over_an_interruption() {
    use std::os::unix::fs::MetadataExt as _;
    let scene = Scene::new(74, Way::Up);
    even_tree(&scene.source());
    for n in 0..30_u64 {
        let directory = scene.source().join(format!("{}/{n}", n % 3));
        fs::hard_link(scene.source().join("0/0/f0"), directory.join("link")).unwrap();
    }
    let options = TreeOptions {
        hard_links: true,
        ..scene.options()
    };
    let slow = TreeOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(24_000_000),
            ..options.parameters
        },
        ..options.clone()
    };
    let run = scene.run(&slow, 300);
    assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
    let run = scene.run(&options, u64::MAX);
    assert_eq!(run.failed, []);
    assert!(run.result.unwrap().resumed.files > 0);
    assert_same(&scene.source(), &scene.target());
    let links = scene.target().join("0/0/f0").metadata().unwrap().nlink();
    assert_eq!(links, 31);
}

/// The run before has given names and times and made no claims, as it is after a power cut. A first
/// name that is moved anew is another file, which further names have to follow.
#[test]
fn names_of_one_file_follow_what_is_moved_again() {
    use std::os::unix::fs::MetadataExt as _;
    for way in ALL_WAYS {
        let scene = Scene::new(77, way);
        even_tree(&scene.source());
        let first = scene.source().join("0/0/f0");
        for n in 0..30_u64 {
            let directory = scene.source().join(format!("{}/{n}", n % 3));
            fs::hard_link(&first, directory.join("link")).unwrap();
        }
        let options = TreeOptions {
            hard_links: true,
            ..scene.options()
        };
        let slow = TreeOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(24_000_000),
                ..options.parameters
            },
            ..options.clone()
        };
        let run = scene.run(&slow, 1);
        assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
        // All of them, by hand.
        let there = |n: u64| scene.target().join(format!("{}/{n}", n % 3));
        fs::create_dir_all(there(0)).unwrap();
        let target = there(0).join("f0");
        let _ = fs::remove_file(&target);
        fs::copy(&first, &target).unwrap();
        let file = fs::File::options().write(true).open(&target).unwrap();
        file.set_modified(first.metadata().unwrap().modified().unwrap())
            .unwrap();
        for n in 0..30 {
            fs::create_dir_all(there(n)).unwrap();
            let _ = fs::remove_file(there(n).join("link"));
            fs::hard_link(&target, there(n).join("link")).unwrap();
        }
        let run = scene.run(&options, u64::MAX);
        assert_eq!(run.failed, [], "{way:?}");
        run.result.unwrap();
        assert_same(&scene.source(), &scene.target());
        assert_eq!(target.metadata().unwrap().nlink(), 31, "{way:?}");
    }
}

/// What was claimed without being durable is nothing for who wants it so.
#[test]
fn a_run_that_wants_durability_believes_none_that_did_without() {
    for way in ALL_WAYS {
        let scene = Scene::new(77, way);
        even_tree(&scene.source());
        let without = TreeOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(8_000_000),
                ..scene.options().parameters
            },
            durability: Durability::None,
            ..scene.options()
        };
        let run = scene.run(&without, 300);
        assert_eq!(run.result.unwrap_err().code, Code::Cancelled);
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!(run.failed, []);
        assert_eq!(run.result.unwrap().resumed.files, 0, "{way:?}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_tried_again() {
    let scene = Scene::new(75, Way::Up);
    even_tree(&scene.source());
    let (changing, last) = (scene.source().join("0/0/f0"), AtomicBool::new(false));
    let run = thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(&changing).unwrap();
            // Until everything else is there.
            for n in 0.. {
                file.set_len(100_000 + n % 7).unwrap();
                let is_there = |n: &u64| {
                    let leaf = format!("{}/{}/f{n}", n % 3, n % 30);
                    scene.target().join(leaf).exists()
                };
                if last.load(Ordering::Relaxed) || (1..FILES).step_by(100).all(|n| is_there(&n)) {
                    break;
                }
            }
        });
        let run = scene.run(&scene.options(), u64::MAX);
        last.store(true, Ordering::Relaxed);
        run
    });
    assert_eq!(run.failed, []);
    assert_eq!(run.result.unwrap().files, FILES);
}

#[test]
fn claims_are_made_while_the_tree_is_moved() {
    for way in ALL_WAYS {
        let scene = Scene::new(76, way);
        even_tree(&scene.source());
        let options = TreeOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(8_000_000),
                ..scene.options().parameters
            },
            // What a disk needs to become durable is up to the machine.
            durability: Durability::None,
            ..scene.options()
        };
        let mut largest = 0;
        let mut observer = |_: TreeEvent<'_>| {
            let sizes = scene.found().into_iter();
            let sizes = sizes.filter_map(|p| Some(p.metadata().ok()?.len()));
            largest = largest.max(sizes.max().unwrap_or(0));
            // More than what says where the tree goes.
            match largest > 400 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let result = scene.copy("tree", &options, &mut observer);
        assert_eq!(result.unwrap_err().code, Code::Cancelled, "{largest}");
        assert!(largest < 64 << 10, "{largest}");
        let none = TreeOptions {
            durability: Durability::None,
            ..scene.options()
        };
        let run = scene.run(&none, u64::MAX);
        assert_eq!((run.failed, run.warnings), (vec![], vec![]));
        assert!(run.result.unwrap().resumed.files > 0);
        assert_same(&scene.source(), &scene.target());
    }
}

#[test]
fn another_source_begins_anew() {
    for way in ALL_WAYS {
        let scene = Scene::new(78, way);
        even_tree(&scene.source());
        scene.part(300);
        let source = scene.source();
        fs::rename(&source, source.with_extension("old")).unwrap();
        even_tree(&source);
        for leaf in leaves() {
            fs::write(source.join(leaf).join("new"), "new").unwrap();
        }
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!((run.failed, run.warnings.len()), (vec![], 1));
        assert_eq!(run.warnings[0].code, Code::Stale);
        assert_eq!(run.result.unwrap().resumed.files, 0);
        // The target was there, so that the tree goes into it.
        assert_same(&source, &scene.target().join("tree"));
    }
}

#[test]
fn a_finished_directory_that_was_emptied_or_replaced_is_copied_again() {
    for way in ALL_WAYS {
        let scene = Scene::new(79, way);
        even_tree(&scene.source());
        scene.part(300);
        for (n, leaf) in leaves().iter().enumerate() {
            let directory = scene.target().join(leaf);
            if !directory.exists() {
                continue;
            }
            if n % 2 == 0 {
                fs::remove_dir_all(&directory).unwrap();
                fs::create_dir(&directory).unwrap();
            } else {
                for entry in fs::read_dir(&directory).unwrap() {
                    fs::remove_file(entry.unwrap().path()).unwrap();
                }
            }
        }
        let result = scene.rest();
        assert_eq!((result.files, result.resumed.files), (FILES, 0));
        assert_same(&scene.source(), &scene.target());
    }
}

fn set_time(path: &Path, seconds: u64, ns: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, ns);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn a_file_of_the_user_that_is_about_as_old_is_not_replaced() {
    for way in ALL_WAYS {
        let scene = Scene::new(80, way);
        flat_tree(&scene.source());
        scene.part(100);
        let (source, target) = (scene.source(), scene.target());
        // The second one is as a coarse file system would have it.
        for (name, seconds) in [("x", 1_000_000_002), ("y", 1_000_000_001)] {
            fs::write(source.join(name), "tree").unwrap();
            set_time(&source.join(name), 1_000_000_001, 5);
            fs::write(target.join(name), "user").unwrap();
            set_time(&target.join(name), seconds, 0);
        }
        let run = scene.run(&scene.options(), u64::MAX);
        run.result.unwrap();
        assert_eq!(run.failed, [(b"x".to_vec(), Code::AlreadyExists)]);
        assert_eq!(fs::read(target.join("x")).unwrap(), b"user");
        assert_eq!(fs::read(target.join("y")).unwrap(), b"tree");
    }
}

#[test]
fn a_claimed_file_that_was_changed_at_the_target_does_not_count() {
    for way in ALL_WAYS {
        let scene = Scene::new(81, way);
        flat_tree(&scene.source());
        scene.part(200);
        let mut changed = 0;
        for entry in fs::read_dir(scene.target()).unwrap() {
            let path = entry.unwrap().path();
            // Parts of what was under way have other names.
            if scene.source().join(path.file_name().unwrap()).exists() {
                fs::write(path, [b'u'; 8 * 2048]).unwrap();
                changed += 1;
            }
        }
        assert!(changed >= 200);
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!(run.result.unwrap().resumed.files, 0);
        assert_eq!(run.failed.len(), changed);
        assert!(run.failed.iter().all(|(_, c)| *c == Code::AlreadyExists));
        let options = TreeOptions {
            parameters: TransferParameters {
                overwrite: true,
                ..scene.options().parameters
            },
            ..scene.options()
        };
        let run = scene.run(&options, u64::MAX);
        assert_eq!(
            (run.result.unwrap().files, run.failed),
            (changed as u64, vec![])
        );
        assert_same(&scene.source(), &scene.target());
    }
}

/// A tree with a directory in the way of its only file, which goes to a directory that is there.
fn blocked(scene: &Scene) -> PathBuf {
    fs::create_dir_all(scene.source().join("d")).unwrap();
    fs::write(scene.source().join("d/f"), "1").unwrap();
    let wrong = scene.target().join("tree/d/f");
    fs::create_dir_all(wrong.join("in the way")).unwrap();
    wrong
}

#[test]
fn a_tree_of_which_something_failed_keeps_its_journal() {
    for way in ALL_WAYS {
        let scene = Scene::new(82, way);
        let wrong = blocked(&scene);
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!((run.failed.len(), scene.found().len()), (1, 1));
        fs::remove_dir_all(wrong).unwrap();
        assert_eq!(scene.rest().files, 1);
        assert_same(&scene.source(), &scene.target().join("tree"));
    }
}

#[test]
fn a_directory_that_is_not_whole_stays_open_to_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    for way in ALL_WAYS {
        let scene = Scene::new(83, way);
        let wrong = blocked(&scene);
        fs::create_dir(scene.source().join("whole")).unwrap();
        let names = ["d", "", "whole"];
        for (name, mode) in names.iter().zip([0o500, 0o555, 0o510]) {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(scene.source().join(name), mode).unwrap();
        }
        let modes = || {
            let root = scene.target().join("tree");
            let mode = |name| root.join(name).metadata().unwrap().permissions().mode();
            names.map(|name| mode(name) & 0o777)
        };
        let run = scene.run(&scene.options(), u64::MAX);
        assert_eq!((run.failed.len(), modes()), (1, [0o700, 0o755, 0o510]));
        fs::remove_dir_all(wrong).unwrap();
        scene.rest();
        assert_eq!(modes(), [0o500, 0o555, 0o510]);
        // Or the folder can't be removed by who isn't root.
        for root in [scene.source(), scene.target().join("tree")] {
            for name in ["", "d", "whole"] {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(root.join(name), mode).unwrap();
            }
        }
    }
}
