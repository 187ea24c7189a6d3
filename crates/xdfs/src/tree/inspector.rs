//! Packs from the server of a source: their entries are recorded on the way to the target.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_engine::Spares;
use xdfs_proto::pack::{
    Content, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackWriter, Preserve,
};
use xdfs_proto::{Code, DigestKind, Fault, Limits};
use xdfs_store::{LocalStore, PackOptions, Store};

use super::item::{DeferredMetadata, Item, attributes_of};
use super::options::SET_ID;

/// The pack entry of a requested name.
#[derive(Debug)]
pub(super) enum Received {
    Moved(Item),
    /// A file that needs a transfer of its own, with its further metadata; or the metadata alone
    /// of a directory.
    Large(Item, DeferredMetadata),
    Failed(Vec<u8>, Fault),
}

/// The destination of the entries of a pack.
#[derive(Debug)]
pub(super) enum PackTarget {
    /// They are written to a store on this machine. If `relaxed`, files may be published before
    /// they are durable.
    Store { store: LocalStore, relaxed: bool },
    /// Those that can be written are kept, as a pack for another server in one of these buffers.
    Kept(Spares),
    /// None: the entries are only recorded, to get the metadata of a large file or a directory.
    Nowhere,
}

/// A pack: the buffer that it is in, and its length.
type KeptPack = (Vec<u8>, usize);

/// The store that receives a pack: records its entries, and passes it to the target.
#[derive(Debug)]
pub(super) struct PackInspector {
    pub(super) names: Vec<Vec<u8>>,
    /// The metadata that was asked for. If that is any, the metadata of large files is recorded.
    keep: Preserve,
    /// Record digests of this kind.
    digests: DigestKind,
    target: PackTarget,
    received: Mutex<(Vec<Received>, Option<KeptPack>)>,
}

impl PackInspector {
    pub(super) fn new(names: Vec<Vec<u8>>, keep: Preserve, target: PackTarget) -> Self {
        Self {
            names,
            keep,
            digests: DigestKind::None,
            target,
            received: Mutex::default(),
        }
    }

    /// The same, which records digests of this kind.
    pub(super) fn with_digests(self, digests: DigestKind) -> Self {
        Self { digests, ..self }
    }

    /// An inspector that writes nothing, to get the metadata of a large file or a directory.
    pub(super) fn for_metadata(name: &[u8], keep: Preserve) -> Self {
        Self::new(vec![name.to_vec()], keep, PackTarget::Nowhere)
    }

    /// Takes the recorded entries.
    pub(super) fn take(&self) -> Vec<Received> {
        mem::take(&mut self.lock().0)
    }

    /// Takes the pack that is kept for another server: those of the recorded entries that are
    /// [`Received::Moved`], in their order.
    pub(super) fn take_kept(&self) -> Option<KeptPack> {
        self.lock().1.take()
    }

    /// Whether an entry has metadata that wasn't asked for, which neither this machine nor another
    /// server must get on the word of the server of the source: owners and attributes give rights.
    fn exceeds(&self, metadata: &Metadata<'_>) -> bool {
        let keep = &self.keep;
        metadata.owner.is_some() && !keep.owner
            || !metadata.xattrs.is_empty() && !keep.xattrs
            || metadata.atime_ns.is_some() && !keep.read_times
    }

    /// The mode of an entry, with rights of its owner for others only if the owner is kept.
    fn masked(&self, mode: u16) -> u16 {
        let denied = if self.keep.owner { 0 } else { SET_ID };
        u16::try_from(u32::from(mode) & !denied).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Received>, Option<KeptPack>)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for PackInspector {
    fn packs_wait(&self, root: &[u8]) -> bool {
        match &self.target {
            PackTarget::Store { store, relaxed } => !relaxed && store.packs_wait(root),
            PackTarget::Kept(_) | PackTarget::Nowhere => false,
        }
    }

    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let refused = |cause: &str, path: &[u8]| {
            let fault = Fault::new(Code::ProtocolViolation, "copy", cause);
            let hint = "the server doesn't keep to the protocol: have it mended";
            fault.path(path).remote().hint(hint).ending_session()
        };
        let mut received = Vec::new();
        let mut kept = match &self.target {
            PackTarget::Kept(spares) => Some(PackWriter::new(spares.take(0), PACK_BYTES_MAX)),
            PackTarget::Store { .. } | PackTarget::Nowhere => None,
        };
        for entry in PackReader::new(pack, &limits) {
            let mut entry = entry.map_err(|e| e.fault())?;
            if self.exceeds(&entry.metadata) {
                let cause = "the pack has metadata that were not requested";
                return Err(refused(cause, entry.path));
            }
            entry.metadata.mode = entry.metadata.mode.map(|mode| self.masked(mode));
            // A peer may only send requested entries.
            let asked = self.names.get(received.len());
            if asked.is_none_or(|name| name != entry.path) {
                let cause = "the pack has entries that were not requested";
                return Err(refused(cause, entry.path));
            }
            received.push(match entry.content {
                Content::Large(size) => {
                    let item = Item::large(entry.path.to_vec(), size, entry.metadata.mtime_ns);
                    let keeps_more = self.keep != Preserve::default();
                    let kept = keeps_more.then(|| attributes_of(&entry));
                    Received::Large(item, kept)
                }
                Content::Failed(fault) => Received::Failed(entry.path.to_vec(), fault),
                Content::Directory if matches!(self.target, PackTarget::Nowhere) => {
                    Received::Large(Item::of(&entry), Some(attributes_of(&entry)))
                }
                Content::HardLink(_) | Content::Attributes => {
                    let cause = "the pack has an entry of a kind that was not requested";
                    return Err(refused(cause, entry.path));
                }
                _ => {
                    // It fits: the entry came in a pack of at most this size.
                    if kept.as_mut().is_some_and(|pack| !pack.entry(&entry)) {
                        return Err(refused("the pack is too large", entry.path));
                    }
                    Received::Moved(Item::with_digest(&entry, self.digests))
                }
            });
        }
        if received.is_empty() {
            let cause = "the pack has none of the requested names";
            return Err(refused(cause, root));
        }
        *self.lock() = (received, kept.map(PackWriter::finish));
        let PackTarget::Store { store, relaxed } = &self.target else {
            return Ok(Failures::default());
        };
        let how = PackOptions {
            relaxed: *relaxed,
            ..how
        };
        store.write_pack(root, how, pack)
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, call,
        open_file);
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::path::Path;

    use xdfs_proto::pack::{Entry, Owner};

    use super::*;

    const PLAIN: Metadata<'static> = Metadata {
        mode: Some(0o6755),
        mtime_ns: Some(1),
        atime_ns: None,
        owner: None,
        xattrs: Vec::new(),
        sparse: false,
    };
    const ALL: Preserve = Preserve {
        owner: true,
        xattrs: true,
        read_times: true,
    };

    fn pack(metadata: Metadata<'_>, content: Content<'_>) -> Vec<u8> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let added = pack.entry(&Entry {
            path: b"file",
            metadata,
            content,
        });
        assert!(added);
        let (mut memory, length) = pack.finish();
        memory.truncate(length);
        memory
    }

    /// Takes a pack to this machine.
    fn fetch(keep: Preserve, pack: &[u8], root: &Path) -> Result<(), Fault> {
        let target = PackTarget::Store {
            store: LocalStore::rooted(root, false)?,
            relaxed: true,
        };
        PackInspector::new(vec![b"file".to_vec()], keep, target)
            .write_pack(b"/", HOW, pack)
            .map(drop)
    }

    /// Takes a pack to another server.
    fn pass_on(keep: Preserve, pack: &[u8]) -> Result<Option<KeptPack>, Fault> {
        let target = PackTarget::Kept(Spares::default());
        let inspector = PackInspector::new(vec![b"file".to_vec()], keep, target);
        inspector.write_pack(b"/", HOW, pack)?;
        Ok(inspector.take_kept())
    }

    const HOW: PackOptions = PackOptions {
        overwrite: false,
        relaxed: false,
    };

    fn all() -> Metadata<'static> {
        let owner = Owner {
            uid: 0,
            gid: 0,
            names: None,
        };
        Metadata {
            atime_ns: Some(2),
            owner: Some(owner),
            xattrs: vec![(b"user.name", b"value")],
            ..PLAIN
        }
    }

    /// A server can't give files owners and rights, here or at another server, that the user didn't
    /// ask for.
    #[test]
    fn metadata_that_was_not_asked_for_is_refused() -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let file = Content::File(b"content");
        for (less, metadata) in [
            (
                Preserve {
                    owner: false,
                    ..ALL
                },
                all(),
            ),
            (
                Preserve {
                    xattrs: false,
                    ..ALL
                },
                all(),
            ),
            (
                Preserve {
                    read_times: false,
                    ..ALL
                },
                all(),
            ),
        ] {
            let pack = pack(metadata, file.clone());
            let here = fetch(less, &pack, folder.path()).err();
            let there = pass_on(less, &pack).err();
            for refused in [here, there] {
                let code = refused.map(|fault| fault.code);
                assert_eq!(code, Some(Code::ProtocolViolation), "{less:?}");
            }
        }
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn another_server_gets_what_was_asked_for() -> Result<(), Fault> {
        for (keep, sent, mode) in [(Preserve::default(), PLAIN, 0o755), (ALL, all(), 0o6755)] {
            let kept = pass_on(keep, &pack(sent.clone(), Content::File(b"content")))?;
            let Some((memory, length)) = kept else {
                panic!("no pack was kept");
            };
            let limits = Limits::default();
            let mut entries = PackReader::new(&memory[..length], &limits);
            let Some(Ok(entry)) = entries.next() else {
                panic!("it has no entry");
            };
            assert_eq!(entry.content, Content::File(b"content"));
            let mode = Some(mode);
            assert_eq!(entry.metadata, Metadata { mode, ..sent });
            assert!(entries.next().is_none());
        }
        Ok(())
    }

    #[test]
    fn links_are_no_answer_to_a_request() {
        for content in [Content::HardLink(b"other"), Content::Attributes] {
            let refused = pass_on(Preserve::default(), &pack(PLAIN, content)).err();
            let code = refused.map(|fault| fault.code);
            assert_eq!(code, Some(Code::ProtocolViolation));
        }
    }
}
