//! Jobs that are started from their text, cancelled, and started again.

use std::fs;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use xdfs::{
    Client, ClientOptions, Code, Fault, FileJob, Job, JobEvent, JobPlace, JobResult, RemotePlace,
    RemoveJob, RetryPolicy, RunningJob, SyncJob, SyncOptions, TransferOptions, TransferParameters,
    TreeJob, TreeOptions, TreeResult, Way,
};
use xdfs_testkit::wait;

use crate::awaited::block_on;
use crate::support::{Folders, PATIENCE, Serving, assert_equal};

/// More files than events wait for a reader, so that a job whose events aren't read can't end.
const FILES: usize = 2500;
/// Bytes of files that can't all be in flight at once.
const LARGE: usize = 8 << 10;

fn connect(server: &RemotePlace) -> Result<Arc<Client>, Fault> {
    Client::connect(server, ClientOptions::default()).map(Arc::new)
}

/// Starts a job from its text, as another process would.
fn start(text: &str) -> RunningJob {
    Job::from_json(text).unwrap().start(connect).unwrap()
}

/// Makes files of so many bytes each.
fn make_tree(root: &Path, bytes: usize) {
    for number in 0..FILES {
        let directory = root.join(format!("{}", number % 25));
        fs::create_dir_all(&directory).unwrap();
        let content = number.to_be_bytes().repeat(bytes / size_of::<usize>());
        fs::write(directory.join(format!("f{number}")), content).unwrap();
    }
}

#[track_caller]
fn assert_same_trees(a: &Path, b: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        match a.is_dir() {
            true => assert_same_trees(&a, &b),
            false => assert_equal(&a, &b),
        }
    }
}

/// Reads events up to the first file that was moved.
#[track_caller]
fn first_file(job: &RunningJob) -> Vec<JobEvent> {
    let mut seen = Vec::new();
    while let Some(event) = job.event(PATIENCE) {
        let is_file = matches!(event, JobEvent::File { .. });
        seen.push(event);
        if is_file {
            return seen;
        }
    }
    panic!("no file was moved: {seen:?}, {job:?}");
}

/// All further events.
fn rest(job: &RunningJob) -> Vec<JobEvent> {
    std::iter::from_fn(|| job.event(PATIENCE)).collect()
}

fn files(events: &[JobEvent]) -> usize {
    let is_file = |event: &&JobEvent| matches!(event, JobEvent::File { .. });
    events.iter().filter(is_file).count()
}

struct Scene {
    folders: Folders,
    server: Serving,
    is_up: bool,
}

impl Scene {
    fn new(seed: u64, is_up: bool) -> Self {
        let folders = Folders::new(seed);
        let server = Serving::start(&folders.root(), |_| {});
        Self {
            folders,
            server,
            is_up,
        }
    }

    fn there(&self, path: &str) -> JobPlace {
        let url = format!("xdfs://{}{path}", self.server.addr);
        JobPlace::Server(url.parse().unwrap())
    }

    fn ends(&self) -> (JobPlace, JobPlace) {
        let here = |name| JobPlace::Local(self.folders.here(name));
        match self.is_up {
            true => (here("tree"), self.there("/copy")),
            false => (self.there("/tree"), here("copy")),
        }
    }

    fn source(&self) -> std::path::PathBuf {
        match self.is_up {
            true => self.folders.here("tree"),
            false => self.folders.there("tree"),
        }
    }

    fn target(&self) -> std::path::PathBuf {
        match self.is_up {
            true => self.folders.there("copy"),
            false => self.folders.here("copy"),
        }
    }

    fn tree_job(&self) -> String {
        let (source, target) = self.ends();
        let job = Job::Tree(TreeJob {
            source,
            target,
            way: Way::Any,
            options: TreeOptions {
                journal: Some(self.folders.here("state")),
                ..TreeOptions::default()
            },
        });
        job.to_json().unwrap()
    }

    fn sync_job(&self) -> String {
        let (source, target) = self.ends();
        let job = Job::Sync(SyncJob {
            source,
            target,
            way: Way::Any,
            options: SyncOptions {
                delete: true,
                ..SyncOptions::default()
            },
        });
        job.to_json().unwrap()
    }
}

#[track_caller]
fn tree_result(job: &RunningJob) -> TreeResult {
    match job.wait().unwrap() {
        JobResult::Tree(result) => result,
        other => panic!("it was a tree: {other:?}"),
    }
}

#[test]
fn a_tree_job_is_cancelled_and_resumes() {
    for is_up in [true, false] {
        let scene = Scene::new(940 + u64::from(is_up), is_up);
        make_tree(&scene.source(), LARGE);
        let text = scene.tree_job();
        let job = start(&text);
        let seen = first_file(&job);
        assert!(matches!(&seen[0], JobEvent::Target(path) if path.ends_with(b"/copy")));
        job.cancel();
        let moved = files(&seen) + files(&rest(&job));
        assert!(job.is_finished());
        assert_eq!(job.wait().unwrap_err().code, Code::Cancelled);
        assert!((1..FILES).contains(&moved), "{moved}");

        let again = start(&text);
        let events = rest(&again);
        let result = tree_result(&again);
        assert_eq!(result.failed, 0);
        assert_eq!((result.files + result.resumed.files) as usize, FILES);
        assert!(result.resumed.files > 0, "{result:?}");
        assert_eq!(files(&events) as u64, result.files);
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, JobEvent::Failed { .. }))
        );
        assert_same_trees(&scene.source(), &scene.target());
    }
}

#[test]
fn a_sync_job_is_cancelled_and_completes_later() {
    for is_up in [true, false] {
        let scene = Scene::new(942 + u64::from(is_up), is_up);
        make_tree(&scene.source(), LARGE);
        let extra = scene.target().join("0/extra");
        fs::create_dir_all(extra.parent().unwrap()).unwrap();
        fs::write(&extra, "extra").unwrap();
        let text = scene.sync_job();
        let job = start(&text);
        first_file(&job);
        job.cancel();
        assert_eq!(job.wait().unwrap_err().code, Code::Cancelled);
        assert!(
            extra.exists(),
            "nothing is removed before everything else succeeded"
        );

        let again = start(&text);
        let events = rest(&again);
        let JobResult::Sync(result) = again.wait().unwrap() else {
            panic!("it was a synchronisation");
        };
        assert_eq!((result.tree.failed, result.deleted), (0, 1));
        assert!((1..FILES as u64).contains(&result.tree.files), "{result:?}");
        let deletes = |event: &&JobEvent| matches!(event, JobEvent::Deletion(_));
        assert_eq!(events.iter().filter(deletes).count(), 1);
        assert_same_trees(&scene.source(), &scene.target());
    }
}

/// A job whose events nobody reads can be cancelled and waited for by others.
#[test]
fn a_handle_is_shared_by_threads() {
    let scene = Scene::new(944, true);
    make_tree(&scene.source(), 64);
    let job = Arc::new(start(&scene.tree_job()));
    first_file(&job);
    let waiting = Arc::clone(&job);
    let ended = thread::spawn(move || {
        waiting.cancel();
        waiting.wait()
    });
    assert_eq!(ended.join().unwrap().unwrap_err().code, Code::Cancelled);
    assert_eq!(job.wait().unwrap_err().code, Code::Cancelled);
}

/// Its events would wait for a reader otherwise.
#[test]
fn a_job_without_a_handle_goes_to_its_end() {
    let scene = Scene::new(952, true);
    make_tree(&scene.source(), 64);
    let text = scene.tree_job();
    let job = start(&text);
    first_file(&job);
    drop(job);
    // Until its end its journal is in use, and then nothing is left to do.
    let has_ended = || match start(&text).wait() {
        Err(fault) if fault.code == Code::Busy => false,
        ended => {
            let JobResult::Tree(result) = ended.unwrap() else {
                panic!("it was a tree");
            };
            assert_eq!(result.files, 0);
            true
        }
    };
    assert!(wait::until(PATIENCE, has_ended));
    assert_same_trees(&scene.source(), &scene.target());
}

#[test]
fn jobs_are_awaited() {
    let scene = Scene::new(945, true);
    make_tree(&scene.source(), 64);
    let mut tree = start(&scene.tree_job());
    let mut seen = 0;
    while let Some(event) = block_on(poll_fn(|context| tree.poll_event(context))) {
        seen += usize::from(matches!(event, JobEvent::File { .. }));
    }
    assert_eq!(seen, FILES);
    assert!(matches!(block_on(&mut tree).unwrap(), JobResult::Tree(_)));
    // The end is returned again.
    assert!(block_on(pin!(tree)).is_ok());
    // Awaiting reads the events, which are more than wait otherwise.
    fs::remove_dir_all(scene.target()).unwrap();
    let result = block_on(start(&scene.tree_job())).unwrap();
    assert!(matches!(result, JobResult::Tree(result) if result.files as usize == FILES));
    assert_same_trees(&scene.source(), &scene.target());
}

#[test]
fn a_file_job_is_cancelled_and_resumes() {
    let scene = Scene::new(946, true);
    let source = scene.folders.make_here("file", 48 << 20);
    let job = |rate| {
        let job = Job::File(FileJob {
            source: JobPlace::Local(source.clone()),
            target: scene.there("/file"),
            way: Way::Any,
            options: TransferOptions {
                parameters: TransferParameters {
                    rate_bytes_per_s_max: rate,
                    ..TransferParameters::default()
                },
                ..TransferOptions::default()
            },
            retry: RetryPolicy::default(),
        });
        start(&job.to_json().unwrap())
    };
    let slow = job(Some(4 << 20));
    let has_moved = |event: &JobEvent| matches!(event, JobEvent::Progress(now) if now.bytes > 0);
    while !has_moved(&slow.event(PATIENCE).unwrap()) {}
    slow.cancel();
    assert_eq!(slow.wait().unwrap_err().code, Code::Cancelled);
    assert!(!scene.folders.there("file").exists());
    let JobResult::File(result) = job(None).wait().unwrap() else {
        panic!("it was a file");
    };
    assert_eq!(result.bytes, 48 << 20);
    assert_equal(&source, &scene.folders.there("file"));
}

/// A file and a tree go from one server to another, by the sessions that the caller opens.
#[test]
fn jobs_go_between_servers() {
    let (from, to) = (Scene::new(947, true), Scene::new(948, true));
    from.folders.make_there("file", 3 << 20);
    fs::create_dir(from.folders.there("tree")).unwrap();
    from.folders.make_there("tree/a", 10);
    let retry = RetryPolicy::default();
    let jobs = [
        Job::File(FileJob {
            source: from.there("/file"),
            target: to.there("/file"),
            way: Way::Client,
            options: TransferOptions::default(),
            retry,
        }),
        Job::Tree(TreeJob {
            source: from.there("/tree"),
            target: to.there("/copy"),
            way: Way::Any,
            options: TreeOptions::default(),
        }),
    ];
    for job in jobs {
        start(&job.to_json().unwrap()).wait().unwrap();
    }
    assert_equal(&from.folders.there("file"), &to.folders.there("file"));
    assert_same_trees(&from.folders.there("tree"), &to.folders.there("copy"));
}

/// Within this machine no session is asked for.
#[test]
fn jobs_stay_on_this_machine() {
    let folders = Folders::new(949);
    fs::create_dir(folders.here("tree")).unwrap();
    let file = folders.make_here("tree/a", 3 << 20);
    let local = |name: &str| JobPlace::Local(folders.here(name));
    let jobs = [
        Job::File(FileJob {
            source: local("tree/a"),
            target: local("file"),
            way: Way::Any,
            options: TransferOptions::default(),
            retry: RetryPolicy::default(),
        }),
        Job::Tree(TreeJob {
            source: local("tree"),
            target: local("copy"),
            way: Way::Any,
            options: TreeOptions::default(),
        }),
        Job::Sync(SyncJob {
            source: local("tree"),
            target: local("same"),
            way: Way::Any,
            options: SyncOptions::default(),
        }),
    ];
    let refuse = |place: &RemotePlace| Err(Fault::new(Code::Internal, "ask", place.to_string()));
    for job in jobs {
        let job = Job::from_json(&job.to_json().unwrap()).unwrap();
        job.start(refuse).unwrap().wait().unwrap();
    }
    assert_equal(&file, &folders.here("file"));
    for copy in ["copy", "same"] {
        assert_same_trees(&folders.here("tree"), &folders.here(copy));
    }
}

fn removal(place: JobPlace, recursive: bool) -> Result<u64, Fault> {
    let job = Job::Remove(RemoveJob {
        place,
        recursive,
        retry: RetryPolicy::default(),
    });
    let text = job.to_json()?;
    match Job::from_json(&text)?.start(connect)?.wait()? {
        JobResult::Removed { names: Some(names) } => Ok(names),
        other => panic!("it was removed in one attempt: {other:?}"),
    }
}

#[test]
fn remove_jobs_remove() {
    let scene = Scene::new(949, true);
    let here = |name: &str| JobPlace::Local(scene.folders.here(name));
    let sides = [
        (scene.folders.here("d"), here("d")),
        (scene.folders.there("d"), scene.there("/d")),
    ];
    for (path, place) in sides {
        for name in ["a/b", "c"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        fs::write(path.join("c/file"), "x").unwrap();
        let full = removal(place.clone(), false).unwrap_err();
        assert_eq!(full.code, Code::NotEmpty);
        assert!(path.exists());
        assert_eq!(removal(place.clone(), true).unwrap(), 5);
        assert!(!path.exists());
        assert_eq!(
            removal(place.clone(), true).unwrap_err().code,
            Code::NotFound
        );
        fs::create_dir(&path).unwrap();
        assert_eq!(removal(place.clone(), false).unwrap(), 1);
        fs::write(&path, "x").unwrap();
        assert_eq!(removal(place, false).unwrap(), 1);
        assert!(!path.exists());
    }
    for place in [
        scene.there("/"),
        scene.there(""),
        scene.there("/a/.."),
        here("."),
        here("x/.."),
    ] {
        let fault = removal(place.clone(), true).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{place:?}");
    }
    assert!(scene.folders.root().exists());
}

/// A link isn't followed, whatever stands behind it.
#[cfg(unix)]
#[test]
fn remove_jobs_follow_no_links() {
    let scene = Scene::new(950, true);
    let kept = scene.folders.there("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("kept", scene.folders.there("link")).unwrap();
    let fault = removal(scene.there("/link/"), true).unwrap_err();
    assert_eq!(fault.code, Code::NotDirectory);
    assert_eq!(removal(scene.there("/link"), true).unwrap(), 1);
    assert!(kept.join("file").exists());
}

#[test]
fn places_that_dont_suit_are_refused() {
    let local = || JobPlace::Local("a".into());
    let server = || JobPlace::Server("xdfs://127.0.0.1:1/a".parse().unwrap());
    let file = |source, target| {
        Job::File(FileJob {
            source,
            target,
            way: Way::Any,
            options: TransferOptions::default(),
            retry: RetryPolicy::default(),
        })
    };
    let tree = |source, target| {
        Job::Tree(TreeJob {
            source,
            target,
            way: Way::Any,
            options: TreeOptions::default(),
        })
    };
    let sync = |source, target| {
        Job::Sync(SyncJob {
            source,
            target,
            way: Way::Any,
            options: SyncOptions::default(),
        })
    };
    for job in [
        file(local(), JobPlace::Standard),
        tree(local(), JobPlace::Memory),
        tree(JobPlace::Standard, server()),
        sync(server(), JobPlace::Memory),
        sync(JobPlace::Standard, local()),
    ] {
        let fault = job.start(connect).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{job:?}");
    }
}

/// The faults of what the caller adds are those of the job, even a panic.
#[test]
fn a_job_without_a_session_fails() {
    let place = JobPlace::Server("xdfs://127.0.0.1:1/a".parse().unwrap());
    let job = Job::Remove(RemoveJob {
        place,
        recursive: true,
        retry: RetryPolicy::default(),
    });
    let refuse = |_: &RemotePlace| Err(Fault::new(Code::AuthenticationFailed, "connect", "no key"));
    let fault = job.start(refuse).unwrap().wait().unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    let panics = |_: &RemotePlace| -> Result<Arc<Client>, Fault> { panic!("on purpose") };
    let fault = job.start(panics).unwrap().wait().unwrap_err();
    assert_eq!(fault.code, Code::Internal);
}

/// What the caller returns is used: one session for many jobs.
#[test]
fn jobs_share_a_session() {
    let scene = Scene::new(951, true);
    let opened = Arc::new(AtomicUsize::new(0));
    let open: Arc<Mutex<Option<Arc<Client>>>> = Arc::default();
    let jobs: Vec<RunningJob> = (0..20_u64)
        .map(|number| {
            let name = number.to_string();
            let job = Job::File(FileJob {
                source: JobPlace::Local(scene.folders.make_here(&name, number * 100)),
                target: scene.there(&format!("/{name}")),
                way: Way::Any,
                options: TransferOptions::default(),
                retry: RetryPolicy::default(),
            });
            let (opened, open) = (Arc::clone(&opened), Arc::clone(&open));
            let shared = move |server: &RemotePlace| {
                let mut open = open.lock().unwrap();
                if open.is_none() {
                    opened.fetch_add(1, Ordering::Relaxed);
                    *open = Some(connect(server)?);
                }
                Ok(Arc::clone(open.as_ref().unwrap()))
            };
            job.start(shared).unwrap()
        })
        .collect();
    for (number, job) in (0..).zip(&jobs) {
        assert!(
            matches!(job.wait().unwrap(), JobResult::File(result) if result.bytes == number * 100)
        );
        assert!(job.event(Duration::ZERO).is_none());
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
