//! The listener with TLS: logins by certificates, and connections that say nothing.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use xdfs::Fault;
use xdfs::security::{ServerSecurity, UsersFile};
use xdfs_service::{NewToken, Service, ServiceHandle, ServiceOptions, ServiceUsers, TlsListener};
use xdfs_testkit::wait;

use super::{PATIENCE, options, status, text};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> Authority {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate of `/CN=name` and its key, as PEM.
fn certificate(name: &str, by: &Authority, until: i32) -> (String, String) {
    let mut params = params(name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let pem = params.signed_by(&key, by).unwrap().pem();
    (pem, key.serialize_pem())
}

fn write_key(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A service with TLS, whose users are dave and carol by certificates, and alice by a password.
struct Scene {
    folder: tempfile::TempDir,
    by: Authority,
    service: ServiceHandle,
    url: String,
    plain_url: String,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.service.shutdown();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (by, path) = (authority("authority"), |name: &str| {
            folder.path().join(name)
        });
        let server = path("server");
        fs::create_dir(&server).unwrap();
        UsersFile::new(server.join("users"))
            .add("alice", "alice's password")
            .unwrap();
        fs::write(path("clients.pem"), by.as_ref().pem()).unwrap();
        let map = "\"/CN=Dave\" dave\n\"/CN=Carol\" carol\n";
        fs::write(path("map"), map).unwrap();
        let (chain, key) = certificate("service", &by, 2100);
        fs::write(path("chain.pem"), chain).unwrap();
        write_key(&path("key.pem"), &key);
        let mut security = ServerSecurity::new(server, "owner".to_owned());
        security.certificate = Some((path("chain.pem"), path("key.pem")));
        security.client_authorities = Some((path("clients.pem"), path("map")));
        security.audit = Some(path("audit"));
        let administrators = ["carol".to_owned()];
        let (users, tls) = ServiceUsers::with_certificates(security, administrators).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let service = Service::bind(ServiceOptions {
            tls: Some(TlsListener { listen, tls }),
            users: Some(users),
            ..options(path("data"))
        });
        let service = service.unwrap();
        let address = service.tls_url().unwrap();
        Self {
            by,
            service: service.handle(),
            url: address.replace("127.0.0.1", "localhost"),
            plain_url: service.url(),
            thread: Some(thread::spawn(move || service.run())),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self) -> SocketAddr {
        let port = self.url.rsplit(':').next().unwrap();
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    /// A browser or a program, with a certificate or without one.
    fn agent(&self, certificate: Option<&(String, String)>) -> Agent {
        let own = certificate.map(|(chain, key)| {
            let chain = Certificate::from_pem(chain.as_bytes()).unwrap();
            let key = PrivateKey::from_pem(key.as_bytes()).unwrap();
            ClientCert::new_with_certs(&[chain], key)
        });
        let root = Certificate::from_pem(self.by.as_ref().pem().as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(vec![root])))
            .client_cert(own)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls)
            .timeout_global(Some(PATIENCE))
            .build()
            .into()
    }

    fn of(&self, name: &str) -> Agent {
        self.agent(Some(&certificate(name, &self.by, 2100)))
    }

    /// The status of an answer, which is read to its end: the connection is used again.
    fn get(&self, agent: &Agent, path: &str) -> u16 {
        let answer = agent.get(format!("{}{path}", self.url)).call().unwrap();
        let code = status(&answer);
        text(answer);
        code
    }

    fn submit(&self, agent: &Agent, origin: &str) -> (u16, String) {
        let copy = json!({"version": 1, "starts_at": "1h", "transfers": [
            {"file": {"source": "xdfs://127.0.0.1:1/a", "target": "xdfs://127.0.0.1:1/b"}}]});
        let request = agent.post(format!("{}/api/v1/jobs", self.url));
        let request = request.header("Origin", origin);
        let answer = request.send(copy.to_string()).unwrap();
        (status(&answer), text(answer))
    }
}

#[test]
fn a_user_comes_in_by_a_certificate_until_the_grid_map_has_it_no_more() {
    let scene = Scene::new();
    let dave = scene.of("Dave");
    let (code, submitted) = scene.submit(&dave, &scene.url);
    assert_eq!(code, 201, "{submitted}");
    assert!(submitted.contains(r#""owner":"dave""#));
    assert_eq!(scene.get(&dave, "/"), 200);
    // A page of others makes a browser show its certificate.
    for origin in ["https://evil.example", "null", ""] {
        assert_eq!(scene.submit(&dave, origin).0, 401, "{origin}");
    }
    let token = dave.post(format!("{}/api/v1/tokens", scene.url));
    let token = token
        .header("Origin", &scene.url)
        .send(r#"{"scope":"read"}"#);
    let token: NewToken = serde_json::from_str(&text(token.unwrap())).unwrap();
    let bearer = format!("Bearer {}", token.token);
    let by_token = |url: &str| {
        let request = scene.agent(None).get(format!("{url}/api/v1/jobs"));
        status(&request.header("Authorization", &bearer).call().unwrap())
    };
    assert_eq!(
        (by_token(&scene.url), by_token(&scene.plain_url)),
        (200, 200)
    );
    // Each sees its own, and an administrator all.
    let count = |agent: &Agent| {
        let page = agent.get(format!("{}/api/v1/jobs", scene.url)).call();
        text(page.unwrap()).matches(r#""id":"#).count()
    };
    assert_eq!((count(&dave), count(&scene.of("Carol"))), (1, 1));

    // The connection is open still, and its certificate good.
    fs::write(scene.path("map"), "\"/CN=Carol\" carol\n").unwrap();
    let is_out = || scene.get(&dave, "/api/v1/jobs") == 401;
    assert!(wait::until(PATIENCE, is_out));
    assert_eq!(scene.get(&scene.of("Dave"), "/api/v1/jobs"), 401);
    assert_eq!(by_token(&scene.url), 401);
    let audit = fs::read_to_string(scene.path("audit")).unwrap();
    let is_login = |line: &&str| line.contains("/CN=Dave") && line.contains(r#""door":"service""#);
    assert!(audit.lines().any(|line| is_login(&line)), "{audit}");
    // One login for all requests of a connection, which ends after a refused body.
    let logins = audit
        .lines()
        .filter(|line| line.contains(r#""user":"dave""#));
    assert!(logins.count() < 4, "{audit}");
}

#[test]
fn certificates_that_no_authority_has_signed_or_that_have_ended_are_refused() {
    let scene = Scene::new();
    let url = format!("{}/api/v1/jobs", scene.url);
    let ended = certificate("Dave", &scene.by, 2021);
    let foreign = certificate("Dave", &authority("other"), 2100);
    let false_name = certificate("Dave", &authority("authority"), 2100);
    for (own, alert) in [
        (&ended, "CertificateExpired"),
        (&foreign, "UnknownCA"),
        (&false_name, "DecryptError"),
    ] {
        let refused = scene.agent(Some(own)).get(&url).call();
        let refused = refused.map(|answer| status(&answer)).unwrap_err();
        // The alert may come after the connection was closed for writing.
        let cause = refused.to_string();
        assert!(cause.contains(alert) || cause.contains("reset"), "{cause}");
    }
    // Of the authority, and of no user.
    assert_eq!(scene.get(&scene.of("Mallory"), "/api/v1/jobs"), 401);
    // Without TLS nothing is answered there.
    let plain = super::agent().get(format!("http://{}/healthz", scene.address()));
    assert!(plain.call().is_err());
}

#[test]
fn others_log_in_by_passwords_over_tls_and_see_no_figures() {
    let scene = Scene::new();
    let browser = scene.agent(None);
    assert_eq!(scene.get(&browser, "/"), 401);
    let form = |user: &str, password: &str| {
        let request = browser.post(format!("{}/login", scene.url));
        let request = request.header("Origin", &scene.url);
        request
            .send_form([("user", user), ("password", password)])
            .unwrap()
    };
    let answer = form("alice", "alice's password");
    assert_eq!(status(&answer), 303);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with_cookie = |path: &str| {
        let request = browser.get(format!("{}{path}", scene.url));
        status(&request.header("Cookie", &cookie).call().unwrap())
    };
    assert_eq!(with_cookie("/"), 200);
    let logout = browser.post(format!("{}/logout", scene.url));
    let logout = logout.header("Origin", &scene.url).send_empty().unwrap();
    assert!(
        logout.headers()["set-cookie"]
            .to_str()
            .unwrap()
            .ends_with("; Secure")
    );

    let carol = scene.of("Carol");
    for path in ["/healthz", "/metrics", "/readyz"] {
        assert_eq!(scene.get(&browser, path), 401, "{path}");
        assert_eq!(with_cookie(path), 403, "{path}");
        assert_eq!(scene.get(&carol, path), 200, "{path}");
        let here = super::agent().get(format!("{}{path}", scene.plain_url));
        assert_eq!(status(&here.call().unwrap()), 200, "{path}");
    }
}

#[test]
fn connections_that_say_nothing_keep_none_out() {
    const IDLE: usize = 2000;
    let scene = Scene::new();
    xdfs::raise_descriptor_limit();
    let dave = scene.of("Dave");
    // It has logged in, and stays while others come.
    assert_eq!(scene.get(&dave, "/api/v1/jobs"), 200);
    let mut silent: Vec<_> = (0..IDLE)
        .map(|_| TcpStream::connect(scene.address()).unwrap())
        .collect();
    for _ in 0..3 {
        assert_eq!(scene.get(&scene.of("Dave"), "/api/v1/jobs"), 200);
    }
    assert_eq!(scene.get(&dave, "/api/v1/jobs"), 200);
    // The oldest has given way, and the time of a handshake ends.
    for number in [0, IDLE - 1] {
        let stream = &mut silent[number];
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let read = stream.read(&mut [0; 1]);
        let has_ended = match &read {
            Ok(count) => *count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(has_ended, "{read:?}");
    }
}

#[test]
fn a_renewed_certificate_is_that_of_the_next_connection() {
    let scene = Scene::new();
    let before = scene.agent(None);
    assert_eq!(scene.get(&before, "/login"), 200);
    // One that the client doesn't trust, so that the change shows.
    let (chain, key) = certificate("service", &authority("other"), 2100);
    fs::write(scene.path("chain.pem"), chain).unwrap();
    write_key(&scene.path("key.pem"), &key);
    let is_new = || {
        let fresh = scene.agent(None);
        let asked = fresh.get(format!("{}/login", scene.url)).call();
        asked.is_err_and(|error| error.to_string().contains("certificate"))
    };
    assert!(wait::until(Duration::from_secs(30), is_new));
    assert_eq!(scene.get(&before, "/login"), 200);
}
