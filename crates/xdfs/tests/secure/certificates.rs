//! Clients that show a certificate.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use xdfs::Code;
use xdfs::security::Credential;

use crate::world::{Over, World, assert_same, over_both};

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

pub(crate) fn authority(common_name: &str) -> Authority {
    let mut params = params(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a key that nobody else may read.
pub(crate) fn write_key(path: &Path, key: &KeyPair) {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).unwrap();
    std::io::Write::write_all(&mut file, key.serialize_pem().as_bytes()).unwrap();
}

/// A certificate of the subject `/CN=name`, good until the year begins.
fn certificate(folder: &Path, file: &str, name: &str, by: &Authority, until: i32) -> Credential {
    let (chain, path) = (
        folder.join(format!("{file}.crt")),
        folder.join(format!("{file}.pem")),
    );
    let mut params = params(name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    fs::write(&chain, params.signed_by(&key, by).unwrap().pem()).unwrap();
    write_key(&path, &key);
    Credential::Certificate { chain, key: path }
}

fn world(by: &Authority, over: Over) -> World {
    over.world_with(|security, folder| {
        let (authorities, map) = (folder.join("server/clients.crt"), folder.join("server/map"));
        fs::write(&authorities, by.as_ref().pem()).unwrap();
        fs::write(&map, "\"/CN=Jane Doe\" jane,transfer\n").unwrap();
        security.client_authorities = Some((authorities, map));
        security.audit = Some(folder.join("audit"));
    })
}

#[test]
fn the_grid_map_says_who_a_certificate_stands_for() {
    over_both(|over| {
        let by = authority("authority");
        let world = world(&by, over);
        let jane = certificate(&world.path("client"), "jane", "Jane Doe", &by, 2100);
        let source = world.source(3_000_000);
        for (user, channels) in [("", 1), ("transfer", 12)] {
            let visit = world.visit(user, vec![jane.clone()]).channels(channels);
            visit.upload(&source, "copy").unwrap();
            assert_same(&source, &world.path("root/copy"));
        }
        let log = fs::read_to_string(world.path("audit")).unwrap();
        for user in ["jane", "transfer"] {
            let part = format!("\"user\":\"{user}\",\"method\":\"certificate\"");
            assert!(log.contains(&part), "{log}");
        }
        // It isn't mapped to any other.
        let visit = world.visit("owner", vec![jane]);
        let fault = visit.upload(&source, "other").unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
        // A subject that the map doesn't have, and nothing shown at all.
        let john = certificate(&world.path("client"), "john", "John Doe", &by, 2100);
        let fault = world
            .visit("jane", vec![john])
            .upload(&source, "other")
            .unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
        if over == Over::Tcp {
            let mut raw = crate::raw::Raw::open(world.addr, &world.trust());
            let fault = crate::raw::refused_auth(&mut raw, 6, "jane", b"");
            assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
        }
        assert!(!world.path("root/other").exists());
    });
}

#[test]
fn certificates_of_another_authority_and_expired_ones_are_refused() {
    over_both(|over| {
        let by = authority("authority");
        let other = authority("another");
        // It says that it is the one, and has another key.
        let double = authority("authority");
        let world = world(&by, over);
        let folder = world.path("client");
        let source = world.source(10);
        for bad in [
            certificate(&folder, "foreign", "Jane Doe", &other, 2100),
            certificate(&folder, "forged", "Jane Doe", &double, 2100),
            certificate(&folder, "expired", "Jane Doe", &by, 2021),
        ] {
            for channels in [1, 4] {
                let visit = world.visit("", vec![bad.clone()]).channels(channels);
                let fault = visit.upload(&source, "copy").unwrap_err();
                assert_eq!(fault.code, Code::AuthenticationFailed, "{fault:?}");
            }
        }
        world.nothing_published();
    });
}
