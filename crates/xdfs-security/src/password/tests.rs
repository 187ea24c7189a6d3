//! Tests of `password`.

use std::fs;
use std::path::PathBuf;
use std::thread;

use proptest::prelude::*;
use tempfile::TempDir;
use xdfs_proto::fault::{Code, Fault};

use super::derive::CHALLENGE_BYTES;
use super::*;
use crate::Binding;

const HERE: Binding = [7; 32];
const ELSEWHERE: Binding = [8; 32];

/// The cheapest allowed, to save time.
fn cheap() -> Parameters {
    Parameters::new(7 * 1024, 1, 1).unwrap()
}

/// A folder with a file in which `ada` has the password `right`.
fn with_ada() -> (TempDir, PathBuf, UsersFile) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("users");
    let file = UsersFile::new(&path).with_parameters(cheap());
    file.add("ada", "right").unwrap();
    (folder, path, file)
}

/// A whole exchange, in which the client may use another name.
fn exchange(
    users: &Users,
    named: &str,
    user: &str,
    password: &str,
    client_end: &Binding,
    server_end: &Binding,
) -> Result<(), Fault> {
    let (client, body) = PasswordClient::begin().unwrap();
    let (server, challenge) = PasswordServer::begin(users, named, &body).unwrap();
    let proof = client
        .answer(user, password, client_end, &challenge)
        .unwrap();
    server.finish(&proof, server_end)
}

fn log_in(users: &Users, user: &str, password: &str) -> Result<(), Fault> {
    exchange(users, user, user, password, &HERE, &HERE)
}

fn challenge_for(users: &Users, user: &str) -> Vec<u8> {
    PasswordServer::begin(users, user, &[1; 32]).unwrap().1
}

fn the_one_refusal<T>(result: Result<T, Fault>) {
    let Err(fault) = result else {
        panic!("it was accepted");
    };
    assert_eq!(fault.code, Code::AuthenticationFailed);
    assert_eq!(fault.cause, "the proof isn't accepted");
    assert!(fault.hint.contains("password"));
}

#[test]
fn the_right_password_is_accepted_and_no_other() {
    let (_folder, _, file) = with_ada();
    file.add("bob@example.org", "other").unwrap();
    let users = file.load().unwrap();
    log_in(&users, "ada", "right").unwrap();
    log_in(&users, "bob@example.org", "other").unwrap();
    for wrong in ["Right", "righ", "right ", "other", "x"] {
        the_one_refusal(log_in(&users, "ada", wrong));
    }
}

#[test]
fn an_unknown_user_gets_the_same_kind_of_challenge_and_the_same_refusal() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    for name in ["eve", "", "ADA", "a:b", &"x".repeat(1000)] {
        let known = challenge_for(&users, "ada");
        let unknown = challenge_for(&users, name);
        assert_eq!(known.len(), unknown.len());
        assert_eq!(known[16..28], unknown[16..28], "the costs");
        let wrong = log_in(&users, "ada", "wrong").unwrap_err();
        assert_eq!(log_in(&users, name, "right").unwrap_err(), wrong);
    }
}

#[test]
fn a_user_gets_the_same_salt_each_time_and_another_nonce() {
    let (_folder, path, file) = with_ada();
    let before = file.load().unwrap();
    file.add("carl", "third").unwrap();
    let after = UsersFile::new(&path)
        .with_parameters(cheap())
        .load()
        .unwrap();
    for name in ["ada", "eve"] {
        let first = challenge_for(&before, name);
        for users in [&before, &after] {
            let again = challenge_for(users, name);
            assert_eq!(first[..16], again[..16], "{name}");
            assert_ne!(first[28..], again[28..], "{name}");
        }
    }
    let salts = ["ada", "eve", "eva", "carl"].map(|n| challenge_for(&after, n)[..16].to_vec());
    for (i, salt) in salts.iter().enumerate() {
        assert!(!salts[..i].contains(salt));
    }
}

#[test]
fn salts_of_unknown_users_depend_on_the_servers_secret() {
    let (_a, _, first) = with_ada();
    let (_b, _, second) = with_ada();
    let salt = |f: &UsersFile| challenge_for(&f.load().unwrap(), "eve")[..16].to_vec();
    assert_ne!(salt(&first), salt(&second));
}

#[test]
fn a_proof_is_worth_nothing_on_another_channel_or_for_another_user() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    the_one_refusal(exchange(&users, "ada", "ada", "right", &HERE, &ELSEWHERE));
    the_one_refusal(exchange(&users, "ada", "eve", "right", &HERE, &HERE));
    the_one_refusal(exchange(&users, "eve", "ada", "right", &HERE, &HERE));
}

#[test]
fn a_proof_is_worth_nothing_in_another_exchange() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    let (client, body) = PasswordClient::begin().unwrap();
    let (server, challenge) = PasswordServer::begin(&users, "ada", &body).unwrap();
    let proof = client.answer("ada", "right", &HERE, &challenge).unwrap();
    let (replayed, _) = PasswordServer::begin(&users, "ada", &body).unwrap();
    the_one_refusal(replayed.finish(&proof, &HERE));
    server.finish(&proof, &HERE).unwrap();
}

#[test]
fn no_byte_of_a_proof_or_a_challenge_can_be_altered() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    for at in 0..32 {
        let (client, body) = PasswordClient::begin().unwrap();
        let (server, challenge) = PasswordServer::begin(&users, "ada", &body).unwrap();
        let mut proof = client.answer("ada", "right", &HERE, &challenge).unwrap();
        proof[at] ^= 0x80;
        the_one_refusal(server.finish(&proof, &HERE));
    }
    // The salt, the memory in KiB, and the nonce.
    for at in [0, 15, 19, 28, 59] {
        let (client, body) = PasswordClient::begin().unwrap();
        let (server, mut challenge) = PasswordServer::begin(&users, "ada", &body).unwrap();
        challenge[at] ^= 1;
        let proof = client.answer("ada", "right", &HERE, &challenge).unwrap();
        the_one_refusal(server.finish(&proof, &HERE));
    }
}

#[test]
fn what_the_server_keeps_doesnt_log_in() {
    let (_folder, path, file) = with_ada();
    let users = file.load().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("right"));
    let stored = users.record("ada").stored_key;
    let (_, body) = PasswordClient::begin().unwrap();
    let (server, _) = PasswordServer::begin(&users, "ada", &body).unwrap();
    the_one_refusal(server.finish(&stored[..], &HERE));
    // The stored key in place of the client's.
    let (client_nonce, (server, challenge)) = (
        [1; 32],
        PasswordServer::begin(&users, "ada", &[1; 32]).unwrap(),
    );
    let challenge = derive::Challenge::decode(&challenge).unwrap();
    let signature = derive::client_signature(&stored, &HERE, &client_nonce, &challenge, "ada");
    the_one_refusal(server.finish(&derive::xor(&stored, &signature), &HERE));
}

#[test]
fn the_dummy_of_an_unknown_user_opens_nothing() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    let record = users.record("eve");
    assert!(!bool::from(record.is_known));
    assert!(bool::from(users.record("ada").is_known));
    assert_ne!(record.stored_key, users.record("eva").stored_key);
}

#[test]
fn bodies_of_other_lengths_are_refused() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    for length in (0..100).filter(|l| *l != 32) {
        the_one_refusal(PasswordServer::begin(&users, "ada", &vec![0; length]));
        let (server, _) = PasswordServer::begin(&users, "ada", &[0; 32]).unwrap();
        the_one_refusal(server.finish(&vec![0; length], &HERE));
    }
    for length in (0..200).filter(|l| *l != CHALLENGE_BYTES) {
        let (client, _) = PasswordClient::begin().unwrap();
        let mut challenge = challenge_for(&users, "ada");
        challenge.resize(length, 0);
        let fault = client
            .answer("ada", "right", &HERE, &challenge)
            .unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed);
    }
}

#[test]
fn a_client_refuses_costs_out_of_range() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    for (memory_kib, passes, lanes) in [
        (256 * 1024 + 1, 1, 1),
        (u32::MAX, 1, 1),
        (7 * 1024 - 1, 1, 1),
        (0, 1, 1),
        (7 * 1024, 17, 1),
        (7 * 1024, u32::MAX, 1),
        (7 * 1024, 0, 1),
        (7 * 1024, 1, 9),
        (7 * 1024, 1, 0),
        (7 * 1024, 1, u32::MAX),
    ] {
        Parameters::new(memory_kib, passes, lanes).unwrap_err();
        let mut challenge = challenge_for(&users, "ada");
        for (at, number) in [(16, memory_kib), (20, passes), (24, lanes)] {
            challenge[at..at + 4].copy_from_slice(&u32::to_be_bytes(number));
        }
        let (client, _) = PasswordClient::begin().unwrap();
        let fault = client
            .answer("ada", "right", &HERE, &challenge)
            .unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed);
        assert!(fault.cause.contains("out of range"));
    }
    let default = Parameters::default();
    let again = Parameters::new(default.memory_kib(), default.passes(), default.lanes());
    assert_eq!(again.unwrap(), default);
    Parameters::new(256 * 1024, 16, 8).unwrap();
}

/// The proof of a fixed exchange, computed once by another implementation.
#[test]
fn a_proof_has_the_value_of_the_formulas() {
    let salt = *b"0123456789abcdef";
    let parameters = cheap();
    let key = derive::client_key("right", &salt, parameters, "test").unwrap();
    let challenge = derive::Challenge {
        salt,
        parameters,
        nonce: [2; 32],
    };
    let stored = derive::stored_key(&key);
    let signature = derive::client_signature(&stored, &HERE, &[1; 32], &challenge, "ada");
    let proof = derive::xor(&key, &signature);
    let hex: String = proof.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, PROOF_HEX);
}

const PROOF_HEX: &str = "13df8b5299dd9ac35bcdf669a2eb1d632e64ab5e7b3a7377ffb092c8f5de6dd7";

#[test]
fn passwords_have_bounds() {
    let (_folder, _, file) = with_ada();
    for password in ["", &"x".repeat(1025)] {
        for fault in [
            file.add("bob", password).unwrap_err(),
            file.set_password("ada", password).unwrap_err(),
        ] {
            assert_eq!(fault.code, Code::InvalidArgument);
        }
        let (client, _) = PasswordClient::begin().unwrap();
        let challenge = challenge_for(&file.load().unwrap(), "ada");
        let fault = client
            .answer("ada", password, &HERE, &challenge)
            .unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }
    assert_eq!(file.list().unwrap(), ["ada"]);
}

#[test]
fn users_come_change_and_go() {
    let (folder, path, file) = with_ada();
    file.add("bob", "other").unwrap();
    assert_eq!(file.list().unwrap(), ["ada", "bob"]);

    let fault = file.add("ada", "again").unwrap_err();
    assert_eq!(fault.code, Code::AlreadyExists);
    log_in(&file.load().unwrap(), "ada", "right").unwrap();

    file.set_password("ada", "newer").unwrap();
    let users = file.load().unwrap();
    log_in(&users, "ada", "newer").unwrap();
    the_one_refusal(log_in(&users, "ada", "right"));
    assert!(users.contains("ada") && !users.contains("eve"));

    file.remove("ada").unwrap();
    assert_eq!(file.list().unwrap(), ["bob"]);
    the_one_refusal(log_in(&file.load().unwrap(), "ada", "newer"));
    for fault in [
        file.remove("ada").unwrap_err(),
        file.set_password("ada", "x").unwrap_err(),
    ] {
        assert_eq!(fault.code, Code::NotFound);
    }
    assert_eq!(file.list().unwrap(), ["bob"]);

    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["users", "users.lock"], "nothing is left behind");
    fs::remove_file(&path).unwrap();
    assert_eq!(file.load().unwrap_err().code, Code::NotFound);
    file.init().unwrap();
    assert!(file.list().unwrap().is_empty());
}

#[test]
fn what_a_crash_left_is_replaced() {
    let (folder, _, file) = with_ada();
    fs::write(folder.path().join(".users.new"), "half").unwrap();
    file.add("bob", "other").unwrap();
    assert_eq!(file.list().unwrap(), ["ada", "bob"]);
    assert!(!folder.path().join(".users.new").exists());
}

#[test]
fn names_are_restricted() {
    let folder = TempDir::new().unwrap();
    let file = UsersFile::new(folder.path().join("users")).with_parameters(cheap());
    for name in [
        "",
        "-x",
        ".x",
        "Ada",
        "a b",
        "a:b",
        "a$b",
        "a\nb",
        "a/b",
        "#a",
        "!secret",
        "\u{e4}",
        &"a".repeat(65),
    ] {
        for fault in [
            file.add(name, "x").unwrap_err(),
            file.set_password(name, "x").unwrap_err(),
            file.remove(name).unwrap_err(),
        ] {
            assert_eq!(fault.code, Code::InvalidArgument, "{name}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let good = ["a", "0", "_", "@", "a.b_c-d@e.org", &"a".repeat(64)];
    for name in good {
        file.add(name, "x").unwrap();
    }
    assert_eq!(file.list().unwrap().len(), good.len());
}

#[test]
fn adds_at_the_same_time_all_happen() {
    let folder = TempDir::new().unwrap();
    let file = UsersFile::new(folder.path().join("users")).with_parameters(cheap());
    thread::scope(|scope| {
        for worker in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..5 {
                    file.add(&format!("user-{worker}-{number}"), "x").unwrap();
                    // The file is complete at any time.
                    file.load().unwrap();
                }
            });
        }
    });
    assert_eq!(file.list().unwrap().len(), 20);
}

#[test]
fn of_equal_adds_at_the_same_time_one_happens() {
    let folder = TempDir::new().unwrap();
    let file = UsersFile::new(folder.path().join("users")).with_parameters(cheap());
    let added: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| usize::from(file.add("ada", "x").is_ok())))
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(added, 1);
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    let (_folder, path, file) = with_ada();
    let good = fs::read_to_string(&path).unwrap();
    let ada = good.lines().find(|l| l.starts_with("ada:")).unwrap();
    let secret = good.lines().find(|l| l.starts_with('!')).unwrap();
    let damaged = [
        format!("{good}{ada}\n"),
        format!("{good}{secret}\n"),
        good.replace(secret, ""),
        good.replace(secret, &secret[..20]),
        good.replace("ada:", "ADA:"),
        good.replace("ada:", "ada"),
        good.replace("argon2id", "argon2i"),
        good.replace("m=7168", "m=+7168"),
        good.replace("m=7168", "m=8"),
        good.replace("m=7168", "m=99999999999"),
        good.replace("t=1", "t=17"),
        good.replace(",p=1", ""),
        good.replace(",p=1", ",p=1,x=1"),
        good.trim_end()[..good.trim_end().len() - 1].to_owned(),
        good.trim_end().to_owned() + "$",
        good.trim_end().to_owned() + "=",
        good.trim_end().to_owned() + " ",
    ];
    for text in damaged {
        fs::write(&path, &text).unwrap();
        let fault = file.load().unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{text}");
        assert!(!fault.path.is_empty());
        // And isn't overwritten.
        file.add("bob", "x").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, b"\xff").unwrap();
    assert_eq!(file.load().unwrap_err().code, Code::InvalidArgument);
    fs::write(&path, &good).unwrap();
    log_in(&file.load().unwrap(), "ada", "right").unwrap();
}

#[test]
fn a_file_that_is_too_long_is_refused() {
    let (_folder, path, file) = with_ada();
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(4 * 1024 * 1024, b'\n');
    fs::write(&path, &bytes).unwrap();
    file.load().unwrap();
    bytes.push(b'\n');
    fs::write(&path, &bytes).unwrap();
    assert_eq!(file.load().unwrap_err().code, Code::LimitExceeded);
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let (folder, path, file) = with_ada();
    for name in ["users", "users.lock"] {
        let found = fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600, "{name}");
    }
    for mode in [0o640, 0o620, 0o604, 0o602, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(file.load().unwrap_err().code, Code::PermissionDenied);
        let fault = file.add("bob", "x").unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied);
    }
}

#[test]
fn debug_shows_no_secret() {
    let (_folder, _, file) = with_ada();
    let users = file.load().unwrap();
    assert_eq!(format!("{users:?}"), "Users { names: [\"ada\"], .. }");
    let (client, body) = PasswordClient::begin().unwrap();
    assert_eq!(format!("{client:?}"), "PasswordClient { .. }");
    let (server, _) = PasswordServer::begin(&users, "ada", &body).unwrap();
    assert_eq!(
        format!("{server:?}"),
        "PasswordServer { user: \"ada\", .. }"
    );
}

proptest! {
    #[test]
    fn random_proofs_are_refused(
        user in "(ada|eve|.{0,20})",
        nonce in any::<[u8; 32]>(),
        proof in proptest::collection::vec(any::<u8>(), 0..64),
        whole in any::<[u8; 32]>(),
    ) {
        let users = Users::parse(USERS_TEXT, cheap(), "test").unwrap();
        for proof in [&proof[..], &whole] {
            let (server, _) = PasswordServer::begin(&users, &user, &nonce).unwrap();
            prop_assert!(server.finish(proof, &HERE).is_err());
        }
    }

    #[test]
    fn random_files_are_no_reason_to_panic(
        text in "[ -~\n]{0,200}",
        at in 0..USERS_TEXT.len(),
        c in "[ -~\n]",
    ) {
        prop_assert!(Users::parse(&text, cheap(), "test").is_err());
        let mut altered = USERS_TEXT.to_owned();
        altered.replace_range(at..=at, &c);
        let _ = Users::parse(&altered, cheap(), "test");
    }
}

const USERS_TEXT: &str = "\
!secret:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
ada:argon2id$m=7168,t=1,p=1$AAECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
";
