//! Logins by keys that sign a challenge.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use xdfs::Code;
use xdfs::security::{SigningKey, make_key, prove_key};
use xdfs_service::{Challenge, KeySession, ServiceClient, ServiceLogin, Submission};

use super::users::scene_of_users;
use super::{Scene, agent, status, text};

/// A key that alice may log in by, and the list that has it.
fn key_of_alice(scene: &Scene) -> (PathBuf, PathBuf) {
    let (key, lists) = (scene.path("alice"), scene.path("server/keys"));
    let public = make_key(&key, "").unwrap();
    fs::create_dir(&lists).unwrap();
    let list = lists.join("alice");
    fs::write(&list, public.to_line("") + "\n").unwrap();
    (key, list)
}

fn log_in(scene: &Scene, user: &str, key: &Path) -> Result<ServiceClient, xdfs::Fault> {
    let login = ServiceLogin::Key(user.to_owned(), key.to_owned());
    ServiceClient::log_in(Path::new(""), Some(&scene.url), &login)
}

fn challenge(scene: &Scene) -> String {
    let asked = agent().post(format!("{}/api/v1/challenges", scene.url));
    let made: Challenge = serde_json::from_str(&text(asked.send_empty().unwrap())).unwrap();
    assert_eq!(made.seconds, 60);
    made.challenge
}

/// A login whose proof is bound to a host.
fn signed(key: &Path, user: &str, host: &str, challenge: &str) -> Value {
    let bound = format!("xdfs transfer service\n{host}\n{challenge}\n");
    let binding = Sha256::digest(bound.as_bytes()).into();
    let mut key = SigningKey::load(key, || None).unwrap();
    let proof = prove_key(&mut key, user, &binding).unwrap();
    let proof: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"user": user, "challenge": challenge, "proof": proof})
}

fn send(scene: &Scene, host: &str, login: &Value) -> (u16, String) {
    let asked = agent().post(format!("{}/api/v1/logins", scene.url));
    let answer = asked.header("Host", host).send(login.to_string()).unwrap();
    (status(&answer), text(answer))
}

#[test]
fn a_user_logs_in_by_a_key_until_it_is_listed_no_more() {
    let scene = scene_of_users();
    let (key, list) = key_of_alice(&scene);
    let client = log_in(&scene, "alice", &key).unwrap();
    let copy = json!({"version": 1, "transfers": [
        {"file": {"source": "xdfs://127.0.0.1:1/a", "target": "xdfs://127.0.0.1:1/b"}}]});
    let submission: Submission = serde_json::from_value(copy).unwrap();
    let submitted = client.submit(&submission, "1").unwrap();
    assert_eq!(submitted.job.owner, "alice");
    // All that a login by a password may do.
    assert!(client.tokens().unwrap().tokens.is_empty());

    let other = scene.path("other");
    make_key(&other, "").unwrap();
    for (user, key) in [("bob", &key), ("alice", &other), ("unknown", &key)] {
        let refused = log_in(&scene, user, key).unwrap_err();
        assert_eq!(refused.code, Code::AuthenticationFailed, "{user}");
    }
    let audited = client.jobs(None, None, 10).unwrap();
    assert_eq!(audited.jobs.len(), 1);

    fs::write(&list, "").unwrap();
    let refused = client.jobs(None, None, 10).unwrap_err();
    assert_eq!(refused.code, Code::AuthenticationFailed);
}

#[test]
fn a_challenge_is_for_one_login_at_one_service() {
    let scene = scene_of_users();
    let (key, _) = key_of_alice(&scene);
    let host = scene.url.strip_prefix("http://").unwrap();
    let sign = |host: &str| signed(&key, "alice", host, &challenge(&scene));

    let login = sign(host);
    let (code, made) = send(&scene, host, &login);
    assert_eq!(code, 201, "{made}");
    let session: KeySession = serde_json::from_str(&made).unwrap();
    let bearer = format!("Bearer {}", session.token);
    assert_eq!(status(&scene.get(&bearer, "/api/v1/jobs")), 200);
    // What somebody has heard is worth nothing.
    let (code, again) = send(&scene, host, &login);
    assert!(code == 401 && again.contains("was used"), "{code} {again}");

    // One that signs for another service, which passes it on.
    let elsewhere = sign("copies.example");
    assert_eq!(send(&scene, host, &elsewhere).0, 401);
    let (code, refused) = send(&scene, "copies.example", &elsewhere);
    assert!(code == 422 && refused.contains("--public-url"), "{refused}");

    let good = sign(host);
    for (field, value) in [
        ("user", json!("bob")),
        ("user", json!("")),
        ("challenge", json!("")),
        ("challenge", json!("0".repeat(112))),
        ("challenge", json!(challenge(&scene))),
        ("proof", json!("")),
        ("proof", json!("x")),
        ("proof", json!("\u{e9}\u{e9}")),
        ("proof", json!("00".repeat(5000))),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        // Several wrong ones make the user wait.
        let (code, refused) = send(&scene, host, &bad);
        assert!(code == 401 || code == 429, "{bad} {refused}");
    }
    // Nor have they used it up.
    let (code, last) = send(&scene, host, &good);
    assert!(code == 201 || code == 429, "{code} {last}");
    for body in [
        "",
        "{}",
        "[]",
        r#"{"user":"alice","challenge":"","proof":"","more":1}"#,
    ] {
        let asked = agent().post(format!("{}/api/v1/logins", scene.url));
        assert_eq!(status(&asked.send(body).unwrap()), 400, "{body}");
    }
}

#[test]
fn without_users_there_are_no_logins_by_keys() {
    let scene = Scene::new();
    let key = scene.path("key");
    make_key(&key, "").unwrap();
    let owner = xdfs::settings::user_name();
    for user in ["", &owner, "alice"] {
        let refused = log_in(&scene, user, &key).unwrap_err();
        assert_eq!(refused.code, Code::AuthenticationFailed, "{user}");
    }
}
