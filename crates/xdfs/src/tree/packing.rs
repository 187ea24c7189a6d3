//! Packs of a local source, built by threads that read small files.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, mpsc};

use xdfs_proto::pack::{PACK_BYTES_MAX, PackWriter};
use xdfs_proto::{DigestKind, Fault};
use xdfs_store::LocalStore;
use xdfs_store::local::{Added, PackBuilder};

use super::feed::{Event, Feed};
use super::item::Item;
use super::namespace::FoundName;
use super::options::SMALL_BYTES_MAX;
use super::run::TreeRun;

impl TreeRun<'_> {
    /// Reads entries of the source into packs.
    fn pack_builder(&self) -> Result<PackBuilder, Fault> {
        let keep = self.options.keep();
        let store = LocalStore::unrooted();
        let builder = store.pack_builder(self.source.root(), keep, SMALL_BYTES_MAX)?;
        Ok(builder.following(self.source.follows()))
    }

    pub(super) fn begin_pack(&self) -> PackWriter {
        PackWriter::new(self.spares.take(0), PACK_BYTES_MAX)
    }

    /// Passes a pack to the run unless it is empty, and starts another.
    pub(super) fn flush_pack(&self, pack: &mut PackWriter, feed: &Feed) {
        if pack.is_empty() {
            return;
        }
        self.pack_sizes.begin();
        let (memory, length) = std::mem::replace(pack, self.begin_pack()).finish();
        let items = Item::of_pack(
            &memory[..length],
            self.options.file_digests.unwrap_or(DigestKind::None),
        );
        feed.send(Event::Pack {
            memory,
            length,
            items,
        });
    }

    /// Size of the next pack in bytes.
    pub(super) fn pack_bytes(&self) -> usize {
        self.pack_sizes.pack_bytes(self.reconnects())
    }

    /// Body of a packer thread: reads queued entries into packs.
    pub(super) fn build_packs(&self, queue: &Mutex<mpsc::Receiver<Vec<FoundName>>>, feed: &Feed) {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mut source = match self.pack_builder() {
            Ok(source) => source,
            Err(fault) => {
                feed.send(Event::Failed(Vec::new(), fault));
                // Empty the queue, which would otherwise block the scanner.
                while next().is_ok() {}
                return;
            }
        };
        let mut pack = self.begin_pack();
        while let Ok(batch) = next() {
            for found in batch {
                // The scanner must not block on a full queue.
                if self.is_stopped() {
                    break;
                }
                let (has_links, link) = self.first_name(&found);
                if has_links {
                    feed.send(Event::HardLinked(found.path.clone()));
                }
                if let Some(link) = link {
                    feed.send(Event::Link(link));
                    continue;
                }
                let mut added = source.add(&found.path, &mut pack);
                if matches!(added, Added::Full) {
                    self.flush_pack(&mut pack, feed);
                    added = source.add(&found.path, &mut pack);
                }
                match added {
                    Added::Done => {
                        if pack.len() >= self.pack_bytes() {
                            self.flush_pack(&mut pack, feed);
                        }
                    }
                    // Doesn't fit into an empty pack either.
                    Added::Full | Added::Large(_) => {
                        feed.send(Event::Large(found.path));
                    }
                    Added::Failed(fault) => {
                        feed.send(Event::Unread(found, fault));
                    }
                }
            }
        }
        self.flush_pack(&mut pack, feed);
        self.unkept.fetch_add(source.unkept(), Ordering::Relaxed);
    }

    /// A pack that sets the metadata of a local large file.
    pub(super) fn pack_metadata(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        match self.pack_builder()?.add_attributes(path, &mut pack) {
            Added::Failed(fault) => Err(fault),
            _ => {
                let (mut memory, length) = pack.finish();
                memory.truncate(length);
                Ok(memory)
            }
        }
    }
}
