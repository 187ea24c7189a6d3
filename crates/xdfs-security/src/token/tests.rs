//! Tests of `token`.

use std::fs;
use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::export::Rights;

pub(super) const NOW: i64 = 1_800_000_000;
pub(super) const ISSUER: &str = "https://issuer.example.org/";
pub(super) const SERVER: &str = "xdfs://data.example.org";

pub(super) enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn p384() -> Self {
        Self::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap())
    }

    pub(super) fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    /// Created once, since it takes time.
    fn rsa() -> &'static Self {
        static KEY: OnceLock<Key> = OnceLock::new();
        KEY.get_or_init(|| Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    fn public(&self) -> Vec<u8> {
        match self {
            Self::P256(key) | Self::P384(key) => key.public_key().as_ref().to_vec(),
            Self::Ed(key) => key.public_key().as_ref().to_vec(),
            Self::Rsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
        }
    }

    pub(super) fn jwk(&self, id: &str) -> Value {
        let public = self.public();
        let half = public.len() / 2;
        match self {
            Self::P256(_) => json!({"kty": "EC", "crv": "P-256", "kid": id,
                "x": encode(&public[1..=half]), "y": encode(&public[half + 1..])}),
            Self::P384(_) => json!({"kty": "EC", "crv": "P-384", "kid": id, "use": "sig",
                "x": encode(&public[1..=half]), "y": encode(&public[half + 1..])}),
            Self::Ed(_) => json!({"kty": "OKP", "crv": "Ed25519", "kid": id,
                "x": encode(&public)}),
            Self::Rsa(key) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(key.public_key());
                json!({"kty": "RSA", "kid": id, "n": encode(&parts.n), "e": encode(&parts.e)})
            }
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::P256(key) | Self::P384(key) => {
                key.sign(&random, message).unwrap().as_ref().to_vec()
            }
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key) => {
                let encoding: &'static dyn signature::RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut out = vec![0; key.public_modulus_len()];
                key.sign(encoding, &random, message, &mut out).unwrap();
                out
            }
        }
    }

    /// A token with exactly this header and these claims.
    pub(super) fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", part(header), part(claims));
        let algorithm = header["alg"].as_str().unwrap_or_default();
        let signature = self.sign(algorithm, message.as_bytes());
        format!("{message}.{}", encode(&signature))
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn part(json: &Value) -> String {
    encode(json.to_string().as_bytes())
}

/// Settings with one issuer, its key file in a folder, and their verifier.
struct Bench {
    folder: TempDir,
    verifier: Verifier,
}

impl Bench {
    fn new(keys: &[Value], profile: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let verifier = Self::open(&folder, keys, profile, more).unwrap();
        Self { folder, verifier }
    }

    fn open(
        folder: &TempDir,
        keys: &[Value],
        profile: &str,
        more: &str,
    ) -> Result<Verifier, Fault> {
        let path = folder.path().join("keys.json");
        fs::write(&path, json!({ "keys": keys }).to_string()).unwrap();
        let settings = format!(
            "[[issuers]]\nissuer = '{ISSUER}'\naudience = ['{SERVER}', 'other']\n\
             jwks_file = '{}'\nprofile = '{profile}'\n{more}\n",
            path.display()
        );
        Verifier::new(toml::from_str(&settings).unwrap())
    }

    fn refusal(&self, token: impl AsRef<[u8]>) -> String {
        let fault = self.verifier.verify(token.as_ref(), NOW).unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed);
        fault.cause
    }
}

fn header(algorithm: &str) -> Value {
    json!({"alg": algorithm, "kid": "one", "typ": "JWT"})
}

pub(super) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": SERVER, "sub": "jane", "iat": NOW - 10, "nbf": NOW - 10,
        "exp": NOW + 600, "scope": "read:/data write:/data/out"})
}

/// `claims()` with some replaced, or without those that are null.
pub(super) fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

/// A bench of the plain profile, and its key.
fn plain() -> (Bench, Key) {
    let key = Key::ed();
    (Bench::new(&[key.jwk("one")], "plain", ""), key)
}

#[test]
fn good_tokens_of_each_profile() {
    let key = Key::ed();
    let look = Rights::READ | Rights::LIST;
    let change = Rights::CREATE | Rights::WRITE | Rights::DELETE;
    let cases = [
        ("plain", "anything storage.read:/..", vec![]),
        (
            "scitokens",
            "read:/data write:/data/out",
            vec![("vo/data", look), ("vo/data/out", change)],
        ),
        (
            "wlcg",
            "openid storage.stage:/a storage.create:/b storage.modify:/",
            vec![("vo/a", look), ("vo/b", Rights::CREATE), ("vo", change)],
        ),
    ];
    for (profile, scope, expected) in cases {
        let bench = Bench::new(&[key.jwk("one")], profile, "base_path = '/vo'");
        let token = key.token(&header("EdDSA"), &with(json!({ "scope": scope })));
        let principal = bench.verifier.verify(token.as_bytes(), NOW).unwrap();
        assert_eq!(
            (principal.user.as_str(), principal.method),
            ("jane", Method::Token)
        );
        let expected: Vec<Scope> = expected
            .into_iter()
            .map(|(path, rights)| Scope::new(path.into(), rights))
            .collect();
        assert_eq!(principal.scopes, expected, "{profile}");
    }
}

#[test]
fn every_algorithm() {
    let keys = [
        (&Key::p256(), vec!["ES256"]),
        (&Key::p384(), vec!["ES384"]),
        (&Key::ed(), vec!["EdDSA"]),
        (
            Key::rsa(),
            vec!["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
        ),
    ];
    let all: Vec<&str> = keys.iter().flat_map(|(_, own)| own.clone()).collect();
    for (key, own) in &keys {
        let bench = Bench::new(&[key.jwk("one")], "plain", "");
        for algorithm in &all {
            let token = key.token(&header(algorithm), &claims());
            let good = bench.verifier.verify(token.as_bytes(), NOW).is_ok();
            assert_eq!(good, own.contains(algorithm), "{algorithm} of {own:?}");
        }
    }
}

#[test]
fn the_algorithm_of_the_key_binds() {
    let key = Key::rsa();
    let mut jwk = key.jwk("one");
    jwk["alg"] = json!("RS256");
    let bench = Bench::new(&[jwk], "plain", "");
    let token = |algorithm| key.token(&header(algorithm), &claims());
    assert!(
        bench
            .verifier
            .verify(token("RS256").as_bytes(), NOW)
            .is_ok()
    );
    for other in ["RS512", "PS256"] {
        assert!(
            bench.refusal(token(other)).contains("no such key"),
            "{other}"
        );
    }
}

#[test]
fn keys_for_other_purposes_are_left_out() {
    let key = Key::ed();
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("ES256")),
        ("alg", json!("HS256")),
        ("alg", json!("none")),
        ("crv", json!("Ed448")),
        ("x", json!("AAAA")),
        ("x", json!("not base64!")),
        ("kty", json!("oct")),
        ("kid", json!(1)),
    ] {
        let mut jwk = key.jwk("one");
        jwk[name] = value.clone();
        let bench = Bench::new(&[jwk, json!(1), json!({})], "plain", "");
        let cause = bench.refusal(key.token(&header("EdDSA"), &claims()));
        assert!(cause.contains("no such key"), "{name} {value}: {cause}");
    }
    // An RSA key that is too short.
    let short = json!({"kty": "RSA", "kid": "one", "n": encode(&[0xff; 128]), "e": "AQAB"});
    let bench = Bench::new(&[short], "plain", "");
    let cause = bench.refusal(Key::rsa().token(&header("RS256"), &claims()));
    assert!(cause.contains("no such key"), "{cause}");
}

#[test]
fn claims_of_who_and_whom() {
    let (bench, key) = plain();
    let cause = |changes| bench.refusal(key.token(&header("EdDSA"), &with(changes)));
    for issuer in [
        json!(null),
        json!("https://issuer.example.org"),
        json!([ISSUER]),
        json!(""),
    ] {
        let cause = cause(json!({ "iss": issuer }));
        assert!(cause.contains("issuer"), "{issuer}: {cause}");
    }
    for audience in [
        json!(null),
        json!("https://wlcg.cern.ch/jwt/v1/any"),
        json!("ANY"),
        json!([]),
        json!({}),
        json!([1, SERVER]),
        json!(["xdfs://data.example.org/"]),
    ] {
        let cause = cause(json!({ "aud": audience }));
        assert!(cause.contains("audience"), "{audience}: {cause}");
    }
    for user in [json!(null), json!(""), json!(7)] {
        let cause = cause(json!({ "sub": user }));
        assert!(cause.contains("who the user is"), "{user}: {cause}");
    }
    for user in ["anonymous", "../jane", "a b", "-rf", "ja\u{0}ne"] {
        let cause = cause(json!({ "sub": user }));
        assert!(cause.contains("isn't valid here"), "{user}: {cause}");
    }
    let token = key.token(&header("EdDSA"), &with(json!({"aud": ["x", "other"]})));
    assert!(bench.verifier.verify(token.as_bytes(), NOW).is_ok());
}

#[test]
fn the_audience_of_all_servers_counts_if_listed() {
    let key = Key::ed();
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    fs::write(&path, json!({"keys": [key.jwk("one")]}).to_string()).unwrap();
    let settings = format!(
        "[[issuers]]\nissuer = '{ISSUER}'\naudience = ['{any}']\njwks_file = '{}'\n\
         profile = 'plain'",
        path.display()
    );
    let verifier = Verifier::new(toml::from_str(&settings).unwrap()).unwrap();
    let token = key.token(&header("EdDSA"), &with(json!({ "aud": any })));
    assert!(verifier.verify(token.as_bytes(), NOW).is_ok());
}

#[test]
fn users_are_mapped() {
    let key = Key::ed();
    let token = |sub: &str| {
        key.token(
            &header("EdDSA"),
            &with(json!({ "sub": sub, "name": "doe" })),
        )
    };
    let map = "[issuers.map]\n'auth0|1 2' = 'jane'";
    let user = |more: &str, sub| {
        let bench = Bench::new(&[key.jwk("one")], "plain", more);
        let principal = bench.verifier.verify(token(sub).as_bytes(), NOW);
        principal.map(|p| p.user).map_err(|f| f.cause)
    };
    assert_eq!(user(map, "auth0|1 2"), Ok("jane".into()));
    assert!(user(map, "bob").unwrap_err().contains("isn't known"));
    let both = format!("default_user = 'guest'\n{map}");
    assert_eq!(user(&both, "auth0|1 2"), Ok("jane".into()));
    assert_eq!(user(&both, "bob"), Ok("guest".into()));
    assert_eq!(user("default_user = 'guest'", "../bob"), Ok("guest".into()));
    assert_eq!(user("user_claim = 'name'", "bob"), Ok("doe".into()));
    assert!(user("user_claim = 'email'", "bob").is_err());
}

#[test]
fn times() {
    let (bench, key) = plain();
    let verify = |changes| {
        let token = key.token(&header("EdDSA"), &with(changes));
        let verified = bench.verifier.verify(token.as_bytes(), NOW);
        verified.map(|_| ()).map_err(|f| f.cause)
    };
    assert_eq!(
        verify(json!({"exp": NOW - 59})),
        Ok(()),
        "within the leeway"
    );
    assert_eq!(verify(json!({"exp": NOW as f64 + 0.5})), Ok(()));
    assert_eq!(verify(json!({"nbf": NOW + 60, "iat": NOW + 60})), Ok(()));
    assert_eq!(verify(json!({"nbf": null, "iat": null})), Ok(()));
    for (changes, word) in [
        (json!({"exp": NOW - 60}), "expired"),
        (json!({"exp": i64::MIN}), "expired"),
        (json!({"exp": null}), "never expires"),
        (json!({"exp": "1900000000"}), "malformed"),
        (json!({"exp": u64::MAX}), "malformed"),
        (json!({"exp": 1e300}), "malformed"),
        (json!({"nbf": NOW + 61}), "isn't valid yet"),
        (json!({"nbf": i64::MAX}), "isn't valid yet"),
        (json!({"nbf": []}), "malformed"),
        (json!({"iat": NOW + 61}), "in the future"),
        (json!({"iat": "x"}), "malformed"),
    ] {
        let cause = verify(changes.clone()).unwrap_err();
        assert!(cause.contains(word), "{changes}: {cause}");
    }
    for now in [i64::MIN, i64::MAX, 0] {
        let token = key.token(&header("EdDSA"), &claims());
        assert!(bench.verifier.verify(token.as_bytes(), now).is_err());
    }
}

#[test]
fn lifetimes() {
    const DAY: i64 = 86_400;
    let key = Key::ed();
    let verify = |profile: &str, more: &str, changes| {
        let bench = Bench::new(&[key.jwk("one")], profile, more);
        let mut claims = with(changes);
        if profile == "wlcg" {
            claims["scope"] = json!("storage.read:/");
        }
        let token = key.token(&header("EdDSA"), &claims);
        let verified = bench.verifier.verify(token.as_bytes(), NOW);
        verified.map(|_| ()).map_err(|f| f.cause)
    };
    let day = json!({"iat": NOW, "exp": NOW + DAY});
    let longer = json!({"iat": NOW, "exp": NOW + DAY + 1});
    let old = json!({"iat": NOW - DAY, "nbf": NOW - 1, "exp": NOW + 1});
    let without_start = json!({"iat": null, "nbf": null, "exp": NOW + DAY + 1});
    for profile in ["wlcg", "scitokens"] {
        assert_eq!(verify(profile, "", day.clone()), Ok(()));
        for changes in [&longer, &old, &without_start] {
            let cause = verify(profile, "", changes.clone()).unwrap_err();
            assert!(cause.contains("lives longer"), "{changes}: {cause}");
        }
        assert_eq!(verify(profile, "longest_s = 86401", longer.clone()), Ok(()));
    }
    assert_eq!(verify("plain", "", longer.clone()), Ok(()));
    assert!(verify("plain", "longest_s = 86400", longer).is_err());
    let forever = json!({"iat": i64::MIN, "exp": i64::MAX});
    assert!(verify("wlcg", "", forever).is_err());
}

#[test]
fn scopes_limit_or_refuse() {
    let key = Key::ed();
    for (profile, scope, word) in [
        ("wlcg", json!(null), "no scope"),
        ("wlcg", json!("openid compute.read"), "no scope"),
        ("wlcg", json!("read:/data"), "no scope"),
        ("wlcg", json!(["storage.read:/"]), "no scope"),
        ("wlcg", json!("storage.read:/a/../.."), "no proper path"),
        (
            "wlcg",
            json!("storage.read:/ storage.modify"),
            "no proper path",
        ),
        ("scitokens", json!(""), "no scope"),
        ("scitokens", json!("storage.read:/data"), "no scope"),
        ("scitokens", json!("read:data"), "no proper path"),
    ] {
        let bench = Bench::new(&[key.jwk("one")], profile, "");
        let token = key.token(&header("EdDSA"), &with(json!({ "scope": scope })));
        let cause = bench.refusal(token);
        assert!(cause.contains(word), "{profile} {scope}: {cause}");
    }
}

#[test]
fn changed_tokens() {
    let (bench, key) = plain();
    let token = key.token(&header("EdDSA"), &claims());
    let parts: Vec<&str> = token.split('.').collect();
    let stranger = Key::ed().token(&header("EdDSA"), &claims());
    let signature_of_another = key.token(&header("EdDSA"), &with(json!({"sub": "bob"})));
    let other_signature = signature_of_another.rsplit('.').next().unwrap();
    let root = part(&with(json!({"sub": "root"})));
    for changed in [
        stranger,
        format!("{}.{root}.{}", parts[0], parts[2]),
        format!("{}.{}.{other_signature}", parts[0], parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], encode(&[0; 64])),
        format!(
            "{}.{}.{}",
            part(&json!({"kid": "one", "alg": "EdDSA"})),
            parts[1],
            parts[2]
        ),
    ] {
        assert!(bench.refusal(&changed).contains("signature"), "{changed}");
    }
    for malformed in [
        String::new(),
        "..".into(),
        "a.b".into(),
        format!("{token}."),
        format!("{token}.{}.{}", parts[0], parts[1]),
        format!("{token}="),
        format!("{token}\n"),
        format!(" {token}"),
        format!("Bearer {token}"),
        format!("{}.{}", parts[0], parts[1]),
        format!(".{}.{}", parts[1], parts[2]),
        format!("{}..{}", parts[0], parts[2]),
    ] {
        assert!(
            bench.refusal(&malformed).contains("malformed"),
            "{malformed}"
        );
    }
}

#[test]
fn algorithms_that_are_never_taken() {
    let key = Key::rsa();
    let bench = Bench::new(&[key.jwk("one")], "plain", "");
    // The public key as the secret of HMAC, in its common forms.
    let der = key.public();
    let jwks = fs::read(bench.folder.path().join("keys.json")).unwrap();
    for (name, algorithm) in [
        ("HS256", hmac::HMAC_SHA256),
        ("HS384", hmac::HMAC_SHA384),
        ("HS512", hmac::HMAC_SHA512),
    ] {
        for secret in [&der, &jwks] {
            let message = format!("{}.{}", part(&header(name)), part(&claims()));
            let tag = hmac::sign(&hmac::Key::new(algorithm, secret), message.as_bytes());
            let token = format!("{message}.{}", encode(tag.as_ref()));
            assert!(bench.refusal(token).contains("algorithm"), "{name}");
        }
    }
    for name in [
        "none", "None", "NONE", "", "rs256", "RS256 ", "ES512", "RSA-OAEP",
    ] {
        let message = format!("{}.{}", part(&header(name)), part(&claims()));
        for token in [format!("{message}."), format!("{message}.AAAA")] {
            assert!(bench.refusal(token).contains("algorithm"), "{name}");
        }
    }
    for algorithm in [json!(null), json!(["RS256"]), json!(1)] {
        let token = key.token(&json!({"alg": algorithm, "kid": "one"}), &claims());
        assert!(bench.refusal(token).contains("algorithm"), "{algorithm}");
    }
    // A secret key in the set, published by mistake.
    let secret = json!({"kty": "oct", "kid": "one", "k": encode(b"secret")});
    let bench = Bench::new(&[secret], "plain", "");
    let message = format!("{}.{}", part(&header("HS256")), part(&claims()));
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, b"secret"),
        message.as_bytes(),
    );
    let token = format!("{message}.{}", encode(tag.as_ref()));
    assert!(bench.refusal(token).contains("algorithm"));
}

#[test]
fn headers() {
    let (bench, key) = plain();
    for (name, value, word) in [
        ("crit", json!(["exp"]), "critical"),
        ("crit", json!([]), "critical"),
        ("crit", json!(null), "critical"),
        ("kid", json!("two"), "no such key"),
        ("kid", json!(""), "no such key"),
        ("kid", json!("ONE"), "no such key"),
        ("kid", json!(1), "malformed"),
        ("kid", json!(null), "malformed"),
    ] {
        let mut header = header("EdDSA");
        header[name] = value.clone();
        let cause = bench.refusal(key.token(&header, &claims()));
        assert!(cause.contains(word), "{name} {value}: {cause}");
    }
    // A key contained in the token itself doesn't count.
    let stranger = Key::ed();
    let mut header = header("EdDSA");
    header["jwk"] = stranger.jwk("one");
    assert!(
        bench
            .refusal(stranger.token(&header, &claims()))
            .contains("signature")
    );
    // A name that occurs twice.
    let head = encode(br#"{"alg":"none","alg":"EdDSA","kid":"one"}"#);
    let message = format!("{head}.{}", part(&claims()));
    let signature = encode(&key.sign("EdDSA", message.as_bytes()));
    assert!(
        bench
            .refusal(format!("{message}.{signature}"))
            .contains("malformed")
    );
}

#[test]
fn without_the_name_of_a_key_there_may_be_no_choice() {
    let (one, two, other) = (Key::ed(), Key::ed(), Key::p256());
    let verify = |keys: &[Value], header: Value| {
        let bench = Bench::new(keys, "plain", "");
        let token = one.token(&header, &claims());
        let verified = bench.verifier.verify(token.as_bytes(), NOW);
        verified.map(|_| ()).map_err(|f| f.cause)
    };
    let unnamed = || json!({"alg": "EdDSA"});
    assert_eq!(verify(&[one.jwk("one")], unnamed()), Ok(()));
    // A key for another algorithm doesn't match.
    assert_eq!(verify(&[one.jwk("one"), other.jwk("x")], unnamed()), Ok(()));
    let two_keys = [one.jwk("one"), two.jwk("two")];
    assert!(
        verify(&two_keys, unnamed())
            .unwrap_err()
            .contains("no such key")
    );
    assert_eq!(verify(&two_keys, header("EdDSA")), Ok(()));
    // One id for two keys is ambiguous, unless their kinds differ.
    let same = [one.jwk("one"), two.jwk("one")];
    assert!(
        verify(&same, header("EdDSA"))
            .unwrap_err()
            .contains("no such key")
    );
    assert_eq!(
        verify(&[one.jwk("one"), other.jwk("one")], header("EdDSA")),
        Ok(())
    );
    assert!(verify(&[], unnamed()).is_err());
}

#[test]
fn keys_are_of_their_issuer() {
    let (one, two) = (Key::ed(), Key::ed());
    let folder = tempfile::tempdir().unwrap();
    let mut settings = String::new();
    for (name, key) in [("https://one", &one), ("https://two", &two)] {
        let path = folder.path().join(name.rsplit('/').next().unwrap());
        fs::write(&path, json!({"keys": [key.jwk("one")]}).to_string()).unwrap();
        settings += &format!(
            "[[issuers]]\nissuer = '{name}'\naudience = ['{SERVER}']\njwks_file = '{}'\n\
             profile = 'plain'\n",
            path.display()
        );
    }
    let verifier = Verifier::new(toml::from_str(&settings).unwrap()).unwrap();
    let good = |issuer: &str, key: &Key| {
        let token = key.token(&header("EdDSA"), &with(json!({ "iss": issuer })));
        verifier.verify(token.as_bytes(), NOW).is_ok()
    };
    assert!(good("https://one", &one) && good("https://two", &two));
    assert!(!good("https://one", &two) && !good("https://two", &one));
}

#[test]
fn keys_are_read_again() {
    let (bench, old) = plain();
    let new = Key::ed();
    let path = bench.folder.path().join("keys.json");
    let good = |key: &Key, now| {
        let token = key.token(&header("EdDSA"), &claims());
        bench.verifier.verify(token.as_bytes(), now).is_ok()
    };
    assert!(good(&old, NOW) && !good(&new, NOW));
    let mut jwk = new.jwk("one");
    jwk["alg"] = json!("EdDSA");
    fs::write(&path, json!({"keys": [jwk]}).to_string()).unwrap();
    assert!(good(&old, NOW), "at most once a second");
    assert!(good(&new, NOW + 1) && !good(&old, NOW + 1));
    fs::write(&path, "{\"keys\": [").unwrap();
    assert!(good(&new, NOW + 2), "a damaged file leaves the keys");
    fs::write(&path, "{\"keys\": []}").unwrap();
    assert!(!good(&new, NOW + 3), "a set without keys takes them away");
}

#[test]
fn settings() {
    let refused = |more: &str| {
        let folder = tempfile::tempdir().unwrap();
        let fault = Bench::open(&folder, &[], "plain", more).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{more}");
        fault.cause
    };
    for (more, word) in [
        ("leeway_s = 301", "leeway_s"),
        ("base_path = 'a'", "base_path"),
        ("base_path = '/a/../b'", "base_path"),
        ("user_claim = ''", "user_claim"),
        ("default_user = 'anonymous'", "'anonymous'"),
        ("[issuers.map]\nx = '../y'", "'../y'"),
        ("jwks_url = 'https://issuer.example.org/jwks'", "both there"),
        ("jwks_authorities = 'ca.pem'", "makes no sense"),
        ("longest_s = 0", "longest_s"),
    ] {
        let cause = refused(more);
        assert!(cause.contains(word), "{more}: {cause}");
    }
    let issuer = |text: &str| {
        let config: Result<Config, _> = toml::from_str(text);
        config
            .map_err(|e| e.to_string())
            .and_then(|config| Verifier::new(config).map(|_| ()).map_err(|f| f.cause))
    };
    let base = "[[issuers]]\nissuer = 'x'\nprofile = 'wlcg'\n";
    assert!(
        issuer("issuers = []")
            .unwrap_err()
            .contains("between 1 and")
    );
    assert!(
        issuer(&format!("{base}audience = []"))
            .unwrap_err()
            .contains("audience")
    );
    assert!(
        issuer(&format!("{base}audience = ['']"))
            .unwrap_err()
            .contains("audience")
    );
    let cause = issuer(&format!("{base}audience = ['a']")).unwrap_err();
    assert!(cause.contains("not a URL"), "{cause}");
    let url = |url: &str| issuer(&format!("{base}audience = ['a']\njwks_url = '{url}'"));
    assert_eq!(url("https://x/"), Ok(()));
    for bad in ["http://x/", "ftp://x/", "x", ""] {
        let cause = url(bad).unwrap_err();
        assert!(cause.starts_with("issuer 'x': the address"), "{cause}");
    }
    let cause = issuer(&format!("{base}audience = ['a']\naudiences = ['b']")).unwrap_err();
    assert!(cause.contains("unknown field"), "{cause}");
    assert!(issuer("[[issuers]]\nissuer = 'x'\nprofile = 'WLCG'\naudience = ['a']").is_err());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let one = format!("{base}audience = ['a']\njwks_file = '{}'\n", path.display());
    fs::write(&path, "{\"keys\": []}").unwrap();
    assert_eq!(issuer(&one), Ok(()));
    assert!(issuer(&one.repeat(2)).unwrap_err().contains("twice"));
    for damaged in ["", "[]", "{}", "{\"keys\": 1}", "{\"keys\": []} x"] {
        fs::write(&path, damaged).unwrap();
        assert!(issuer(&one).unwrap_err().contains("JWK set"), "{damaged}");
    }
    fs::write(&path, vec![b' '; 1024 * 1024 + 1]).unwrap();
    assert!(issuer(&one).unwrap_err().contains("more than"));
    fs::remove_file(&path).unwrap();
    assert!(issuer(&one).is_err());
}

#[test]
fn sizes() {
    let (bench, key) = plain();
    let filled = |n: usize| key.token(&header("EdDSA"), &with(json!({"pad": "x".repeat(n)})));
    let fitting = filled(11_000);
    assert!(fitting.len() <= MAX_TOKEN_BYTES);
    assert!(bench.verifier.verify(fitting.as_bytes(), NOW).is_ok());
    assert!(bench.refusal(filled(13_000)).contains("16 KiB"));
    assert!(
        bench
            .refusal(vec![b'.'; MAX_TOKEN_BYTES])
            .contains("malformed")
    );
}

#[test]
fn faults_and_debug_hold_nothing_of_the_token() {
    let (bench, key) = plain();
    let secret = "0123456789abcdef";
    let token = key.token(&header("EdDSA"), &with(json!({"sub": "/", "jti": secret})));
    let fault = bench.verifier.verify(token.as_bytes(), NOW).unwrap_err();
    let shown = format!("{fault} {fault:?} {:?}", bench.verifier);
    assert!(!shown.contains(secret));
    for part in token.split('.') {
        assert!(!shown.contains(part));
    }
    assert!(
        shown.contains(ISSUER),
        "of a verifier only the issuers are shown"
    );
}

/// One verifier for all random inputs.
fn shared() -> &'static (Bench, Key) {
    static SHARED: OnceLock<(Bench, Key)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let key = Key::ed();
        (Bench::new(&[key.jwk("one")], "wlcg", ""), key)
    })
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        any::<String>().prop_map(|s| json!(s)),
        "storage\\.(read|modify):/[./%a]{0,8}".prop_map(|s| json!(s)),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(|list| json!(list))
    })
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(shared().0.verifier.verify(&bytes, NOW).is_err());
    }

    #[test]
    fn a_changed_byte_never_passes(at in any::<prop::sample::Index>(), by in 1..=255_u8) {
        let (bench, key) = shared();
        let claims = with(json!({"scope": "storage.read:/"}));
        let mut token = key.token(&header("EdDSA"), &claims).into_bytes();
        prop_assert!(bench.verifier.verify(&token, NOW).is_ok());
        let at = at.index(token.len());
        token[at] ^= by;
        prop_assert!(bench.verifier.verify(&token, NOW).is_err());
    }

    #[test]
    fn random_parts_never_panic(parts in prop::array::uniform3(json_value()), now in any::<i64>()) {
        let token = format!("{}.{}.{}", part(&parts[0]), part(&parts[1]), part(&parts[2]));
        prop_assert!(shared().0.verifier.verify(token.as_bytes(), now).is_err());
    }

    #[test]
    fn random_claims_that_are_signed_never_panic(
        name in prop::sample::select(vec!["iss", "aud", "sub", "exp", "nbf", "iat", "scope"]),
        value in json_value(),
        now in prop_oneof![any::<i64>(), Just(NOW)],
    ) {
        let (bench, key) = shared();
        let mut claims = with(json!({"scope": "storage.read:/"}));
        claims[name] = value;
        let token = key.token(&header("EdDSA"), &claims);
        if let Ok(principal) = bench.verifier.verify(token.as_bytes(), now) {
            prop_assert!(!principal.scopes.is_empty());
            for scope in principal.scopes {
                let path = String::from_utf8(scope.path).unwrap();
                let odd = path.split('/').any(|c| ["", ".", ".."].contains(&c));
                prop_assert!(path.is_empty() || !odd);
            }
        }
    }
}
