//! Issuers whose keys come from the web.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use xdfs::security::{Credential, TokenConfig};
use xdfs::{Code, Fault, Retry};
use xdfs_testkit::wait;
use xdfs_testkit::web::{Answer, Web};

use crate::tokens::{Issuer, claims, settings, with};
use crate::world::{PATIENCE, World, assert_same};

const ISSUER: &str = "https://issuer.example.org/";

/// A world that takes the tokens of issuers with these names and addresses of keys.
fn world(issuers: &[(&str, String)]) -> World {
    World::with(|security, folder| {
        let issuers = issuers
            .iter()
            .map(|(name, url)| xdfs::security::IssuerConfig {
                jwks_url: Some(url.clone()),
                ..settings(name)
            });
        security.tokens = Some(TokenConfig {
            issuers: issuers.collect(),
        });
        // Tests here come until it works.
        security.limits.failures_free = u32::MAX;
        std::fs::create_dir(folder.join("root/box")).unwrap();
    })
}

fn visit(world: &World, token: &str) -> Result<(), Fault> {
    let visit = world.visit("", vec![Credential::Token(token.to_owned())]);
    // A connection alone doesn't wait for the answer to the proof.
    let source = world.source(10);
    visit.upload(&source, "/box/visit").map(|_| ())
}

#[test]
fn keys_come_from_the_web_and_an_issuer_that_is_silent_holds_up_nobody() {
    let (issuer, silent) = (Issuer::new(), Issuer::new());
    let keys = issuer.keys().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let web = Web::start(move |path| match path {
        "/good" => Answer::ok(keys.as_bytes()),
        _ => {
            counted.fetch_add(1, Ordering::SeqCst);
            Answer::Silence
        }
    });
    let other = "https://silent.example.org/";
    let world = world(&[(ISSUER, web.url("/good")), (other, web.url("/silent"))]);
    let owner = world.owner_key();
    assert!(wait::until(PATIENCE, || asked.load(Ordering::SeqCst) > 0));
    let token = issuer.token(&claims());
    assert!(wait::until(PATIENCE, || visit(&world, &token).is_ok()));
    // What the silent one signed can't be checked, and may be worth another try.
    let fault = visit(&world, &silent.token(&with("iss", other))).unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
    assert!(matches!(fault.retry, Retry::AfterMs(_)), "{fault:?}");
    assert!(fault.cause.contains("aren't at hand"), "{fault}");
    // Meanwhile others come in, and files move.
    let source = world.source(100_000);
    let mine = world.visit("", vec![owner]);
    mine.upload(&source, "/mine").unwrap();
    assert_same(&source, &world.path("root/mine"));
    let theirs = world.visit("", vec![Credential::Token(token)]);
    theirs.upload(&source, "/box/theirs").unwrap();
    assert_same(&source, &world.path("root/box/theirs"));
}

#[test]
fn tokens_of_strangers_make_nobody_ask_the_issuer() {
    let issuer = Issuer::new();
    let keys = issuer.keys().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let web = Web::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Answer::ok(keys.as_bytes())
    });
    let world = world(&[(ISSUER, web.url("/"))]);
    let token = issuer.token(&claims());
    assert!(wait::until(PATIENCE, || visit(&world, &token).is_ok()));
    let stranger = Issuer::new();
    for _ in 0..10 {
        // Under a name that is known, and under none.
        for token in [
            stranger.token(&claims()),
            stranger.token(&with("iss", "https://else.example.org/")),
        ] {
            let fault = visit(&world, &token).unwrap_err();
            assert_eq!(fault.retry, Retry::Never, "{fault}");
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    visit(&world, &token).unwrap();
}

#[test]
fn addresses_that_do_not_protect_keys_are_refused_at_the_start() {
    for url in ["http://issuer.example.org/jwks", "file:///jwks", "jwks"] {
        let folder = tempfile::tempdir().unwrap();
        let (root, own) = (folder.path().join("root"), folder.path().join("server"));
        std::fs::create_dir(&root).unwrap();
        let mut security = xdfs::security::ServerSecurity::new(own, "owner".into());
        security.tokens = Some(TokenConfig {
            issuers: vec![xdfs::security::IssuerConfig {
                jwks_url: Some(url.into()),
                ..settings(ISSUER)
            }],
        });
        let builder = xdfs::ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root,
            security: Some(security),
            ..xdfs::ServerBuilder::default()
        };
        let fault = builder.bind().err().unwrap();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
        assert!(fault.cause.contains(ISSUER), "{fault}");
    }
}
