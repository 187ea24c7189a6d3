//! Fetches from real web servers, with a clock controlled by the test.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use xdfs_proto::Retry;
use xdfs_security::token::{Config, IssuerConfig, Profile, Verifier};
use xdfs_testkit::web::{Answer, Connection, Web};

use super::*;
use crate::SystemClock;

const NOW: i64 = 1_800_000_000;
/// Long enough for every response that is sent.
const PATIENCE: Duration = Duration::from_secs(60);

struct Key(EcdsaKeyPair);

impl Key {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwk(&self, id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": id,
            "x": encode(&point[1..33]), "y": encode(&point[33..])})
    }

    fn token(&self, id: &str, issuer: &str) -> String {
        let header = json!({"alg": "ES256", "kid": id});
        let claims = json!({"iss": issuer, "aud": "here", "sub": "alice", "exp": NOW * 2});
        let part = |value: &Value| encode(value.to_string().as_bytes());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", encode(signature.unwrap().as_ref()))
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn set(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

/// A verifier of one issuer, and its key fetch.
fn verifier(
    issuer: &str,
    url: Option<String>,
    authorities: Option<PathBuf>,
) -> (Verifier, KeyFetch) {
    let verifier = Verifier::new(Config {
        issuers: vec![IssuerConfig {
            issuer: issuer.into(),
            audience: vec!["here".into()],
            jwks_file: None,
            jwks_url: url,
            jwks_authorities: authorities,
            user_claim: "sub".into(),
            map: None,
            default_user: None,
            base_path: "/".into(),
            leeway_s: 60,
            longest_s: None,
            profile: Profile::Plain,
        }],
    })
    .unwrap();
    let fetch = verifier.take_fetches().remove(0);
    (verifier, fetch)
}

fn secs(fetch: &KeyFetch, now: i64) -> u64 {
    step(fetch, now, PATIENCE).as_secs()
}

/// A server whose response a test can change, with a count of its requests.
fn changing(first: Answer) -> (Web, Arc<Mutex<Answer>>, Arc<AtomicUsize>) {
    let (answer, count) = (Arc::new(Mutex::new(first)), Arc::new(AtomicUsize::new(0)));
    let (current, counted) = (Arc::clone(&answer), Arc::clone(&count));
    let web = Web::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    });
    (web, answer, count)
}

#[test]
fn a_new_key_is_fetched_when_a_token_names_it_but_not_for_each() {
    let (old, new, never) = (Key::new(), Key::new(), Key::new());
    let (web, answer, count) = changing(Answer::ok(&set(&[old.jwk("old")])));
    let (verifier, fetch) = verifier("x", Some(web.url("/jwks")), None);
    let user = |token: String, now| {
        let verified = verifier.verify(token.as_bytes(), now);
        verified.map(|p| p.user).map_err(|f| f.retry)
    };
    let later = Err(Retry::AfterMs(3000));
    assert_eq!(user(old.token("old", "x"), NOW), later, "nothing is there");
    assert_eq!(secs(&fetch, NOW), 3600);
    assert_eq!(user(old.token("old", "x"), NOW), Ok("alice".into()));

    *answer.lock().unwrap() = Answer::ok(&set(&[old.jwk("old"), new.jwk("new")]));
    assert_eq!(user(new.token("new", "x"), NOW + 5), later);
    for _ in 0..100 {
        assert_eq!(user(never.token("never", "x"), NOW + 5), later);
        assert_eq!(secs(&fetch, NOW + 5), 25, "not twice in half a minute");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(user(old.token("old", "x"), NOW + 5), Ok("alice".into()));
    assert_eq!(secs(&fetch, NOW + 30), 3600);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!(user(new.token("new", "x"), NOW + 30), Ok("alice".into()));
    // A withdrawn key.
    *answer.lock().unwrap() = Answer::ok(&set(&[new.jwk("new")]));
    assert_eq!(secs(&fetch, NOW + 3630), 3600);
    assert_eq!(user(old.token("old", "x"), NOW + 3630), later);
}

#[test]
fn an_issuer_that_fails_keeps_its_keys_for_a_time() {
    let key = Key::new();
    let fresh = "Cache-Control: public, max-age=600\r\n";
    let good = Answer::new("200 OK", fresh, &set(&[key.jwk("one")]));
    let (web, answer, _) = changing(good.clone());
    let (verifier, fetch) = verifier("x", Some(web.url("/jwks")), None);
    let token = key.token("one", "x");
    let is_taken = |now| verifier.verify(token.as_bytes(), now).is_ok();
    assert_eq!(secs(&fetch, NOW), 600);
    let page = Answer::ok(b"<html>");
    let closed = Answer::Raw(Vec::new());
    let long = Answer::ok(&vec![b' '; 1024 * 1024 + 1]);
    let mut now = NOW + 600;
    for bad in [
        Answer::new("500 Internal Server Error", "", b""),
        Answer::new("404 Not Found", "", &set(&[])),
        Answer::new("302 Found", "Location: https://127.0.0.1:1/\r\n", b""),
        page,
        closed,
        long,
    ] {
        *answer.lock().unwrap() = bad.clone();
        let wait = secs(&fetch, now);
        assert!((30..=300).contains(&wait), "{bad:?}");
        assert!(is_taken(now), "{bad:?}");
        now += i64::try_from(wait).unwrap();
    }
    let end = NOW + 600 + 24 * 3600;
    assert!(is_taken(end - 1));
    assert!(!is_taken(end));
    *answer.lock().unwrap() = good;
    assert_eq!(secs(&fetch, end), 600);
    assert!(is_taken(end));
}

#[test]
fn sizes_are_bounded() {
    let text = |n: usize| Answer::ok(&vec![b' '; n]);
    let (web, answer, _) = changing(text(1024 * 1024));
    let url = KeyUrl::parse(&web.url("/")).unwrap();
    let document = get(&url, None, PATIENCE).unwrap();
    assert_eq!(document.body.len(), 1024 * 1024);
    *answer.lock().unwrap() = text(1024 * 1024 + 1);
    let code = || get(&url, None, PATIENCE).err().map(|fault| fault.code);
    assert_eq!(code(), Some(Code::LimitExceeded));
    // A response without a length, and without an end.
    let endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    *answer.lock().unwrap() = Answer::Raw([endless, chunk.repeat(17)].concat());
    assert_eq!(code(), Some(Code::LimitExceeded));
    // Headers without an end.
    let headers = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    *answer.lock().unwrap() = Answer::Raw(headers);
    assert!(code().is_some());
}

#[test]
fn nobody_is_waited_for_longer_than_the_deadline() {
    let (web, answer, _) = changing(Answer::Silence);
    let url = KeyUrl::parse(&web.url("/")).unwrap();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    for slow in [Answer::Silence, Answer::Drip(head)] {
        *answer.lock().unwrap() = slow;
        let fault = get(&url, None, Duration::from_millis(200)).err().unwrap();
        assert_eq!(fault.code, Code::DeadlineExceeded, "{fault}");
        assert_eq!(fault.path, url.as_str().as_bytes());
    }
    drop(web);
    let fault = get(&url, None, PATIENCE).err().unwrap();
    assert_eq!(fault.code, Code::ConnectionRefused, "{fault}");
}

#[test]
fn redirects_are_not_followed() {
    let (target, _, count) = changing(Answer::ok(b"secret"));
    let location = format!("Location: {}\r\n", target.url("/"));
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect"] {
        let (web, ..) = changing(Answer::new(status, &location, b""));
        let url = KeyUrl::parse(&web.url("/")).unwrap();
        let fault = get(&url, None, PATIENCE).err().unwrap();
        assert!(fault.cause.contains("redirect"), "{fault}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// A web server with a certificate for `name`, and the file of the authority that signed it.
fn secure(
    folder: &Path,
    name: &str,
    answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> (Web, PathBuf) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let by = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let file = folder.join(format!("{name}.pem"));
    fs::write(&file, by.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &by).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let wrap = move |stream: TcpStream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)) as Box<dyn Connection>)
    };
    (Web::start_over(wrap, answer), file)
}

#[test]
fn a_web_server_has_to_be_vouched_for() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::new();
    let keys = set(&[key.jwk("one")]);
    let answer = move |_: &str| Answer::ok(&keys);
    let (web, authority) = secure(folder.path(), "127.0.0.1", answer.clone());
    let (misnamed, other) = secure(folder.path(), "issuer.example.org", answer);
    let url = |web: &Web| format!("https://{}/jwks", web.addr());

    let (good, fetch) = verifier("x", Some(url(&web)), Some(authority.clone()));
    assert_eq!(secs(&fetch, NOW), 3600);
    assert!(good.verify(key.token("one", "x").as_bytes(), NOW).is_ok());

    let code = |web: &Web, authority: Option<&Path>| {
        let url = KeyUrl::parse(&url(web)).unwrap();
        get(&url, authority, PATIENCE).err().map(|fault| fault.code)
    };
    let untrusted = Some(Code::ServerUntrusted);
    assert_eq!(code(&web, Some(&other)), untrusted, "another authority");
    assert_eq!(code(&web, None), untrusted, "those of the system");
    assert_eq!(code(&misnamed, Some(&other)), untrusted, "another name");
    assert_eq!(code(&web, Some(&authority)), None);
    let missing = folder.path().join("none.pem");
    let (_verifier, fetch) = verifier("x", Some(url(&web)), Some(missing));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    assert_eq!(start(vec![fetch], &clock).unwrap_err().code, Code::NotFound);
}

#[test]
fn an_issuer_says_where_its_keys_are() {
    let key = Key::new();
    let keys = set(&[key.jwk("one")]);
    let name = Arc::new(Mutex::new(String::new()));
    let issuer = Arc::clone(&name);
    let web = Web::start(move |path| {
        let issuer = issuer.lock().unwrap().clone();
        match path {
            "/a/.well-known/openid-configuration" => Answer::ok(
                json!({"issuer": format!("{issuer}/a"), "jwks_uri": format!("{issuer}/k?x=1")})
                    .to_string()
                    .as_bytes(),
            ),
            "/b/.well-known/openid-configuration" => Answer::ok(
                json!({"issuer": "https://other", "jwks_uri": format!("{issuer}/k?x=1")})
                    .to_string()
                    .as_bytes(),
            ),
            "/k?x=1" => Answer::ok(&keys),
            _ => Answer::new("404 Not Found", "", b""),
        }
    });
    *name.lock().unwrap() = web.url("");
    for (path, fresh, is_taken) in [("/a", 3600, true), ("/b", 30, false), ("/c", 30, false)] {
        let issuer = web.url(path);
        let (verifier, fetch) = verifier(&issuer, None, None);
        assert_eq!(secs(&fetch, NOW), fresh, "{path}");
        let token = key.token("one", &issuer);
        let taken = verifier.verify(token.as_bytes(), NOW);
        assert_eq!(taken.is_ok(), is_taken, "{path}");
    }
}

#[test]
fn how_long_an_answer_is_fresh() {
    for (lines, expected) in [
        (&[][..], None),
        (&["public"], None),
        (&["max-age=600"], Some(600)),
        (&["public, Max-Age = 600 , must-revalidate"], Some(600)),
        (&["max-age=\"600\""], Some(600)),
        (&["max-age=600", "max-age=60"], Some(60)),
        (&["max-age=600, no-cache"], Some(0)),
        (&["no-store"], Some(0)),
        (&["max-age=99999999999999999999999"], Some(u64::MAX)),
        (&["max-age=-1"], None),
        (&["max-age="], None),
        (&["s-maxage=7, =, ,"], None),
    ] {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, line.parse().unwrap());
        }
        assert_eq!(max_age_s(&headers), expected, "{lines:?}");
    }
}
