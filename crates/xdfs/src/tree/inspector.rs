//! Packs from the server of a source: their entries are recorded on the way to the target.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_engine::Spares;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackWriter, Preserve,
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

    /// The entry without metadata that wasn't asked for, which the target must not get on the word
    /// of the server of the source: it acts for the user there.
    fn asked<'e>(&self, entry: Entry<'e>) -> Entry<'e> {
        let Metadata {
            mode,
            mtime_ns,
            atime_ns,
            owner,
            xattrs,
            sparse,
        } = entry.metadata;
        let keep = &self.keep;
        let denied = if keep.owner { 0 } else { SET_ID };
        Entry {
            metadata: Metadata {
                mode: mode.and_then(|mode| u16::try_from(u32::from(mode) & !denied).ok()),
                mtime_ns,
                atime_ns: atime_ns.filter(|_| keep.read_times),
                owner: owner.filter(|_| keep.owner),
                xattrs: if keep.xattrs { xattrs } else { Vec::new() },
                sparse,
            },
            ..entry
        }
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
            fault.path(path).ending_session()
        };
        let mut received = Vec::new();
        let mut kept = match &self.target {
            PackTarget::Kept(spares) => Some(PackWriter::new(spares.take(0), PACK_BYTES_MAX)),
            PackTarget::Store { .. } | PackTarget::Nowhere => None,
        };
        for entry in PackReader::new(pack, &limits) {
            let entry = self.asked(entry.map_err(|e| e.fault())?);
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
    use xdfs_proto::pack::Owner;

    use super::*;

    fn pack(content: Content<'_>) -> Vec<u8> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let added = pack.entry(&Entry {
            path: b"file",
            metadata: Metadata {
                mode: Some(0o6755),
                mtime_ns: Some(1),
                atime_ns: Some(2),
                owner: Some(Owner {
                    uid: 0,
                    gid: 0,
                    names: None,
                }),
                xattrs: vec![(b"user.name", b"value")],
                sparse: false,
            },
            content,
        });
        assert!(added);
        let (mut memory, length) = pack.finish();
        memory.truncate(length);
        memory
    }

    fn write(keep: Preserve, content: Content<'_>) -> Result<Option<KeptPack>, Fault> {
        let target = PackTarget::Kept(Spares::default());
        let inspector = PackInspector::new(vec![b"file".to_vec()], keep, target);
        let how = PackOptions {
            overwrite: false,
            relaxed: false,
        };
        inspector.write_pack(b"/", how, &pack(content))?;
        Ok(inspector.take_kept())
    }

    /// A server can't give files owners and rights at another one that the user didn't ask for.
    #[test]
    fn another_server_gets_only_what_was_asked_for() -> Result<(), Fault> {
        let all = Preserve {
            owner: true,
            xattrs: true,
            read_times: true,
        };
        for keep in [Preserve::default(), all] {
            let Some((memory, length)) = write(keep, Content::File(b"content"))? else {
                panic!("no pack was kept");
            };
            let limits = Limits::default();
            let mut entries = PackReader::new(&memory[..length], &limits);
            let Some(Ok(entry)) = entries.next() else {
                panic!("it has no entry");
            };
            let metadata = entry.metadata;
            let keeps = keep == all;
            assert_eq!(entry.content, Content::File(b"content"));
            assert_eq!(metadata.mode, Some(if keeps { 0o6755 } else { 0o755 }));
            assert_eq!(metadata.mtime_ns, Some(1));
            assert_eq!(metadata.atime_ns.is_some(), keeps);
            assert_eq!(metadata.owner.is_some(), keeps);
            assert_eq!(metadata.xattrs.len(), usize::from(keeps));
            assert!(entries.next().is_none());
        }
        Ok(())
    }

    #[test]
    fn links_are_no_answer_to_a_request() {
        for content in [Content::HardLink(b"other"), Content::Attributes] {
            let refused = write(Preserve::default(), content).err();
            let code = refused.map(|fault| fault.code);
            assert_eq!(code, Some(Code::ProtocolViolation));
        }
    }
}
