//! What failures and sessions cost.

use xdfs::security::Credential;
use xdfs::{Code, LocalPlace, Retry};

use crate::world::{World, assert_same, finish, over_both};

/// After failures even the right password has to wait, and who is inside doesn't notice.
#[test]
fn an_address_that_failed_has_to_wait() {
    over_both(|over| {
        let world = over.world_with(|security, _| security.limits.failures_free = 2);
        world.add_password("alice", "correct horse");
        let source = world.source(3_000_000);
        let inside = world.visit("", vec![world.owner_key()]).channels(8);
        let client = inside.connect().unwrap();
        let place = LocalPlace::Path(source.clone());
        let upload = |name: &[u8]| finish(client.upload(&place, name, &inside.transfer())?);
        upload(b"before").unwrap();

        let come = |password: &str| {
            let credential = Credential::Password(password.into());
            world
                .visit("alice", vec![credential])
                .upload(&source, "copy")
        };
        // The shortest wait is a second, which may pass on a busy machine before the next attempt.
        let waited = (0..10).any(|_| {
            for _ in 0..2 {
                let fault = come("wrong").unwrap_err();
                assert!(
                    matches!(fault.code, Code::AuthenticationFailed | Code::LimitExceeded),
                    "{fault}"
                );
            }
            // Channels of the session that are replaced while its address waits.
            client.break_channel();
            client.break_channel();
            match come("correct horse") {
                Ok(_) => false,
                Err(fault) => {
                    assert_eq!(fault.code, Code::LimitExceeded, "{fault:?}");
                    assert!(
                        matches!(fault.retry, Retry::AfterMs(ms) if ms > 0),
                        "{fault:?}"
                    );
                    true
                }
            }
        });
        assert!(waited, "no attempt was refused");
        upload(b"after").unwrap();
        assert_same(&source, &world.path("root/after"));
    });
}

#[test]
fn sessions_of_a_user_are_counted() {
    over_both(|over| {
        let world = over.world_with(|security, _| security.limits.sessions_per_user_max = 2);
        let source = world.source(1000);
        let owner = world.visit("", vec![world.owner_key()]);
        let alice = world.visit("alice", vec![world.user_key("alice")]);
        let place = LocalPlace::Path(source.clone());
        let held: Vec<_> = (0..2)
            .map(|_| {
                let client = owner.connect().unwrap();
                finish(client.upload(&place, b"/copy", &owner.transfer()).unwrap()).unwrap();
                client
            })
            .collect();
        let fault = owner.upload(&source, "copy").unwrap_err();
        assert_eq!(fault.code, Code::LimitExceeded, "{fault}");
        alice.upload(&source, "copy").unwrap();
        drop(held);
        // The places are free when the server has noticed.
        let free = xdfs_testkit::wait::until(crate::world::PATIENCE, || {
            owner.upload(&source, "copy").is_ok()
        });
        assert!(free);
    });
}

#[test]
fn channels_of_a_user_are_counted() {
    over_both(|over| {
        let world = over.world_with(|security, _| security.limits.channels_per_user_max = 3);
        let source = world.source(30_000_000);
        let owner = world.visit("", vec![world.owner_key()]).channels(8);
        let result = owner.upload(&source, "copy").unwrap();
        assert!((1..=3).contains(&result.channels), "{}", result.channels);
        assert_same(&source, &world.path("root/copy"));
    });
}

/// A server that is too busy closes connections without a word.
#[test]
fn a_busy_server_can_be_tried_again() {
    let world = World::new();
    let source = world.source(1000);
    let owner = world.visit("", vec![world.owner_key()]);
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at_busy = owner.clone().at(busy.local_addr().unwrap());
    let fault = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = busy.accept().unwrap();
            // With nothing left to read, the end is no reset.
            std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
        });
        at_busy.upload(&source, "copy").unwrap_err()
    });
    assert_eq!(fault.code, Code::ConnectionLost, "{fault:?}");
    assert!(matches!(fault.retry, Retry::AfterMs(_)), "{fault:?}");
    assert!(fault.cause.contains("TLS handshake"), "{fault:?}");
    assert!(fault.hint.contains("busy"), "{fault:?}");
    owner.upload(&source, "copy").unwrap();
}
