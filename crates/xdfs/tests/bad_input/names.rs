//! Names: odd bytes, long ones, ours, and those that lead out of the root.

use xdfs::{Code, LocalPlace, Side, TransferOptions, TransferParameters};

use crate::stage::{OLD, Stage, assert_fault, make_old};
use crate::support::{assert_equal, download, finish, upload};

#[cfg(target_os = "linux")]
#[test]
fn bytes_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new(400);
    let source = stage.folders.make_here("source", 5000);
    let client = stage.client();
    let options = TransferOptions::default();
    for name in [
        &b"\xff\xfe\x80"[..],
        b"line\nbreak\ttab",
        b" ",
        b"-rf",
        b"*?[]{}$;&|'\"\\",
        "\u{202e}txt.exe \u{1f980}".as_bytes(),
    ] {
        let path = [b"/", name].concat();
        let result = upload(&client, &source, &path, &options).unwrap();
        assert!(result.target.ends_with(name));
        let there = stage.folders.root().join(std::ffi::OsStr::from_bytes(name));
        assert_equal(&source, &there);
        let here = stage
            .folders
            .here("")
            .join(std::ffi::OsStr::from_bytes(name));
        download(&client, &path, &here, &options).unwrap();
        assert_equal(&source, &here);
        // And in a fault, as they are.
        let part = TransferOptions {
            length: Some(1),
            ..options.clone()
        };
        let fault = upload(&client, &source, &path, &part).unwrap_err();
        assert_fault(&fault, Code::AlreadyExists, Side::Remote, &path);
    }
    stage.still_serves();
}

#[test]
fn long_names() {
    let stage = Stage::new(401);
    let source = stage.folders.make_here("source", 5000);
    let client = stage.client();
    let options = TransferOptions::default();
    for length in [200, 240, 254, 255] {
        let name = "n".repeat(length);
        upload(&client, &source, format!("/{name}"), &options).unwrap();
        assert_equal(&source, &stage.folders.there(&name));
        let here = stage.folders.here(&name);
        download(&client, format!("/{name}"), &here, &options).unwrap();
        assert_equal(&source, &here);
    }
    for path in [format!("/{}", "n".repeat(256)), "/n".repeat(500)] {
        let fault = upload(&client, &source, &path, &options).unwrap_err();
        // The second is short enough for the protocol; what is missing is its folders.
        let code = if path.len() > 400 {
            Code::NotFound
        } else {
            Code::NameTooLong
        };
        assert_fault(&fault, code, Side::Remote, &path);
        let here = stage.folders.here("x");
        let fault = download(&client, &path, &here, &options).unwrap_err();
        assert_fault(&fault, code, Side::Remote, &path);
    }
    // A fault carries only so much of a path that nobody would read anyway.
    let path = "/n".repeat(2048);
    let fault = upload(&client, &source, &path, &options).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    assert!(fault.path.len() >= 1000 && path.as_bytes().starts_with(&fault.path));
    let path = "/n".repeat(2049);
    let fault = upload(&client, &source, &path, &options).unwrap_err();
    assert_fault(&fault, Code::NameTooLong, Side::Local, &path);
    stage.still_serves();
}

#[test]
fn a_zero_byte() {
    let stage = Stage::new(402);
    let source = stage.folders.make_here("source", 10);
    let client = stage.client();
    let options = TransferOptions::default();
    let fault = upload(&client, &source, b"/a\0b", &options).unwrap_err();
    assert_fault(&fault, Code::InvalidArgument, Side::Local, b"/a\0b");
    stage.still_serves();
}

#[test]
fn dots_lead_nowhere_else() {
    let stage = Stage::new(403);
    let source = stage.folders.make_here("source", 10);
    make_old(&stage.folders.here("secret"));
    std::fs::create_dir(stage.folders.there("sub")).unwrap();
    let client = stage.client();
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    for path in [
        "/../here/secret",
        "../here/secret",
        "/sub/../../here/secret",
        "/./../here/secret",
        "//..//here/secret",
    ] {
        let fault = upload(&client, &source, path, &options).unwrap_err();
        assert_fault(&fault, Code::PathEscape, Side::Remote, path);
        let target = LocalPlace::Path(stage.folders.here("got"));
        let transfer = client.download(path.as_bytes(), &target, &options).unwrap();
        let fault = finish(transfer).unwrap_err();
        assert_fault(&fault, Code::PathEscape, Side::Remote, path);
    }
    assert_eq!(std::fs::read(stage.folders.here("secret")).unwrap(), OLD);
    assert!(!stage.folders.here("got").exists());
    // Within the root they may be used.
    upload(&client, &source, "/sub/../inside", &options).unwrap();
    assert_equal(&source, &stage.folders.there("inside"));
    stage.still_serves();
}

#[test]
fn names_of_unfinished_transfers() {
    let stage = Stage::new(404);
    let source = stage.folders.make_here("source", 10);
    let client = stage.client();
    let options = TransferOptions::default();
    for path in ["/.file.xdfs-part", "/.file.xdfs-journal"] {
        let fault = upload(&client, &source, path, &options).unwrap_err();
        assert_fault(&fault, Code::PermissionDenied, Side::Remote, path);
        make_old(&stage.folders.there(&path[1..]));
        let here = stage.folders.here("got");
        let fault = download(&client, path, &here, &options).unwrap_err();
        assert_fault(&fault, Code::PermissionDenied, Side::Remote, path);
    }
    stage.still_serves();
}
