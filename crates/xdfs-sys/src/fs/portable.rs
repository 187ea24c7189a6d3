//! The file system calls by the standard library alone, for systems without directory handles.
//!
//! Weaker than the calls of Unix, in ways that matter: resolution beneath a directory looks at
//! each component before it uses the path, so that somebody who may change the tree on this
//! machine can win a race; names of directories aren't made durable; files have no inode here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{FileKind, Meta, ResolveError, Storage};

/// The path that `bytes` spell: UTF-8 on this system.
///
/// # Errors
/// `InvalidInput` for other bytes, and for a zero byte.
pub fn path_from_bytes(bytes: &[u8]) -> io::Result<PathBuf> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let text = str::from_utf8(bytes).map_err(|_| invalid("names must be UTF-8 on this system"))?;
    if text.contains('\0') {
        return Err(invalid("the path has a zero byte"));
    }
    Ok(PathBuf::from(text))
}

/// Opens a file for reading, by the ordinary rules.
///
/// # Errors
/// What the system says; `IsADirectory` for a directory.
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
    /// Opens a directory by the ordinary rules.
    ///
    /// # Errors
    /// What the system says.
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
                    // A stream or a device of Windows, which no file has in its name.
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

    /// Opens a directory beneath this one; an empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
    pub fn open_dir_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        Ok(Self::open(&self.beneath(path)?)?)
    }

    /// Opens a file beneath this directory for reading.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
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
    /// `AlreadyExists` if anything has the name, else what the system says.
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
    /// What the system says.
    pub fn open_existing(&self, name: &[u8]) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.name(name)?)
    }

    /// What has this name, a symbolic link itself included; `None` if nothing has.
    ///
    /// # Errors
    /// What the system says.
    pub fn meta_of(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        match fs::symlink_metadata(self.name(name)?) {
            Ok(meta) => Ok(Some(meta_from(&meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renames within the directory and replaces what has the new name.
    ///
    /// # Errors
    /// What the system says.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::rename(self.name(from)?, self.name(to)?)
    }

    /// Gives the file a second name, which fails if anything has it, and then removes the first.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the new name, else what the system says.
    pub fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::hard_link(self.name(from)?, self.name(to)?)?;
        self.remove(from)
    }

    /// Removes a name that isn't a directory's.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_file(self.name(name)?)
    }

    /// Does nothing: the standard library can't make names durable on this system.
    ///
    /// # Errors
    /// None.
    pub fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Asks whether files may be made here, as far as the attributes tell.
    ///
    /// # Errors
    /// What the system says when asked.
    pub fn check_writable(&self) -> io::Result<()> {
        fs::metadata(&self.0).map(|_| ())
    }
}

/// What the system knows of an open file.
///
/// # Errors
/// What the system says.
pub fn meta(file: &File) -> io::Result<Meta> {
    Ok(meta_from(&file.metadata()?))
}

/// What the system knows of what stands under a path; with `follow` of what a symbolic link leads
/// to.
///
/// # Errors
/// What the system says.
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

/// Whether a file belongs to the user whom this process acts for: taken for granted here.
#[must_use]
pub fn is_ours(meta: &Meta) -> bool {
    let _ = meta;
    true
}

/// Permission bits of a new file; without meaning here.
#[must_use]
pub fn default_mode() -> u32 {
    0o666
}

/// What the rules of the process leave of permission bits: there are no such rules here.
#[must_use]
pub fn masked(mode: u32) -> u32 {
    mode
}

/// Does nothing: this system has no permission bits.
///
/// # Errors
/// None.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let _ = (file, mode);
    Ok(())
}

/// Reads at an offset; 0 is the end of the file.
///
/// # Errors
/// What the system says; never `Interrupted`.
pub fn read_at(mut file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // The position is nobody else's: one thread at a time uses a handle.
    file.seek(SeekFrom::Start(offset))?;
    loop {
        match file.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all bytes of `bufs` one after the other from `offset` on.
///
/// # Errors
/// What the system says; part of the bytes may be written then.
pub fn write_all_at(mut file: &File, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    bufs.iter().try_for_each(|buf| file.write_all(buf))
}

/// Does nothing: storage isn't reserved on this system.
///
/// # Errors
/// None.
pub fn preallocate(file: &File, length: u64) -> io::Result<()> {
    let _ = (file, length);
    Ok(())
}

/// Does nothing: storage isn't reserved on this system, so that there is none to give back.
///
/// # Errors
/// `Unsupported`: this system can't.
pub fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let _ = (file, offset, length);
    Err(io::ErrorKind::Unsupported.into())
}

/// None: this system has no writes past its cache here.
#[must_use]
pub fn open_direct(file: &File) -> Option<File> {
    let _ = file;
    None
}

/// Does nothing: a hint that this system doesn't take.
pub fn begin_write_back(file: &File, offset: u64, length: u64) {
    let _ = (file, offset, length);
}

/// How the file system of an open file stores it: not known here.
#[must_use]
pub fn storage_of(file: &File) -> Storage {
    let _ = file;
    Storage::Other
}

/// Bytes that may still be written: not known here.
#[must_use]
pub fn space_left(file: &File) -> Option<u64> {
    let _ = file;
    None
}

/// The rest of the file from `offset` on, as start and end: holes aren't known here.
///
/// # Errors
/// What the system says.
pub fn next_extent(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let length = meta(file)?.length;
    Ok((offset < length).then_some((offset, length)))
}

/// Does nothing: a hint that this system doesn't take.
pub fn advise_sequential(file: &File) {
    let _ = file;
}

/// Does nothing: a hint that this system doesn't take.
pub fn advise_will_need(file: &File, offset: u64, length: u64) {
    let _ = (file, offset, length);
}
