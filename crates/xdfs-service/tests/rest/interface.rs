//! What clients of the REST interface rely on: tags, cursors, lines, browsing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use ureq::http::Response;
use xdfs_service::{JobPage, PlaceKind, PlaceListing, StateName, Submission, TransferPage};
use xdfs_testkit::{skip, wait};

use super::{PATIENCE, Scene, agent, status, text};

type Answer = Response<ureq::Body>;

impl Scene {
    fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = agent().get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
            .header("Authorization", self.token())
            .call()
            .unwrap()
    }

    fn tell(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = agent().post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("Authorization", self.token());
        request.send(body).unwrap()
    }

    /// Posts lines.
    fn lines(&self, key: &str, lines: &str) -> Answer {
        let headers = [
            ("Content-Type", "application/x-ndjson"),
            ("Idempotency-Key", key),
        ];
        self.tell("/api/v1/jobs", &headers, lines)
    }

    /// Submits a job that waits, since its server is away.
    fn waiting_job(&self, label: &str) -> String {
        let body = json!({"version": 1, "label": label, "transfers": [
            {"file": {"source": "/none", "target": "xdfs://127.0.0.1:1/x"}}]});
        let answer = self.tell("/api/v1/jobs", &[], &body.to_string());
        assert_eq!(status(&answer), 201);
        let job: Value = serde_json::from_str(&text(answer)).unwrap();
        job["id"].as_str().unwrap().to_owned()
    }
}

fn tag(answer: &Answer) -> String {
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[test]
fn what_a_client_has_isn_t_sent_again_and_changes_are_of_what_it_has_seen() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let submission = Submission::new("", vec![scene.upload(&file, "copied", None)]);
    let id = scene.client().submit(&submission, "1").unwrap().job.id;
    scene.until_ended(id);
    let job = format!("/api/v1/jobs/{id}");
    for path in [job.as_str(), "/api/v1/jobs", "/api/v1/openapi.json"] {
        let first = scene.ask(path, &[]);
        let tag = tag(&first);
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".to_owned()] {
            let again = scene.ask(path, &[("If-None-Match", &known)]);
            assert_eq!(status(&again), 304, "{path} {known}");
            assert_eq!(again.headers()["etag"], tag.as_str());
            assert_eq!(text(again), "");
        }
        let other = scene.ask(path, &[("If-None-Match", "\"x\"")]);
        assert_eq!(status(&other), 200);
        assert_eq!(status(&scene.ask(path, &[("If-None-Match", "x")])), 400);
    }

    // The file has gone, so that the job fails when it is done again.
    let waiting = scene.waiting_job("");
    let path = format!("/api/v1/jobs/{waiting}");
    let is_retrying = || {
        let job: Value = serde_json::from_str(&text(scene.ask(&path, &[]))).unwrap();
        job["state"] == "retrying" || job["state"] == "failed"
    };
    assert!(wait::until(PATIENCE, is_retrying));
    let seen = tag(&scene.ask(&path, &[]));
    let cancel = |tag: &str| scene.tell(&format!("{path}:retry"), &[("If-Match", tag)], "");
    for wrong in ["\"x\"", &format!("W/{seen}")] {
        let refused = cancel(wrong);
        assert_eq!(status(&refused), 412, "{wrong}");
        let problem: Value = serde_json::from_str(&text(refused)).unwrap();
        assert_eq!(problem["code"], "stale");
    }
    assert_eq!(status(&cancel("x")), 400);
    let changed = cancel(&seen);
    assert_eq!(status(&changed), 200);
    assert_ne!(tag(&changed), seen);
    assert_eq!(status(&cancel(&seen)), 412);
}

#[test]
fn lists_go_on_where_they_have_ended() {
    let scene = Scene::new();
    for label in ["May 1", "June", "may 2", "MAY 3"] {
        scene.waiting_job(label);
    }
    let mut labels = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/jobs?label=may&limit=1{after}");
        let page: JobPage = serde_json::from_str(&text(scene.ask(&path, &[]))).unwrap();
        assert_eq!(page.jobs.len(), 1);
        labels.extend(page.jobs.into_iter().map(|job| job.label));
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(labels, ["MAY 3", "may 2", "May 1"]);
    let long = "x".repeat(201);
    for (query, expected) in [
        ("limit=0".to_owned(), 422),
        ("limit=1001".to_owned(), 422),
        ("limit=1000".to_owned(), 200),
        (format!("label={long}"), 422),
        ("label=%25".to_owned(), 200),
    ] {
        let answer = scene.ask(&format!("/api/v1/jobs?{query}"), &[]);
        assert_eq!(status(&answer), expected, "{query}");
    }
}

#[test]
fn directories_of_both_sides_are_browsed() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("root/a b/<i>")).unwrap();
    fs::write(scene.path("root/a b/file"), "four").unwrap();
    let browse = |at: &str| {
        let at = at.replace('%', "%25").replace(' ', "%20");
        scene.ask(&format!("/api/v1/places?at={at}"), &[])
    };
    let listed = |at: &str| -> PlaceListing {
        let answer = browse(at);
        assert_eq!(status(&answer), 200, "{at}");
        serde_json::from_str(&text(answer)).unwrap()
    };
    let root = listed(&scene.server_url);
    assert_eq!((root.entries.len(), root.parent), (1, None));
    let there = listed(&root.entries[0].at);
    let here = listed(scene.path("root/a b").to_str().unwrap());
    for listing in [&there, &here] {
        let seen: Vec<_> = listing
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.kind, entry.size))
            .collect();
        let expected = [
            ("<i>", PlaceKind::Directory, None),
            ("file", PlaceKind::File, Some(4)),
        ];
        assert_eq!(seen, expected);
        assert!(listing.is_complete && listing.parent.is_some());
    }
    for (at, expected) in [
        (format!("{}/none", scene.server_url), 404),
        (format!("{}/a%20b/file", scene.server_url), 424),
        ("/none/at/all".to_owned(), 404),
        ("xdfs://127.0.0.1:1/".to_owned(), 424),
        ("relative".to_owned(), 422),
        ("-".to_owned(), 422),
        ("xdfs://".to_owned(), 422),
        (String::new(), 422),
    ] {
        let answer = browse(&at);
        assert_eq!(status(&answer), expected, "{at}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    assert_eq!(status(&scene.ask("/api/v1/places", &[])), 400);
    let unknown = agent().get(format!("{}/api/v1/places?at=/", scene.url));
    assert_eq!(status(&unknown.call().unwrap()), 401);
}

#[test]
fn what_describes_the_service_needs_no_login() {
    let scene = Scene::new();
    let get = |path: &str| {
        let request = agent().get(format!("{}{path}", scene.url));
        request.call().unwrap()
    };
    let ready = get("/readyz");
    assert_eq!((status(&ready), text(ready).as_str()), (200, "ready\n"));
    let document: Value = serde_json::from_str(&text(get("/api/v1/openapi.json"))).unwrap();
    assert!(document["paths"]["/api/v1/jobs"]["post"].is_object());
}

#[test]
fn a_job_of_many_lines_is_submitted_once_or_not_at_all() {
    let scene = Scene::new();
    let count = 230;
    let mut lines = String::from("{\"version\":1,\"label\":\"many\"}\n\n");
    for number in 0..count {
        let source = scene.path(&format!("{number}"));
        fs::write(&source, number.to_string()).unwrap();
        let target = format!("{}/{number}", scene.server_url);
        let line = json!({"file": {"source": source.to_str().unwrap(), "target": target}});
        lines.push_str(&format!("{line}\r\n"));
    }
    let first = scene.lines("key", &lines);
    assert_eq!(status(&first), 201);
    let job: Value = serde_json::from_str(&text(first)).unwrap();
    assert_eq!(
        (&job["transfers_count"], &job["label"]),
        (&json!(count), &json!("many"))
    );
    // The last line needs no end, and a job with another digest is another one.
    let again = scene.lines("key", &lines);
    assert_eq!(status(&again), 200);
    assert_eq!(status(&scene.lines("key", lines.trim_end())), 409);

    let id = job["id"].as_str().unwrap().parse().unwrap();
    let done = scene.until_ended(id);
    assert_eq!(done.job.state, StateName::Succeeded, "{:?}", done.job);
    assert_eq!(done.job.counts.files, count);
    assert_eq!(done.transfers.len(), 100);
    for number in [0, 123, count - 1] {
        let copied = fs::read(scene.path(&format!("root/{number}"))).unwrap();
        assert_eq!(copied, number.to_string().into_bytes());
    }
    let page = format!("/api/v1/jobs/{id}/transfers?state=succeeded&limit=50&after=99");
    let page: TransferPage = serde_json::from_str(&text(scene.ask(&page, &[]))).unwrap();
    assert_eq!((page.transfers.len(), page.next), (50, Some(149)));
    let waiting = format!("/api/v1/jobs/{id}/transfers?state=waiting");
    let waiting: TransferPage = serde_json::from_str(&text(scene.ask(&waiting, &[]))).unwrap();
    assert_eq!((waiting.transfers.len(), waiting.next), (0, None));
    assert_eq!(scene.client().jobs(None, None, 100).unwrap().jobs.len(), 1);
    assert_eq!(
        fs::read_dir(scene.path("data/incoming")).unwrap().count(),
        0
    );
}

#[test]
fn lines_that_break_off_or_are_wrong_leave_no_job() {
    let scene = Scene::new();
    let head = "{\"version\":1}";
    let good = r#"{"file":{"source":"/a","target":"xdfs://h/b"}}"#;
    let long = format!("{{\"file\":{{\"source\":\"/{}", "a".repeat(70_000));
    for (lines, expected, path) in [
        ("", 400, "line 1"),
        ("\n\n", 400, "line 1"),
        (head, 422, "transfers"),
        ("{\"version\":2}\n", 422, ""),
        ("[]\n", 400, "line 1"),
        (good, 400, "line 1"),
        (&format!("{head}\n{good}\n{{\n"), 400, "line 3"),
        (&format!("{head}\n{good}\n{head}\n"), 400, "line 3"),
        (
            &format!(
                "{head}\n{}",
                r#"{"file":{"source":"a","target":"xdfs://h/b"}}"#
            ),
            422,
            "line 2: source",
        ),
        (
            &format!("{{\"version\":1,\"transfers\":[{good}]}}\n{good}\n"),
            422,
            "line 1",
        ),
        (&format!("{head}\n{long}"), 413, ""),
    ] {
        let answer = scene.lines("key", lines);
        let shown = &lines[..lines.len().min(80)];
        assert_eq!(status(&answer), expected, "{shown}");
        let problem: Value = serde_json::from_str(&text(answer)).unwrap();
        assert_eq!(
            problem["path"].as_str().unwrap_or_default(),
            path,
            "{shown}"
        );
    }
    // The connection breaks in the middle.
    let host = scene.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let body = format!("{head}\n{good}\n");
    let request = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: {}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n{body}",
        scene.token()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let incoming = scene.path("data/incoming");
    let files = || fs::read_dir(&incoming).unwrap().count();
    assert!(wait::until(PATIENCE, || files() == 1));
    drop(stream);
    assert!(wait::until(PATIENCE, || files() == 0));
    assert!(
        scene
            .client()
            .jobs(None, None, 100)
            .unwrap()
            .jobs
            .is_empty()
    );
}

#[test]
fn idle_connections_keep_nobody_from_the_service() {
    let scene = Scene::new();
    // Both ends are of this process.
    let count = match xdfs::raise_descriptor_limit() {
        Some(0..5000) => {
            skip::part("a process may not have 5000 descriptors");
            300
        }
        _ => 2000,
    };
    let host = scene.url.strip_prefix("http://").unwrap();
    let idle: Vec<_> = (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(host).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
            stream
        })
        .collect();
    assert_eq!(status(&scene.ask("/healthz", &[])), 200);
    // The end of the service doesn't wait for them.
    scene.service.shutdown();
    for mut stream in idle {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
}
