//! Sources that lie, and digests that are known beforehand. The servers are real ones in this
//! process, whose stores misbehave.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{ChecksumValue, Code, Fault};
use xdfs_store::{LocalStore, Source, SourceInfo, Store};

use super::{ReplicaSet, ReplicaShare, Replicas};
use crate::client::{Client, ClientOptions};
use crate::remote::RemotePlace;
use crate::scheme::PlaceSettings;
use crate::server::{ServerBuilder, ServerHandle};
use crate::transfer::{LocalPlace, TransferOptions};

const SIZE: usize = 6 << 20;

/// How a store misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Honest,
    /// It sends another byte here than its digests have.
    Lies(u64),
    /// It computes no digests of blocks.
    NoDigests,
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
        Ok(Box::new(OddSource(self.manner, inner)))
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        if self.manner == Manner::NoDigests && matches!(call, Call::Signatures { .. }) {
            return Err(Fault::new(Code::Unsupported, "compute", "not here"));
        }
        self.files.call(call, part)
    }
}

#[derive(Debug)]
struct OddSource(Manner, Box<dyn Source>);

impl Source for OddSource {
    fn info(&self) -> &SourceInfo {
        self.1.info()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let count = self.1.read_at(offset, buf)?;
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
            Served::new(*manner, &file)
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
        let replicas = Replicas::new(vec![set], |place| {
            Client::connect(place, ClientOptions::default()).map(Arc::new)
        });
        let place = replicas.place(0).unwrap().clone();
        let options = ClientOptions {
            settings: PlaceSettings::default().with(replicas.clone()),
            ..ClientOptions::default()
        };
        let client = Client::connect(&place, options).unwrap();
        let target = self.folder.path().join("target");
        let to = LocalPlace::Path(target.clone());
        let transfer = client.download(&place.path, &to, &TransferOptions::default());
        Copied {
            result: transfer.unwrap().wait().map(drop),
            shares: replicas.at(&place).unwrap().1.shares(),
            target,
        }
    }
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
            let mut manners = [Manner::Honest; 2];
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
    for servers in [&[liar][..], &[liar, liar]] {
        let scene = Scene::new(servers);
        let copied = scene.copy(scene.set());
        copied.assert_nothing("sent other bytes");
        assert!(copied.shares.iter().all(|share| share.dropped.is_some()));
    }
}

#[test]
fn a_source_without_digests_is_compared_with_the_others() {
    let expected = content(3);
    let plain = Manner::NoDigests;
    let scene = Scene::new(&[(plain, &expected), (Manner::Honest, &expected)]);
    let copied = scene.copy(scene.set());
    copied.assert_is(&expected);
    assert!(copied.shares[0].bytes > 0 && copied.dropped(0).is_none());
    // One with other content is found, although it was named first.
    let scene = Scene::new(&[(plain, &content(4)), (Manner::Honest, &expected)]);
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
    let honest = Manner::Honest;
    let scene = Scene::new(&[(honest, &other), (honest, &other), (honest, &expected)]);
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
    let scene = Scene::new(&[(honest, &other), (honest, &other)]);
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
    let honest = Manner::Honest;
    let scene = Scene::new(&[(honest, &longer), (honest, &longer), (honest, &expected)]);
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
