//! Removing a tree.
//!
//! The path down is a stack of frames, of which only the last few hold their directory open. A
//! closed directory is reopened as the parent of its child, and must be the same directory as
//! before. So neither the length of a path nor the number of descriptors bounds the depth, and
//! moving a directory away meanwhile doesn't lead out of the tree. Links are removed, never
//! followed; mount points in the tree stay.

use std::fs::TryLockError;
use std::io;
use std::ops::ControlFlow;

use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{Dir, FileKind};

use super::super::{partial, path};
use super::{Name, Paths, attributes, io_fault};

/// Maximum number of directories held open.
const OPEN_MAX: usize = 32;
/// Names read from a directory at once.
const BATCH_MAX: usize = 1024;
/// Passes over a directory without progress, because others fill it, before giving up.
const STALLS_MAX: u32 = 16;
/// Longest path named in a fault.
const PATH_BYTES_MAX: usize = 4096;

/// An event of [`LocalStore::remove_tree`](crate::LocalStore::remove_tree): the path and attributes
/// of a removed entry, or `None` before a removal.
pub type RemovedName<'a> = Option<(&'a [u8], &'a Attributes)>;

/// Called with `None` before each removal, and with the entry after it.
pub(super) type Removed<'a> = dyn FnMut(RemovedName<'_>) + 'a;

pub(super) fn remove(
    paths: &Paths<'_>,
    requested: &[u8],
    removed: Option<&mut Removed<'_>>,
) -> Result<u64, Fault> {
    let base = paths.name(requested)?;
    if base.existing()?.kind != FileKind::Directory {
        return Err(base.not_directory());
    }
    let mut walk = Walk {
        base,
        frames: Vec::new(),
        removed,
        count: 0,
    };
    walk.descend(walk.base.name.to_vec())?;
    while let Some(frame) = walk.frames.last_mut() {
        match frame.batch.pop() {
            Some((name, kind)) => walk.remove_one(name, kind)?,
            None if walk.fill()? => {}
            None => walk.ascend()?,
        }
    }
    Ok(walk.count)
}

struct Walk<'a, 'r, 'f> {
    base: Name<'a>,
    frames: Vec<Frame>,
    removed: Option<&'r mut Removed<'f>>,
    count: u64,
}

struct Frame {
    name: Vec<u8>,
    identity: Option<(u64, u64)>,
    /// `None` while closed. The last frame's is open.
    dir: Option<Dir>,
    /// Names yet to be removed.
    batch: Vec<(Vec<u8>, Option<FileKind>)>,
    stalls: u32,
    /// Whether anything was removed from the batch.
    progress: bool,
}

impl Walk<'_, '_, '_> {
    /// The directory being emptied, or the parent of the tree.
    fn here(&self) -> &Dir {
        self.frames
            .last()
            .and_then(|frame| frame.dir.as_ref())
            .unwrap_or(&self.base.dir)
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        let requested = self.base.path;
        let end = requested.iter().rposition(|b| !path::is_separator(b));
        let mut path = requested[..end.map_or(0, |end| end + 1)].to_vec();
        for frame in self.frames.iter().skip(1) {
            path.push(b'/');
            path.extend(&frame.name);
        }
        if !self.frames.is_empty() && !name.is_empty() {
            path.push(b'/');
            path.extend(name);
        }
        path
    }

    fn fault(&self, name: &[u8], error: &io::Error) -> Fault {
        let path = self.path(name);
        let path = if path.len() > PATH_BYTES_MAX {
            self.base.path
        } else {
            &path
        };
        match error.kind() {
            io::ErrorKind::CrossesDevices => {
                let cause = "another file system is mounted there";
                Fault::new(Code::Busy, "", cause).path(path)
            }
            _ => io_fault(path, error),
        }
    }

    /// Enters a subdirectory. If it vanished or is no directory any more, the next pass handles it.
    fn descend(&mut self, name: Vec<u8>) -> Result<(), Fault> {
        let dir = match self.here().child(&name) {
            Ok(dir) => dir,
            Err(error) if is_changed(&error) && !self.frames.is_empty() => return Ok(()),
            Err(error) => return Err(self.fault(&name, &error)),
        };
        let meta = dir.meta().map_err(|error| self.fault(&name, &error))?;
        self.frames.push(Frame {
            name,
            identity: meta.identity,
            dir: Some(dir),
            batch: Vec::new(),
            stalls: 0,
            progress: true,
        });
        if let Some(far) = self.frames.len().checked_sub(OPEN_MAX + 1) {
            self.frames[far].dir = None;
            self.frames[far].batch = Vec::new();
        }
        Ok(())
    }

    /// Reads a batch of names from the current directory. `false` if it is empty.
    fn fill(&mut self) -> Result<bool, Fault> {
        let mut batch = Vec::new();
        let read = self.here().each_name(None, &mut |name, kind, _| {
            batch.push((name.to_vec(), kind));
            if batch.len() < BATCH_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        read.map_err(|error| self.fault(b"", &error))?;
        // In directory order, which is faster.
        batch.reverse();
        let Some(frame) = self.frames.last_mut() else {
            return Ok(false);
        };
        if batch.is_empty() {
            return Ok(false);
        }
        frame.stalls = if frame.progress { 0 } else { frame.stalls + 1 };
        frame.progress = false;
        frame.batch = batch;
        if frame.stalls > STALLS_MAX {
            let cause = "it changes while it is removed";
            return Err(Fault::new(Code::Busy, "", cause).path(self.base.path));
        }
        Ok(true)
    }

    fn remove_one(&mut self, name: Vec<u8>, kind: Option<FileKind>) -> Result<(), Fault> {
        self.begin();
        let here = self.here();
        let meta = match self.removed {
            Some(_) => here
                .meta_of(&name)
                .map_err(|error| self.fault(&name, &error))?,
            None => None,
        };
        // Held during the removal, so that no transfer starts with it.
        let lock = self.lock(&name)?;
        let result = match kind {
            Some(FileKind::Directory) => here.remove_dir(&name),
            Some(_) => here.remove(&name),
            None => match here.remove_dir(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => here.remove(&name),
                result => result,
            },
        };
        if let Some(lock) = lock {
            partial::unlock(&lock);
        }
        match result {
            Ok(()) => {
                self.removed(&name, meta.map(|meta| attributes(&meta)));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => self.descend(name),
            Err(error) if is_changed(&error) => Ok(()),
            Err(error) => Err(self.fault(&name, &error)),
        }
    }

    fn begin(&mut self) {
        if let Some(removed) = &mut self.removed {
            removed(None);
        }
    }

    fn removed(&mut self, name: &[u8], attributes: Option<Attributes>) {
        self.count += 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.progress = true;
        }
        if self.removed.is_some() {
            let path = self.path(name);
            if let (Some(removed), Some(attributes)) = (&mut self.removed, attributes) {
                removed(Some((&path, &attributes)));
            }
        }
    }

    /// Locks the partial file of an unfinished transfer, which must not be running, before it or
    /// its journal is removed.
    fn lock(&self, name: &[u8]) -> Result<Option<std::fs::File>, Fault> {
        if !path::is_hidden_name(name) {
            return Ok(None);
        }
        let partial = match path::stem_of_hidden(name) {
            Some(stem) => [b".", stem, path::PARTIAL_SUFFIX.as_bytes()].concat(),
            None if name.ends_with(path::PARTIAL_SUFFIX.as_bytes()) => name.to_vec(),
            None => return Ok(None),
        };
        let Ok(file) = self.here().open_existing(&partial) else {
            return Ok(None);
        };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let cause = "a transfer is writing to a file in it";
            return Err(Fault::new(Code::Busy, "", cause)
                .path(self.path(b""))
                .hint("wait for it to end"));
        }
        Ok(Some(file))
    }

    /// Removes the emptied directory and returns to its parent.
    fn ascend(&mut self) -> Result<(), Fault> {
        let Some(mut child) = self.frames.pop() else {
            return Ok(());
        };
        if let Some(parent) = self.frames.last_mut()
            && parent.dir.is_none()
        {
            let found = child.dir.as_ref().map(|dir| {
                let parent = dir.parent()?;
                let identity = parent.meta()?.identity;
                Ok::<_, io::Error>((parent, identity))
            });
            match found {
                Some(Ok((dir, identity))) if identity == parent.identity => parent.dir = Some(dir),
                Some(Err(error)) => return Err(self.fault(&child.name, &error)),
                _ => {
                    let cause = "a directory in it was moved while it was removed";
                    return Err(Fault::new(Code::Busy, "", cause).path(self.base.path));
                }
            }
        }
        let meta = match (&self.removed, &child.dir) {
            (Some(_), Some(dir)) => dir.meta().ok(),
            _ => None,
        };
        self.begin();
        match self.here().remove_dir(&child.name) {
            Ok(()) => self.removed(&child.name, meta.map(|meta| attributes(&meta))),
            Err(error) if is_changed(&error) => {}
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && child.stalls < STALLS_MAX =>
            {
                child.stalls += 1;
                self.frames.push(child);
            }
            Err(error) => return Err(self.fault(&child.name, &error)),
        }
        Ok(())
    }
}

/// Whether the entry vanished or changed its kind.
fn is_changed(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::NotFound | K::NotADirectory | K::IsADirectory
    )
}
