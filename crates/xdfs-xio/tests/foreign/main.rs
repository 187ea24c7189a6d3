//! Drivers in shared libraries, real ones: built from C here, loaded, and misbehaving in every way
//! that can be noticed. `tests/behaviour.rs` runs its cases over those that keep the rules.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use xdfs_xio::{ControlValue, Endpoint, LoadError, Property, Registry, Role, Stack, Stream};

#[path = "../support/library.rs"]
mod library;

const HOSTILE: &str = "crates/xdfs-xio/tests/foreign/hostile.c";
const FRAMES: &str = "crates/xdfs-xio/tests/foreign/frames.c";
const ROT47: &str = "examples/driver-c/rot47.c";
const NO_COMPILER: &str = "this machine has no C compiler";

/// A library that nothing is wrong with.
static GOOD: LazyLock<Option<PathBuf>> = LazyLock::new(|| library::build(HOSTILE, &[]));

/// Returns early, and tells why, where there is no compiler.
macro_rules! built {
    ($library:expr) => {
        match $library {
            Some(library) => library,
            None => return xdfs_testkit::skip::test(NO_COMPILER),
        }
    };
}

fn load(path: &Path) -> Result<Registry, LoadError> {
    Registry::standard().load(path)
}

#[test]
fn a_driver_of_a_library_is_one_like_others() {
    let path = built!(library::build(ROT47, &[]));
    let registry = load(&path).unwrap();
    let driver = registry.driver("rot47").unwrap();
    assert_eq!((driver.role(), driver.form()), (Role::Transform, None));
    assert_eq!(driver.attributes()[0].takes, "a number from 1 to 93");
    assert_eq!(driver.needed(), [Property::Order]);
    assert_eq!(driver.file(), Some(&*path.canonicalize().unwrap()));
    for (text, wanted) in [
        (
            "tcp,rot47:to=1",
            "unknown attribute 'to'; the driver 'rot47' has by (a number from 1 to 93)",
        ),
        (
            "tcp,rot47:by=94",
            "invalid value in 'rot47:by=94'; expected a number from 1 to 93",
        ),
        (
            "tcp,rot47:by=1%002",
            "invalid value in 'rot47:by=1\u{0}2'; expected a number from 1 to 93",
        ),
        (
            "rot47",
            "a stack begins with a transport (file, memory, process, quic, stdio, tcp, udp, \
             unix), and 'rot47' is a transform",
        ),
    ] {
        let error = registry.build(&text.parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), wanted, "{text}");
    }
}

/// What the driver makes of bytes, as a peer without it sees them.
#[test]
fn its_functions_make_the_bytes() {
    let path = built!(library::build(ROT47, &[]));
    let registry = load(&path).unwrap();
    let build = |text: &str| registry.build(&text.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory("rot47-bytes");
    let mut listener = build("memory").listen(&endpoint).unwrap();
    for (text, wanted) in [
        ("memory,rot47", b"w6==@ \xff"),
        ("memory,rot47:by=1", b"Ifmmp \xff"),
        ("memory,rot47:by=1,rot47:by=93", b"Hello \xff"),
    ] {
        let mut client = build(text).open(&endpoint).unwrap();
        let mut server = listener.accept().unwrap();
        let content = [IoSlice::new(b"Hel"), IoSlice::new(b"lo \xff")];
        assert_eq!(client.write_vectored(&content).unwrap(), 7);
        assert_eq!(read(&mut *server, 7), wanted, "{text}");
        server.write_vectored(&[IoSlice::new(wanted)]).unwrap();
        assert_eq!(read(&mut *client, 7), b"Hello \xff");
        let bytes = client.control("rot47.bytes");
        assert_eq!(bytes, Some(ControlValue::Text("7".to_owned())));
    }
}

#[test]
fn a_table_that_cannot_be_right_is_refused() {
    let bits = "its table has bits that this version doesn't know";
    let name = "the name of the driver isn't a lower case letter";
    let attribute = "the name of an attribute isn't";
    for (macros, wanted) in [
        ("UNEXPORTED", "it exports no function xdfs_xio_driver"),
        ("UNRESOLVED", "nobody_defines_this"),
        ("TABLE=0", "its function xdfs_xio_driver returns no table"),
        (
            "TABLE=(const void*)((const char*)&driver+1)",
            "its function xdfs_xio_driver returns no table",
        ),
        ("FIELDS=.version=0,", "it has version 0 of the interface"),
        ("FIELDS=.version=2,", "it has version 2 of the interface"),
        ("FIELDS=.size=8,", "its table has 8 bytes, not "),
        ("FIELDS=.role=2,", "its role is not that of a transform"),
        ("FIELDS=.gives=8,", bits),
        ("FIELDS=.needs=0x80000000u,", bits),
        ("FIELDS=.reserved=1,", bits),
        ("FIELDS=.gives=4,", "it claims to give protection"),
        ("FIELDS=.name=0,", name),
        ("FIELDS=.name=\"\",", name),
        ("FIELDS=.name=\"Rot\",", name),
        ("FIELDS=.name=\"\\xff\\xfe\",", name),
        ("FIELDS=.name=\"a,tcp\",", name),
        ("FIELDS=.name=\"a2345678901234567890123456789012x\",", name),
        (
            "FIELDS=.name=\"tcp\",",
            "its name 'tcp' is taken by another driver",
        ),
        (
            "FIELDS=.name=\"tls\",",
            "its name 'tls' is taken by another driver",
        ),
        ("FIELDS=.open=0,", "its table has no function 'open'"),
        ("FIELDS=.release=0,", "its table has no function 'release'"),
        ("FIELDS=.encode=0,", "its table has no function 'encode'"),
        ("FIELDS=.decode=0,", "its table has no function 'decode'"),
        ("FIELDS=.check=0,", "its table has no function 'check'"),
        ("FIELDS=.control=0,", "its table has no function 'control'"),
        (
            "FIELDS=.attributes=0,",
            "its list of 1 attributes is missing",
        ),
        ("FIELDS=.attribute_count=65,", "its list of 65 attributes"),
        (
            "FIELDS=.attribute_count=SIZE_MAX,",
            "attributes is missing or too long",
        ),
        ("FIELDS=.controls=0,", "its list of 1 controls is missing"),
        (
            "FIELDS=.control_count=SIZE_MAX,",
            "controls is missing or too long",
        ),
        ("ATTRIBUTES={0,\"x\"}", attribute),
        ("ATTRIBUTES={\"Mode\",\"x\"}", attribute),
        (
            "ATTRIBUTES={\"mode\",0}",
            "the values of its attribute 'mode' are no text",
        ),
        (
            "ATTRIBUTES={\"mode\",\"\\xff\"}",
            "the values of its attribute 'mode' are no text",
        ),
        (
            "ATTRIBUTES={\"mode\",\"\\033c\"}",
            "the values of its attribute 'mode' are no text",
        ),
        (
            "ATTRIBUTES={\"a\",\"x\"},{\"a\",\"y\"}",
            "it has two attributes 'a'",
        ),
        ("CONTROLS=\"a\",\"b\",\"a\"", "it has two controls 'a'"),
        ("CONTROLS=0", "the name of a control isn't"),
    ] {
        let path = built!(library::build(HOSTILE, &[macros]));
        let error = load(&path).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(wanted), "{macros}: {text}");
        assert_eq!(error.path(), path);
        // Again, with what the first attempt has left behind.
        assert_eq!(load(&path).unwrap_err().to_string(), text, "{macros}");
    }
    // The name may be as long as that.
    let path = library::build(
        HOSTILE,
        &["FIELDS=.name=\"a2345678901234567890123456789012\","],
    );
    load(&path.unwrap()).unwrap();
}

#[test]
fn files_that_are_no_libraries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text.so"), "#!/bin/sh\necho I am a driver\n").unwrap();
    fs::write(at("empty.so"), "").unwrap();
    fs::write(at("head.so"), b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").unwrap();
    fs::create_dir(at("folder.so")).unwrap();
    symlink("nothing", at("dangling.so")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.so")).unwrap();
    for (name, kind, wanted) in [
        (
            "text.so",
            ErrorKind::InvalidData,
            "no library that can be loaded",
        ),
        (
            "empty.so",
            ErrorKind::InvalidData,
            "no library that can be loaded",
        ),
        (
            "head.so",
            ErrorKind::InvalidData,
            "no library that can be loaded",
        ),
        ("folder.so", ErrorKind::InvalidInput, "isn't a regular file"),
        ("socket.so", ErrorKind::InvalidInput, "isn't a regular file"),
        ("dangling.so", ErrorKind::NotFound, "No such file"),
        ("none.so", ErrorKind::NotFound, "No such file"),
    ] {
        let error = load(&at(name)).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(wanted), "{name}: {error}");
    }
    // A library of the system with another purpose: the standard library of C is loaded anyway.
    // On other systems it is elsewhere.
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let libc = maps
        .split_whitespace()
        .find(|word| word.contains("/libc.so"));
    if let Some(libc) = libc {
        let error = load(Path::new(libc)).unwrap_err();
        assert!(error.to_string().contains("exports no function"), "{error}");
    }
}

/// A copy of the good library in a directory of its own, with these modes.
fn copied(file_mode: u32, folder_mode: u32) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("drivers");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("copy.so");
    fs::copy(GOOD.as_ref()?, &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(file_mode)).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(folder_mode)).unwrap();
    Some((folder, path))
}

#[test]
fn a_library_that_others_may_change_is_refused() {
    for (file_mode, folder_mode, what) in [
        (0o664, 0o755, "copy.so"),
        (0o646, 0o755, "copy.so"),
        (0o644, 0o775, "drivers"),
        (0o644, 0o757, "drivers"),
        // Others could add a library.
        (0o644, 0o1777, "drivers"),
    ] {
        let (_folder, path) = built!(copied(file_mode, folder_mode));
        let error = load(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let wanted = format!("others than its owner may write to {}", path.display());
        let wanted = wanted.trim_end_matches("/copy.so");
        let text = error.to_string();
        assert!(text.starts_with(wanted) && text.ends_with(what), "{text}");
        assert!(error.hint().contains("chmod go-w"));
        // Through a link in a directory that is right too.
        let link = tempfile::tempdir().unwrap();
        let link = link.path().join("link.so");
        symlink(&path, &link).unwrap();
        assert_eq!(load(&link).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    // A directory further up: whoever may write to it puts another one in the place of its entries.
    let (folder, path) = built!(copied(0o644, 0o755));
    let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    assert_eq!(load(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
    mode(0o1777);
    load(&path).unwrap();
}

#[test]
fn a_library_of_another_user_is_refused() {
    if !xdfs_testkit::nobody::is_root() {
        return xdfs_testkit::skip::test("only root can give files away");
    }
    let (_folder, path) = built!(copied(0o755, 0o755));
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    let error = load(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(
        error.to_string().contains("belongs to another user"),
        "{error}"
    );
}

#[test]
fn a_file_is_one_driver_however_often_it_is_named() {
    let path = built!(GOOD.clone());
    let registry = load(&path).unwrap().load(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.so");
    symlink(&path, &link).unwrap();
    let registry = registry.load(&link).unwrap();
    let copy = folder.path().join("copy.so");
    fs::copy(&path, &copy).unwrap();
    let error = registry.load(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let known = path.canonicalize().unwrap();
    let wanted = format!(
        "its name 'hostile' is taken by the driver in {}",
        known.display()
    );
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn all_libraries_of_a_directory_are_loaded() {
    let rot47 = built!(library::build(ROT47, &[]));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(&rot47, at("b.so")).unwrap();
    fs::copy(GOOD.as_ref().unwrap(), at("a.so")).unwrap();
    fs::write(at("README"), "no driver").unwrap();
    let registry = Registry::standard().load_all(folder.path()).unwrap();
    registry.driver("rot47").unwrap();
    registry.driver("hostile").unwrap();
    // None is left out because of a mistake.
    fs::write(at("c.so"), "no driver").unwrap();
    let error = Registry::standard().load_all(folder.path()).unwrap_err();
    assert_eq!(error.path(), at("c.so"));
    let error = Registry::standard().load_all(&at("none")).unwrap_err();
    assert_eq!(
        (error.path(), error.kind()),
        (&*at("none"), ErrorKind::NotFound)
    );
}

type Pair = (Box<dyn Stream>, Box<dyn Stream>);

/// Both ends of a channel of `memory`, with the hostile driver in this mode on the client's.
fn pair(mode: &str, both: bool) -> Option<io::Result<Pair>> {
    let registry = load(GOOD.as_ref()?).unwrap();
    let build = |text: &str| -> Stack { registry.build(&text.parse().unwrap()).unwrap() };
    let stack = build(&format!("memory,hostile:mode={mode}"));
    let endpoint = Endpoint::memory(format!("hostile-{mode}-{both}"));
    let below = match both {
        true => stack.clone(),
        false => build("memory"),
    };
    let mut listener = below.listen(&endpoint).unwrap();
    Some(
        stack
            .open(&endpoint)
            .map(|client| (client, listener.accept().unwrap())),
    )
}

fn read(stream: &mut dyn Stream, len: usize) -> Vec<u8> {
    let (mut seen, mut got) = (vec![0; len], 0);
    while got < len {
        match stream.read_vectored(&mut [IoSliceMut::new(&mut seen[got..])]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            n => got += n.unwrap(),
        }
    }
    seen
}

fn read_once(stream: &mut dyn Stream) -> io::Result<usize> {
    let (mut a, mut b) = ([0; 10], [0; 20]);
    stream.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)])
}

#[test]
fn lies_and_failures_in_encode_are_errors_of_the_stream() {
    let long = format!("failed to encode: {}", "x".repeat(256));
    for (mode, kind, wanted) in [
        (
            "used",
            ErrorKind::InvalidData,
            "claims to have used 5 of 4 bytes in encode",
        ),
        ("filled", ErrorKind::InvalidData, "claims to have filled"),
        (
            "huge",
            ErrorKind::InvalidData,
            "claims to have used 18446744073709551615 of 4",
        ),
        (
            "stuck",
            ErrorKind::InvalidData,
            "makes no progress in encode",
        ),
        (
            "grows",
            ErrorKind::InvalidData,
            "makes no progress in encode",
        ),
        ("fails", ErrorKind::InvalidData, &long),
        (
            "code",
            ErrorKind::Other,
            "failed to encode: its code is -77",
        ),
    ] {
        let made = built!(pair(&format!("encode_{mode}"), false));
        let (mut client, _server) = made.unwrap();
        let content = [IoSlice::new(b"four"), IoSlice::new(b"more")];
        let error = client.write_vectored(&content).unwrap_err();
        assert_eq!(error.kind(), kind, "{mode}");
        let text = error.to_string();
        assert!(text.starts_with("the driver 'hostile' "), "{mode}: {text}");
        assert!(text.contains(wanted), "{mode}: {text}");
        // It isn't called again.
        let error = client.write_vectored(&content).unwrap_err().to_string();
        assert_eq!(error, "the driver 'hostile' has failed before");
        assert_eq!(client.control("hostile.text"), None);
    }
}

#[test]
fn lies_and_failures_in_decode_are_errors_of_the_stream() {
    for (mode, wanted) in [
        ("used", "claims to have used 5 of 4 bytes in decode"),
        ("filled", "claims to have filled 11 of 10 bytes in decode"),
        ("huge", "claims to have used 18446744073709551615 of"),
        ("fails", "failed to decode: xxx"),
        ("code", "failed to decode: its code is -77"),
    ] {
        let made = built!(pair(&format!("decode_{mode}"), false));
        let (mut client, mut server) = made.unwrap();
        server.write_vectored(&[IoSlice::new(b"four")]).unwrap();
        let error = read_once(&mut *client).unwrap_err().to_string();
        let is_right = error.contains(wanted)
            // It is asked for what it may still hold first, without any bytes.
            || error.contains(&wanted.replace("5 of 4", "1 of 0"));
        assert!(is_right, "{mode}: {error}");
        let error = read_once(&mut *client).unwrap_err().to_string();
        assert_eq!(error, "the driver 'hostile' has failed before");
    }
}

/// A driver that waits for more, whatever comes, gets as much as a buffer holds.
#[test]
fn a_decoder_without_progress_is_bounded() {
    let (mut client, mut server) = built!(pair("decode_stuck", false)).unwrap();
    let bytes = vec![1; 100_000];
    let mut sent = 0;
    let error = loop {
        sent += server.write_vectored(&[IoSlice::new(&bytes)]).unwrap_or(0);
        match read_once(&mut *client) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => break e,
            Ok(n) => panic!("{n} bytes of nothing"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!((100_000..2 << 20).contains(&sent), "{sent}");
}

#[test]
fn an_opening_without_end_is_bounded() {
    let (mut client, mut server) = built!(pair("never_open", false)).unwrap();
    let bytes = vec![1; 100_000];
    let mut sent = 0;
    let error = loop {
        sent += server.write_vectored(&[IoSlice::new(&bytes)]).unwrap_or(0);
        match client.finish_open() {
            Ok(false) => {}
            Ok(true) => panic!("it is open"),
            Err(e) => break e.to_string(),
        }
        // Nothing can be written before.
        let refused = client.write_vectored(&[IoSlice::new(b"x")]);
        assert!(refused.is_err());
    };
    let wanted = "the driver 'hostile' doesn't come to the end of its opening exchange";
    assert!(
        error == wanted || error.ends_with("failed before"),
        "{error}"
    );
    assert!((1 << 20..4 << 20).contains(&sent), "{sent}");
}

#[test]
fn small_steps_are_steps() {
    let (mut client, mut server) = built!(pair("encode_bytewise", true)).unwrap();
    let content = vec![5; 3000];
    assert_eq!(
        client.write_vectored(&[IoSlice::new(&content)]).unwrap(),
        3000
    );
    assert_eq!(read(&mut *server, 3000), content);
    let (mut client, mut server) = built!(pair("decode_bytewise", true)).unwrap();
    assert_eq!(
        client.write_vectored(&[IoSlice::new(&content)]).unwrap(),
        3000
    );
    assert_eq!(read(&mut *server, 3000), content);
}

#[test]
fn a_reason_is_told_without_what_a_terminal_obeys() {
    let made = built!(pair("open_fails", false));
    let error = made.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let wanted = "the driver 'hostile' failed to open a channel: nothing is  [31mright here";
    assert_eq!(error.to_string(), wanted);
    let registry = load(GOOD.as_ref().unwrap()).unwrap();
    let refused = registry.build(&"memory,hostile:mode=refused".parse().unwrap());
    let wanted = "invalid value in 'hostile:mode=refused'; expected a word";
    assert_eq!(refused.unwrap_err().to_string(), wanted);
}

#[test]
fn a_lie_in_close_ends_the_direction_nevertheless() {
    let (mut client, mut server) = built!(pair("close_filled", false)).unwrap();
    client.close().unwrap();
    assert_eq!(read_once(&mut *server).unwrap(), 0);
    assert_eq!(
        read_once(&mut *client).unwrap_err().to_string(),
        "the driver 'hostile' has failed before"
    );
}

#[test]
fn controls_are_texts_whatever_is_written() {
    for (mode, wanted) in [
        ("plain", Some("y".repeat(256))),
        ("control_bytes", Some("\u{fffd}".repeat(256))),
        ("control_fails", None),
    ] {
        let (client, _server) = built!(pair(mode, false)).unwrap();
        let value = client.control("hostile.text");
        assert_eq!(value, wanted.map(ControlValue::Text), "{mode}");
    }
}

/// Messages of the opening exchange that come at once, or one byte at a time, and content with
/// them.
#[test]
fn an_opening_exchange_takes_bytes_as_they_come() {
    let path = built!(library::build(FRAMES, &[]));
    let registry = load(&path).unwrap();
    let build = |text: &str| registry.build(&text.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory("frames-opening");
    let mut listener = build("memory,frames").listen(&endpoint).unwrap();
    let bytes = b"hello\0\0\x02\x3d\x3c\0\0";
    for step in [1, 6, 7, bytes.len()] {
        let mut client = build("memory").open(&endpoint).unwrap();
        let mut server = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut is_ended = false;
        for part in bytes.chunks(step) {
            client.write_vectored(&[IoSlice::new(part)]).unwrap();
            loop {
                let mut one = [0; 8];
                match server.read_vectored(&mut [IoSliceMut::new(&mut one)]) {
                    Ok(0) => is_ended = true,
                    Ok(n) => {
                        seen.extend_from_slice(&one[..n]);
                        continue;
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                }
                break;
            }
        }
        assert_eq!((&*seen, is_ended), (&b"hi"[..], true), "{step}");
        assert_eq!(read(&mut *client, 6), b"hello\0");
    }
    // Another protocol, and an end within the exchange and within the content.
    for (bytes, wanted) in [
        (&b"GET /"[..], "failed to decode: that is no greeting"),
        (
            b"hel",
            "failed to end a channel: the end of content is missing",
        ),
        (
            b"hello\0\0\x05ab",
            "failed to end a channel: the end of content is missing",
        ),
    ] {
        let mut client = build("memory").open(&endpoint).unwrap();
        let mut server = listener.accept().unwrap();
        client.write_vectored(&[IoSlice::new(bytes)]).unwrap();
        client.close().unwrap();
        let error = loop {
            match read_once(&mut *server) {
                Ok(0) => panic!("an orderly end"),
                Ok(_) => {}
                Err(e) => break e.to_string(),
            }
        };
        assert!(error.contains(wanted), "{error}");
    }
}

/// What was held back while an answer was due is decoded after the answer, without another event.
#[test]
fn messages_that_come_too_early_are_answered_in_turn() {
    let path = built!(library::build(FRAMES, &[]));
    let registry = load(&path).unwrap();
    let build = |text: &str| registry.build(&text.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory("frames-turns");
    let mut listener = build("memory,frames:turns=3").listen(&endpoint).unwrap();
    let mut client = build("memory").open(&endpoint).unwrap();
    let mut server = listener.accept().unwrap();
    let early = [IoSlice::new(b"hello\0hello\0hello\0\0\x01\x3d")];
    client.write_vectored(&early).unwrap();
    assert_eq!(read_once(&mut *server).unwrap(), 1);
    assert_eq!(read(&mut *client, 18), b"hello\0hello\0hello\0");
}

/// Channels of one driver in several threads at a time, as a server has them.
#[test]
fn channels_are_independent() {
    let path = built!(library::build(FRAMES, &[]));
    let registry = load(&path).unwrap();
    let threads: Vec<_> = (1..5_u8)
        .map(|number| {
            let text = format!("memory,frames:turns=3:most={}", u32::from(number) * 777);
            let stack = registry.build(&text.parse().unwrap()).unwrap();
            std::thread::spawn(move || {
                let endpoint = Endpoint::memory(format!("frames-{number}"));
                let mut listener = stack.listen(&endpoint).unwrap();
                let mut client = stack.open(&endpoint).unwrap();
                let _ = client.finish_open().unwrap();
                let mut server = listener.accept().unwrap();
                for _ in 0..300 {
                    let content = vec![number; 5000];
                    let mut sent = 0;
                    while sent < content.len() {
                        match client.write_vectored(&[IoSlice::new(&content[sent..])]) {
                            Ok(n) => sent += n,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                        }
                        let _ = server.finish_open().unwrap();
                    }
                    assert!(read(&mut *server, 5000) == content);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A channel that is closed before its opening exchange is over has no content to end.
#[test]
fn a_channel_that_never_opened_is_closed_without_a_word() {
    let path = built!(library::build(FRAMES, &[]));
    let registry = load(&path).unwrap();
    let build = |text: &str| registry.build(&text.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory("frames-unopened");
    let mut listener = build("memory").listen(&endpoint).unwrap();
    let mut client = build("memory,frames").open(&endpoint).unwrap();
    let mut server = listener.accept().unwrap();
    assert!(!client.finish_open().unwrap());
    client.close().unwrap();
    assert_eq!(read(&mut *server, 6), b"hello\0");
    assert_eq!(read_once(&mut *server).unwrap(), 0);
}
