//! The operations of programs with places, done with places in memory.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Once};

use xdfs::operations::{Check, CheckOptions, CheckStep, PathSide, SidePath};
use xdfs::{
    Client, ClientOptions, Code, Fault, Job, JobPlace, JobResult, RemotePlace, SyncJob,
    SyncOptions, TreeJob, TreeOptions,
};

fn place(url: &str) -> RemotePlace {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| xdfs::register_scheme(xdfs_place_mem::SCHEME).unwrap());
    url.parse().unwrap()
}

fn connect(place: &RemotePlace) -> Result<Arc<Client>, Fault> {
    Client::connect(place, ClientOptions::default()).map(Arc::new)
}

/// Small files, large ones, and directories within each other.
fn make_tree(root: &Path) {
    for directory in ["d/e", "empty"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (name, length) in [("a", 0), ("d/b", 10), ("d/e/c", 5000), ("large", 3 << 20)] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| (at ^ at >> 9) as u8).collect();
        fs::write(root.join(name), bytes).unwrap();
    }
}

fn copy(source: JobPlace, target: JobPlace) -> JobResult {
    let job = Job::Tree(TreeJob {
        source,
        target,
        way: Default::default(),
        options: TreeOptions::default(),
    });
    // A job is a text, with places of any kind in it.
    let job = Job::from_json(&job.to_json().unwrap()).unwrap();
    job.start(connect).unwrap().wait().unwrap()
}

fn sync(source: JobPlace, target: JobPlace, options: SyncOptions) {
    let job = Job::Sync(SyncJob {
        source,
        target,
        way: Default::default(),
        options,
    });
    job.start(connect).unwrap().wait().unwrap();
}

/// The paths that differ, and how many don't.
fn differences(one: &SidePath, other: &SidePath) -> (Vec<Vec<u8>>, usize) {
    let (mut different, mut equal) = (Vec::new(), 0);
    let attributes = [one, other].map(|path| path.stat(true).unwrap());
    let options = CheckOptions::default();
    for step in Check::new([one, other], attributes, &options).unwrap() {
        match step {
            CheckStep::Equal => equal += 1,
            CheckStep::Different(difference) => different.push(difference.path),
            CheckStep::Failed(_, fault) => panic!("{fault}"),
        }
    }
    (different, equal)
}

fn remote(place: &RemotePlace) -> SidePath {
    SidePath::new(PathSide::Remote(connect(place).unwrap()), &place.path)
}

fn local(path: &Path) -> SidePath {
    SidePath::new(PathSide::Local, path.as_os_str().as_encoded_bytes())
}

#[test]
fn trees_go_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let [from, back] = ["from", "back"].map(|name| folder.path().join(name));
    make_tree(&from);
    let [there, beside] = [place("mem://copies/there"), place("mem://others/there")];
    copy(
        JobPlace::Local(from.clone()),
        JobPlace::Server(there.clone()),
    );
    assert_eq!(differences(&local(&from), &remote(&there)), (vec![], 7));
    // From one place to another one, and home.
    copy(JobPlace::Server(there), JobPlace::Server(beside.clone()));
    copy(JobPlace::Server(beside), JobPlace::Local(back.clone()));
    assert_eq!(differences(&local(&from), &local(&back)), (vec![], 7));
}

#[test]
fn trees_are_synchronised() {
    let folder = tempfile::tempdir().unwrap();
    let [from, back] = ["from", "back"].map(|name| folder.path().join(name));
    make_tree(&from);
    let there = place("mem://syncs/there");
    let options = SyncOptions {
        delete: true,
        force: true,
        ..SyncOptions::default()
    };
    sync(
        JobPlace::Local(from.clone()),
        JobPlace::Server(there.clone()),
        options.clone(),
    );
    fs::remove_dir_all(from.join("d/e")).unwrap();
    fs::write(from.join("d/b"), "changed").unwrap();
    let (different, _) = differences(&local(&from), &remote(&there));
    assert_eq!(different, [&b"d/b"[..], b"d/e", b"d/e/c"]);
    sync(
        JobPlace::Local(from.clone()),
        JobPlace::Server(there.clone()),
        options.clone(),
    );
    assert_eq!(differences(&local(&from), &remote(&there)).0, [b""; 0]);
    fs::create_dir(&back).unwrap();
    sync(
        JobPlace::Server(there),
        JobPlace::Local(back.clone()),
        options,
    );
    assert_eq!(differences(&local(&from), &local(&back)).0, [b""; 0]);
}

#[test]
fn what_a_place_lacks_is_refused_and_named() {
    let there = place("mem://refusals/there");
    assert_eq!(there.to_string(), "mem://refusals/there");
    let client = connect(&there).unwrap();
    let call = xdfs::Call::Link {
        existing: b"/a".to_vec(),
        path: b"/b".to_vec(),
    };
    assert_eq!(client.call(call).unwrap_err().code, Code::Unsupported);
    // Backups are kept by hard links.
    let folder = tempfile::tempdir().unwrap();
    let job = Job::Sync(SyncJob {
        source: JobPlace::Local(folder.path().to_owned()),
        target: JobPlace::Server(there),
        way: Default::default(),
        options: SyncOptions {
            backup: Some(b"backup".to_vec()),
            ..SyncOptions::default()
        },
    });
    let fault = job.start(connect).unwrap().wait().unwrap_err();
    assert!(fault.cause.contains("no hard links"), "{fault}");
}
