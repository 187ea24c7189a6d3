//! Bearer tokens and the grid map, from any bytes. No token is accepted but what the issuer signed,
//! nor that after one change; what is accepted has a user and scopes within the settings, and ends.
//! Subjects of certificates are one line each, different ones different lines, and the grid map
//! reads these lines back.
#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use xdfs_security::export::Rights;
use xdfs_security::grid::{GridMap, authenticate, distinguished_name};
use xdfs_security::token::{Config, Verifier};
use xdfs_security::{Method, Principal};

const NOW: i64 = 1_800_000_000;
/// The settings, without the keys: each issuer has another profile.
const SETTINGS: &str = r#"
[[issuers]]
issuer = "wlcg"
audience = ["here", "https://wlcg.cern.ch/jwt/v1/any"]
profile = "wlcg"
longest_s = 3600

[[issuers]]
issuer = "sci"
audience = ["here"]
profile = "scitokens"
base_path = "/store/vo"
default_user = "svc"
longest_s = 3600

[[issuers]]
issuer = "plain"
audience = ["here"]
profile = "plain"
user_claim = "email"
map = { "jane@example.org" = "jane" }
longest_s = 3600
"#;
/// The second audience of the first issuer.
const ANYWHERE: &str = "https://wlcg.cern.ch/jwt/v1/any";
const LONGEST_S: i64 = 3600;
const LEEWAY_S: i64 = 60;

struct Issuer {
    key: Ed25519KeyPair,
    verifier: Verifier,
}

static ISSUER: LazyLock<Issuer> = LazyLock::new(|| {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    let other = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let point = other.public_key().as_ref();
    let keys = json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": text(key.public_key().as_ref())},
        {"kty": "EC", "crv": "P-256", "kid": "ec",
            "x": text(&point[1..33]), "y": text(&point[33..])},
        // Nobody knows the factors of this number.
        {"kty": "RSA", "kid": "rsa", "n": text(&[0xc5; 256]), "e": "AQAB"},
    ]});
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys.json");
    std::fs::write(&path, keys.to_string()).expect("the file of keys");
    let mut config: Config = toml::from_str(SETTINGS).expect("the settings");
    for issuer in &mut config.issuers {
        issuer.jwks_file = Some(path.clone());
    }
    // The keys stay good when the file goes.
    let verifier = Verifier::new(config).expect("a verifier");
    let issuer = Issuer { key, verifier };
    let claims =
        r#"{"iss":"wlcg","aud":"here","sub":"jane","exp":1800000060,"scope":"storage.read:/a"}"#;
    let good = issuer.verifier.verify(&issuer.sign(HEADER, claims), NOW);
    assert_eq!(good.map(|p| p.user).as_deref(), Ok("jane"));
    issuer
});

const HEADER: &str = r#"{"alg":"EdDSA","kid":"ed"}"#;

impl Issuer {
    fn sign(&self, header: &str, claims: &str) -> Vec<u8> {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", text(header.as_bytes()), text(claims.as_bytes()));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", text(signature.as_ref())).into_bytes()
    }
}

/// A token that the issuer didn't sign.
fn forged(token: &[u8]) {
    if let Ok(principal) = ISSUER.verifier.verify(token, NOW) {
        panic!("a token that nobody signed is good for {principal:?}");
    }
}

/// A token that the issuer signed, and the same with one byte changed.
fn signed(header: &str, claims: &str, now: i64, change: (u8, u8)) {
    let mut token = ISSUER.sign(header, claims);
    let verify = |token: &[u8], now| ISSUER.verifier.verify(token, now);
    let Ok(principal) = verify(&token, now) else {
        return;
    };
    check(&principal, claims);
    assert_eq!(verify(&token, now), Ok(principal), "asked twice");
    // Whatever it says about its life, that is bounded.
    let end = now.saturating_add(LONGEST_S + 2 * LEEWAY_S);
    assert!(verify(&token, end).is_err() && verify(&token, i64::MAX).is_err());
    let (at, value) = change;
    if value != 0 {
        let at = token.len() * usize::from(at) / 256;
        token[at] ^= value;
        forged(&token);
    }
}

fn check(principal: &Principal, claims: &str) {
    assert_eq!(principal.method, Method::Token);
    let claims: serde_json::Value = serde_json::from_str(claims).expect("accepted claims");
    assert!(claims["exp"].is_number());
    let names = |value: &serde_json::Value| value == "here" || value == ANYWHERE;
    assert!(
        names(&claims["aud"])
            || claims["aud"]
                .as_array()
                .is_some_and(|a| a.iter().any(names))
    );
    let scopes = &principal.scopes;
    let base = match claims["iss"].as_str() {
        Some("wlcg") => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.@+-".contains(&b);
            assert!(principal.user.bytes().all(plain) && principal.user != "anonymous");
            assert!((1..=128).contains(&principal.user.len()));
            assert!(!principal.user.starts_with(['.', '@', '+', '-']));
            assert_eq!(claims["sub"], principal.user);
            ""
        }
        Some("sci") => {
            assert_eq!(principal.user, "svc");
            "store/vo"
        }
        Some("plain") => {
            assert_eq!((principal.user.as_str(), scopes.len()), ("jane", 0));
            return;
        }
        other => panic!("{other:?} isn't trusted"),
    };
    assert!((1..=256).contains(&scopes.len()));
    for (n, scope) in scopes.iter().enumerate() {
        assert!(scope.rights != Rights::NONE);
        assert!(scopes[..n].iter().all(|s| s.path != scope.path));
        let path = std::str::from_utf8(&scope.path).expect("a path of a text");
        assert!(!path.contains(char::is_control));
        assert!(path.is_empty() || path.split('/').all(|c| !matches!(c, "" | "." | "..")));
        let beneath = path.strip_prefix(base).expect("a path beneath the base");
        assert!(base.is_empty() || beneath.is_empty() || beneath.starts_with('/'));
    }
}

/// Claims with the parts of the input in their places.
fn claims(data: &[u8]) -> Option<(String, i64)> {
    let (&[how, issuer, issued, begins, expires, now], rest) = data.split_first_chunk::<6>()?;
    let text = String::from_utf8_lossy(rest);
    let (user, scope) = text.split_once('\n').unwrap_or(("jane", &text));
    let time = |byte: u8| match byte {
        250 => i64::MAX,
        251 => i64::MIN,
        252 => 0,
        byte => NOW + i64::from(byte) * 60 - 7200,
    };
    let name = ["wlcg", "sci", "plain"][usize::from(issuer % 3)];
    let mut claims = json!({
        "iss": name,
        "aud": "here",
        "sub": user,
        "exp": time(expires),
        "scope": scope,
    });
    let fields = claims.as_object_mut()?;
    if issuer % 3 == 2 {
        fields.insert("email".to_owned(), "jane@example.org".into());
    }
    if how & 1 != 0 {
        fields.insert("iat".to_owned(), time(issued).into());
    }
    if how & 2 != 0 {
        fields.insert("nbf".to_owned(), time(begins).into());
    }
    if how & 4 != 0 {
        fields.insert("aud".to_owned(), json!(["there", ANYWHERE]));
    }
    Some((claims.to_string(), time(now)))
}

/// A grid map is the sum of its lines.
fn grid(bytes: &[u8]) {
    let whole = GridMap::parse(bytes);
    let lines = bytes.split(|&b| b == b'\n');
    let are_good = lines.into_iter().all(|line| GridMap::parse(line).is_ok());
    assert_eq!(whole.is_ok(), are_good);
    if let Ok(map) = whole {
        let commented = [b"# a comment\n", bytes, b"\n\n"].concat();
        assert_eq!(GridMap::parse(&commented).as_ref(), Ok(&map));
        let twice = [bytes, b"\n", bytes].concat();
        assert_eq!(GridMap::parse(&twice), Ok(map));
    }
}

/// A tag, a length and what it is of (X.690).
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let head: &[u8] = match content.len() {
        0..0x80 => &[tag, length[3]],
        0x80..0x100 => &[tag, 0x81, length[3]],
        _ => &[tag, 0x82, length[2], length[3]],
    };
    [head, content].concat()
}

/// An attribute of a subject: the type, the tag of the value and the value.
type Attribute = (Vec<u8>, u8, Vec<u8>);

fn attributes(mut data: &[u8]) -> Vec<Attribute> {
    let mut out = Vec::new();
    while let Some((&[kind, tag, length], rest)) = data.split_first_chunk::<3>() {
        let (value, rest) = rest.split_at(usize::from(length % 64).min(rest.len()));
        let (kind, rest) = match kind % 8 {
            0 => (vec![0x55, 4, 10], rest),
            1 => (b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19".to_vec(), rest),
            2 => (b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01".to_vec(), rest),
            3 | 4 => {
                let (kind, rest) = rest.split_at(usize::from(kind / 32 + 1).min(rest.len()));
                (kind.to_vec(), rest)
            }
            _ => (vec![0x55, 4, 3], rest),
        };
        let tag = match tag {
            0..64 => 12,
            64..128 => 19,
            128..160 => 22,
            160..176 => 18,
            other => other - 176,
        };
        out.push((kind, tag, value.to_vec()));
        data = rest;
    }
    out
}

/// A certificate as far as its subject is concerned; nobody has signed it.
fn certificate(subject: &[Attribute]) -> Vec<u8> {
    let sequence = |parts: &[Vec<u8>]| der(0x30, &parts.concat());
    let algorithm = sequence(&[der(6, b"\x2b\x65\x70")]);
    let names: Vec<Vec<u8>> = subject
        .iter()
        .map(|(kind, tag, value)| der(0x31, &sequence(&[der(6, kind), der(*tag, value)])))
        .collect();
    let time = der(0x17, b"200101000000Z");
    let key = sequence(&[algorithm.clone(), der(3, &[0; 33])]);
    let to_sign = sequence(&[
        der(0xa0, &der(2, &[2])),
        der(2, &[1]),
        algorithm.clone(),
        sequence(&[]),
        sequence(&[time.clone(), time]),
        sequence(&names),
        key,
    ]);
    sequence(&[to_sign, algorithm, der(3, &[0; 65])])
}

/// The line of a certificate's subject, which the grid map reads back.
fn line(der: &[u8]) -> Option<String> {
    let line = distinguished_name(der).ok()?;
    assert!(line.starts_with('/'));
    assert!(line.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"'));
    let map = GridMap::parse(format!("\"{line}\" jane,joe").as_bytes()).expect("own line");
    assert_eq!(map.user_for(&line, None), Some("jane"));
    assert_eq!(map.user_for(&line, Some("joe")), Some("joe"));
    assert_eq!(map.user_for(&line, Some("jack")), None);
    Some(line)
}

fn subjects(data: &[u8]) {
    let cut = data.first().map_or(0, |&b| usize::from(b).min(data.len()));
    let (one, other) = data.split_at(cut);
    let (one, other) = (attributes(one.get(1..).unwrap_or(&[])), attributes(other));
    let der = certificate(&one);
    let Some(first) = line(&der) else { return };
    let map = GridMap::parse(format!("\"{first}\" jane").as_bytes()).expect("own line");
    let chain = [CertificateDer::from(der)];
    let who = authenticate(&chain, &map, None).map(|p| (p.user, p.method));
    assert_eq!(who, Ok(("jane".to_owned(), Method::Certificate)));
    let Some(second) = line(&certificate(&other)) else {
        return;
    };
    // The kind of text doesn't count.
    let of = |s: &[Attribute]| -> Vec<_> { s.iter().map(|a| (a.0.clone(), a.2.clone())).collect() };
    assert_eq!(first == second, of(&one) == of(&other));
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, at, value], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    match which % 8 {
        0 => forged(rest),
        // Three parts of any content, none of them signed.
        1 => {
            let parts = rest.splitn(3, |&b| b == b'\n');
            let parts: Vec<String> = parts.map(|p| URL_SAFE_NO_PAD.encode(p)).collect();
            forged(parts.join(".").as_bytes());
        }
        2 => signed(HEADER, &text, NOW, (at, value)),
        3 => {
            let (header, claims) = text.split_once('\n').unwrap_or((HEADER, &text));
            signed(header, claims, NOW, (at, value));
        }
        4 => {
            if let Some((claims, now)) = claims(rest) {
                signed(HEADER, &claims, now, (at, value));
            }
        }
        5 => grid(rest),
        6 => {
            let _ = line(rest);
            let mut der = certificate(&[(vec![0x55, 4, 3], 12, b"Jane".to_vec())]);
            for change in rest.chunks_exact(3) {
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % der.len();
                der[at] ^= change[2];
            }
            let _ = line(&der);
        }
        _ => subjects(rest),
    }
});
