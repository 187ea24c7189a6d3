//! What JOIN carries on a protected channel in place of the secret, computed twice: by the crate
//! and by the formula of docs/protocol/security.md.

use serde_json::{Value, json};
use xdfs_proto::{ChannelIndex, SessionSecret};

use crate::hex;

pub(crate) const ABOUT: &str = "The value in the field `secret` of JOIN on a protected channel; \
                                see docs/protocol/security.md. Byte strings are hex.";

const CONTEXT: &str = "xdfs 1 proof that a channel belongs to a session";

/// The formula as the specification has it.
fn by_the_formula(secret: &[u8; 16], binding: &[u8; 32], channel: u32) -> Vec<u8> {
    let key = blake3::derive_key(CONTEXT, secret);
    let covered = [&binding[..], &channel.to_be_bytes()].concat();
    blake3::keyed_hash(&key, &covered).as_bytes()[..16].to_vec()
}

pub(crate) fn vectors() -> Vec<Value> {
    let counting = |first: u8| std::array::from_fn(|i| first + i as u8);
    let other = |first: u8| std::array::from_fn(|i| first + i as u8);
    let zeros = ([0; 16], [0; 32]);
    let cases = [
        ("first-join", counting(0x30), other(0x80), 1),
        ("other-channel", counting(0x30), other(0x80), 2),
        ("other-binding", counting(0x30), other(0x81), 1),
        ("other-secret", counting(0x31), other(0x80), 1),
        (
            "bytes-of-the-index",
            counting(0x30),
            other(0x80),
            0x0102_0304,
        ),
        ("last-index", counting(0x30), other(0x80), u32::MAX),
        ("zeros", zeros.0, zeros.1, 0),
    ];
    let one = |(name, secret, binding, channel): (&str, [u8; 16], [u8; 32], u32)| {
        let bound = SessionSecret(secret).bound_to(&binding, ChannelIndex(channel));
        assert_eq!(
            bound.0[..],
            by_the_formula(&secret, &binding, channel),
            "{name}"
        );
        json!({
            "name": name,
            "secret": hex(&secret),
            "binding": hex(&binding),
            "channel": channel,
            "bound": hex(&bound.0),
        })
    };
    let made: Vec<Value> = cases.into_iter().map(one).collect();
    for (i, vector) in made.iter().enumerate() {
        assert!(made[..i].iter().all(|v| v["bound"] != vector["bound"]));
    }
    made
}
