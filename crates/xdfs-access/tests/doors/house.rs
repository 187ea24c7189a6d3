//! What is served, to whom, and by which clock.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use xdfs_access::{Access, Clock, KeyLists, Parts};
use xdfs_security::audit::Audit;
use xdfs_security::export::{ExportConfig, Exports, ExportsConfig, GrantConfig, Rights};
use xdfs_security::guard::Limits;
use xdfs_security::password::{Parameters, UsersFile};
use xdfs_security::token::{Config, IssuerConfig, Profile, Verifier};
use xdfs_security::tunnel::TunnelRules;

pub(crate) const PASSWORD: &str = "correct horse";
/// Bytes that fit into the export `box`.
pub(crate) const QUOTA_BYTES: u64 = 100_000;
const NOW_S: u64 = 1_800_000_000;
const ISSUER: &str = "https://issuer.example.org/";
const SERVER: &str = "https://data.example.org";

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub(crate) struct Stopped {
    started: Instant,
    passed: Mutex<Duration>,
}

impl Stopped {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            passed: Mutex::default(),
        }
    }

    pub(crate) fn advance(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }
}

impl Clock for Stopped {
    fn instant(&self) -> Instant {
        self.started + *self.passed.lock().unwrap()
    }

    fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW_S) + *self.passed.lock().unwrap()
    }
}

/// A server without a door: `box`, where `alice` may read, list and make files, with a quota, and
/// `shelf`, where she may only read.
pub(crate) struct House {
    folder: tempfile::TempDir,
    issuer: EcdsaKeyPair,
    pub(crate) clock: Arc<Stopped>,
    pub(crate) access: Access,
}

impl House {
    pub(crate) fn new(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let issuer = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = issuer.public_key().as_ref();
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "one",
            "x": encode(&point[1..33]), "y": encode(&point[33..])});
        fs::write(path("jwks"), json!({"keys": [jwk]}).to_string()).unwrap();
        let tokens = Verifier::new(Config {
            issuers: vec![IssuerConfig {
                issuer: ISSUER.into(),
                audience: vec![SERVER.into()],
                jwks_file: Some(path("jwks")),
                jwks_url: None,
                jwks_authorities: None,
                user_claim: "sub".into(),
                map: None,
                default_user: None,
                base_path: "/".into(),
                leeway_s: 60,
                longest_s: None,
                profile: Profile::Wlcg,
            }],
        });
        // As cheap as it gets.
        let parameters = Parameters::new(7 * 1024, 1, 1).unwrap();
        let users = UsersFile::new(path("users")).with_parameters(parameters);
        users.add("alice", PASSWORD).unwrap();
        let export = |name: &str, rights, quota_bytes| ExportConfig {
            name: name.into(),
            path: path(name).to_str().unwrap().into(),
            make: true,
            quota_bytes,
            grant: vec![GrantConfig {
                user: Some("alice".into()),
                rights,
                ..GrantConfig::default()
            }],
            ..ExportConfig::default()
        };
        let look = Rights::READ | Rights::LIST;
        let exports = Exports::new(ExportsConfig {
            export: vec![
                export("box", look | Rights::CREATE, Some(QUOTA_BYTES)),
                export("shelf", look, None),
            ],
            ..ExportsConfig::default()
        });
        let clock = Arc::new(Stopped::new());
        let access = Access::new(Parts {
            keys: KeyLists {
                owner: "owner".into(),
                owner_lists: Vec::new(),
                folder: path("keys"),
            },
            users,
            tokens: Some(tokens.unwrap()),
            grid: None,
            exports: exports.unwrap(),
            tunnels: TunnelRules::default(),
            third_party: Default::default(),
            group: None,
            accounts: None,
            limits,
            audit: Some(Audit::open(&path("audit")).unwrap()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
        });
        Self {
            access: access.unwrap(),
            folder,
            issuer,
            clock,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A token of `alice` that is good for what `scope` says.
    pub(crate) fn token(&self, scope: &str) -> String {
        let part = |value: Value| encode(value.to_string().as_bytes());
        let header = part(json!({"alg": "ES256", "typ": "JWT", "kid": "one"}));
        let claims = part(
            json!({"iss": ISSUER, "sub": "alice", "aud": SERVER, "scope": scope,
            "iat": NOW_S - 10, "exp": NOW_S + 3600}),
        );
        let message = format!("{header}.{claims}");
        let signature = self.issuer.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", encode(signature.unwrap().as_ref()))
    }

    /// The lines of the audit log, each as the values of these fields; empty text for those that
    /// it doesn't have.
    pub(crate) fn audit<const N: usize>(&self, fields: [&str; N]) -> Vec<[String; N]> {
        let text = fs::read_to_string(self.path("audit")).unwrap();
        let line = |line| {
            let line: Value = serde_json::from_str(line).unwrap();
            fields.map(|field| match &line[field] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        };
        text.lines().map(line).collect()
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
