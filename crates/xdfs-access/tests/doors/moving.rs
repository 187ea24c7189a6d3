//! Files through the store of an admission.

use std::io::IoSlice;

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::{Fault, SourceTag};
use xdfs_store::{SinkRequest, Store};

/// Writes a file, and gives it its name.
pub(crate) fn write(store: &dyn Store, path: &str, bytes: &[u8]) -> Result<(), Fault> {
    let opened = store.open_sink(&SinkRequest {
        path: path.into(),
        name: Vec::new(),
        length: Some(bytes.len() as u64),
        offset: 0,
        tag: SourceTag::default(),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::Crc64Nvme,
        block_size: 1 << 16,
        overwrite: true,
        resume: Resume::Never,
        sparse: false,
    })?;
    let mut sink = opened.sink;
    sink.write_at(0, &[IoSlice::new(bytes)])?;
    sink.publish(bytes.len() as u64, &[])
}

/// Reads a file.
pub(crate) fn read(store: &dyn Store, path: &str) -> Result<Vec<u8>, Fault> {
    let mut source = store.open_source(path.as_bytes())?;
    let length = source.info().length.unwrap();
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    let read = source.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    source.verify_unchanged()?;
    Ok(bytes)
}
