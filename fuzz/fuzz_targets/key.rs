//! Keys of OpenSSH from any bytes: the lists of the server, public keys, and proofs. What is read
//! is written the same, a list is the sum of its lines, and the one proof that is accepted for a
//! key is the one that its holder made, for its user and its channel.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use xdfs_security::Binding;
use xdfs_security::key::{AuthorizedKeys, PublicKey, SigningKey, admit, make_key, prove, verify};

const USER: &str = "jane";
const BINDING: Binding = [7; 32];

/// A key, the list that has it alone, and the proof that its holder made.
struct Honest {
    key: PublicKey,
    list: AuthorizedKeys,
    body: Vec<u8>,
}

static HONEST: LazyLock<Honest> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("key");
    let key = make_key(&path, "").expect("a new key");
    let mut signer = SigningKey::load(&path, || None).expect("the key of a moment ago");
    let list = AuthorizedKeys::parse(&key.to_line("jane@host"));
    let body = prove(&mut signer, USER, &BINDING).expect("a proof");
    let proved = admit(&body, USER, &BINDING, Some(&list), 0).expect("a proof that is right");
    assert_eq!(proved, key);
    Honest { key, list, body }
});

/// The lines of other types of keys; their points need not lie on a curve to be read.
static LINES: LazyLock<[String; 2]> = LazyLock::new(|| {
    let line = |name: &[u8], curve: &[u8], bytes: usize| {
        let mut point = vec![9; bytes];
        point[0] = 4;
        let blob = [string(name), string(curve), string(&point)].concat();
        PublicKey::from_bytes(&blob).expect("a key").to_line("")
    };
    [
        line(b"ecdsa-sha2-nistp256", b"nistp256", 65),
        line(b"ecdsa-sha2-nistp384", b"nistp384", 97),
    ]
});

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn list(text: &str) {
    // Mutations don't make base64 of a key.
    let text = text
        .replace('@', &HONEST.key.to_line(""))
        .replace('%', &LINES[0])
        .replace('^', &LINES[1]);
    let mut sum = 0;
    for line in text.lines() {
        let alone = AuthorizedKeys::parse(line);
        assert!(alone.len() <= 1);
        assert_eq!(alone.is_empty(), alone.len() == 0);
        sum += alone.len();
        let trimmed = line.trim_matches([' ', '\t', '\r']);
        let bare = PublicKey::from_line(trimmed);
        // A plain line has no end.
        let is_plain = !trimmed.contains(['\r', '\x0c']);
        if let Ok(key) = bare.as_ref()
            && is_plain
        {
            assert!(alone.contains(key, u64::MAX));
        }
        let cuts = trimmed.match_indices([' ', '\t']).take(8);
        for key in cuts.filter_map(|(at, _)| PublicKey::from_line(&trimmed[at + 1..]).ok()) {
            let times = [
                0,
                1,
                951_782_400,
                253_402_300_799,
                253_402_300_800,
                u64::MAX,
            ];
            let good = times.map(|t| alone.contains(&key, t));
            assert!(good.is_sorted_by(|a, b| a >= b), "a key came to life");
            // A time has four digits of a year.
            assert!(!good[4] || good[5]);
            // Only a line that begins with the key has no limit.
            assert!(!good[5] || !is_plain || bare == Ok(key));
        }
    }
    assert_eq!(AuthorizedKeys::parse(&text).len(), sum);
}

fn public(blob: &[u8]) {
    let Ok(key) = PublicKey::from_bytes(blob) else {
        return;
    };
    assert_eq!(key.as_bytes(), blob);
    assert_eq!(key.fingerprint().len(), 50);
    let line = key.to_line("a comment");
    assert!(line.starts_with(key.algorithm().as_str()));
    assert_eq!(PublicKey::from_line(&line), Ok(key.clone()));
    let list = AuthorizedKeys::parse(&line);
    assert!(list.contains(&key, 0) && list.len() == 1);
    assert!(PublicKey::from_bytes(&[blob, b"\0"].concat()).is_err());
    assert!(PublicKey::from_bytes(&blob[..blob.len() - 1]).is_err());
    // Whatever the key is, this isn't its signature.
    let body = [string(blob), string(&[0; 83])].concat();
    assert!(verify(&body, USER, &BINDING).is_err());
}

/// A key of fields: the length of each before it, in a byte or two.
fn fields(mut data: &[u8]) -> Vec<u8> {
    let mut blob = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let name: Option<&[u8]> = match length {
            250 => Some(b"ssh-ed25519"),
            251 => Some(b"ssh-rsa"),
            252 => Some(b"ecdsa-sha2-nistp256"),
            253 => Some(b"nistp256"),
            254 => Some(b"ecdsa-sha2-nistp384"),
            255 => Some(b"nistp384"),
            _ => None,
        };
        data = rest;
        if let Some(name) = name {
            blob.extend(string(name));
            continue;
        }
        // Long fields from 200 on: those of RSA.
        let length = match usize::from(length) {
            short @ ..200 => short,
            long => 249 + (long - 200) * 16,
        };
        let field = &data[..length.min(data.len())];
        let mut field = field.to_vec();
        data = &data[field.len()..];
        field.resize(length, 0x11);
        blob.extend(string(&field));
    }
    blob
}

fn proof(body: &[u8], user: &str, binding: &Binding) {
    let honest = &*HONEST;
    let is_honest = body == honest.body && user == USER && *binding == BINDING;
    match verify(body, user, binding) {
        Ok(key) => {
            assert!(is_honest || key != honest.key, "a proof that nobody made");
            assert!(body.starts_with(&string(key.as_bytes())));
        }
        Err(fault) => assert_eq!(fault.code, xdfs_proto::Code::AuthenticationFailed),
    }
    let admitted = admit(body, user, binding, Some(&honest.list), 0);
    assert_eq!(admitted.is_ok(), is_honest);
    assert!(admit(body, user, binding, None, 0).is_err());
}

/// Changes of single bytes of the proof that is right, of the user and of the binding.
fn changed(data: &[u8]) {
    let (mut body, mut user) = (HONEST.body.clone(), USER.as_bytes().to_vec());
    let mut binding = BINDING;
    for change in data.chunks_exact(3) {
        let (what, at, value) = (change[0], usize::from(change[1]), change[2]);
        match what % 8 {
            0 => body.truncate(at),
            1 => body.push(value),
            2 => user = change[1..].to_vec(),
            3 => binding[at % 32] ^= value,
            _ if body.is_empty() => {}
            _ => {
                let at = at % body.len();
                body[at] ^= value;
            }
        }
    }
    if let Ok(user) = std::str::from_utf8(&user) {
        proof(&body, user, &binding);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    match which % 8 {
        0 | 1 => list(&String::from_utf8_lossy(rest)),
        2 => public(rest),
        3 => public(&fields(rest)),
        4 => {
            let _ = PublicKey::from_line(&String::from_utf8_lossy(rest));
            proof(rest, USER, &BINDING);
        }
        // A proof by any key of ours, with any signature.
        5 => {
            let cut = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
            let (key, signature) = rest.split_at(cut);
            let body = [string(&fields(key)), fields(signature)].concat();
            proof(&body, USER, &BINDING);
        }
        _ => changed(rest),
    }
});
