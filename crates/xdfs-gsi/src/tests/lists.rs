//! Lists of revoked certificates: none is overlooked, and each is read once.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use openssl::hash::MessageDigest;
use openssl::sign::Signer;
use openssl::x509::X509;

use super::grid::{Grid, Wanted, WantedList, authority_extensions, extension};
use crate::chain::verify;
use crate::revocation::Lists;
use crate::{Credential, Trust};

/// Why the certificate is refused; `None` if it isn't.
fn refusal(credential: &Credential, trust: &Trust) -> Option<String> {
    let first = std::iter::once(&credential.certificate);
    let chain: Vec<X509> = first.chain(&credential.chain).cloned().collect();
    verify(&chain, trust).err().map(|fault| fault.cause)
}

#[track_caller]
fn refuses(credential: &Credential, trust: &Trust, why: &str) {
    let cause = refusal(credential, trust);
    assert!(
        cause.as_ref().is_some_and(|cause| cause.contains(why)),
        "{cause:?}"
    );
}

#[test]
fn all_lists_of_all_files_count() {
    let grid = Grid::new();
    let (alice, bob, trust) = (grid.user("Alice"), grid.user("Bob"), grid.trust());
    let ca = &grid.authority;
    let path = |number: &str| grid.path(ca, number);
    let (of_alice, of_bob) = ([&alice], [&bob]);
    let of_alice = WantedList::new(ca, &of_alice).signed();
    let of_bob = WantedList::new(ca, &of_bob).signed();
    // The second one of a file.
    fs::write(path("r0"), [&of_bob[..], b"\n# more\n", &of_alice].concat()).unwrap();
    refuses(&alice, &trust, "is revoked");
    refuses(&bob, &trust, "is revoked");
    // DER, and something behind it.
    let der = WantedList::new(ca, &[&bob]).build().to_der().unwrap();
    fs::write(path("r0"), &der).unwrap();
    assert_eq!(refusal(&alice, &trust), None);
    refuses(&bob, &trust, "is revoked");
    for end in [0, 1, der.len() / 2, der.len() - 1] {
        fs::write(path("r0"), &der[..end]).unwrap();
        assert!(refusal(&alice, &trust).is_some(), "{end}");
    }
    fs::write(path("r0"), [&der[..], &der].concat()).unwrap();
    refuses(&alice, &trust, "malformed");
    // One that no other one comes before, and one of many.
    fs::remove_file(path("r0")).unwrap();
    fs::write(path("r1"), &of_alice).unwrap();
    refuses(&alice, &trust, "is revoked");
    fs::write(path("r0"), &of_bob).unwrap();
    refuses(&alice, &trust, "is revoked");
    fs::rename(path("r1"), path("r17")).unwrap();
    refuses(&alice, &trust, "is revoked");
    // Nothing else is a list.
    fs::rename(path("r17"), path("r17.old")).unwrap();
    assert_eq!(refusal(&alice, &trust), None);
    for number in 1..=10 {
        fs::write(path(&format!("r{number}")), &of_bob).unwrap();
    }
    refuses(&alice, &trust, "more than 10");
}

/// An empty list without a time of the next one, which OpenSSL doesn't make.
fn endless(authority: &Credential) -> Vec<u8> {
    let tlv = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82, length[0], length[1]], &content[..]].concat()
    };
    let short = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[tag, length], content].concat()
    };
    let way = "300d06092a864886f70d01010b0500";
    let way: Vec<u8> = (0..way.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&way[at..at + 2], 16).unwrap())
        .collect();
    let name = authority.certificate.subject_name().to_der().unwrap();
    let issued = short(0x17, b"240101000000Z");
    let fields = [&short(2, &[1])[..], &way, &name, &issued].concat();
    let signed = short(0x30, &fields);
    let mut signer = Signer::new(MessageDigest::sha256(), &authority.key).unwrap();
    let signature = signer.sign_oneshot_to_vec(&signed).unwrap();
    tlv(0x30, &[&signed, &way, &tlv(3, &[&[0], &signature])])
}

#[test]
fn lists_that_prove_nothing_are_refused() {
    let grid = Grid::new();
    let (alice, trust) = (grid.user("Alice"), grid.trust());
    let ca = &grid.authority;
    let other = authority_extensions(Wanted::new("/O=Grid/CN=Other")).signed(None);
    let put = |list: WantedList<'_>| fs::write(grid.path(ca, "r0"), list.signed()).unwrap();
    let plain = || WantedList::new(ca, &[]);
    let delta = |critical| extension("2.5.29.27", critical, &[2, 1, 1]);
    let only_users = |critical| extension("2.5.29.28", critical, &[0x30, 3, 0x81, 1, 0xff]);
    put(plain());
    assert_eq!(refusal(&alice, &trust), None);
    for (list, why) in [
        // In the file of the authority, of another one with the same key.
        (
            WantedList {
                name: &other,
                ..plain()
            },
            "the name and the signature of the authority",
        ),
        (
            WantedList {
                signer: &other,
                ..plain()
            },
            "the name and the signature of the authority",
        ),
        (
            WantedList {
                digest: MessageDigest::md5(),
                ..plain()
            },
            "digest that is too weak",
        ),
        (
            WantedList {
                digest: MessageDigest::sha1(),
                ..plain()
            },
            "digest that is too weak",
        ),
        (
            WantedList {
                extensions: vec![delta(true)],
                ..plain()
            },
            "isn't one of all",
        ),
        (
            WantedList {
                extensions: vec![delta(false)],
                ..plain()
            },
            "isn't one of all",
        ),
        (
            WantedList {
                extensions: vec![only_users(false)],
                ..plain()
            },
            "isn't one of all",
        ),
        (
            WantedList {
                extensions: vec![extension("1.2.3.4", true, &[5, 0])],
                ..plain()
            },
            "critical extension",
        ),
    ] {
        put(list);
        refuses(&alice, &trust, why);
    }
    fs::write(grid.path(ca, "r0"), endless(ca)).unwrap();
    refuses(&alice, &trust, "when the next one comes");
    fs::write(grid.path(ca, "r0"), ca.certificate.to_pem().unwrap()).unwrap();
    refuses(&alice, &trust, "no list of revoked");
    fs::write(grid.path(ca, "r0"), "").unwrap();
    refuses(&alice, &trust, "no list of revoked");
    fs::remove_file(grid.path(ca, "r0")).unwrap();
    fs::create_dir(grid.path(ca, "r0")).unwrap();
    refuses(&alice, &trust, "regular file");
}

#[test]
fn lists_are_read_once_and_after_changes() {
    let grid = Grid::new();
    let (alice, ca) = (grid.user("Alice"), &grid.authority);
    let place = tempfile::tempdir().unwrap();
    let path = |number: usize| -> PathBuf { place.path().join(number.to_string()) };
    let empty = WantedList::new(ca, &[]).signed();
    let full = WantedList::new(ca, &[&alice]).signed();
    // More files than are kept.
    for number in 0..=256 {
        fs::write(path(number), &empty).unwrap();
    }
    fs::write(path(1000), &empty).unwrap();
    let lists = Lists::default();
    let read = |number| lists.of(&path(number), &ca.certificate).unwrap();
    // A file that has just changed may change again without a trace.
    assert!(!Arc::ptr_eq(&read(1000), &read(1000)));
    thread::sleep(Duration::from_millis(3100));
    let (first, other) = (read(1000), read(0));
    assert!(Arc::ptr_eq(&first, &read(1000)) && Arc::ptr_eq(&other, &read(0)));
    assert!(!first[0].has(&alice.certificate).unwrap());
    // By another authority it is another list.
    let stranger = authority_extensions(Wanted::new("/O=Grid/CN=Test CA")).signed(None);
    let none = lists.of(&path(1000), &stranger.certificate).unwrap();
    assert!(none.is_empty() && Arc::ptr_eq(&first, &read(1000)));
    fs::write(path(1000), &full).unwrap();
    assert!(read(1000)[0].has(&alice.certificate).unwrap());
    fs::rename(path(256), path(1000)).unwrap();
    assert!(!read(1000)[0].has(&alice.certificate).unwrap());
    // The one that wasn't used for the longest time makes place.
    let last = read(1);
    let oldest = Arc::downgrade(&other);
    drop((first, other));
    for number in 2..256 {
        read(number);
        read(1);
    }
    assert!(oldest.upgrade().is_none());
    assert!(Arc::ptr_eq(&last, &read(1)));
}
