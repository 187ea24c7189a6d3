//! Clients that bear a token.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use xdfs::Code;
use xdfs::security::{Credential, TokenConfig};
use xdfs_security::token::{IssuerConfig, Profile};

use crate::world::{Over, World, assert_same, over_both};

const ISSUER: &str = "https://issuer.example.org/";
const SERVER: &str = "xdfs://data.example.org";

/// An issuer with a key on the curve P-256.
pub(crate) struct Issuer(EcdsaKeyPair);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    pub(crate) fn keys(&self) -> Value {
        // An uncompressed point: 4, x, y.
        let point = self.0.public_key().as_ref();
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "one",
            "x": encode(&point[1..33]), "y": encode(&point[33..])}]})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": "one"});
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", encode(signature.unwrap().as_ref()))
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn part(json: &Value) -> String {
    encode(json.to_string().as_bytes())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "alice", "aud": SERVER, "iat": now() - 10, "exp": now() + 3600,
        "scope": "storage.read:/box storage.create:/box storage.modify:/box",
    })
}

pub(crate) fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

/// Settings that don't say where the keys are.
pub(crate) fn settings(issuer: &str) -> IssuerConfig {
    IssuerConfig {
        issuer: issuer.into(),
        audience: vec![SERVER.into()],
        jwks_file: None,
        jwks_url: None,
        jwks_authorities: None,
        user_claim: "sub".into(),
        map: None,
        default_user: None,
        base_path: "/".into(),
        leeway_s: 60,
        longest_s: None,
        profile: Profile::Wlcg,
    }
}

fn world(issuer: &Issuer, over: Over) -> World {
    over.world_with(|security, folder| {
        let file = folder.join("server/jwks.json");
        fs::write(&file, issuer.keys().to_string()).unwrap();
        security.tokens = Some(TokenConfig {
            issuers: vec![IssuerConfig {
                jwks_file: Some(file),
                ..settings(ISSUER)
            }],
        });
        security.limits.failures_free = 100;
        for name in ["box", "boxes"] {
            fs::create_dir(folder.join("root").join(name)).unwrap();
        }
    })
}

#[test]
fn a_good_token_comes_in_as_far_as_its_scopes_go() {
    over_both(|over| {
        let issuer = Issuer::new();
        let world = world(&issuer, over);
        let source = world.source(3_000_000);
        let token = Credential::Token(issuer.token(&claims()));
        for user in ["", "alice"] {
            let visit = world.visit(user, vec![token.clone()]).channels(3);
            visit.upload(&source, "/box/copy").unwrap();
            assert_same(&source, &world.path("root/box/copy"));
            let target = world.path("client/got");
            visit.download("/box/copy", &target).unwrap();
            assert_same(&source, &target);
            fs::copy(&source, world.path("root/boxes/there")).unwrap();
            for name in [
                "/copy",
                "/boxes/copy",
                "/box/../copy",
                "/boxes/../copy",
                "mem:null",
            ] {
                let fault = visit.upload(&source, name).unwrap_err();
                let is_refused = matches!(
                    fault.code,
                    Code::PermissionDenied | Code::PathEscape | Code::InvalidArgument
                );
                assert!(is_refused, "{name}: {fault}");
            }
            let fault = visit.download("/boxes/there", &target).unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
            assert!(!world.path("root/copy").exists());
            assert!(!world.path("root/boxes/copy").exists());
        }
        // One that may only read.
        let reader = issuer.token(&with("scope", "storage.read:/"));
        let visit = world.visit("", vec![Credential::Token(reader)]);
        visit
            .download("/boxes/there", &world.path("client/again"))
            .unwrap();
        let fault = visit.upload(&source, "/box/other").unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
    });
}

#[test]
fn bad_tokens_are_refused() {
    over_both(|over| {
        let issuer = Issuer::new();
        let world = world(&issuer, over);
        let source = world.source(10);
        let good = issuer.token(&claims());
        let (message, signature) = good.rsplit_once('.').unwrap();
        let header = message.split('.').next().unwrap();
        let unsigned = |alg: &str| format!("{}.{}.", part(&json!({"alg": alg})), part(&claims()));
        let bad = [
            ("audience", issuer.token(&with("aud", "xdfs://other"))),
            ("issuer", issuer.token(&with("iss", "https://other/"))),
            ("expired", issuer.token(&with("exp", now() - 3600))),
            ("not yet", issuer.token(&with("nbf", now() + 3600))),
            ("scopes", issuer.token(&with("scope", "openid"))),
            ("none", unsigned("none")),
            ("None", unsigned("None")),
            (
                "none, with a signature",
                format!(
                    "{}.{}.{signature}",
                    part(&json!({"alg": "none", "kid": "one"})),
                    part(&claims())
                ),
            ),
            (
                "a symmetric algorithm",
                format!(
                    "{}.{}.{signature}",
                    part(&json!({"alg": "HS256", "kid": "one"})),
                    part(&claims())
                ),
            ),
            (
                "other claims under the signature",
                format!("{header}.{}.{signature}", part(&with("sub", "owner"))),
            ),
            (
                "another key of the same name",
                Issuer::new().token(&claims()),
            ),
            ("no signature", format!("{message}.")),
            ("nothing", String::new()),
            ("noise", "a.b.c".to_owned()),
            ("length", "a".repeat(17 << 10)),
        ];
        for (what, token) in bad {
            let visit = world.visit("", vec![Credential::Token(token.clone())]);
            let fault = visit.upload(&source, "/box/copy").unwrap_err();
            assert_eq!(fault.code, Code::AuthenticationFailed, "{what}: {fault}");
            assert!(
                token.is_empty() || !format!("{fault:?}").contains(&token),
                "{what}"
            );
        }
        // A good one of somebody else.
        let visit = world.visit("owner", vec![Credential::Token(good)]);
        let fault = visit.upload(&source, "/box/copy").unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
        assert!(!world.path("root/box/copy").exists());
    });
}
