//! Keys, passwords, tickets, and nothing at all.

use std::fs;
use std::time::Duration;

use xdfs::Code;
use xdfs::security::{Credential, ExportConfig, ExportsConfig, GrantConfig, Rights};

use crate::raw::{Raw, refused_auth};
use crate::world::{Over, World, assert_same, over_both};

const SIZE: usize = 3_000_000;
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_key_of_the_owner_comes_in() {
    over_both(|over| {
        let world = over.world();
        let key = world.owner_key();
        let source = world.source(SIZE);
        for user in ["", "owner"] {
            let target = format!("copy-{user}");
            world
                .visit(user, vec![key.clone()])
                .upload(&source, &target)
                .unwrap();
            assert_same(&source, &world.path("root").join(target));
        }
    });
}

#[test]
fn a_key_that_no_list_has_is_refused() {
    over_both(|over| {
        // No waiting after failures here: it is another test's matter.
        let world = over.world_with(|security, _| security.limits.failures_free = 100);
        let _ = world.owner_key();
        let _ = world.user_key("alice");
        let (stranger, _) = world.key("stranger");
        let source = world.source(10);
        let texts: Vec<String> = ["", "owner", "alice", "nobody", "../authorized_keys"]
            .into_iter()
            .map(|user| {
                let visit = world.visit(user, vec![stranger.clone()]);
                let fault = visit.upload(&source, "copy").unwrap_err();
                assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
                // What this side says of itself.
                fault.to_string().replace(&format!(" of '{user}'"), "")
            })
            .collect();
        // One answer for those who have an account and those who don't.
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        world.nothing_published();
    });
}

/// a client may prove itself before it knows the methods.
#[test]
fn a_method_that_is_not_taken_is_no_failed_guess() {
    let world = World::new();
    let owner = world.owner_key();
    let anonymous = 1;
    for attempt in 0..10 {
        let mut raw = Raw::open(world.addr, &world.trust());
        let fault = refused_auth(&mut raw, anonymous, "owner", b"");
        assert_eq!(fault.code, Code::AuthenticationFailed, "{attempt}: {fault}");
    }
    // Nobody has to wait for it.
    let visit = world.visit("owner", vec![owner]);
    visit.upload(&world.source(10), "copy").unwrap();
}

#[test]
fn a_key_is_good_for_its_own_user_alone() {
    over_both(|over| {
        let world = over.world_with(|security, _| security.limits.failures_free = 100);
        let owner = world.owner_key();
        let alice = world.user_key("alice");
        let bob = world.user_key("bob");
        let source = world.source(SIZE);
        let come = |key: &Credential, user: &str| {
            let visit = world.visit(user, vec![key.clone()]);
            visit.upload(&source, "copy").map_err(|fault| fault.code)
        };
        for (key, user) in [
            (&alice, "bob"),
            (&bob, "alice"),
            (&alice, ""),
            (&alice, "owner"),
            (&owner, "alice"),
        ] {
            assert_eq!(come(key, user).unwrap_err(), Code::AuthenticationFailed);
        }
        world.nothing_published();
        assert!(come(&alice, "alice").is_ok());
        assert!(come(&bob, "bob").is_ok());
        // A list that is taken away admits nobody.
        fs::remove_file(world.path("server/keys/alice")).unwrap();
        assert_eq!(
            come(&alice, "alice").unwrap_err(),
            Code::AuthenticationFailed
        );
    });
}

#[test]
fn passwords() {
    over_both(|over| {
        let world = over.world();
        world.add_password("alice", "correct horse");
        let source = world.source(SIZE);
        let come = |user: &str, password: &str| {
            let credential = Credential::Password(password.into());
            world.visit(user, vec![credential]).upload(&source, "copy")
        };
        let wrong = come("alice", "wrong").unwrap_err();
        let nobody = come("bob", "correct horse").unwrap_err();
        assert_eq!(wrong.code, Code::AuthenticationFailed, "{wrong}");
        // The same answer, so that nobody learns who has an account.
        assert_eq!(
            (wrong.to_string().replace("alice", "bob"), wrong.hint),
            (nobody.to_string(), nobody.hint)
        );
        world.nothing_published();
        come("alice", "correct horse").unwrap();
        assert_same(&source, &world.path("root/copy"));
    });
}

#[test]
fn a_ticket_lets_in_once() {
    over_both(|over| {
        let world = over.world();
        let source = world.source(SIZE);
        let come = |text: &str, target: &str| {
            let credential = Credential::Ticket(text.into());
            let visit = world.visit("", vec![credential]).channels(4);
            visit.upload(&source, target)
        };
        let ticket = world.tickets.issue(HOUR, 1).unwrap();
        let foreign = over.world().tickets.issue(HOUR, 1).unwrap();
        assert_eq!(
            come(&foreign, "foreign").unwrap_err().code,
            Code::AuthenticationFailed
        );
        come(&ticket, "first").unwrap();
        assert_same(&source, &world.path("root/first"));
        assert_eq!(
            come(&ticket, "second").unwrap_err().code,
            Code::AuthenticationFailed
        );
        assert!(!world.path("root/second").exists());
        assert!(!world.path("root/foreign").exists());
        // The id of a ticket with the secret of another.
        let (one, two) = (
            world.tickets.issue(HOUR, 1).unwrap(),
            world.tickets.issue(HOUR, 1).unwrap(),
        );
        let mixed = format!("{}{}", &one[..20], &two[20..]);
        let fault = come(&mixed, "mixed").unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed);
    });
}

fn exports(over: Over, public: bool) -> World {
    over.world_with(|security, folder| {
        for name in ["open", "closed"] {
            let path = folder.join("root").join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), b"what is in it").unwrap();
        }
        let export = |name: &str, public| ExportConfig {
            name: name.into(),
            path: folder.join("root").join(name).to_str().unwrap().into(),
            public,
            grant: vec![GrantConfig {
                user: Some("owner".into()),
                rights: Rights::ALL,
                ..GrantConfig::default()
            }],
            ..ExportConfig::default()
        };
        security.exports = Some(ExportsConfig {
            export: vec![export("open", public), export("closed", false)],
            ..ExportsConfig::default()
        });
    })
}

#[test]
fn who_proves_nothing_reads_what_is_public_and_no_more() {
    over_both(|over| {
        let world = exports(over, true);
        let visit = world.visit("", vec![Credential::Anonymous]);
        let target = world.path("client/got");
        visit.download("/open/file", &target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"what is in it");

        let source = world.source(SIZE);
        for name in ["/open/new", "/open/file"] {
            let fault = visit.upload(&source, name).unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied, "{fault}");
        }
        assert!(!world.path("root/open/new").exists());
        assert_eq!(
            fs::read(world.path("root/open/file")).unwrap(),
            b"what is in it"
        );
        // One answer for what is closed and what isn't there.
        let closed = visit.download("/closed/file", &target).unwrap_err();
        let missing = visit.download("/missing/file", &target).unwrap_err();
        assert_eq!(closed.code, Code::NotFound, "{closed}");
        assert_eq!((closed.code, closed.cause), (missing.code, missing.cause));
        // A name doesn't make one of them.
        let owner = world.visit("owner", vec![Credential::Anonymous]);
        let fault = owner.download("/closed/file", &target).unwrap_err();
        assert_eq!(fault.code, Code::NotFound, "{fault}");
    });
}

#[test]
fn who_proves_nothing_is_refused_where_nothing_is_public() {
    over_both(|over| {
        for world in [over.world(), exports(over, false)] {
            let visit = world.visit("", vec![Credential::Anonymous]);
            let fault = visit
                .download("/open/file", &world.path("client/got"))
                .unwrap_err();
            assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
            assert!(fault.cause.contains("key"), "{fault}");
            // That was the client's own judgement; the server doesn't rely on it.
            let methods: &[u8] = match over {
                Over::Tcp => &[0, 1, 5, 6, 7, 255],
                Over::Quic => &[],
            };
            for &method in methods {
                let mut raw = Raw::open(world.addr, &world.trust());
                let fault = refused_auth(&mut raw, method, "owner", b"");
                assert!(
                    matches!(fault.code, Code::AuthenticationFailed | Code::LimitExceeded),
                    "{fault}"
                );
            }
        }
    });
}
