//! A service in this process, asked over HTTP, with a server that it copies to.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "rest/browser.rs"]
mod browser;
#[path = "rest/certificates.rs"]
mod certificates;
#[path = "rest/deployment.rs"]
mod deployment;
#[path = "rest/hostile.rs"]
mod hostile;
#[path = "rest/interface.rs"]
mod interface;
#[path = "rest/pages.rs"]
mod pages;
#[path = "rest/programs.rs"]
mod programs;
#[path = "rest/schemathesis.rs"]
mod schemathesis;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Response;
use xdfs::{
    Client, ClientOptions, Code, Fault, FileJob, Job, JobPlace, RetryPolicy, ServerBuilder,
    ServerHandle, TransferOptions, TransferParameters, TreeJob, TreeOptions, Way,
};
use xdfs_service::{
    FailurePage, JobDetail, JobId, JobLimits, Service, ServiceClient, ServiceHandle,
    ServiceOptions, ServiceUsers, Sessions, StateName, Submission, TransferState, WebhookOptions,
};
use xdfs_testkit::wait;

#[path = "rest/keys.rs"]
mod keys;
#[path = "rest/manifests.rs"]
mod manifests;
#[path = "rest/secrets.rs"]
mod secrets;
#[path = "rest/terms.rs"]
mod terms;
#[path = "rest/users.rs"]
mod users;
#[path = "rest/webhooks.rs"]
mod webhooks;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server and a service that copies to it.
struct Scene {
    folder: tempfile::TempDir,
    server: ServerHandle,
    server_url: String,
    service: ServiceHandle,
    url: String,
    link: String,
    threads: Vec<JoinHandle<Result<(), Fault>>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.service.shutdown();
        self.server.shutdown();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A service of its owner alone with SQLite in this folder.
fn options(data: PathBuf) -> ServiceOptions {
    ServiceOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        data,
        database: None,
        journals: None,
        lease: PATIENCE,
        public_url: None,
        workers: 1,
        limits: JobLimits::default(),
        keep: None,
        webhooks: WebhookOptions::default(),
        users: None,
        secrets_key: None,
        sessions: Sessions::new(|place| Client::connect(place, ClientOptions::default())),
    }
}

impl Scene {
    fn new() -> Self {
        Self::with_workers(1)
    }

    fn with_workers(workers: usize) -> Self {
        Self::with(workers, WebhookOptions::default())
    }

    fn with(workers: usize, webhooks: WebhookOptions) -> Self {
        Self::with_users(workers, webhooks, |_| None)
    }

    /// A service with the users that `users` makes in a folder.
    fn with_users(
        workers: usize,
        webhooks: WebhookOptions,
        users: impl FnOnce(&Path) -> Option<ServiceUsers>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let server = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root,
            ..ServerBuilder::default()
        };
        let server = server.bind().unwrap();
        let service = Service::bind(ServiceOptions {
            workers,
            webhooks,
            users: users(folder.path()),
            ..options(folder.path().join("data"))
        });
        let service = service.unwrap();
        let scene = (server.handle(), service.handle());
        Self {
            server: scene.0,
            server_url: format!("xdfs://{}", server.addresses()[0]),
            service: scene.1,
            url: service.url(),
            link: service.login_link().unwrap(),
            threads: vec![
                // Its sessions with the server end with it.
                thread::spawn(move || service.run()),
                thread::spawn(move || server.run()),
            ],
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> ServiceClient {
        ServiceClient::new(&self.path("data"), None).unwrap()
    }

    fn token(&self) -> String {
        let token = fs::read_to_string(self.path("data/token")).unwrap();
        format!("Bearer {}", token.trim())
    }

    fn server_place(&self, name: &str) -> JobPlace {
        JobPlace::Server(format!("{}/{name}", self.server_url).parse().unwrap())
    }

    fn upload(&self, source: &Path, target: &str, rate: Option<u64>) -> Job {
        let parameters = TransferParameters {
            rate_bytes_per_s_max: rate,
            ..TransferParameters::default()
        };
        Job::File(FileJob {
            source: JobPlace::Local(source.to_owned()),
            target: self.server_place(target),
            way: Way::Any,
            options: TransferOptions {
                parameters,
                ..TransferOptions::default()
            },
            retry: RetryPolicy::default(),
        })
    }

    /// Waits until the job is as expected.
    #[track_caller]
    fn until(&self, id: JobId, expected: impl Fn(&JobDetail) -> bool) -> JobDetail {
        let client = self.client();
        let mut last = client.job(id).unwrap();
        let came = wait::until(PATIENCE, || {
            last = client.job(id).unwrap();
            expected(&last)
        });
        assert!(came, "{last:#?}");
        last
    }

    #[track_caller]
    fn until_ended(&self, id: JobId) -> JobDetail {
        self.until(id, |detail| detail.job.state.is_end())
    }
}

fn agent() -> Agent {
    let config = Agent::config_builder();
    config
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(PATIENCE))
        .build()
        .new_agent()
}

fn status(answer: &Response<ureq::Body>) -> u16 {
    answer.status().as_u16()
}

fn text(mut answer: Response<ureq::Body>) -> String {
    answer.body_mut().read_to_string().unwrap()
}

#[test]
fn a_job_is_done_and_the_bytes_are_the_same() {
    let scene = Scene::new();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (file, tree) = (scene.path("file"), scene.path("tree"));
    fs::write(&file, &content).unwrap();
    fs::create_dir_all(tree.join("a")).unwrap();
    for number in 0..50 {
        fs::write(tree.join(format!("a/{number}")), number.to_string()).unwrap();
    }
    let transfers = vec![
        scene.upload(&file, "copied", None),
        Job::Tree(TreeJob {
            source: JobPlace::Local(tree),
            target: scene.server_place("trees"),
            way: Way::Any,
            options: TreeOptions::default(),
        }),
    ];
    let client = scene.client();
    let submitted = client
        .submit(&Submission::new("both", transfers), "1")
        .unwrap();
    assert_eq!(submitted.job.label, "both");
    let done = scene.until_ended(submitted.job.id);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert!(fs::read(scene.path("root/copied")).unwrap() == content);
    for number in 0..50 {
        let copied = fs::read(scene.path("root/trees/a").join(number.to_string()));
        assert_eq!(copied.unwrap(), number.to_string().into_bytes());
    }
    assert_eq!(done.transfers[0].counts.bytes, 12_000_000);
    assert_eq!(done.transfers[1].counts.files, 50);
    assert!(
        done.transfers
            .iter()
            .all(|one| one.attempts == 1 && one.limited_by.is_some())
    );
    let names: Vec<_> = done.transitions.iter().map(|one| one.to.as_str()).collect();
    assert_eq!(names, ["queued", "running", "succeeded"]);
    let page = client.jobs(Some(StateName::Succeeded), None, 100).unwrap();
    assert_eq!(page.jobs, [done.job]);
    let queued = client.jobs(Some(StateName::Queued), None, 100).unwrap();
    assert!(queued.jobs.is_empty());
}

#[test]
fn what_fails_doesn_t_stop_the_others_and_can_be_retried() {
    let scene = Scene::new();
    let (missing, file) = (scene.path("missing"), scene.path("file"));
    fs::write(&file, "content").unwrap();
    let transfers = vec![
        scene.upload(&missing, "first", None),
        scene.upload(&file, "second", None),
    ];
    let client = scene.client();
    let id = client
        .submit(&Submission::new("", transfers), "1")
        .unwrap()
        .job
        .id;
    let failed = scene.until_ended(id);
    assert_eq!(failed.job.state, StateName::Failed);
    assert_eq!(failed.job.failure.unwrap().code, "not-found");
    assert_eq!(failed.transfers[0].state, TransferState::Failed);
    assert_eq!(failed.transfers[1].state, TransferState::Succeeded);
    assert_eq!(fs::read(scene.path("root/second")).unwrap(), b"content");
    let refused = client.change(id, "pause").unwrap_err();
    assert_eq!(refused.code, Code::Stale);

    fs::write(&missing, "there now").unwrap();
    client.change(id, "retry").unwrap();
    let done = scene.until_ended(id);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert_eq!(fs::read(scene.path("root/first")).unwrap(), b"there now");
    // What had succeeded wasn't done again.
    assert_eq!(
        (done.transfers[0].attempts, done.transfers[1].attempts),
        (2, 1)
    );
}

#[test]
fn a_job_whose_server_is_away_is_tried_again_later() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let upload = |target: &str| {
        let Job::File(mut job) = scene.upload(&file, target, None) else {
            unreachable!("it is one file");
        };
        job.target = JobPlace::Server(format!("xdfs://{address}/{target}").parse().unwrap());
        job.retry = RetryPolicy::none();
        Job::File(job)
    };
    let client = scene.client();
    let mut at_once = Submission::new("", vec![upload("none")]);
    at_once.retries_max = 0;
    let id = client.submit(&at_once, "1").unwrap().job.id;
    assert_eq!(scene.until_ended(id).job.state, StateName::Failed);

    // Another transfer isn't stopped by it, and isn't done again.
    let transfers = vec![upload("later"), scene.upload(&file, "now", None)];
    let id = client
        .submit(&Submission::new("", transfers), "2")
        .unwrap()
        .job
        .id;
    let waiting = scene.until(id, |detail| detail.job.state == StateName::Retrying);
    assert_eq!(waiting.job.failure.unwrap().code, "connection-refused");
    assert!(waiting.job.not_before.unwrap() > waiting.job.submitted_at);
    assert_eq!(waiting.job.retries, 1);
    assert_eq!(waiting.transfers[0].state, TransferState::Waiting);
    assert_eq!(waiting.transfers[1].state, TransferState::Succeeded);

    let server = ServerBuilder {
        listen: vec![address.to_string().parse().unwrap()],
        root: scene.path("root"),
        ..ServerBuilder::default()
    };
    let server = server.bind().unwrap();
    let handle = server.handle();
    let served = thread::spawn(move || server.run());
    // It needn't be waited for.
    client.change(id, "retry").unwrap();
    let done = scene.until_ended(id);
    handle.shutdown();
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert_eq!(fs::read(scene.path("root/later")).unwrap(), b"content");
    assert_eq!(
        (done.transfers[0].attempts, done.transfers[1].attempts),
        (2, 1)
    );
    served.join().unwrap().unwrap();
}

#[cfg(unix)]
#[test]
fn entries_of_a_tree_that_fail_are_listed_until_they_are_retried() {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;

    const COUNT: usize = 120;
    let scene = Scene::new();
    let (tree, target) = (scene.path("tree"), scene.path("root/tree"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    // Sockets aren't copied.
    for number in 0..COUNT {
        UnixListener::bind(tree.join(number.to_string())).unwrap();
    }
    let transfers = vec![Job::Tree(TreeJob {
        source: JobPlace::Local(tree.clone()),
        target: scene.server_place("tree"),
        way: Way::Any,
        options: TreeOptions::default(),
    })];
    let client = scene.client();
    let submitted = client.submit(&Submission::new("", transfers), "1");
    let id = submitted.unwrap().job.id;
    let failed = scene.until_ended(id);
    assert_eq!(failed.job.state, StateName::Failed, "{failed:#?}");
    assert_eq!(failed.job.counts.failed, COUNT as u64);
    assert_eq!(failed.failures.len(), 100);
    let mut paths = Vec::new();
    let mut path = format!("{}/api/v1/jobs/{id}/failures?limit=50", scene.url);
    loop {
        let request = agent().get(&path).header("Authorization", scene.token());
        let page: FailurePage = serde_json::from_str(&text(request.call().unwrap())).unwrap();
        paths.extend(page.failures.into_iter().map(|one| one.failure.path));
        let Some(next) = page.next else { break };
        path = format!(
            "{}/api/v1/jobs/{id}/failures?limit=50&after={next}",
            scene.url
        );
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), COUNT);
    assert!(paths.iter().all(Option::is_some));

    for number in 0..COUNT {
        let path = tree.join(number.to_string());
        fs::remove_file(&path).unwrap();
        fs::write(path, "now a file").unwrap();
    }
    let before = fs::metadata(target.join("file")).unwrap();
    client.change(id, "retry").unwrap();
    let done = scene.until_ended(id);
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert!(done.failures.is_empty());
    // What had arrived was not copied again.
    let after = fs::metadata(target.join("file")).unwrap();
    assert_eq!(
        (before.ino(), before.ctime(), before.ctime_nsec()),
        (after.ino(), after.ctime(), after.ctime_nsec())
    );
    // The target is the same, though it is there now.
    assert_eq!(fs::read(target.join("file")).unwrap(), b"content");
    assert_eq!(fs::read(target.join("0")).unwrap(), b"now a file");
}

#[test]
fn a_running_job_is_paused_resumed_and_cancelled() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, vec![7; 64_000_000]).unwrap();
    let transfers = vec![scene.upload(&file, "copied", Some(2_000_000))];
    let client = scene.client();
    let id = client
        .submit(&Submission::new("slow", transfers), "1")
        .unwrap()
        .job
        .id;
    scene.until(id, |detail| detail.job.counts.bytes > 0);
    client.change(id, "pause").unwrap();
    scene.until(id, |detail| detail.job.state == StateName::Paused);
    client.change(id, "resume").unwrap();
    scene.until(id, |detail| detail.job.state == StateName::Running);
    client.change(id, "cancel").unwrap();
    let ended = scene.until_ended(id);
    assert_eq!(ended.job.state, StateName::Cancelled);
    assert!(!scene.path("root/copied").exists());
    // The worker is free again.
    let small = scene.path("small");
    fs::write(&small, "small").unwrap();
    let transfers = vec![scene.upload(&small, "small", None)];
    let id = client
        .submit(&Submission::new("", transfers), "2")
        .unwrap()
        .job
        .id;
    assert_eq!(scene.until_ended(id).job.state, StateName::Succeeded);
}

#[test]
fn a_rate_limit_is_that_of_its_job_alone() {
    let scene = Scene::with_workers(2);
    let file = scene.path("file");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    let submit = |target, rate, key| {
        let submission = Submission::new("", vec![scene.upload(&file, target, rate)]);
        scene.client().submit(&submission, key).unwrap().job.id
    };
    let slow = submit("slow", Some(1024), "1");
    scene.until(slow, |job| job.job.state == StateName::Running);
    let fast = scene.until_ended(submit("fast", None, "2"));
    assert_eq!(fast.job.state, StateName::Succeeded, "{fast:#?}");
    assert!(fs::read(&file).unwrap() == fs::read(scene.path("root/fast")).unwrap());
    assert_eq!(
        scene.client().job(slow).unwrap().job.state,
        StateName::Running
    );
    scene.client().change(slow, "cancel").unwrap();
    scene.until_ended(slow);
}

#[test]
fn the_same_key_twice_is_one_job() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let body = json!({
        "version": 1,
        "transfers": [{"file": {"source": file, "target": format!("{}/copied", scene.server_url)}}],
    });
    let post = |key: &str, body: &Value| {
        let request = agent().post(format!("{}/api/v1/jobs", scene.url));
        let request = request
            .header("Authorization", scene.token())
            .header("Idempotency-Key", key);
        request.send(body.to_string()).unwrap()
    };
    let (first, again) = (post("key", &body), post("key", &body));
    assert_eq!((status(&first), status(&again)), (201, 200));
    let location = first.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(again.headers()["location"], location.as_str());
    let (first, again): (Value, Value) = (
        serde_json::from_str(&text(first)).unwrap(),
        serde_json::from_str(&text(again)).unwrap(),
    );
    assert_eq!(first["id"], again["id"]);
    let mut other = body.clone();
    other["label"] = "another".into();
    let refused = post("key", &other);
    assert_eq!(status(&refused), 409);
    assert_eq!(status(&post("other", &body)), 201);
    assert_eq!(status(&post("", &body)), 422);
    assert_eq!(scene.client().jobs(None, None, 100).unwrap().jobs.len(), 2);
}

#[test]
fn without_a_token_nothing_is_answered() {
    let scene = Scene::new();
    let agent = agent();
    let job = format!("{}/api/v1/jobs/0", scene.url);
    for path in [
        "/",
        "/live",
        "/jobs/0",
        "/api/v1/jobs",
        "/api/v1/events",
        "/api/v1/x",
        "/x",
    ] {
        for authorization in ["", "Bearer ", "Bearer x", "Basic eDp4"] {
            let request = agent.get(format!("{}{path}", scene.url));
            let answer = request
                .header("Authorization", authorization)
                .call()
                .unwrap();
            assert_eq!(status(&answer), 401, "{path} {authorization}");
        }
    }
    let answer = agent.post(format!("{job}:cancel")).send_empty().unwrap();
    assert_eq!(status(&answer), 401);
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, "application/problem+json");
    let problem: Value = serde_json::from_str(&text(answer)).unwrap();
    assert_eq!(problem["code"], "authentication-failed");
    let health = agent.get(format!("{}/healthz", scene.url)).call().unwrap();
    assert_eq!((status(&health), text(health).as_str()), (200, "ok\n"));

    // A link works once, and what it gives is no right for pages of other origins.
    let answer = agent.get(&scene.link).call().unwrap();
    assert_eq!(status(&answer), 303);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(status(&agent.get(&scene.link).call().unwrap()), 401);
    let page = agent
        .get(&scene.url)
        .header("Cookie", &cookie)
        .call()
        .unwrap();
    assert_eq!(status(&page), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let cancel = |origin: &str| {
        let request = agent
            .post(format!("{job}:cancel"))
            .header("Cookie", &cookie);
        status(&request.header("Origin", origin).send_empty().unwrap())
    };
    assert_eq!(cancel("http://127.0.0.1:1"), 401);
    assert_eq!(cancel("null"), 401);
    assert_eq!(cancel(&scene.url), 422);
}

#[test]
fn bad_requests_are_refused_with_what_is_wrong() {
    let scene = Scene::new();
    let agent = agent();
    let post = |body: &str| {
        let request = agent.post(format!("{}/api/v1/jobs", scene.url));
        let answer = request
            .header("Authorization", scene.token())
            .send(body)
            .unwrap();
        let status = status(&answer);
        let problem: Value = serde_json::from_str(&text(answer)).unwrap();
        assert_eq!(problem["status"], status);
        (status, problem)
    };
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        &deep,
        r#"{"version":1,"transfers":[],"more":1}"#,
    ] {
        assert_eq!(post(body).0, 400, "{}", &body[..body.len().min(40)]);
    }
    let (status_of_local, problem) =
        post(r#"{"version":1,"transfers":[{"file":{"source":"/a","target":"/b"}}]}"#);
    assert_eq!(status_of_local, 422);
    assert_eq!(problem["code"], "invalid-argument");
    assert_eq!(problem["path"], "transfers[0].target");
    assert_eq!(post(r#"{"version":2,"transfers":[]}"#).0, 422);
    for (path, expected) in [
        ("jobs/x", 422),
        ("jobs/018bcfe5-687b-7fff-bfff-ffffffffffff", 404),
        ("jobs?state=none", 422),
        ("jobs?limit=x", 400),
        ("jobs?order=1", 400),
        ("none", 404),
        ("jobs/%ff", 400),
    ] {
        let request = agent.get(format!("{}/api/v1/{path}", scene.url));
        let answer = request
            .header("Authorization", scene.token())
            .call()
            .unwrap();
        assert_eq!(status(&answer), expected, "{path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    // Wrong methods too; and browsers get pages.
    for path in ["api/v1/jobs", "api/v1/events", "healthz", "page.css"] {
        for (accepted, kind) in [
            ("*/*", "application/problem+json"),
            ("text/html,*/*;q=0.8", "text/html; charset=utf-8"),
        ] {
            let request = agent.delete(format!("{}/{path}", scene.url));
            let request = request.header("Accept", accepted);
            let request = request.header("Authorization", scene.token());
            let answer = request.call().unwrap();
            assert_eq!(status(&answer), 405, "{path}");
            assert_eq!(answer.headers()["content-type"], kind, "{path}");
            assert!(answer.headers().contains_key("allow"), "{path}");
        }
    }
    // A job and a change of it have methods of their own.
    let id = "018bcfe5-687b-7fff-bfff-ffffffffffff";
    for (path, allowed) in [
        (id.to_owned(), "GET,HEAD,PATCH,DELETE"),
        (format!("{id}:pause"), "POST"),
        (format!("{id}%3Apause"), "POST"),
    ] {
        let request = agent.options(format!("{}/api/v1/jobs/{path}", scene.url));
        let request = request.header("Authorization", scene.token());
        let answer = request.call().unwrap();
        assert_eq!(status(&answer), 405, "{path}");
        assert_eq!(answer.headers()["allow"], allowed, "{path}");
    }
}

#[test]
fn events_follow_a_job_to_its_end_and_pages_escape_its_texts() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, vec![7; 1_000_000]).unwrap();
    let transfers = vec![scene.upload(&file, "<b>copied", None)];
    let label = "<script>alert(1)</script>";
    let submission = Submission::new(label, transfers);
    let id = scene.client().submit(&submission, "1").unwrap().job.id;
    let get = |path: String| {
        let request = agent().get(format!("{}{path}", scene.url));
        let answer = request
            .header("Authorization", scene.token())
            .call()
            .unwrap();
        assert_eq!(status(&answer), 200, "{path}");
        answer
    };
    // The stream ends with the job.
    let events = get(format!("/api/v1/jobs/{id}/events"));
    let lines = BufReader::new(events.into_body().into_reader()).lines();
    let states: Vec<_> = lines
        .map(|line| line.unwrap())
        .filter_map(|line| line.strip_prefix("data: ").map(str::to_owned))
        .map(|data| serde_json::from_str::<JobDetail>(&data).unwrap().job.state)
        .collect();
    assert_eq!(states.last(), Some(&StateName::Succeeded), "{states:?}");
    for path in [
        "/".to_owned(),
        format!("/jobs/{id}"),
        format!("/jobs/{id}/live"),
    ] {
        let page = text(get(path.clone()));
        assert!(page.contains("succeeded"), "{path}: {page}");
        assert!(
            !page.contains("<script>alert") && !page.contains("<b>copied"),
            "{page}"
        );
    }
}

#[test]
fn a_folder_has_one_service_and_other_machines_have_none() {
    let scene = Scene::new();
    let bind = |listen: &str, data: &str| {
        Service::bind(ServiceOptions {
            listen: listen.parse().unwrap(),
            ..options(scene.path(data))
        })
    };
    let fault = bind("127.0.0.1:0", "data").unwrap_err();
    assert_eq!(fault.code, Code::Busy, "{fault}");
    let fault = bind("0.0.0.0:0", "other").unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
    // Nor has its database another one.
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, symlink};
        let linked = scene.path("linked");
        fs::DirBuilder::new().mode(0o700).create(&linked).unwrap();
        symlink(scene.path("data/service.db"), linked.join("service.db")).unwrap();
        let fault = bind("127.0.0.1:0", "linked").unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
        assert!(fault.cause.contains("another service"), "{fault}");
    }
}

#[cfg(unix)]
#[test]
fn other_users_can_neither_change_nor_read_the_files_of_a_service() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let bind = |mode| {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        Service::bind(options(folder.path().to_owned()))
    };
    for mode in [0o770, 0o777, 0o1777] {
        let fault = bind(mode).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied, "{mode:o} {fault}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let service = bind(0o755).unwrap();
    for name in ["token", "service.db", "service.db-wal", "service.db-shm"] {
        let mode = fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
    drop(service);
}

/// The documented names, with their types and labels.
fn documented_metrics() -> Vec<(String, String, String)> {
    const PAGE: &str = include_str!("../../../docs/metrics.md");
    let sections = ["## Of the service\n", "## Of both\n"].map(|heading| {
        let (_, rest) = PAGE.split_once(heading).unwrap();
        rest.split("\n## ").next().unwrap()
    });
    let rows = sections.iter().flat_map(|section| section.lines());
    rows.filter(|line| line.starts_with("| `"))
        .map(|row| {
            let cells: Vec<_> = row
                .split('|')
                .map(|cell| cell.trim().replace('`', ""))
                .collect();
            (cells[1].clone(), cells[2].clone(), cells[3].clone())
        })
        .collect()
}

#[test]
fn metrics_are_those_of_the_page_and_need_no_login() {
    let scene = Scene::new();
    let metrics = || {
        let answer = agent()
            .get(format!("{}/metrics", scene.url))
            .call()
            .unwrap();
        assert_eq!(answer.status(), 200);
        let kind = answer.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("application/openmetrics-text;"), "{kind}");
        text(answer)
    };
    let source = scene.path("source");
    fs::write(&source, vec![7; 300_000]).unwrap();
    let missing = scene.path("missing");
    let jobs = [
        scene.upload(&source, "a", None),
        scene.upload(&missing, "b", None),
    ];
    let detail = scene
        .client()
        .submit(&Submission::new("label-of-a-user", jobs.into()), "k");
    let id = detail.unwrap().job.id;
    scene.until_ended(id);

    let text = metrics();
    let scrape = xdfs::metrics::Scrape::read(&text).unwrap();
    let of = |name: &str, labels: &[(&str, &str)]| scrape.sum(name, labels);
    assert_eq!(of("xdfs_service_jobs", &[("state", "failed")]), Some(1.0));
    assert_eq!(of("xdfs_service_jobs", &[]), Some(1.0));
    assert_eq!(of("xdfs_service_content_bytes_total", &[]), Some(300_000.0));
    assert_eq!(of("xdfs_service_files_total", &[]), Some(1.0));
    for result in ["succeeded", "failed"] {
        let labels = [("result", result)];
        assert_eq!(
            of("xdfs_service_transfers_total", &labels),
            Some(1.0),
            "{result}"
        );
    }
    let not_found = [("code", "not-found")];
    assert_eq!(of("xdfs_service_failures_total", &not_found), Some(1.0));
    assert_eq!(of("xdfs_service_transfers_limited_total", &[]), Some(1.0));
    assert_eq!(of("xdfs_service_transfers_running", &[]), Some(0.0));
    assert!(of("xdfs_service_requests_total", &[("status", "2xx")]) > Some(0.0));
    assert!(
        !text.contains("label-of-a-user") && !text.contains("missing"),
        "{text}"
    );

    let documented = documented_metrics();
    for (name, kind, labels) in &documented {
        let is_there = text.contains(&format!("# TYPE {name} {kind}\n"));
        assert!(is_there || !cfg!(target_os = "linux"), "{name} {kind}");
        let total = format!("{name}_total");
        for sample in scrape.of(name).chain(scrape.of(&total)) {
            let own: Vec<_> = sample.labels.keys().map(String::as_str).collect();
            assert_eq!(own.join(" "), *labels, "{name}");
        }
    }
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for family in families {
        let (name, _) = family.split_once(' ').unwrap();
        assert!(documented.iter().any(|(own, ..)| own == name), "{name}");
    }
}
