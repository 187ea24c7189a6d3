//! File system calls with the standard library only, for systems without directory handles.
//!
//! They are weaker than those for Unix: resolution beneath a directory checks each component before
//! it uses the path, so somebody who may change the tree on this machine can win a race; names in
//! directories aren't made durable; and files have no inode.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{FileKind, Meta, ResolveError, Storage};

/// Converts bytes to a path: they must be UTF-8 on this system.
///
/// # Errors
/// `InvalidInput` for other bytes, and for NUL.
pub fn path_from_bytes(bytes: &[u8]) -> io::Result<PathBuf> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let text = str::from_utf8(bytes).map_err(|_| invalid("names must be UTF-8 on this system"))?;
    if text.contains('\0') {
        return Err(invalid("the path has a zero byte"));
    }
    Ok(PathBuf::from(text))
}

/// Opens a file for reading, under the usual rules.
///
/// # Errors
/// Any error of the system call; `IsADirectory` for a directory.
pub fn open_for_reading(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    File::open(path)
}

/// A directory, by its canonical path.
#[derive(Debug)]
pub struct Dir(pub(super) PathBuf);

impl Dir {
    /// Opens a directory under the usual rules.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        if !fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self(fs::canonicalize(path)?))
    }

    pub(super) fn beneath(&self, path: &[u8]) -> Result<PathBuf, ResolveError> {
        let mut full = self.0.clone();
        for component in path_from_bytes(path)?.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => {
                    // A stream or device of Windows; file names contain no colon.
                    if name.to_string_lossy().contains(':') {
                        return Err(ResolveError::Escapes("a name with ':' is not allowed"));
                    }
                    full.push(name);
                    match fs::symlink_metadata(&full) {
                        Ok(meta) if meta.is_symlink() => {
                            return Err(ResolveError::Escapes(
                                "symbolic links are not followed on this system",
                            ));
                        }
                        Ok(_) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(ResolveError::Escapes("the path leaves the root"));
                }
            }
        }
        Ok(full)
    }

    /// Opens a directory beneath this one; the empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn open_dir_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        Ok(Self::open(&self.beneath(path)?)?)
    }

    /// Opens a file beneath this directory for reading.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn open_for_reading_beneath(&self, path: &[u8]) -> Result<File, ResolveError> {
        Ok(open_for_reading(&self.beneath(path)?)?)
    }

    pub(super) fn name(&self, name: &[u8]) -> io::Result<PathBuf> {
        let name = path_from_bytes(name)?;
        let mut components = name.components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(one)), None) => Ok(self.0.join(one)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not the name of a file",
            )),
        }
    }

    /// Creates a file, open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn create_new(&self, name: &[u8]) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.name(name)?)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open_existing(&self, name: &[u8]) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.name(name)?)
    }

    /// Attributes of an entry, without following a symbolic link; `None` if there is none.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta_of(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        match fs::symlink_metadata(self.name(name)?) {
            Ok(meta) => Ok(Some(meta_from(&meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renames within the directory, replacing an existing entry.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::rename(self.name(from)?, self.name(to)?)
    }

    /// Gives the file a second name, which fails if that is taken, and then removes the first.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken, or any other error of the system call.
    pub fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::hard_link(self.name(from)?, self.name(to)?)?;
        self.remove(from)
    }

    /// Removes a name other than a directory's.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_file(self.name(name)?)
    }

    /// Does nothing: the standard library can't make names durable on this system.
    ///
    /// # Errors
    /// Never.
    pub fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Checks whether files may be created here, as far as the attributes tell.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn check_writable(&self) -> io::Result<()> {
        fs::metadata(&self.0).map(|_| ())
    }
}

/// Attributes of an open file.
///
/// # Errors
/// Any error of the system call.
pub fn meta(file: &File) -> io::Result<Meta> {
    Ok(meta_from(&file.metadata()?))
}

/// Attributes of the entry at a path; with `follow`, of a symbolic link's target.
///
/// # Errors
/// Any error of the system call.
pub fn meta_at(path: &Path, follow: bool) -> io::Result<Meta> {
    let meta = match follow {
        true => fs::metadata(path)?,
        false => fs::symlink_metadata(path)?,
    };
    Ok(meta_from(&meta))
}

pub(super) fn meta_from(meta: &fs::Metadata) -> Meta {
    let kind = if meta.is_file() {
        FileKind::Regular
    } else if meta.is_dir() {
        FileKind::Directory
    } else if meta.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    };
    let time = |time: io::Result<SystemTime>| {
        let since = time.ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_nanos()).ok()
    };
    Meta {
        kind,
        length: meta.len(),
        allocated: None,
        atime_ns: time(meta.accessed()).unwrap_or(0),
        mtime_ns: time(meta.modified()).unwrap_or(0),
        ctime_ns: 0,
        mode: None,
        identity: None,
        links: 1,
        owner: None,
        group: None,
    }
}

/// Whether a file belongs to the user of the process: assumed here.
#[must_use]
pub fn is_ours(meta: &Meta) -> bool {
    let _ = meta;
    true
}

/// Permission bits of a new file; without meaning on this system.
#[must_use]
pub fn default_mode() -> u32 {
    0o666
}

/// Permission bits under the umask of the process: there is none here.
#[must_use]
pub fn masked(mode: u32) -> u32 {
    mode
}

/// Does nothing: this system has no permission bits.
///
/// # Errors
/// Never.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let _ = (file, mode);
    Ok(())
}

/// Reads at an offset; 0 is the end of the file.
///
/// # Errors
/// Any error of the system call; never `Interrupted`.
pub fn read_at(mut file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // Only one thread at a time uses a handle, so the position is not shared.
    file.seek(SeekFrom::Start(offset))?;
    loop {
        match file.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all bytes of `bufs` in sequence, starting at `offset`.
///
/// # Errors
/// Any error of the system call; some of the bytes may have been written.
pub fn write_all_at(mut file: &File, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    bufs.iter().try_for_each(|buf| file.write_all(buf))
}

/// Does nothing: preallocation is not supported on this system.
///
/// # Errors
/// Never.
pub fn preallocate(file: &File, length: u64) -> io::Result<()> {
    let _ = (file, length);
    Ok(())
}

/// Not available on this system.
///
/// # Errors
/// `Unsupported`.
pub fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let _ = (file, offset, length);
    Err(io::ErrorKind::Unsupported.into())
}

/// `None`: direct I/O is not supported on this system.
#[must_use]
pub fn open_direct(file: &File) -> Option<File> {
    let _ = file;
    None
}

/// `None`: direct I/O is not supported on this system.
#[must_use]
pub fn open_direct_to_read(file: &File) -> Option<File> {
    let _ = file;
    None
}

/// `None`: the page cache can't be looked at on this system.
#[must_use]
pub fn cached_bytes(file: &File, offset: u64, length: u64) -> Option<u64> {
    let _ = (file, offset, length);
    None
}

/// Does nothing: this hint is not supported on this system.
pub fn begin_write_back(file: &File, offset: u64, length: u64) {
    let _ = (file, offset, length);
}

/// The storage of an open file's file system: unknown here.
#[must_use]
pub fn storage_of(file: &File) -> Storage {
    let _ = file;
    Storage::Other
}

/// Free bytes: unknown here.
#[must_use]
pub fn space_left(file: &File) -> Option<u64> {
    let _ = file;
    None
}

/// The rest of the file from `offset` on, as start and end: holes can't be detected here.
///
/// # Errors
/// Any error of the system call.
pub fn next_extent(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let length = meta(file)?.length;
    Ok((offset < length).then_some((offset, length)))
}

/// Does nothing: this hint is not supported on this system.
pub fn advise_sequential(file: &File) {
    let _ = file;
}

/// Does nothing: this hint is not supported on this system.
pub fn advise_will_need(file: &File, offset: u64, length: u64) {
    let _ = (file, offset, length);
}
