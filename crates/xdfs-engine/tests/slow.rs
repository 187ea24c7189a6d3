//! Stores that take time, or use other machines: whatever one of their files waits for, other files
//! of the session go on.
//!
//! A gate holds up the opening or reading of one file until the test opens it; the other file has
//! to be complete before that.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_engine::kernel::Readiness;
use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{
    Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy, Command, Commands, Dial, DownloadSpec,
    LimitedBy, Outcome, Pipeline, Route, TransferEvent, TransferParameters, TransferSpec,
    UploadSpec,
};
use xdfs_proto::digest::Fragment;
use xdfs_proto::frame::{Level, Resume, Start};
use xdfs_proto::{Code, DigestKind, Fault, FileId, Limits};
use xdfs_store::{
    Capabilities, MemStore, OpenedSink, Sink, SinkRequest, Source, SourceInfo, Store,
};
use xdfs_xio::{Endpoint, Registry};

/// For hangs alone.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file that has to wait.
const SLOW: &[u8] = b"slow";
const LENGTH: usize = 3 << 20;

/// Holds up whoever passes, until it is opened.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    /// Something waits at it, or did.
    is_reached: Mutex<bool>,
    reached: Condvar,
    /// Sources of which something was to be read.
    sources: Mutex<usize>,
    source_came: Condvar,
}

impl Gate {
    /// Waits until so many sources have come, and tells whether they have.
    fn wait_for_sources(&self, count: usize, patience: Duration) -> bool {
        let sources = self.sources.lock().unwrap();
        let (sources, _) = self
            .source_came
            .wait_timeout_while(sources, patience, |sources| *sources < count)
            .unwrap();
        *sources >= count
    }

    fn source_comes(&self) {
        *self.sources.lock().unwrap() += 1;
        self.source_came.notify_all();
    }

    fn wait_until_reached(&self) {
        let is_reached = self.is_reached.lock().unwrap();
        let (is_reached, _) = self
            .reached
            .wait_timeout_while(is_reached, PATIENCE, |is_reached| !*is_reached)
            .unwrap();
        assert!(*is_reached, "nothing came to the gate");
    }

    fn pass(&self) {
        *self.is_reached.lock().unwrap() = true;
        self.reached.notify_all();
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open));
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Where the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Nowhere,
    OpenSource,
    Read,
    /// Before all of them.
    ReadAny,
    OpenSink,
    Write,
    Publish,
    /// Faults of another machine, which the store uses, instead of gates.
    FailsToOpenSource,
    FailsToOpen,
    FailsToWrite,
    FailsToPublish,
}

impl Where {
    fn fail(self, at: Self) -> Result<(), Fault> {
        let lost = || Fault::new(Code::ConnectionLost, "keep the file", "its machine is gone");
        match self == at {
            true => Err(lost().remote()),
            false => Ok(()),
        }
    }
}

/// A store that says that it is slow, with a gate before one of its files.
#[derive(Debug)]
struct SlowStore {
    inner: MemStore,
    gate: Arc<Gate>,
    at: Where,
}

impl SlowStore {
    fn hold_up(&self, at: Where, path: &[u8]) {
        if self.at == at && path == SLOW {
            self.gate.pass();
        }
    }
}

impl Store for SlowStore {
    fn is_slow(&self) -> bool {
        true
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.hold_up(Where::OpenSource, path);
        if path == SLOW {
            self.at.fail(Where::FailsToOpenSource)?;
        }
        let is_gated = self.at == Where::ReadAny || self.at == Where::Read && path == SLOW;
        Ok(Box::new(SlowSource {
            inner: self.inner.open_source(path)?,
            gate: is_gated.then(|| Arc::clone(&self.gate)),
            has_come: false,
        }))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.hold_up(Where::OpenSink, &request.path);
        if request.path.starts_with(SLOW) {
            self.at.fail(Where::FailsToOpen)?;
        }
        let opened = self.inner.open_sink(request)?;
        let sink = Box::new(SlowSink {
            inner: opened.sink,
            gate: Arc::clone(&self.gate),
            at: self.at,
        });
        Ok(OpenedSink { sink, ..opened })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.inner.check_sink(request)
    }

    xdfs_store::defaults!(Store: read_pack, write_pack, packs_wait, call, open_file);
}

#[derive(Debug)]
struct SlowSource {
    inner: Box<dyn Source>,
    gate: Option<Arc<Gate>>,
    has_come: bool,
}

impl Source for SlowSource {
    fn info(&self) -> &SourceInfo {
        self.inner.info()
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        if let Some(gate) = &self.gate {
            if !std::mem::replace(&mut self.has_come, true) {
                gate.source_comes();
            }
            gate.pass();
        }
        self.inner.read_at(offset, buf)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.inner.verify_unchanged()
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, memory, is_uniform,
        shared);
}

/// A sink with a gate before each write, or before publication.
#[derive(Debug)]
struct SlowSink {
    inner: Box<dyn Sink>,
    gate: Arc<Gate>,
    at: Where,
}

impl Sink for SlowSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            slow_writes: true,
            ..self.inner.capabilities()
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        if self.at == Where::Write {
            self.gate.pass();
        }
        self.at.fail(Where::FailsToWrite)?;
        self.inner.write_at(offset, bufs)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.inner.sync()
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.inner.record(durable)
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        if self.at == Where::Publish {
            self.gate.pass();
        }
        self.at.fail(Where::FailsToPublish)?;
        self.inner.publish(length, fresh)
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.inner.discard()
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, read_back,
        shared);
}

fn content(path: &[u8]) -> Vec<u8> {
    let first = path[0];
    (0..LENGTH).map(|at| (at / 7) as u8 ^ first).collect()
}

/// A client and a server, of which the server's store has a gate, or the client's.
struct Scene {
    gate: Arc<Gate>,
    here: Arc<SlowStore>,
    there: Arc<SlowStore>,
    commands: Commands,
    control: AcceptorControl,
    files: u32,
    threads: Vec<thread::JoinHandle<Result<(), Fault>>>,
}

impl Scene {
    fn new(name: &str, here: Where, there: Where, block_size: u32) -> Self {
        let gate = Arc::new(Gate::default());
        let store = |at| {
            let (inner, gate) = (MemStore::new(), Arc::clone(&gate));
            for path in [SLOW, b"fast"] {
                inner.insert(path, content(path));
            }
            Arc::new(SlowStore { inner, gate, at })
        };
        let (here, there) = (store(here), store(there));
        let endpoint = Endpoint::memory(format!("slow-{name}"));
        let registry = Registry::standard();
        let stack = registry.build(&"memory".parse().unwrap()).unwrap();
        let config = AcceptorConfig {
            listeners: vec![stack.listen(&endpoint).unwrap()],
            access: AccessPolicy::Open(Arc::clone(&there) as Arc<dyn Store>, None),
            sessions_max: 1,
            memory_bytes_max: usize::MAX,
            tunnels: xdfs_engine::tunnel::TunnelLimits::default(),
            limits: Limits::default(),
        };
        let (acceptor, control) = Acceptor::new(config).unwrap();
        let dial = Dial {
            rate: None,
            routes: vec![Route { endpoint, stack }],
            channels: Some(2),
            block_size: Some(block_size),
            window: None,
            start: Start::Elastic,
            user: String::new(),
            identity: None,
            level: Level::Private,
            yields: false,
        };
        let kernel = Readiness::new().unwrap();
        let (pipeline, commands) = Pipeline::initiate(kernel, dial, Limits::default()).unwrap();
        let builder = || thread::Builder::new();
        let threads = vec![
            builder().spawn(move || acceptor.run()).unwrap(),
            builder().spawn(move || pipeline.run()).unwrap(),
        ];
        Self {
            gate,
            here,
            there,
            commands,
            control,
            files: 0,
            threads,
        }
    }

    fn start(&mut self, path: &[u8], uploads: bool) -> Mailbox<TransferEvent> {
        let (events, receiver) = mailbox();
        self.files += 1;
        let target = [path, b"-copy"].concat();
        // The gate of a sink is before the name of the target.
        let gated = self.there.at == Where::OpenSink || self.here.at == Where::OpenSink;
        let (source, target) = match gated && path == SLOW {
            true => (b"fast".to_vec(), SLOW.to_vec()),
            false => (path.to_vec(), target),
        };
        let kind = match uploads {
            true => TransferKind::Upload(UploadSpec {
                source: self.here.open_source(&source).unwrap(),
                source_path: source,
                target,
                name: Vec::new(),
                pack: false,
                relaxed: false,
                last: None,
            }),
            false => TransferKind::Download(DownloadSpec {
                source,
                store: Arc::clone(&self.here) as Arc<dyn Store>,
                target,
                name: Vec::new(),
                pack_request: None,
            }),
        };
        let job = TransferSpec {
            file: FileId(self.files),
            offset: 0,
            length: None,
            duration: None,
            parameters: TransferParameters {
                digest: Some(DigestKind::Crc64Nvme),
                overwrite: true,
                resume: Resume::Never,
                ..TransferParameters::default()
            },
            kind,
            events,
        };
        self.commands.send(Command::Start(Box::new(job))).unwrap();
        receiver
    }

    fn end(self) {
        self.commands.send(Command::Close).unwrap();
        self.control.drain(Duration::from_secs(1));
        for thread in self.threads {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    }
}

fn end_of(events: &Mailbox<TransferEvent>) -> Result<Outcome, Fault> {
    loop {
        match events.recv_timeout(PATIENCE).unwrap() {
            TransferEvent::Progress(_) => {}
            TransferEvent::Ended(result) => return result,
        }
    }
}

/// Moves a file that has to wait and one after it, and opens the gate when that one is complete.
fn check(name: &str, here: Where, there: Where, uploads: bool) {
    let mut scene = Scene::new(name, here, there, 1 << 16);
    let slow = scene.start(SLOW, uploads);
    let fast = scene.start(b"fast", uploads);
    assert_eq!(end_of(&fast).unwrap().bytes, LENGTH as u64);
    let told = std::iter::from_fn(|| slow.recv_timeout(Duration::ZERO).ok());
    let ended = { told }.find(|event| matches!(event, TransferEvent::Ended(_)));
    assert!(ended.is_none(), "the gate held nobody up: {ended:?}");
    scene.gate.open();
    let outcome = end_of(&slow).unwrap();
    assert_eq!(outcome.bytes, LENGTH as u64);
    let target = if uploads { &scene.there } else { &scene.here };
    let mut came = vec![0; LENGTH + 1];
    let mut source = target.inner.open_source(&outcome.target).unwrap();
    assert_eq!(source.read_at(0, &mut came), Ok(LENGTH));
    let is_sink = [here, there].contains(&Where::OpenSink);
    let expected = content(if is_sink { b"fast" } else { SLOW });
    assert!(came[..LENGTH] == expected, "other bytes came");
    scene.end();
}

#[test]
fn a_source_that_is_slow_to_open_at_the_server() {
    check("open", Where::Nowhere, Where::OpenSource, false);
}

#[test]
fn a_source_that_is_slow_to_read_at_the_server() {
    check("read", Where::Nowhere, Where::Read, false);
}

#[test]
fn a_source_that_is_slow_to_read_at_the_client() {
    check("send", Where::Read, Where::Nowhere, true);
}

#[test]
fn a_sink_that_is_slow_to_open_at_the_server() {
    check("sink", Where::Nowhere, Where::OpenSink, true);
}

#[test]
fn a_sink_that_is_slow_to_open_at_the_client() {
    check("keep", Where::OpenSink, Where::Nowhere, false);
}

#[test]
fn what_is_read_ahead_is_bounded_for_all_files_together() {
    // Two blocks are all that a session reads ahead, whoever reads them: without that each of the
    // files would have its own.
    let block_size = 16 << 20;
    let mut scene = Scene::new("bound", Where::ReadAny, Where::Nowhere, block_size);
    let paths: [&[u8]; 4] = [b"wide-0", b"wide-1", b"wide-2", b"wide-3"];
    for path in paths {
        let bytes = vec![path[5]; block_size as usize];
        scene.here.inner.insert(path, bytes);
    }
    let events = paths.map(|path| scene.start(path, true));
    assert!(scene.gate.wait_for_sources(2, PATIENCE));
    let has_third = scene.gate.wait_for_sources(3, Duration::from_millis(500));
    assert!(!has_third, "more is read ahead than may be");
    scene.gate.open();
    for events in &events {
        assert_eq!(end_of(events).unwrap().bytes, u64::from(block_size));
    }
    scene.end();
}

/// The verdict on a file that waits at the gate for most of its time.
fn verdict(name: &str, here: Where, there: Where, uploads: bool) -> LimitedBy {
    let mut scene = Scene::new(name, here, there, 1 << 16);
    #[expect(clippy::disallowed_methods, reason = "a real store takes real time")]
    let began = Instant::now();
    let slow = scene.start(SLOW, uploads);
    scene.gate.wait_until_reached();
    // Longer than all of the rest, however busy the machine is.
    #[expect(clippy::disallowed_methods, reason = "this is how slow the store is")]
    thread::sleep(Duration::from_secs(1) + 4 * began.elapsed());
    scene.gate.open();
    let shares = end_of(&slow).unwrap().time_shares;
    let sum: f64 = shares.iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
    scene.end();
    shares.limited_by()
}

#[test]
fn the_verdict_names_a_slow_source() {
    let (at, no) = (Where::Read, Where::Nowhere);
    assert_eq!(verdict("v-1", at, no, true), LimitedBy::SourceRead);
    assert_eq!(verdict("v-2", no, at, false), LimitedBy::SourceRead);
}

#[test]
fn the_verdict_names_a_slow_target() {
    let (at, no) = (Where::Write, Where::Nowhere);
    assert_eq!(verdict("v-3", no, at, true), LimitedBy::TargetWrite);
    assert_eq!(verdict("v-4", at, no, false), LimitedBy::TargetWrite);
    // Opening it is a part of writing it.
    let at = Where::OpenSink;
    assert_eq!(verdict("v-5", no, at, true), LimitedBy::TargetWrite);
    assert_eq!(verdict("v-6", at, no, false), LimitedBy::TargetWrite);
}

#[test]
fn the_verdict_names_slow_durability() {
    let (at, no) = (Where::Publish, Where::Nowhere);
    assert_eq!(verdict("v-7", at, no, false), LimitedBy::Durability);
    assert_eq!(verdict("v-8", no, at, true), LimitedBy::Durability);
}

/// A store may use a further machine, whose faults are remote to it and not to the session.
#[test]
fn faults_of_a_third_machine_end_a_file_at_both_ends() {
    let no = Where::Nowhere;
    let sinks = [
        Where::FailsToOpen,
        Where::FailsToWrite,
        Where::FailsToPublish,
    ];
    let mut cases = vec![(no, Where::FailsToOpenSource, false)];
    for at in sinks {
        cases.extend([(no, at, true), (at, no, false)]);
    }
    for (n, (here, there, uploads)) in cases.into_iter().enumerate() {
        let mut scene = Scene::new(&format!("third-{n}"), here, there, 1 << 16);
        let events = scene.start(SLOW, uploads);
        let fault = end_of(&events).unwrap_err();
        assert_eq!(fault.code, Code::ConnectionLost, "{n}: {fault:?}");
        // The session itself is well.
        let back = scene.start(b"fast", !uploads);
        assert_eq!(end_of(&back).unwrap().bytes, LENGTH as u64, "{n}");
        scene.end();
    }
}
