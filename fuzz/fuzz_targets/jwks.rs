//! What comes from the web server of an issuer, from any bytes: sets of keys, the document that
//! says where they are, and addresses. Only who has a key of the set makes tokens, and no address
//! is taken that isn't protected or of this machine.
#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_security::token::{Config, KeyUrl, Verifier, discovered};

const NOW: i64 = 1_800_000_000;
const SETTINGS: &str = "[[issuers]]\nissuer = 'x'\naudience = ['y']\nprofile = 'plain'\n\
                        jwks_url = 'https://issuer.example.org/'\n";

/// A key, and tokens that its holder made: with the name `a`, and without one.
struct Honest {
    x: String,
    tokens: [String; 2],
}

static HONEST: LazyLock<Honest> = LazyLock::new(|| {
    let key = Ed25519KeyPair::generate().expect("a new key");
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let claims = format!(r#"{{"iss":"x","aud":"y","sub":"jane","exp":{}}}"#, NOW + 60);
    let tokens = [r#"{"alg":"EdDSA","kid":"a"}"#, r#"{"alg":"EdDSA"}"#].map(|header| {
        let message = format!(
            "{}.{}",
            encode(header.as_bytes()),
            encode(claims.as_bytes())
        );
        let signature = key.sign(message.as_bytes());
        format!("{message}.{}", encode(signature.as_ref()))
    });
    let x = encode(key.public_key().as_ref());
    let honest = Honest { x, tokens };
    let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"%"}]}"#;
    assert_eq!(accepted(&set.replace('%', &honest.x), &honest), [true; 2]);
    honest
});

/// Which of the tokens are taken when this is the set.
fn accepted(set: &str, honest: &Honest) -> [bool; 2] {
    let config: Config = toml::from_str(SETTINGS).expect("settings");
    let verifier = Verifier::new(config).expect("a verifier");
    let fetch = verifier.take_fetches().remove(0);
    fetch.begin(NOW);
    let stored = fetch.store(set.as_bytes(), None, NOW);
    let taken = honest.tokens.each_ref().map(|token| {
        let verified = verifier.verify(token.as_bytes(), NOW);
        assert!(verified.as_ref().is_ok_and(|p| p.user == "jane") || verified.is_err());
        verified.is_ok()
    });
    if let Err(fault) = stored {
        assert_eq!(fault.code, Code::InvalidArgument);
        assert_eq!(taken, [false; 2]);
    }
    taken
}

fn url(text: &str) {
    let Ok(url) = KeyUrl::parse(text) else {
        return;
    };
    assert_eq!(url.as_str(), text);
    assert!(url.is_secure() || url.is_local());
    assert_eq!(url.is_secure(), text.starts_with("https://"));
    assert!(url.is_secure() || text.starts_with("http://127.") || text.starts_with("http://["));
    assert!(text.is_ascii() && !text.contains(char::is_whitespace));
    let (_, rest) = text.split_once("://").expect("a scheme");
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    assert!(!authority.is_empty() && !authority.contains('@'));
}

fuzz_target!(|text: &str| {
    let honest = &*HONEST;
    let Some((which, rest)) = text.split_at_checked(1) else {
        return;
    };
    match which {
        "u" => {
            for prefix in ["", "https://", "http://127.0.0.1", "http://[::1]"] {
                url(&format!("{prefix}{rest}"));
            }
        }
        "d" => {
            let from = KeyUrl::parse("https://issuer.example.org/").expect("an address");
            if let Ok(found) = discovered(rest.as_bytes(), "x", &from) {
                assert!(found.is_secure() && !found.is_local());
                url(found.as_str());
            }
        }
        _ => {
            // Mutations don't make a public key.
            let taken = accepted(&rest.replace('%', &honest.x), honest);
            if !rest.contains('%') {
                assert_eq!(taken, [false; 2], "a key that isn't in the set");
            }
        }
    }
});
