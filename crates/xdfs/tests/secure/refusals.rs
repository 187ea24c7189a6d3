//! What a refused password tells about who exists: nothing by its form, nothing by its cost.
//!
//! The server evaluates argon2id for nobody: that is the client's work, with the parameters of the
//! challenge. So what has to be alike is the challenge, which decides the client's cost, and what
//! the server itself does, whatever the parameters are that it keeps for a user.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs::Fault;
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::handshake::{Initiator, InitiatorStep, Purpose};
use xdfs_security::Method;

use crate::raw::{Raw, session_request};
use crate::world::World;

/// Users as `xdfs user` writes them: one whose password costs as little as is allowed, one who has
/// the costs of new passwords, and one whose password costs as much as is allowed.
const USERS: &str = "\
!secret:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
cheap:argon2id$m=7168,t=1,p=1$AAECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
usual:argon2id$m=65536,t=3,p=4$AQECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
dear:argon2id$m=262144,t=16,p=8$AgECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
";

/// How many refusals of each name are timed.
const ROUNDS: usize = 40;
/// How often they are timed until the medians are close once.
const ATTEMPTS: usize = 3;

fn world() -> World {
    // No waiting after failures: that is another test's matter.
    World::with(|security, folder| {
        security.limits.failures_free = 1_000_000;
        security.limits.guesses_free = 1_000_000;
        write_users(&folder.join("server/users"));
    })
}

fn write_users(path: &Path) {
    fs::write(path, USERS).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// What came of a proof that is wrong.
struct Refusal {
    challenge: Vec<u8>,
    fault: Fault,
    took: Duration,
}

impl Refusal {
    fn salt(&self) -> &[u8] {
        &self.challenge[..16]
    }

    /// Memory, passes and lanes.
    fn costs(&self) -> &[u8] {
        &self.challenge[16..28]
    }
}

fn refuse(world: &World, user: &str) -> Refusal {
    let mut raw = Raw::open(world.addr, &world.trust());
    let mut out = Vec::new();
    let purpose = Purpose::Session(session_request([1; 16]));
    let mut machine = Initiator::protected(purpose, false, &mut out);
    let step = raw.exchange(&mut machine, &mut out).unwrap();
    assert!(matches!(step, InitiatorStep::Prove(_)), "{step:?}");
    let start = Instant::now();
    let request = AuthRequest {
        method: Method::Password.number(),
        user: user.into(),
        body: vec![7; 32],
    };
    machine.prove(request, false, &mut out);
    let challenge = match raw.exchange(&mut machine, &mut out).unwrap() {
        InitiatorStep::Challenge(challenge) => challenge,
        step => panic!("{step:?}"),
    };
    machine.answer(vec![9; 32], &mut out);
    let fault = raw.exchange(&mut machine, &mut out).unwrap_err();
    Refusal {
        challenge,
        fault,
        took: start.elapsed(),
    }
}

#[test]
fn a_refusal_has_the_same_form_whether_the_user_exists_or_not() {
    let world = world();
    let usual = refuse(&world, "usual");
    let stranger = refuse(&world, "stranger");
    let another = refuse(&world, "another");
    assert_eq!(usual.challenge.len(), stranger.challenge.len());
    assert_eq!(usual.challenge.len(), another.challenge.len());
    // One evaluation of argon2id at the same cost, on the client's side.
    assert_eq!(usual.costs(), stranger.costs());
    assert_eq!(usual.costs(), another.costs());
    assert_eq!(usual.fault, stranger.fault);
    assert_eq!(usual.fault, another.fault);
    // The server does know its users: those with other costs than new passwords are asked for them.
    assert_ne!(refuse(&world, "dear").costs(), stranger.costs());
    // Who asks again gets the same salt, as for a user, and no two names share one.
    assert_eq!(refuse(&world, "usual").salt(), usual.salt());
    assert_eq!(refuse(&world, "stranger").salt(), stranger.salt());
    assert_ne!(stranger.salt(), another.salt());
    assert_ne!(stranger.salt(), usual.salt());
}

/// Medians of many refusals in turn, compared with a factor that no noise of one sort of name alone
/// reaches: if the server evaluated argon2id for one of them, which takes milliseconds for the
/// cheapest and seconds for the dearest where a refusal takes a tenth of one, they would be far
/// apart in every attempt.
#[test]
fn a_refusal_costs_the_server_the_same_whether_the_user_exists_or_not() {
    let world = world();
    let names = ["cheap", "usual", "dear", "stranger"];
    let mut seen = Vec::new();
    let is_alike = (0..ATTEMPTS).any(|_| {
        let mut times = names.map(|_| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            for (times, name) in times.iter_mut().zip(names) {
                times.push(refuse(&world, name).took);
            }
        }
        let medians = times.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2]
        });
        seen.push(medians);
        let (least, most) = (medians.iter().min(), medians.iter().max());
        least
            .zip(most)
            .is_some_and(|(least, most)| *most <= *least * 2)
    });
    assert!(is_alike, "medians of {names:?}: {seen:?}");
}
