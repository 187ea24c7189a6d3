//! Tests of `known_hosts`.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;
use xdfs_proto::fault::Code;

use super::*;
use crate::identity::Fingerprint;

const HOST: &str = "server.example:7070";

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xdfs/known_hosts");
    (folder, path)
}

fn print(byte: u8) -> Fingerprint {
    Fingerprint([byte; 32])
}

fn written(text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let (folder, path) = file();
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn hosts_are_added_found_and_removed() {
    let (_folder, path) = file();
    let mut hosts = KnownHosts::load(&path).unwrap();
    assert!(hosts.lookup(HOST).is_empty());
    assert!(hosts.add(HOST, print(1), "of the lab").unwrap());
    assert!(!hosts.add(HOST, print(1), "again").unwrap());
    assert!(hosts.add("Server.Example:7070", print(2), "").unwrap());
    assert!(hosts.add("[2001:db8::1]:1", print(3), "").unwrap());

    let mut other = KnownHosts::load(&path).unwrap();
    assert_eq!(other.lookup(HOST), [print(1), print(2)]);
    assert_eq!(other.lookup("server.example:7071"), []);
    assert_eq!(other.list().next().unwrap().comment, "of the lab");
    assert_eq!(other.remove(HOST).unwrap(), 2);
    assert_eq!(other.remove(HOST).unwrap(), 0);
    assert_eq!(other.lookup(HOST), []);
    assert_eq!(KnownHosts::load(&path).unwrap().list().count(), 1);
    // An outdated one learns the changes of others.
    hosts.add(HOST, print(4), "").unwrap();
    assert_eq!(hosts.lookup(HOST), [print(4)]);
}

#[test]
fn removing_from_no_file_makes_none() {
    let (_folder, path) = file();
    let mut hosts = KnownHosts::load(&path).unwrap();
    assert_eq!(hosts.remove(HOST).unwrap(), 0);
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn what_people_wrote_stays() {
    let one = print(1);
    let text = format!("# machines\n\n  A.example:1\t {one}   two  words\r\n#end");
    let (_folder, path) = written(text);
    let mut hosts = KnownHosts::load(&path).unwrap();
    assert_eq!(hosts.lookup("a.example:1"), [one]);
    assert_eq!(hosts.list().next().unwrap().comment, "two  words");
    hosts.add(HOST, print(2), "").unwrap();
    let expected = format!(
        "# machines\n\n  A.example:1\t {one}   two  words\n#end\n{HOST} {}\n",
        print(2)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    hosts.remove("A.EXAMPLE:1").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# machines\n\n#end\n"), "{text}");
}

#[test]
fn a_damaged_line_is_named_by_its_number() {
    let good = format!("{HOST} {}", print(1));
    let one = print(1);
    for bad in [
        b"garbage".to_vec(),
        b"server.example:7070".to_vec(),
        b"server.example:7070 SHA256:short".to_vec(),
        format!("server.example {one}").into_bytes(),
        format!("server.example:70700 {one}").into_bytes(),
        format!("server.example:+1 {one}").into_bytes(),
        format!("server.example:007 {one}").into_bytes(),
        format!("*:1 {one}").into_bytes(),
        format!(":1 {one}").into_bytes(),
        format!("2001:db8::1:1 {one}").into_bytes(),
        format!("[2001:db8:0::1]:1 {one}").into_bytes(),
        format!("{HOST} {one}x").into_bytes(),
        b"\xff\xfe".to_vec(),
        vec![0; 100],
    ] {
        let mut text = format!("# begin\n{good}\n").into_bytes();
        text.extend(&bad);
        text.extend(format!("\n{good}\n").bytes());
        let (_folder, path) = written(&text);
        let fault = KnownHosts::load(&path).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(fault.cause.starts_with("line 3:"), "{fault}");
    }
}

#[test]
fn a_writer_does_not_touch_a_file_that_got_damaged() {
    let (_folder, path) = file();
    let mut hosts = KnownHosts::load(&path).unwrap();
    hosts.add(HOST, print(1), "").unwrap();
    fs::write(&path, "garbage").unwrap();
    assert!(hosts.add(HOST, print(2), "").is_err());
    assert!(hosts.remove(HOST).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "garbage");
}

#[test]
fn the_length_is_bounded() {
    let (_folder, path) = written(vec![b'#'; (1 << 20) + 1]);
    let fault = KnownHosts::load(&path).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);

    let (_folder, path) = written(vec![b'#'; (1 << 20) - 10]);
    let mut hosts = KnownHosts::load(&path).unwrap();
    let fault = hosts.add(HOST, print(1), "").unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);
    assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 20) - 10);
}

#[test]
fn a_line_cannot_be_smuggled_in() {
    let (_folder, path) = file();
    let mut hosts = KnownHosts::load(&path).unwrap();
    for host in ["a:1\nb:2", "a b:1", "#a:1", "a", "", "a:1 "] {
        assert!(hosts.add(host, print(1), "").is_err(), "{host}");
    }
    assert!(hosts.add(HOST, print(1), "x\nb:2").is_err());
    assert!(hosts.add(HOST, print(1), &"x".repeat(257)).is_err());
    assert!(!path.exists());
}

#[test]
fn nothing_is_lost_when_eight_write_at_once() {
    let (_folder, path) = file();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let path = &path;
            scope.spawn(move || {
                let mut hosts = KnownHosts::load(path).unwrap();
                for n in 0..8 {
                    let host = format!("host{n}.example:{thread}");
                    assert!(hosts.add(&host, print(thread), "").unwrap());
                }
            });
        }
    });
    let hosts = KnownHosts::load(&path).unwrap();
    assert_eq!(hosts.list().count(), 64);
    for thread in 0..8_u8 {
        for n in 0..8 {
            let host = format!("host{n}.example:{thread}");
            assert_eq!(hosts.lookup(&host), [print(thread)]);
        }
    }
}

#[cfg(unix)]
#[test]
fn the_file_is_private_and_links_to_it_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path) = file();
    KnownHosts::load(&path)
        .unwrap()
        .add(HOST, print(1), "")
        .unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    KnownHosts::load(&link)
        .unwrap()
        .add(HOST, print(2), "")
        .unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let hosts = KnownHosts::load(&path).unwrap();
    assert_eq!(hosts.lookup(HOST), [print(1), print(2)]);
}

#[test]
fn each_host_has_one_name() {
    for (host, expected) in [
        ("Server.Example.", "server.example:7"),
        ("localhost", "localhost:7"),
        ("my_host", "my_host:7"),
        ("192.0.2.1", "192.0.2.1:7"),
        ("2001:DB8:0:0::1", "[2001:db8::1]:7"),
        ("[::1]", "[::1]:7"),
        ("fe80::1%eth0", "[fe80::1%eth0]:7"),
    ] {
        assert_eq!(host_port(host, 7).unwrap(), expected);
        assert!(host::is_host_port(expected));
        server_name(host).unwrap();
    }
    for bad in [
        "",
        ".",
        "a b",
        "a\nb",
        "a:b",
        "a%b",
        "192.0.2.1%eth0",
        "fe80::1%",
        "fe80::1%a b",
        "[",
        "n\u{e4}me",
        &"a".repeat(254),
    ] {
        assert!(host_port(bad, 7).is_err(), "{bad}");
    }
    for bad in ["", "a b", "a%b", "192.0.2.1%eth0", "n\u{e4}me", "-"] {
        assert!(server_name(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_file_is_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_folder, path) = written(text);
        let _ = KnownHosts::load(&path);
    }

    #[test]
    fn no_host_is_a_panic(host in ".{0,40}") {
        let _ = server_name(&host);
        if let Ok(name) = host_port(&host, 1) {
            prop_assert!(host::is_host_port(&name));
        }
    }
}
