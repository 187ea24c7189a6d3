//! Sources that lie, and digests that are known beforehand. The servers are real ones in this
//! process, whose stores misbehave.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ChecksumValue, Code, Fault, Retry};
use xdfs_store::{LocalStore, Source, SourceInfo, Store};

use super::fetch::BLOCK_BYTES;
use super::{ReplicaLog, ReplicaSet, ReplicaShare, Replicas};
use crate::client::{Client, ClientOptions};
use crate::remote::RemotePlace;
use crate::scheme::PlaceSettings;
use crate::server::{ServerBuilder, ServerHandle};
use crate::skip::Skip;
use crate::transfer::{LocalPlace, Transfer, TransferOptions};

const SIZE: usize = 6 << 20;
/// The longest time that a test waits for anything: more is a hang.
const HANG: Duration = Duration::from_secs(60);

/// The misbehaviour of a store.
#[derive(Clone, Debug)]
enum Manner {
    Honest,
    /// It sends another byte here than its digests have.
    Lies(u64),
    /// It computes no digests of blocks.
    NoDigests,
    /// It claims that its file has this digest.
    Claims(ChecksumValue),
    /// It doesn't answer such calls before the flag is set.
    Silent(fn(&Call) -> bool, Arc<AtomicBool>),
    /// From this byte on it has neither bytes nor digests. It says so once the flag is set.
    Ends(u64, Arc<AtomicBool>),
}

/// The files of this machine.
#[derive(Debug)]
struct Odd {
    manner: Manner,
    files: LocalStore,
}

impl Store for Odd {
    xdfs_store::forward!(Store to files: is_slow, open_sink, check_sink, read_pack, write_pack,
        packs_wait, open_file);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let inner = self.files.open_source(path)?;
        Ok(Box::new(OddSource(self.manner.clone(), inner)))
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match (&self.manner, call) {
            (Manner::NoDigests, Call::Signatures { .. }) => {
                Err(Fault::new(Code::Unsupported, "compute", "not here"))
            }
            (Manner::Ends(at, flag), Call::Signatures { first, count, .. })
                if (first + u64::from(*count)) * u64::from(BLOCK_BYTES) > *at =>
            {
                Err(end(flag))
            }
            (Manner::Silent(is_meant, flag), call) if is_meant(call) => Err(end(flag)),
            (Manner::Claims(claimed), Call::Checksum { .. }) => {
                let mut answer = self.files.call(call, part)?;
                if let Answer::Digest { value, .. } = &mut answer {
                    *value = *claimed;
                }
                Ok(answer)
            }
            _ => self.files.call(call, part),
        }
    }
}

/// Waits until it is `true`.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "it hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The end of a source, when the flag is set.
fn end(flag: &AtomicBool) -> Fault {
    until(|| flag.load(Ordering::Relaxed));
    Fault::new(Code::Io, "read", "the disk is broken")
}

#[derive(Debug)]
struct OddSource(Manner, Box<dyn Source>);

impl Source for OddSource {
    fn info(&self) -> &SourceInfo {
        self.1.info()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let count = self.1.read_at(offset, buf)?;
        if let Manner::Ends(at, flag) = &self.0
            && offset + count as u64 > *at
        {
            return Err(end(flag));
        }
        if let Manner::Lies(at) = self.0
            && let Some(at) = at.checked_sub(offset)
            && let Some(byte) = buf[..count].get_mut(at as usize)
        {
            *byte ^= 1;
        }
        Ok(count)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.1.verify_unchanged()
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}

/// A server of a file. It ends when it is dropped.
struct Served {
    place: RemotePlace,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(manner: Manner, file: &Path) -> Self {
        let builder = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            ..ServerBuilder::default()
        };
        let files = LocalStore::unrooted();
        let store = Odd { manner, files };
        let server = builder.bind_store(Arc::new(store)).unwrap();
        let url = format!("xdfs://{}{}", server.addresses()[0], file.display());
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Self {
            place: url.parse().unwrap(),
            handle,
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.shutdown();
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Scene {
    folder: tempfile::TempDir,
    served: Vec<Served>,
}

/// The result of a copy.
struct Copied {
    result: Result<(), Fault>,
    target: PathBuf,
    shares: Vec<ReplicaShare>,
}

impl Scene {
    /// Servers of files with this content.
    fn new(servers: &[(Manner, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = servers.iter().enumerate().map(|(number, (manner, bytes))| {
            let file = folder.path().join(format!("file{number}"));
            std::fs::write(&file, bytes).unwrap();
            Served::new(manner.clone(), &file)
        });
        Self {
            served: served.collect(),
            folder,
        }
    }

    fn set(&self) -> ReplicaSet {
        let places = self.served.iter().map(|served| served.place.clone());
        ReplicaSet::new(places.collect()).unwrap()
    }

    fn copy(&self, set: ReplicaSet) -> Copied {
        let replicas = Replicas::new(vec![set], connect);
        self.copy_of(&replicas, &TransferOptions::default())
    }

    /// One attempt to copy the set.
    fn copy_of(&self, replicas: &Replicas, options: &TransferOptions) -> Copied {
        let place = replicas.place(0).unwrap().clone();
        let settings = ClientOptions {
            settings: PlaceSettings::default().with(replicas.clone()),
            ..ClientOptions::default()
        };
        let client = Client::connect(&place, settings).unwrap();
        let target = self.folder.path().join("target");
        let to = LocalPlace::Path(target.clone());
        let transfer = client.download(&place.path, &to, options);
        Copied {
            result: end_of(transfer.unwrap()),
            shares: log(replicas).shares(),
            target,
        }
    }
}

fn connect(place: &RemotePlace) -> Result<Arc<Client>, Fault> {
    Client::connect(place, ClientOptions::default()).map(Arc::new)
}

fn log(replicas: &Replicas) -> ReplicaLog {
    let place = replicas.place(0).unwrap();
    replicas.at(place).unwrap().1
}

#[track_caller]
fn end_of(transfer: Transfer) -> Result<(), Fault> {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(transfer.wait().map(drop)));
    ended.recv_timeout(HANG).expect("it hangs")
}

fn content(seed: u8) -> Vec<u8> {
    (0..SIZE)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 9) as u8 ^ seed)
        .collect()
}

fn sha256(bytes: &[u8]) -> ChecksumValue {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, bytes).unwrap();
    let path = file.as_os_str().as_encoded_bytes();
    let mut source = LocalStore::unrooted().open_source(path).unwrap();
    let kind = xdfs_proto::ChecksumKind::Sha256;
    match xdfs_store::checksum(&mut *source, path, (0, None), kind).unwrap() {
        Answer::Digest { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

impl Copied {
    #[track_caller]
    fn assert_is(&self, expected: &[u8]) {
        self.result.clone().unwrap();
        assert!(std::fs::read(&self.target).unwrap() == expected);
        let bytes = self.shares.iter().map(|share| share.bytes).sum::<u64>();
        assert_eq!(bytes, SIZE as u64);
    }

    #[track_caller]
    fn assert_nothing(&self, words: &str) {
        let fault = self.result.clone().unwrap_err();
        assert!(fault.cause.contains(words), "{fault}");
        assert!(!self.target.exists());
    }

    fn dropped(&self, source: usize) -> Option<&Fault> {
        self.shares[source].dropped.as_ref()
    }
}

#[test]
fn a_source_that_lies_about_its_bytes_is_dropped_and_nothing_of_the_lie_remains() {
    let expected = content(1);
    for at in [0, 700_000, SIZE as u64 - 1] {
        for liar in [0, 1] {
            let mut manners = [Manner::Honest, Manner::Honest];
            manners[liar] = Manner::Lies(at);
            let scene = Scene::new(&manners.map(|manner| (manner, &expected[..])));
            let copied = scene.copy(scene.set());
            copied.assert_is(&expected);
            // The other one may have sent the range of that byte first.
            if let Some(fault) = copied.dropped(liar) {
                assert_eq!(fault.code, Code::IntegrityMismatch);
                assert!(fault.cause.contains("sent other bytes"), "{fault}");
                assert!(fault.machine.is_some());
            }
            assert!(copied.dropped(1 - liar).is_none());
        }
    }
}

#[test]
fn sources_that_all_lie_publish_nothing() {
    let expected = content(2);
    let liar = (Manner::Lies(5), &expected[..]);
    for servers in [vec![liar.clone()], vec![liar.clone(), liar]] {
        let scene = Scene::new(&servers);
        let copied = scene.copy(scene.set());
        copied.assert_nothing("sent other bytes");
        assert!(copied.shares.iter().all(|share| share.dropped.is_some()));
    }
}

#[test]
fn a_source_without_digests_is_compared_with_the_others() {
    let expected = content(3);
    let plain = Manner::NoDigests;
    let scene = Scene::new(&[(plain.clone(), &expected), (Manner::Honest, &expected)]);
    let copied = scene.copy(scene.set());
    copied.assert_is(&expected);
    assert!(copied.shares[0].bytes > 0 && copied.dropped(0).is_none());
    // One with other content is found, although it was named first.
    let scene = Scene::new(&[(plain.clone(), &content(4)), (Manner::Honest, &expected)]);
    let copied = scene.copy(scene.set());
    copied.assert_is(&expected);
    assert_eq!(copied.dropped(0).unwrap().code, Code::IntegrityMismatch);
    // Alone it can't be compared with anything.
    let scene = Scene::new(&[(plain, &expected)]);
    let copied = scene.copy(scene.set());
    copied.assert_nothing("none of its sources computes");
}

#[test]
fn a_digest_that_is_known_beforehand_decides() {
    let (expected, other) = (content(5), content(6));
    let honest = |bytes| (Manner::Honest, bytes);
    let scene = Scene::new(&[&other[..], &other, &expected].map(honest));
    let set = ReplicaSet {
        digest: Some(sha256(&expected)),
        ..scene.set()
    };
    let copied = scene.copy(set);
    copied.assert_is(&expected);
    for source in [0, 1] {
        let fault = copied.dropped(source).unwrap();
        assert!(fault.cause.contains("known beforehand"), "{fault}");
    }
    // None of the sources has that file.
    let scene = Scene::new(&[&other[..], &other].map(honest));
    let set = ReplicaSet {
        digest: Some(sha256(&expected)),
        ..scene.set()
    };
    let copied = scene.copy(set);
    copied.assert_nothing("known beforehand");
    assert_eq!(std::fs::read_dir(scene.folder.path()).unwrap().count(), 2);
}

#[test]
fn a_length_that_is_known_beforehand_decides() {
    let expected = content(7);
    let longer = [&expected[..], b"x"].concat();
    let honest = |bytes| (Manner::Honest, bytes);
    let scene = Scene::new(&[&longer[..], &longer, &expected].map(honest));
    let set = ReplicaSet {
        length: Some(SIZE as u64),
        ..scene.set()
    };
    let copied = scene.copy(set.clone());
    copied.assert_is(&expected);
    assert!(
        copied
            .dropped(0)
            .unwrap()
            .cause
            .contains("it has 6291457 bytes")
    );
    let set = ReplicaSet {
        length: Some(7),
        ..set
    };
    assert!(scene.copy(set).result.is_err());
}

/// Whose beginning and length are within ranges of several blocks.
#[test]
fn a_part_begins_anywhere() {
    let expected = [content(8), content(9), content(10)].concat();
    let block = u64::from(BLOCK_BYTES);
    let scene = Scene::new(&[(Manner::Honest, &expected), (Manner::Honest, &expected)]);
    for (offset, length) in [
        (7 * block, 2 * block),
        (9 * block + 7, 1),
        (6 * block, block),
    ] {
        let replicas = Replicas::new(vec![scene.set()], connect);
        let options = TransferOptions {
            offset,
            length: Some(length),
            skip: Skip::Never,
            ..TransferOptions::default()
        };
        let copied = scene.copy_of(&replicas, &options);
        copied.result.unwrap();
        let part = &expected[offset as usize..][..length as usize];
        assert!(std::fs::read(&copied.target).unwrap() == part, "{offset}");
        std::fs::remove_file(copied.target).unwrap();
    }
}

/// The first source ends after its beginning was passed on, and only then the second one comes.
#[test]
fn the_beginning_of_a_source_that_is_gone_is_not_mixed_with_the_end_of_another() {
    let (before, expected) = (content(11), content(12));
    let is_ended = Arc::new(AtomicBool::new(false));
    let ends = Manner::Ends(3 << 20, Arc::clone(&is_ended));
    let mut scene = Scene::new(&[(ends, &before), (Manner::Honest, &expected)]);
    let logged = Arc::new(std::sync::OnceLock::<ReplicaLog>::new());
    let second = scene.served[1].place.clone();
    let log_of = Arc::clone(&logged);
    let replicas = Replicas::new(vec![scene.set()], move |place| {
        let has_begun = || log_of.get().is_some_and(|log| log.shares()[0].bytes > 0);
        if *place == second {
            until(has_begun);
        }
        connect(place)
    });
    let log = log(&replicas);
    logged.set(log.clone()).unwrap();
    let first = std::thread::scope(|scope| {
        scope.spawn(|| {
            until(|| log.shares()[1].is_used);
            is_ended.store(true, Ordering::Relaxed);
        });
        scene.copy_of(&replicas, &TransferOptions::default())
    });
    first.assert_nothing("its beginning was compared are gone");
    let fault = first.result.unwrap_err();
    assert_eq!((fault.code, fault.retry), (Code::SourceChanged, Retry::Now));
    // Its server is gone too. What is there may have to be removed first.
    drop(scene.served.remove(0));
    let attempt = || scene.copy_of(&replicas, &TransferOptions::default());
    let copied = match attempt() {
        Copied {
            result: Err(fault), ..
        } => {
            assert!(fault.cause.contains("differs from the sources"), "{fault}");
            attempt()
        }
        copied => copied,
    };
    copied.result.clone().unwrap();
    assert!(std::fs::read(&copied.target).unwrap() == expected);
}

/// Eight of them: as many as are joined at once.
#[test]
fn sources_that_do_not_answer_give_their_places_to_others() {
    let expected = content(13);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_stat = |call: &Call| matches!(call, Call::Stat { .. });
    let silent = Manner::Silent(is_stat, Arc::clone(&is_over));
    let mut servers = vec![(silent, &expected[..]); 8];
    servers.push((Manner::Honest, &expected));
    let scene = Scene::new(&servers);
    let mut replicas = Replicas::new(vec![scene.set()], connect);
    replicas.patience.facts = Duration::from_secs(5);
    let copied = scene.copy_of(&replicas, &TransferOptions::default());
    is_over.store(true, Ordering::Relaxed);
    copied.assert_is(&expected);
    let fault = copied.dropped(7).unwrap();
    assert_eq!(fault.code, Code::DeadlineExceeded);
    assert!(copied.dropped(8).is_none());
}

#[test]
fn a_source_that_withholds_the_digest_of_its_file_is_dropped() {
    let (expected, other) = (content(14), content(15));
    let is_over = Arc::new(AtomicBool::new(false));
    let is_digest = |call: &Call| matches!(call, Call::Checksum { .. });
    let silent = Manner::Silent(is_digest, Arc::clone(&is_over));
    let scene = Scene::new(&[(silent, &other), (Manner::Honest, &expected)]);
    let set = ReplicaSet {
        digest: Some(sha256(&expected)),
        ..scene.set()
    };
    let mut replicas = Replicas::new(vec![set], connect);
    replicas.patience.digest = Duration::from_secs(10);
    let copied = scene.copy_of(&replicas, &TransferOptions::default());
    is_over.store(true, Ordering::Relaxed);
    copied.assert_is(&expected);
    let fault = copied.dropped(0).unwrap();
    assert_eq!(fault.code, Code::DeadlineExceeded, "{fault}");
}

/// The first one is believed, until its bytes are compared with the digest that it claims.
#[test]
fn a_source_that_claims_a_digest_gives_way_to_one_that_has_it() {
    let (expected, other) = (content(16), content(17));
    let digest = sha256(&expected);
    let scene = Scene::new(&[
        (Manner::Claims(digest), &other),
        (Manner::Honest, &expected),
    ]);
    let set = ReplicaSet {
        digest: Some(digest),
        ..scene.set()
    };
    let replicas = Replicas::new(vec![set], connect);
    let attempt = || scene.copy_of(&replicas, &TransferOptions::default());
    let copied = attempt();
    copied.assert_nothing("known beforehand");
    let fault = copied.result.clone().unwrap_err();
    assert_eq!(
        (fault.code, fault.retry),
        (Code::IntegrityMismatch, Retry::Now)
    );
    let fault = copied.dropped(0).unwrap();
    assert!(fault.cause.contains("that it computes"), "{fault}");
    assert!(copied.dropped(1).is_none());
    let copied = attempt();
    copied.result.clone().unwrap();
    assert!(std::fs::read(&copied.target).unwrap() == expected);
    assert!(copied.dropped(0).is_some() && copied.dropped(1).is_none());
}

#[test]
fn a_panic_while_a_source_is_joined_drops_it() {
    let expected = content(18);
    let scene = Scene::new(&[(Manner::Honest, &expected), (Manner::Honest, &expected)]);
    let first = scene.served[0].place.clone();
    let replicas = Replicas::new(vec![scene.set()], move |place| {
        assert!(*place != first, "on purpose");
        connect(place)
    });
    let copied = scene.copy_of(&replicas, &TransferOptions::default());
    copied.assert_is(&expected);
    assert_eq!(copied.dropped(0).unwrap().code, Code::Internal);
}
