//! Accepted and refused proofs.

use proptest::prelude::*;
use xdfs_proto::fault::{Code, Fault};

use super::*;
use crate::key::wire::{Reader, put_string};
use crate::key::{AuthorizedKeys, Signer, admit, prove, verify};

fn the_one_refusal(result: Result<PublicKey, Fault>) {
    let fault = result.unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    assert_eq!(fault.cause, "the proof isn't accepted");
    assert!(!fault.hint.is_empty());
    assert_eq!(fault, verify(b"", "", &HERE).unwrap_err());
}

#[test]
fn right_proofs_are_accepted() {
    for mut key in [new_key(), key_of(P256), key_of(P384)] {
        // ECDSA numbers occasionally have leading zeros.
        for _ in 0..50 {
            let body = prove(&mut key, "ada", &HERE).unwrap();
            assert_eq!(&verify(&body, "ada", &HERE).unwrap(), key.public_key());
        }
    }
}

#[test]
fn a_proof_is_worth_nothing_on_another_channel_or_for_another_user() {
    for mut key in [new_key(), key_of(P256), key_of(P384)] {
        let body = prove(&mut key, "ada", &HERE).unwrap();
        the_one_refusal(verify(&body, "ada", &ELSEWHERE));
        for user in ["", "ad", "adam", "Ada", "ada\0"] {
            the_one_refusal(verify(&body, user, &HERE));
        }
    }
}

#[test]
fn no_byte_of_a_proof_can_be_altered() {
    for mut key in [new_key(), key_of(P256), key_of(P384)] {
        let body = prove(&mut key, "ada", &HERE).unwrap();
        for at in 0..body.len() {
            let mut altered = body.clone();
            altered[at] ^= 1;
            the_one_refusal(verify(&altered, "ada", &HERE));
        }
        for cut in 0..body.len() {
            the_one_refusal(verify(&body[..cut], "ada", &HERE));
        }
        the_one_refusal(verify(&[&body[..], &[0]].concat(), "ada", &HERE));
    }
}

#[test]
fn another_key_cant_be_put_in() {
    let mut mine = new_key();
    let body = prove(&mut mine, "ada", &HERE).unwrap();
    let mut at = Reader(&body);
    at.string().unwrap();
    for other in [new_key(), key_of(P256)] {
        let mut forged = Vec::new();
        put_string(&mut forged, other.public_key().as_bytes());
        forged.extend(at.0);
        the_one_refusal(verify(&forged, "ada", &HERE));
    }
}

#[test]
fn a_signature_without_the_frame_of_this_proof_is_refused() {
    let mut key = new_key();
    for data in [&HERE[..], b"", b"xdfs-key-v1"] {
        let signature = key.sign(data).unwrap();
        let mut body = Vec::new();
        put_string(&mut body, key.public_key().as_bytes());
        put_string(&mut body, &signature);
        the_one_refusal(verify(&body, "ada", &HERE));
    }
}

#[test]
fn only_a_listed_key_is_admitted_and_only_while_it_is_good() {
    let mut key = new_key();
    let line = key.public_key().to_line("");
    let body = prove(&mut key, "ada", &HERE).unwrap();
    let admit = |keys: Option<&AuthorizedKeys>| admit(&body, "ada", &HERE, keys, NOW);

    let list = AuthorizedKeys::parse(&line);
    assert_eq!(&admit(Some(&list)).unwrap(), key.public_key());
    let list = AuthorizedKeys::parse(&format!("expiry-time=\"20990101\" {line}"));
    admit(Some(&list)).unwrap();

    the_one_refusal(admit(None));
    the_one_refusal(admit(Some(&AuthorizedKeys::parse(LOCKED_PUB))));
    let expired = format!("expiry-time=\"20200101\" {line}");
    the_one_refusal(admit(Some(&AuthorizedKeys::parse(&expired))));
    the_one_refusal(admit(Some(&AuthorizedKeys::parse(&format!(
        "restrict {line}"
    )))));
}

#[test]
fn a_listed_key_without_its_signature_isnt_admitted() {
    let key = new_key();
    let list = AuthorizedKeys::parse(&key.public_key().to_line(""));
    let mut body = prove(&mut new_key(), "ada", &HERE).unwrap();
    the_one_refusal(admit(&body, "ada", &HERE, Some(&list), NOW));
    // Keys of one type have one length.
    let length = key.public_key().as_bytes().len();
    body[4..4 + length].copy_from_slice(key.public_key().as_bytes());
    the_one_refusal(admit(&body, "ada", &HERE, Some(&list), NOW));
}

proptest! {
    #[test]
    fn random_bodies_are_refused(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(verify(&body, "ada", &HERE).is_err());
    }

    #[test]
    fn random_signatures_are_refused(
        name in "(ssh-ed25519|ecdsa-sha2-nistp256|ecdsa-sha2-nistp384|rsa-sha2-512|ssh-rsa)",
        raw in proptest::collection::vec(any::<u8>(), 0..300),
        with_strings in any::<bool>(),
    ) {
        for line in [LOCKED_PUB, RSA_PUB, &key_of(P256).public_key().to_line("")] {
            let key = PublicKey::from_line(line).unwrap();
            let mut inner = Vec::new();
            if with_strings {
                // Two numbers, as in ECDSA.
                put_string(&mut inner, &raw[..raw.len() / 2]);
                put_string(&mut inner, &raw[raw.len() / 2..]);
            } else {
                inner.clone_from(&raw);
            }
            let mut signature = Vec::new();
            put_string(&mut signature, name.as_bytes());
            put_string(&mut signature, &inner);
            let mut body = Vec::new();
            put_string(&mut body, key.as_bytes());
            put_string(&mut body, &signature);
            prop_assert!(verify(&body, "ada", &HERE).is_err());
        }
    }
}
