//! Packs of what a source here has, made by threads that read small files.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, mpsc};

use xdfs_proto::Fault;
use xdfs_proto::pack::{PACK_BYTES_MAX, PackWriter};
use xdfs_store::LocalStore;
use xdfs_store::local::{Added, PackBuilder};

use super::feed::{Event, Feed};
use super::item::Item;
use super::namespace::FoundName;
use super::options::SMALL_BYTES_MAX;
use super::run::TreeRun;

impl TreeRun<'_> {
    /// What takes from the source into packs.
    fn pack_builder(&self) -> Result<PackBuilder, Fault> {
        let keep = self.options.keep();
        LocalStore::unrooted().pack_builder(self.source.root(), keep, SMALL_BYTES_MAX)
    }

    pub(super) fn begin_pack(&self) -> PackWriter {
        PackWriter::new(self.spares.take(0), PACK_BYTES_MAX)
    }

    /// Gives a pack to the run, if there is anything in it, and begins another.
    pub(super) fn hand_over(&self, pack: &mut PackWriter, feed: &Feed) {
        if pack.is_empty() {
            return;
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        let (memory, length) = std::mem::replace(pack, self.begin_pack()).finish();
        let items = Item::of_pack(&memory[..length]);
        feed.tell(Event::Pack {
            memory,
            length,
            items,
        });
    }

    /// Reads what was found into packs, as one of several threads.
    pub(super) fn build_packs(&self, queue: &Mutex<mpsc::Receiver<Vec<FoundName>>>, feed: &Feed) {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mut source = match self.pack_builder() {
            Ok(source) => source,
            Err(fault) => {
                feed.tell(Event::Failed(Vec::new(), fault));
                // Or the scanner would wait until somebody takes what it finds.
                while next().is_ok() {}
                return;
            }
        };
        let mut pack = self.begin_pack();
        while let Ok(batch) = next() {
            for found in batch {
                // Who finds the names is not to wait for a place for them.
                if self.is_stopped() {
                    break;
                }
                let (is_several, link) = self.first_name(&found);
                if is_several {
                    feed.tell(Event::Several(found.path.clone()));
                }
                if let Some(link) = link {
                    feed.tell(Event::Link(link));
                    continue;
                }
                let mut added = source.add(&found.path, &mut pack);
                if matches!(added, Added::Full) {
                    self.hand_over(&mut pack, feed);
                    added = source.add(&found.path, &mut pack);
                }
                match added {
                    Added::Done => {
                        let begun = self.begun.load(Ordering::Relaxed);
                        if pack.len() >= self.cut.pack_bytes(begun) {
                            self.hand_over(&mut pack, feed);
                        }
                    }
                    // A pack of its own had no room either.
                    Added::Full | Added::Large(_) => {
                        feed.tell(Event::Large(found.path));
                    }
                    Added::Failed(fault) => {
                        feed.tell(Event::Unread(found, fault));
                    }
                }
            }
        }
        self.hand_over(&mut pack, feed);
        self.unkept.fetch_add(source.unkept(), Ordering::Relaxed);
    }

    /// A pack that sets what is kept of a large file here.
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
