//! The known hosts file.
//!
//! ```text
//! # a comment
//! host:port SHA256:base64 a comment
//! [2001:db8::1]:port SHA256:base64
//! ```
//!
//! A host may have several lines, one per key. Lines written by people stay unchanged when the
//! program adds or removes others.

use std::fs;
use std::path::{Path, PathBuf};

use xdfs_proto::fault::{Code, Fault};

use super::host::is_host_port;
use crate::identity::Fingerprint;
use crate::identity::file::{self, Lock, Staged};
use crate::trusted::{self, Secrecy};

/// Maximum size of the file: some ten thousand hosts.
const BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a comment written by the program.
const COMMENT_BYTES_MAX: usize = 256;

const READ: &str = "read the known hosts";
const WRITE: &str = "write the known hosts";

/// A line of the file: a host and one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownHost {
    /// The host, in the form of [`host_port`](super::host_port).
    pub host: String,
    /// The key.
    pub fingerprint: Fingerprint,
    /// The rest of the line.
    pub comment: String,
}

/// The known hosts file, as of its last read.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    path: PathBuf,
    lines: Vec<FileLine>,
}

#[derive(Clone, Debug)]
struct FileLine {
    text: String,
    entry: Option<KnownHost>,
}

impl KnownHosts {
    /// Loads the file. A missing file has no hosts.
    ///
    /// # Errors
    /// Those of [`trusted::read`], for 1 MiB; `InvalidArgument`, with the line number, if a line is
    /// malformed. No line is skipped: it may be the one that protects.
    pub fn load(path: &Path) -> Result<Self, Fault> {
        if file::is_there(READ, path)? {
            Self::parse(
                path,
                &trusted::read(READ, path, BYTES_MAX, Secrecy::Public)?,
            )
        } else {
            Self::parse(path, b"")
        }
    }

    /// Parses the content of the file at `path`.
    ///
    /// # Errors
    /// `InvalidArgument`, with the line number, if a line is malformed.
    pub fn parse(path: &Path, content: &[u8]) -> Result<Self, Fault> {
        Ok(Self {
            path: path.to_owned(),
            lines: parse(path, content)?,
        })
    }

    /// The keys of a host, in the form of [`host_port`](super::host_port).
    #[must_use]
    pub fn lookup(&self, host_port: &str) -> Vec<Fingerprint> {
        self.list()
            .filter(|known| known.host.eq_ignore_ascii_case(host_port))
            .map(|known| known.fingerprint)
            .collect()
    }

    /// All hosts, in the order of the file.
    pub fn list(&self) -> impl Iterator<Item = &KnownHost> {
        self.lines.iter().filter_map(|line| line.entry.as_ref())
    }

    /// Adds a key of a host to the file, and returns whether it is new. The file is reloaded first,
    /// under a lock, so that nothing added by others is lost.
    ///
    /// # Errors
    /// `InvalidArgument` if the host isn't in the form of [`host_port`](super::host_port), or the
    /// comment has control characters or over 256 bytes; those of [`load`](Self::load); errors of
    /// writing; `LimitExceeded` if the file gets too long; `Busy` if another process holds the lock
    /// for 10 s.
    pub fn add(
        &mut self,
        host_port: &str,
        fingerprint: Fingerprint,
        comment: &str,
    ) -> Result<bool, Fault> {
        self.insert(host_port, fingerprint, comment, |_| Ok(()))
    }

    /// [`Self::add`] for an unknown host: refused if another key was added meanwhile.
    pub(super) fn add_first(
        &mut self,
        host_port: &str,
        fingerprint: Fingerprint,
    ) -> Result<bool, Fault> {
        self.insert(host_port, fingerprint, "", |known| {
            if known.is_empty() {
                Ok(())
            } else {
                Err(super::fault::changed(host_port, fingerprint, known))
            }
        })
    }

    /// Removes all keys of a host from the file, and returns their number.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), errors of writing, and `Busy` if another process holds the
    /// lock for 10 s.
    pub fn remove(&mut self, host_port: &str) -> Result<usize, Fault> {
        if !file::is_there(READ, &self.path)? {
            self.lines.clear();
            return Ok(0);
        }
        let (target, _lock) = self.lock()?;
        let mut fresh = Self::load(&self.path)?;
        let before = fresh.lines.len();
        fresh.lines.retain(|line| {
            line.entry
                .as_ref()
                .is_none_or(|known| !known.host.eq_ignore_ascii_case(host_port))
        });
        let removed = before - fresh.lines.len();
        if removed > 0 {
            fresh.write(&target)?;
        }
        self.lines = fresh.lines;
        Ok(removed)
    }

    fn insert(
        &mut self,
        host_port: &str,
        fingerprint: Fingerprint,
        comment: &str,
        check: impl Fn(&[Fingerprint]) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        let invalid = |cause: &str| Fault::new(Code::InvalidArgument, WRITE, cause).path(host_port);
        if !is_host_port(host_port) {
            return Err(invalid("it isn't a host and a port"));
        }
        if comment.len() > COMMENT_BYTES_MAX || comment.contains(char::is_control) {
            return Err(invalid("the comment is too long or has control characters"));
        }
        if let Some(folder) = self.path.parent() {
            trusted::make_folder(WRITE, folder)?;
        }
        let (target, _lock) = self.lock()?;
        let mut fresh = Self::load(&self.path)?;
        let known = fresh.lookup(host_port);
        let is_new = !known.contains(&fingerprint);
        if is_new {
            check(&known)?;
            let host = host_port.to_ascii_lowercase();
            let comment = comment.trim();
            fresh.lines.push(FileLine {
                text: format!("{host} {fingerprint} {comment}")
                    .trim_end()
                    .to_owned(),
                entry: Some(KnownHost {
                    host,
                    fingerprint,
                    comment: comment.to_owned(),
                }),
            });
            fresh.write(&target)?;
        }
        self.lines = fresh.lines;
        Ok(is_new)
    }

    /// The file with links resolved, which is to be replaced, and its lock.
    fn lock(&self) -> Result<(PathBuf, Lock), Fault> {
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let lock = Lock::take(WRITE, &target)?;
        Ok((target, lock))
    }

    /// Called with the lock.
    fn write(&self, target: &Path) -> Result<(), Fault> {
        let mut out = String::new();
        for line in &self.lines {
            out.push_str(&line.text);
            out.push('\n');
        }
        if out.len() as u64 > BYTES_MAX {
            return Err(Fault::new(
                Code::LimitExceeded,
                WRITE,
                format!("the file would be longer than {BYTES_MAX} bytes"),
            )
            .path(file::bytes(target))
            .hint("remove hosts that aren't used any more"));
        }
        Staged::write(WRITE, target, out.as_bytes())?.publish(WRITE)
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<FileLine>, Fault> {
    let fault = |number: usize, cause: &str| {
        Fault::new(
            Code::InvalidArgument,
            READ,
            format!("line {number}: {cause}"),
        )
        .path(file::bytes(path))
        .hint("a line is `host:port SHA256:...` and a comment; correct it or remove it")
    };
    // Not `lines` of text: a damaged file need not be text.
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for (number, line) in (1..).zip(body.split(|&b| b == b'\n')) {
        let text = str::from_utf8(line).map_err(|_| fault(number, "it isn't text"))?;
        let text = text.strip_suffix('\r').unwrap_or(text);
        let entry = parse_line(text.trim()).map_err(|cause| fault(number, cause))?;
        out.push(FileLine {
            text: text.to_owned(),
            entry,
        });
    }
    Ok(out)
}

fn parse_line(line: &str) -> Result<Option<KnownHost>, &'static str> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (host, rest) = line
        .split_once([' ', '\t'])
        .ok_or("it has no fingerprint")?;
    let rest = rest.trim_start();
    let (fingerprint, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    if !is_host_port(host) {
        return Err("it doesn't begin with a host and a port");
    }
    Ok(Some(KnownHost {
        host: host.to_ascii_lowercase(),
        fingerprint: fingerprint
            .parse()
            .map_err(|_| "its fingerprint isn't a SHA-256 in base64")?,
        comment: comment.trim_start().to_owned(),
    }))
}
