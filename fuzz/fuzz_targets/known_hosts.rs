//! The file of known hosts, from any bytes: a line is a host and its key, and none is skipped.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_security::trust::{KnownHost, KnownHosts};

const FINGERPRINT: &str = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn parse(content: &[u8]) -> Option<KnownHosts> {
    match KnownHosts::parse(Path::new("known"), content) {
        Ok(hosts) => Some(hosts),
        Err(fault) => {
            assert_eq!(fault.code, Code::InvalidArgument);
            assert!(fault.cause.starts_with("line "));
            None
        }
    }
}

fn all(hosts: &KnownHosts) -> Vec<KnownHost> {
    hosts.list().cloned().collect()
}

fuzz_target!(|data: &[u8]| {
    // Mutations don't make a fingerprint.
    let data = String::from_utf8_lossy(data).replace('%', FINGERPRINT);
    let Some(hosts) = parse(data.as_bytes()) else {
        return;
    };
    let meant = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    let list = all(&hosts);
    assert_eq!(data.split('\n').filter(meant).count(), list.len());
    for known in &list {
        assert_eq!(known.host, known.host.to_ascii_lowercase());
        assert!(!known.host.contains(char::is_whitespace) && known.host.contains(':'));
        assert!(hosts.lookup(&known.host).contains(&known.fingerprint));
        let of_host = list.iter().filter(|other| other.host == known.host);
        assert_eq!(of_host.count(), hosts.lookup(&known.host).len());
        let line = format!("{} {} {}", known.host, known.fingerprint, known.comment);
        let again = all(&parse(line.as_bytes()).expect("what was read can be written"));
        assert_eq!(again, [known.clone()]);
    }
    assert!(hosts.lookup("").is_empty());
});
