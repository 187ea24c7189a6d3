//! The file of users with passwords, from any text: what is read is written the same, and every
//! name, of a user or not, gets a challenge of the one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_security::password::{Parameters, PasswordServer, Users};

/// Bytes of a challenge: salt, three costs, nonce.
const CHALLENGE_BYTES: usize = 60;

fn parse(text: &str) -> Option<Users> {
    match Users::parse(text, Parameters::default(), "read") {
        Ok(users) => Some(users),
        Err(fault) => {
            assert_eq!(fault.code, Code::InvalidArgument);
            None
        }
    }
}

fuzz_target!(|text: &str| {
    // Mutations don't make base64 of so many bytes.
    let text = text
        .replace('&', "AAAAAAAAAAAAAAAAAAAAAA")
        .replace('%', "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let Some(users) = parse(&text) else {
        return;
    };
    assert_eq!(text.matches("!secret:").count().min(1), 1);
    let written = users.to_text();
    let again = parse(&written).expect("what was written can be read");
    assert_eq!(*again.to_text(), *written);
    assert!(users.names().eq(again.names()));
    for name in users.names().chain(["nobody.here"]).take(8) {
        let begun = PasswordServer::begin(&users, name, &[7; 32]);
        let (server, challenge) = begun.expect("a challenge");
        assert_eq!(challenge.len(), CHALLENGE_BYTES);
        let number = |at: usize| {
            let bytes: [u8; 4] = challenge[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        assert!((7168..=262_144).contains(&number(16)));
        assert!((1..=16).contains(&number(20)) && (1..=8).contains(&number(24)));
        assert!(server.finish(&[0; 32], &[1; 32]).is_err());
    }
    // Nothing of the secret is shown.
    let shown = format!("{users:?}");
    let secret = written.split("!secret:").nth(1).unwrap_or_default();
    let secret = secret.lines().next().unwrap_or_default();
    assert!(secret.len() > 20 && !shown.contains(secret));
});
