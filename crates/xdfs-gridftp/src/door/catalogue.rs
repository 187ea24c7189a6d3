//! Transactions of MODE T: the entries of a tree in the order of their rows, with a digest that
//! tells whether the tree is still the same.
//!
//! A few are kept for the sessions of their users. What isn't kept any more, or not since the
//! server was started, is made again; if the digest is the same then, the transaction goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault};

use super::held::{ENTRY_BYTES, Held};
use super::rows::Rows;
use crate::archive::FILE_BYTES_MAX;
use crate::client::listing::parse_facts;
use crate::segment::{CATALOGUE_BYTES_MAX, ENTRIES_MAX, Opening, TransactionId};

const OPERATION: &str = "list the tree";
/// Bytes of all transactions that are kept, at most, beside the latest.
const KEPT_BYTES_MAX: usize = CATALOGUE_BYTES_MAX;
/// Transactions that are kept, at most.
const KEPT_MAX: usize = 64;
/// Bytes of rows that are handed out at once.
const PIECE_BYTES: usize = 256 << 10;

/// An entry of a tree.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) size: u64,
    pub(super) mtime_s: i64,
    /// It may be in a segment.
    pub(super) is_small_file: bool,
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) id: TransactionId,
    pub(super) items: Vec<Item>,
    /// Memory that it takes.
    bytes: usize,
}

/// The transaction of a tree as it is now, and its rows, which are still to be sent.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) catalogue: Arc<Catalogue>,
    rows: VecDeque<Vec<u8>>,
    left_out: u64,
    held: Held,
}

/// Those of all users, with the names of their users and the paths of their trees. The latest is
/// last.
#[derive(Debug, Default)]
pub(super) struct Catalogues(VecDeque<(String, Vec<u8>, Arc<Catalogue>)>);

impl Opened {
    /// Lists the tree at `path`. Its rows are `held`.
    ///
    /// # Errors
    /// It can't be listed, or has too many entries; or listings hold too much already.
    pub(super) fn new(path: &[u8], mut listing: Rows, mut held: Held) -> Result<Self, Fault> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while !listing.is_at_end() {
            let mut page = Vec::new();
            listing.fill(&mut page)?;
            bytes += page.len();
            let before = found.len();
            for row in page
                .split(|byte| *byte == b'\n')
                .filter(|row| !row.is_empty())
            {
                let row = row.strip_suffix(b"\r").unwrap_or(row);
                let listed = parse_facts(row).map_err(|error| {
                    Fault::new(Code::Internal, OPERATION, error.to_string()).path(path)
                })?;
                let is_file = listed.attributes.kind == FileKind::File && listed.link.is_none();
                let item = Item {
                    size: listed.attributes.size,
                    mtime_s: listed.attributes.mtime_ns.div_euclid(1_000_000_000),
                    is_small_file: is_file && listed.attributes.size <= FILE_BYTES_MAX.into(),
                    path: listed.name,
                };
                let is_directory = listed.attributes.kind == FileKind::Directory;
                let rank = (!is_directory, if is_directory { 0 } else { item.size });
                found.push((rank, item, row.to_vec()));
            }
            // A name is no longer than its row.
            let more = 2 * page.len() + (found.len() - before) * ENTRY_BYTES;
            held.grow(more).map_err(|fault| fault.path(path))?;
            if found.len() > ENTRIES_MAX || bytes > CATALOGUE_BYTES_MAX {
                let cause = format!(
                    "the tree has more than {ENTRIES_MAX} entries, or {} MiB of rows",
                    CATALOGUE_BYTES_MAX >> 20
                );
                let fault = Fault::new(Code::Unsupported, OPERATION, cause).path(path);
                return Err(fault.hint("use MODE E, or MODE T for parts of the tree"));
            }
        }
        found.sort_by(|(a_rank, a, _), (b_rank, b, _)| {
            a_rank.cmp(b_rank).then_with(|| a.path.cmp(&b.path))
        });
        let mut hasher = blake3::Hasher::new();
        hasher.update(path);
        for (rank, item, _) in &found {
            hasher.update(&(item.path.len() as u64).to_be_bytes());
            hasher.update(&item.path);
            hasher.update(&[u8::from(rank.0), u8::from(item.is_small_file)]);
            hasher.update(&rank.1.to_be_bytes());
            hasher.update(&item.mtime_s.to_be_bytes());
        }
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        let (mut items, mut rows) = (Vec::new(), VecDeque::new());
        for (_, item, row) in found {
            items.push(item);
            rows.push_back(row);
        }
        let id = TransactionId(id);
        let bytes = items.iter().map(|item| item.path.capacity()).sum::<usize>()
            + items.len() * size_of::<Item>();
        let catalogue = Arc::new(Catalogue { id, items, bytes });
        Ok(Self {
            catalogue,
            rows,
            left_out: listing.left_out(),
            held,
        })
    }

    /// Appends the next rows; nothing at the end.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() < PIECE_BYTES
            && let Some(row) = self.rows.pop_front()
        {
            out.extend_from_slice(&row);
            out.extend_from_slice(b"\r\n");
            self.held.shrink(2 * row.len() + ENTRY_BYTES);
        }
    }

    /// What the client is told at the end.
    pub(super) fn receipt(&self) -> String {
        let opening = Opening {
            transaction: self.catalogue.id,
            entries: self.catalogue.items.len() as u64,
            left_out: self.left_out,
        };
        opening.to_string()
    }
}

impl Catalogues {
    /// Keeps one. The oldest go when there are too many.
    pub(super) fn keep(&mut self, user: &str, path: &[u8], catalogue: &Arc<Catalogue>) {
        self.0.retain(|(a, b, _)| a != user || b != path);
        self.0
            .push_back((user.to_owned(), path.to_vec(), Arc::clone(catalogue)));
        let bytes = |kept: &VecDeque<(_, _, Arc<Catalogue>)>| {
            kept.iter().map(|(.., one)| one.bytes).sum::<usize>()
        };
        while self.0.len() > 1 && (self.0.len() > KEPT_MAX || bytes(&self.0) > KEPT_BYTES_MAX) {
            self.0.pop_front();
        }
    }

    /// The transaction of a user about a tree, if it is still kept.
    pub(super) fn get(&self, user: &str, path: &[u8], id: TransactionId) -> Option<Arc<Catalogue>> {
        let mut kept = self.0.iter();
        let found = kept.find(|(a, b, one)| a == user && b == path && one.id == id);
        found.map(|(.., one)| Arc::clone(one))
    }
}
