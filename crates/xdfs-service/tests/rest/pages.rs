//! The pages without scripts, as a browser sends their forms.

use std::fs;

use xdfs_service::Submission;
use xdfs_testkit::wait;

use super::{PATIENCE, Scene, agent, status, text};

/// The value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let value = page
        .split(start.as_str())
        .nth(1)
        .unwrap_or_else(|| panic!("{name}: {page}"));
    let value = value.split('"').next().unwrap();
    [
        ("&#34;", "\""),
        ("&#38;", "&"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#39;", "'"),
    ]
    .into_iter()
    .fold(value.to_owned(), |text, (from, to)| text.replace(from, to))
}

impl Scene {
    fn open(&self, path: &str) -> (u16, String) {
        let request = agent().get(format!("{}{path}", self.url));
        let request = request.header("Accept", "text/html");
        let answer = request
            .header("Authorization", self.token())
            .call()
            .unwrap();
        (status(&answer), text(answer))
    }

    fn send(&self, path: &str, fields: &[(&str, &str)]) -> ureq::http::Response<ureq::Body> {
        let request = agent().post(format!("{}{path}", self.url));
        let request = request.header("Authorization", self.token());
        request.send_form(fields.iter().copied()).unwrap()
    }
}

#[test]
fn a_transfer_is_chosen_shown_and_started_once() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("here/runs")).unwrap();
    fs::write(scene.path("here/runs/1"), "one").unwrap();
    fs::write(scene.path("here/<b>&'\""), "two").unwrap();
    let here = scene.path("here").to_str().unwrap().to_owned();
    let (code, page) = scene.open(&format!("/new?source={here}&target={}", scene.server_url));
    assert_eq!(code, 200);
    assert!(
        page.contains("runs/</a>") && !page.contains("<b>&"),
        "{page}"
    );
    let (code, pane) = scene.open(&format!("/new/pane?side=source&at={here}"));
    assert!(code == 200 && pane.contains("name=\"pick\""), "{pane}");

    let (tree, file) = (format!("tree:{here}/runs"), format!("file:{here}/<b>&'\""));
    let fields = [
        ("source", here.as_str()),
        ("target", &scene.server_url),
        ("kind", "copy"),
        ("pick", &tree),
        ("pick", &file),
        ("label", "<b>chosen"),
        ("rate", "50M"),
    ];
    let review = scene.send("/new/review", &fields);
    assert_eq!(status(&review), 200);
    let review = text(review);
    assert!(review.contains("1 directory and 1 file"), "{review}");
    assert!(!review.contains("<b>chosen"), "{review}");
    assert!(
        scene
            .client()
            .jobs(None, None, 100)
            .unwrap()
            .jobs
            .is_empty()
    );
    let (job, key) = (field(&review, "job"), field(&review, "key"));
    let start = || scene.send("/new", &[("job", &job), ("key", &key)]);
    let (first, again) = (start(), start());
    assert_eq!((status(&first), status(&again)), (303, 303));
    assert_eq!(first.headers()["location"], again.headers()["location"]);
    let jobs = scene.client().jobs(None, None, 100).unwrap().jobs;
    assert_eq!(jobs.len(), 1);
    scene.until_ended(jobs[0].id);
    assert_eq!(fs::read(scene.path("root/runs/1")).unwrap(), b"one");
    assert_eq!(fs::read(scene.path("root/<b>&'\"")).unwrap(), b"two");
}

#[test]
fn a_form_that_can_t_be_is_shown_again_with_what_is_wrong() {
    let scene = Scene::new();
    let here = scene.path("data").to_str().unwrap().to_owned();
    let both = [("source", here.as_str()), ("target", &scene.server_url)];
    for (fields, expected) in [
        (vec![], "it is empty"),
        (
            vec![("source", here.as_str()), ("target", &here)],
            "neither of the places",
        ),
        (vec![("source", "/none"), both[1]], "no such file"),
        (
            [&both[..], &[("rate", "much")]].concat(),
            "bytes per second",
        ),
        ([&both[..], &[("retries", "x")]].concat(), "whole number"),
        (
            [&both[..], &[("kind", "sync"), ("pick", "file:/x")]].concat(),
            "a synchronisation is of a whole directory",
        ),
    ] {
        let answer = scene.send("/new/review", &fields);
        assert_eq!(status(&answer), 200, "{fields:?}");
        let page = text(answer);
        assert!(page.contains(expected), "{fields:?}: {page}");
        assert!(page.contains("role=\"alert\"") && page.contains("name=\"source\""));
    }
    for fields in [
        vec![],
        vec![("job", "{}"), ("key", "1")],
        vec![("job", "x"), ("key", "1")],
    ] {
        assert!(status(&scene.send("/new", &fields)) >= 400, "{fields:?}");
    }
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
fn pages_can_be_filtered_and_turned() {
    let scene = Scene::new();
    let (code, page) = scene.open("/?state=failed&label=%3Cb%3E&after=");
    assert!(
        code == 200 && page.contains("No job is like that"),
        "{page}"
    );
    assert!(
        page.contains("&#60;b&#62;") && !page.contains("<b>\""),
        "{page}"
    );
    for (path, expected) in [
        ("/?state=none", 422),
        ("/?more=1", 400),
        ("/?after=x", 422),
        ("/jobs/x/failures", 422),
        ("/jobs/018bcfe5-687b-7fff-bfff-ffffffffffff/failures", 404),
        ("/new/pane?side=middle&at=/", 400),
    ] {
        let (code, page) = scene.open(path);
        assert_eq!(code, expected, "{path}: {page}");
        assert!(page.contains("<!DOCTYPE html>"), "{page}");
    }
}

#[test]
fn servers_are_shown_with_what_limits_them() {
    let scene = Scene::new();
    let (_, empty) = scene.open("/servers");
    assert!(empty.contains("Nothing was copied yet"), "{empty}");
    let file = scene.path("file");
    fs::write(&file, vec![7; 2_000_000]).unwrap();
    let transfers = vec![scene.upload(&file, "copied", Some(2_000_000))];
    let submission = Submission::new("", transfers);
    let id = scene.client().submit(&submission, "1").unwrap().job.id;
    let done = scene.until_ended(id);
    let limit = done.transfers[0].limited_by.as_deref();
    assert_eq!(limit, Some("rate-limit"), "{done:?}");
    let came = wait::until(PATIENCE, || {
        scene
            .open("/servers")
            .1
            .contains("the rate that was asked for")
    });
    let (_, page) = scene.open("/servers");
    assert!(came, "{page}");
    let server = scene.server_url.trim_start_matches("xdfs://");
    assert!(
        page.contains(server) && page.contains("this machine"),
        "{page}"
    );
}
