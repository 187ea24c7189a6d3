//! Targets of downloads without a name: standard output, and `mem:null`.

use xdfs_proto::Fault;
use xdfs_store::{NullSink, OpenedSink, Sink, SinkRequest, Store, StreamSink};
use xdfs_sys::standard::Output;

/// A store with exactly one sink and no source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nameless {
    /// Keeps nothing.
    Null,
    /// Writes to standard output.
    StandardOutput,
}

impl Store for Nameless {
    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let sink: Box<dyn Sink> = match self {
            Self::Null => Box::new(NullSink::new()),
            Self::StandardOutput => Box::new(StreamSink::new(Box::new(Output), "standard output")),
        };
        Ok(OpenedSink {
            sink,
            path: request.path.clone(),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Ok(request.path.clone())
    }

    xdfs_store::defaults!(Store: is_slow, open_source, read_pack, write_pack, packs_wait, call,
        open_file);
}
