//! Plans the copies of files: the route of each, from the places that a user names.
//!
//! Local paths are looked at (directory or file, length), and the network is never used.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use xdfs_proto::{Code, Fault};

use super::path::{ends_with_separator, file_name, local_name};
use crate::between::ServerFile;
use crate::made_file::MadeFile;
use crate::remote::RemotePlace;
use crate::transfer::{LocalPlace, TransferRoute};

fn invalid(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "plan the copy", cause)
}

/// The copy of a file.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// The server, to whose sessions the copy belongs: of a copy between servers, that of the
    /// target.
    pub server: RemotePlace,
    /// Source and target.
    pub route: TransferRoute,
    /// The name that the file gets, if the target is a directory on a server.
    pub name: Option<Vec<u8>>,
    /// Number of bytes, if the source is a local file.
    pub bytes: Option<u64>,
    /// The reason for which it can't be copied; other files can.
    pub refused: Option<Fault>,
}

impl PlannedFile {
    /// Whether source or target is a stream, which can be read or written only once.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        *self.route.local() == LocalPlace::Standard
    }

    /// The copy of a local file to a server: to the path of `server`, or with its own name into the
    /// directory there, if that ends with a slash or several sources go there. `offset` and
    /// `length` are the part of it that is copied, in bytes.
    #[must_use]
    pub fn upload(
        path: &Path,
        server: &RemotePlace,
        is_one_of_several: bool,
        part: (u64, Option<u64>),
    ) -> Self {
        let to = remote_target(server, is_one_of_several);
        let name = path.file_name().filter(|_| to.ends_with(b"/"));
        let (bytes, refused) = look_at(path, part);
        Self {
            server: server.clone(),
            route: TransferRoute::Upload {
                from: LocalPlace::Path(path.into()),
                to,
            },
            name: name.map(|name| name.as_encoded_bytes().to_vec()),
            bytes,
            refused,
        }
    }

    /// The copy of a file that is made while it is read, to this path.
    #[must_use]
    pub fn upload_made(file: &MadeFile, server: &RemotePlace) -> Self {
        Self {
            server: server.clone(),
            route: TransferRoute::Upload {
                from: LocalPlace::Made(file.clone()),
                to: server.path.clone(),
            },
            name: None,
            bytes: Some(file.bytes()),
            refused: None,
        }
    }

    /// The copy of a file of this machine to another place on it. `part` has its offset and length
    /// in bytes, as in [`PlannedFile::upload`].
    ///
    /// # Errors
    /// The path can't be made absolute, or has no name that the copy could keep.
    pub fn here(
        path: &Path,
        target: &DownloadTarget,
        part: (u64, Option<u64>),
    ) -> Result<Self, Fault> {
        let server = RemotePlace::here(path)?;
        let (bytes, refused) = look_at(path, part);
        // A directory may have no name, and that isn't what is wrong with it.
        let copy = Self::download(&server, target);
        let copy = copy.map_err(|fault| refused.clone().unwrap_or(fault))?;
        Ok(Self {
            bytes,
            refused,
            ..copy
        })
    }

    /// The copy of standard input to a file on a server.
    ///
    /// # Errors
    /// The path of `server` is that of a directory.
    pub fn upload_stream(server: &RemotePlace) -> Result<Self, Fault> {
        let to = remote_target(server, false);
        if to.ends_with(b"/") {
            return Err(invalid("standard input has no name in a directory")
                .hint("name a file at the end of the URL"));
        }
        Ok(Self {
            server: server.clone(),
            route: TransferRoute::Upload {
                from: LocalPlace::Standard,
                to,
            },
            name: None,
            bytes: None,
            refused: None,
        })
    }

    /// The copy of a file of another server, otherwise as [`PlannedFile::upload`].
    ///
    /// # Errors
    /// The path of the source is that of a directory, or has no name that the file could keep.
    pub fn between(
        source: &ServerFile,
        server: &RemotePlace,
        is_one_of_several: bool,
    ) -> Result<Self, Fault> {
        let path = &source.place().path;
        if path.is_empty() || path == b"/" {
            let fault = invalid("the URL does not name a file");
            return Err(fault.hint("use --recursive for directories"));
        }
        let to = remote_target(server, is_one_of_several);
        let name = match to.ends_with(b"/") {
            true => {
                let name = file_name(path);
                Some(name.ok_or_else(|| invalid("its last part is no name of a file"))?)
            }
            false => None,
        };
        Ok(Self {
            server: server.clone(),
            name: name.map(<[u8]>::to_vec),
            route: TransferRoute::Upload {
                from: LocalPlace::OtherServer(source.clone()),
                to,
            },
            bytes: None,
            refused: None,
        })
    }

    /// The copy of a file of a server to this machine.
    ///
    /// # Errors
    /// The path of `server` is that of a directory, or has no name that a file here could keep.
    pub fn download(server: &RemotePlace, target: &DownloadTarget) -> Result<Self, Fault> {
        if server.path.is_empty() || server.path == b"/" {
            let fault = invalid("the URL does not name a file");
            return Err(fault.hint("write xdfs://HOST/PATH"));
        }
        let to = match target {
            DownloadTarget::Standard => LocalPlace::Standard,
            DownloadTarget::Null => LocalPlace::Memory,
            DownloadTarget::File(path) => LocalPlace::Path(path.clone()),
            DownloadTarget::Directory(directory) => {
                let name = file_name(&server.path).and_then(local_name);
                let name = name.ok_or_else(|| {
                    invalid("its last part is not a valid file name on this machine")
                        .hint("name the target file")
                })?;
                LocalPlace::Path(directory.join(name))
            }
        };
        Ok(Self {
            server: server.clone(),
            route: TransferRoute::Download {
                from: server.path.clone(),
                to,
            },
            name: None,
            bytes: None,
            refused: None,
        })
    }
}

/// The target of downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownloadTarget {
    /// Standard output.
    Standard,
    /// Nowhere: the bytes are verified and dropped.
    Null,
    /// A file, which need not exist.
    File(PathBuf),
    /// A directory, in which each file keeps its name.
    Directory(PathBuf),
}

impl DownloadTarget {
    /// Looks at a local path as the target of one or of several files.
    ///
    /// # Errors
    /// It must be a directory, since it ends with a slash or several files go there, and is not.
    pub fn of(path: &Path, has_several: bool) -> Result<Self, Fault> {
        if cfg!(unix) && path == Path::new("/dev/null") {
            return Ok(Self::Null);
        }
        if path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        if !has_several && !ends_with_separator(path) {
            return Ok(Self::File(path.to_owned()));
        }
        Err(no_directory(path.exists()).path(path.as_os_str().as_encoded_bytes()))
    }
}

/// The fault of a target that has to be a directory and is none.
#[must_use]
pub fn no_directory(exists: bool) -> Fault {
    let operation = "open the target directory";
    match exists {
        true => Fault::new(Code::NotDirectory, operation, "a file has that name")
            .hint("several sources need a directory as their target"),
        false => Fault::new(Code::NotFound, operation, "no such directory")
            .hint("create it first, with mkdir"),
    }
}

/// Checks that several sources can keep their names in one directory. A source whose contents are
/// copied has none.
///
/// # Errors
/// Two have the same name.
pub fn check_names<'a>(names: impl IntoIterator<Item = Option<&'a [u8]>>) -> Result<(), Fault> {
    let mut all = HashSet::new();
    for name in names.into_iter().flatten() {
        if !all.insert(name) {
            return Err(invalid(format!(
                "two sources have the name '{}', and the target directory can hold only one",
                name.escape_ascii()
            ))
            .hint("copy one of them by itself, under another name"));
        }
    }
    Ok(())
}

/// The target's path on the server; with a trailing slash if it is meant as a directory.
fn remote_target(server: &RemotePlace, is_one_of_several: bool) -> Vec<u8> {
    let mut path = server.path.clone();
    // A built-in store of the server, such as mem:null, is not a directory and takes any file.
    let is_store = path.starts_with(b"mem:");
    if path.is_empty() || is_one_of_several && !is_store && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// The bytes of a part of a local file, and the fault if it is a directory. Other faults are those
/// of opening the source.
fn look_at(path: &Path, (offset, length): (u64, Option<u64>)) -> (Option<u64>, Option<Fault>) {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => (None, Some(tree_refusal(path))),
        Ok(meta) if meta.is_file() => {
            let rest = meta.len().saturating_sub(offset);
            (Some(rest.min(length.unwrap_or(u64::MAX))), None)
        }
        _ => (None, None),
    }
}

fn tree_refusal(path: &Path) -> Fault {
    Fault::new(Code::IsDirectory, "open the source", "is a directory")
        .path(path.as_os_str().as_encoded_bytes())
        .hint("use --recursive to copy it with its contents")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> RemotePlace {
        url.parse().unwrap()
    }

    #[test]
    fn uploads_keep_the_target_as_written_or_their_own_names() {
        for (url, is_one_of_several, path, name) in [
            ("xdfs://h/x", false, "/x", None),
            ("xdfs://h/d/", false, "/d/", Some("file")),
            ("xdfs://h", false, "/", Some("file")),
            ("xdfs://h/d", true, "/d/", Some("file")),
            ("xdfs://h/mem:null", true, "mem:null", None),
        ] {
            let copy = PlannedFile::upload(
                Path::new("some/file"),
                &place(url),
                is_one_of_several,
                (0, None),
            );
            let expected = TransferRoute::Upload {
                from: LocalPlace::Path("some/file".into()),
                to: path.into(),
            };
            assert_eq!(copy.route, expected, "{url}");
            assert_eq!(
                copy.name,
                name.map(|name| name.as_bytes().to_vec()),
                "{url}"
            );
        }
        assert!(PlannedFile::upload_stream(&place("xdfs://h/x")).is_ok());
        assert!(PlannedFile::upload_stream(&place("xdfs://h/d/")).is_err());
    }

    #[test]
    fn local_sources_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, [0; 100]).unwrap();
        let server = place("xdfs://h/d");
        let copy = PlannedFile::upload(folder.path(), &server, false, (0, None));
        assert_eq!(copy.refused.unwrap().code, Code::IsDirectory);
        for (part, bytes) in [
            ((0, None), 100),
            ((30, Some(50)), 50),
            ((60, Some(50)), 40),
            ((300, None), 0),
        ] {
            let copy = PlannedFile::upload(&file, &server, false, part);
            assert_eq!(copy.bytes, Some(bytes), "{part:?}");
        }
    }

    #[test]
    fn downloads_keep_their_names_in_a_directory_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let target = DownloadTarget::of(folder.path(), true).unwrap();
        let copy = PlannedFile::download(&place("xdfs://h/a/x"), &target).unwrap();
        let expected = LocalPlace::Path(folder.path().join("x"));
        assert_eq!(*copy.route.local(), expected);
        for bad in ["xdfs://h", "xdfs://h/", "xdfs://h/a/..", "xdfs://h/%00"] {
            assert!(
                PlannedFile::download(&place(bad), &target).is_err(),
                "{bad}"
            );
        }
        let file = folder.path().join("file");
        assert_eq!(
            DownloadTarget::of(&file, false),
            Ok(DownloadTarget::File(file.clone()))
        );
        assert_eq!(
            DownloadTarget::of(&file, true).unwrap_err().code,
            Code::NotFound
        );
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            DownloadTarget::of(&file, true).unwrap_err().code,
            Code::NotDirectory
        );
    }

    #[test]
    fn a_name_has_one_source() {
        let names = [Some(&b"a"[..]), None, Some(b"b"), None];
        assert!(check_names(names).is_ok());
        let fault = check_names([Some(&b"a"[..]), Some(b"a")]).unwrap_err();
        assert!(fault.cause.contains("'a'"), "{fault}");
    }
}
