//! CKSM: a file is read piece by piece, between looks at the control connection.

use xdfs_proto::file::FileFlags;
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};
use xdfs_store::{File, FileRequest, Store};

use super::link::{Link, Step};
use crate::checksum::{Algorithm, Hasher};
use crate::session::Outcome;

const OPERATION: &str = "compute the checksum of";
/// Bytes read between looks at the control connection.
const TURN_BYTES: u64 = 16 << 20;

/// A checksum in progress.
#[derive(Debug)]
pub(super) struct ChecksumJob {
    file: Box<dyn File>,
    path: Vec<u8>,
    before: Attributes,
    hasher: Option<Hasher>,
    at: u64,
    end: u64,
}

impl ChecksumJob {
    /// Opens the file.
    ///
    /// # Errors
    /// It can't be read, or is shorter than the part that is wanted.
    pub(super) fn open(
        store: &dyn Store,
        kind: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: Vec<u8>,
    ) -> Result<Self, Fault> {
        let opened = store.open_file(&FileRequest {
            path: path.clone(),
            flags: FileFlags {
                read: true,
                ..FileFlags::default()
            },
            mode: None,
            identity: None,
        })?;
        if opened.file.is_pipe() {
            let cause = "it is a pipe";
            return Err(Fault::new(Code::NotRegularFile, OPERATION, cause).path(path));
        }
        let size = opened.attributes.size;
        let end = length.map_or(Some(size), |length| offset.checked_add(length));
        let Some(end) = end.filter(|end| offset <= *end && *end <= size) else {
            let cause = format!("the file has {size} bytes only");
            return Err(Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(path));
        };
        Ok(Self {
            file: opened.file,
            path,
            before: opened.attributes,
            hasher: Some(Hasher::new(kind)),
            at: offset,
            end,
        })
    }

    /// Reads on.
    pub(super) fn step(&mut self, link: &mut Link<'_>) -> Result<Step, Fault> {
        let stop = self.end.min(self.at.saturating_add(TURN_BYTES));
        while self.at < stop {
            let room = link.buffer.len() as u64;
            let wanted = usize::try_from(room.min(stop - self.at)).unwrap_or(usize::MAX);
            let read = self.file.read_at(self.at, &mut link.buffer[..wanted]);
            let read = read.map_err(|fault| fault.preventing(&self.path))?;
            if read == 0 {
                return Err(self.changed());
            }
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&link.buffer[..read]);
            }
            self.at += read as u64;
            link.moved(read as u64);
        }
        if self.at < self.end {
            return Ok(Step::Again);
        }
        let after = self.file.attributes()?;
        let version = |a: &Attributes| (a.size, a.mtime_ns, a.ctime_ns);
        match self.hasher.take() {
            Some(hasher) if version(&after) == version(&self.before) => {
                Ok(Step::Done(Outcome::Digest(hasher.finish())))
            }
            _ => Err(self.changed()),
        }
    }

    fn changed(&self) -> Fault {
        let cause = "the file was changed while it was read";
        Fault::new(Code::SourceChanged, OPERATION, cause).path(&self.path)
    }
}
