//! Secrets: jobs log in to servers with them, and nothing shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use xdfs::security::{ServerSecurity, UsersFile, make_key};
use xdfs::{Fault, ServerBuilder, ServerHandle};
use xdfs_service::{JobDetail, Scope, StateName};

use super::users::{scene_of_users, set_secret};
use super::{Scene, status, text};

const PASSWORD: &str = "correct horse battery staple";

/// A server that its user dave logs in to, by password or by key.
struct Protected {
    server: ServerHandle,
    thread: Option<JoinHandle<Result<(), Fault>>>,
    address: String,
    pin: String,
    folder: PathBuf,
}

impl Protected {
    fn new(folder: &Path) -> Self {
        let folder = folder.join("protected");
        let (root, own) = (folder.join("root"), folder.join("server"));
        for folder in [&folder, &root, &own, &own.join("keys")] {
            fs::create_dir(folder).unwrap();
        }
        UsersFile::new(own.join("users"))
            .add("dave", PASSWORD)
            .unwrap();
        let server = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root,
            security: Some(ServerSecurity::new(own, "owner".to_owned())),
            ..ServerBuilder::default()
        };
        let server = server.bind().unwrap();
        Self {
            server: server.handle(),
            address: server.addresses()[0].to_string(),
            pin: server.fingerprint().unwrap().to_string(),
            thread: Some(thread::spawn(move || server.run())),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("root").join(name)
    }

    fn server(&self) -> String {
        format!("xdfs://dave@{}", self.address)
    }

    fn place(&self, name: &str) -> String {
        format!("{}/{name}?pin={}", self.server(), self.pin)
    }

    /// A copy on this server, of a file that is there.
    fn copy(&self, target: &str, secrets: &[&str]) -> Value {
        fs::write(self.path("source"), "content").unwrap();
        json!({"version": 1, "retries_max": 0, "secrets": secrets, "transfers": [
            {"file": {"source": self.place("source"), "target": self.place(target)}}]})
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.server.shutdown();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Submits a job and waits for its end.
#[track_caller]
fn run(scene: &Scene, authorization: &str, job: &Value) -> JobDetail {
    let submitted = scene.post(authorization, "/api/v1/jobs", &job.to_string());
    let code = status(&submitted);
    let answer = text(submitted);
    assert_eq!(code, 201, "{answer}");
    let job: JobDetail = serde_json::from_str(&answer).unwrap();
    scene.until_ended(job.job.id)
}

/// The files beneath a folder with their content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn a_job_logs_in_by_a_secret_that_nothing_shows() {
    let scene = scene_of_users();
    let server = Protected::new(&scene.path(""));
    let [alice, bob] = ["alice", "bob"].map(|name| scene.bearer(name, Scope::Admin));
    let lab = json!({"kind": "password", "value": PASSWORD, "server": server.server()});
    let mut answers = vec![set_secret(&scene, &alice, "lab", &lab, 200)];

    // All jobs of its user log in with it.
    let done = run(&scene, &alice, &server.copy("by-server", &[]));
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert_eq!(fs::read(server.path("by-server")).unwrap(), b"content");
    // And those of no other user.
    let failed = run(&scene, &bob, &server.copy("not-there", &[]));
    assert_eq!(failed.job.failure.unwrap().code, "authentication-failed");
    assert_eq!(
        status(&scene.post(
            &bob,
            "/api/v1/jobs",
            &server.copy("x", &["lab"]).to_string()
        )),
        422
    );
    let list = |user: &str| text(scene.get(user, "/api/v1/secrets"));
    answers.extend([
        list(&alice),
        list(&scene.token()),
        text(scene.get(&alice, "/settings")),
    ]);
    assert!(
        answers[1].contains("\"lab\"") && answers[3].contains("lab"),
        "{answers:?}"
    );
    for other in [&bob, &scene.token()] {
        assert_eq!(list(other), "{\"secrets\":[]}");
        assert_eq!(status(&scene.delete(other, "/api/v1/secrets/lab")), 404);
    }

    // Another one takes its place at once, in sessions that are open too.
    let wrong = json!({"kind": "password", "value": "wrong", "server": server.server()});
    set_secret(&scene, &alice, "lab", &wrong, 200);
    let failed = run(&scene, &alice, &server.copy("not-there", &[]));
    assert_eq!(failed.job.failure.unwrap().code, "authentication-failed");
    assert_eq!(status(&scene.delete(&alice, "/api/v1/secrets/lab")), 204);
    assert_eq!(status(&scene.delete(&alice, "/api/v1/secrets/lab")), 404);

    // One for any server is used by the jobs that name it.
    let any = json!({"kind": "password", "value": PASSWORD});
    answers.push(set_secret(&scene, &alice, "any", &any, 200));
    let failed = run(&scene, &alice, &server.copy("not-there", &[]));
    assert_eq!(failed.job.state, StateName::Failed);
    let done = run(&scene, &alice, &server.copy("by-name", &["any"]));
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert!(server.path("by-name").exists() && !server.path("not-there").exists());
    answers.push(format!("{done:?}"));

    // A job whose secret is gone says so.
    let mut later = server.copy("later", &["any"]);
    later["transfers"][0]["file"]["source"] = server.place("missing").into();
    let failed = run(&scene, &alice, &later);
    assert_eq!(status(&scene.delete(&alice, "/api/v1/secrets/any")), 204);
    let id = failed.job.id;
    assert_eq!(
        status(&scene.post(&alice, &format!("/api/v1/jobs/{id}:retry"), "")),
        200
    );
    let failed = scene.until_ended(id).job.failure.unwrap();
    assert_eq!(
        (failed.code.as_str(), failed.path.as_deref()),
        ("not-found", Some("any"))
    );

    for answer in answers {
        assert!(!answer.contains(PASSWORD), "{answer}");
    }
    let files = contents(&scene.path("data"));
    assert!(files.iter().any(|(path, _)| path.ends_with("service.db")));
    let hidden = [
        PASSWORD.to_owned(),
        PASSWORD.bytes().map(|byte| format!("{byte:02x}")).collect(),
    ];
    for (path, content) in files {
        for text in &hidden {
            let found = content
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn a_job_logs_in_by_the_text_of_a_key() {
    let scene = scene_of_users();
    let server = Protected::new(&scene.path(""));
    let alice = scene.bearer("alice", Scope::Admin);
    let file = scene.path("key");
    let key = make_key(&file, "dave").unwrap();
    let list = server.folder.join("server/keys/dave");
    fs::copy(file.with_extension("pub"), list).unwrap();
    let value = fs::read_to_string(&file).unwrap();
    let secret = json!({"kind": "key", "value": value, "server": server.server()});
    set_secret(&scene, &alice, "lab", &secret, 200);
    let done = run(&scene, &alice, &server.copy("copied", &[]));
    assert_eq!(
        done.job.state,
        StateName::Succeeded,
        "{done:#?} {}",
        key.fingerprint()
    );
    assert_eq!(fs::read(server.path("copied")).unwrap(), b"content");
}

#[test]
fn what_is_no_secret_is_refused_without_being_shown() {
    let scene = scene_of_users();
    let alice = scene.bearer("alice", Scope::Admin);
    let value = "do not show";
    let long = "x".repeat(1025);
    for (name, secret, expected) in [
        ("a", json!({}), 400),
        ("a", json!({"kind": value, "value": value}), 400),
        ("a", json!({"kind": "password", "value": [value]}), 400),
        (
            "a",
            json!({"kind": "password", "value": value, "more": value}),
            400,
        ),
        ("a", json!({"kind": "password", "value": ""}), 422),
        (
            "a",
            json!({"kind": "password", "value": "do not show\n"}),
            422,
        ),
        ("a", json!({"kind": "password", "value": long}), 422),
        ("a", json!({"kind": "key", "value": value}), 422),
        (
            "a",
            json!({"kind": "token", "value": value, "server": "nowhere"}),
            422,
        ),
        (
            "a",
            json!({"kind": "token", "value": value, "server": "ssh://host"}),
            422,
        ),
        (
            "a",
            json!({"kind": "token", "value": value, "server": "xdfs://host/path"}),
            422,
        ),
        ("%2e%2e", json!({"kind": "token", "value": value}), 422),
        ("a%2fb", json!({"kind": "token", "value": value}), 422),
    ] {
        let answer = set_secret(&scene, &alice, name, &secret, expected);
        assert!(!answer.contains(value), "{answer}");
    }
    let scope = scene.bearer("alice", Scope::Submit);
    set_secret(
        &scene,
        &scope,
        "a",
        &json!({"kind": "token", "value": value}),
        403,
    );
    assert_eq!(status(&scene.get(&scope, "/api/v1/secrets")), 403);
}
