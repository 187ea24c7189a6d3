//! Priorities, deadlines, lifetimes and deletion over HTTP.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use xdfs::Code;
use xdfs_service::{JobSettings, Moment, ScheduleSubmission, StateName, Submission};
use xdfs_testkit::wait;

use super::{Scene, agent, status, text};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_job_s_terms_are_set_and_shown_and_an_ended_one_is_deleted() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let client = scene.client();
    let mut submission = Submission::new("later", vec![scene.upload(&file, "copied", None)]);
    submission.priority = -3;
    submission.starts_at = Some(Moment::After(DAY));
    submission.deadline = Some(Moment::After(2 * DAY));
    let id = client.submit(&submission, "1").unwrap().job.id;
    let waiting = client.job(id).unwrap().job;
    assert_eq!((waiting.priority, waiting.state), (-3, StateName::Queued));
    let day = waiting.submitted_at.after(DAY);
    assert_eq!(waiting.starts_at, Some(day));
    assert_eq!(waiting.deadline, Some(day.after(DAY)));
    assert_eq!(waiting.keep_until, None);

    let settings = JobSettings {
        priority: Some(7),
        label: Some("for me".to_owned()),
        deadline: Some(None),
        keep_until: Some(Some(Moment::After(DAY))),
    };
    let set = client.set(id, &settings).unwrap();
    assert_eq!((set.job.priority, set.job.label.as_str()), (7, "for me"));
    assert_eq!(set.job.deadline, None);
    assert!(set.job.keep_until.is_some());
    let change = set.transitions.last().unwrap();
    assert_eq!(
        (change.from, change.to),
        (Some(StateName::Queued), StateName::Queued)
    );
    assert!(change.actor.starts_with("user "), "{change:?}");
    assert!(change.reason.contains("the priority is 7"), "{change:?}");
    let page = agent()
        .get(format!("{}/jobs/{id}", scene.url))
        .header("Authorization", scene.token());
    let page = text(page.call().unwrap());
    assert!(page.contains("priority 7, starts at "), "{page}");

    let refused = client.delete(id).unwrap_err();
    assert_eq!(refused.code, Code::Stale, "{refused}");
    client.change(id, "cancel").unwrap();
    client.delete(id).unwrap();
    for gone in [
        client.job(id).map(drop),
        client.delete(id),
        client.change(id, "retry").map(drop),
        client.set(id, &settings).map(drop),
    ] {
        assert_eq!(gone.unwrap_err().code, Code::NotFound);
    }
    assert!(client.jobs(None, None, 100).unwrap().jobs.is_empty());
    // Its key is free.
    assert_ne!(client.submit(&submission, "1").unwrap().job.id, id);
}

#[test]
fn a_running_job_is_ended_by_its_deadline() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, vec![7; 4_000_000]).unwrap();
    let mut submission = Submission::new("", vec![scene.upload(&file, "copied", Some(1000))]);
    submission.deadline = Some(Moment::After(Duration::from_secs(2)));
    let client = scene.client();
    let running = client.submit(&submission, "1").unwrap().job.id;
    // It waits behind the other one.
    let waiting = client.submit(&submission, "2").unwrap().job.id;
    for id in [running, waiting] {
        let ended = scene.until_ended(id);
        assert_eq!(ended.job.state, StateName::Failed, "{ended:#?}");
        let failure = ended.job.failure.unwrap();
        assert_eq!(failure.code, "deadline-exceeded", "{failure:?}");
        assert!(failure.cause.contains("by its deadline"), "{failure:?}");
        let last = ended.transitions.last().unwrap();
        assert!(last.reason.contains("deadline"), "{last:?}");
    }
    assert!(!scene.path("root/copied").exists());
    // A retry would end at once by a deadline that has passed.
    let retried = client.change(waiting, "retry").unwrap();
    assert_eq!(retried.job.deadline, None);
}

#[test]
fn terms_that_suit_no_job_are_refused_with_their_field() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, vec![7; 4_000_000]).unwrap();
    let client = scene.client();
    let slow = Submission::new("", vec![scene.upload(&file, "copied", Some(1000))]);
    let id = client.submit(&slow, "1").unwrap().job.id;
    let ask = |is_new: bool, fields: &Value| {
        let mut body = json!({"version": 1, "transfers": [
            {"file": {"source": file, "target": format!("{}/other", scene.server_url)}}]});
        let body = match is_new {
            false => fields,
            true => {
                let all = body.as_object_mut().unwrap();
                all.extend(fields.as_object().unwrap().clone());
                &body
            }
        };
        let (agent, token, url) = (agent(), scene.token(), &scene.url);
        let request = match is_new {
            true => agent.post(format!("{url}/api/v1/jobs")),
            false => agent.patch(format!("{url}/api/v1/jobs/{id}")),
        };
        let request = request.header("Authorization", token);
        let answer = request.send(body.to_string()).unwrap();
        let status = status(&answer);
        let answer: Value = serde_json::from_str(&text(answer)).unwrap();
        (
            status,
            answer["path"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let long = "x".repeat(1 << 20);
    let past = "2001-01-01T00:00:00Z";
    for (fields, expected) in [
        (json!({"priority": 11}), (422, "priority")),
        (json!({"priority": -11}), (422, "priority")),
        (json!({"priority": 1000}), (400, "")),
        (json!({"priority": "high"}), (400, "")),
        (json!({"label": "a\u{0}b"}), (422, "label")),
        (json!({"label": "a\nb"}), (422, "label")),
        (json!({"label": long}), (422, "label")),
        (json!({"label": 7}), (400, "")),
        (json!({"deadline": past}), (422, "deadline")),
        (json!({"deadline": "tomorrow"}), (400, "")),
        (json!({"deadline": long}), (400, "")),
        (json!({"deadline": -1}), (400, "")),
        (json!({"keep_until": past}), (422, "keep_until")),
        (json!({"keep_until": "1s; DROP TABLE jobs"}), (400, "")),
        (json!({"state": "succeeded"}), (400, "")),
        (json!({"owner": "somebody"}), (400, "")),
    ] {
        for is_new in [true, false] {
            let (status, path) = ask(is_new, &fields);
            let fields = fields.to_string();
            let shown = &fields[..fields.len().min(60)];
            assert_eq!((status, path.as_str()), expected, "{is_new} {shown}");
        }
    }
    let place = |source: &str| {
        let target = format!("{}/other", scene.server_url);
        json!({"transfers": [{"file": {"source": source, "target": target}}]})
    };
    let field = "transfers[0].source";
    for (source, expected) in [
        (format!("/{long}"), (422, field)),
        ("relative".to_owned(), (422, field)),
        ("-".to_owned(), (422, field)),
        // No path has one.
        ("/a\0b".to_owned(), (400, "")),
    ] {
        let (status, path) = ask(true, &place(&source));
        assert_eq!((status, path.as_str()), expected, "{source:.60}");
    }
    let many = json!({"transfers": []});
    assert_eq!(ask(true, &many), (422, "transfers".to_owned()));
    let both = json!({"starts_at": "2h", "deadline": "1h"});
    assert_eq!(ask(true, &both), (422, "deadline".to_owned()));
    // Words of SQL and of HTML are words.
    let label = "'); DROP TABLE jobs; -- <script>alert(1)</script>";
    assert_eq!(ask(false, &json!({"label": label})).0, 200);
    let job = client.job(id).unwrap();
    assert_eq!(job.job.label, label);
    let page = agent()
        .get(format!("{}/jobs/{id}", scene.url))
        .header("Authorization", scene.token());
    let page = text(page.call().unwrap());
    assert!(!page.contains("<script>alert"), "{page}");
    // Nothing to set is no change.
    assert_eq!(ask(false, &json!({})).0, 200);
    let same = client.job(id).unwrap();
    assert_eq!(same.transitions.len(), job.transitions.len());
    client.change(id, "cancel").unwrap();
    scene.until_ended(id);
}

#[test]
fn a_schedule_begins_at_once_and_is_listed_and_deleted() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "content").unwrap();
    let client = scene.client();
    let label = "<b>nightly";
    let mut schedule = ScheduleSubmission {
        every: "6h".to_owned(),
        starts_at: None,
        job: Submission::new(label, vec![scene.upload(&file, "copied", None)]),
    };
    let made = client.schedule(&schedule, "1").unwrap();
    assert_eq!((made.every.as_str(), made.label.as_str()), ("6h", label));
    let again = client.schedule(&schedule, "1").unwrap();
    assert_eq!(again.id, made.id);
    let started = wait::until(super::PATIENCE, || {
        client.schedules(None).unwrap().schedules[0]
            .last_job
            .is_some()
    });
    assert!(started);
    let listed = client.schedules(None).unwrap();
    assert_eq!((listed.schedules.len(), listed.next), (1, None));
    assert_eq!(listed.schedules[0].next_at, made.next_at.after(DAY / 4));
    let done = scene.until_ended(listed.schedules[0].last_job.unwrap());
    assert_eq!(done.job.state, StateName::Succeeded, "{done:#?}");
    assert_eq!(done.job.schedule, Some(made.id));
    assert_eq!(fs::read(scene.path("root/copied")).unwrap(), b"content");
    let page = agent()
        .get(format!("{}/schedules", scene.url))
        .header("Authorization", scene.token());
    let page = text(page.call().unwrap());
    assert!(
        page.contains("1 submitted") && page.contains("6h"),
        "{page}"
    );
    assert!(!page.contains(label), "{page}");

    for rule in ["", "5s", "* * *", "0 0 30 2 *", &"x".repeat(1 << 20)] {
        schedule.every = rule.to_owned();
        let refused = client.schedule(&schedule, "2").unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument, "{refused}");
        assert_eq!(refused.path, b"every");
    }
    client.delete_schedule(made.id).unwrap();
    let gone = client.delete_schedule(made.id).unwrap_err();
    assert_eq!(gone.code, Code::NotFound);
    assert!(client.schedules(None).unwrap().schedules.is_empty());
    assert!(client.job(done.job.id).is_ok());
}
