//! Tickets and passwords at the server's end, from calls and bodies in any order. Tickets follow a
//! model of what they are good for; of passwords the one proof is accepted that the specification
//! says, for its user and its channel, and whether a user exists doesn't show.
#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_proto::third_party::CopyId;
use xdfs_security::export::Rights;
use xdfs_security::identity::Fingerprint;
use xdfs_security::password::{PasswordClient, PasswordServer, Users, UsersFile};
use xdfs_security::ticket::{Capability, Opens, TicketBox, prove};
use xdfs_security::{Binding, Scope};

const BINDING: Binding = [7; 32];
const USER: &str = "jane";
/// What only the user's end knows.
const CLIENT_KEY: [u8; 32] = [0x5a; 32];
const CHALLENGE_BYTES: usize = 60;
/// Wrong proofs that a ticket outlives, and the longest life of one.
const WRONG_MAX: u32 = 7;
const LIFE_S_MAX: u64 = 30 * 24 * 3600;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

static USERS: LazyLock<Users> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = UsersFile::new(folder.path().join("users"));
    // Made by the program for the access rights, then written anew with a key that is known here.
    file.init().expect("a new file");
    let text = format!(
        "!secret:{}\n{USER}:argon2id$m=65536,t=3,p=4${}${}\n",
        STANDARD_NO_PAD.encode([1; 32]),
        STANDARD_NO_PAD.encode([2; 16]),
        STANDARD_NO_PAD.encode(sha256(&CLIENT_KEY)),
    );
    std::fs::write(folder.path().join("users"), text).expect("the file of users");
    file.load().expect("the users")
});

/// The proof, from the specification.
fn proof_of(user: &str, binding: &Binding, nonce: &[u8], challenge: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &sha256(&CLIENT_KEY));
    let mut context = hmac::Context::with_key(&key);
    context.update(b"xdfs-password-v1 proof\0");
    context.update(binding);
    context.update(nonce);
    context.update(challenge);
    context.update(&(user.len() as u32).to_be_bytes());
    context.update(user.as_bytes());
    let signature = context.sign();
    let bytes = signature.as_ref().iter().zip(CLIENT_KEY);
    bytes.map(|(a, b)| a ^ b).collect()
}

fn password(data: &[u8]) {
    let Some((&[how, at, value], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let name = String::from_utf8_lossy(rest);
    let user: &str = if how & 1 == 0 { USER } else { &name };
    let mut nonce = vec![at; 32];
    if how & 2 != 0 {
        nonce.resize(usize::from(value), 0);
    }
    let begun = PasswordServer::begin(&USERS, user, &nonce);
    assert_eq!(begun.is_ok(), nonce.len() == 32);
    let Ok((server, challenge)) = begun else {
        return;
    };
    // Nothing but the last field differs from one exchange to the next.
    let (other_server, other) = PasswordServer::begin(&USERS, user, &nonce).expect("once more");
    assert_eq!(challenge.len(), CHALLENGE_BYTES);
    assert_eq!(challenge[..28], other[..28]);
    assert_ne!(challenge[28..], other[28..]);
    // The costs are the same for users who don't exist.
    assert_eq!(challenge[16..28], *b"\0\x01\0\0\0\0\0\x03\0\0\0\x04");
    let right = proof_of(user, &BINDING, &nonce, &challenge);
    // That of one exchange is nothing in another.
    let fault = other_server.finish(&right, &BINDING).expect_err("replayed");
    assert_eq!(fault.code, Code::AuthenticationFailed);
    let (mut proof, mut binding) = (right.clone(), BINDING);
    match how >> 2 & 7 {
        0 | 1 => {}
        2 => proof[usize::from(at % 32)] ^= value,
        3 => binding[usize::from(at % 32)] ^= value,
        4 => proof = rest.to_vec(),
        5 => proof.truncate(usize::from(at)),
        6 => proof.push(value),
        _ => proof = proof_of("joe", &BINDING, &nonce, &challenge),
    }
    let is_right = user == USER && proof == right && binding == BINDING;
    match server.finish(&proof, &binding) {
        Ok(()) => assert!(is_right, "a proof that nobody made"),
        Err(fault) => {
            assert!(!is_right);
            // Nothing else tells a user who doesn't exist from a proof that is wrong.
            assert_eq!(fault.to_string(), refusal());
        }
    }
}

fn refusal() -> String {
    let (server, _) = PasswordServer::begin(&USERS, "nobody", &[0; 32]).expect("32 bytes");
    let fault = server.finish(&[0; 32], &BINDING).expect_err("nobody");
    fault.to_string()
}

/// The client's end refuses what isn't a challenge before it does any work. Those that it takes
/// cost too much here.
fn challenge(data: &[u8]) {
    let number =
        |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    if data.len() == CHALLENGE_BYTES
        && (7168..=262_144).contains(&number(16))
        && (1..=16).contains(&number(20))
        && (1..=8).contains(&number(24))
    {
        return;
    }
    let (client, body) = PasswordClient::begin().expect("randomness");
    assert_eq!(body.len(), 32);
    let answer = client.answer(USER, "secret", &BINDING, data);
    assert_eq!(
        answer.expect_err("no challenge").code,
        Code::AuthenticationFailed
    );
}

/// What is known of a ticket that was issued.
struct Ticket {
    body: Vec<u8>,
    user: String,
    scopes: Vec<Scope>,
    expires: u64,
    uses: u32,
    wrong: u32,
}

fn tickets(data: &[u8]) {
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut real = TicketBox::new();
    for call in data.chunks_exact(5).take(64) {
        let (what, which) = (call[0], usize::from(call[1]));
        // Clocks are set back, too.
        let now = 1_000_000 + u64::from(call[2]) * 60;
        if what % 4 == 0 {
            let uses = u32::from(call[3] % 4);
            let life = match call[4] {
                0 => 0,
                255 => LIFE_S_MAX + 1,
                254 => LIFE_S_MAX,
                minutes => u64::from(minutes) * 60,
            };
            let user = "u".repeat(which * 2);
            let rights = Rights::from_bits(call[3] & 31).expect("five bits");
            let path = vec![b'p'; which * 32];
            let scopes = vec![Scope::new(path, rights); usize::from(call[3] / 3)];
            let is_good = uses > 0
                && (1..=LIFE_S_MAX).contains(&life)
                && user.len() <= 256
                && scopes.len() <= 64
                && scopes.iter().all(|s| s.path.len() <= 4096);
            let issued = real.issue_for_uses(&user, scopes.clone(), now, life, uses);
            assert_eq!(issued.is_ok(), is_good);
            let Ok(text) = issued else { continue };
            tickets.retain(|t| now < t.expires);
            let body = prove(&text, &BINDING).expect("a ticket");
            tickets.push(Ticket {
                body,
                user,
                scopes,
                expires: now + life,
                uses,
                wrong: 0,
            });
        } else if !tickets.is_empty() {
            redeem(
                &mut real,
                &mut tickets,
                which,
                now,
                [what, call[3], call[4]],
            );
        }
        assert_eq!(real.len(), tickets.len());
        assert_eq!(real.is_empty(), tickets.is_empty());
    }
}

fn redeem(
    real: &mut TicketBox,
    tickets: &mut Vec<Ticket>,
    which: usize,
    now: u64,
    [what, at, value]: [u8; 3],
) {
    let which = which % tickets.len();
    let ticket = &mut tickets[which];
    let (mut body, mut binding) = (ticket.body.clone(), BINDING);
    match what / 4 % 5 {
        0 | 1 => {}
        2 => {
            let at = usize::from(at) % body.len();
            body[at] ^= value;
        }
        3 => binding[usize::from(at % 32)] ^= value,
        _ if value & 1 == 0 => body.truncate(usize::from(at)),
        _ => body.push(value),
    }
    let redeemed = real.redeem(&body, &binding, now);
    let is_named = body.get(..8) == ticket.body.get(..8);
    let is_right = body == ticket.body && binding == BINDING;
    let is_good = is_right && now < ticket.expires;
    match redeemed {
        Ok(granted) => {
            assert!(is_good, "a ticket that isn't good");
            assert_eq!(
                (granted.user, granted.scopes),
                (ticket.user.clone(), ticket.scopes.clone())
            );
            assert_eq!(granted.capability, None);
            ticket.uses -= 1;
        }
        Err(fault) => {
            assert!(!is_good);
            assert_eq!(fault.code, Code::AuthenticationFailed);
            if is_named {
                ticket.wrong += 1;
            }
        }
    }
    let is_over = is_named && (now >= ticket.expires || ticket.wrong > WRONG_MAX);
    if is_over || ticket.uses == 0 {
        tickets.remove(which);
    }
}

/// Whatever follows the proof of a ticket is no signature by a key that nothing has.
fn capability(signed: &[u8]) {
    let mut tickets = TicketBox::new();
    let limits = Capability {
        holder: Fingerprint([0; 32]),
        copy: CopyId([0; 16]),
        path: Vec::new(),
        writes: true,
        opens: Opens::File { bytes_max: 0 },
    };
    let text = tickets
        .issue_capability("u", limits, 0, 60)
        .expect("a capability");
    let mut body = prove(&text, &BINDING).expect("a ticket");
    body.extend(signed);
    assert!(tickets.redeem(&body, &BINDING, 0).is_err());
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    match which % 4 {
        0 => tickets(rest),
        1 | 2 => password(rest),
        _ => {
            challenge(rest);
            capability(rest);
            if let Ok(text) = std::str::from_utf8(rest) {
                // What isn't a ticket is told from one, and never shown.
                let body = prove(text, &BINDING);
                assert_eq!(body.as_ref().map_or(40, Vec::len), 40);
                let mut none = TicketBox::new();
                assert!(none.redeem(rest, &BINDING, 0).is_err());
                assert!(
                    body.is_err() || none.redeem(&body.unwrap_or_default(), &BINDING, 0).is_err()
                );
            }
        }
    }
});
