//! Places: stores that have a connection of their own to their files, and say what these can do.
//!
//! Callers ask for a trait or call a method, and never for the kind of a place. So a further kind
//! changes nothing here.

use std::any::Any;
use std::sync::Arc;

use xdfs_proto::{ChecksumKind, Code, Fault};

use crate::Store;

/// Features of all places of one kind, known before any session. Further ones, which depend on the
/// server, are methods of [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Attributes identify a file, by its device and inode, so that two paths of one file can be
    /// distinguished from two files.
    pub identities: bool,
    /// A file can have several names.
    pub hard_links: bool,
    /// Attributes have the storage that a file takes.
    pub storage: bool,
    /// The tag of a source identifies its content, so that what an earlier session has moved of it
    /// needs no comparison, and an interrupted copy resumes.
    pub versions: bool,
    /// [`Call::Copy`](xdfs_proto::path::Call::Copy) copies a file within the place. Otherwise
    /// [`Place::receive_from`] is asked, even if it is its own source.
    pub copies: bool,
    /// A lost connection to the server ends the session. Otherwise [`Place::reconnect`] makes
    /// another one for the same session.
    pub sessions: bool,
    /// Files can be spread over several nodes of the server.
    pub stripes: bool,
    /// Many small files are read and written together in packs, with all of their metadata.
    /// Otherwise a pack is one file after the other, and what such a place can't keep is left out.
    pub packs: bool,
}

impl Traits {
    /// The traits of a server of xDFS, and of this machine.
    pub const FULL: Self = Self {
        identities: true,
        hard_links: true,
        storage: true,
        versions: true,
        copies: true,
        sessions: true,
        stripes: false,
        packs: true,
    };

    /// The traits of files without anything beside their names, sizes and content.
    pub const NONE: Self = Self {
        identities: false,
        hard_links: false,
        storage: false,
        versions: false,
        copies: false,
        sessions: false,
        stripes: false,
        packs: false,
    };
}

/// The files of a server, over connections of this store. A session with it is one with a server in
/// this process, whose store it is.
pub trait Place: Store + Any {
    /// Connects, so that a server that isn't there is known before anything else is asked.
    ///
    /// # Errors
    /// The server can't be reached, or refuses the user.
    fn connect(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether the path to the server is long; `false` if it can't be reached.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether checksums of this kind are computed where the files are; `false` if the server can't
    /// be reached.
    fn computes(&self, kind: ChecksumKind) -> bool {
        let _ = kind;
        true
    }

    /// Whether the user logs in by a password, which only the server sees.
    fn takes_password(&self) -> bool {
        false
    }

    /// Whether a download that is interrupted resumes when it is started again.
    fn resumes_download(&self) -> bool {
        false
    }

    /// Whether an upload of so many bytes, if they are known, resumes likewise.
    fn resumes_upload(&self, bytes: Option<u64>) -> bool {
        let _ = bytes;
        false
    }

    /// Announces that all of the tree at `path` will be listed, and files of it read, until
    /// [`Self::end_tree`]. Returns whether these are best asked for in the order of their sizes.
    fn begin_tree(&self, path: &[u8]) -> bool {
        let _ = path;
        false
    }

    /// Takes back what [`Self::begin_tree`] has announced.
    fn end_tree(&self) {}

    /// The store in which the target of a download of the file at `source` is opened, instead of
    /// `target`: a place without versions compares there what an earlier attempt has left.
    fn comparing(&self, source: &[u8], target: Arc<dyn Store>) -> Arc<dyn Store> {
        let _ = source;
        target
    }

    /// Has `source` send a file straight to this place. Calls `moved` with the bytes that have
    /// arrived and their total.
    ///
    /// # Errors
    /// The failure of the file, after it has begun.
    fn receive_from(
        &self,
        source: &dyn Place,
        request: &DirectRequest,
        moved: &mut dyn FnMut(u64, u64),
    ) -> Result<Directly, Fault> {
        let _ = (source, request, moved);
        let cause = "no other server sends files to it";
        Ok(Directly::Impossible {
            why: Fault::new(Code::Unsupported, "copy", cause),
            is_certain: true,
        })
    }

    /// Connects again, in place of connections to a server that has gone away.
    ///
    /// # Errors
    /// As [`Self::connect`].
    fn reconnect(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Ends what waits for the server, soon, and everything that is begun later.
    fn close(&self) {}
}

/// A file to be copied straight from another place.
#[derive(Clone, Debug)]
pub struct DirectRequest {
    /// Its path there.
    pub from: Vec<u8>,
    /// The target, which may be a directory.
    pub path: Vec<u8>,
    /// The name in that directory.
    pub name: Vec<u8>,
    /// Replace an existing target.
    pub overwrite: bool,
    /// Compare checksums. Otherwise sizes are.
    pub compares: bool,
}

/// The result of [`Place::receive_from`].
#[derive(Debug)]
pub enum Directly {
    /// It is copied.
    Copied(Copied),
    /// It doesn't go straight, for this reason. Nothing of the file is at the target.
    Impossible {
        /// The reason.
        why: Fault,
        /// These two servers can't do it at all. Otherwise it may also be a failure of this file.
        is_certain: bool,
    },
}

/// A file that was copied.
#[derive(Debug)]
pub struct Copied {
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes of it that weren't sent again after a break.
    pub kept_bytes: u64,
    /// Its path at the target.
    pub path: Vec<u8>,
    /// Data connections that the sender was asked for.
    pub channels: u32,
}
