//! Lists of files and signed manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use xdfs::{Code, Job, JobPlace, SyncJob, SyncOptions, TreeJob, TreeOptions, Way};
use xdfs_service::{
    FilePage, JobDetail, JobId, Manifest, StateName, Submission, manifest_key_file,
    read_manifest_key,
};

use super::{Scene, agent, status, text};

/// A tree of small files and a large one.
fn make_tree(tree: &Path) {
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for number in 0..40 {
        fs::write(tree.join(format!("deep/er/{number}")), number.to_string()).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
}

fn tree_job(scene: &Scene, tree: &Path, target: &str) -> Job {
    Job::Tree(TreeJob {
        source: JobPlace::Local(tree.to_owned()),
        target: scene.server_place(target),
        way: Way::Any,
        options: TreeOptions::default(),
    })
}

fn submit(scene: &Scene, key: &str, transfers: Vec<Job>) -> JobId {
    let mut submission = Submission::new("listed", transfers);
    submission.manifest = true;
    scene.client().submit(&submission, key).unwrap().job.id
}

#[track_caller]
fn succeeded(scene: &Scene, id: JobId) -> JobDetail {
    let done = scene.until_ended(id);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    done
}

/// The files of a manifest, verified, with their BLAKE3.
fn manifest(scene: &Scene, id: JobId) -> BTreeMap<(u32, String), String> {
    let path = scene.path("manifest");
    let mut bytes = Vec::new();
    let take = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    scene.client().manifest(id, take).unwrap();
    fs::write(&path, &bytes).unwrap();
    let key = read_manifest_key(&manifest_key_file(&scene.path("data"))).unwrap();
    let files = Manifest::open(&path, &key).unwrap().map(|file| {
        let file = file.unwrap();
        let name = String::from_utf8(file.path.as_bytes().to_vec()).unwrap();
        ((file.position, name), file.blake3)
    });
    files.collect()
}

/// The files of a tree, as a manifest has them.
fn expected(position: u32, tree: &Path) -> BTreeMap<(u32, String), String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![tree.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let name = path
                .strip_prefix(tree)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            found.insert((position, name), blake3(&path));
        }
    }
    found
}

fn blake3(path: &Path) -> String {
    use xdfs::operations::{PathSide, Sums};
    let side = PathSide::Local;
    let mut sums = Sums::new(&side, xdfs::ChecksumKind::Blake3);
    sums.push(
        path.as_os_str().as_encoded_bytes().to_vec(),
        Vec::new(),
        None,
    );
    sums.pop().unwrap().digest.unwrap().0.hex()
}

#[test]
fn a_finished_job_has_a_manifest_of_all_its_files() {
    let scene = Scene::new();
    let (file, tree) = (scene.path("file"), scene.path("tree"));
    fs::write(&file, "content").unwrap();
    make_tree(&tree);
    let transfers = vec![
        scene.upload(&file, "copied", None),
        tree_job(&scene, &tree, "trees"),
    ];
    let id = submit(&scene, "1", transfers);
    let done = succeeded(&scene, id);
    assert!(done.job.manifest);
    let mut all = expected(1, &tree);
    all.insert((0, "copied".to_owned()), blake3(&file));
    assert_eq!(manifest(&scene, id), all);

    // Page by page.
    let get = |path: String| {
        let request = agent().get(format!("{}{path}", scene.url));
        request
            .header("Authorization", scene.token())
            .call()
            .unwrap()
    };
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/jobs/{id}/files?limit=20{after}");
        let page: FilePage = serde_json::from_str(&text(get(path))).unwrap();
        assert!(page.files.len() <= 20);
        let name = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        for file in page.files {
            let path = name(file.path.as_bytes());
            // Small files of a tree go together with others.
            let is_own = file.position == 0 || path == "large";
            assert_eq!(file.attempts, 1, "{path}");
            assert_eq!(file.rate_bytes_per_s.is_some(), is_own, "{path}");
            assert_eq!(file.limited_by.is_some(), is_own, "{path}");
            names.push((file.position, path));
        }
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, all.into_keys().collect::<Vec<_>>());
    let answer = get(format!("/api/v1/jobs/{id}/files?after=%27;--"));
    assert_eq!(status(&answer), 422);
    let page = text(get(format!("/jobs/{id}")));
    assert!(page.contains(&format!("/jobs/{id}/manifest")), "{page}");
    let page = text(get(format!("/jobs/{id}/files")));
    let shown = ["deep/er/39", "large", "3.15 MB", "/s</td>"];
    assert!(shown.iter().all(|text| page.contains(text)), "{page}");

    // One that keeps no list, and one that has not succeeded.
    let plain = Submission::new("", vec![scene.upload(&file, "plain", None)]);
    let plain = scene.client().submit(&plain, "2").unwrap().job.id;
    succeeded(&scene, plain);
    let missing = submit(
        &scene,
        "3",
        vec![scene.upload(&scene.path("none"), "none", None)],
    );
    scene.until_ended(missing);
    for (id, code) in [(plain, Code::NotFound), (missing, Code::Stale)] {
        let refused = scene.client().manifest(id, |_| Ok(())).unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
    }
    let page = text(get(format!("/api/v1/jobs/{plain}/files")));
    assert_eq!(page, r#"{"files":[],"next":null}"#);
}

#[test]
fn a_job_without_a_manifest_shows_each_of_its_files_too() {
    let scene = Scene::new();
    let (file, tree) = (scene.path("file"), scene.path("tree"));
    fs::write(&file, "content").unwrap();
    make_tree(&tree);
    let transfers = vec![
        scene.upload(&file, "copied", None),
        tree_job(&scene, &tree, "trees"),
    ];
    let submission = Submission::new("", transfers);
    let id = scene.client().submit(&submission, "1").unwrap().job.id;
    let done = succeeded(&scene, id);
    let single = &done.transfers[0];
    let digest = single.digest.as_deref().unwrap_or_default();
    assert!(digest.starts_with("crc64nvme:"), "{single:?}");
    assert!(single.mean_rate_bytes_per_s.is_some(), "{single:?}");
    assert_eq!(done.transfers[1].digest, None);
    let get = |path: String| {
        let request = agent().get(format!("{}{path}", scene.url));
        text(
            request
                .header("Authorization", scene.token())
                .call()
                .unwrap(),
        )
    };
    let page: FilePage =
        serde_json::from_str(&get(format!("/api/v1/jobs/{id}/files?limit=1000"))).unwrap();
    let mut names = BTreeMap::new();
    for file in page.files {
        let path = String::from_utf8(file.path.as_bytes().to_vec()).unwrap();
        let bytes = fs::metadata(tree.join(&path)).unwrap().len();
        assert_eq!((file.position, file.bytes, file.attempts), (1, bytes, 1));
        let digest = file.digest.unwrap_or_default();
        assert!(digest.starts_with("crc64nvme:"), "{path}: {digest}");
        let is_own = path == "large";
        assert_eq!(file.rate_bytes_per_s.is_some(), is_own, "{path}");
        assert_eq!(file.limited_by.is_some(), is_own, "{path}");
        assert_eq!(names.insert((1, path), ()), None);
    }
    let all = expected(1, &tree).into_keys();
    assert_eq!(
        names.into_keys().collect::<Vec<_>>(),
        all.collect::<Vec<_>>()
    );
    let link = format!("/jobs/{id}/files");
    assert!(get(format!("/jobs/{id}")).contains(&link));
    let page = get(link);
    let shown = ["deep/er/39", "large", "3.15 MB", "crc64nvme:"];
    assert!(shown.iter().all(|text| page.contains(text)), "{page}");
}

#[test]
fn a_manifest_lists_what_was_there_before_too() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    make_tree(&tree);
    let sync = || {
        vec![Job::Sync(SyncJob {
            source: JobPlace::Local(tree.clone()),
            target: scene.server_place("synced"),
            way: Way::Any,
            options: SyncOptions {
                delete: true,
                ..SyncOptions::default()
            },
        })]
    };
    let first = submit(&scene, "1", sync());
    succeeded(&scene, first);
    assert_eq!(manifest(&scene, first), expected(0, &tree));
    // One file is new, one is another, one is gone, and the others are the same.
    fs::write(tree.join("new"), "new").unwrap();
    fs::write(tree.join("large"), "now small").unwrap();
    fs::remove_file(tree.join("empty")).unwrap();
    let second = submit(&scene, "2", sync());
    succeeded(&scene, second);
    let all = expected(0, &tree);
    assert_eq!(all.len(), 42);
    assert_eq!(manifest(&scene, second), all);
}

#[test]
fn a_tree_that_was_paused_is_listed_as_a_whole() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..16 {
        fs::write(tree.join(number.to_string()), vec![number; 1 << 20]).unwrap();
    }
    let Job::Tree(mut job) = tree_job(&scene, &tree, "trees") else {
        unreachable!("it is a tree");
    };
    job.options.parameters.rate_bytes_per_s_max = Some(8_000_000);
    let id = submit(&scene, "1", vec![Job::Tree(job)]);
    scene.until(id, |detail| detail.job.counts.files > 2);
    scene.client().change(id, "pause").unwrap();
    scene.until(id, |detail| detail.job.state == StateName::Paused);
    scene.client().change(id, "resume").unwrap();
    let done = succeeded(&scene, id);
    assert_eq!(done.transfers[0].attempts, 2);
    assert_eq!(manifest(&scene, id), expected(0, &tree));
}

#[test]
fn the_rate_of_a_file_is_that_of_the_time_in_which_it_was_copied() {
    const LIMIT: u64 = 2_000_000;
    let scene = Scene::new();
    let tree = scene.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["one", "other"] {
        fs::write(tree.join(name), vec![7; 3_000_000]).unwrap();
    }
    let mut job = tree_job(&scene, &tree, "tree");
    if let Job::Tree(tree) = &mut job {
        tree.options.parameters.rate_bytes_per_s_max = Some(LIMIT);
    }
    let id = submit(&scene, "1", vec![job]);
    succeeded(&scene, id);
    let request = agent().get(format!("{}/api/v1/jobs/{id}/files", scene.url));
    let request = request.header("Authorization", scene.token());
    let page: FilePage = serde_json::from_str(&text(request.call().unwrap())).unwrap();
    assert_eq!(page.files.len(), 2);
    for one in page.files {
        // They go at the same time, and a limit may begin with more than it has later.
        let rate = one.rate_bytes_per_s.unwrap();
        assert!(rate > 0 && rate < 3 * LIMIT, "{rate}");
    }
}
