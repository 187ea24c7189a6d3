//! Packs in the directory of all exports: each entry belongs to the export that its path begins
//! with, and packs are divided among them.
//!
//! The directory of all exports has no attributes that could be set. The directory of an export
//! keeps its mode, which is the administrator's choice, as it does where a copy has it as its root.

use std::collections::BTreeMap;

use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackRequest, PackWriter,
};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::PackOptions;

use super::Rights;
use super::pack::WRITE;
use super::path::Clean;
use super::store::ExportStore;

/// The part of a pack that belongs to an export.
struct Part {
    entries: PackWriter,
    /// What failed, once it is written.
    written: Result<Failures, Fault>,
    /// Entries whose outcome was looked up.
    seen: u32,
}

impl ExportStore {
    /// Whether a path is that of the directory of all exports.
    pub(super) fn is_top(&self, path: &[u8]) -> bool {
        self.has_top() && Clean::of("", path).is_ok_and(|clean| clean.path.is_empty())
    }

    pub(super) fn grant_at_top(&self, root: &[u8], request: &PackRequest, pack: &mut PackWriter) {
        let of_one = |a: &Vec<u8>, b: &Vec<u8>| split(a).0 == split(b).0;
        for names in request.names.chunk_by(of_one) {
            let export = names.first().map_or(&b""[..], |name| split(name).0);
            let inner = PackRequest {
                keep: request.keep,
                follow: request.follow,
                file_bytes_max: request.file_bytes_max,
                names: names.iter().map(|name| split(name).1.to_vec()).collect(),
            };
            pack.set_directory(export);
            let granted = self.grant_in(&beneath(root, export), &inner, pack);
            let has_room = granted.unwrap_or_else(|fault| {
                inner.names.iter().all(|path| {
                    pack.entry(&Entry {
                        path,
                        metadata: Metadata::default(),
                        content: Content::Failed(fault.clone()),
                    })
                })
            });
            pack.set_directory(b"");
            if !has_room {
                return;
            }
        }
    }

    pub(super) fn write_at_top(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let mut parts: BTreeMap<&[u8], Part> = BTreeMap::new();
        // As a whole before anything is written, so that a damaged pack changes nothing.
        for entry in PackReader::new(pack, &limits) {
            let entry = entry.map_err(|error| {
                Fault::new(Code::MalformedFrame, WRITE, error.to_string()).path(root)
            })?;
            let Ok(Some((export, entry))) = self.part_of(root, entry) else {
                continue;
            };
            let part = parts.entry(export).or_insert_with(|| Part {
                entries: PackWriter::new(Vec::new(), PACK_BYTES_MAX),
                written: Ok(Failures::default()),
                seen: 0,
            });
            // It is shorter there, so that it has room.
            let _ = part.entries.entry(&entry);
        }
        for (export, part) in &mut parts {
            let writer = PackWriter::new(Vec::new(), 0);
            let (bytes, length) = std::mem::replace(&mut part.entries, writer).finish();
            let bytes = bytes.get(..length).unwrap_or_default();
            part.written = self.write_in(&beneath(root, export), options, bytes);
        }
        let mut failures = Failures::default();
        for (number, entry) in (0_u32..).zip(PackReader::new(pack, &limits).flatten()) {
            let fault = match self.part_of(root, entry) {
                Err(fault) => Some(fault),
                Ok(None) => None,
                Ok(Some((export, _))) => parts.get_mut(export).and_then(|part| {
                    part.seen += 1;
                    match &part.written {
                        Ok(failures) => failures.of(part.seen - 1).cloned(),
                        Err(fault) => Some(fault.clone()),
                    }
                }),
            };
            if let Some(fault) = fault {
                failures.push(number, fault);
            }
        }
        Ok(failures)
    }

    /// The export of an entry, and the entry in it; `None` if there is nothing to do.
    fn part_of<'a>(
        &self,
        root: &[u8],
        mut entry: Entry<'a>,
    ) -> Result<Option<(&'a [u8], Entry<'a>)>, Fault> {
        let path = entry.path;
        let refused = |code, cause| Err(Fault::new(code, WRITE, cause).path(beneath(root, path)));
        let metadata = &mut entry.metadata;
        if path.is_empty() {
            let is_change = metadata.owner.is_some() || !metadata.xattrs.is_empty();
            return match entry.content {
                Content::Attributes if is_change => {
                    let cause = "the directory of all exports can't be changed";
                    refused(Code::PermissionDenied, cause)
                }
                // It exists.
                _ => Ok(None),
            };
        }
        let (export, inner) = split(path);
        let mut exports = self.shared.exports.iter().zip(&self.rights);
        if !exports.any(|(known, rights)| known.name == export && *rights != Rights::NONE) {
            let cause = "no such export, or this user may not use it";
            return refused(Code::NotFound, cause);
        }
        entry.path = inner;
        if inner.is_empty() {
            metadata.mode = None;
            if !matches!(entry.content, Content::Directory | Content::Attributes) {
                return refused(Code::IsDirectory, "a directory has this name");
            }
        }
        if let Content::HardLink(existing) = &mut entry.content {
            let (other, inner) = split(existing);
            if other != export || inner.is_empty() {
                return refused(Code::CrossDevice, "the two paths are in different exports");
            }
            *existing = inner;
        }
        Ok(Some((export, entry)))
    }
}

/// The first name of a path, and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|&b| b == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (path, b""),
    }
}

/// A path in the directory of all exports, which is written as `root`.
fn beneath(root: &[u8], path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if root.starts_with(b"/") { b"/" } else { b"" };
    [slash, path].concat()
}
