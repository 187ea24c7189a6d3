//! The proofs of this crate, the formulas of docs/protocol/security.md and the values of
//! `vectors/proofs.json` agree.
//!
//! The formulas stand here once more, written from the specification: what has a fixed result is
//! compared with it byte by byte, and where the crate draws a nonce, each end of it has to agree
//! with the formula as the other end. After a deliberate change run the test with
//! `XDFS_VECTORS=write` and review the difference as a change of the protocol.

use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use xdfs_proto::fault::{Code, Fault};
use xdfs_security::identity::Fingerprint;
use xdfs_security::key::{self, AuthorizedKeys, PublicKey, Signer};
use xdfs_security::password::{PasswordClient, PasswordServer, UsersFile};
use xdfs_security::ticket::{self, TicketBox};
use xdfs_security::{Binding, Method};

const ABOUT: &str = "Known answers of the proofs and of fingerprints; see \
                     docs/protocol/security.md. Byte strings are hex.";

/// A certificate that signs itself, with an Ed25519 key.
const CERTIFICATE: &str = "\
308201593082010ba003020102021420123b09c536d605dfe151d0e2ee106ba70d7fe2300506032b6570301631143012\
06035504030c0b78646673207365727665723020170d3236313132323032323030335a180f3231323631303239323032\
3230335a30163114301206035504030c0b7864667320736572766572302a300506032b657003210022a6c6b0b1043969\
83e286b01e4f5d2d77697acd56090902c3f00bfa96486281a3693067301d0603551d0e0416041425d13be8610e444ef0\
b0edc6865f3ec5cedfd92b301f0603551d2304183016801425d13be8610e444ef0b0edc6865f3ec5cedfd92b300f0603\
551d130101ff040530030101ff30140603551d11040d300b82096c6f63616c686f7374300506032b6570034100e2504b\
64d6315e12307d6d4ac8ba2f3dc39798ed4939e6826b5284fd86faf94c9b5d6fbed89e414517db6c9d0920fb5233763c\
456ffa3aade57d0cea9ff8860f";
/// The key in it, as a SubjectPublicKeyInfo.
const KEY_INFO: &str = "\
302a300506032b657003210022a6c6b0b104396983e286b01e4f5d2d77697acd56090902c3f00bfa96486281";

fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|i| first.wrapping_add(i as u8))
}

fn binding() -> Binding {
    counting(0x80)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn file() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("..")
        .join("..")
        .join("vectors")
        .join("proofs.json")
}

/// HMAC-SHA256 over the parts in a row.
fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, &parts.concat()).as_ref().to_vec()
}

/// A string as SSH writes it.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes()[..], bytes].concat()
}

// Method 2.

/// An Ed25519 key from its seed.
struct SeedSigner {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SeedSigner {
    fn new(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed");
        let blob = [string(b"ssh-ed25519"), string(pair.public_key().as_ref())].concat();
        let public = PublicKey::from_bytes(&blob).expect("a key");
        Self { pair, public }
    }
}

impl Signer for SeedSigner {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&mut self, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let raw = self.pair.sign(data);
        Ok([string(b"ssh-ed25519"), string(raw.as_ref())].concat())
    }
}

fn key_vector(name: &str, user: &str) -> Value {
    let seed = counting(0x01);
    let mut signer = SeedSigner::new(&seed);
    let public = signer.public.as_bytes().to_vec();
    let message = [string(&binding()), string(user.as_bytes()), string(&public)].concat();
    let signed = [
        b"SSHSIG".to_vec(),
        string(b"xdfs-key-v1"),
        string(b""),
        string(b"sha512"),
        string(digest(&SHA512, &message).as_ref()),
    ]
    .concat();
    let signature = signer.sign(&signed).expect("a signature");
    let body = [string(&public), string(&signature)].concat();

    assert_eq!(
        key::prove(&mut signer, user, &binding()).expect("a proof"),
        body,
        "{name}"
    );
    let list = AuthorizedKeys::parse(&signer.public.to_line(""));
    let admitted = key::admit(&body, user, &binding(), Some(&list), 0).expect("admitted");
    assert_eq!(admitted, signer.public);
    json!({
        "name": name,
        "method": Method::Key.number(),
        "seed": hex(&seed),
        "user": user,
        "binding": hex(&binding()),
        "public_key": hex(&public),
        "key_fingerprint": signer.public.fingerprint(),
        "message": hex(&message),
        "signed": hex(&signed),
        "auth": hex(&body),
    })
}

// Method 3.

/// What one exchange has in it.
struct Exchange<'a> {
    password: &'a str,
    user: &'a str,
    client_nonce: [u8; 32],
    challenge: [u8; 60],
}

/// What comes of it by the formula.
struct Derived {
    salted: [u8; 32],
    client_key: Vec<u8>,
    stored_key: Vec<u8>,
    client_signature: Vec<u8>,
    proof: Vec<u8>,
}

fn challenge(salt: [u8; 16], costs: [u32; 3], nonce: [u8; 32]) -> [u8; 60] {
    let costs = costs.map(u32::to_be_bytes).concat();
    let whole = [&salt[..], &costs, &nonce].concat();
    whole.try_into().expect("60 bytes")
}

fn derive(exchange: &Exchange<'_>) -> Derived {
    let number = |at: usize| {
        let field = exchange.challenge[at..at + 4].try_into().expect("4 bytes");
        u32::from_be_bytes(field)
    };
    let costs = Params::new(number(16), number(20), number(24), Some(32)).expect("costs");
    let mut salted = [0; 32];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, costs)
        .hash_password_into(
            exchange.password.as_bytes(),
            &exchange.challenge[..16],
            &mut salted,
        )
        .expect("argon2id");
    let client_key = mac(&salted, &[b"xdfs-password-v1 client key"]);
    let stored_key = digest(&SHA256, &client_key).as_ref().to_vec();
    let length = u32::try_from(exchange.user.len()).expect("short");
    let client_signature = mac(
        &stored_key,
        &[
            b"xdfs-password-v1 proof\0",
            &binding(),
            &exchange.client_nonce,
            &exchange.challenge,
            &length.to_be_bytes(),
            exchange.user.as_bytes(),
        ],
    );
    let mixed = client_key.iter().zip(&client_signature).map(|(a, b)| a ^ b);
    Derived {
        salted,
        proof: mixed.collect(),
        client_key,
        stored_key,
        client_signature,
    }
}

/// A file of users in which `name` has the password of `stored_key`.
fn users_file(
    folder: &Path,
    name: &str,
    salt: &[u8],
    costs: [u32; 3],
    stored_key: &[u8],
) -> UsersFile {
    let text = format!(
        "!secret:{}\n{name}:argon2id$m={},t={},p={}${}${}\n",
        Base64Unpadded::encode_string(&[5; 32]),
        costs[0],
        costs[1],
        costs[2],
        Base64Unpadded::encode_string(salt),
        Base64Unpadded::encode_string(stored_key),
    );
    let path = folder.join("users");
    std::fs::write(&path, text).expect("a file of users");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let only_me = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, only_me).expect("its mode");
    }
    UsersFile::new(path)
}

fn password_vector(name: &str, user: &str, password: &str, costs: [u32; 3]) -> Value {
    let salt = counting(0x40);
    let fixed = Exchange {
        password,
        user,
        client_nonce: counting(0x50),
        challenge: challenge(salt, costs, counting(0x70)),
    };
    let derived = derive(&fixed);

    // The crate's server against the formula as the client: only the server's nonce is new.
    let folder = tempfile::tempdir().expect("a folder");
    let users = users_file(folder.path(), user, &salt, costs, &derived.stored_key);
    let users = users.load().expect("users");
    let begin = || PasswordServer::begin(&users, user, &fixed.client_nonce).expect("a challenge");
    let (server, asked) = begin();
    assert_eq!(asked[..28], fixed.challenge[..28], "{name}");
    let asked: [u8; 60] = asked.try_into().expect("60 bytes");
    let proof = derive(&Exchange {
        challenge: asked,
        ..fixed
    })
    .proof;
    server
        .finish(&proof, &binding())
        .expect("the proof is right");
    // The same proof in another exchange isn't.
    let (server, _) = begin();
    assert!(server.finish(&proof, &binding()).is_err(), "{name}");

    // The crate's client against the formula as the server: only the client's nonce is new.
    let (client, nonce) = PasswordClient::begin().expect("a nonce");
    let client_nonce = nonce.try_into().expect("32 bytes");
    let expected = derive(&Exchange {
        client_nonce,
        ..fixed
    })
    .proof;
    let proof = client.answer(user, password, &binding(), &fixed.challenge);
    assert_eq!(proof.expect("a proof"), expected, "{name}");

    json!({
        "name": name,
        "method": Method::Password.number(),
        "user": user,
        "password": password,
        "binding": hex(&binding()),
        "auth": hex(&fixed.client_nonce),
        "challenge": hex(&fixed.challenge),
        "salted": hex(&derived.salted),
        "client_key": hex(&derived.client_key),
        "stored_key": hex(&derived.stored_key),
        "client_signature": hex(&derived.client_signature),
        "proof": hex(&derived.proof),
    })
}

// Method 4.

fn ticket_vector() -> Value {
    let (id, secret): ([u8; 8], [u8; 32]) = (counting(0x10), counting(0x20));
    let text = Base64UrlUnpadded::encode_string(&[&id[..], &secret].concat());
    let tag = mac(&secret, &[b"xdfs-ticket-v1\0", &binding(), &id]);
    let body = [&id[..], &tag].concat();
    assert_eq!(ticket::prove(&text, &binding()).expect("a proof"), body);
    json!({
        "name": "ticket",
        "method": Method::Ticket.number(),
        "ticket": text,
        "id": hex(&id),
        "secret": hex(&secret),
        "binding": hex(&binding()),
        "auth": hex(&body),
    })
}

/// Tickets are drawn by the server, so the formula stands for the client here.
#[test]
fn a_server_takes_the_formula_of_a_ticket() {
    let mut tickets = TicketBox::new();
    let text = tickets.issue("ada", Vec::new(), 1000, 60).unwrap();
    let bytes = Base64UrlUnpadded::decode_vec(&text).unwrap();
    let (id, secret) = bytes.split_at(8);
    let tag = mac(secret, &[b"xdfs-ticket-v1\0", &binding(), id]);
    let redeemed = tickets.redeem(&[id, &tag].concat(), &binding(), 1000);
    assert_eq!(redeemed.unwrap().user, "ada");
}

/// An empty user and a name outside of ASCII are what implementations get wrong.
fn made() -> Vec<Value> {
    vec![
        key_vector("key-ed25519", "ada"),
        key_vector("key-ed25519-without-a-name", ""),
        key_vector("key-ed25519-name-in-utf8", "zoë"),
        password_vector("password-cheapest", "ada", "correct horse", [7168, 1, 1]),
        password_vector("password-lanes", "zo.e@example.org", "Käse", [16_384, 2, 4]),
        ticket_vector(),
        fingerprint_vector(),
    ]
}

// Fingerprints.

fn fingerprint_vector() -> Value {
    let (certificate, info) = (unhex(CERTIFICATE), unhex(KEY_INFO));
    let hash = digest(&SHA256, &info);
    let text = format!("SHA256:{}", Base64Unpadded::encode_string(hash.as_ref()));
    let shown = Fingerprint::of_certificate(&CertificateDer::from(certificate)).expect("a key");
    assert_eq!(shown.to_string(), text);
    assert_eq!(text.parse(), Ok(shown));
    assert!(CERTIFICATE.contains(KEY_INFO));
    json!({
        "name": "fingerprint",
        "certificate": CERTIFICATE,
        "subject_public_key_info": KEY_INFO,
        "fingerprint": text,
    })
}

#[test]
fn proofs() {
    let document = json!({ "group": "proofs", "about": ABOUT, "vectors": made() });
    if std::env::var("XDFS_VECTORS").is_ok_and(|v| v == "write") {
        let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
        std::fs::write(file(), text).unwrap();
    }
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    let items = |d: &Value| d["vectors"].as_array().unwrap().clone();
    let (made, stored) = (items(&document), items(&stored));
    assert_eq!(made.len(), stored.len());
    for (made, stored) in made.iter().zip(&stored) {
        assert_eq!(made, stored, "{}", stored["name"]);
    }
}

/// What stands in the file is refused when a bit of it, of the channel or of the name differs.
#[test]
fn stored_proofs_are_good_for_nothing_else() {
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    let keys = stored["vectors"].as_array().unwrap().iter();
    for vector in keys.filter(|v| v["method"] == Method::Key.number()) {
        let body = unhex(vector["auth"].as_str().unwrap());
        let user = vector["user"].as_str().unwrap();
        key::verify(&body, user, &binding()).unwrap();
        let refused = |body: &[u8], user: &str, binding: &Binding| {
            let fault = key::verify(body, user, binding).unwrap_err();
            assert_eq!(fault.code, Code::AuthenticationFailed);
        };
        refused(&body, user, &counting(0x81));
        refused(&body, &format!("{user}x"), &binding());
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 1;
            refused(&damaged, user, &binding());
        }
    }
}
