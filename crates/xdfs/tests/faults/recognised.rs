//! A target that exists and is the source already, as after a publication of which nobody heard:
//! the same transfer succeeds, and nothing is moved or changed. Anything else is refused as ever.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs::{Call, Code, DigestKind, DigestValue, Fault, LocalPlace, Resume, TransferResult};
use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, FragmentState};

use crate::scene::{Scene, WAYS, Way, everywhere, wait_for_bytes};
use crate::support::{PATIENCE, assert_equal, finish, hidden_names};

const SIZE: u64 = 3 << 20;

/// What a change of the file, or of what is known of it, would change.
fn version(path: &Path) -> (u64, u32, i64, i64, i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    let (ino, mode) = (meta.ino(), meta.mode());
    let times = (meta.mtime(), meta.mtime_nsec());
    (ino, mode, times.0, times.1, meta.ctime(), meta.ctime_nsec())
}

/// Gives a file content, length and time, and its permissions too.
fn write_like(path: &Path, content: &[u8], like: &Path) {
    fs::write(path, content).unwrap();
    let meta = fs::metadata(like).unwrap();
    fs::set_permissions(path, meta.permissions()).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(meta.modified().unwrap()).unwrap();
}

fn crc_of(content: &[u8]) -> FragmentState {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, 0);
    hasher.update(content);
    hasher.finish(FileId(0)).1.state
}

/// Other content with the same CRC-64/NVME: the polynomial of it divides the difference.
fn forged(content: &[u8]) -> Vec<u8> {
    const POLYNOMIAL: u128 = 0x9a6c_9329_ac4b_c9b5 << 1 | 1;
    let mut forged = content.to_vec();
    for (byte, difference) in forged[1000..].iter_mut().zip(POLYNOMIAL.to_le_bytes()) {
        *byte ^= difference;
    }
    forged
}

/// Runs the transfer, and fails if it changes the target in any way.
#[track_caller]
fn untouched(scene: &Scene) -> Result<TransferResult, Fault> {
    let before = version(&scene.target);
    let result = scene.run(&scene.client(1));
    assert_eq!(version(&scene.target), before);
    assert_eq!(hidden_names(scene.target.parent().unwrap()), [""; 0]);
    result
}

#[track_caller]
fn refused(scene: &Scene, why: &str) {
    let fault = untouched(scene).expect_err(why);
    assert_eq!(fault.code, Code::AlreadyExists, "{why}: {fault}");
    assert!(fault.hint.contains("--force"), "{why}: {fault:?}");
}

#[test]
fn what_is_there_already_is_a_success_with_every_digest() {
    everywhere(|case| {
        for digest in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
            let mut scene = case.scene(602, SIZE).digest(digest);
            let first = scene.run(&scene.client(1)).unwrap();
            for is_dry in [true, false] {
                scene.options.parameters.dry_run = is_dry;
                let before = scene.line.forwarded();
                let result = untouched(&scene).unwrap();
                let after = scene.line.forwarded();
                assert!(after.0 - before.0 + after.1 - before.1 < 64 << 10);
                assert_eq!((result.bytes, result.digest), (SIZE, first.digest));
            }
            scene.options.parameters.dry_run = false;
            scene.options.parameters.resume = Resume::Never;
            refused(&scene, "nobody may go on");
            scene.arrived();
        }
    });
}

#[test]
fn what_only_looks_the_same_is_refused() {
    for way in WAYS {
        let scene = Scene::new(603, way, SIZE);
        let content = fs::read(&scene.source).unwrap();
        let put = |content: &[u8]| write_like(&scene.target, content, &scene.source);
        for at in [0, content.len() / 2, content.len() - 1] {
            let mut other = content.clone();
            other[at] ^= 1;
            put(&other);
            refused(&scene, "other content");
        }
        let forged = forged(&content);
        assert_eq!(crc_of(&forged), crc_of(&content));
        put(&forged);
        refused(&scene, "other content of the same check value");
        put(&content[1..]);
        refused(&scene, "another length");
        put(&content);
        fs::set_permissions(&scene.target, Permissions::from_mode(0o4644)).unwrap();
        refused(&scene, "other permissions");
        put(&content);
        let time = fs::metadata(&scene.source).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&scene.target).unwrap();
        file.set_modified(time - Duration::from_secs(3)).unwrap();
        refused(&scene, "another time");
        // A link isn't what was published, whatever it leads to.
        let beside = scene.target.with_file_name("beside");
        write_like(&beside, &content, &scene.source);
        fs::remove_file(&scene.target).unwrap();
        std::os::unix::fs::symlink("beside", &scene.target).unwrap();
        refused(&scene, "a link");
    }
}

/// Longer than what one call compares, and with all that differs at the end.
#[test]
fn long_files_are_compared_to_their_end() {
    const LONG: u64 = (256 << 20) + 5000;
    for way in WAYS {
        let scene = Scene::new(604, way, 1000).digest(DigestKind::Blake3);
        let source = File::options().write(true).open(&scene.source).unwrap();
        source.set_len(LONG).unwrap();
        source.write_all_at(b"the end", LONG - 7).unwrap();
        let first = scene.run(&scene.client(1)).unwrap();
        let result = untouched(&scene).unwrap();
        assert_eq!((result.resumed_bytes, result.digest), (LONG, first.digest));
        let time = fs::metadata(&scene.target).unwrap().modified().unwrap();
        let target = File::options().write(true).open(&scene.target).unwrap();
        target.write_all_at(b"The", LONG - 7).unwrap();
        target.set_modified(time).unwrap();
        refused(&scene, "another end");
    }
}

#[test]
fn parts_and_files_that_keep_their_names() {
    for way in WAYS {
        let mut scene = Scene::new(605, way, SIZE);
        (scene.options.offset, scene.options.length) = (70_001, Some(2 << 20));
        scene.run(&scene.client(1)).unwrap();
        let result = untouched(&scene).unwrap();
        assert_eq!(result.resumed_bytes, 2 << 20);
        scene.options.offset = 70_000;
        refused(&scene, "another part");

        (scene.options.offset, scene.options.length) = (0, None);
        let folder = scene.target.with_file_name("folder");
        fs::create_dir(&folder).unwrap();
        let into = || {
            let client = scene.client(1);
            finish(match way {
                Way::Up => {
                    let source = LocalPlace::Path(scene.source.clone());
                    client.upload(&source, b"/folder", &scene.options)
                }
                Way::Down => {
                    let target = LocalPlace::Path(folder.clone());
                    client.download(b"/source", &target, &scene.options)
                }
            }?)
        };
        assert_eq!(into().unwrap().resumed_bytes, 0);
        let again = into().unwrap();
        assert_eq!(again.resumed_bytes, SIZE);
        assert!(again.target.ends_with(b"/folder/source"));
        assert_equal(&scene.source, &folder.join("source"));
    }
}

#[test]
fn an_empty_file() {
    for way in WAYS {
        let scene = Scene::new(606, way, 0).digest(DigestKind::Crc64Nvme);
        scene.run(&scene.client(1)).unwrap();
        let result = untouched(&scene).unwrap();
        assert_eq!(result.digest, DigestValue::Crc64Nvme(0));
    }
}

/// A comparison that takes minutes ends when the user, or the server, ends it.
#[test]
fn a_comparison_that_is_broken_off() {
    for way in WAYS {
        let mut scene = Scene::new(607, way, 0);
        for path in [&scene.source, &scene.target] {
            let file = File::create(path).unwrap();
            if file.set_len(100 << 30).is_err() {
                return xdfs_testkit::skip::test("files can't be so long here");
            }
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        for is_cancelled in [true, false] {
            let client = scene.client(1);
            let mut transfer = scene.start(&client);
            wait_for_bytes(&mut transfer, 1);
            let before = version(&scene.target);
            if is_cancelled {
                transfer.cancel();
            } else {
                scene.server.stop();
            }
            let fault = finish(transfer).unwrap_err();
            assert_eq!(fault.code == Code::Cancelled, is_cancelled, "{fault}");
            // It may be tried again: nobody knows what it would have come to.
            assert_ne!(fault.code, Code::AlreadyExists, "{fault}");
            assert_eq!(version(&scene.target), before);
        }
    }
}

/// The refusal may have come, and nobody have taken note of it yet.
#[test]
fn nothing_is_compared_for_who_has_cancelled() {
    for way in WAYS {
        let scene = Scene::new(608, way, SIZE);
        scene.run(&scene.client(1)).unwrap();
        let client = scene.client(1);
        let before = scene.line.forwarded().1;
        let transfer = scene.start(&client);
        let start = Instant::now();
        while scene.line.forwarded().1 == before {
            assert!(start.elapsed() < PATIENCE, "nothing was answered");
            std::thread::yield_now();
        }
        // What came before has been seen when this is answered.
        let path = b"/".to_vec();
        client.call(Call::Stat { path, follow: true }).unwrap();
        transfer.cancel();
        let fault = finish(transfer).unwrap_err();
        assert_eq!(fault.code, Code::Cancelled, "{way:?}: {fault}");
        scene.arrived();
    }
}
