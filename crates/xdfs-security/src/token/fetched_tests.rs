//! Tests of tokens whose keys are fetched.

use serde_json::json;
use xdfs_proto::Retry;

use super::tests::{ISSUER, Key, NOW, SERVER, claims, with};
use super::*;

#[test]
fn fetched_keys() {
    let settings = |more: &str| {
        let text = format!(
            "[[issuers]]\nissuer = '{ISSUER}'\naudience = ['{SERVER}']\nprofile = 'plain'\n{more}"
        );
        Verifier::new(toml::from_str(&text).unwrap()).unwrap()
    };
    let asked = settings("");
    let found = asked.take_fetches().remove(0);
    let document = format!("{ISSUER}.well-known/openid-configuration");
    assert_eq!(
        found.source(),
        &KeySource::Discovery(KeyUrl::parse(&document).unwrap())
    );

    let verifier = settings("jwks_url = 'https://keys.example.org/'\njwks_authorities = 'a'");
    let fetch = verifier.take_fetches().remove(0);
    assert!(verifier.take_fetches().is_empty());
    assert_eq!(fetch.issuer(), ISSUER);
    assert_eq!(fetch.authorities(), Some(std::path::Path::new("a")));
    let (old, new) = (Key::ed(), Key::ed());
    let token = |key: &Key, id: &str| {
        key.token(
            &json!({"alg": "EdDSA", "kid": id}),
            &with(json!({"exp": NOW + 1_000_000})),
        )
    };
    let (one, two) = (token(&old, "one"), token(&new, "two"));
    let try_at = |token: &str, now: i64| {
        let verified = verifier.verify(token.as_bytes(), now);
        verified.map(|p| p.user).map_err(|f| (f.cause, f.retry))
    };
    let later = Retry::AfterMs(3000);
    let absent = Err(("the keys of the issuer aren't at hand".into(), later));
    assert_eq!(try_at(&one, NOW), absent);
    fetch.begin(NOW);
    let set = json!({"keys": [old.jwk("one")]}).to_string();
    fetch.store(set.as_bytes(), Some(600), NOW).unwrap();
    assert_eq!(try_at(&one, NOW), Ok("jane".into()));
    assert_eq!(fetch.due_in(NOW).as_secs(), 600);

    // A wrong signature with a known key id causes no fetch.
    let forged = token(&new, "one");
    let wrong = try_at(&forged, NOW).unwrap_err();
    assert_eq!(
        wrong,
        ("the signature of the token is wrong".into(), Retry::Never)
    );
    assert_eq!(fetch.due_in(NOW).as_secs(), 600);
    // Another key id does, and so does a wrong signature without one.
    let unknown = try_at(&two, NOW).unwrap_err();
    assert_eq!(
        unknown,
        ("the issuer has no such key for the token".into(), later)
    );
    assert_eq!(fetch.due_in(NOW).as_secs(), 30);
    fetch.begin(NOW + 30);
    let set = json!({"keys": [old.jwk("one"), new.jwk("two")]}).to_string();
    fetch.store(set.as_bytes(), Some(600), NOW + 30).unwrap();
    assert_eq!(try_at(&two, NOW + 30), Ok("jane".into()));
    assert_eq!(fetch.due_in(NOW + 30).as_secs(), 600);
    let other = Key::ed();
    fetch.begin(NOW + 60);
    let set = json!({"keys": [old.jwk("one")]}).to_string();
    fetch.store(set.as_bytes(), Some(600), NOW + 60).unwrap();
    let nameless = other.token(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(try_at(&nameless, NOW + 60).unwrap_err().1, later);
    assert_eq!(fetch.due_in(NOW + 60).as_secs(), 30);
    // The keys of an issuer that has vanished expire.
    let end = NOW + 60 + 600 + 86400;
    assert_eq!(try_at(&one, end - 1), Ok("jane".into()));
    assert_eq!(try_at(&one, end), absent);
}
