//! What a verifier of proxies has to take, and what to refuse: each rule with a chain that breaks
//! it alone.

use std::fs;
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer};
use openssl::x509::X509;
use openssl::x509::extension::{BasicConstraints, KeyUsage};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Version;
use xdfs_proto::Fault;

use super::grid::{
    DAY, Grid, Wanted, authority_extensions, dns_names, extension, purpose, usage_of,
};
use crate::chain::{Peer, verify};
use crate::issue::{ProxyOptions, make_proxy, sign_request};
use crate::proxy::{Form, INDEPENDENT, PROXY_INFO, encode_info};
use crate::{Credential, Trust, remove_proxy};

fn all(credential: &Credential) -> Vec<X509> {
    let first = std::iter::once(&credential.certificate);
    first.chain(&credential.chain).cloned().collect()
}

fn check(credential: &Credential, trust: &Trust) -> Result<Peer, Fault> {
    verify(&all(credential), trust)
}

#[track_caller]
fn refuses(credential: &Credential, trust: &Trust, why: &str) {
    let fault = check(credential, trust).unwrap_err();
    assert_eq!(
        fault.code,
        xdfs_proto::Code::AuthenticationFailed,
        "{fault}"
    );
    assert!(fault.cause.contains(why), "{fault}");
}

fn proxy(issuer: &Credential, change: impl FnOnce(&mut ProxyOptions)) -> Credential {
    let mut options = ProxyOptions::default();
    change(&mut options);
    make_proxy(issuer, &options).unwrap()
}

/// A proxy of alice that keeps the rules, to be changed.
fn by_hand(subject: &str) -> Wanted {
    let info = extension(PROXY_INFO, true, &encode_info(false, None));
    Wanted::new(subject).with(info)
}

const ALICE: &str = "/O=Grid/CN=Alice User";

#[test]
fn users_and_their_proxies_are_verified() {
    let grid = Grid::new();
    let (alice, trust) = (grid.user("Alice User"), grid.trust());
    let peer = check(&alice, &trust).unwrap();
    assert_eq!(
        (peer.name.as_str(), peer.proxies, peer.is_limited),
        (ALICE, 0, false)
    );
    for form in [Form::Rfc3820, Form::Legacy] {
        let first = proxy(&alice, |options| options.form = form);
        let limited = proxy(&first, |options| options.is_limited = true);
        let last = proxy(&limited, |_| {});
        for (credential, proxies, is_limited) in
            [(&first, 1, false), (&limited, 2, true), (&last, 3, true)]
        {
            let peer = check(credential, &trust).unwrap();
            assert_eq!((peer.name.as_str(), peer.proxies), (ALICE, proxies));
            assert_eq!(peer.is_limited, is_limited, "{form:?} {proxies}");
            assert_eq!(peer.certificate, alice.certificate.to_der().unwrap());
            let end = Asn1Time::from_unix(peer.ends_s).unwrap();
            let own = credential.certificate.not_after();
            assert!(end.compare(own).unwrap().is_eq());
        }
    }
    // The authority itself may be shown too, and one in between has to be.
    let between = authority_extensions(Wanted::new("/O=Grid/CN=Between"));
    let between = between.signed(Some(&grid.authority));
    let bob = Wanted::new("/O=Grid/CN=Bob").signed(Some(&between));
    let subject = "/O=Grid/CN=Between";
    refuses(&bob, &trust, "no signing policy");
    grid.set_policy(&between, subject, "/O=Grid/*");
    assert_eq!(check(&bob, &trust).unwrap().name, "/O=Grid/CN=Bob");
    assert!(verify(&[bob.certificate], &trust).is_err());
    assert!(verify(&[], &trust).is_err());
}

#[test]
fn a_chain_ends_with_the_first_of_it() {
    let grid = Grid::new();
    let trust = grid.trust();
    // One that outlives its issuer isn't made here.
    let alice = grid.user("Alice User");
    let mut long = by_hand(&format!("{ALICE}/CN=1"));
    long.valid = (-1, 30);
    let short = proxy(&alice, |options| options.lifetime = DAY / 24);
    for (credential, first) in [(&long.signed(Some(&alice)), &alice), (&short, &short)] {
        let end = check(credential, &trust).unwrap().ends_s;
        let end = Asn1Time::from_unix(end).unwrap();
        let wanted = first.certificate.not_after();
        assert!(end.compare(wanted).unwrap().is_eq());
    }
}

#[test]
fn path_lengths_count_the_proxies_below() {
    let grid = Grid::new();
    let (alice, trust) = (grid.user("Alice User"), grid.trust());
    let first = proxy(&alice, |options| options.path_length = Some(1));
    let second = proxy(&first, |_| {});
    assert_eq!(check(&second, &trust).unwrap().proxies, 2);
    refuses(
        &proxy(&second, |_| {}),
        &trust,
        "allows less than the 2 proxies",
    );
    let last = proxy(&alice, |options| options.path_length = Some(0));
    assert!(check(&last, &trust).is_ok());
    // It isn't made here, and is refused if somebody else makes it.
    assert!(make_proxy(&last, &ProxyOptions::default()).is_err());
    let subject = crate::trust::name_of(&last.certificate).unwrap();
    let below = by_hand(&format!("{subject}/CN=1")).signed(Some(&last));
    refuses(&below, &trust, "allows less than the 1 proxies");
    // A bound that nobody has set.
    let mut deep = alice;
    for _ in 0..19 {
        deep = proxy(&deep, |_| {});
    }
    assert_eq!(all(&deep).len(), 21);
    refuses(&deep, &trust, "more than 20 certificates");
}

#[test]
fn what_is_not_valid_now_is_refused_anywhere_in_the_chain() {
    let grid = Grid::new();
    let trust = grid.trust();
    for (valid, why, of_proxy) in [
        ((-3, -1), "expired", "has expired"),
        ((1, 3), "not yet valid", "isn't valid yet"),
    ] {
        let mut wanted = Wanted::new(ALICE);
        wanted.valid = valid;
        let alice = wanted.signed(Some(&grid.authority));
        refuses(&alice, &trust, why);
        let mut below = by_hand(&format!("{ALICE}/CN=1"));
        refuses(&below.signed(Some(&alice)), &trust, why);
        below.valid = valid;
        let alice = grid.user("Alice User");
        let bad = below.signed(Some(&alice));
        refuses(&bad, &trust, of_proxy);
        let subject = format!("{ALICE}/CN=1/CN=2");
        refuses(&by_hand(&subject).signed(Some(&bad)), &trust, of_proxy);
    }
    let mut old = authority_extensions(Wanted::new("/O=Grid/CN=Old"));
    old.valid = (-3, -1);
    let old = old.signed(None);
    grid.install(&old);
    refuses(&Wanted::new(ALICE).signed(Some(&old)), &trust, "expired");
    // Proxies made here end with their issuer.
    let alice = grid.user("Alice User");
    let long = proxy(&alice, |options| options.lifetime = 10 * DAY);
    let (own, above) = (long.certificate.not_after(), alice.certificate.not_after());
    assert!(own.compare(above).unwrap().is_eq());
}

#[test]
fn other_authorities_and_their_names_are_refused() {
    let grid = Grid::new();
    let trust = grid.trust();
    let other = Grid::new();
    // The same name, with another key.
    refuses(&other.user("Alice User"), &trust, "isn't verified");
    let unknown = authority_extensions(Wanted::new("/O=Evil/CN=CA")).signed(None);
    refuses(
        &Wanted::new(ALICE).signed(Some(&unknown)),
        &trust,
        "isn't verified",
    );
    let own = Wanted::new(ALICE).signed(None);
    refuses(&own, &trust, "its own authority");
    grid.install(&own);
    refuses(&own, &trust, "its own authority");
    // One that is known, beyond its names, or without a policy.
    let foreign = Wanted::new("/O=Elsewhere/CN=Alice").signed(Some(&grid.authority));
    refuses(
        &foreign,
        &trust,
        "signing policy of /O=Grid/CN=Test CA doesn't allow",
    );
    let policy = grid.path(&grid.authority, "signing_policy");
    let alice = grid.user("Alice User");
    fs::write(&policy, "what is this").unwrap();
    refuses(&alice, &trust, "line 1");
    fs::remove_file(&policy).unwrap();
    refuses(&alice, &trust, "has no signing policy");
}

#[test]
fn revoked_certificates_are_refused() {
    let grid = Grid::new();
    let trust = grid.trust();
    let (alice, bob) = (grid.user("Alice User"), grid.user("Bob"));
    let of_alice = proxy(&alice, |_| {});
    grid.revoke(&grid.authority, &[&bob], (-1, 1), None);
    assert!(check(&of_alice, &trust).is_ok());
    refuses(&bob, &trust, "is revoked");
    refuses(&proxy(&bob, |_| {}), &trust, "is revoked");
    // A list that may be kept back, or is forged, is none.
    grid.revoke(&grid.authority, &[], (-3, -1), None);
    refuses(&alice, &trust, "has expired");
    grid.revoke(&grid.authority, &[], (1, 3), None);
    refuses(&alice, &trust, "of the future");
    grid.revoke(&alice, &[], (-1, 1), None);
    refuses(&bob, &trust, "the name and the signature of the authority");
    // A list of some certificates only (issuingDistributionPoint).
    let only_users = extension("2.5.29.28", true, &[0x30, 3, 0x81, 1, 0xff]);
    grid.revoke(&grid.authority, &[], (-1, 1), Some(only_users));
    refuses(&alice, &trust, "isn't one of all");
    fs::write(grid.path(&grid.authority, "r0"), "no list").unwrap();
    assert!(check(&alice, &trust).is_err());
    fs::remove_file(grid.path(&grid.authority, "r0")).unwrap();
    assert!(check(&alice, &trust).is_ok());
}

#[test]
fn certificates_that_may_make_no_proxies_are_refused_as_issuers() {
    let grid = Grid::new();
    let trust = grid.trust();
    let below = by_hand(&format!("{ALICE}/CN=1"));
    // A user that may sign, with purposes of clients only, as most have.
    let usage = usage_of(KeyUsage::new().digital_signature());
    let clients = purpose(|usage| {
        usage.client_auth();
    });
    let user = Wanted::new(ALICE).with(usage).with(clients);
    let user = user.signed(Some(&grid.authority));
    assert!(check(&below.signed(Some(&user)), &trust).is_ok());
    // A user that may only encrypt.
    let wanted = Wanted::new(ALICE).with(usage_of(KeyUsage::new().key_encipherment()));
    let user = wanted.signed(Some(&grid.authority));
    refuses(&user, &trust, "may not make signatures");
    refuses(
        &below.signed(Some(&user)),
        &trust,
        "may not make signatures",
    );
    // A certificate for something else.
    let other = purpose(|usage| {
        usage.code_signing();
    });
    let user = Wanted::new(ALICE).with(other).signed(Some(&grid.authority));
    refuses(&user, &trust, "for other purposes");
    refuses(&below.signed(Some(&user)), &trust, "for other purposes");
    // An authority.
    let authority = authority_extensions(Wanted::new(ALICE)).signed(Some(&grid.authority));
    refuses(&authority, &trust, "that of an authority");
    refuses(
        &below.signed(Some(&authority)),
        &trust,
        "an authority has signed",
    );
    let of_root = by_hand("/O=Grid/CN=Test CA/CN=proxy").signed(Some(&grid.authority));
    refuses(&of_root, &trust, "an authority has signed");
    let of_root = Wanted::new("/O=Grid/CN=Test CA/CN=proxy").signed(Some(&grid.authority));
    refuses(&of_root, &trust, "an authority has signed");
    // Certificates of version 1 don't say that they are those of authorities.
    let mut old = Wanted::new(ALICE);
    old.version = 0;
    let user = old.signed(Some(&grid.authority));
    refuses(&user, &trust, "isn't one of version 3");
    refuses(&below.signed(Some(&user)), &trust, "isn't one of version 3");
    old.subject = "/O=Grid/CN=Old CA".to_owned();
    let root = old.signed(None);
    grid.install(&root);
    assert!(check(&Wanted::new(ALICE).signed(Some(&root)), &trust).is_ok());
    let of_root = by_hand("/O=Grid/CN=Old CA/CN=1").signed(Some(&root));
    refuses(&of_root, &trust, "isn't one of version 3");
    // A user who signs another user.
    let alice = grid.user("Alice User");
    let bob = Wanted::new("/O=Grid/CN=Bob").signed(Some(&alice));
    refuses(&bob, &trust, "isn't verified");
    // A proxy that does.
    let bob = Wanted::new("/O=Grid/CN=Bob").signed(Some(&proxy(&alice, |_| {})));
    refuses(&bob, &trust, "isn't verified");
}

#[test]
fn names_of_proxies_are_those_of_their_issuers_and_one_more() {
    let grid = Grid::new();
    let trust = grid.trust();
    let (alice, bob) = (grid.user("Alice User"), grid.user("Bob"));
    for subject in [
        "/O=Grid/CN=Bob/CN=1",
        "/O=Grid/CN=Alice User",
        "/O=Grid/CN=Alice User/CN=1/CN=2",
        "/O=Grid/CN=Alice User/OU=1",
        "/CN=1",
        "/O=Grid/CN=1",
    ] {
        let bad = by_hand(subject).signed(Some(&alice));
        refuses(&bad, &trust, "name isn't that of its issuer");
    }
    // The right names, and the wrong key.
    let mut forged = by_hand(&format!("{ALICE}/CN=1")).signed(Some(&alice));
    forged.chain[0] = {
        let mut twin = Wanted::new(ALICE);
        twin.key = bob.key.clone();
        twin.signed(Some(&grid.authority)).certificate
    };
    refuses(&forged, &trust, "signature isn't by the key");
    // The wrong issuer.
    let mut forged = proxy(&alice, |_| {});
    forged.chain = all(&bob);
    refuses(&forged, &trust, "isn't the certificate that follows");
    forged.chain.clear();
    refuses(&forged, &trust, "is missing");
    // By name alone it is a user, whom no authority knows.
    let named = Wanted::new("/O=Grid/CN=Bob/CN=proxy").signed(Some(&alice));
    refuses(&named, &trust, "isn't verified");
}

#[test]
fn proxies_with_other_rules_are_refused() {
    let grid = Grid::new();
    let trust = grid.trust();
    let alice = grid.user("Alice User");
    let subject = format!("{ALICE}/CN=1");
    let plain = || Wanted::new(&subject);
    let info = encode_info(false, None);
    let independent = [0x30, 12, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 2];
    let unknown = [0x30, 7, 0x30, 5, 6, 3, 0x2a, 3, 4];
    let mut with_policy = info.clone();
    with_policy.extend([4, 1, b'x']);
    (with_policy[1], with_policy[3]) = (with_policy[1] + 3, with_policy[3] + 3);
    assert_eq!(INDEPENDENT, "1.3.6.1.5.5.7.21.2");
    let san = dns_names(&["host.example.org"]);
    let usage = usage_of(KeyUsage::new().key_encipherment());
    let signs = usage_of(KeyUsage::new().digital_signature().key_cert_sign());
    let authority = BasicConstraints::new().critical().ca().build().unwrap();
    let cases = [
        (
            plain().with(extension(PROXY_INFO, true, &independent)),
            "independent",
        ),
        (
            plain().with(extension(PROXY_INFO, true, &unknown)),
            "language 1.2.3.4",
        ),
        (
            plain().with(extension(PROXY_INFO, true, &with_policy)),
            "has a policy",
        ),
        (
            plain().with(extension(PROXY_INFO, false, &info)),
            "isn't critical",
        ),
        (
            plain().with(extension(PROXY_INFO, true, b"garbage")),
            "malformed",
        ),
        (
            plain().with(extension("1.3.6.1.4.1.3536.1.222", true, &info)),
            "draft",
        ),
        (by_hand(&subject).with(san), "alternative name"),
        (
            by_hand(&subject).with(extension("2.5.29.17", false, b"garbage")),
            "alternative name",
        ),
        (
            by_hand(&subject).with(extension("2.5.29.18", false, b"garbage")),
            "alternative name",
        ),
        (by_hand(&subject).with(usage), "may not make signatures"),
        (
            by_hand(&subject).with(signs),
            "says that it signs certificates",
        ),
        (
            by_hand(&subject).with(authority),
            "says that it is an authority",
        ),
        (
            by_hand(&subject).with(extension("1.2.3.4", true, &[5, 0])),
            "1.2.3.4, which",
        ),
    ];
    for (wanted, why) in cases {
        refuses(&wanted.signed(Some(&alice)), &trust, why);
    }
    // What isn't critical doesn't matter.
    let harmless = by_hand(&subject).with(extension("1.2.3.4", false, &[5, 0]));
    assert!(check(&harmless.signed(Some(&alice)), &trust).is_ok());
    let mut weak = by_hand(&subject);
    weak.key = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    refuses(
        &weak.signed(Some(&alice)),
        &trust,
        "weaker than RSA of 2048",
    );
    let mut weak = by_hand(&subject);
    weak.digest = MessageDigest::sha1();
    refuses(
        &weak.signed(Some(&alice)),
        &trust,
        "digest that is too weak",
    );
    let mut user = Wanted::new(ALICE);
    user.digest = MessageDigest::sha1();
    refuses(&user.signed(Some(&grid.authority)), &trust, "too weak");
    // The algorithm RSASSA-PSS tells its digest by its parameters: without them it is SHA-1.
    let mut weak = by_hand(&subject).signed(Some(&alice));
    weak.certificate = with_weak_pss(&weak.certificate, &alice);
    refuses(&weak, &trust, "digest that is too weak");
    let mut weak = grid.user("Alice User");
    weak.certificate = with_weak_pss(&weak.certificate, &grid.authority);
    refuses(&weak, &trust, "too weak");
    // Both forms in one chain.
    let old = proxy(&alice, |options| options.form = Form::Legacy);
    let mixed = by_hand(&format!("{ALICE}/CN=proxy/CN=1")).signed(Some(&old));
    refuses(&mixed, &trust, "and older ones");
}

/// The same certificate, signed anew by RSASSA-PSS with SHA-1.
fn with_weak_pss(certificate: &X509, issuer: &Credential) -> X509 {
    // As long as the algorithm that it had, with its parameters.
    let names = [
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x00",
    ];
    let mut der = certificate.to_der().unwrap();
    let mut replaced = 0;
    for at in 0..der.len() - names[0].len() {
        if &der[at..at + names[0].len()] == names[0] {
            der[at..at + names[0].len()].copy_from_slice(names[1]);
            replaced += 1;
        }
    }
    assert_eq!(replaced, 2);
    let (_, parsed) = X509Certificate::from_der(&der).unwrap();
    let mut signer = Signer::new(MessageDigest::sha1(), &issuer.key).unwrap();
    signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
    let salt = RsaPssSaltlen::custom(20);
    signer.set_rsa_pss_saltlen(salt).unwrap();
    let signed = parsed.tbs_certificate.as_ref();
    let signature = signer.sign_oneshot_to_vec(signed).unwrap();
    let at = der.len() - signature.len();
    der[at..].copy_from_slice(&signature);
    let weak = X509::from_der(&der).unwrap();
    assert!(weak.verify(&issuer.key).unwrap());
    weak
}

#[test]
fn names_that_look_like_others_are_refused() {
    let grid = Grid::new();
    let trust = grid.trust();
    let alice = grid.user("Alice User");
    // A slash in a value is no new component, so this isn't Alice.
    let mut builder = openssl::x509::X509Name::builder().unwrap();
    builder
        .append_entry_by_text("O", "Grid/CN=Alice User")
        .unwrap();
    let forged = builder.build();
    let shown = |credential: &Credential| check(credential, &trust).map(|peer| peer.name);
    assert_eq!(shown(&alice).unwrap(), ALICE);
    for value in ["Alice\0User", "Alice\nUser", "Alice\x7fUser"] {
        let mut name = openssl::x509::X509Name::builder().unwrap();
        name.append_entry_by_text("O", "Grid").unwrap();
        name.append_entry_by_text("CN", value).unwrap();
        let bad = with_name(&grid, &name.build());
        assert!(shown(&bad).is_err(), "{value:?}");
    }
    grid.set_policy(&grid.authority, "/O=Grid/CN=Test CA", "*");
    let other = shown(&with_name(&grid, &forged)).unwrap();
    assert_eq!(other, "/O=Grid\\x2FCN=Alice User");
    let none = openssl::x509::X509Name::builder().unwrap().build();
    assert!(shown(&with_name(&grid, &none)).is_err());
}

fn with_name(grid: &Grid, name: &openssl::x509::X509NameRef) -> Credential {
    let plain = grid.user("x");
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let serial = plain.certificate.serial_number();
    builder.set_serial_number(serial).unwrap();
    let issuer = grid.authority.certificate.subject_name();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_subject_name(name).unwrap();
    builder
        .set_not_before(plain.certificate.not_before())
        .unwrap();
    builder
        .set_not_after(plain.certificate.not_after())
        .unwrap();
    builder.set_pubkey(&plain.key).unwrap();
    builder
        .sign(&grid.authority.key, MessageDigest::sha256())
        .unwrap();
    Credential {
        certificate: builder.build(),
        ..plain
    }
}

#[test]
fn proxies_are_made_as_asked_or_not_at_all() {
    let grid = Grid::new();
    let alice = grid.user("Alice User");
    // As Globus makes them.
    let old = proxy(&alice, |options| options.form = Form::Legacy);
    let der = old.certificate.to_der().unwrap();
    let (_, parsed) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(parsed.version(), X509Version::V3);
    assert!(parsed.extensions().is_empty());
    for lifetime in [Duration::ZERO, DAY * 4000, Duration::MAX] {
        let options = ProxyOptions {
            lifetime,
            ..ProxyOptions::default()
        };
        let fault = make_proxy(&alice, &options).unwrap_err();
        assert_eq!(fault.code, xdfs_proto::Code::InvalidArgument);
    }
    assert!(
        check(
            &proxy(&alice, |options| options.lifetime = DAY * 3650),
            &grid.trust()
        )
        .is_ok()
    );
}

#[test]
fn requests_are_signed_for_their_own_keys_only() {
    let grid = Grid::new();
    let alice = grid.user("Alice User");
    let (_, request) = crate::issue::request().unwrap();
    let options = ProxyOptions::default();
    assert!(sign_request(&alice, &request, &options).is_ok());
    for end in [0, 1, request.len() / 2, request.len() - 1] {
        assert!(sign_request(&alice, &request[..end], &options).is_err());
    }
    let mut forged = request;
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert!(sign_request(&alice, &forged, &options).is_err());
}

#[test]
fn files_of_credentials_are_read_and_written() {
    let grid = Grid::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy");
    let proxy = proxy(&grid.user("Alice User"), |_| {});
    fs::write(&path, &*proxy.to_pem().unwrap()).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        let fault = Credential::open(&path, &path).unwrap_err();
        assert!(fault.cause.contains("others"), "{fault}");
        mode(0o600);
    }
    let read = Credential::open(&path, &path).unwrap();
    assert_eq!(read.to_der().unwrap(), proxy.to_der().unwrap());
    assert!(check(&read, &grid.trust()).is_ok());
    // A pipe doesn't hold the call, and nothing but proxies is removed.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for fault in [
            Credential::open(&pipe, &pipe).unwrap_err(),
            remove_proxy(&pipe).unwrap_err(),
        ] {
            assert!(fault.cause.contains("regular"), "{fault}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(remove_proxy(&link).is_err());
        let user = grid.user("Bob");
        let key = user.key.private_key_to_pem_pkcs8().unwrap();
        let pem = [user.certificate.to_pem().unwrap(), key].concat();
        fs::write(pipe.with_extension("user"), pem).unwrap();
        assert!(remove_proxy(&pipe.with_extension("user")).is_err());
        // Others may have read it, so it is time to remove it. Another name of it shows what was
        // left of the bytes.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let other = folder.path().join("other");
        fs::hard_link(&path, &other).unwrap();
        remove_proxy(&path).unwrap();
        assert!(!path.exists());
        let left = fs::read(&other).unwrap();
        assert!(left.len() > 1000 && left.iter().all(|byte| *byte == 0));
    }
    // A key of somebody else, and files that lack something.
    let pem = |of: &Credential| of.certificate.to_pem().unwrap();
    let key = |of: &Credential| of.key.private_key_to_pem_pkcs8().unwrap();
    let bob = grid.user("Bob");
    assert!(Credential::parse(&pem(&proxy), &key(&bob)).is_err());
    assert!(Credential::parse(&pem(&bob), &pem(&bob)).is_err());
    assert!(Credential::parse(&key(&bob), &key(&bob)).is_err());
    assert!(Credential::parse(b"", b"").is_err());
    let hidden = bob
        .key
        .private_key_to_pem_pkcs8_passphrase(openssl::symm::Cipher::aes_256_cbc(), b"x")
        .unwrap();
    assert!(Credential::parse(&pem(&bob), &hidden).is_err());
    let shown = format!("{proxy:?}");
    assert!(
        !shown.contains("PRIVATE") && shown.contains("Alice"),
        "{shown}"
    );
}
