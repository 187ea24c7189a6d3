//! Bad input and trouble that no other file of these tests has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use xdfs::Code;
use xdfs_service::{JobSettings, Service, ServiceClient, StateName, Submission};
use xdfs_testkit::{skip, wait};

use super::{PATIENCE, Scene, agent, options, status, text};

#[test]
fn no_answer_can_be_framed_or_taken_for_something_else() {
    let scene = Scene::new();
    for path in [
        "/",
        "/new",
        "/servers",
        "/settings",
        "/login",
        "/page.js",
        "/icon.svg",
        "/none",
        "/api/v1/jobs",
        "/api/v1/jobs/x",
        "/api/v1/openapi.json",
        "/healthz",
        "/metrics",
    ] {
        for token in [scene.token(), String::new()] {
            let request = agent().get(format!("{}{path}", scene.url));
            let answer = request.header("Authorization", token).call().unwrap();
            let headers = answer.headers();
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert!(
                policy.contains("frame-ancestors 'none'"),
                "{path}: {policy}"
            );
            assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
            assert_eq!(headers["x-frame-options"], "DENY", "{path}");
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
            assert!(headers.contains_key("cache-control"), "{path}");
        }
    }
}

#[test]
fn sql_is_text_wherever_it_stands() {
    const SQL: &str = "' OR 1=1; DROP TABLE jobs; --";
    let encoded: String = SQL.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let scene = Scene::new();
    let file = scene.path(SQL);
    fs::write(&file, "content").unwrap();
    let mut submission = Submission::new(SQL, vec![scene.upload(&file, SQL, None)]);
    submission.manifest = true;
    let client = scene.client();
    let id = client.submit(&submission, SQL).unwrap().job.id;
    let done = scene.until_ended(id);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert_eq!(done.job.label, SQL);
    let again = client.submit(&submission, SQL).unwrap().job;
    assert_eq!(again.id, id);
    let other = scene.upload(&scene.path("none"), "none", None);
    let failed = client.submit(&Submission::new("other", vec![other]), "2");
    let failed = failed.unwrap().job.id;
    scene.until_ended(failed);

    let get = |path: &str| {
        let request = agent().get(format!("{}{path}", scene.url));
        let request = request.header("Authorization", scene.token());
        let answer = request.call().unwrap();
        (status(&answer), text(answer))
    };
    // A filter finds what has it, and nothing else.
    let (code, found) = get(&format!("/api/v1/jobs?label={encoded}"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((code, found["jobs"].as_array().unwrap().len()), (200, 1));
    for (path, expected) in [
        (format!("/api/v1/jobs?state={encoded}"), 422),
        (format!("/api/v1/jobs?after={encoded}"), 422),
        (format!("/api/v1/jobs?limit={encoded}"), 400),
        (format!("/api/v1/jobs/{encoded}"), 422),
        (
            format!("/api/v1/jobs/{failed}/failures?text={encoded}"),
            200,
        ),
        (
            format!("/api/v1/jobs/{failed}/transfers?state={encoded}"),
            422,
        ),
        (format!("/api/v1/jobs/{id}/files?after={encoded}"), 422),
        (format!("/api/v1/schedules?after={encoded}"), 422),
        (format!("/api/v1/schedules/{encoded}"), 422),
        (format!("/api/v1/places?at={encoded}"), 422),
        (format!("/?label={encoded}"), 200),
        (format!("/jobs/{failed}/failures?text={encoded}"), 200),
    ] {
        assert_eq!(get(&path).0, expected, "{path}");
    }
    let settings: JobSettings = serde_json::from_value(json!({"label": SQL})).unwrap();
    assert_eq!(client.set(failed, &settings).unwrap().job.label, SQL);
    let revoked = client.revoke_token(SQL).unwrap_err();
    assert_eq!(revoked.code, Code::NotFound);
    let removed = client.remove_secret(SQL).unwrap_err();
    assert_eq!(removed.code, Code::NotFound);
    let cookie = format!(
        "xdfs-service-{}={SQL}",
        scene.url.rsplit(':').next().unwrap()
    );
    let asked = agent()
        .get(format!("{}/", scene.url))
        .header("Cookie", cookie);
    assert_eq!(status(&asked.call().unwrap()), 401);
    assert_eq!(client.jobs(None, None, 10).unwrap().jobs.len(), 2);
}

#[test]
fn changes_at_the_same_time_leave_a_job_in_one_state() {
    const ROUNDS: usize = 12;
    let scene = Scene::with_workers(2);
    let file = scene.path("file");
    fs::write(&file, vec![7; 200_000]).unwrap();
    for round in 0..ROUNDS {
        let name = format!("copy-{round}");
        let transfers = vec![scene.upload(&file, &name, Some(400_000))];
        let client = scene.client();
        let id = client.submit(&Submission::new("", transfers), &name);
        let id = id.unwrap().job.id;
        std::thread::scope(|threads| {
            for change in ["cancel", "pause", "retry", "resume", "delete"] {
                let client = scene.client();
                threads.spawn(move || {
                    for _ in 0..4 {
                        let changed = match change {
                            "delete" => client.delete(id),
                            change => client.change(id, change).map(drop),
                        };
                        // It may be impossible in the state that the others have left.
                        if let Err(fault) = changed {
                            let is_known = matches!(fault.code, Code::Stale | Code::NotFound);
                            assert!(is_known, "{change}: {fault}");
                        }
                    }
                });
            }
        });
        // Whatever came first: it can be ended, and then deleted.
        let ended = wait::until(PATIENCE, || {
            let _ = client.change(id, "cancel");
            match client.job(id) {
                Ok(detail) => detail.job.state.is_end(),
                Err(fault) => fault.code == Code::NotFound,
            }
        });
        assert!(ended, "{:?}", client.job(id));
        if let Ok(detail) = client.job(id) {
            let mut before = None;
            for one in &detail.transitions {
                assert_eq!(one.from, before, "{:#?}", detail.transitions);
                before = Some(one.to);
            }
            client.delete(id).unwrap();
        }
        assert_eq!(client.job(id).unwrap_err().code, Code::NotFound);
    }
    // Nothing of them holds a worker.
    let transfers = vec![scene.upload(&file, "last", None)];
    let last = scene
        .client()
        .submit(&Submission::new("", transfers), "last");
    let last = scene.until_ended(last.unwrap().job.id);
    assert_eq!(last.job.state, StateName::Succeeded, "{last:#?}");
}

/// A small file system in memory.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=2m", "xdfs-test"]);
        match command.arg(at).output() {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                skip::test(format!("no file system can be mounted: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_beneath_the_database_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(tiny) = Tiny::mount(&disk) else {
        return;
    };
    let data = disk.join("data");
    let service = Service::bind(options(data.clone()));
    let service = service.unwrap();
    let handle = service.handle();
    let running = std::thread::spawn(move || service.run());
    let client = ServiceClient::new(&data, None).unwrap();
    let submit = |key: &str| {
        // They wait: no worker takes them for an hour.
        let body = json!({"version": 1, "label": key, "starts_at": "1h", "transfers": [
            {"file": {"source": "/none", "target": "xdfs://127.0.0.1:1/x"}}]});
        let submission: Submission = serde_json::from_value(body).unwrap();
        client.submit(&submission, key)
    };
    submit("first").unwrap();
    // What is left, but for the last pages.
    let filler = disk.join("filler");
    let mut size = 2 << 20;
    while size >= 1024 {
        let before = fs::metadata(&filler).map_or(0, |found| found.len());
        let grown = vec![1; usize::try_from(before).unwrap() + size];
        if fs::write(&filler, grown).is_err() {
            size /= 2;
        }
    }
    let mut stored = vec!["first".to_owned()];
    let mut refused = None;
    for number in 0..200 {
        let key = number.to_string();
        match submit(&key) {
            Ok(_) => stored.push(key),
            Err(fault) => {
                refused = Some((key, fault));
                break;
            }
        }
    }
    let (key, fault) = refused.unwrap();
    assert_eq!(fault.code, Code::Io, "{fault}");
    // What is there is read, and with space the same request succeeds, once.
    let labels = || -> Vec<_> {
        let jobs = client.jobs(None, None, 1000).unwrap().jobs;
        jobs.into_iter().rev().map(|job| job.label).collect()
    };
    assert_eq!(labels(), stored);
    fs::remove_file(&filler).unwrap();
    let mut again = submit(&key);
    let came = wait::until(PATIENCE, || {
        again = submit(&key);
        again.is_ok()
    });
    assert!(came, "{again:?}");
    stored.push(key);
    assert_eq!(labels(), stored);
    handle.shutdown();
    running.join().unwrap().unwrap();
    drop(tiny);
}
