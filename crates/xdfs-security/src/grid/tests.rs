//! Tests of `grid`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, DnValue, IsCa, KeyPair,
};
use rustls::RootCertStore;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;

use super::*;

const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const DC: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const T61: u8 = 0x14;
const IA5: u8 = 0x16;
const BMP: u8 = 0x1e;

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let mut out = vec![tag];
    match body.len() {
        0..=0x7f => out.push(length[1]),
        0x80..=0xff => out.extend([0x81, length[1]]),
        _ => out.extend([0x82, length[0], length[1]]),
    }
    out.extend(body);
    out
}

/// An attribute: its OID, the tag of its value, its value.
type Attribute<'a> = (&'a [u8], u8, &'a [u8]);

/// A certificate with any subject, even those that certificate generators refuse. It has no valid
/// signature, which is TLS's concern.
fn certificate_of_sets(subject: &[&[Attribute<'_>]]) -> Vec<u8> {
    let sets: Vec<Vec<u8>> = subject
        .iter()
        .map(|set| {
            let attributes: Vec<Vec<u8>> = set
                .iter()
                .map(|(oid, tag, value)| der(0x30, &[&der(6, &[oid]), &der(*tag, &[value])]))
                .collect();
            let attributes: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
            der(0x31, &attributes)
        })
        .collect();
    certificate_of_name(&sets.concat())
}

/// A certificate whose subject has this content.
fn certificate_of_name(name: &[u8]) -> Vec<u8> {
    let algorithm = der(0x30, &[&der(6, &[&[0x2b, 0x65, 0x70]])]);
    let time = der(0x17, &[b"300101000000Z"]);
    let key = der(3, &[&[0], &[7; 32]]);
    let body = der(
        0x30,
        &[
            &der(0xa0, &[&der(2, &[&[2]])]),
            &der(2, &[&[1]]),
            &algorithm,
            &der(0x30, &[]),
            &der(0x30, &[&time, &time]),
            &der(0x30, &[name]),
            &der(0x30, &[&algorithm, &key]),
        ],
    );
    der(0x30, &[&body, &algorithm, &der(3, &[&[0], &[9; 64]])])
}

fn certificate(subject: &[Attribute<'_>]) -> Vec<u8> {
    let sets: Vec<&[Attribute<'_>]> = subject.iter().map(std::slice::from_ref).collect();
    certificate_of_sets(&sets)
}

fn name_of(subject: &[Attribute<'_>]) -> Result<String, Fault> {
    distinguished_name(&certificate(subject))
}

/// A real certificate for `common_name`.
fn real(common_name: &str, extension: Option<&[u64]>) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(
        DnType::CountryName,
        DnValue::PrintableString("CH".try_into().unwrap()),
    );
    name.push(DnType::OrganizationName, "Example");
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    if let Some(oid) = extension {
        let extension = CustomExtension::from_oid_content(oid, vec![0x30, 0]);
        params.custom_extensions.push(extension);
    }
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().clone()
}

#[test]
fn subjects_in_one_line() {
    let subject = [
        (DC, IA5, &b"org"[..]),
        (DC, IA5, b"example"),
        (CN, UTF8, b"Jane Doe"),
    ];
    assert_eq!(name_of(&subject).unwrap(), "/DC=org/DC=example/CN=Jane Doe");
    let unknown = [
        (&[0x2a, 3, 4][..], UTF8, &b"x"[..]),
        (CN, PRINTABLE, b"a=b"),
    ];
    assert_eq!(name_of(&unknown).unwrap(), "/1.2.3.4=x/CN=a=b");
    let certificate = real("Jos\u{e9} \"J\" a\\b host/x", None);
    assert_eq!(
        distinguished_name(&certificate).unwrap(),
        r"/C=CH/O=Example/CN=Jos\xC3\xA9 \x22J\x22 a\x5Cb host\x2Fx"
    );
}

#[test]
fn the_kind_of_text_doesnt_count() {
    for tag in [UTF8, PRINTABLE, IA5] {
        assert_eq!(name_of(&[(CN, tag, b"jane")]).unwrap(), "/CN=jane");
    }
}

#[test]
fn no_value_looks_like_a_component() {
    let honest = name_of(&[(O, UTF8, b"a"), (CN, UTF8, b"b")]).unwrap();
    for forged in [
        &b"a/CN=b"[..],
        b"a\\x2FCN=b",
        "a\u{2215}CN=b".as_bytes(),
        "a\u{ff0f}CN=b".as_bytes(),
    ] {
        let forged = name_of(&[(O, UTF8, forged)]).unwrap();
        assert_ne!(forged, honest);
        assert_eq!(forged.matches('/').count(), 1, "{forged}");
    }
    let escaped = name_of(&[(O, UTF8, b"a/b")]).unwrap();
    let literal = name_of(&[(O, UTF8, b"a\\x2Fb")]).unwrap();
    assert_eq!(
        (escaped.as_str(), literal.as_str()),
        (r"/O=a\x2Fb", r"/O=a\x5Cx2Fb")
    );
}

#[test]
fn odd_subjects_are_refused() {
    let text = &b"jane"[..];
    let cases: [(&str, Attribute<'_>); 12] = [
        ("NUL", (CN, UTF8, b"jane\0.evil")),
        ("line feed", (CN, UTF8, b"jane\n")),
        ("DEL", (CN, IA5, b"jane\x7f")),
        ("not UTF-8", (CN, UTF8, b"jan\xe9")),
        ("not ASCII", (CN, IA5, b"jan\xe9")),
        (
            "UTF-8 as printable",
            (CN, PRINTABLE, "jan\u{e9}".as_bytes()),
        ),
        ("T61", (CN, T61, text)),
        ("BMP", (CN, BMP, b"\0j\0a")),
        ("a number", (CN, 2, b"\x01")),
        ("another class", (CN, 0x8c, text)),
        ("constructed", (CN, 0x2c, b"\x0c\x01a")),
        ("an OID with zeros", (&[0x55, 0x80, 4, 3], UTF8, text)),
    ];
    for (what, attribute) in cases {
        let fault = name_of(&[(O, UTF8, b"x"), attribute]).unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed, "{what}");
    }
    assert!(name_of(&[]).unwrap_err().cause.contains("empty"));
    let many = vec![(CN, UTF8, text); 65];
    assert!(name_of(&many[1..]).is_ok());
    assert!(name_of(&many).is_err());
    let set: [Attribute<'_>; 2] = [(O, UTF8, text), (CN, UTF8, text)];
    let fault = distinguished_name(&certificate_of_sets(&[&set])).unwrap_err();
    assert!(fault.cause.contains("set of attributes"));
}

/// A component behind one that the parser doesn't understand is part of the name all the same.
#[test]
fn no_component_hides_behind_another() {
    let component = |value: &[u8]| {
        let attribute = der(0x30, &[&der(6, &[CN]), &der(UTF8, &[value])]);
        der(0x31, &[&attribute])
    };
    let (alice, mallory) = (component(b"Alice"), component(b"Mallory"));
    let fine = certificate_of_name(&[&alice[..], &mallory].concat());
    assert_eq!(distinguished_name(&fine).unwrap(), "/CN=Alice/CN=Mallory");
    let attribute = &alice[2..];
    for (what, odd) in [
        ("an empty set", vec![0x31, 0]),
        (
            "an indefinite length",
            [&[0x31, 0x80], attribute, &[0, 0]].concat(),
        ),
        (
            "a long length",
            [&[0x31, 0x81, attribute.len() as u8], attribute].concat(),
        ),
        ("a sequence", der(0x30, &[attribute])),
        ("garbage", vec![0x31, 0x7f, 1]),
        (
            "bytes behind the attribute",
            der(0x31, &[attribute, &[5, 0]]),
        ),
        (
            "bytes behind the value",
            der(0x31, &[&der(0x30, &[&attribute[2..], &[5, 0]])]),
        ),
    ] {
        for name in [
            [&alice[..], &odd, &mallory].concat(),
            [&alice[..], &odd].concat(),
            [&odd[..], &alice].concat(),
        ] {
            let named = distinguished_name(&certificate_of_name(&name));
            assert!(named.is_err(), "{what}: {named:?}");
        }
    }
}

#[test]
fn damaged_certificates_are_refused() {
    let good = certificate(&[(CN, UTF8, b"jane")]);
    for end in 0..good.len() {
        assert!(distinguished_name(&good[..end]).is_err(), "{end}");
    }
    assert!(distinguished_name(&[&good[..], b"x"].concat()).is_err());
    assert!(distinguished_name(&vec![0x30; 64 * 1024 + 1]).is_err());
}

#[test]
fn grid_maps() {
    let map = GridMap::parse(
        b"# users\r\n\n  \t\n\
          \"/DC=org/CN=Jane Doe\" jane,backup\r\n\
          \t\"/DC=org/CN=host\\x2fdata\"\t transfer  # the mover\n\
          \"/CN=a\\\"b\\\\c\\/d\\x41\" odd\n\
          \"/CN=Jos\xc3\xa9\" jose\n\
          \"/DC=org/CN=Jane Doe\" extra,jane\n\
          \"/CN=#x\" hash\n\
          /DC=org/CN=bare\tbare # no spaces",
    )
    .unwrap();
    let first = |subject: &str| map.user_for(subject, None);
    assert_eq!(first("/DC=org/CN=Jane Doe"), Some("jane"));
    assert_eq!(first(r"/DC=org/CN=host\x2Fdata"), Some("transfer"));
    assert_eq!(first("/DC=org/CN=host/data"), None);
    assert_eq!(first(r"/CN=a\x22b\x5Cc\x2FdA"), Some("odd"));
    assert_eq!(first(r"/CN=Jos\xC3\xA9"), Some("jose"));
    assert_eq!(first("/CN=#x"), Some("hash"));
    assert_eq!(first("/DC=org/CN=bare"), Some("bare"));
    for other in [
        "",
        "/DC=org",
        "/DC=org/CN=jane doe",
        "/DC=org/CN=Jane Doe/CN=proxy",
    ] {
        assert_eq!(first(other), None, "{other}");
    }
    for (wanted, user) in [
        ("jane", Some("jane")),
        ("backup", Some("backup")),
        ("extra", Some("extra")),
        ("root", None),
        ("", None),
        ("jane,backup", None),
    ] {
        assert_eq!(
            map.user_for("/DC=org/CN=Jane Doe", Some(wanted)),
            user,
            "{wanted}"
        );
    }
    assert!(!format!("{map:?}").contains("Jane"));
    assert_eq!(GridMap::parse(b"").unwrap(), GridMap::default());
}

#[test]
fn damaged_lines_are_named() {
    for line in [
        "CN=a user",
        "/CN=a",
        "/CN=a b user",
        "/CN=a\" user",
        "\"/CN=a",
        "\"/CN=a\\\"",
        "\"/CN=a\" ",
        "\"/CN=a\"",
        "\"/CN=a\"user",
        "\"/CN=a\" user other",
        "\"/CN=a\" user, other",
        "\"/CN=a\" user,",
        "\"/CN=a\" ,user",
        "\"/CN=a\" # user",
        "\"/CN=a\" .pool",
        "\"/CN=a\" anonymous",
        "\"/CN=a\" ../x",
        "\"/CN=a\" us\u{e9}r",
        "\"/CN=a\\n\" user",
        "\"/CN=a\\x4\" user",
        "\"/CN=a\\xg1\" user",
        "\"/CN=a\\x00\" user",
        "\"/CN=a\0\" user",
        "\"/CN=a\tb\" user",
        "\"\" user",
        "\"/\" user",
        "\"CN=a\" user",
        "\"CN=a,O=b\" user",
        "\"/a\" user",
        "\"/=a\" user",
        "\"/CN=a//O=b\" user",
        "\"/CN=a/\" user",
        "\"/C N=a\" user",
        "'/CN=a' user",
        "\u{feff}\"/CN=a\" user",
    ] {
        let file = format!("# a comment\n\"/CN=good\" good\n{line}\n\"/CN=b\" b\n");
        let fault = GridMap::parse(file.as_bytes()).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{line}");
        assert!(
            fault.cause.starts_with("line 3: "),
            "{line}: {}",
            fault.cause
        );
    }
    let long = vec![b'\n'; MAX_GRID_MAP_BYTES + 1];
    assert!(GridMap::parse(&long[1..]).is_ok());
    assert!(GridMap::parse(&long).unwrap_err().cause.contains("longer"));
}

#[test]
fn authentication() {
    let map = GridMap::parse(b"\"/C=CH/O=Example/CN=Jane\" jane,backup").unwrap();
    let jane = real("Jane", None);
    let user = |chain: &[CertificateDer<'_>], wanted| {
        let principal = authenticate(chain, &map, wanted);
        principal.map_err(|f| {
            assert_eq!(f.code, Code::AuthenticationFailed);
            f.cause
        })
    };
    let chain = [jane.clone(), real("authority", None)];
    let principal = user(&chain, None).unwrap();
    assert_eq!(principal.user, "jane");
    assert_eq!(principal.method, Method::Certificate);
    assert!(principal.scopes.is_empty());
    assert_eq!(user(&chain, Some("backup")).unwrap().user, "backup");
    let cause = user(&chain, Some("root")).unwrap_err();
    assert!(cause.contains("requested"), "{cause}");
    assert!(user(&[], None).unwrap_err().contains("no certificate"));
    let cause = user(&[real("Bob", None), jane.clone()], None).unwrap_err();
    assert!(cause.contains("/C=CH/O=Example/CN=Bob"), "{cause}");
    assert!(user(&[CertificateDer::from(vec![1, 2, 3])], None).is_err());

    // A proxy with the mapped subject; its name can be read nevertheless.
    for oid in [
        &[1, 3, 6, 1, 5, 5, 7, 1, 14][..],
        &[1, 3, 6, 1, 4, 1, 3536, 1, 222],
    ] {
        let proxy = real("Jane", Some(oid));
        assert!(distinguished_name(&proxy).is_ok());
        assert!(user(&[proxy], None).unwrap_err().contains("proxy"));
    }
}

/// The behaviour of rustls that the documentation states.
#[test]
fn tls_refuses_proxies() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut authority = params("authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let jane = params("jane");
    let jane = CertifiedIssuer::signed_by(jane, KeyPair::generate().unwrap(), &authority).unwrap();
    let signed = |params: CertificateParams, issuer: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, issuer).unwrap().der().clone()
    };
    let marked = |name| {
        let oid = [1, 3, 6, 1, 5, 5, 7, 1, 14];
        let mut extension = CustomExtension::from_oid_content(&oid, vec![0x30, 0]);
        extension.set_criticality(true);
        let mut params = params(name);
        params.custom_extensions.push(extension);
        params
    };

    let mut roots = RootCertStore::empty();
    roots.add(authority.as_ref().der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let verify = |first: &CertificateDer<'_>, more: &[CertificateDer<'_>]| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        verifier.verify_client_cert(first, more, now).map(|_| ())
    };
    let own = jane.as_ref().der().clone();
    assert_eq!(verify(&own, &[]), Ok(()));
    // Those of RFC 3820, and earlier ones, which were identified by their names.
    for params in [marked("1234"), params("proxy")] {
        let proxy = signed(params, &jane);
        assert!(verify(&proxy, std::slice::from_ref(&own)).is_err());
    }
    assert!(
        verify(&signed(marked("jane"), &authority), &[]).is_err(),
        "the extension alone"
    );
}

#[test]
fn a_map_follows_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grid-mapfile");
    assert!(GridMapFile::open(&path).is_err());
    fs::write(&path, "\"/CN=a\" jane\n").unwrap();
    let file = GridMapFile::open(&path).unwrap();
    let user = |now| {
        let map = file.current(now);
        map.user_for("/CN=a", None).map(str::to_owned)
    };
    assert_eq!(user(1).as_deref(), Some("jane"));
    fs::write(&path, "\"/CN=a\" bobby\n").unwrap();
    assert_eq!(user(1).as_deref(), Some("jane"), "at most once a second");
    assert_eq!(user(2).as_deref(), Some("bobby"));
    // A malformed line doesn't keep those in who were taken out by the same change.
    fs::write(&path, "\"/CN=a\" bob and more\n\"/CN=b\" jane\n").unwrap();
    assert_eq!(user(3), None);
    let map = file.current(3);
    assert_eq!(map.user_for("/CN=b", None), Some("jane"));
    fs::write(&path, "what is this\n\"/CN=a\" jane").unwrap();
    assert_eq!(user(4).as_deref(), Some("jane"));
    // A file that can't be read has nobody, until it can.
    fs::remove_file(&path).unwrap();
    assert_eq!(user(5), None);
    fs::write(&path, "\"/CN=a\" jane\n").unwrap();
    assert_eq!(user(6).as_deref(), Some("jane"));
    fs::write(&path, vec![b'#'; MAX_GRID_MAP_BYTES + 1]).unwrap();
    assert_eq!(user(7), None);
    fs::write(&path, "# nobody\n").unwrap();
    assert_eq!(user(8), None);
    // At the start it is an error.
    fs::write(&path, "what is this\n\"/CN=a\" jane").unwrap();
    assert!(GridMapFile::open(&path).is_err());
}

fn subject() -> impl Strategy<Value = Vec<(bool, String)>> {
    // Few characters, so that collisions would be found.
    prop::collection::vec((any::<bool>(), "[/\\\\=CNOx2F\"\u{e9}]{0,8}"), 1..4)
}

fn line_of(subject: &[(bool, String)]) -> String {
    let attributes: Vec<Attribute<'_>> = subject
        .iter()
        .map(|(common, value)| (if *common { CN } else { O }, UTF8, value.as_bytes()))
        .collect();
    name_of(&attributes).unwrap()
}

/// The subject of a line, by the rules documented in the module `name` only.
fn read_back(line: &str) -> Vec<(bool, String)> {
    let mut components = line.split('/');
    assert_eq!(components.next(), Some(""));
    components
        .map(|component| {
            let (kind, value) = component.split_once('=').unwrap();
            let mut pieces = value.split("\\x");
            let mut bytes = pieces.next().unwrap().as_bytes().to_vec();
            for piece in pieces {
                bytes.push(u8::from_str_radix(&piece[..2], 16).unwrap());
                bytes.extend(piece[2..].bytes());
            }
            assert!(["CN", "O"].contains(&kind));
            (kind == "CN", String::from_utf8(bytes).unwrap())
        })
        .collect()
}

proptest! {
    #[test]
    fn a_line_can_be_read_back(subject in subject()) {
        // So no other subject has this line.
        prop_assert_eq!(read_back(&line_of(&subject)), subject);
    }

    #[test]
    fn a_line_stands_for_itself_in_a_map(subject in subject()) {
        let line = line_of(&subject);
        let map = GridMap::parse(format!("\"{line}\" jane").as_bytes()).unwrap();
        prop_assert_eq!(map.user_for(&line, None), Some("jane"));
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..256),
        text in "[\"/\\\\=,# \nCNx2]{0,64}",
    ) {
        let _ = distinguished_name(&bytes);
        let _ = GridMap::parse(&bytes);
        let _ = GridMap::parse(text.as_bytes());
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut der = certificate(&[(DC, IA5, b"org"), (CN, UTF8, b"jane")]);
        let at = at.index(der.len());
        der[at] = to;
        let _ = distinguished_name(&der);
    }
}
