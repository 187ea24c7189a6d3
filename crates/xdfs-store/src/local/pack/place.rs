//! Gives entries their names.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs_proto::Code;
use xdfs_sys::fs::{self, Dir, FileKind};

use super::super::path::PARTIAL_SUFFIX;
use super::super::zeros;
use super::Problem;

/// Attempts with different hidden names.
const ATTEMPTS: u32 = 16;

/// A hidden name that is not in use: from the process id, the time and a counter.
fn hidden_name() -> Vec<u8> {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = (process::id(), now.map_or(0, |now| now.as_nanos()));
        let hash = blake3::hash(format!("{seed:?}").as_bytes());
        hash.as_bytes()[..8]
            .iter()
            .fold(0, |n, b| n << 8 | u64::from(*b))
    });
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".{process:016x}-{next}{PARTIAL_SUFFIX}").into_bytes()
}

/// Whether a name has the form of [`hidden_name`].
pub(in super::super) fn is_hidden_by_pack(name: &[u8]) -> bool {
    let stem = name.strip_prefix(b".");
    let stem = stem.and_then(|stem| stem.strip_suffix(PARTIAL_SUFFIX.as_bytes()));
    let Some((process, [b'-', number @ ..])) = stem.and_then(|stem| stem.split_at_checked(16))
    else {
        return false;
    };
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    process.iter().all(is_digit) && !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}

/// Locks a hidden file while it is written, as a sign to those who remove its directory. Where
/// locks are not supported nobody gets one, and the file stays.
fn lock(file: &File) {
    let _ = file.try_lock();
}

/// The result of giving an entry its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOutcome {
    /// The name was free.
    New,
    /// An existing entry was replaced. The length of a replaced file, if it was requested.
    Replaced(u64),
}

/// A complete file without its final name.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) file: File,
    /// Its hidden name, where files without a name are not supported.
    hidden: Option<Vec<u8>>,
}

/// The content of a file.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub(super) data: &'a [u8],
    /// Zeros need no storage.
    pub(super) sparse: bool,
}

/// The name and directory of an entry to be created.
pub(super) struct Destination<'a> {
    pub(super) dir: &'a Dir,
    pub(super) name: &'a [u8],
    /// An existing entry is replaced.
    pub(super) replace: bool,
    /// The length of a replaced file is determined.
    pub(super) counts: bool,
}

impl Destination<'_> {
    /// Creates an entry by a call that fails if the name is taken.
    pub(super) fn make(
        &self,
        mut make: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<NameOutcome, Problem> {
        match make(self.name) {
            Ok(()) => return Ok(NameOutcome::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Problem::io(&error)),
        }
        if !self.replace {
            return Err(self.taken());
        }
        let (hidden, ()) = hide(make)?;
        let named = self.rename(&hidden);
        // Renaming one hard link to another of the same file leaves both.
        self.remove(&hidden);
        named
    }

    /// [`Self::make`], but with metadata applied before the entry gets its name.
    pub(super) fn make_with_metadata(
        &self,
        make: impl FnMut(&[u8]) -> io::Result<()>,
        apply_metadata: impl FnOnce(&[u8]),
    ) -> Result<NameOutcome, Problem> {
        if !self.replace && matches!(self.dir.meta_of(self.name), Ok(Some(_))) {
            return Err(self.taken());
        }
        let (hidden, ()) = hide(make)?;
        apply_metadata(&hidden);
        self.rename(&hidden)
    }

    /// Writes a file and applies its metadata; it has no name, or a hidden one. `nameless` says
    /// whether this directory supports files without a name, as far as is known. The file is
    /// created with `mode` under the umask of the process; `apply_metadata` gets the resulting
    /// mode.
    pub(super) fn write(
        &self,
        bytes: Bytes<'_>,
        mode: u32,
        nameless: &mut bool,
        apply_metadata: &mut dyn FnMut(&File, u32),
    ) -> Result<Unnamed, Problem> {
        if *nameless {
            match self.dir.create_nameless(mode) {
                Ok(file) => {
                    write(&file, bytes)?;
                    apply_metadata(&file, fs::masked(mode));
                    return Ok(Unnamed { file, hidden: None });
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => *nameless = false,
                Err(error) => return Err(Problem::io(&error)),
            }
        }
        // The name would be refused at the end; this avoids writing the file first.
        if !self.replace && matches!(self.dir.meta_of(self.name), Ok(Some(_))) {
            return Err(self.taken());
        }
        let (hidden, file) = hide(|name| self.dir.create_new(name))?;
        lock(&file);
        if let Err(problem) = write(&file, bytes) {
            self.remove(&hidden);
            return Err(problem);
        }
        let made = fs::set_mode(&file, fs::masked(mode));
        apply_metadata(&file, if made.is_ok() { fs::masked(mode) } else { 0 });
        let hidden = Some(hidden);
        Ok(Unnamed { file, hidden })
    }

    /// Gives a file its name. `None` if a file without a name can't get one here; its
    /// content is lost then.
    pub(super) fn give_name(&self, unnamed: Unnamed) -> Result<Option<NameOutcome>, Problem> {
        let Unnamed { file, hidden } = unnamed;
        if let Some(hidden) = hidden {
            // Some systems can't rename open files.
            let locked = cfg!(unix).then_some(file);
            let renamed = self.rename(&hidden).map(Some);
            drop(locked);
            return renamed;
        }
        match self.dir.give_name(&file, self.name) {
            Ok(()) => Ok(Some(NameOutcome::New)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !self.replace {
                    return Err(self.taken());
                }
                lock(&file);
                let (hidden, ()) = hide(|name| self.dir.give_name(&file, name))?;
                self.rename(&hidden).map(Some)
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(Problem::io(&error)),
        }
    }

    /// Removes a file written by [`Self::write`].
    pub(super) fn discard(&self, unnamed: Unnamed) {
        let Unnamed { file, hidden } = unnamed;
        drop(file);
        if let Some(hidden) = hidden {
            self.remove(&hidden);
        }
    }

    /// Renames a hidden entry to its final name.
    fn rename(&self, hidden: &[u8]) -> Result<NameOutcome, Problem> {
        let result = self.rename_hidden(hidden);
        if result.is_err() {
            self.remove(hidden);
        }
        result
    }

    fn rename_hidden(&self, hidden: &[u8]) -> Result<NameOutcome, Problem> {
        if !self.replace {
            return match self.dir.rename_new(hidden, self.name) {
                Ok(()) => Ok(NameOutcome::New),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self.taken()),
                Err(error) => Err(Problem::io(&error)),
            };
        }
        let mut replaced = NameOutcome::Replaced(0);
        if self.counts {
            replaced = match self.dir.meta_of(self.name) {
                Ok(None) => NameOutcome::New,
                Ok(Some(meta)) if meta.kind == FileKind::Regular => {
                    NameOutcome::Replaced(meta.length)
                }
                _ => replaced,
            };
        }
        match self.dir.rename(hidden, self.name) {
            Ok(()) => Ok(replaced),
            // Systems report different errors if a directory has the name.
            Err(error) => Err(match self.dir.meta_of(self.name) {
                Ok(Some(meta)) if meta.kind == FileKind::Directory => is_directory(),
                _ => Problem::io(&error),
            }),
        }
    }

    /// Removes a hidden entry. If that fails, it stays hidden.
    fn remove(&self, hidden: &[u8]) {
        let _ = self.dir.remove(hidden);
    }

    /// The problem of a name that is taken.
    fn taken(&self) -> Problem {
        match self.dir.meta_of(self.name) {
            Ok(Some(meta)) if meta.kind == FileKind::Directory => is_directory(),
            _ => Problem::io(&io::ErrorKind::AlreadyExists.into()),
        }
    }
}

fn is_directory() -> Problem {
    Problem::new(Code::IsDirectory, "a directory has this name")
}

/// Creates an entry under a hidden name.
fn hide<T>(mut make: impl FnMut(&[u8]) -> io::Result<T>) -> Result<(Vec<u8>, T), Problem> {
    let mut attempt = 0;
    loop {
        let name = hidden_name();
        match make(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                attempt += 1;
            }
            result => return result.map(|made| (name, made)).map_err(|e| Problem::io(&e)),
        }
    }
}

fn write(mut file: &File, bytes: Bytes<'_>) -> Result<(), Problem> {
    let Bytes { data, sparse } = bytes;
    if data.is_empty() {
        return Ok(());
    }
    let written = if sparse {
        write_sparse(file, data)
    } else {
        file.write_all(data)
    };
    written.map_err(|error| Problem::io(&error))
}

/// Writes the non-zero parts of a file's content. The file must be empty.
fn write_sparse(file: &File, data: &[u8]) -> io::Result<()> {
    let mut end = 0;
    for stretch in zeros::stretches(0, data) {
        if !stretch.is_zero {
            let (at, bytes) = (stretch.range.start, &data[stretch.range.clone()]);
            fs::write_all_at(file, &[IoSlice::new(bytes)], at as u64)?;
            end = stretch.range.end;
        }
    }
    if end < data.len() {
        file.set_len(data.len() as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packs_are_known() {
        assert!(is_hidden_by_pack(&hidden_name()));
        for name in [
            "0123456789abcdef-3.xdfs-part",
            ".0123456789abcdef-3.xdfs-journal",
            ".0123456789abcdef-.xdfs-part",
            ".0123456789abcdef-x.xdfs-part",
            ".0123456789abcdeg-3.xdfs-part",
            ".0123456789abcdef3.xdfs-part",
            ".file.xdfs-part",
        ] {
            assert!(!is_hidden_by_pack(name.as_bytes()), "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_hidden_file_is_locked_until_it_has_its_name() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let place = Destination {
            dir: &dir,
            name: b"file",
            replace: false,
            counts: false,
        };
        let bytes = Bytes {
            data: b"x",
            sparse: false,
        };
        let unnamed = place
            .write(bytes, 0o644, &mut false, &mut |_, _| {})
            .unwrap();
        let hidden = unnamed.hidden.clone().unwrap();
        assert!(dir.open_name(&hidden).unwrap().try_lock().is_err());
        place.give_name(unnamed).unwrap();
        assert!(dir.open_name(b"file").unwrap().try_lock().is_ok());
    }
}
