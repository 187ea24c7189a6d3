//! What an earlier attempt has left, and whether it is still that.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use xdfs::{Code, DigestKind, Resume};
use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, Fragment};
use xdfs_store::local::journal::{self, Header, Parsed, Publication};

use crate::resume::{RATE, SIZE, interrupted, resumed};
use crate::scene::{Scene, everywhere};
use crate::support::PATIENCE;

/// The journal beside the target.
fn journal_of(scene: &Scene) -> PathBuf {
    scene.target.with_file_name(".target.xdfs-journal")
}

fn parsed(scene: &Scene) -> Parsed {
    journal::parse(&std::fs::read(journal_of(scene)).unwrap()).unwrap()
}

fn written(header: &Header, fragments: &[Fragment], publication: Option<&Publication>) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    let count = journal::encode_records(header, 0, fragments.iter(), &mut bytes);
    if let Some(publication) = publication {
        journal::encode_publication(header, count, publication, &mut bytes);
    }
    bytes
}

/// Waits until whoever wrote the partial file has given it up, and with it the journal.
fn given_up(scene: &Scene) {
    let start = Instant::now();
    let partial = scene.target.with_file_name(".target.xdfs-part");
    while File::open(&partial).unwrap().try_lock().is_err() {
        assert!(start.elapsed() < PATIENCE, "it is still written to");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Changes a byte of what the journal claims, as a disk may that lost what it had called durable.
/// Returns how many bytes the journal claims.
fn damage(scene: &Scene) -> u64 {
    given_up(scene);
    let fragments = parsed(scene).fragments;
    let at = fragments[0].range.start + 1000;
    let partial = scene.target.with_file_name(".target.xdfs-part");
    let file = File::options().read(true).write(true).open(partial);
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    fragments.iter().map(|fragment| fragment.range.len()).sum()
}

#[test]
fn damage_is_found_by_who_wants_to_know() {
    everywhere(|case| {
        let mut scene = case.scene(309, SIZE).rate(RATE);
        interrupted(&scene);
        let claimed = damage(&scene);
        scene.options.parameters.resume = Resume::Verify;
        let result = scene.again(2);
        assert!(result.resumed_bytes < claimed, "{result:?} of {claimed}");
        scene.arrived();
    });
}

/// Without damage everything is found as it was; without states nothing can be compared.
#[test]
fn what_is_as_it_was_is_not_sent_again() {
    everywhere(|case| {
        for digest in [case.digest, DigestKind::None] {
            let mut scene = case.scene(310, SIZE).digest(digest).rate(RATE);
            interrupted(&scene);
            scene.options.parameters.resume = Resume::Verify;
            let result = scene.again(2);
            match digest {
                DigestKind::None => assert_eq!(result.resumed_bytes, 0),
                _ => resumed(&result),
            }
            scene.arrived();
        }
    });
}

/// As after a power cut: the journal is of another run of the machine.
#[test]
fn damage_is_found_after_the_machine_was_started_anew() {
    everywhere(|case| {
        let scene = case.scene(311, SIZE).rate(RATE);
        interrupted(&scene);
        let claimed = damage(&scene);
        let mut left = parsed(&scene);
        left.header.boot[0] ^= 1;
        let bytes = written(&left.header, &left.fragments, None);
        std::fs::write(journal_of(&scene), bytes).unwrap();
        let result = scene.again(2);
        assert!(result.resumed_bytes < claimed, "{result:?} of {claimed}");
        scene.arrived();
    });
}

/// The receiver was killed after the file got its name, and before anybody heard of it.
#[test]
fn what_was_published_unheard_is_recognised() {
    everywhere(|case| {
        let scene = case.scene(312, SIZE).rate(RATE);
        interrupted(&scene);
        given_up(&scene);
        let header = parsed(&scene).header;
        scene.again(2);
        let content = std::fs::read(&scene.target).unwrap();
        let mut hasher = BlockHasher::new(case.digest, false, 0);
        hasher.update(&content);
        let whole = hasher.finish(FileId(0)).1;
        let meta = std::fs::metadata(&scene.target).unwrap();
        let publication = Publication {
            length: SIZE,
            identity: (meta.dev(), meta.ino()),
            mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
        };
        let left = written(&header, &[whole], Some(&publication));
        std::fs::write(journal_of(&scene), &left).unwrap();
        let before = scene.line.forwarded();
        let result = scene.again(2);
        let after = scene.line.forwarded();
        assert_eq!((result.bytes, result.resumed_bytes), (SIZE, SIZE));
        assert!(after.0 - before.0 + after.1 - before.1 < 1 << 20);
        // Nothing is left.
        scene.arrived();
        // One that was written to is no longer that, whatever its time says.
        std::fs::write(journal_of(&scene), &left).unwrap();
        let file = File::options().write(true).open(&scene.target).unwrap();
        file.write_all_at(&[!content[7]], 7).unwrap();
        file.set_modified(meta.modified().unwrap()).unwrap();
        let mut scene = scene;
        scene.options.parameters.resume = Resume::Verify;
        let fault = scene.run(&scene.client(2)).unwrap_err();
        assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
        scene.options.parameters.overwrite = true;
        assert_eq!(scene.again(2).resumed_bytes, 0);
        scene.arrived();
    });
}
