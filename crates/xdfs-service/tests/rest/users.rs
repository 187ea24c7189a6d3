//! Users, their sessions and tokens, and what they may.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use ureq::Body;
use ureq::http::Response;
use xdfs::security::{ServerSecurity, UsersFile};
use xdfs_service::{JobPage, Links, NewToken, Scope, ServiceUsers, TokenPage, WebhookOptions};
use xdfs_testkit::wait;

use super::{PATIENCE, Scene, agent, status, text};

const OWNER: &str = "<b>owner</b>";
const FORM: &str = "application/x-www-form-urlencoded";

fn users_file(folder: &Path) -> UsersFile {
    UsersFile::new(folder.join("server/users"))
}

/// The users alice, bob, and carol, an administrator, whose passwords are `NAME's password`.
fn users(folder: &Path) -> Option<ServiceUsers> {
    let server = folder.join("server");
    fs::create_dir(&server).unwrap();
    for name in ["alice", "bob", "carol"] {
        users_file(folder).add(name, &password(name)).unwrap();
    }
    let security = ServerSecurity::new(server, OWNER.to_owned());
    Some(ServiceUsers::new(security, ["carol".to_owned()]).unwrap())
}

pub(crate) fn scene_of_users() -> Scene {
    Scene::with_users(1, WebhookOptions::default(), users)
}

/// Sets a secret. Returns the answer.
#[track_caller]
pub(crate) fn set_secret(
    scene: &Scene,
    authorization: &str,
    name: &str,
    secret: &Value,
    expected: u16,
) -> String {
    let request = agent().put(format!("{}/api/v1/secrets/{name}", scene.url));
    let request = request.header("Authorization", authorization);
    let answer = request.send(secret.to_string()).unwrap();
    let code = status(&answer);
    let answer = text(answer);
    assert_eq!(code, expected, "{name} {answer}");
    answer
}

fn password(name: &str) -> String {
    format!("{name}'s password")
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
}

impl Scene {
    pub(crate) fn get(&self, authorization: &str, path: &str) -> Response<Body> {
        let request = agent().get(format!("{}{path}", self.url));
        request
            .header("Authorization", authorization)
            .call()
            .unwrap()
    }

    pub(crate) fn post(&self, authorization: &str, path: &str, body: &str) -> Response<Body> {
        let request = agent().post(format!("{}{path}", self.url));
        request
            .header("Authorization", authorization)
            .send(body)
            .unwrap()
    }

    pub(crate) fn delete(&self, authorization: &str, path: &str) -> Response<Body> {
        let request = agent().delete(format!("{}{path}", self.url));
        request
            .header("Authorization", authorization)
            .call()
            .unwrap()
    }

    /// Sends a form as a page of an origin would.
    fn form(
        &self,
        origin: &str,
        cookie: &str,
        path: &str,
        pairs: &[(&str, &str)],
    ) -> Response<Body> {
        let encoded =
            |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
        let pairs = pairs.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        let request = agent().post(format!("{}{path}", self.url));
        request
            .header("Content-Type", FORM)
            .header("Origin", origin)
            .header("Cookie", cookie)
            .send(pairs.join("&"))
            .unwrap()
    }

    fn log_in(&self, cookie: &str, name: &str, password: &str) -> Response<Body> {
        let pairs = [("user", name), ("password", password)];
        self.form(&self.url, cookie, "/login", &pairs)
    }

    /// The status of a page for a browser with this cookie.
    fn page(&self, cookie: &str) -> u16 {
        let request = agent().get(&self.url).header("Cookie", cookie);
        status(&request.call().unwrap())
    }

    fn new_token(&self, authorization: &str, scope: Scope) -> NewToken {
        let body = json!({"label": "<i>mine</i>", "scope": scope});
        let made = self.post(authorization, "/api/v1/tokens", &body.to_string());
        assert_eq!(status(&made), 201);
        serde_json::from_str(&text(made)).unwrap()
    }

    /// A token of a user, as it is sent.
    pub(crate) fn bearer(&self, name: &str, scope: Scope) -> String {
        let token = self.new_token(&basic(name, &password(name)), scope);
        format!("Bearer {}", token.token)
    }

    /// Submits a copy between servers that aren't there. Returns the id of the job.
    fn submit_between(&self, authorization: &str, label: &str) -> String {
        let body = json!({"version": 1, "label": label, "retries_max": 0, "transfers": [
            {"file": {"source": "xdfs://127.0.0.1:1/a", "target": "xdfs://127.0.0.1:1/b"}}]});
        let submitted = self.post(authorization, "/api/v1/jobs", &body.to_string());
        assert_eq!(status(&submitted), 201, "{}", text(submitted));
        let job: Value = serde_json::from_str(&text(submitted)).unwrap();
        job["id"].as_str().unwrap().to_owned()
    }

    fn labels(&self, authorization: &str) -> Vec<String> {
        let listed = text(self.get(authorization, "/api/v1/jobs"));
        let page: JobPage = serde_json::from_str(&listed).unwrap();
        page.jobs.into_iter().map(|job| job.label).collect()
    }
}

fn cookie(answer: &Response<Body>) -> String {
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    cookie.split(';').next().unwrap().to_owned()
}

#[test]
fn users_see_and_change_jobs_of_their_own_alone() {
    let scene = scene_of_users();
    let [alice, bob, carol] =
        ["alice", "bob", "carol"].map(|name| scene.bearer(name, Scope::Admin));
    let id = scene.submit_between(&alice, "of alice");
    scene.submit_between(&bob, "of bob");
    assert_eq!(scene.labels(&alice), ["of alice"]);
    assert_eq!(scene.labels(&bob), ["of bob"]);
    for administrator in [&carol, &scene.token()] {
        assert_eq!(scene.labels(administrator), ["of bob", "of alice"]);
    }
    // With less, an administrator is a user as others are.
    assert!(
        scene
            .labels(&scene.bearer("carol", Scope::Submit))
            .is_empty()
    );

    // The job of another user answers as one that doesn't exist, whatever is asked.
    let other = "018bcfe5-687b-7fff-bfff-ffffffffffff";
    let paths = [
        ("GET", "/api/v1/jobs/ID"),
        ("GET", "/api/v1/jobs/ID/events"),
        ("GET", "/api/v1/jobs/ID/failures"),
        ("GET", "/api/v1/jobs/ID/files"),
        ("GET", "/api/v1/jobs/ID/manifest"),
        ("GET", "/jobs/ID/manifest"),
        ("POST", "/api/v1/jobs/ID:cancel"),
        ("POST", "/api/v1/jobs/ID:retry"),
        ("POST", "/api/v1/jobs/ID%3acancel"),
        ("DELETE", "/api/v1/jobs/ID"),
        ("GET", "/jobs/ID"),
        ("GET", "/jobs/ID/live"),
        ("POST", "/jobs/ID/cancel"),
    ];
    for (method, path) in paths {
        let ask = |id: &str| {
            let path = path.replace("ID", id);
            let answer = match method {
                "GET" => scene.get(&bob, &path),
                "POST" => scene.post(&bob, &path, ""),
                _ => scene.delete(&bob, &path),
            };
            (status(&answer), text(answer).replace(id, "ID"))
        };
        let (code, body) = ask(&id);
        assert_eq!((code, &body), (404, &ask(other).1), "{method} {path}");
        assert!(!body.contains("alice"), "{body}");
    }
    assert_eq!(
        status(&scene.get(&alice, &format!("/api/v1/jobs/{id}"))),
        200
    );
    assert_eq!(status(&scene.get(&carol, &format!("/jobs/{id}"))), 200);
    let page = text(scene.get(&bob, "/"));
    assert!(
        page.contains("of bob") && !page.contains("of alice"),
        "{page}"
    );
}

#[test]
fn users_see_the_servers_of_their_own_jobs_alone() {
    let scene = scene_of_users();
    let [alice, bob, carol] =
        ["alice", "bob", "carol"].map(|name| scene.bearer(name, Scope::Admin));
    scene.submit_between(&alice, "of alice");
    let down = |who: &str| {
        let answer = scene.get(who, "/api/v1/links");
        assert_eq!(status(&answer), 200);
        let links: Links = serde_json::from_str(&text(answer)).unwrap();
        links.outages.len()
    };
    let came = wait::until(PATIENCE, || down(&carol) == 1);
    assert!(came);
    let carol_as_a_user = scene.bearer("carol", Scope::Submit);
    let seen = [&alice, &bob, &carol_as_a_user].map(|who| down(who));
    assert_eq!(seen, [1, 0, 0]);
    let pages = [&alice, &bob].map(|who| text(scene.get(who, "/servers")));
    let shown = pages.map(|page| page.contains("127.0.0.1:1") && page.contains("is down"));
    assert_eq!(shown, [true, false]);
}

#[test]
fn schedules_are_of_their_users_alone() {
    let scene = scene_of_users();
    let [alice, bob] = ["alice", "bob"].map(|name| scene.bearer(name, Scope::Submit));
    let schedule = |source: &str| {
        let job = json!({"version": 1, "label": "of alice", "retries_max": 0, "transfers": [
            {"file": {"source": source, "target": "xdfs://127.0.0.1:1/b"}}]});
        let body = json!({"every": "6h", "job": job}).to_string();
        scene.post(&alice, "/api/v1/schedules", &body)
    };
    assert_eq!(status(&schedule("/etc/passwd")), 403);
    let made = schedule("xdfs://127.0.0.1:1/a");
    assert_eq!(status(&made), 201);
    let made: Value = serde_json::from_str(&text(made)).unwrap();
    let id = made["id"].as_str().unwrap();
    let list = |user: &str, path: &str| text(scene.get(user, path)).contains("of alice");
    for path in ["/api/v1/schedules", "/schedules"] {
        assert!(list(&alice, path) && list(&scene.token(), path), "{path}");
        assert!(!list(&bob, path), "{path}");
    }
    let other = "018bcfe5-687b-7fff-bfff-ffffffffffff";
    for path in ["/api/v1/schedules/ID", "/schedules/ID/delete"] {
        let ask = |id: &str| {
            let path = path.replace("ID", id);
            let answers = [
                scene.get(&bob, &path),
                scene.delete(&bob, &path),
                scene.post(&bob, &path, ""),
            ];
            answers.map(|answer| (status(&answer), text(answer).replace(id, "ID")))
        };
        let answers = ask(id);
        assert!(
            answers.iter().all(|(status, _)| *status == 404),
            "{answers:?}"
        );
        assert_eq!(answers, ask(other));
    }
    assert_eq!(
        status(&scene.delete(&alice, &format!("/api/v1/schedules/{id}"))),
        204
    );
}

#[test]
fn jobs_of_users_have_nothing_of_the_owner_s() {
    let scene = scene_of_users();
    let (alice, carol) = (
        scene.bearer("alice", Scope::Submit),
        scene.bearer("carol", Scope::Submit),
    );
    let file = scene.path("file");
    fs::write(&file, "secret of the owner").unwrap();
    let server = "xdfs://127.0.0.1:1/a";
    let places = [
        json!(file),
        json!("ssh://127.0.0.1/a"),
        json!("sshftp://127.0.0.1/a"),
        json!("xdfs+unix:/run/xdfs.sock"),
        json!({"url": server, "profile": "lab"}),
    ];
    for place in places {
        for (source, target) in [(&place, &json!(server)), (&json!(server), &place)] {
            let body = json!({"version": 1, "transfers": [
                {"tree": {"source": source, "target": target}}]});
            let body = body.to_string();
            let refused = scene.post(&alice, "/api/v1/jobs", &body);
            let code = status(&refused);
            let problem = text(refused);
            // A place that can't be read is none.
            assert!(matches!(code, 403 | 400), "{body}: {problem}");
            assert!(
                code == 403 || place == "xdfs+unix:/run/xdfs.sock",
                "{body}: {problem}"
            );
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
    // An administrator may.
    let body = json!({"version": 1, "retries_max": 0,
        "transfers": [{"file": {"source": file, "target": server}}]});
    assert_eq!(
        status(&scene.post(&carol, "/api/v1/jobs", &body.to_string())),
        201
    );
}

#[test]
fn a_login_gives_a_new_cookie_and_ends_the_old_one() {
    let scene = scene_of_users();
    let password = password("alice");
    let name = scene.log_in("", "alice", "wrong");
    assert_eq!(status(&name), 401);
    assert!(!name.headers().contains_key("set-cookie"));
    assert!(text(name).contains("The name or the password is wrong"));

    // One that somebody else has chosen is never the one of a session.
    let first = cookie(&scene.log_in("", "alice", &password));
    let (cookie_name, _) = first.split_once('=').unwrap();
    let chosen = format!("{cookie_name}={}", "0".repeat(64));
    assert_eq!(scene.page(&chosen), 401);
    let second = cookie(&scene.log_in(&chosen, "alice", &password));
    assert!(second != chosen && second != first);
    assert_eq!(scene.page(&chosen), 401);
    // The session of the browser before ends.
    let third = cookie(&scene.log_in(&first, "alice", &password));
    assert_eq!(
        (scene.page(&first), scene.page(&second), scene.page(&third)),
        (401, 200, 200)
    );

    // A logout ends it on the server too, and comes from a page of the service alone.
    for origin in ["", "null", "http://127.0.0.1:1", "https://evil.example"] {
        assert_eq!(
            status(&scene.form(origin, &third, "/logout", &[])),
            403,
            "{origin}"
        );
    }
    assert_eq!(scene.page(&third), 200);
    let ended = scene.form(&scene.url, &third, "/logout", &[]);
    assert_eq!(status(&ended), 303);
    assert_eq!(cookie(&ended), format!("{cookie_name}="));
    assert_eq!((scene.page(&third), scene.page(&second)), (401, 200));

    // A new password ends all sessions by the old one, and so does the end of the user.
    let users = users_file(scene.folder.path());
    users.set_password("alice", "another password").unwrap();
    assert_eq!(scene.page(&second), 401);
    let fourth = cookie(&scene.log_in("", "alice", "another password"));
    assert_eq!(scene.page(&fourth), 200);
    users.remove("alice").unwrap();
    assert_eq!(scene.page(&fourth), 401);
}

#[test]
fn forms_of_other_pages_do_nothing_and_no_login_leads_elsewhere() {
    let scene = scene_of_users();
    let password = password("alice");
    let login = [("user", "alice"), ("password", &*password)];
    for origin in ["", "null", "http://127.0.0.1:1", "https://evil.example"] {
        let refused = scene.form(origin, "", "/login", &login);
        assert_eq!(status(&refused), 403, "{origin}");
        assert!(!refused.headers().contains_key("set-cookie"));
    }
    let session = cookie(&scene.log_in("", "alice", &password));
    let token = [("label", ""), ("scope", "admin"), ("days", "1")];
    for origin in ["", "null", "http://127.0.0.1:1"] {
        for path in [
            "/settings/tokens",
            "/settings/tokens/0/revoke",
            "/api/v1/tokens",
        ] {
            assert_eq!(
                status(&scene.form(origin, &session, path, &token)),
                401,
                "{path}"
            );
        }
    }
    assert_eq!(
        status(&scene.form(&scene.url, &session, "/settings/tokens", &token)),
        201
    );

    // The page that was asked for, if it is one of this service.
    let wanted = agent()
        .get(format!("{}/settings?a=b", scene.url))
        .call()
        .unwrap();
    assert_eq!(status(&wanted), 401);
    assert!(text(wanted).contains(r#"name="next" value="/settings?a=b""#));
    for (next, to) in [
        ("/settings?a=b", "/settings?a=b"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("\"><script>", "/"),
    ] {
        let pairs = [login[0], login[1], ("next", next)];
        let answer = scene.form(&scene.url, "", "/login", &pairs);
        assert_eq!(
            (
                status(&answer),
                answer.headers()["location"].to_str().unwrap()
            ),
            (303, to)
        );
    }
    let wanted = agent()
        .get(format!("{}//evil.example/%0d%0a", scene.url))
        .call()
        .unwrap();
    assert!(!text(wanted).contains(r#"value="//"#));
    // Over TLS the cookie never goes without it.
    let host = scene.url.strip_prefix("http://").unwrap();
    let secure = scene.form(&format!("https://{host}"), "", "/login", &login);
    let secure = secure.headers()["set-cookie"].to_str().unwrap();
    assert!(secure.contains("; Secure"), "{secure}");
}

#[test]
fn texts_of_users_are_no_html() {
    let scene = scene_of_users();
    let owner = scene.token();
    scene.new_token(&owner, Scope::Read);
    let settings = text(scene.get(&owner, "/settings"));
    assert!(settings.contains("&#60;b&#62;owner"), "{settings}");
    assert!(
        !settings.contains("<b>owner") && !settings.contains("<i>mine"),
        "{settings}"
    );
    let refused = text(scene.log_in("", "\"><script>alert(1)</script>", "x"));
    assert!(!refused.contains("<script>alert"), "{refused}");
}

#[test]
fn wrong_passwords_wait_at_the_page_and_over_rest_alike() {
    let scene = scene_of_users();
    let right = basic("alice", &password("alice"));
    assert_eq!(status(&scene.log_in("", "alice", "1")), 401);
    for guess in ["2", "3"] {
        let refused = scene.get(&basic("alice", guess), "/api/v1/jobs");
        assert_eq!(status(&refused), 401);
        // So that no browser asks for it, and sends it for pages of others from then on.
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    }
    let waits = [
        scene.log_in("", "alice", &password("alice")),
        scene.get(&right, "/api/v1/jobs"),
    ];
    for wait in waits {
        assert_eq!(status(&wait), 429);
        assert!(wait.headers()["retry-after"].to_str().unwrap() >= "1");
        assert!(!wait.headers().contains_key("set-cookie"));
    }
    // The others don't, and tokens can't be guessed.
    let bob = basic("bob", &password("bob"));
    assert_eq!(status(&scene.get(&bob, "/api/v1/jobs")), 200);
    for wrong in [
        "Basic",
        "Basic !",
        "Basic YWxpY2U=",
        "Digest x",
        &basic("", ""),
        &basic("mallory", "x"),
    ] {
        assert_eq!(status(&scene.get(wrong, "/api/v1/jobs")), 401, "{wrong}");
    }
}

#[test]
fn tokens_have_a_scope_and_can_be_revoked() {
    let scene = scene_of_users();
    let password = basic("alice", &password("alice"));
    let [read, submit, admin] = Scope::ALL.map(|scope| scene.new_token(&password, scope));
    let bearer = |token: &NewToken| format!("Bearer {}", token.token);
    let [reader, submitter, administrator] = [&read, &submit, &admin].map(bearer);
    let id = scene.submit_between(&submitter, "");
    let (job, cancel) = (
        format!("/api/v1/jobs/{id}"),
        format!("/api/v1/jobs/{id}:retry"),
    );
    for (token, expected) in [
        (&reader, [200, 403, 403, 403, 403]),
        (&submitter, [200, 400, 200, 403, 403]),
        (&administrator, [200, 400, 200, 200, 200]),
    ] {
        // Not while it runs.
        scene.until_ended(id.parse().unwrap());
        let statuses = [
            scene.get(token, &job),
            scene.post(token, "/api/v1/jobs", "{}"),
            scene.post(token, &cancel, ""),
            scene.get(token, "/api/v1/tokens"),
            scene.get(token, "/settings"),
        ];
        assert_eq!(statuses.map(|answer| status(&answer)), expected);
    }
    // No token makes another one, which would last longer.
    let body = json!({"scope": "read"}).to_string();
    let refused = scene.post(&administrator, "/api/v1/tokens", &body);
    assert_eq!(status(&refused), 403);
    for body in [
        json!({}),
        json!({"scope": "all"}),
        json!({"scope": "read", "more": 1}),
    ] {
        let refused = scene.post(&password, "/api/v1/tokens", &body.to_string());
        assert_eq!(status(&refused), 400, "{body}");
    }
    for days in [0, 367, 4_000_000_000_u32] {
        let body = json!({"scope": "read", "days": days}).to_string();
        assert_eq!(status(&scene.post(&password, "/api/v1/tokens", &body)), 422);
    }

    // Others don't see it, and can't revoke it.
    let list = |authorization: &str| {
        let listed = text(scene.get(authorization, "/api/v1/tokens"));
        let secret = read.token.rsplit_once('_').unwrap().1;
        assert!(!listed.contains(secret), "{listed}");
        let page: TokenPage = serde_json::from_str(&listed).unwrap();
        page.tokens.len()
    };
    let bob = scene.bearer("bob", Scope::Admin);
    assert_eq!((list(&administrator), list(&bob)), (3, 1));
    assert_eq!(list(&scene.token()), 4);
    let path = format!("/api/v1/tokens/{}", read.info.id);
    assert_eq!(status(&scene.delete(&bob, &path)), 404);
    assert_eq!(status(&scene.get(&reader, "/api/v1/jobs")), 200);
    assert_eq!(status(&scene.delete(&administrator, &path)), 204);
    assert_eq!(status(&scene.get(&reader, "/api/v1/jobs")), 401);
    assert_eq!(status(&scene.delete(&administrator, &path)), 404);

    // Neither the secret of another one, nor a part, nor a longer one.
    let (own, other) = (&submit.token, &admin.token);
    let (id, _) = own.rsplit_once('_').unwrap();
    let (_, secret) = other.rsplit_once('_').unwrap();
    for wrong in [
        format!("{id}_{secret}"),
        own[..own.len() - 1].to_owned(),
        format!("{own}0"),
        id.to_owned(),
    ] {
        assert_eq!(
            status(&scene.get(&format!("Bearer {wrong}"), "/api/v1/jobs")),
            401,
            "{wrong}"
        );
    }
    // The end of a user is that of its tokens.
    users_file(scene.folder.path()).remove("alice").unwrap();
    assert_eq!(status(&scene.get(&administrator, "/api/v1/jobs")), 401);

    for entry in fs::read_dir(scene.path("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let content = fs::read(&path).unwrap();
            let found = content
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}
