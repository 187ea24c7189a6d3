//! Whom a client believes.

use std::fs;
use std::net::SocketAddr;

use rcgen::{CertificateParams, KeyPair};
use xdfs::Code;
use xdfs::security::{KnownHosts, NewHosts, host_port};

use crate::certificates::{Authority, authority, write_key};
use crate::world::{Over, Visit, World, assert_same, over_both};

fn name(addr: SocketAddr) -> String {
    host_port(&addr.ip().to_string(), addr.port()).unwrap()
}

#[test]
fn the_first_use_is_remembered() {
    over_both(|over| {
        let world = over.world();
        let source = world.source(100_000);
        let mut visit = world.visit("", vec![world.owner_key()]);
        let path = world.path("client/known_hosts");

        visit.trust().new_hosts = NewHosts::Refuse;
        let fault = visit.upload(&source, "copy").unwrap_err();
        assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
        assert!(
            fault.to_string().contains(&world.fingerprint.to_string()),
            "{fault}"
        );
        assert!(!path.exists());
        world.nothing_published();

        visit.trust().new_hosts = NewHosts::Accept;
        visit.clone().channels(4).upload(&source, "copy").unwrap();
        let known = KnownHosts::load(&path).unwrap();
        assert_eq!(known.lookup(&name(world.addr)), [world.fingerprint]);
        assert_eq!(known.list().count(), 1);

        visit.trust().new_hosts = NewHosts::Refuse;
        visit.upload(&source, "copy").unwrap();
        assert_same(&source, &world.path("root/copy"));
    });
}

/// The same address answers with another key.
#[test]
fn a_changed_key_is_refused() {
    over_both(|over| {
        let (world, other) = (over.world(), over.world());
        let door = over.door(world.addr);
        let source = world.source(100_000);
        let key = world.owner_key();
        // The other server would take the client's key, so that nothing but its own is in the way.
        fs::copy(
            world.path("server/authorized_keys"),
            other.path("server/authorized_keys"),
        )
        .unwrap();
        let visit = world.visit("", vec![key]).at(door.addr());
        visit.upload(&source, "copy").unwrap();
        let known = fs::read(world.path("client/known_hosts")).unwrap();

        door.set_target(other.addr);
        for channels in [1, 8] {
            let fault = visit
                .clone()
                .channels(channels)
                .upload(&source, "copy")
                .unwrap_err();
            assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
            for fingerprint in [world.fingerprint, other.fingerprint] {
                assert!(
                    fault.to_string().contains(&fingerprint.to_string()),
                    "{fault}"
                );
            }
            assert!(fault.hint.contains("trust remove"), "{}", fault.hint);
        }
        other.nothing_published();
        assert_eq!(fs::read(world.path("client/known_hosts")).unwrap(), known);

        door.set_target(world.addr);
        visit.upload(&source, "copy").unwrap();
        // Told on purpose, it is believed.
        KnownHosts::load(&world.path("client/known_hosts"))
            .unwrap()
            .remove(&name(door.addr()))
            .unwrap();
        door.set_target(other.addr);
        visit.upload(&source, "copy").unwrap();
        assert_same(&source, &other.path("root/copy"));
    });
}

/// A channel that comes to another server in the middle of a session.
#[test]
fn all_channels_of_a_session_see_one_key() {
    over_both(|over| {
        let (world, other) = (over.world(), over.world());
        let door = over.door(world.addr);
        let source = world.source(2_000_000);
        let visit = world.visit("", vec![world.owner_key()]).at(door.addr());
        let client = visit.channels(1).connect().unwrap();
        let place = xdfs::LocalPlace::Path(source);
        let options = xdfs::TransferOptions::default();
        let upload = |name: &[u8]| crate::world::finish(client.upload(&place, name, &options)?);
        upload(b"one").unwrap();
        door.set_target(other.addr);
        let fault = upload(b"two").unwrap_err();
        assert!(
            matches!(fault.code, Code::ConnectionLost | Code::ServerUntrusted),
            "{fault}"
        );
        other.nothing_published();
        assert!(!world.path("root/two").exists());
    });
}

#[test]
fn a_pin_is_all_that_counts() {
    over_both(|over| {
        let (world, other) = (over.world(), over.world());
        let source = world.source(100_000);
        let mut visit = world.visit("", vec![world.owner_key()]);
        // What is known or damaged is not looked at.
        fs::write(world.path("client/known_hosts"), b"\xff\0 damaged").unwrap();
        visit.trust().pins = vec![other.fingerprint];
        let fault = visit.upload(&source, "copy").unwrap_err();
        assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
        assert!(
            fault.to_string().contains(&world.fingerprint.to_string()),
            "{fault}"
        );
        world.nothing_published();
        visit.trust().pins = vec![other.fingerprint, world.fingerprint];
        visit.upload(&source, "copy").unwrap();
        assert_same(&source, &world.path("root/copy"));
        // Without a pin a damaged file lets nobody in.
        visit.trust().pins.clear();
        let fault = visit.upload(&source, "copy").unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
    });
}

/// A server with a certificate for `name`, and a client that asks for the authority.
fn vouched(over: Over, name: &str, by: &Authority) -> (World, Visit) {
    let world = over.world_with(|security, folder| {
        let (chain, path) = (folder.join("server/ca.crt"), folder.join("server/ca.key"));
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        fs::write(&chain, params.signed_by(&key, by).unwrap().pem()).unwrap();
        write_key(&path, &key);
        security.certificate = Some((chain, path));
    });
    let mut visit = world.visit("", vec![world.owner_key()]);
    visit.trust().roots = vec![by.as_ref().der().clone()];
    (world, visit)
}

#[test]
fn an_authority_vouches_for_a_name() {
    over_both(|over| {
        let by = authority("authority");
        let (world, visit) = vouched(over, "127.0.0.1", &by);
        let source = world.source(100_000);
        visit.upload(&source, "copy").unwrap();
        assert_same(&source, &world.path("root/copy"));
        assert!(!world.path("client/known_hosts").exists());

        for (name, by_another) in [("data.example.org", false), ("127.0.0.1", true)] {
            let (world, mut visit) = vouched(over, name, &by);
            if by_another {
                visit.trust().roots = vec![authority("authority").as_ref().der().clone()];
            }
            // Although new hosts would be accepted.
            let fault = visit.upload(&source, "copy").unwrap_err();
            assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
            world.nothing_published();
            assert!(!world.path("client/known_hosts").exists());
        }
    });
}
