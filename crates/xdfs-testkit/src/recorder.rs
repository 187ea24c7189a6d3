//! A store that records which of its methods are called: put beneath a layer, it shows what the
//! layer passes on.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs_proto::digest::{DigestKind, Fragment, FragmentState};
use xdfs_proto::file::{FileFlags, FileIdentity};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackRequest, PackWriter, Preserve,
};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{ByteRange, Fault, SourceTag};
use xdfs_store::{
    Capabilities, DirectWriter, File, FileRequest, OpenedFile, OpenedSink, PackOptions,
    SharedPartial, SharedSource, Sink, SinkRequest, Source, SourceInfo, Store,
};

/// The methods that were called, such as `Source::read_at`.
pub type Methods = BTreeSet<&'static str>;

/// Bytes of the file that a [`Recorder`] has under each name.
const BYTES: usize = 4;
const LENGTH: u64 = BYTES as u64;
const PART: ByteRange = ByteRange {
    start: 0,
    end: LENGTH,
};

/// A store with a small file under each name, which records the methods that are called.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Methods>>);

impl Recorder {
    /// The methods that were called since the last time that this was asked.
    pub fn take(&self) -> Methods {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, method: &'static str) {
        let mut methods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        methods.insert(method);
    }
}

/// The methods that arrive at a recorder when all of them are called on a layer over it.
///
/// # Panics
/// A call fails.
#[must_use]
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a call that fails is a failed test")]
pub fn recorded(layer: &dyn Store, recorder: &Recorder, path: &[u8]) -> Methods {
    recorder.take();
    layer.is_slow();
    layer.packs_wait(path);
    let stat = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    layer.call(&stat, &mut |_| Ok(())).unwrap();
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    let request = PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 1 << 20,
        names: vec![b"name".to_vec()],
    };
    layer.read_pack(path, &request, &mut pack).unwrap();
    let (bytes, length) = pack.finish();
    let options = PackOptions::default();
    let failures = layer.write_pack(path, options, &bytes[..length]).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    read(&mut *layer.open_source(path).unwrap());
    let request = SinkRequest {
        path: path.to_vec(),
        name: Vec::new(),
        length: Some(LENGTH),
        offset: 0,
        tag: SourceTag([1; 16]),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::None,
        block_size: 4096,
        overwrite: true,
        resume: Resume::Trust,
        sparse: false,
    };
    layer.check_sink(&request).unwrap();
    write(&mut *layer.open_sink(&request).unwrap().sink);
    layer.open_sink(&request).unwrap().sink.discard().unwrap();
    let opened = layer.open_file(&FileRequest {
        path: path.to_vec(),
        flags: FileFlags {
            read: true,
            write: true,
            ..FileFlags::default()
        },
        mode: None,
        identity: None,
    });
    work(&*opened.unwrap().file);
    recorder.take()
}

/// The methods of all traits.
#[must_use]
pub fn all_methods() -> Methods {
    let recorder = Recorder::default();
    recorded(&recorder.clone(), &recorder, b"file")
}

#[expect(clippy::unwrap_used, reason = "a call that fails is a failed test")]
fn read(source: &mut dyn Source) {
    source.info();
    source.read_at(0, &mut [0; BYTES]).unwrap();
    source.next_data(0, LENGTH).unwrap();
    source.will_read(PART);
    source.is_cold(PART);
    source.direct();
    source.is_slow();
    source.memory();
    source.is_uniform();
    if let Some(shared) = source.shared() {
        shared.read_elsewhere(LENGTH);
    }
    source.verify_unchanged().unwrap();
}

#[expect(clippy::unwrap_used, reason = "a call that fails is a failed test")]
fn write(sink: &mut dyn Sink) {
    let fragment = Fragment {
        range: PART,
        state: FragmentState::None,
    };
    sink.capabilities();
    let bytes = [0; BYTES];
    sink.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
    if let Some(writer) = sink.begin_direct(PART).unwrap() {
        let written = writer.write_at(0, &[IoSlice::new(&bytes)]);
        sink.end_direct(PART, written).unwrap();
    }
    sink.hole(PART);
    sink.begin_write_back(PART);
    sink.sync().unwrap();
    sink.verify().unwrap();
    sink.read_back(0, &mut [0; BYTES]).unwrap();
    if let Some(shared) = sink.shared() {
        shared.number().unwrap();
        shared.written_elsewhere(PART).unwrap();
    }
    sink.record(&[fragment]).unwrap();
    sink.publish(LENGTH, &[fragment]).unwrap();
}

#[expect(clippy::unwrap_used, reason = "a call that fails is a failed test")]
fn work(file: &dyn File) {
    file.is_pipe();
    file.attributes().unwrap();
    file.read_at(0, &mut [0; BYTES]).unwrap();
    file.write_at(0, &[0; BYTES]).unwrap();
    file.append(&[0]).unwrap();
    file.sync(true).unwrap();
    file.set_length(LENGTH).unwrap();
    file.read_pipe(&mut [0; BYTES]).unwrap();
    file.write_pipe(&[0]).unwrap();
}

fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::File,
        size: LENGTH,
        allocated: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

impl Store for Recorder {
    fn is_slow(&self) -> bool {
        self.note("Store::is_slow");
        true
    }

    fn open_source(&self, _: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.note("Store::open_source");
        Ok(Box::new(RecordedSource::new(self)))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.note("Store::open_sink");
        Ok(OpenedSink {
            sink: Box::new(RecordedSink(self.clone())),
            path: request.path.clone(),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.note("Store::check_sink");
        Ok(request.path.clone())
    }

    fn read_pack(
        &self,
        _: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        self.note("Store::read_pack");
        for name in &request.names {
            let added = pack.entry(&Entry {
                path: name,
                metadata: Metadata::default(),
                content: Content::File(&[0; BYTES]),
            });
            if !added {
                break;
            }
        }
        Ok(())
    }

    fn write_pack(&self, _: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
        self.note("Store::write_pack");
        Ok(Failures::default())
    }

    fn packs_wait(&self, _: &[u8]) -> bool {
        self.note("Store::packs_wait");
        true
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        self.note("Store::call");
        Ok(match call {
            Call::Stat { .. } => Answer::Attributes(attributes()),
            _ => Answer::Done,
        })
    }

    fn open_file(&self, _: &FileRequest) -> Result<OpenedFile, Fault> {
        self.note("Store::open_file");
        Ok(OpenedFile {
            file: Box::new(RecordedFile(self.clone())),
            identity: FileIdentity {
                device: 0,
                inode: 0,
                born_ns: 0,
            },
            attributes: attributes(),
            created: false,
        })
    }
}

#[derive(Debug)]
struct RecordedSource {
    recorder: Recorder,
    info: SourceInfo,
}

impl RecordedSource {
    fn new(recorder: &Recorder) -> Self {
        Self {
            recorder: recorder.clone(),
            info: SourceInfo {
                length: Some(LENGTH),
                tag: SourceTag([1; 16]),
                mode: None,
                mtime_ns: None,
                random_reads: true,
                sparse: false,
            },
        }
    }
}

impl Source for RecordedSource {
    fn info(&self) -> &SourceInfo {
        self.recorder.note("Source::info");
        &self.info
    }

    fn read_at(&mut self, _: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.recorder.note("Source::read_at");
        Ok(buf.len())
    }

    fn next_data(&mut self, _: u64, _: u64) -> Result<Option<ByteRange>, Fault> {
        self.recorder.note("Source::next_data");
        Ok(None)
    }

    fn will_read(&mut self, _: ByteRange) {
        self.recorder.note("Source::will_read");
    }

    fn is_cold(&self, _: ByteRange) -> bool {
        self.recorder.note("Source::is_cold");
        true
    }

    fn direct(&self) -> Option<Box<dyn Source>> {
        self.recorder.note("Source::direct");
        Some(Box::new(Self::new(&self.recorder)))
    }

    fn is_slow(&self) -> bool {
        self.recorder.note("Source::is_slow");
        true
    }

    fn memory(&self) -> Option<Arc<Vec<u8>>> {
        self.recorder.note("Source::memory");
        Some(Arc::new(vec![0; BYTES]))
    }

    fn is_uniform(&self) -> bool {
        self.recorder.note("Source::is_uniform");
        false
    }

    fn shared(&mut self) -> Option<&mut dyn SharedSource> {
        Some(self)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.recorder.note("Source::verify_unchanged");
        Ok(())
    }
}

impl SharedSource for RecordedSource {
    fn read_elsewhere(&mut self, _: u64) {
        self.recorder.note("SharedSource::read_elsewhere");
    }
}

#[derive(Debug)]
struct RecordedSink(Recorder);

impl Sink for RecordedSink {
    fn capabilities(&self) -> Capabilities {
        self.0.note("Sink::capabilities");
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.0.note("Sink::write_at");
        Ok(())
    }

    fn begin_direct(&mut self, _: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault> {
        self.0.note("Sink::begin_direct");
        Ok(Some(Arc::new(RecordedWriter(self.0.clone()))))
    }

    fn end_direct(&mut self, _: ByteRange, result: Result<(), Fault>) -> Result<(), Fault> {
        self.0.note("Sink::end_direct");
        result
    }

    fn hole(&mut self, _: ByteRange) {
        self.0.note("Sink::hole");
    }

    fn begin_write_back(&mut self, _: ByteRange) {
        self.0.note("Sink::begin_write_back");
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.0.note("Sink::sync");
        Ok(())
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        self.0.note("Sink::verify");
        Ok(Some(Vec::new()))
    }

    fn read_back(&mut self, _: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.0.note("Sink::read_back");
        Ok(buf.len())
    }

    fn shared(&mut self) -> Option<&mut dyn SharedPartial> {
        Some(self)
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        self.0.note("Sink::record");
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.0.note("Sink::publish");
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.0.note("Sink::discard");
        Ok(())
    }
}

impl SharedPartial for RecordedSink {
    fn number(&mut self) -> Result<u64, Fault> {
        self.0.note("SharedPartial::number");
        Ok(0)
    }

    fn written_elsewhere(&mut self, _: ByteRange) -> Result<(), Fault> {
        self.0.note("SharedPartial::written_elsewhere");
        Ok(())
    }
}

#[derive(Debug)]
struct RecordedWriter(Recorder);

impl DirectWriter for RecordedWriter {
    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.0.note("DirectWriter::write_at");
        Ok(())
    }
}

#[derive(Debug)]
struct RecordedFile(Recorder);

impl File for RecordedFile {
    fn is_pipe(&self) -> bool {
        self.0.note("File::is_pipe");
        false
    }

    fn attributes(&self) -> Result<Attributes, Fault> {
        self.0.note("File::attributes");
        Ok(attributes())
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.0.note("File::read_at");
        Ok(buf.len())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        self.0.note("File::write_at");
        Ok(())
    }

    fn append(&self, _: &[u8]) -> Result<u64, Fault> {
        self.0.note("File::append");
        Ok(LENGTH)
    }

    fn sync(&self, _: bool) -> Result<(), Fault> {
        self.0.note("File::sync");
        Ok(())
    }

    fn set_length(&self, _: u64) -> Result<(), Fault> {
        self.0.note("File::set_length");
        Ok(())
    }

    fn read_pipe(&self, _: &mut [u8]) -> Result<Option<usize>, Fault> {
        self.0.note("File::read_pipe");
        Ok(Some(0))
    }

    fn write_pipe(&self, _: &[u8]) -> Result<Option<usize>, Fault> {
        self.0.note("File::write_pipe");
        Ok(Some(1))
    }
}
