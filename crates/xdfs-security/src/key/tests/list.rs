//! Lists of keys.

use std::fs;

use proptest::prelude::*;
use xdfs_proto::fault::Code;

use super::*;
use crate::key::{AuthorizedKeys, Signer};

fn line() -> (PublicKey, String) {
    let key = key_of(P256).public_key().clone();
    let line = key.to_line("laptop");
    (key, line)
}

fn list(text: &str) -> AuthorizedKeys {
    AuthorizedKeys::parse(text)
}

#[test]
fn keys_are_found_whatever_stands_around_them() {
    let (key, line) = line();
    let other = PublicKey::from_line(LOCKED_PUB).unwrap();
    let text =
        format!("# mine\n\n \t{line} with more words # and this\r\n{LOCKED_PUB}\nnonsense\n");
    let list = list(&text);
    assert_eq!(list.len(), 2);
    assert!(list.contains(&key, NOW));
    assert!(list.contains(&other, NOW));
    assert!(!list.contains(&PublicKey::from_line(RSA_PUB).unwrap(), NOW));
    assert!(AuthorizedKeys::default().is_empty());
}

#[test]
fn a_comment_mark_turns_a_key_off() {
    let (_, line) = line();
    assert!(list(&format!("#{line}\n # {line}")).is_empty());
}

#[test]
fn a_key_is_good_until_its_expiry_time() {
    let (key, line) = line();
    for option in [
        "expiry-time=\"20260730121559\"",
        "Expiry-Time=\"20260730121559Z\"",
        "expiry-time=\"20260730121559\",expiry-time=\"20990101\"",
        "expiry-time=\"20990101\",expiry-time=\"20260730121559\"",
    ] {
        let list = list(&format!("{option} {line}"));
        assert_eq!(list.len(), 1, "{option}");
        assert!(list.contains(&key, 1_785_413_758));
        assert!(!list.contains(&key, 1_785_413_759));
        assert!(!list.contains(&key, u64::MAX));
    }
}

#[test]
fn a_line_with_another_option_is_left_out() {
    let (_, line) = line();
    for options in [
        "restrict",
        "no-pty",
        "cert-authority",
        "command=\"echo hello, world\"",
        "from=\"10.0.0.0/8\"",
        "expiry-time=\"20990101\",restrict",
        "restrict,expiry-time=\"20990101\"",
        "expiry-time=\"20990101\",",
        ",",
        "expiry-time",
        "expiry-time=",
        "expiry-time=20990101",
        "expiry-time=\"\"",
        "expiry-time=\"tomorrow\"",
        "expiry-time=\"20990101",
        "command=\"a \\\" b\"",
        "unknown=\"x",
    ] {
        assert!(list(&format!("{options} {line}")).is_empty(), "{options}");
    }
}

#[test]
fn a_key_inside_an_option_isnt_a_key() {
    let (_, line) = line();
    assert!(list(&format!("command=\"{line}\" {line}")).is_empty());
    assert!(list(&format!("environment=\"A= {line}\"")).is_empty());
}

#[test]
fn types_that_arent_supported_are_left_out() {
    assert!(list(P521_PUB).is_empty());
    assert!(list("ssh-dss AAAA me\nsk-ssh-ed25519@openssh.com AAAA me").is_empty());
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("list");
    fs::write(&path, vec![b'\n'; 1024 * 1024]).unwrap();
    assert!(AuthorizedKeys::load(&path).unwrap().is_empty());
    fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).unwrap();
    assert_eq!(
        AuthorizedKeys::load(&path).unwrap_err().code,
        Code::LimitExceeded
    );
}

#[test]
fn a_comment_may_be_in_any_encoding() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("list");
    let (key, line) = line();
    fs::write(&path, [line.as_bytes(), b" \xff\n"].concat()).unwrap();
    assert!(AuthorizedKeys::load(&path).unwrap().contains(&key, NOW));
}

#[cfg(unix)]
#[test]
fn a_list_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("list");
    fs::write(&path, line().1).unwrap();
    for (mode, is_good) in [
        (0o600, true),
        (0o644, true),
        (0o664, false),
        (0o646, false),
        (0o620, false),
        (0o602, false),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let loaded = AuthorizedKeys::load(&path);
        assert_eq!(loaded.is_ok(), is_good, "{mode:o}");
        if let Err(fault) = loaded {
            assert_eq!(fault.code, Code::PermissionDenied);
            assert!(fault.cause.contains("write to"));
        }
    }
}

proptest! {
    #[test]
    fn any_text_can_be_read(text in "[ -~\n\"\\\\=,é]{0,200}") {
        prop_assert!(AuthorizedKeys::parse(&text).is_empty());
    }
}
