//! A stream as a source.

use std::fmt;
use std::io::{ErrorKind, Read};
use xdfs_proto::{Code, Fault, SourceTag};

use crate::{Source, SourceInfo};

/// A stream of unknown length that is read once.
pub struct StreamSource {
    stream: Box<dyn Read + Send>,
    name: String,
    position: u64,
    info: SourceInfo,
}

impl StreamSource {
    /// Reads `stream`, called `name` in faults.
    #[must_use]
    pub fn new(stream: Box<dyn Read + Send>, name: impl Into<String>) -> Self {
        let info = SourceInfo {
            length: None,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            random_reads: false,
            sparse: false,
        };
        Self {
            stream,
            name: name.into(),
            position: 0,
            info,
        }
    }
}

impl Source for StreamSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    /// Continues reading. `offset` must be the end of the last read.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        if offset != self.position {
            let cause = format!("it can't be read again from {offset}: it is a stream");
            return Err(Fault::new(Code::Unsupported, "read", cause).path(&self.name));
        }
        let mut done = 0;
        while done < buf.len() {
            match self.stream.read(&mut buf[done..]) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(super::fault("read", &self.name, &error)),
            }
        }
        self.position += done as u64;
        Ok(done)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    crate::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory, is_uniform,
        shared);
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource")
            .field("name", &self.name)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
