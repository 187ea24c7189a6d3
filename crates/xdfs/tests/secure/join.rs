//! Channels that want to join a session that isn't theirs.

use xdfs::security::{Credential, TrustPolicy};
use xdfs::{Code, Fault};
use xdfs_proto::frame::JoinRequest;
use xdfs_proto::handshake::{Initiator, InitiatorStep, Purpose};
use xdfs_proto::{ChannelIndex, SessionId, SessionSecret};

use crate::raw::{Raw, register, session_request};
use crate::world::World;

/// A world, a session of its owner, and what is needed to join it.
struct Joined {
    world: World,
    first: Raw,
    id: SessionId,
    secret: SessionSecret,
    trust: TrustPolicy,
}

impl Joined {
    fn new() -> Self {
        let world = World::new();
        let Credential::Key(key) = world.owner_key() else {
            unreachable!("a key was asked for");
        };
        let trust = world.trust();
        let (first, id, secret) = register(world.addr, &trust, &key);
        Self {
            world,
            first,
            id,
            secret,
            trust,
        }
    }

    fn join(
        &self,
        channel: u32,
        shown: impl FnOnce(&[u8; 32]) -> SessionSecret,
    ) -> Result<Raw, Fault> {
        let raw = Raw::open(self.world.addr, &self.trust);
        Self::join_on(raw, self.id, channel, shown)
    }

    fn join_on(
        mut raw: Raw,
        id: SessionId,
        channel: u32,
        shown: impl FnOnce(&[u8; 32]) -> SessionSecret,
    ) -> Result<Raw, Fault> {
        let request = JoinRequest {
            id,
            secret: shown(&raw.binding),
            channel: ChannelIndex(channel),
        };
        let mut out = Vec::new();
        let mut machine = Initiator::protected(Purpose::Join(request), false, &mut out);
        match raw.exchange(&mut machine, &mut out)? {
            InitiatorStep::Open(None) => Ok(raw),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_secret_counts_only_as_bound_to_the_channel() {
    let joined = Joined::new();
    let secret = joined.secret;
    let first = joined.first.binding;
    let one = ChannelIndex(1);
    let other = Raw::open(joined.world.addr, &joined.trust);
    assert_ne!(first, other.binding);
    let faults: Vec<Fault> = [
        joined.join(1, |_| SessionSecret([0; 16])),
        // As on channels without protection.
        joined.join(1, |_| secret),
        joined.join(1, |_| secret.bound_to(&first, one)),
        joined.join(1, |_| secret.bound_to(&other.binding, one)),
        joined.join(1, |binding| secret.bound_to(binding, ChannelIndex(2))),
        joined.join(1, |binding| SessionSecret([1; 16]).bound_to(binding, one)),
    ]
    .into_iter()
    .map(|result| {
        let fault = result.err().unwrap();
        assert_eq!(fault.code, Code::SessionUnknown, "{fault}");
        fault
    })
    .collect();
    assert!(faults.iter().all(|f| *f == faults[0]), "{faults:?}");
    // None of them used the place up.
    let _good = joined
        .join(1, |binding| secret.bound_to(binding, one))
        .unwrap();
    // Its number is used now, and the session lives.
    let again = joined.join(1, |binding| secret.bound_to(binding, one));
    assert_eq!(again.err().unwrap(), faults[0]);
    joined
        .join(2, |binding| secret.bound_to(binding, ChannelIndex(2)))
        .unwrap();
}

#[test]
fn a_session_without_a_proof_is_refused() {
    let world = World::new();
    let mut raw = Raw::open(world.addr, &world.trust());
    let mut out = Vec::new();
    // As on channels without protection: SESSION follows WELCOME at once.
    let purpose = Purpose::Session(session_request([3; 16]));
    let mut machine = Initiator::new(purpose, false, &mut out);
    let fault = raw.exchange(&mut machine, &mut out).unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
}

/// Rules A-35 and S-8: who got hold of a secret, and of what binds it, can't use it from another
/// address, and learns no more than who names a session that isn't there.
#[test]
#[cfg(target_os = "linux")]
fn a35_another_address_is_answered_like_an_unknown_session() {
    let joined = Joined::new();
    let secret = joined.secret;
    let one = ChannelIndex(1);
    let refused = |source: &str, id: SessionId| {
        let raw = Raw::open_from(source.parse().unwrap(), joined.world.addr, &joined.trust);
        let fault = Joined::join_on(raw, id, 1, |binding| secret.bound_to(binding, one));
        fault.err().unwrap()
    };
    let unknown = refused("127.0.0.1", SessionId([0xee; 16]));
    assert_eq!(unknown.code, Code::SessionUnknown, "{unknown}");
    assert_eq!(refused("127.0.0.2", joined.id), unknown);
    assert_eq!(refused("127.0.0.2", SessionId([0xee; 16])), unknown);
    let unbound = joined.join(1, |_| secret).err().unwrap();
    assert_eq!(unbound, unknown);
    // From its own address the very same is taken.
    joined
        .join(1, |binding| secret.bound_to(binding, one))
        .unwrap();
}
