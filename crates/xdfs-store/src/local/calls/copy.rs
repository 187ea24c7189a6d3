//! Copies within the store: a transfer from a source to a sink, inside the kernel where possible.

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::{ByteRange, Fault, SourceTag};

use super::super::sink;
use super::super::source::LocalSource;
use super::super::store::LocalStore;
use super::super::target::Target;
use super::Paths;
use crate::{Sink, SinkRequest, Source};

/// Called with the length of the copy before it gets its name; a fault aborts the copy.
pub(super) type Ready<'a> = dyn FnMut(u64) -> Result<(), Fault> + 'a;

pub(super) fn copy(
    paths: &Paths<'_>,
    from: &[u8],
    to: &[u8],
    overwrite: bool,
    ready: Option<&mut Ready<'_>>,
) -> Result<u64, Fault> {
    paths.check(from)?;
    paths.check(to)?;
    let mut source = LocalStore::open_local(paths.store, from)?;
    let info = source.info();
    let length = info.length.unwrap_or(0);
    let request = SinkRequest {
        path: to.to_vec(),
        name: Vec::new(),
        offset: 0,
        length: Some(length),
        // An interrupted copy starts over.
        tag: SourceTag::default(),
        mode: info.mode,
        mtime_ns: info.mtime_ns,
        digest: DigestKind::None,
        block_size: 0,
        overwrite,
        resume: Resume::Never,
        sparse: info.sparse,
    };
    let target = Target::resolve(paths.root(), &request)?;
    let mut sink = sink::open_local(target, &request)?;
    transfer(&mut source, &mut sink, length)?;
    source.verify_unchanged()?;
    if let Some(ready) = ready {
        // Anything slow must happen before `ready`.
        sink.sync()?;
        ready(length)?;
    }
    sink.publish(length, &[])?;
    Ok(length)
}

fn transfer(
    source: &mut LocalSource,
    sink: &mut sink::LocalSink,
    length: u64,
) -> Result<(), Fault> {
    let mut at = 0;
    while let Some(data) = source.next_data(at, length)? {
        if at < data.start {
            sink.hole(ByteRange {
                start: at,
                end: data.start,
            });
        }
        sink.copy_from(source, data)?;
        at = data.end;
    }
    if at < length {
        sink.hole(ByteRange {
            start: at,
            end: length,
        });
    }
    Ok(())
}
