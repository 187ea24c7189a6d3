//! Paths and cursors, and manifests that aren't as they were signed.

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha512};
use xdfs::Code;
use xdfs::security::Signer as _;

use super::*;
use crate::listed::{Cursor, FilePath};

fn file(path: &[u8]) -> ListedFile {
    ListedFile {
        position: 1,
        path: FilePath::new(path),
        bytes: 7,
        blake3: "ab".repeat(32),
        at: Time::from_microseconds(7),
    }
}

#[test]
fn paths_are_any_bytes_in_json_columns_and_cursors() {
    for path in [&b"a/b"[..], "\u{e4}\n\"".as_bytes(), b"a\xff", b"/x"] {
        let file = file(path);
        let text = serde_json::to_string(&file).unwrap_or_default();
        assert_eq!(
            serde_json::from_str::<ListedFile>(&text).ok(),
            Some(file.clone()),
            "{text}"
        );
        if path != b"/x" {
            assert_eq!(
                FilePath::from_column(&file.path.column()),
                Some(file.path.clone())
            );
        }
        let cursor = Cursor {
            position: file.position,
            path: Some(file.path.clone()),
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
    for text in ["", "1", "x-", "1-0", "1-xx", "-1-", "99999999999-"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
    for (path, is_beneath) in [
        ("a", true),
        ("a/b", true),
        ("..a/b..", true),
        ("", false),
        ("/a", false),
        ("a//b", false),
        ("a/", false),
        ("../a", false),
        ("a/../../b", false),
        ("./a", false),
        ("a\0", false),
    ] {
        assert_eq!(FilePath::new(path).is_beneath(), is_beneath, "{path}");
    }
}

/// A manifest of these lines, signed.
fn signed(key: &ManifestKey, lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend(serde_json::to_vec(line).unwrap_or_default());
        text.push(b'\n');
    }
    let (key, signature) = key
        .sign(&Sha512::digest(&text).into())
        .unwrap_or_else(|fault| panic!("{fault}"));
    let signature = Base64::encode_string(&signature);
    let last = serde_json::to_string(&Line::Signature { key, signature });
    text.extend(last.unwrap_or_default().into_bytes());
    text.push(b'\n');
    text
}

fn head(version: u32) -> Line {
    let at = Time::from_microseconds(7);
    Line::Manifest {
        version,
        job: JobId::new(at).unwrap_or_else(|fault| panic!("{fault}")),
        owner: "me".to_owned(),
        label: String::new(),
        ended_at: at,
    }
}

fn end(files: u64) -> Line {
    let bytes = files * 7;
    Line::End { files, bytes }
}

#[test]
fn only_what_was_signed_is_read() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let key = ManifestKey::new(folder.path()).unwrap_or_else(|fault| panic!("{fault}"));
    let public = read_manifest_key(&manifest_key_file(folder.path()));
    let public = public.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(
        key.0.lock().ok().map(|key| key.public_key() == &public),
        Some(true)
    );
    // It is made once.
    assert!(ManifestKey::new(folder.path()).is_ok());
    assert_eq!(
        read_manifest_key(&manifest_key_file(folder.path())),
        Ok(public.clone())
    );

    let path = folder.path().join("manifest");
    let read = |text: &[u8]| {
        fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        let files = Manifest::open(&path, &public)?.collect::<Result<Vec<_>, _>>()?;
        Ok::<_, Fault>(files.len())
    };
    let code = |text: &[u8]| read(text).map_err(|fault| fault.code);
    let lines = |paths: &[&[u8]]| {
        let files = paths.iter().map(|path| Line::File(file(path)));
        let mut lines = vec![head(1)];
        lines.extend(files);
        lines.push(end(paths.len() as u64));
        lines
    };
    let text = signed(&key, &lines(&[b"a", b"b/c"]));
    assert_eq!(code(&text), Ok(2));
    assert_eq!(code(&signed(&key, &lines(&[]))), Ok(0));
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "byte {at}");
        assert!(read(&text[..at]).is_err(), "length {at}");
    }
    let more = [&text[..], &text[..]].concat();
    assert!(read(&more).is_err());

    // Of the right key, and yet wrong.
    for (lines, expected) in [
        (vec![], Code::InvalidArgument),
        (vec![head(2), end(0)], Code::Unsupported),
        (vec![end(0)], Code::InvalidArgument),
        (vec![head(1)], Code::InvalidArgument),
        (vec![head(1), end(1)], Code::InvalidArgument),
        (vec![head(1), head(1), end(0)], Code::InvalidArgument),
        (vec![head(1), end(0), end(0)], Code::IntegrityMismatch),
        (lines(&[b"../a"]), Code::InvalidArgument),
        (lines(&[b"/etc/passwd"]), Code::InvalidArgument),
    ] {
        assert_eq!(code(&signed(&key, &lines)), Err(expected), "{lines:?}");
    }
    let elsewhere = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let other = ManifestKey::new(elsewhere.path()).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(
        code(&signed(&other, &lines(&[]))),
        Err(Code::ServerUntrusted)
    );
    assert_eq!(code(&vec![b'x'; 3 << 20]), Err(Code::InvalidArgument));
    assert_eq!(code(b""), Err(Code::InvalidArgument));
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_signs_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    assert!(ManifestKey::new(folder.path()).is_ok());
    let path = folder.path().join(KEY_FILE);
    let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o777);
    assert_eq!(mode.ok(), Some(0o600));
    assert!(fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).is_ok());
    let refused = ManifestKey::new(folder.path()).map_err(|fault| fault.code);
    assert_eq!(refused.err(), Some(Code::PermissionDenied));
}
