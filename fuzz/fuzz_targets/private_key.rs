//! Files with a private key of OpenSSH, from any bytes: what is read signs for the public key that
//! it names, and nothing asks for a passphrase that isn't encrypted.
#![no_main]

use std::cell::Cell;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_security::Binding;
use xdfs_security::key::{Signer, SigningKey, make_key, prove, verify};

const BINDING: Binding = [3; 32];
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
const CIPHERS: [&str; 8] = [
    "aes256-ctr",
    "aes128-ctr",
    "aes256-cbc",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "3des-cbc",
    "aes128-gcm@openssh.com",
    "none",
];

/// The bytes of a key of a moment ago.
static HONEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("key");
    make_key(&path, "jane@host").expect("a new key");
    let text = std::fs::read_to_string(&path).expect("the key of a moment ago");
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let bytes = STANDARD.decode(body).expect("base64");
    assert!(check(armored(&bytes).as_bytes(), None));
    bytes
});

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn armored(bytes: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(bytes))
}

/// Whether it is a key.
fn check(text: &[u8], passphrase: Option<&str>) -> bool {
    let asked = Cell::new(false);
    let read = SigningKey::from_openssh(text, || {
        asked.set(true);
        passphrase.map(|p| p.to_owned().into())
    });
    match read {
        Ok(mut key) => {
            assert!(!asked.get() || passphrase.is_some());
            let public = key.public_key().clone();
            let body = prove(&mut key, "jane", &BINDING).expect("a proof");
            assert_eq!(verify(&body, "jane", &BINDING), Ok(public));
            true
        }
        Err(fault) => {
            let is_known = matches!(
                fault.code,
                Code::InvalidArgument | Code::AuthenticationFailed | Code::Unsupported
            );
            assert!(is_known, "{fault}");
            assert!(asked.get() || fault.code != Code::AuthenticationFailed);
            false
        }
    }
}

/// The key that is right with single bytes changed.
fn changed(data: &[u8]) {
    let mut bytes = HONEST.clone();
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
        let length = bytes.len();
        if at & 0x8000 != 0 {
            bytes.insert(at % length, change[2]);
        } else {
            bytes[at % length] ^= change[2];
        }
    }
    check(armored(&bytes).as_bytes(), None);
}

/// An encrypted file. One round, since a fuzzer has no time to spend on them.
fn encrypted(data: &[u8]) {
    let Some((&[cipher, salt], secret)) = data.split_first_chunk::<2>() else {
        return;
    };
    let cipher = CIPHERS[usize::from(cipher) % CIPHERS.len()].as_bytes();
    let salt = vec![salt; usize::from(salt % 40)];
    let options = [string(&salt), 1_u32.to_be_bytes().to_vec()].concat();
    let public = [string(b"ssh-ed25519"), string(&[9; 32])].concat();
    let bytes = [
        MAGIC.to_vec(),
        string(cipher),
        string(b"bcrypt"),
        string(&options),
        1_u32.to_be_bytes().to_vec(),
        string(&public),
        string(secret),
    ];
    let bytes = bytes.concat();
    assert!(!check(armored(&bytes).as_bytes(), Some("a passphrase")));
    // With a tag behind it.
    let bytes = [&bytes[..], &[0; 16]].concat();
    assert!(!check(armored(&bytes).as_bytes(), Some("a passphrase")));
    assert!(!check(armored(&bytes).as_bytes(), None));
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    match which % 4 {
        0 => drop(check(rest, None)),
        1 => drop(check(armored(&[MAGIC, rest].concat()).as_bytes(), None)),
        2 => changed(rest),
        _ => encrypted(rest),
    }
});
