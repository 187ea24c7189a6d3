//! Files of keys.

use std::fs;

use base64ct::{Base64, Encoding};
use proptest::prelude::*;
use xdfs_proto::fault::Code;
use zeroize::Zeroizing;

use super::sample::{CHACHA, GCM, LOCKED, P521, RSA, RSA_FINGERPRINT, SHORT};
use super::*;
use crate::key::{Algorithm, Signer, prove, verify};

#[test]
fn a_made_key_can_be_loaded_and_is_the_one_beside_it() {
    let (_folder, path, public) = folder_with_key();
    let key = SigningKey::load(&path, || panic!("it isn't encrypted")).unwrap();
    assert_eq!(key.public_key(), &public);
    let line = fs::read_to_string(path.with_extension("pub")).unwrap();
    assert_eq!(PublicKey::from_line(&line).unwrap(), public);
    assert!(line.ends_with(" of a test\n"));
    assert_eq!(public.algorithm(), Algorithm::Ed25519);
}

#[test]
fn two_made_keys_differ() {
    assert_ne!(folder_with_key().2, folder_with_key().2);
}

#[test]
fn a_key_is_never_overwritten() {
    let (folder, path, _) = folder_with_key();
    let before = fs::read(&path).unwrap();
    assert_eq!(make_key(&path, "").unwrap_err().code, Code::AlreadyExists);
    fs::remove_file(path.with_extension("pub")).unwrap();
    assert_eq!(make_key(&path, "").unwrap_err().code, Code::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), before);

    let other = folder.path().join("other");
    fs::write(folder.path().join("other.pub"), "mine").unwrap();
    assert_eq!(make_key(&other, "").unwrap_err().code, Code::AlreadyExists);
    assert!(!other.exists());
    assert_eq!(fs::read(folder.path().join("other.pub")).unwrap(), b"mine");
}

#[test]
fn a_comment_is_one_short_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("key");
    for comment in ["a\nssh-ed25519 AAAA", "a\0", &"a".repeat(257)] {
        let fault = make_key(&path, comment).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn keys_of_openssh_can_be_loaded() {
    assert_eq!(key_of(P256).public_key().algorithm(), Algorithm::EcdsaP256);
    assert_eq!(key_of(P384).public_key().algorithm(), Algorithm::EcdsaP384);
}

#[test]
fn a_secret_number_may_begin_with_zeros() {
    let mut key = key_of(SHORT);
    let body = prove(&mut key, "ada", &HERE).unwrap();
    assert_eq!(&verify(&body, "ada", &HERE).unwrap(), key.public_key());
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    for text in [LOCKED, GCM, CHACHA] {
        let load = |p: Option<&str>| {
            let p = p.map(|p| Zeroizing::new(p.to_owned()));
            SigningKey::from_openssh(text.as_bytes(), || p)
        };
        let mut key = load(Some("open sesame")).unwrap();
        let body = prove(&mut key, "ada", &HERE).unwrap();
        verify(&body, "ada", &HERE).unwrap();
        for wrong in [Some("open barley"), Some(""), None] {
            assert_eq!(load(wrong).unwrap_err().code, Code::AuthenticationFailed);
        }
    }
    let p = || Some(Zeroizing::new("open sesame".to_owned()));
    let key = SigningKey::from_openssh(LOCKED.as_bytes(), p).unwrap();
    assert_eq!(key.public_key(), &PublicKey::from_line(LOCKED_PUB).unwrap());
}

#[test]
fn the_halves_of_a_key_belong_together() {
    // The public key occurs twice: whichever is altered, the file is refused.
    let text: String = P256.lines().filter(|l| !l.starts_with('-')).collect();
    let bytes = Base64::decode_vec(&text).unwrap();
    let point = key_of(P256).public_key().as_bytes()[40..].to_vec();
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(&point))
        .collect();
    assert_eq!(places.len(), 2);
    for altered in [&places[..1], &places[1..], &places[..]] {
        let mut bytes = bytes.clone();
        altered.iter().for_each(|at| bytes[at + 20] ^= 1);
        let text = Base64::encode_string(&bytes);
        let begin = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
        let end = "\n-----END OPENSSH PRIVATE KEY-----\n";
        let whole = format!("{begin}{text}{end}");
        let fault = SigningKey::from_openssh(whole.as_bytes(), || None).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }
}

#[test]
fn other_types_and_other_texts_are_refused() {
    let load = |t: &str| SigningKey::from_openssh(t.as_bytes(), || None).unwrap_err();
    for text in [P521, RSA] {
        assert_eq!(load(text).code, Code::Unsupported);
    }
    assert!(load(RSA).hint.contains("ssh-add"));
    for text in [
        "",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        &P256[..200],
    ] {
        let fault = load(text);
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(fault.hint.contains("ssh-keygen -p"));
    }
}

#[test]
fn a_file_that_is_too_long_is_refused() {
    let (_folder, path, _) = folder_with_key();
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(64 * 1024 + 1, b'\n');
    fs::write(&path, bytes).unwrap();
    let fault = SigningKey::load(&path, || None).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);
}

#[test]
fn a_folder_isnt_a_key() {
    let folder = TempDir::new().unwrap();
    let fault = SigningKey::load(folder.path(), || None).unwrap_err();
    assert_eq!(fault.code, Code::NotRegularFile);
    let fault = SigningKey::load(&folder.path().join("none"), || None).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
}

#[cfg(unix)]
#[test]
fn a_key_that_others_may_use_is_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let (_folder, path, _) = folder_with_key();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    for mode in [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let fault = SigningKey::load(&path, || None).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied, "{mode:o}");
        assert!(fault.hint.contains("chmod 600"), "{}", fault.hint);
    }
    for mode in [0o600, 0o400] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        SigningKey::load(&path, || None).unwrap();
    }
}

#[test]
fn a_fingerprint_is_that_of_openssh() {
    let key = PublicKey::from_line(RSA_PUB).unwrap();
    assert_eq!(key.algorithm(), Algorithm::Rsa);
    assert_eq!(key.fingerprint(), RSA_FINGERPRINT);
    assert_eq!(key.to_line("rsa of a test"), RSA_PUB);
}

#[test]
fn public_keys_of_other_types_and_sizes_are_refused() {
    let type_changed = RSA_PUB.replacen("ssh-rsa", "ssh-ed25519", 1);
    for line in ["", "ssh-rsa", "ssh-rsa !", P521_PUB, &type_changed] {
        let fault = PublicKey::from_line(line).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{line}");
    }
    let whole = PublicKey::from_line(RSA_PUB).unwrap();
    for cut in 0..whole.as_bytes().len() {
        PublicKey::from_bytes(&whole.as_bytes()[..cut]).unwrap_err();
    }
    let longer = [whole.as_bytes(), &[0]].concat();
    PublicKey::from_bytes(&longer).unwrap_err();
}

#[test]
fn debug_shows_no_secret() {
    let key = new_key();
    let shown = format!("{key:?}");
    assert!(shown.contains("SHA256:"));
    assert!(shown.len() < 200, "{shown}");
}

proptest! {
    #[test]
    fn damaged_files_are_no_reason_to_panic(
        at in 0..P256.len(),
        byte in 0..=255_u8,
        len in 0..600_usize,
    ) {
        for text in [P256, P384, LOCKED] {
            let mut bytes = text.as_bytes().to_vec();
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
            bytes.truncate(len);
            let passphrase = || Some(Zeroizing::new("open sesame".to_owned()));
            let _ = SigningKey::from_openssh(&bytes, passphrase);
        }
    }

    #[test]
    fn odd_public_keys_are_no_reason_to_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = PublicKey::from_bytes(&bytes);
        let _ = PublicKey::from_line(&String::from_utf8_lossy(&bytes));
    }
}
