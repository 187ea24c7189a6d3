//! The files of contrib/ for operators: the unit of systemd, and a service behind nginx.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};
use xdfs::Code;
use xdfs_service::{Service, ServiceClient, ServiceOptions, Submission};
use xdfs_testkit::process::Guard;
use xdfs_testkit::skip;

use super::programs::program;
use super::users::scene_of_users;
use super::{PATIENCE, agent, options, status, text};

const UNIT: &str = include_str!("../../../../contrib/xdfs-transfers.service");
const NGINX: &str = include_str!("../../../../contrib/xdfs-transfers.nginx.conf");

#[test]
fn the_unit_is_one_of_systemd() {
    let Some(program) = program(&["systemd-analyze"]) else {
        return skip::test("there is no systemd-analyze");
    };
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("xdfs-transfers.service");
    let own = env::current_exe().unwrap();
    let text = UNIT
        .replace("/usr/local/bin/xdfs", own.to_str().unwrap())
        .replace("Documentation=man:xdfs-service(1)\n", "");
    // What is commented out has to be right as well.
    let is_setting = |line: &str| line.starts_with("#Load") || line.starts_with("#Read");
    let lines = text.lines().map(|line| match is_setting(line) {
        true => &line[1..],
        false => line,
    });
    fs::write(&unit, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let ran = Command::new(program).arg("verify").arg(&unit).output();
    let ran = ran.unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    // Other units of the machine may be wrong.
    let own: Vec<_> = errors
        .lines()
        .filter(|line| line.contains("xdfs-transfers"))
        .collect();
    assert!(own.is_empty(), "{own:#?}");
}

/// The example for nginx, which listens on this port.
fn nginx_conf(folder: &Path, service: &str, port: u16) -> String {
    let here = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let replaced = [
        ("listen 443 ssl;", format!("listen 127.0.0.1:{port} ssl;")),
        ("http://127.0.0.1:2780", service.to_owned()),
        ("/etc/ssl/copies.example.pem", here("cert.pem")),
        ("/etc/ssl/private/copies.example.key", here("key.pem")),
    ];
    let site = replaced.iter().fold(NGINX.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary
        .iter()
        .map(|kind| format!("{kind}_temp_path {};\n", here(kind)))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}{site}\n}}\n",
        here("nginx.pid")
    )
}

fn with_cookie(browser: &Agent, url: &str, cookie: &str) -> Response<Body> {
    browser.get(url).header("Cookie", cookie).call().unwrap()
}

#[test]
fn nginx_passes_on_logins_forms_and_events() {
    use std::io::{BufRead as _, BufReader};

    let (Some(nginx), Some(openssl)) = (program(&["nginx"]), program(&["openssl"])) else {
        return skip::test("there is no nginx, or no openssl");
    };
    let scene = scene_of_users();
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=localhost", "-keyout", "key.pem"])
        .args(["-out", "cert.pem"])
        .current_dir(folder.path())
        .output();
    assert!(made.unwrap().status.success());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let conf = folder.path().join("nginx.conf");
    fs::write(&conf, nginx_conf(folder.path(), &scene.url, port)).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(folder.path()).arg("-c").arg(&conf);
    let proxy = Guard::spawn(command.args(["-e", "stderr"])).unwrap();

    // Whom to trust is no matter of this test.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let browser: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .tls_config(tls)
        .timeout_global(Some(PATIENCE))
        .build()
        .into();
    let url = format!("https://localhost:{port}");
    let login = || browser.get(format!("{url}/login")).call();
    let came = xdfs_testkit::wait::until(PATIENCE, || {
        login().is_ok_and(|answer| status(&answer) == 200)
    });
    assert!(came, "{:?} {:?}", login(), proxy.output());

    // A login gives a cookie that is only for TLS, and a page of another origin does nothing.
    let form = |origin: &str, path: &str, cookie: &str, fields: &[(&str, &str)]| {
        let request = browser.post(format!("{url}{path}"));
        let request = request.header("Origin", origin).header("Cookie", cookie);
        request.send_form(fields.iter().copied()).unwrap()
    };
    let fields = [("user", "carol"), ("password", "carol's password")];
    let foreign = form("https://evil.example", "/login", "", &fields);
    assert_eq!(status(&foreign), 403);
    let logged_in = form(&url, "/login", "", &fields);
    assert_eq!(status(&logged_in), 303);
    let cookie = logged_in.headers()["set-cookie"].to_str().unwrap();
    let is_safe = ["HttpOnly", "SameSite=Strict", "Secure"].map(|word| cookie.contains(word));
    assert_eq!(is_safe, [true; 3], "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(status(&with_cookie(&browser, &url, &cookie)), 200);
    let token = [("label", "x"), ("scope", "read"), ("days", "1")];
    let foreign = form("https://evil.example", "/settings/tokens", &cookie, &token);
    assert_eq!(status(&foreign), 401);
    let own = form(&url, "/settings/tokens", &cookie, &token);
    assert_eq!(status(&own), 201);

    // Events come one by one, while the stream is open.
    let place = "xdfs://127.0.0.1:1/x";
    let copy = serde_json::json!({"version": 1, "label": "behind a proxy", "starts_at": "1h",
        "transfers": [{"file": {"source": "/none", "target": place}}]});
    let submission: Submission = serde_json::from_value(copy).unwrap();
    let job = scene.client().submit(&submission, "1").unwrap().job;
    let events = with_cookie(
        &browser,
        &format!("{url}/api/v1/jobs/{}/events", job.id),
        &cookie,
    );
    assert_eq!(status(&events), 200);
    let mut lines = BufReader::new(events.into_body().into_reader()).lines();
    let mut next = |word: &str| {
        let found = lines.find(|line| line.as_ref().unwrap().contains(word));
        assert!(found.is_some(), "the stream has ended before {word}");
    };
    next("behind a proxy");
    scene.client().change(job.id, "cancel").unwrap();
    next("\"state\":\"cancelled\"");

    // Commands trust the authorities of the system, of which none knows this certificate.
    let client = ServiceClient::new(&scene.path("data"), Some(&url)).unwrap();
    let refused = client.jobs(None, None, 1).unwrap_err();
    assert!(refused.cause.contains("certificate"), "{refused}");
    assert!(refused.hint.contains("SSL_CERT_FILE"), "{refused:?}");

    // What needs no login isn't for everybody.
    for path in ["metrics", "healthz", "readyz"] {
        let answer = browser.get(format!("{url}/{path}")).call().unwrap();
        assert_eq!(status(&answer), 404, "{path}");
        let direct = agent().get(format!("{}/{path}", scene.url)).call().unwrap();
        assert_eq!(status(&direct), 200, "{path} {}", text(direct));
    }
}

#[test]
fn a_link_of_a_public_url_gives_a_cookie_for_tls() {
    let folder = tempfile::tempdir().unwrap();
    let bind = |public_url: &str| {
        Service::bind(ServiceOptions {
            public_url: Some(public_url.to_owned()),
            ..options(folder.path().join("data"))
        })
    };
    for url in ["copies.example", "ftp://copies.example", "https://", ""] {
        let refused = bind(url).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument, "{url} {refused}");
    }
    let service = bind("https://copies.example/").unwrap();
    let links = [service.login_link().unwrap(), service.login_link().unwrap()];
    let (url, handle) = (service.url(), service.handle());
    let running = thread::spawn(move || service.run());
    for (link, host, is_safe) in [
        (&links[0], "copies.example", true),
        (&links[1], url.strip_prefix("http://").unwrap(), false),
    ] {
        let path = link.strip_prefix("https://copies.example").unwrap();
        let request = agent().get(format!("{url}{path}")).header("Host", host);
        let answer = request.call().unwrap();
        assert_eq!(status(&answer), 303, "{host}");
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert_eq!(cookie.contains("; Secure"), is_safe, "{cookie}");
    }
    // Used once.
    let path = links[0].strip_prefix("https://copies.example").unwrap();
    let again = agent().get(format!("{url}{path}")).call().unwrap();
    assert_eq!(status(&again), 401);
    handle.shutdown();
    running.join().unwrap().unwrap();
}
