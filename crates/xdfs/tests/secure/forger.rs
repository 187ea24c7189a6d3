//! Somebody between a client and a server who changes every byte that travels in the clear, so that
//! no check value shows it: what is then published is right, or nothing is.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use xdfs::security::Level;
use xdfs::{Client, Code, DigestKind, LocalPlace, SyncOptions, TreeEvent, TreeOptions, TreeResult};
use xdfs_proto::FileId;
use xdfs_proto::digest::BlockHasher;

use crate::world::{PATIENCE, Visit, World, assert_same, finish, wait_for_bytes};

/// What private things say, over and over: what is small, what things are called, where links lead.
const SECRET: &[u8] = b"nobody-should-see-this";
/// What large files say.
const MARK: &[u8] = b"a line of a large file that anybody may see\n";
const LARGE_BYTES: usize = 3 << 20;
/// What an older version of them has otherwise.
const CHANGED: Range<usize> = 2 << 20..(2 << 20) + 100_000;
/// First byte of payload in the clear, in the place of the type of a TLS record.
const RUN: u8 = 0xcc;
/// Before a record, and before a run.
const HEADER_BYTES: usize = 5;

/// A change of 13 bytes that neither CRC-32C nor CRC-64/NVME notices wherever it is made: the
/// product of their polynomials, as both are linear and bits go in with the lowest first.
fn forgery() -> [u8; 13] {
    const CRC32C: u128 = 0x1_1edc_6f41;
    const CRC64_NVME: u128 = 0x1_ad93_d235_94c9_3659;
    let mut product = 0_u128;
    for bit in 0..=32 {
        if CRC32C >> bit & 1 == 1 {
            product ^= CRC64_NVME << bit;
        }
    }
    let mut bytes = [0; 13];
    for at in 0..=96 {
        if product >> (96 - at) & 1 == 1 {
            bytes[at / 8] |= 1 << (at % 8);
        }
    }
    bytes
}

/// What the one in between has seen and done.
#[derive(Default)]
struct Taken {
    seen: Vec<u8>,
    forged: usize,
}

impl Taken {
    fn saw(&self, what: &[u8]) -> bool {
        self.seen.windows(what.len()).any(|w| w == what)
    }
}

struct Forger {
    addr: SocketAddr,
    taken: Arc<Mutex<Taken>>,
}

impl Forger {
    fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let taken = Arc::new(Mutex::new(Taken::default()));
        let all = Arc::clone(&taken);
        // Ends with the process: it waits for connections that may not come.
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(target).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let all = Arc::clone(&all);
                    thread::spawn(move || {
                        let _ = pass_on(from, &to, &all);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { addr, taken }
    }

    /// Forgets what was seen; what was done so far.
    fn begin(&self) {
        *self.taken.lock().unwrap() = Taken::default();
    }

    fn forged(&self) -> usize {
        self.taken.lock().unwrap().forged
    }

    #[track_caller]
    fn saw_nothing_private(&self) {
        let taken = self.taken.lock().unwrap();
        assert!(!taken.saw(SECRET), "{} bytes were seen", taken.seen.len());
    }
}

/// Passes records of TLS on as they are, and runs in the clear with forgeries all over them.
fn pass_on(mut from: TcpStream, mut to: &TcpStream, taken: &Mutex<Taken>) -> io::Result<()> {
    let forgery = forgery();
    loop {
        let mut unit = vec![0; HEADER_BYTES];
        from.read_exact(&mut unit)?;
        if unit[0] == RUN {
            let length = u32::from_be_bytes([unit[1], unit[2], unit[3], unit[4]]) as usize;
            unit.resize(HEADER_BYTES + length, 0);
            let payload = &mut unit[HEADER_BYTES..];
            from.read_exact(payload)?;
            let mut taken = taken.lock().unwrap();
            taken.seen.extend_from_slice(payload);
            for place in payload.chunks_exact_mut(forgery.len()) {
                for (byte, change) in place.iter_mut().zip(forgery) {
                    *byte ^= change;
                }
                taken.forged += 1;
            }
        } else {
            if !matches!(unit[0], 20..=23) {
                return Err(io::Error::other("it is neither a record of TLS nor a run"));
            }
            let length = usize::from(u16::from_be_bytes([unit[3], unit[4]]));
            unit.resize(HEADER_BYTES + length, 0);
            from.read_exact(&mut unit[HEADER_BYTES..])?;
        }
        to.write_all(&unit)?;
    }
}

/// A world whose server takes clear payload, somebody in between, and a visit through there.
fn scene() -> (World, Forger, Visit) {
    let world = World::with(|security, _| security.takes_clear = true);
    let forger = Forger::new(world.addr);
    let mut visit = world
        .visit("", vec![world.owner_key()])
        .at(forger.addr)
        .channels(3)
        .clear();
    visit.options.block_size = Some(128 << 10);
    (world, forger, visit)
}

fn content(of: &[u8], bytes: usize) -> Vec<u8> {
    of.iter().copied().cycle().take(bytes).collect()
}

fn secret_name(number: usize) -> String {
    format!("{}-{number}", str::from_utf8(SECRET).unwrap())
}

/// Files of many small lengths, empty ones, directories, links, and large ones if `with_large`.
fn make_tree(root: &Path, with_large: bool) {
    for directory in 0..3 {
        let directory = root.join(secret_name(directory));
        fs::create_dir_all(&directory).unwrap();
        for (number, bytes) in [0, 1, 100, 5000, 70_000, 512 << 10].into_iter().enumerate() {
            fs::write(directory.join(secret_name(number)), content(SECRET, bytes)).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(secret_name(9), directory.join(secret_name(8))).unwrap();
        if with_large {
            let large = [&content(SECRET, 512 << 10)[..], &content(MARK, LARGE_BYTES)].concat();
            fs::write(directory.join("large"), large).unwrap();
        }
    }
}

/// Whatever of the source stands at the target is right; returns how many of its files are missing.
fn missing(source: &Path, target: &Path) -> usize {
    let mut missing = 0;
    for entry in fs::read_dir(source).unwrap().map(Result::unwrap) {
        let there = target.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            missing += self::missing(&entry.path(), &there);
        } else if entry.file_type().unwrap().is_symlink() {
            assert_eq!(
                fs::read_link(entry.path()).unwrap(),
                fs::read_link(there).unwrap()
            );
        } else if there.exists() {
            assert_same(&entry.path(), &there);
        } else {
            missing += 1;
        }
    }
    let names = |path: &Path| -> Vec<_> {
        let entries = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<_> = entries
            .filter(|n| !n.to_string_lossy().contains(".xdfs-"))
            .collect();
        names.sort();
        names
    };
    let source = names(source);
    assert!(
        names(target).iter().all(|name| source.contains(name)),
        "a name is another one"
    );
    missing
}

#[test]
fn a_forgery_fits_both_check_values() {
    let right = content(MARK, 4000);
    let mut forged = right.clone();
    for (byte, change) in forged[1234..].iter_mut().zip(forgery()) {
        *byte ^= change;
    }
    assert!(right != forged);
    let [right, forged] = [right, forged].map(|bytes| {
        let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, true, 0);
        hasher.update(&bytes);
        hasher.finish(FileId(1))
    });
    assert_eq!(right, forged);
}

/// So the tests below are no farce: where a digest was asked for that can be forged, it is.
#[test]
fn who_asks_for_a_digest_that_can_be_forged_gets_it() {
    let (world, forger, visit) = scene();
    let source = world.path("client/source");
    fs::write(&source, content(MARK, LARGE_BYTES)).unwrap();
    let client = visit.connect().unwrap();
    let mut options = visit.transfer();
    options.parameters.digest = Some(DigestKind::Crc64Nvme);
    let place = LocalPlace::Path(source.clone());
    finish(client.upload(&place, b"copy", &options).unwrap()).unwrap();
    assert!(forger.forged() > 0);
    assert!(fs::read(&source).unwrap() != fs::read(world.path("root/copy")).unwrap());
}

#[test]
fn a_large_file_is_not_published_when_it_was_changed() {
    let (world, forger, visit) = scene();
    let name = secret_name(0);
    let source = world.path("client/source");
    fs::write(&source, content(MARK, LARGE_BYTES)).unwrap();
    let fault = visit.upload(&source, &name).unwrap_err();
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    assert!(forger.forged() > 0);
    world.nothing_published();

    forger.begin();
    fs::rename(&source, world.path("root").join(&name)).unwrap();
    let target = world.path("client/back");
    let fault = visit.download(&name, &target).unwrap_err();
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    assert!(forger.forged() > 0 && !target.exists());
    forger.saw_nothing_private();
}

/// What was changed on its way and cut off isn't taken for the file by an attempt that goes on from
/// it, even one that nobody changes: the sender takes the states of what is resumed for its own.
#[test]
fn what_came_in_the_clear_is_not_resumed() {
    let bytes = content(MARK, 8 * LARGE_BYTES);
    for is_upload in [true, false] {
        for is_clear_again in [true, false] {
            let (world, forger, visit) = scene();
            let (here, there) = (world.path("client/file"), world.path("root/file"));
            let (source, target) = if is_upload {
                (&here, &there)
            } else {
                (&there, &here)
            };
            fs::write(source, &bytes).unwrap();
            let place = LocalPlace::Path(here.clone());
            let begin = |client: &Client, visit: &Visit| match is_upload {
                true => client.upload(&place, b"file", &visit.transfer()),
                false => client.download(b"file", &place, &visit.transfer()),
            };
            let client = visit.connect().unwrap();
            let mut transfer = begin(&client, &visit.clone().rate(16 << 20)).unwrap();
            wait_for_bytes(&mut transfer, 12 << 20);
            transfer.cancel();
            let fault = finish(transfer).unwrap_err();
            assert_eq!(fault.code, Code::Cancelled, "{fault}");
            assert!(forger.forged() > 0 && !target.exists());

            let mut honest = visit.at(world.addr);
            if !is_clear_again {
                honest.options.security.as_mut().unwrap().level = Level::Private;
            }
            drop(client);
            let client = honest.connect().unwrap();
            let start = Instant::now();
            let result = loop {
                // The server may still be busy with the end of the first one.
                match finish(begin(&client, &honest).unwrap()) {
                    Err(fault) if fault.code == Code::Busy && start.elapsed() < PATIENCE => {
                        thread::sleep(Duration::from_millis(20));
                    }
                    result => break result.unwrap(),
                }
            };
            assert_same(source, target);
            // What was private is: the beginning, a block of 2 MiB on each of the channels that
            // weren't clear yet.
            assert!(result.resumed_bytes <= 6 << 20, "{result:?}");
        }
    }
}

#[test]
fn small_files_do_not_come_into_other_hands() {
    let (world, forger, visit) = scene();
    for bytes in [0, 1, 1000, 128 << 10, 300_000, 512 << 10] {
        let name = secret_name(bytes);
        let source = world.path("client").join(&name);
        fs::write(&source, content(SECRET, bytes)).unwrap();
        visit.upload(&source, &name).unwrap();
        assert_same(&source, &world.path("root").join(&name));
        let target = world.path("client/back");
        visit.download(&name, &target).unwrap();
        assert_same(&source, &target);
    }
    assert_eq!(forger.forged(), 0);
    forger.saw_nothing_private();
}

#[test]
fn trees_are_right_or_lack_what_was_changed() {
    let options = TreeOptions {
        owner: true,
        ..TreeOptions::default()
    };
    for with_large in [false, true] {
        for by_sync in [false, true] {
            let (world, forger, visit) = scene();
            let (source, there) = (world.path("client/tree"), world.path("root/copy"));
            make_tree(&source, with_large);
            let client = visit.connect().unwrap();
            let sync = SyncOptions {
                tree: options.clone(),
                ..SyncOptions::default()
            };
            let check = |result: TreeResult, target: &Path| {
                let lacks = if with_large { 3 } else { 0 };
                assert_eq!(result.failed, lacks, "{result:?}");
                assert_eq!(missing(&source, target), lacks as usize);
                assert_eq!(forger.forged() > 0, with_large);
                forger.saw_nothing_private();
                forger.begin();
            };
            let up = if by_sync {
                let result = client.sync_to(&source, b"/copy", &sync, &mut xdfs::Silent);
                result.unwrap().tree
            } else {
                client
                    .upload_tree(&source, b"/copy", &options, &mut xdfs::Silent)
                    .unwrap()
            };
            check(up, &there);
            // Back from what was made there by other means.
            fs::remove_dir_all(&there).unwrap();
            make_tree(&there, with_large);
            let back = world.path("client/back");
            let down = if by_sync {
                let result = client.sync_from(b"/copy", &back, &sync, &mut xdfs::Silent);
                result.unwrap().tree
            } else {
                client
                    .download_tree(b"/copy", &back, &options, &mut xdfs::Silent)
                    .unwrap()
            };
            check(down, &back);
        }
    }
}

/// A tree, and in another place an older version of its large files and nothing else.
fn make_versions(new: &Path, old: &Path) {
    make_tree(new, true);
    for directory in 0..3 {
        let name = Path::new(&secret_name(directory)).join("large");
        let (new, old) = (new.join(&name), old.join(&name));
        fs::create_dir_all(old.parent().unwrap()).unwrap();
        fs::rename(&new, &old).unwrap();
        let mut bytes = fs::read(&old).unwrap();
        bytes[CHANGED].copy_from_slice(&content(b"what wasn't there before ", CHANGED.len()));
        fs::write(&new, bytes).unwrap();
        let old = File::options().write(true).open(&old).unwrap();
        old.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000))
            .unwrap();
    }
}

/// Only what changed of a large file travels in the clear, and the old version stays where that was
/// changed on its way.
#[test]
fn differences_are_right_or_the_old_version_stays() {
    let sync = SyncOptions {
        delta: true,
        ..SyncOptions::default()
    };
    for is_upload in [true, false] {
        let (world, forger, visit) = scene();
        let (here, there) = (world.path("client/tree"), world.path("root/copy"));
        let (source, target) = if is_upload {
            (&here, &there)
        } else {
            (&there, &here)
        };
        make_versions(source, target);
        let old = fs::read(target.join(secret_name(1)).join("large")).unwrap();
        let client = visit.connect().unwrap();
        let mut told = Vec::new();
        let mut watch = |event: TreeEvent<'_>| {
            if let TreeEvent::Failed { fault, .. } = event {
                told.push(fault.code);
            }
            CONTINUE
        };
        let result = if is_upload {
            client.sync_to(source, b"/copy", &sync, &mut watch)
        } else {
            client.sync_from(b"/copy", target, &sync, &mut watch)
        };
        let result = result.unwrap().tree;
        assert_eq!(result.failed, 3, "{result:?}");
        assert_eq!(told, [Code::IntegrityMismatch; 3]);
        let forged = forger.forged() * forgery().len();
        assert!(forged > 0 && forged < LARGE_BYTES, "{forged} bytes");
        forger.saw_nothing_private();
        assert!(fs::read(target.join(secret_name(1)).join("large")).unwrap() == old);
        // All else has come.
        for directory in 0..3 {
            for tree in [source, target] {
                fs::remove_file(tree.join(secret_name(directory)).join("large")).unwrap();
            }
        }
        assert_eq!(missing(source, target), 0);
    }
}

const CONTINUE: std::ops::ControlFlow<()> = std::ops::ControlFlow::Continue(());
