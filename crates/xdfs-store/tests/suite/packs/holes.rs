//! Sparse files in packs.

use std::os::unix::fs::FileExt as _;

use super::*;
use crate::common::{knows_holes, pattern};

fn sparse() -> Metadata<'static> {
    Metadata {
        sparse: true,
        ..Metadata::default()
    }
}

fn bytes_of(path: &Path) -> u64 {
    let file = fs::File::open(path).unwrap();
    // What the file system hasn't placed yet may be counted in another way.
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

/// Contents with zeros at the beginning, in the middle and at the end, and what they take.
fn hollow() -> Vec<(&'static str, Vec<u8>, u64)> {
    let with = |length: usize, at: &[usize]| {
        let mut bytes = vec![0; length];
        for at in at {
            bytes[*at] = 1;
        }
        bytes
    };
    vec![
        ("nothing", with(300_001, &[]), 0),
        ("a byte", vec![0], 0),
        ("begin", with(100_000, &[0]), 4096),
        ("middle", with(100_000, &[50_000, 54_000]), 2 * 4096),
        ("end", with(100_000, &[99_999]), 4096),
        (
            "grid",
            with(8 * 4096, &[4095, 4 * 4096, 8 * 4096 - 1]),
            3 * 4096,
        ),
        ("full", pattern(50_000), 53_248),
        ("empty", Vec::new(), 0),
    ]
}

#[test]
fn zeros_of_a_marked_file_take_no_storage() {
    let scene = Scene::new();
    let can = knows_holes(scene.temp.path());
    let cases = hollow();
    let marked = cases
        .iter()
        .map(|(name, bytes, _)| with(entry(*name, Content::File(bytes)), sparse()));
    let marked: Vec<_> = marked.collect();
    // Over nothing, and over what is there.
    for _ in 0..2 {
        assert_done(&scene.write(&marked));
        for (name, bytes, takes) in &cases {
            assert_eq!(fs::read(scene.path(name)).unwrap(), *bytes, "{name}");
            if can {
                let found = bytes_of(&scene.path(name));
                assert!(found <= *takes, "{name}: {found} bytes");
            }
        }
        let full = vec![7; 300_000];
        let full: Vec<_> = cases
            .iter()
            .map(|(name, ..)| entry(*name, Content::File(&full)))
            .collect();
        assert_done(
            &scene
                .store
                .write_pack(b"", REPLACE, &pack_of(&full))
                .unwrap(),
        );
        let pack = pack_of(&marked);
        assert_done(&scene.store.write_pack(b"", REPLACE, &pack).unwrap());
        for (name, ..) in &cases {
            fs::remove_file(scene.path(name)).unwrap();
        }
    }
    scene.assert_clean();
}

/// A pack of more than the others have.
fn pack_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 4 << 20);
    for entry in entries {
        assert!(writer.entry(entry));
    }
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

#[test]
fn zeros_without_a_mark_are_written() {
    let scene = Scene::new();
    assert_done(&scene.write(&[entry("zeros", Content::File(&[0; 100_000]))]));
    assert_eq!(fs::read(scene.path("zeros")).unwrap(), [0; 100_000]);
    if knows_holes(scene.temp.path()) {
        assert!(bytes_of(&scene.path("zeros")) >= 100_000);
    }
}

#[test]
fn files_with_holes_are_marked_when_they_are_read() {
    let scene = Scene::new();
    let make = |name: &str, length: u64, at: Option<u64>| {
        let file = fs::File::create(scene.path(name)).unwrap();
        file.set_len(length).unwrap();
        if let Some(at) = at {
            file.write_all_at(b"data", at).unwrap();
        }
    };
    make("holes", 100_000, Some(50_000));
    make("nothing", 5, None);
    make("empty", 0, None);
    make("large", 600_000, Some(0));
    fs::write(scene.path("full"), [0; 100_000]).unwrap();
    fs::create_dir(scene.path("dir")).unwrap();
    if !knows_holes(scene.temp.path()) {
        return;
    }
    let names: [&[u8]; 6] = [b"holes", b"nothing", b"empty", b"large", b"full", b"dir"];
    let pack = read(&scene.store, &names, Preserve::default(), 500_000);
    let limits = Limits::default();
    let marks = entries(&pack, &limits).into_iter();
    let marks: Vec<bool> = marks.map(|entry| entry.metadata.sparse).collect();
    assert_eq!(marks, [true, true, false, false, false, false]);
    // What was read is made again in another place.
    let other = Scene::new();
    let files = read(&scene.store, &names[..3], Preserve::default(), 500_000);
    assert_done(&other.store.write_pack(b"", KEEP, &files).unwrap());
    for name in ["holes", "nothing", "empty"] {
        let (from, to) = (scene.path(name), other.path(name));
        assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
        assert!(bytes_of(&to) <= bytes_of(&from), "{name}");
    }
}

#[test]
fn a_mark_where_there_are_no_holes_spoils_the_pack() {
    let scene = Scene::new();
    let good = pack(&[file("a", "x")]);
    let of_directory = [1, 0x40, 0, 1, b'd'];
    let unknown = [0, 0x80, 0, 1, b'f', 0, 0, 0, 0];
    for bad in [&of_directory[..], &unknown] {
        let bytes = [&good, bad].concat();
        let fault = scene.store.write_pack(b"", KEEP, &bytes).unwrap_err();
        assert_eq!(fault.code, Code::MalformedFrame);
        assert!(!scene.path("a").exists());
    }
}
