//! Signatures of messages.

use std::process::Command;

use super::*;
use crate::key::{Signer, sign_message, signer_of_message};

const HASH: [u8; 64] = [7; 64];

#[test]
fn a_signature_is_for_one_message_and_one_purpose() {
    for mut key in [new_key(), key_of(P256), key_of(P384)] {
        let signature = sign_message(&mut key, "one", &HASH).unwrap();
        let signer = signer_of_message(&signature, "one", &HASH);
        assert_eq!(signer.as_ref(), Some(key.public_key()));
        assert_eq!(signer_of_message(&signature, "two", &HASH), None);
        assert_eq!(signer_of_message(&signature, "one", &[8; 64]), None);
        for length in 0..signature.len() {
            assert_eq!(signer_of_message(&signature[..length], "one", &HASH), None);
            let mut changed = signature.clone();
            changed[length] ^= 1;
            let signer = signer_of_message(&changed, "one", &HASH);
            assert_ne!(signer.as_ref(), Some(key.public_key()), "byte {length}");
        }
        let longer = [&signature[..], b"\0"].concat();
        assert_eq!(signer_of_message(&longer, "one", &HASH), None);
    }
}

#[test]
fn openssh_verifies_a_signature() {
    use aws_lc_rs::digest::{SHA512, digest};
    use base64ct::{Base64, Encoding as _};

    if Command::new("ssh-keygen").arg("-?").output().is_err() {
        return xdfs_testkit::skip::test("there is no ssh-keygen");
    }
    let folder = tempfile::tempdir().unwrap();
    let message = b"a message\n";
    let hash = digest(&SHA512, message).as_ref().try_into().unwrap();
    let mut key = new_key();
    let signature = sign_message(&mut key, "purpose", &hash).unwrap();
    let text = format!(
        "-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n",
        Base64::encode_string(&signature)
    );
    let path = folder.path().join("signature");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("message"), message).unwrap();
    for (namespace, is_right) in [("purpose", true), ("another", false)] {
        let run = Command::new("ssh-keygen")
            .args(["-Y", "check-novalidate", "-n", namespace, "-s"])
            .arg(&path)
            .stdin(std::fs::File::open(folder.path().join("message")).unwrap())
            .output()
            .unwrap();
        assert_eq!(run.status.success(), is_right, "{run:?}");
    }
}
