//! Parts of an unfinished file that another member of a group publishes.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::Fragment;
use xdfs_proto::stripes::PartPlace;
use xdfs_proto::{Code, Fault};
use xdfs_store::{Capabilities, File, OpenedSink, SharedStore, Sink, SinkRequest};

/// A part of an unfinished file as a sink. It is written as long as the file is unfinished, and
/// durable once it is published; its name, journal and quota are home's.
#[derive(Debug)]
pub(crate) struct PartSink {
    store: Arc<dyn SharedStore>,
    place: PartPlace,
    file: Box<dyn File>,
    /// Bytes of the part.
    length: u64,
}

impl PartSink {
    /// Opens the place of a part.
    ///
    /// # Errors
    /// It is no place in the file, or those of [`SharedStore::open_partial`].
    pub(crate) fn open(
        store: Arc<dyn SharedStore>,
        place: PartPlace,
        request: &SinkRequest,
    ) -> Result<OpenedSink, Fault> {
        let file = store.open_partial(&place.path, place.number)?;
        let size = file.attributes()?.size;
        let end = request.length.and_then(|own| own.checked_add(place.offset));
        // Home has given the file its length, within the quota of the user.
        if end.is_none_or(|end| end > size) {
            let cause = format!("a part is within the {size} bytes of the file");
            let fault = Fault::new(Code::InvalidArgument, "open the part", cause);
            return Err(fault.path(&place.path));
        }
        let sink = Self {
            store,
            place,
            file,
            length: request.length.unwrap_or(0),
        };
        Ok(OpenedSink {
            path: request.path.clone(),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
            sink: Box::new(sink),
        })
    }

    /// Checks that the file is unfinished still: bytes that come late must not get into what was
    /// published, or into a file that was begun in its place.
    fn check(&self) -> Result<(), Fault> {
        let PartPlace { path, number, .. } = &self.place;
        self.store.open_partial(path, *number).map(drop)
    }
}

impl Sink for PartSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            // A part that isn't whole is sent again.
            durable: false,
            atomic_publish: false,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.check()?;
        let mut at = offset;
        for buf in bufs {
            let end = at.saturating_add(buf.len() as u64);
            if end > self.length {
                let cause = "it is longer than the part";
                let fault = Fault::new(Code::InvalidArgument, "write", cause);
                return Err(fault.path(&self.place.path));
            }
            self.file.write_at(self.place.offset + at, buf)?;
            at = end;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.file.sync(true)
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.file.sync(true)?;
        self.check()
    }

    fn discard(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify,
        read_back, shared);
}
