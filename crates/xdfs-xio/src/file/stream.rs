//! An open file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
#[cfg(unix)]
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
#[cfg(windows)]
use std::os::windows::fs::FileExt;
use std::path::{Path, PathBuf};

use xdfs_sys::poll::{Event, Poller, Token};

#[cfg(target_os = "linux")]
use super::direct;
use super::options::{FileAccess, FileOptions};
use crate::endpoint::{Endpoint, Location};
use crate::socket::uninterrupted;
use crate::stream::{Capabilities, Stream};

/// A file, with a position for each direction.
#[derive(Debug)]
pub struct FileStream {
    file: File,
    path: PathBuf,
    access: FileAccess,
    reading: Position,
    writing: Position,
    #[cfg(target_os = "linux")]
    direct: Option<Direct>,
    is_closed: bool,
}

/// The direction that passes the page cache.
#[cfg(target_os = "linux")]
#[derive(Debug)]
enum Direct {
    Reading(direct::Reader),
    Writing(direct::Writer),
}

/// Where a direction goes on.
#[derive(Clone, Copy, Debug)]
struct Position {
    at: u64,
    left: Option<u64>,
}

impl FileStream {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// No such file, no permission, a folder, a pipe or a socket; options for writing of a file
    /// that is only read.
    pub fn open(path: &Path, options: &FileOptions) -> io::Result<Self> {
        let reads = options.access != FileAccess::Write;
        let writes = options.access != FileAccess::Read;
        let for_writing = options.append || options.truncate || options.create;
        if for_writing && !writes {
            let why = "append, truncate and create need access=write or access=both";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let mut open = OpenOptions::new();
        open.read(reads)
            .write(writes && !options.append)
            .append(options.append)
            .create(options.create);
        if options.direct {
            check_direct(options)?;
        }
        // A pipe without another end would otherwise hold the call; files ignore it.
        #[cfg(unix)]
        {
            let flags = rustix::fs::OFlags::NONBLOCK;
            #[cfg(target_os = "linux")]
            let flags = match options.direct {
                true => flags | rustix::fs::OFlags::DIRECT,
                false => flags,
            };
            open.custom_flags(flags.bits().cast_signed());
        }
        let file = open.open(path).map_err(|e| match e.kind() {
            ErrorKind::InvalidInput if options.direct => {
                let why = "its file system can't pass the page cache; leave out direct";
                named(path, &io::Error::new(ErrorKind::Unsupported, why))
            }
            _ => named(path, &e),
        })?;
        let kind = file.metadata()?.file_type();
        #[cfg(unix)]
        let is_other = kind.is_fifo() || kind.is_socket();
        #[cfg(not(unix))]
        let is_other = false;
        if kind.is_dir() || is_other {
            let why = io::Error::new(ErrorKind::InvalidInput, "it is not a file");
            return Err(named(path, &why));
        }
        if options.truncate {
            file.set_len(0).map_err(|e| named(path, &e))?;
        }
        let position = Position {
            at: options.offset,
            left: options.length,
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            access: options.access,
            reading: position,
            writing: position,
            #[cfg(target_os = "linux")]
            direct: options.direct.then(|| match reads {
                true => Direct::Reading(direct::Reader::new()),
                false => Direct::Writing(direct::Writer::new(options.offset)),
            }),
            is_closed: false,
        })
    }
}

/// Whether such a file can pass the page cache.
fn check_direct(options: &FileOptions) -> io::Result<()> {
    let refused = |why| Err(io::Error::new(ErrorKind::InvalidInput, why));
    if !cfg!(target_os = "linux") {
        return refused("direct is for Linux only");
    }
    if options.access == FileAccess::Both || options.append {
        return refused("direct is for access=read or access=write, without append");
    }
    if options.access == FileAccess::Write && !options.offset.is_multiple_of(4096) {
        return refused("with direct, writing begins at a multiple of 4096 bytes");
    }
    Ok(())
}

impl Position {
    /// The bytes of `len` that may be moved.
    fn room(&self, len: usize) -> usize {
        let left = self.left.map_or(usize::MAX, |left| {
            usize::try_from(left).unwrap_or(usize::MAX)
        });
        len.min(left)
    }

    fn advance(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.at += bytes;
        self.left = self.left.map(|left| left - bytes);
    }
}

impl FileStream {
    fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if let Some(Direct::Reading(reader)) = &mut self.direct {
            return reader.read(&self.file, buf, self.reading.at);
        }
        uninterrupted(|| read_at(&self.file, buf, self.reading.at))
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if let Some(Direct::Writing(writer)) = &mut self.direct {
            return writer.write(&self.file, bytes);
        }
        uninterrupted(|| write_at(&self.file, bytes, self.writing.at))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn wrong_direction(access: &str) -> io::Error {
    let why = format!("the file is not open for this; it needs access={access} or access=both");
    io::Error::new(ErrorKind::InvalidInput, why)
}

impl Stream for FileStream {
    /// Fills one buffer, the first with room: a file has always more, or its end.
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.access == FileAccess::Write {
            return Err(wrong_direction("read"));
        }
        let Some(buf) = bufs.iter_mut().find(|buf| !buf.is_empty()) else {
            return Ok(0);
        };
        let room = self.reading.room(buf.len());
        if room == 0 {
            return Ok(0);
        }
        let n = self.read_some(&mut buf[..room])?;
        if n == 0 && self.reading.left.is_some() {
            let left = self.reading.left.unwrap_or(0);
            let why = format!("the file ends {left} bytes before the length that was set");
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
        }
        self.reading.advance(n);
        Ok(n)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.access == FileAccess::Read {
            return Err(wrong_direction("write"));
        }
        if self.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let Some(buf) = bufs.iter().find(|buf| !buf.is_empty()) else {
            return Ok(0);
        };
        let room = self.writing.room(buf.len());
        if room == 0 {
            let why = "the length that was set is written";
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        let n = self.write_some(&buf[..room])?;
        self.writing.advance(n);
        Ok(n)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    #[cfg(target_os = "linux")]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.direct {
            Some(Direct::Writing(writer)) => writer.flush(&self.file),
            _ => Ok(()),
        }
    }

    #[cfg(target_os = "linux")]
    fn has_unflushed(&self) -> bool {
        match &self.direct {
            Some(Direct::Writing(writer)) => writer.has_unflushed(),
            _ => false,
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        self.is_closed = true;
        Ok(())
    }

    /// Reports readiness once: a call never returns `WouldBlock`.
    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        poller.notifier().notify(Event {
            token,
            readable: true,
            writable: true,
        });
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        Endpoint::new("file", Location::Path(self.path.clone())).to_string()
    }
}

#[cfg(unix)]
fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(buf, at)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    file.write_at(bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(buf, at)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    file.seek_write(bytes, at)
}
